//! Calls of the upstream to clients.

use crate::made_up::*;
use oncrpc::xdr::Writer;
use oncrpc::{Credential, Procedure, RpcError, Service, read_reply, write_call};
use rpcrdma::Versions;
use std::sync::Arc;

/// An upstream, a gateway and a client that has made one call.
async fn connected(
    (down, up): (Over, Over),
    takes_callbacks: bool,
) -> (Upper, gateway::Gateway, Lower, Arc<MadeUp>) {
    let upper = Upper::new(up).await;
    let gateway = upper.behind(down).await;
    let callbacks = Arc::<MadeUp>::default();
    let shared = Arc::clone(&callbacks) as Arc<dyn Service>;
    let client = Lower::new(down, gateway.local_addr(), shared).await;
    let create = create_session(1, takes_callbacks, 1 << 20);
    client.call(create, 100).await.expect("it is answered");
    (upper, gateway, client, callbacks)
}

#[tokio::test]
async fn callback_crosses_with_its_xid_once_the_client_takes_callbacks() {
    for way in WAYS {
        let (upper, gateway, _client, callbacks) = connected(way, true).await;
        // The same XID as that of a call in flight in the other direction.
        let reply = upper.call_back(call_of(1, ECHO, b"recall")).await;
        let reply = reply.unwrap_or_else(|error| panic!("{way:?}: {error}"));
        assert_eq!(results(&reply, 1), b"recall");
        let sent = call_of(1, ECHO, b"recall");
        assert_eq!(callbacks.calls(), [sent.head()], "{way:?}");
        let stats = gateway.stats();
        assert_eq!((stats.callbacks, stats.callback_replies), (1, 1));
    }
}

#[tokio::test]
async fn callback_that_nobody_asked_for_is_refused_and_the_pair_lives_on() {
    for way in WAYS {
        let (upper, gateway, client, callbacks) = connected(way, false).await;
        let reply = upper.call_back(call_of(5, ECHO, b"recall")).await;
        let reply = reply.unwrap_or_else(|error| panic!("{way:?}: {error}"));
        assert_eq!(read_reply(&reply, 5).err(), Some(RpcError::ProgUnavail));
        let reply = client.call(call_of(2, ECHO, b"on"), 100).await;
        assert_eq!(results(&reply.expect("it lives on"), 2), b"on");
        assert!(callbacks.calls().is_empty());
        assert_eq!(gateway.stats().callbacks_refused, 1);
    }
}

#[tokio::test]
async fn callback_that_does_not_fit_is_answered_and_the_pair_lives_on() {
    // One Send carries all of a callback in version one; TCP carries more.
    let way = (Over::Rdma(rpcrdma::Versions::One), Over::Tcp);
    let (upper, _gateway, client, _) = connected(way, true).await;
    let reply = upper.call_back(call_of(5, ECHO, &[1; 20_000])).await;
    let reply = reply.expect("it is answered");
    assert_eq!(read_reply(&reply, 5).err(), Some(RpcError::SystemErr));
    let reply = upper.call_back(call_of(6, ECHO, &[1; 2000])).await;
    assert_eq!(results(&reply.expect("it fits"), 6), [1; 2000]);
    let reply = client.call(call_of(2, ECHO, b"on"), 100).await;
    assert_eq!(results(&reply.expect("it lives on"), 2), b"on");
}

#[tokio::test]
async fn callback_beyond_all_limits_ends_the_pair() {
    let way = (Over::Tcp, Over::Tcp);
    let (upper, _gateway, client, callbacks) = connected(way, true).await;
    let back = channels(&upper)[1];
    assert_eq!(back, (64 << 10, 64 << 10, false), "the server is told");
    let reply = upper.call_back(call_of(5, ECHO, &[1; 60_000])).await;
    assert_eq!(results(&reply.expect("it fits"), 5), [1; 60_000]);
    let reply = upper.call_back(call_of(6, ECHO, &[1; 70_000])).await;
    assert!(reply.is_err());
    client.ended().await;
    assert_eq!(callbacks.calls().len(), 1);
}

#[tokio::test]
async fn each_new_session_of_a_call_is_cut_and_stays_out_of_rdma_mode() {
    use nfs_proto::scan::{SessionOperation, scan_received};
    let (upper, _gateway, client, _) = connected(WAYS[0], true).await;
    let create = create_sessions(2, 4 | 2, &[1000, u32::MAX, u32::MAX]);
    client.call(create, 100).await.expect("it is answered");
    let calls = upper.service.calls();
    let call = scan_received(calls.last().expect("it was called"), []);
    let call = call.expect("a call");
    let seen: Vec<_> = call
        .sessions()
        .map(|session| match session {
            SessionOperation::Create(create) => create,
            SessionOperation::Bind(_) => panic!("{session:?}"),
        })
        .collect();
    assert_eq!(seen.len(), 3);
    for create in seen {
        assert_eq!(create.flags.value, 2);
        assert!(create.fore.attributes.max_request_size as usize <= gateway::MAX_RECORD);
        assert!(create.back.attributes.max_request_size <= 8192);
        assert_eq!(create.back.attributes.rdma_ird, None);
    }
}

