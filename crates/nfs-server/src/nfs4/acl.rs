//! Access control lists of NFSv4 as the POSIX lists of a file system, and the other way round (RFC 8881 §6).
//!
//! A POSIX list becomes entries that allow and deny so that each caller has the same rights one by one. Its mask is applied and
//! not shown: what comes back has the rights that were in effect, and the mask that they need.
//!
//! A list of NFSv4 becomes the POSIX list that grants as much as it can without granting anybody what the first list does not
//! (RFC 8881 §6.2.1: "at least as strict"). Rights that POSIX has not are ignored where they are allowed. Those that a caller
//! has whatever the list says, to read attributes and the list and, for the owner, to change them, may not be denied.

#[cfg(test)]
mod tests;

use crate::fs::{Acl, AclEntry, AclWho, Acls, SetAcl, SetAcls};
use crate::nfs4::owners::{self, Decimal};
use nfs_proto::limits::MAX_ACL_ENTRIES;
use nfs_proto::v4::acl::{Ace, AceFlags, AceMask, AceType};
use nfs_proto::v4::{self, Principal, Status};
use std::collections::BTreeMap;

/// Entries that allow (RFC 8881 §6.2.1.1).
const ALLOW: AceType = AceType(0);
/// Entries that deny.
const DENY: AceType = AceType(1);

const OWNER: &[u8] = b"OWNER@";
const GROUP: &[u8] = b"GROUP@";
const EVERYONE: &[u8] = b"EVERYONE@";

/// Largest size of a list on the wire.
pub(super) const MAX_WRITTEN: usize = 4 + MAX_ACL_ENTRIES as usize * MAX_ENTRY;
/// Largest size of an entry: its subject is `EVERYONE@` or a number.
const MAX_ENTRY: usize = 4 + 4 + 4 + owners::MAX_WRITTEN;

const _: () = assert!(4 + EVERYONE.len().next_multiple_of(4) <= owners::MAX_WRITTEN);

/// Rights of a POSIX list.
const READ: u32 = 4;
const WRITE: u32 = 2;
const EXECUTE: u32 = 1;

/// Rights of each caller, which no POSIX list takes away.
const OF_ANYBODY: AceMask = AceMask::READ_ATTRIBUTES.union(AceMask::READ_ACL);
/// Further rights of the owner, which no POSIX list takes away.
const OF_OWNER: AceMask = AceMask::WRITE_ATTRIBUTES.union(AceMask::WRITE_ACL);
/// Entries of a default list: both kinds of objects inherit it, and it does not apply to the directory.
const INHERITED: AceFlags = AceFlags::FILE_INHERIT
    .union(AceFlags::DIRECTORY_INHERIT)
    .union(AceFlags::INHERIT_ONLY);
/// Flags that a list may have.
const SUPPORTED: AceFlags = INHERITED.union(AceFlags::IDENTIFIER_GROUP);

/// Returns the rights of NFSv4 that make up those of a POSIX list. To write a directory is also to remove from it.
fn mask_of(rights: u32, is_directory: bool) -> AceMask {
    let mut mask = AceMask::empty();
    if rights & READ != 0 {
        mask |= AceMask::READ_DATA;
    }
    if rights & WRITE != 0 {
        mask |= AceMask::WRITE_DATA | AceMask::APPEND_DATA;
        if is_directory {
            mask |= AceMask::DELETE_CHILD;
        }
    }
    if rights & EXECUTE != 0 {
        mask |= AceMask::EXECUTE;
    }
    mask
}

/// Lists of a file as entries of NFSv4.
pub(super) struct Entries(Vec<Entry>);

struct Entry {
    kind: AceType,
    flags: AceFlags,
    mask: AceMask,
    who: AclWho,
    /// The number of a named user or group.
    number: Decimal,
}

impl Entry {
    fn new(kind: AceType, flags: AceFlags, mask: AceMask, who: AclWho) -> Self {
        let (flags, number) = match who {
            AclWho::User(id) => (flags, id),
            AclWho::Group(id) => (flags | AceFlags::IDENTIFIER_GROUP, id),
            AclWho::Owner | AclWho::OwningGroup | AclWho::Mask | AclWho::Other => (flags, 0),
        };
        Self {
            kind,
            flags,
            mask,
            who,
            number: Decimal::new(number),
        }
    }

