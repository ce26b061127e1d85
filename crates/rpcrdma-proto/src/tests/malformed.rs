//! A Responder and messages that are no valid calls.

use super::lone::*;
use super::*;
use crate::wire::header::{Body, Lists, RdmaError, procedure};
use smallvec::smallvec;
use verbs::{Completion, Memory, QueuePair, WorkError, WorkRequest};

/// Calls that are refused with ERR_CHUNK and their XID, and do no harm.
#[test]
fn malformed_call_is_err_chunk_and_the_connection_goes_on() {
    in_each_version(|versions| {
        let stream_5 = stream(&call(5, 40, &[]));
        let len = stream_5.len() as u32;
        let check = |proc, lists: &Lists, stream: &[u8]| {
            let mut lone = Lone::server(versions);
            lone.send_lists(proc, 5, lists, stream);
            let (header, _) = lone.receive().expect("an answer");
            assert_eq!((header.xid, header.credits), (5, 8));
            assert_eq!(header.body, Body::Error(RdmaError::Chunk), "{lists:?}");
            assert!(lone.events.is_empty());
            assert_eq!(lone.end.connection.calls_in(), 0);
            lone.send_lists(procedure::MSG, 6, &Lists::default(), &stream_6());
            lone.called();
        };
        let reads = |chunks: &[(u32, u32)]| Lists {
            reads: chunks
                .iter()
                .map(|&(position, len)| read_chunk(position, smallvec![segment(9, len)]))
                .collect(),
            ..Lists::default()
        };
        let none = Lists::default();
        check(procedure::MSGP, &none, &stream_5);
        check(procedure::NOMSG, &none, &[]);
        check(procedure::MSG, &none, &stream(&call(6, 40, &[])));
        check(procedure::MSG, &none, &[0, 0, 0, 5]);
        check(procedure::MSG, &none, &[]);
        check(procedure::MSG, &reads(&[(0, 100)]), &stream_5);
        check(procedure::MSG, &reads(&[(len + 4, 100)]), &stream_5);
        check(procedure::MSG, &reads(&[(12, 5), (16, 5)]), &stream_5);
        check(procedure::MSG, &reads(&[(12, (1 << 20) + 1)]), &stream_5);
        check(procedure::MSG, &reads(&[(12, u32::MAX)]), &stream_5);
        check(procedure::NOMSG, &reads(&[(4, 100)]), &[]);
        check(procedure::NOMSG, &reads(&[(0, 0)]), &[]);
        check(procedure::NOMSG, &reads(&[(0, 100), (104, 4)]), &[]);
    });
}

fn stream_6() -> Vec<u8> {
    stream(&call(6, 40, &[]))
}

#[test]
fn read_chunks_are_refused_where_no_read_is_possible() {
    let mut lone = Lone::with(&config(Role::Server), |limits| limits.outstanding_reads = 0);
    let lists = Lists {
        reads: vec![read_chunk(52, smallvec![segment(9, 8)])],
        ..Lists::default()
    };
    lone.send(
        &wire(procedure::MSG, 5, 8, &lists, &stream(&call(5, 40, &[]))),
        None,
    );
    let (header, _) = lone.receive().expect("an answer");
    assert_eq!(header.body, Body::Error(RdmaError::Chunk));
}

#[test]
fn long_call_for_another_transaction_is_refused_after_it_was_pulled() {
    in_each_version(|versions| {
        let mut lone = Lone::server(versions);
        let message = Bytes::from(stream_6());
        let len = message.len() as u32;
        let at = lone
            .peer
            .register(Memory::Source(Gather::from_elem(message, 1)))
            .expect("there is room");
        let lists = Lists {
            reads: vec![read_chunk(0, smallvec![segment_at(at, len)])],
            ..Lists::default()
        };
        lone.send_lists(procedure::NOMSG, 5, &lists, &[]);
        let (header, _) = lone.receive().expect("an answer");
        assert_eq!(
            (header.xid, header.body),
            (5, Body::Error(RdmaError::Chunk))
        );
        assert_eq!(lone.end.connection.counters().read_chunks_pulled, 1);
    });
}