#[tokio::test]
async fn connection_that_is_bound_to_a_session_stays_out_of_rdma_mode_too() {
    use nfs_proto::scan::{SessionOperation, scan_received};
    for way in WAYS {
        let (upper, _gateway, client, _) = connected(way, false).await;
        for (xid, rdma_mode) in [(2, 1), (3, 0)] {
            let (prog, vers, proc) = (100_003, 4, 1);
            let mut w = Writer::default();
            let compound = Procedure { prog, vers, proc };
            write_call(&mut w, xid, compound, &Credential::None);
            // BIND_CONN_TO_SESSION of both channels, or of the fore channel.
            w.words([0, 1, 1, 41, 1, 2, 3, 4, 3, rdma_mode]);
            client.call(w.finish(), 100).await.expect("it is answered");
            let calls = upper.service.calls();
            let call = scan_received(calls.last().expect("it was called"), []);
            let session = call.expect("a call").session;
            let Some(SessionOperation::Bind(bind)) = session else {
                panic!("{session:?}")
            };
            assert_eq!((bind.direction.value, bind.rdma_mode.value), (3, 0));
        }
    }
}

#[tokio::test]
async fn callback_under_rpcsec_gss_that_nobody_asked_for_ends_the_pair() {
    let (upper, _gateway, client, _) =
        connected((Over::Rdma(Versions::One), Over::Tcp), false).await;
    let mut w = Writer::default();
    w.words([5, 0, 2, PROGRAM, 1, ECHO, 6]);
    w.opaque(&[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0]);
    w.words([6, 0]);
    w.opaque(b"recall");
    // A reply of the gateway would have no verifier.
    assert!(upper.call_back(w.finish()).await.is_err());
    client.ended().await;
}

/// A call of NFS version 4 under RPCSEC_GSS that the gateway cannot read: with this procedure of RPCSEC_GSS, and privacy.
fn protected(xid: u32, gss_procedure: u32, proc: u32) -> oncrpc::xdr::Payload {
    let mut w = Writer::default();
    w.words([xid, 0, 2, 100_003, 4, proc, 6]);
    w.opaque(
        &[
            [0, 0, 0, 1],
            gss_procedure.to_be_bytes(),
            [0; 4],
            [0, 0, 0, 3],
            [0; 4],
        ]
        .concat(),
    );
    w.words([6, 0]);
    w.opaque(b"protected");
    w.finish()
}

#[tokio::test]
async fn client_that_protects_its_calls_takes_callbacks_and_one_that_makes_a_context_does_not() {
    for way in WAYS {
        let (upper, _gateway, client, callbacks) = connected(way, false).await;
        // RPCSEC_GSS_INIT and RPCSEC_GSS_DESTROY are calls of NULL.
        for (xid, gss_procedure) in [(2, 1), (3, 3)] {
            let reply = client.call(protected(xid, gss_procedure, 0), 1000).await;
            reply.expect("it is answered");
        }
        let reply = upper.call_back(call_of(5, ECHO, b"recall")).await;
        let reply = reply.unwrap_or_else(|error| panic!("{way:?}: {error}"));
        assert_eq!(read_reply(&reply, 5).err(), Some(RpcError::ProgUnavail));
        assert!(callbacks.calls().is_empty(), "{way:?}");
        let reply = client.call(protected(4, 0, 1), 1000).await;
        reply.expect("it is answered");
        let reply = upper.call_back(call_of(6, ECHO, b"recall")).await;
        let reply = reply.unwrap_or_else(|error| panic!("{way:?}: {error}"));
        assert_eq!(results(&reply, 6), b"recall");
    }
}

/// The sizes of calls and replies in the channels of the last CREATE_SESSION that a server got, and
/// whether they have a read depth.
fn channels(upper: &Upper) -> Vec<(u32, u32, bool)> {
    use nfs_proto::scan::{SessionOperation, scan_received};
    let calls = upper.service.calls();
    let call = scan_received(calls.last().expect("it was called"), []);
    let session = call.expect("a call").session;
    let Some(SessionOperation::Create(create)) = session else {
        panic!("{session:?}")
    };
    let sizes = |channel: nfs_proto::scan::Channel| {
        let attributes = channel.attributes;
        (
            attributes.max_request_size,
            attributes.max_response_size,
            attributes.rdma_ird.is_some(),
        )
    };
    vec![sizes(create.fore), sizes(create.back)]
}

#[tokio::test]
async fn channels_of_a_session_are_cut_to_what_both_sides_carry() {
    for way in WAYS {
        let (upper, _gateway, client, _) = connected(way, true).await;
        // Our ends receive 4 KiB or 8 KiB, of which 28 bytes are the header of version one.
        let [fore, back] = channels(&upper)[..] else {
            panic!("two channels")
        };
        assert_eq!(fore, (1 << 20, 1 << 20, false), "{way:?}");
        assert!((4068..=8192).contains(&back.0), "{way:?} {back:?}");
        assert!((4068..=8192).contains(&back.1), "{way:?} {back:?}");
        assert!(!back.2);
        let create = create_session(2, true, 1000);
        client.call(create, 100).await.expect("it is answered");
        let small = (1000, 1000, false);
        assert_eq!(channels(&upper), [small, small], "{way:?}");
        let create = create_session(3, true, u32::MAX);
        client.call(create, 100).await.expect("it is answered");
        let fore = channels(&upper)[0];
        assert!(fore.0 as usize <= gateway::MAX_RECORD);
        let replies = match way.1 {
            Over::Tcp => 4 << 20,
            Over::Rdma(_) => gateway::MAX_REPLY,
        };
        assert_eq!(fore.1 as usize, replies, "{way:?}");
    }
}