    /// Returns the entry as it is written.
    fn ace(&self) -> Ace<'_> {
        let name = match self.who {
            AclWho::Owner => OWNER,
            AclWho::OwningGroup => GROUP,
            AclWho::User(_) | AclWho::Group(_) => self.number.as_bytes(),
            AclWho::Mask | AclWho::Other => EVERYONE,
        };
        Ace {
            kind: self.kind,
            flags: self.flags,
            mask: self.mask,
            who: Principal::new(name).expect("shorter than the longest name"),
        }
    }
}

impl Entries {
    /// Returns the entries for the access list, and for the default list of a directory.
    pub(super) fn of(acls: &Acls, is_directory: bool) -> Self {
        let default = acls.default.as_ref().filter(|_| is_directory);
        let lists = acls.access.entries().len() + default.map_or(0, |list| list.entries().len());
        let mut entries = Self(Vec::with_capacity(2 * lists));
        entries.add(&acls.access, AceFlags::empty(), is_directory);
        if let Some(default) = default {
            entries.add(default, INHERITED, is_directory);
        }
        entries
    }

    /// Returns the entries as they are written.
    pub(super) fn aces(&self) -> Vec<Ace<'_>> {
        self.0.iter().map(Entry::ace).collect()
    }

    /// Adds a POSIX list. Its first entry that matches a caller decides, while NFSv4 goes on to the next: each subject is denied
    /// what later entries would allow it. All groups are allowed what they are before any is denied something, since one of the
    /// caller's groups suffices.
    fn add(&mut self, list: &Acl, flags: AceFlags, is_directory: bool) {
        let list_mask = list.rights(AclWho::Mask).unwrap_or(7);
        let in_effect = |entry: &AclEntry| match entry.who {
            AclWho::Owner | AclWho::Other | AclWho::Mask => entry.rights,
            AclWho::User(_) | AclWho::OwningGroup | AclWho::Group(_) => entry.rights & list_mask,
        };
        let all_of = |which: fn(AclWho) -> bool| {
            let entries = list.entries().iter().filter(|entry| which(entry.who));
            entries.fold(0, |all, entry| all | in_effect(entry))
        };
        let others = all_of(|who| who == AclWho::Other);
        let groups = all_of(is_group) | others;
        let users = all_of(|who| matches!(who, AclWho::User(_))) | groups;

        let mut push = |kind, who, mask: AceMask| {
            if kind == ALLOW || !mask.is_empty() {
                self.0.push(Entry::new(kind, flags, mask, who));
            }
        };
        let denied = |rights: u32, later: u32| mask_of(!rights & later, is_directory);
        let allowed = |rights| mask_of(rights, is_directory) | OF_ANYBODY | AceMask::SYNCHRONIZE;
        for entry in list.entries() {
            let (who, rights) = (entry.who, in_effect(entry));
            match who {
                AclWho::Owner => {
                    push(DENY, who, denied(rights, users));
                    push(ALLOW, who, allowed(rights) | OF_OWNER);
                }
                AclWho::User(_) => {
                    push(DENY, who, denied(rights, groups));
                    push(ALLOW, who, allowed(rights));
                }
                AclWho::OwningGroup | AclWho::Group(_) => push(ALLOW, who, allowed(rights)),
                AclWho::Mask | AclWho::Other => {}
            }
        }
        for entry in list.entries().iter().filter(|entry| is_group(entry.who)) {
            push(DENY, entry.who, denied(in_effect(entry), others));
        }
        push(ALLOW, AclWho::Other, allowed(others));
    }
}

fn is_group(who: AclWho) -> bool {
    matches!(who, AclWho::OwningGroup | AclWho::Group(_))
}

