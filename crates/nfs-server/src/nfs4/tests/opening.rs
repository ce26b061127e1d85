//! Forms of OPEN and OPEN_DOWNGRADE.

use super::*;
use crate::fs::{Identity, SetAttributes};
use nfs_proto::v4::StateId;
use nfs_proto::v4::delegation::{Delegation, NoDelegation};
use nfs_proto::v4::open::{DelegationWish, ExclusiveCreate, OpenDowngradeArgs};

fn args(of: &'static str, access: ShareAccess, deny: ShareDeny) -> OpenArgs<'static> {
    match open(of, access, deny) {
        ArgOp::Open(args) => args,
        other => panic!("{other:?}"),
    }
}

#[test]
fn reason_for_no_delegation_is_told_to_who_wants_one() {
    let site = Site::in_memory();
    let client = site.client(b"one");
    let refused = |access| {
        let opened = client.at(&[], vec![open("f", access, ShareDeny::empty())]);
        match opened.last() {
            ResOp::Open(Ok(opened)) => match opened.delegation {
                Delegation::None => None,
                Delegation::NoneExt(why) => Some(why),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    };
    let read = ShareAccess::READ;
    assert_eq!(refused(read), None);
    let wish = |wish| refused(read.with_wish(wish));
    assert_eq!(
        wish(DelegationWish::NoDelegation),
        Some(NoDelegation::NotWanted)
    );
    assert_eq!(wish(DelegationWish::Cancel), Some(NoDelegation::Cancelled));
    let signal = ShareAccess::WANT_SIGNAL_DELEG_WHEN_RESRC_AVAIL;
    assert_eq!(refused(read | signal), Some(NoDelegation::Resource(false)));
    assert_eq!(
        wish(DelegationWish::Any),
        Some(NoDelegation::Resource(false))
    );
}

#[test]
fn share_that_means_nothing_is_invalid() {
    let site = Site::in_memory();
    let client = site.client(b"one");
    let undefined = ShareAccess::from_bits_retain(0x601);
    let none = ShareDeny::empty();
    for (access, deny) in [
        (ShareAccess::empty(), none),
        (undefined, none),
        (ShareAccess::from_bits_retain(5), none),
        (ShareAccess::READ, ShareDeny::from_bits_retain(4)),
    ] {
        let opened = client.at(&[], vec![open("f", access, deny)]);
        assert_eq!(opened.status(), Err(Status::Invalid), "{access:?} {deny:?}");
    }
    let absent = client.at(&["f"], vec![]);
    assert_eq!(absent.status(), Err(Status::NoEntry), "nothing was made");
}

#[test]
fn file_is_opened_by_its_handle_and_not_made_so() {
    for site in Site::all() {
        let client = site.client(b"one");
        let by_name = client.open("f", ShareAccess::READ).state;
        let by_handle = OpenArgs {
            how: OpenHow::NoCreate,
            claim: OpenClaim::Handle,
            ..args("f", ShareAccess::READ, ShareDeny::empty())
        };
        let opened = client.at(&["f"], vec![ArgOp::Open(by_handle)]);
        let ResOp::Open(Ok(opened)) = opened.last() else {
            panic!("{opened:?}");
        };
        assert_eq!(opened.state.other, by_name.other, "one open of one owner");
        assert_eq!(opened.state.seqid, by_name.seqid + 1);
        let makes = OpenArgs {
            how: OpenHow::Create(CreateHow::Unchecked(v4::fattr::Fattr::default())),
            ..by_handle
        };
        let made = client.at(&["f"], vec![ArgOp::Open(makes)]);
        assert_eq!(made.status(), Err(Status::Invalid));
    }
}

#[test]
fn client_id_and_seqid_of_an_open_mean_nothing() {
    let site = Site::in_memory();
    let (one, two) = (site.client(b"one"), site.client(b"two"));
    let mine = one.open("f", ShareAccess::READ).state;
    let claimed = OpenArgs {
        seqid: 9,
        owner: StateOwner {
            client: one.client,
            owner: Identifier::new(b"process").unwrap(),
        },
        ..args("f", ShareAccess::READ, ShareDeny::empty())
    };
    let opened = two.at(&[], vec![ArgOp::Open(claimed)]);
    let ResOp::Open(Ok(opened)) = opened.last() else {
        panic!("{opened:?}");
    };
    assert_ne!(opened.state.other, mine.other);
    assert_eq!(opened.state.seqid, 1, "it is two's first");
}

#[test]
fn exclusive_create_with_an_attribute_that_it_does_not_set_is_invalid() {
    for site in Site::all() {
        let client = site.client(b"one");
        let times = [Attribute::TimeModifySet(v4::SetTime::ServerTime)];
        let exclusive = OpenArgs {
            how: OpenHow::Create(CreateHow::Exclusive41(ExclusiveCreate {
                verifier: Verifier([1; 8]),
                attributes: v4::fattr::Fattr::new(&times).unwrap(),
            })),
            ..args("x", ShareAccess::READ, ShareDeny::empty())
        };
        let opened = client.at(&[], vec![ArgOp::Open(exclusive)]);
        assert_eq!(opened.status(), Err(Status::Invalid));
    }
}

#[test]
fn exclusive_create_of_an_empty_file_is_known_again() {
    for site in Site::all() {
        let client = site.client(b"one");
        let exclusive = |verifier| {
            let args = OpenArgs {
                how: OpenHow::Create(CreateHow::Exclusive41(ExclusiveCreate {
                    verifier: Verifier([verifier; 8]),
                    attributes: v4::fattr::Fattr::new(&[Attribute::Size(0)]).unwrap(),
                })),
                ..args("x", ShareAccess::WRITE, ShareDeny::empty())
            };
            client.at(&[], vec![ArgOp::Open(args)])
        };
        exclusive(1).ok();
        exclusive(1).ok();
        assert_eq!(exclusive(2).status(), Err(Status::Exist));
    }
}

/// An EXCLUSIVE4_1 of `x`.
fn exclusive<'a>(verifier: u8, attributes: &'a [Attribute<'a>]) -> ArgOp<'a> {
    ArgOp::Open(OpenArgs {
        how: OpenHow::Create(CreateHow::Exclusive41(ExclusiveCreate {
            verifier: Verifier([verifier; 8]),
            attributes: v4::fattr::Fattr::new(attributes).unwrap(),
        })),
        ..args("x", ShareAccess::WRITE, ShareDeny::empty())
    })
}

/// The attributes that an OPEN has set, beside the times that keep the verifier.
fn set_by(opened: &Results) -> Bitmap {
    let opened = opened.all().1.into_iter().find_map(|result| match result {
        ResOp::Open(Ok(opened)) => Some(opened),
        _ => None,
    });
    let times = [AttributeNumber::TimeAccess, AttributeNumber::TimeModify];
    let times = Bitmap::of(times.map(|number| number as u32));
    let set = opened.expect("an OPEN").set;
    assert_eq!(set & times, times);
    set - times
}

fn numbers<const N: usize>(numbers: [AttributeNumber; N]) -> Bitmap {
    Bitmap::of(numbers.map(|number| number as u32))
}

#[test]
fn exclusive_create_of_a_file_with_a_size_is_known_again() {
    for site in Site::all() {
        let client = site.client(b"one");
        // Also one that nobody may write to by its mode.
        let attributes = [Attribute::Size(5), Attribute::Mode(0o440)];
        let create = |verifier| {
            let wanted = [AttributeNumber::Size, AttributeNumber::Mode];
            client.at(&[], vec![exclusive(verifier, &attributes), get(&wanted)])
        };
        for _ in 0..2 {
            let created = create(1);
            assert_eq!(created.attributes(), attributes);
            let set = numbers([AttributeNumber::Size, AttributeNumber::Mode]);
            assert_eq!(set_by(&created), set);
        }
        assert_eq!(create(2).status(), Err(Status::Exist));
        let supported = client.at(&[], vec![get(&[AttributeNumber::SuppAttrExclCreat])]);
        let [Attribute::SuppAttrExclCreat(supported)] = supported.attributes()[..] else {
            panic!("{supported:?}");
        };
        assert!(supported.contains(AttributeNumber::Size as u32));
    }
}

#[test]
fn group_that_a_user_gives_a_new_file_is_set_if_it_is_one_of_theirs_and_told_only_then() {
    for site in Site::all() {
        let is_local = site._dir.is_some();
        if is_local && !LocalFs::acts_for_callers() {
            continue;
        }
        let root = Identity::root();
        let open_to_all =
            site.fs
                .set_attributes(&root, site.fs.root(), SetAttributes::mode(0o777), None);
        open_to_all.wait().result.unwrap();
        let client = site.client(b"one");
        let cred = Credential::Sys(AuthSys {
            uid: 1000,
            gid: 1000,
            gids: [2000].into_iter().collect(),
            ..AuthSys::default()
        });
        let run = |operations: Vec<ArgOp<'_>>| {
            client.sequence.set(client.sequence.get() + 1);
            let mut all = vec![
                client.sequence(client.sequence.get(), true),
                ArgOp::PutRootFh,
                lookup("srv"),
                lookup("data"),
            ];
            all.extend(operations);
            site.answer(compound_of(2, &cred, all), &client.caller)
        };
        let gid = |name: &'static [u8]| Attribute::OwnerGroup(nfs_proto::Bytes::new(name).unwrap());
        let uid = |name: &'static [u8]| Attribute::Owner(nfs_proto::Bytes::new(name).unwrap());
        let wanted = [AttributeNumber::Mode, AttributeNumber::OwnerGroup];
        let theirs = [Attribute::Mode(0o4750), uid(b"1000"), gid(b"2000")];
        for _ in 0..2 {
            let created = run(vec![exclusive(1, &theirs), get(&wanted)]);
            assert_eq!(
                created.attributes(),
                [Attribute::Mode(0o4750), gid(b"2000")],
                "{is_local}"
            );
            let [mode, group] = wanted;
            let set = numbers([mode, AttributeNumber::Owner, group]);
            assert_eq!(set_by(&created), set);
        }
        run(vec![ArgOp::Remove(v4::directory::RemoveArgs {
            name: name("x"),
        })])
        .ok();
        let of_others = [Attribute::Mode(0o640), uid(b"0"), gid(b"3000")];
        for _ in 0..2 {
            let created = run(vec![exclusive(2, &of_others), get(&wanted)]);
            assert_eq!(
                created.attributes(),
                [Attribute::Mode(0o640), gid(b"1000")],
                "{is_local}"
            );
            assert_eq!(set_by(&created), numbers([AttributeNumber::Mode]));
        }
    }
}

#[test]
fn downgrade_leaves_wishes_about_a_delegation_aside() {
    let site = Site::in_memory();
    let client = site.client(b"one");
    client.open("f", ShareAccess::READ);
    let both = ShareAccess::READ | ShareAccess::WRITE;
    let state = client.open("f", both).state;
    let downgrade = |state: StateId, access| {
        let args = OpenDowngradeArgs {
            state,
            seqid: 5,
            access,
            deny: ShareDeny::empty(),
        };
        client.at(&["f"], vec![ArgOp::OpenDowngrade(args)])
    };
    let undefined = downgrade(state, ShareAccess::from_bits_retain(0x601));
    assert_eq!(undefined.status(), Err(Status::Invalid));
    let wish = ShareAccess::READ.with_wish(DelegationWish::NoDelegation);
    downgrade(state, wish).ok();
}

#[test]
fn open_that_cannot_truncate_leaves_nothing_open() {
    for site in Site::all() {
        let client = site.client(b"one");
        client.open("f", ShareAccess::READ);
        let opens = site.nfs.state().usage().states;
        let size = [Attribute::Size(0)];
        let cut = OpenArgs {
            how: OpenHow::Create(CreateHow::Unchecked(v4::fattr::Fattr::new(&size).unwrap())),
            owner: StateOwner {
                client: ClientId(0),
                owner: Identifier::new(b"other").unwrap(),
            },
            ..args("f", ShareAccess::READ, ShareDeny::empty())
        };
        client.sequence.set(client.sequence.get() + 1);
        let operations = vec![
            client.sequence(client.sequence.get(), true),
            ArgOp::PutRootFh,
            lookup("srv"),
            lookup("data"),
            ArgOp::Open(cut),
        ];
        // Who may read the file, and not write it.
        let refused = site.call_as(&client.caller, 1000, 1000, operations);
        assert_eq!(refused.status(), Err(Status::Access));
        assert_eq!(site.nfs.state().usage().states, opens);
    }
}
