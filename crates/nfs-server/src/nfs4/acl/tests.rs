//! Tests of access control lists, against an evaluator of RFC 8881 §6.2.1.

use super::*;
use crate::fs::Identity;
use nfs_proto::Wire;
use oncrpc::xdr::{Reader, Writer};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

/// Users that a list names, or that own the file.
const USERS: [u32; 3] = [1, 2, 3];
/// Groups that a list names, or that own the file.
const GROUPS: [u32; 3] = [10, 11, 12];
/// A user and a group that no list names.
const STRANGER: u32 = 99;

/// Owner and group of a file: named by lists, or not.
const FILES: [(u32, u32); 3] = [(1, 10), (STRANGER, STRANGER), (2, STRANGER)];

/// Whether a list lets a caller do one thing (RFC 8881 §6.2.1): the first entry that matches decides.
fn grants(aces: &[Ace<'_>], caller: &Identity, (uid, gid): (u32, u32), right: AceMask) -> bool {
    let matches = |ace: &&Ace<'_>| {
        let name = std::str::from_utf8(&ace.who).unwrap();
        match name {
            "OWNER@" => caller.uid == uid,
            "GROUP@" => caller.in_group(gid),
            "EVERYONE@" => true,
            _ if ace.flags.contains(AceFlags::IDENTIFIER_GROUP) => {
                caller.in_group(name.parse().unwrap())
            }
            _ => caller.uid == name.parse().unwrap(),
        }
    };
    let about = aces.iter().filter(|ace| ace.mask.contains(right));
    about
        .into_iter()
        .find(matches)
        .is_some_and(|ace| ace.kind == ALLOW)
}

/// The rights of NFSv4 that a caller has who has these of a POSIX list, as numbers of the RFC.
fn possible(rights: u32, is_directory: bool) -> Vec<AceMask> {
    let read: &[u32] = &[0x1];
    let write: &[u32] = match is_directory {
        true => &[0x2, 0x4, 0x40],
        false => &[0x2, 0x4],
    };
    let each = [(4, read), (2, write), (1, &[0x20])].into_iter();
    let all = each.filter(|(right, _)| rights & right != 0);
    let all = all.flat_map(|(_, bits)| bits);
    all.map(|&bit| AceMask::from_bits_retain(bit)).collect()
}

/// All callers that differ for a list: each user with each set of groups.
fn callers() -> impl Iterator<Item = Identity> {
    let users = USERS.into_iter().chain([STRANGER]);
    let groups = [10, 11, 12, STRANGER];
    users.flat_map(move |uid| {
        (0..1 << groups.len()).map(move |set: u32| {
            let mut caller = Identity::new(uid, 1000);
            let in_set = groups
                .iter()
                .enumerate()
                .filter(|&(at, _)| set & (1 << at) != 0);
            caller.groups = in_set.map(|(_, &group)| group).collect();
            caller
        })
    })
}

/// The entries that apply to the object, or to those that inherit.
fn applying<'a>(aces: &[Ace<'a>], inherited: bool) -> Vec<Ace<'a>> {
    let flag = match inherited {
        true => AceFlags::FILE_INHERIT | AceFlags::DIRECTORY_INHERIT,
        false => AceFlags::INHERIT_ONLY,
    };
    let applies = |ace: &&Ace<'_>| ace.flags.intersects(flag) == inherited;
    aces.iter().filter(applies).copied().collect()
}

/// A list with the same rights whose mask takes nothing away and is there only if it is needed.
fn plain(list: &Acl) -> Acl {
    let mask = list.rights(AclWho::Mask).unwrap_or(7);
    let mut entries: Vec<AclEntry> = Vec::new();
    let (mut needed, mut named) = (0, false);
    for &AclEntry { who, rights } in list.entries() {
        let rights = match who {
            AclWho::Owner | AclWho::Other => rights,
            AclWho::Mask => continue,
            AclWho::User(_) | AclWho::OwningGroup | AclWho::Group(_) => {
                named |= who != AclWho::OwningGroup;
                needed |= rights & mask;
                rights & mask
            }
        };
        entries.push(AclEntry { who, rights });
    }
    if named {
        let who = AclWho::Mask;
        entries.push(AclEntry {
            who,
            rights: needed,
        });
    }
    Acl::new(entries).unwrap()
}