/// Returns the POSIX lists for a list of NFSv4. A directory whose list has nothing to inherit loses its default list.
///
/// An entry that only files, or only directories, inherit is inherited by both, as RFC 8881 §6.2.1.4 has it for servers with one
/// kind of inheritance.
///
/// # Errors
///
/// `NFS4ERR_ATTRNOTSUPP` for what cannot be stored or enforced (RFC 8881 §6.2.1.2, §6.2.1.4): other entries than those that
/// allow and deny, other flags, inheritance by what is no directory, a denial of rights that everybody has, and too many
/// subjects. Errors of [`owners::parse`] for the subjects, other special identifiers (RFC 8881 §6.2.1.5) among them.
pub(super) fn to_posix(list: &v4::acl::Acl<'_>, is_directory: bool) -> Result<SetAcls, Status> {
    let (mut access, mut default) = (Draft::default(), Draft::default());
    for (place, ace) in (0..).zip(list.iter()) {
        if ace.kind != ALLOW && ace.kind != DENY {
            return Err(Status::AttributeNotSupported);
        }
        let inherit = AceFlags::FILE_INHERIT | AceFlags::DIRECTORY_INHERIT;
        let is_inherited = ace.flags.intersects(inherit);
        let is_only_inherited = ace.flags.contains(AceFlags::INHERIT_ONLY);
        if ace.flags.bits() & !SUPPORTED.bits() != 0
            || is_inherited && !is_directory
            || is_only_inherited && !is_inherited
        {
            return Err(Status::AttributeNotSupported);
        }
        let who = subject(&ace)?;
        if is_inherited {
            default.take(place, who, &ace);
        }
        if !is_only_inherited {
            access.take(place, who, &ace);
        }
    }
    Ok(SetAcls {
        access: SetAcl::To(access.finish(is_directory)?),
        default: match (is_directory, default.subjects.is_empty()) {
            (false, _) => SetAcl::Keep,
            (true, true) => SetAcl::Remove,
            (true, false) => SetAcl::To(default.finish(is_directory)?),
        },
    })
}

/// Returns the subject of an entry. That of `EVERYONE@` is [`AclWho::Other`].
fn subject(ace: &Ace<'_>) -> Result<AclWho, Status> {
    Ok(match ace.who.get() {
        OWNER => AclWho::Owner,
        GROUP => AclWho::OwningGroup,
        EVERYONE => AclWho::Other,
        name => {
            let number = owners::parse(name)?;
            match ace.flags.contains(AceFlags::IDENTIFIER_GROUP) {
                true => AclWho::Group(number),
                false => AclWho::User(number),
            }
        }
    })
}

/// The rights that matter, one by one. Others are never in a POSIX list, and never taken away by one.
const RIGHTS: [AceMask; 9] = [
    AceMask::READ_DATA,
    AceMask::WRITE_DATA,
    AceMask::APPEND_DATA,
    AceMask::EXECUTE,
    AceMask::DELETE_CHILD,
    AceMask::READ_ATTRIBUTES,
    AceMask::READ_ACL,
    AceMask::WRITE_ATTRIBUTES,
    AceMask::WRITE_ACL,
];

/// For each of [`RIGHTS`] the place of an entry in its list.
type Places = [u16; RIGHTS.len()];

/// No entry.
const NEVER: u16 = u16::MAX;

const _: () = assert!(MAX_ACL_ENTRIES < NEVER as u32);

/// Returns the earlier place of each right.
fn earlier(a: Places, b: Places) -> Places {
    std::array::from_fn(|at| a[at].min(b[at]))
}

/// The first entries that allow, and that deny.
#[derive(Clone, Copy)]
struct First {
    allow: Places,
    deny: Places,
}

impl Default for First {
    fn default() -> Self {
        Self {
            allow: [NEVER; RIGHTS.len()],
            deny: [NEVER; RIGHTS.len()],
        }
    }
}

impl First {
    fn or(self, other: Self) -> Self {
        Self {
            allow: earlier(self.allow, other.allow),
            deny: earlier(self.deny, other.deny),
        }
    }

