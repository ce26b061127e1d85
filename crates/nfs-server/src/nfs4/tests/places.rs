//! Places of operations in a COMPOUND, and the sizes of requests and replies.

use super::*;
use nfs_proto::v4::lock::LockTArgs;
use nfs_proto::v4::obsolete::RenewArgs;
use nfs_proto::v4::session::{BindConnToSessionArgs, ClientDirection, DestroySessionArgs};

#[test]
fn operations_of_minor_version_0_are_not_supported() {
    let site = Site::in_memory();
    let client = site.client(b"one");
    let renew = ArgOp::Renew(RenewArgs {
        client: client.client,
    });
    let renewed = client.run(vec![renew]);
    assert_eq!(renewed.status(), Err(Status::NotSupported));
}

#[test]
fn connection_is_bound_by_a_request_of_its_own() {
    let site = Site::in_memory();
    let client = site.client(b"one");
    let bind = || {
        ArgOp::BindConnToSession(BindConnToSessionArgs {
            session: client.session,
            direction: ClientDirection::Fore,
            use_rdma: false,
        })
    };
    let in_session = client.run(vec![bind()]);
    assert_eq!(in_session.status(), Err(Status::NotOnlyOperation));
    let two = site.call(&client.caller, vec![bind(), ArgOp::PutRootFh]);
    assert_eq!(two.status(), Err(Status::NotOnlyOperation));
    let other = Caller::new("127.0.0.1:705".parse().unwrap());
    let bound = site.call(&other, vec![bind()]);
    assert!(matches!(bound.only(), ResOp::BindConnToSession(Ok(_))));
}

#[test]
fn session_is_destroyed_by_the_last_operation_of_its_own_request() {
    let site = Site::in_memory();
    let client = site.client(b"one");
    let destroy = || {
        ArgOp::DestroySession(DestroySessionArgs {
            session: client.session,
        })
    };
    let first = client.run(vec![destroy(), ArgOp::PutRootFh]);
    assert_eq!(first.status(), Err(Status::NotOnlyOperation));
    client.run(vec![ArgOp::PutRootFh, destroy()]).ok();
    let gone = client.run(vec![ArgOp::PutRootFh]);
    assert_eq!(gone.status(), Err(Status::BadSession));
}

#[test]
fn retry_by_another_user_is_told_so() {
    let site = Site::in_memory();
    let client = site.client(b"one");
    let request = || vec![client.sequence(2, true), ArgOp::PutRootFh];
    site.call_as(&client.caller, 7, 7, request()).ok();
    let other = site.call_as(&client.caller, 8, 7, request());
    assert_eq!(other.status(), Err(Status::SequenceFalseRetry));
    site.call_as(&client.caller, 7, 7, request()).ok();
}

#[test]
fn operations_beyond_the_limit_of_the_session_are_refused() {
    let site = Site::in_memory();
    let client = site.client(b"one");
    let many = |number| client.run(vec![ArgOp::PutRootFh; number]);
    assert_eq!(many(8).status(), Err(Status::TooManyOperations));
    client.sequence.set(client.sequence.get() - 1);
    many(7).ok();
}

const BOTH: ShareAccess = ShareAccess::READ.union(ShareAccess::WRITE);

/// A client whose replies may have so many bytes.
fn client_with_replies(site: &Site, max_response: u32) -> Client<'_> {
    let caller = Caller::new("127.0.0.1:708".parse().unwrap());
    let id = site.call(&caller, vec![exchange(b"small")]);
    let ResOp::ExchangeId(Ok(known)) = id.only() else {
        panic!("{id:?}");
    };
    let ArgOp::CreateSession(create) = create_session(known.client, known.sequence) else {
        unreachable!()
    };
    let fore = ChannelAttributes {
        max_response,
        ..create.fore
    };
    let create = CreateSessionArgs { fore, ..create };
    let created = site.call(&caller, vec![ArgOp::CreateSession(create)]);
    let ResOp::CreateSession(Ok(created)) = created.only() else {
        panic!("{created:?}");
    };
    Client {
        site,
        caller,
        client: known.client,
        session: created.session,
        sequence: std::cell::Cell::new(0),
    }
}

#[test]
fn explanation_that_exceeds_the_reply_is_too_big() {
    let site = Site::in_memory();
    let one = site.client(b"one");
    let open = one.open("f", BOTH).state;
    let long = [b'o'; 1000];
    let lock = lock_by(&long, open, LockType::Write, (0, 10));
    one.at(&["f"], vec![lock]).ok();
    for (max_response, status) in [(2000, Status::Denied), (600, Status::ReplyTooBig)] {
        let two = client_with_replies(&site, max_response);
        let test = ArgOp::LockT(LockTArgs {
            kind: LockType::Write,
            offset: 0,
            length: 10,
            owner: StateOwner::default(),
        });
        let tested = two.at(&["f"], vec![test.clone()]);
        assert_eq!(tested.status(), Err(status), "{max_response}");
        two.sequence.set(two.sequence.get() - 1);
        let again = two.at(&["f"], vec![test]);
        assert_eq!(again.all(), tested.all(), "the failure was kept");
    }
}

#[test]
fn change_without_room_for_its_result_is_not_made() {
    let site = Site::in_memory();
    let client = client_with_replies(&site, 400);
    let complete = ArgOp::ReclaimComplete(ReclaimCompleteArgs { one_fs: false });
    assert_eq!(
        client.run(vec![complete]).status(),
        Err(Status::ReplyTooBig)
    );
    let make = ArgOp::Create(v4::directory::CreateArgs {
        kind: v4::directory::CreateType::Directory,
        name: name("d"),
        attributes: v4::fattr::Fattr::default(),
    });
    let made = client.at(&[], vec![make]);
    assert_eq!(made.status(), Err(Status::ReplyTooBig));
    assert_eq!(client.at(&["d"], vec![]).status(), Err(Status::NoEntry));
}

#[test]
fn failure_behind_a_result_that_fills_the_reply_has_room_in_it() {
    let site = Site::in_memory();
    let one = site.client(b"one");
    let state = one.open("f", BOTH).state;
    let write = ArgOp::Write(v4::file::WriteArgs {
        state,
        offset: 0,
        stable: nfs_proto::Stable::Unstable,
        data: nfs_proto::Data::from(&[7; 2000][..]),
    });
    one.at(&["f"], vec![write]).ok();
    for max_response in (600..700).step_by(4) {
        let two = client_with_replies(&site, max_response);
        let read = ArgOp::Read(v4::file::ReadArgs {
            state: v4::StateId::default(),
            offset: 0,
            count: 2000,
        });
        let done = two.at(&["f"], vec![read, lookup("x")]);
        assert_eq!(done.status(), Err(Status::NotDirectory), "{max_response}");
        let len = done.body.stream_len();
        assert!(len <= max_response as usize, "{len} of {max_response}");
    }
}