fn any_posix() -> impl Strategy<Value = Acl> {
    let named = |ids: [u32; 3]| btree_map(prop::sample::select(ids.to_vec()), 0_u32..8, 0..=3);
    let basic = (0_u32..8, 0_u32..8, 0_u32..8);
    (basic, named(USERS), named(GROUPS), option::of(0_u32..8)).prop_map(
        |((owner, group, other), users, groups, mask)| {
            let entry = |who, rights| AclEntry { who, rights };
            let mut entries = vec![
                entry(AclWho::Owner, owner),
                entry(AclWho::OwningGroup, group),
                entry(AclWho::Other, other),
            ];
            let is_extended = !users.is_empty() || !groups.is_empty();
            entries.extend(
                users
                    .into_iter()
                    .map(|(id, rights)| entry(AclWho::User(id), rights)),
            );
            entries.extend(
                groups
                    .into_iter()
                    .map(|(id, rights)| entry(AclWho::Group(id), rights)),
            );
            if let Some(mask) = mask.or(is_extended.then_some(7)) {
                entries.push(entry(AclWho::Mask, mask));
            }
            Acl::new(entries).unwrap()
        },
    )
}

fn any_acls() -> impl Strategy<Value = Acls> {
    (any_posix(), option::of(any_posix())).prop_map(|(access, default)| Acls { access, default })
}

/// An entry of a client: kind, flags of inheritance, mask, subject. Denials are of what can be denied, mostly.
fn any_ace() -> impl Strategy<Value = Ace<'static>> {
    let users = prop_oneof![
        Just((AceFlags::empty(), "1")),
        Just((AceFlags::empty(), "2")),
        Just((AceFlags::empty(), "3"))
    ];
    let groups = prop_oneof![
        Just((AceFlags::IDENTIFIER_GROUP, "10")),
        Just((AceFlags::IDENTIFIER_GROUP, "11")),
        Just((AceFlags::IDENTIFIER_GROUP, "12"))
    ];
    let special = prop_oneof![
        Just((AceFlags::empty(), "OWNER@")),
        Just((AceFlags::empty(), "GROUP@")),
        Just((AceFlags::IDENTIFIER_GROUP, "EVERYONE@")),
        Just((AceFlags::empty(), "EVERYONE@"))
    ];
    let rights = prop_oneof![
        4 => (0_u32..8).prop_map(|rights| mask_of(rights, true)),
        2 => (0_u32..128).prop_map(AceMask::from_bits_retain),
        1 => any::<u32>().prop_map(AceMask::from_bits_retain),
    ];
    let inherit = prop_oneof![
        4 => Just(AceFlags::empty()),
        1 => Just(INHERITED),
        1 => Just(AceFlags::FILE_INHERIT),
    ];
    let who = prop_oneof![users, groups, special];
    (any::<bool>(), inherit, rights, who).prop_map(|(allows, inherit, mask, (flags, who))| Ace {
        kind: if allows { ALLOW } else { DENY },
        flags: flags | inherit,
        mask,
        who: Principal::new(who.as_bytes()).unwrap(),
    })
}

fn parsed(aces: &[Ace<'_>], is_directory: bool) -> Result<SetAcls, Status> {
    to_posix(&v4::acl::Acl::new(aces).unwrap(), is_directory)
}

fn ace(kind: AceType, flags: AceFlags, mask: AceMask, who: &str) -> Ace<'_> {
    Ace {
        kind,
        flags,
        mask,
        who: Principal::new(who.as_bytes()).unwrap(),
    }
}

fn set_of(acls: &Acls, is_directory: bool) -> SetAcls {
    SetAcls {
        access: SetAcl::To(plain(&acls.access)),
        default: match (is_directory, &acls.default) {
            (false, _) => SetAcl::Keep,
            (true, None) => SetAcl::Remove,
            (true, Some(default)) => SetAcl::To(plain(default)),
        },
    }
}