    /// The entries that deny and have an effect: nothing before them allows.
    fn denials(&self) -> Places {
        std::array::from_fn(|at| match self.deny[at] < self.allow[at] {
            true => self.deny[at],
            false => NEVER,
        })
    }

    /// The rights that are allowed first.
    fn allowed(&self) -> AceMask {
        first_in(&self.allow, &self.deny)
    }

    /// The rights that are denied first.
    fn denied(&self) -> AceMask {
        first_in(&self.deny, &self.allow)
    }
}

/// Returns the rights that have an earlier place in `these` than in `those`.
fn first_in(these: &Places, those: &Places) -> AceMask {
    let places = these.iter().zip(those);
    let rights = RIGHTS.iter().zip(places);
    let first = rights.filter(|(_, (this, that))| this < that);
    first.fold(AceMask::empty(), |mask, (&right, _)| mask | right)
}

/// A POSIX list in the making: for each subject of the list of NFSv4 its own first entries. The work is in proportion to the
/// entries.
#[derive(Default)]
struct Draft {
    subjects: BTreeMap<AclWho, First>,
}

impl Draft {
    /// Takes the next entry.
    fn take(&mut self, place: u16, who: AclWho, ace: &Ace<'_>) {
        let first = self.subjects.entry(who).or_default();
        let places = match ace.kind == ALLOW {
            true => &mut first.allow,
            false => &mut first.deny,
        };
        for (right, at) in RIGHTS.iter().zip(places) {
            if ace.mask.contains(*right) {
                *at = place.min(*at);
            }
        }
    }

    /// Returns the list. Each subject gets what all callers have to whom its entry of the POSIX list applies.
    ///
    /// An entry of NFSv4 with another subject may be about such a caller, too: the owner may be a named user, and owner, user or
    /// member of a group may be in any group. What such an entry allows does not count, and what it denies counts. Others are in
    /// no group of the list, and are not named by it.
    fn finish(mut self, is_directory: bool) -> Result<Acl, Status> {
        for who in [AclWho::Owner, AclWho::OwningGroup, AclWho::Other] {
            self.subjects.entry(who).or_default();
        }
        let everyone = self.subjects[&AclWho::Other];
        let own = |first: &First| first.or(everyone);
        let denials = |which: fn(AclWho) -> bool| {
            let subjects = self.subjects.iter().filter(|&(&who, _)| which(who));
            let all = subjects.map(|(_, first)| own(first).denials());
            all.fold([NEVER; RIGHTS.len()], earlier)
        };
        let of_groups = denials(is_group);
        let of_users = denials(|who| matches!(who, AclWho::User(_)));

        let mut entries = Vec::with_capacity(self.subjects.len() + 1);
        let (mut mask, mut is_extended) = (0, false);
        for (&who, first) in &self.subjects {
            let mut first = own(first);
            first.deny = match who {
                AclWho::Owner => earlier(first.deny, earlier(of_groups, of_users)),
                AclWho::User(_) | AclWho::OwningGroup | AclWho::Group(_) => {
                    earlier(first.deny, of_groups)
                }
                AclWho::Mask | AclWho::Other => first.deny,
            };
            let always = match who {
                AclWho::Owner => OF_ANYBODY | OF_OWNER,
                _ => OF_ANYBODY,
            };
            if first.denied().intersects(always) {
                return Err(Status::AttributeNotSupported);
            }
            let allowed = first.allowed();
            let has = |right: &u32| allowed.contains(mask_of(*right, is_directory));
            let rights = [READ, WRITE, EXECUTE]
                .iter()
                .filter(|right| has(right))
                .sum();
            if is_group(who) || matches!(who, AclWho::User(_)) {
                mask |= rights;
                is_extended |= who != AclWho::OwningGroup;
            }
            entries.push(AclEntry { who, rights });
        }
        if is_extended {
            let who = AclWho::Mask;
            entries.push(AclEntry { who, rights: mask });
        }
        // Clients of version 3 could not get more.
        if entries.len() > MAX_ACL_ENTRIES as usize {
            return Err(Status::AttributeNotSupported);
        }
        Acl::new(entries).ok_or(Status::AttributeNotSupported)
    }
}