#[test]
fn no_error_goes_out_for_an_xid_that_is_being_pulled() {
    let none = Lists::default();
    let mut other_version = wire(procedure::MSG, 5, 8, &none, &stream(&call(5, 40, &[])));
    other_version[7] = 2;
    for bytes in [
        other_version,
        wire(procedure::MSGP, 5, 8, &none, &[]),
        // Only the chunks of this one are at fault.
        wire(procedure::MSG, 5, 8, &none, &stream_6()),
    ] {
        let mut connection = server().end.connection;
        let chunks = Lists {
            reads: vec![read_chunk(52, smallvec![segment(9, 8)])],
            ..Lists::default()
        };
        let message = stream(&call(5, 40, &[]));
        arrive(
            &mut connection,
            wire(procedure::MSG, 5, 8, &chunks, &message),
        );
        arrive(&mut connection, bytes);
        let posts = std::iter::from_fn(|| connection.poll_post());
        let sends = posts.filter(|work| matches!(work, WorkRequest::Send { .. }));
        assert_eq!(sends.count(), 0);
        assert_eq!(connection.calls_in(), 1);
        assert_eq!(connection.counters().discarded, 1);
    }
}

#[test]
fn version_that_is_not_one_draws_err_vers_with_that_version() {
    let mut lone = server();
    let mut bytes = wire(
        procedure::MSG,
        5,
        8,
        &Lists::default(),
        &stream(&call(5, 40, &[])),
    );
    bytes[7] = 2;
    lone.send(&bytes, None);
    lone.drive();
    let answer = loop {
        match lone.peer.poll_cq() {
            Some(Completion::Receive { buffer, .. }) => break buffer,
            Some(_) => {}
            None => panic!("an answer"),
        }
    };
    let words = [5, 2, 8, 4, 1, 1, 1_u32];
    let expected: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
    assert_eq!(*answer, expected);
}

#[test]
fn replies_and_errors_to_a_server_are_discarded() {
    let mut lone = server();
    let none = Lists::default();
    lone.send(
        &wire(procedure::MSG, 5, 8, &none, &stream(&reply(5, 40, &[]))),
        None,
    );
    lone.send(&error(5, RdmaError::Chunk), None);
    lone.send(&wire(procedure::DONE, 5, 8, &none, &[]), None);
    lone.send(&[0; 20], None);
    assert!(lone.events.is_empty());
    assert!(lone.receive().is_none());
    let counters = lone.end.connection.counters();
    assert_eq!((counters.discarded, counters.unknown_replies), (2, 2));
    assert_eq!(lone.end.connection.violation(), None);
}

#[test]
fn failed_work_ends_the_connection() {
    let mut config = config(Role::Server);
    config.credits = 2;
    let mut lone = Lone::new(&config);
    // A handle that the peer never had.
    let lists = Lists {
        reads: vec![read_chunk(12, smallvec![segment(0xdead, 8)])],
        ..Lists::default()
    };
    lone.send(
        &wire(procedure::MSG, 5, 8, &lists, &stream(&call(5, 40, &[]))),
        None,
    );
    assert!(lone.end.qp.closed().is_some() || lone.end.connection.violation().is_some());
    assert!(lone.events.is_empty());
}

/// A call with a Read chunk that is not there, and one of the same shape that could be.
fn broken_call(xid: u32) -> Vec<u8> {
    let lists = Lists {
        reads: vec![read_chunk(52, smallvec![segment(0xdead, 8)])],
        ..Lists::default()
    };
    let message = stream(&call(xid, 40, &[]));
    wire(procedure::MSG, xid, 8, &lists, &message)
}

#[test]
fn call_whose_chunks_broke_a_connection_is_refused_on_the_next_once() {
    let config = config(Role::Server);
    let owner = TestOwner::default();
    let mut first = Lone::owned(&config, owner.clone(), |_| {});
    first.send(&broken_call(5), None);
    assert!(first.end.connection.violation().is_some());
    assert_eq!(first.end.connection.counters().calls_condemned, 1);
    assert_eq!(owner.condemned(), 1);
    let mut second = Lone::owned(&config, owner.clone(), |_| {});
    second.send(&broken_call(5), None);
    let (header, _) = second.receive().expect("an answer");
    assert_eq!(
        (header.xid, header.body),
        (5, Body::Error(RdmaError::Chunk))
    );
    assert_eq!(second.end.connection.counters().read_chunks_pulled, 0);
    assert_eq!(second.end.connection.violation(), None);
    assert_eq!(owner.condemned(), 0);
    // Its XID may name another call now.
    second.send_call(5);
    second.called();
    second.send(&broken_call(6), None);
    assert!(second.end.connection.violation().is_some());
}

#[test]
fn call_that_was_on_its_way_when_the_connection_was_cut_is_not_to_blame() {
    let mut lone = server();
    arrive(&mut lone.end.connection, broken_call(5));
    while let Some(work) = lone.end.connection.poll_post() {
        lone.end.connection.handle_completion(Completion::Failed {
            wr: work.wr(),
            error: WorkError::Flushed,
        });
    }
    assert_eq!(lone.end.owner.condemned(), 0);
}