proptest! {
    #[test]
    fn every_list_that_was_given_out_comes_back_with_the_same_rights(
        acls in any_acls(),
        is_directory: bool,
    ) {
        let entries = Entries::of(&acls, is_directory);
        let expected = set_of(&acls, is_directory);
        prop_assert_eq!(parsed(&entries.aces(), is_directory), Ok(expected.clone()));
        let SetAcl::To(again) = expected.access else { unreachable!("set_of sets it") };
        let again = Acls { access: again, default: None };
        let aces = Entries::of(&again, is_directory);
        let aces = parsed(&aces.aces(), is_directory);
        prop_assert_eq!(aces.map(|set| set.access), Ok(SetAcl::To(again.access.clone())), "exactly");
        for file in FILES {
            for caller in callers() {
                for want in 1..8 {
                    let both = [&acls.access, &again.access].map(|list| list.grants(&caller, file, want));
                    prop_assert_eq!(both[0], both[1]);
                }
            }
        }
    }

    #[test]
    fn each_caller_has_the_rights_that_the_list_given_out_says(acls in any_acls(), is_directory: bool) {
        let entries = Entries::of(&acls, is_directory);
        let aces = entries.aces();
        let default = acls.default.as_ref().filter(|_| is_directory);
        for (list, inherited) in [(Some(&acls.access), false), (default, true)] {
            let Some(list) = list else { continue };
            let aces = applying(&aces, inherited);
            for file in FILES {
                for caller in callers() {
                    for want in [READ, WRITE, EXECUTE] {
                        let has = list.grants(&caller, file, want);
                        for right in possible(want, is_directory) {
                            prop_assert_eq!(grants(&aces, &caller, file, right), has);
                        }
                    }
                    for right in OF_ANYBODY {
                        prop_assert!(grants(&aces, &caller, file, right));
                    }
                }
            }
        }
    }

    #[test]
    fn list_that_is_set_grants_nothing_that_it_does_not_say(
        aces in vec(any_ace(), 0..12),
        is_directory: bool,
    ) {
        let Ok(set) = parsed(&aces, is_directory) else { return Ok(()) };
        for (list, inherited) in [(&set.access, false), (&set.default, true)] {
            let SetAcl::To(list) = list else { continue };
            let aces = applying(&aces, inherited);
            for file in FILES {
                for caller in callers() {
                    for want in 1..8 {
                        if list.grants(&caller, file, want) {
                            for right in possible(want, is_directory) {
                                prop_assert!(grants(&aces, &caller, file, right), "{caller:?} {file:?} {right:?} {list:?}");
                            }
                        }
                    }
                    // A right that a caller always has is never said to be denied.
                    for right in OF_ANYBODY {
                        let about: Vec<_> = aces.iter().filter(|ace| ace.mask.contains(right)).copied().collect();
                        let is_denied = !grants(&about, &caller, file, right)
                            && about.iter().any(|ace| grants(&[Ace { kind: ALLOW, ..*ace }], &caller, file, right));
                        prop_assert!(!is_denied, "{caller:?} {file:?} {right:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn list_that_is_set_grants_each_subject_what_all_callers_have_whom_its_entry_is_about(
        aces in vec(any_ace(), 0..8),
        is_directory: bool,
    ) {
        let Ok(set) = parsed(&aces, is_directory) else { return Ok(()) };
        let SetAcl::To(list) = set.access else { unreachable!("it is always set") };
        let aces = applying(&aces, false);
        let mut least: BTreeMap<AclWho, u32> = list.entries().iter().map(|entry| (entry.who, 7)).collect();
        for uid in USERS.into_iter().chain([STRANGER]) {
            for gid in GROUPS.into_iter().chain([STRANGER]) {
                for caller in callers() {
                    let has = |want: &u32| {
                        let mut rights = possible(*want, is_directory).into_iter();
                        rights.all(|right| grants(&aces, &caller, (uid, gid), right))
                    };
                    let rights: u32 = [READ, WRITE, EXECUTE].iter().filter(|want| has(want)).sum();
                    let of_group = |who: &AclWho| match who {
                        AclWho::OwningGroup => caller.in_group(gid),
                        AclWho::Group(group) => caller.in_group(*group),
                        AclWho::Owner | AclWho::User(_) | AclWho::Mask | AclWho::Other => false,
                    };
                    let applies = |who: &AclWho| match who {
                        AclWho::Owner => caller.uid == uid,
                        _ if caller.uid == uid => false,
                        AclWho::User(user) => caller.uid == *user,
                        _ if list.rights(AclWho::User(caller.uid)).is_some() => false,
                        AclWho::OwningGroup | AclWho::Group(_) => of_group(who),
                        AclWho::Mask => false,
                        AclWho::Other => !list.entries().iter().any(|entry| of_group(&entry.who)),
                    };
                    for (_, least) in least.iter_mut().filter(|(who, _)| applies(who)) {
                        *least &= rights;
                    }
                }
            }
        }
        for entry in list.entries().iter().filter(|entry| entry.who != AclWho::Mask) {
            prop_assert_eq!(entry.rights, least[&entry.who], "{:?}", entry);
        }
    }

    #[test]
    fn entries_fit_their_bound(acls in any_acls(), is_directory: bool) {
        let entries = Entries::of(&acls, is_directory);
        let aces = entries.aces();
        let mut w = Writer::default();
        v4::acl::Acl::new(&aces).unwrap().write(&mut w);
        prop_assert!(w.len() <= 4 + aces.len() * MAX_ENTRY);
        let written = w.finish();
        let mut r = Reader::new(written.head());
        prop_assert_eq!(v4::acl::Acl::parse(&mut r), Ok(v4::acl::Acl::new(&aces).unwrap()));
        prop_assert_eq!(r.finish(), Ok(()));
    }
}

#[test]
fn mode_0755_is_the_list_of_linux() {
    let acls = Acls {
        access: Acl::of_mode(0o755),
        default: None,
    };
    let seen = |is_directory| {
        let entries = Entries::of(&acls, is_directory);
        let aces = entries.aces();
        let bits = |ace: &Ace<'_>| {
            (
                ace.kind.0,
                ace.flags.bits(),
                ace.mask.bits(),
                ace.who.get().to_vec(),
            )
        };
        aces.iter().map(bits).collect::<Vec<_>>()
    };
    let expected = |owner| {
        [
            (0, 0, owner, b"OWNER@".to_vec()),
            (0, 0, 0x12_00a1, b"GROUP@".to_vec()),
            (0, 0, 0x12_00a1, b"EVERYONE@".to_vec()),
        ]
    };
    assert_eq!(seen(false), expected(0x16_01a7));
    assert_eq!(seen(true), expected(0x16_01e7));
}

#[test]
fn default_list_is_inherited_only() {
    let acls = Acls {
        access: Acl::of_mode(0o700),
        default: Some(Acl::of_mode(0o750)),
    };
    let flags = |is_directory| {
        let entries = Entries::of(&acls, is_directory);
        let flags = |ace: &Ace<'_>| ace.flags.bits();
        entries.aces().iter().map(flags).collect::<Vec<_>>()
    };
    assert_eq!(flags(true), [0, 0, 0, 0xb, 0xb, 0xb]);
    assert_eq!(flags(false), [0, 0, 0]);
}

#[test]
fn named_user_is_denied_what_later_entries_allow() {
    let entry = |who, rights| AclEntry { who, rights };
    let acls = Acls {
        access: Acl::new(vec![
            entry(AclWho::Owner, 6),
            entry(AclWho::User(7), 0),
            entry(AclWho::OwningGroup, 4),
            entry(AclWho::Group(8), 6),
            entry(AclWho::Mask, 6),
            entry(AclWho::Other, 4),
        ])
        .unwrap(),
        default: None,
    };
    let entries = Entries::of(&acls, false);
    let aces = entries.aces();
    let seen = aces.iter().map(|ace| {
        (
            ace.kind,
            ace.flags.bits(),
            ace.mask.bits() & 0x3f,
            &*ace.who,
        )
    });
    let expected: [(AceType, u32, u32, &[u8]); 6] = [
        (ALLOW, 0, 7, b"OWNER@"),
        (DENY, 0, 7, b"7"),
        (ALLOW, 0, 0, b"7"),
        (ALLOW, 0, 1, b"GROUP@"),
        (ALLOW, 0x40, 7, b"8"),
        (ALLOW, 0, 1, b"EVERYONE@"),
    ];
    assert!(seen.eq(expected), "{aces:?}");
}

#[test]
fn list_without_entries_grants_nothing() {
    let set = parsed(&[], true).unwrap();
    assert_eq!(set.access, SetAcl::To(Acl::of_mode(0)));
    assert_eq!(set.default, SetAcl::Remove);
    assert_eq!(parsed(&[], false).unwrap().default, SetAcl::Keep);
}

#[test]
fn what_cannot_be_kept_is_refused() {
    let none = AceFlags::empty();
    let read = AceMask::READ_DATA;
    let check = |kind, flags, mask, who, is_directory, expected: Result<(), Status>| {
        let set = parsed(&[ace(kind, flags, mask, who)], is_directory);
        assert_eq!(set.map(drop), expected, "{kind:?} {flags:?} {mask:?} {who}");
    };
    let unsupported = Err(Status::AttributeNotSupported);
    for kind in [2, 3, 4] {
        check(AceType(kind), none, read, "OWNER@", false, unsupported);
    }
    for flags in [0x04, 0x10, 0x20, 0x80, 0x100] {
        let flags = AceFlags::from_bits_retain(flags);
        check(
            ALLOW,
            flags | AceFlags::FILE_INHERIT,
            read,
            "OWNER@",
            true,
            unsupported,
        );
    }
    check(
        ALLOW,
        AceFlags::FILE_INHERIT,
        read,
        "OWNER@",
        false,
        unsupported,
    );
    check(
        ALLOW,
        AceFlags::DIRECTORY_INHERIT,
        read,
        "OWNER@",
        true,
        Ok(()),
    );
    check(
        ALLOW,
        AceFlags::INHERIT_ONLY,
        read,
        "OWNER@",
        true,
        unsupported,
    );
    check(DENY, none, AceMask::READ_ACL, "GROUP@", false, unsupported);
    check(
        DENY,
        none,
        AceMask::READ_ATTRIBUTES,
        "5",
        false,
        unsupported,
    );
    check(DENY, none, AceMask::WRITE_ACL, "OWNER@", false, unsupported);
    check(
        DENY,
        none,
        AceMask::WRITE_ATTRIBUTES,
        "EVERYONE@",
        false,
        unsupported,
    );
    check(DENY, none, AceMask::WRITE_OWNER, "OWNER@", false, Ok(()));
    check(ALLOW, none, AceMask::all(), "OWNER@", false, Ok(()));
    check(
        ALLOW,
        none,
        read,
        "alice@example.org",
        false,
        Err(Status::BadOwner),
    );
    check(
        ALLOW,
        none,
        read,
        "INTERACTIVE@",
        false,
        Err(Status::BadOwner),
    );
    check(
        ALLOW,
        none,
        read,
        "4294967295",
        false,
        Err(Status::BadOwner),
    );
    check(ALLOW, none, read, "", false, Err(Status::Invalid));
}

#[test]
fn right_that_was_allowed_before_may_be_denied_afterwards() {
    let none = AceFlags::empty();
    let all = AceMask::all();
    let aces = [
        ace(ALLOW, none, all, "OWNER@"),
        ace(ALLOW, none, OF_ANYBODY | AceMask::READ_DATA, "EVERYONE@"),
        ace(DENY, none, all - OF_OWNER, "EVERYONE@"),
    ];
    let set = parsed(&aces, false).unwrap();
    assert_eq!(set.access, SetAcl::To(Acl::of_mode(0o744)));
}

#[test]
fn denial_behind_an_allowance_of_the_same_subject_denies_nobody() {
    let none = AceFlags::empty();
    let read = AceMask::READ_DATA;
    let group = AceFlags::IDENTIFIER_GROUP;
    for (flags, name) in [(none, "5"), (group, "5"), (none, "GROUP@")] {
        let aces = [
            ace(ALLOW, flags, read, name),
            ace(DENY, flags, read, name),
            ace(ALLOW, none, read, "OWNER@"),
        ];
        let SetAcl::To(list) = parsed(&aces, false).unwrap().access else {
            unreachable!("it is always set")
        };
        assert_eq!(list.rights(AclWho::Owner), Some(READ), "{name}");
    }
}

#[test]
fn to_write_a_directory_takes_the_right_to_remove_from_it() {
    let write = AceMask::WRITE_DATA | AceMask::APPEND_DATA;
    let aces = [ace(ALLOW, AceFlags::empty(), write, "OWNER@")];
    let mode = |is_directory| parsed(&aces, is_directory).unwrap().access;
    assert_eq!(mode(false), SetAcl::To(Acl::of_mode(0o200)));
    assert_eq!(mode(true), SetAcl::To(Acl::of_mode(0)));
}

#[test]
fn list_of_the_most_entries_is_taken_if_its_subjects_fit() {
    let names: Vec<String> = (0..MAX_ACL_ENTRIES).map(|id| id.to_string()).collect();
    let of = |count: usize| {
        let entry = |name: &'_ String| -> (AceType, AceMask, String) {
            (ALLOW, AceMask::READ_DATA, name.clone())
        };
        let entries: Vec<_> = names[..count].iter().map(entry).collect();
        let aces = entries
            .iter()
            .map(|(kind, mask, name)| ace(*kind, AceFlags::empty(), *mask, name));
        parsed(&aces.collect::<Vec<_>>(), false).map(|set| match set.access {
            SetAcl::To(list) => list.entries().len(),
            SetAcl::Keep | SetAcl::Remove => 0,
        })
    };
    assert_eq!(of(1020), Ok(1024));
    assert_eq!(of(1021), Err(Status::AttributeNotSupported));
    assert_eq!(of(1024), Err(Status::AttributeNotSupported));
}
