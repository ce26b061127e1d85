//! XIDs that callers choose, beside those of messages that no caller asked for.

use super::pair::{Pair, Setup};
use super::*;
use crate::Versions;
use crate::v2::characteristics::{ReceiveBufferSize, ReceiveSize, XcharVal};
use oncrpc::Reply;

/// A pair whose client has all its credits.
fn granted(setup: Setup) -> Pair {
    let mut pair = Pair::with(setup);
    call_with(&mut pair, 1);
    answer(&mut pair, 1);
    pair.replies.clear();
    pair
}

/// Makes a call that stays in flight.
fn call_with(pair: &mut Pair, xid: u32) {
    pair.call(request(xid, call(xid, 4, &[]), bound(100, &[])));
    pair.drive();
}

fn answer(pair: &mut Pair, xid: u32) {
    let is = |(_, call): &(CallId, Payload)| xdr::Reader::from(call).u32() == Ok(xid);
    let at = pair.calls.iter().position(is).expect("it has arrived");
    let (id, _) = pair.calls.remove(at);
    pair.answer(id, Reply::Message(reply(xid, 4, &[])));
}

/// The XIDs of control messages of the client that have no answer.
fn of_control(pair: &Pair) -> Vec<u32> {
    let session = pair.client.connection.session();
    session.expect("version two").outstanding_xids().collect()
}

#[test]
fn message_of_this_end_takes_no_xid_of_a_call_in_flight() {
    in_each_version(|versions| {
        let mut pair = granted(Setup::speaking(versions));
        let next = pair.client.connection.next_xid();
        call_with(&mut pair, next + 1);
        call_with(&mut pair, next + 2);
        assert_eq!(pair.client.connection.next_xid(), next + 3);
        answer(&mut pair, next + 1);
        answer(&mut pair, next + 2);
    });
}

#[test]
fn call_with_the_xid_of_a_probe_is_sent_after_the_answer_to_the_probe() {
    in_each_version(|versions| {
        let mut setup = Setup::speaking(versions);
        setup.client.reserve_credit = true;
        let mut pair = granted(setup);
        let xid = pair.client.connection.next_xid();
        pair.call(request(xid, call(xid, 4, &[]), bound(100, &[])).as_health_check());
        call_with(&mut pair, xid);
        assert_eq!((pair.calls.len(), pair.replies.len()), (1, 0));
        assert_eq!(pair.client.connection.calls_waiting(), 1);
        answer(&mut pair, xid);
        assert_eq!((pair.calls.len(), pair.replies.len()), (1, 1));
        answer(&mut pair, xid);
        assert!(pair.replies.iter().all(|(_, reply)| reply.is_ok()));
        let counters = pair.client.connection.counters();
        assert_eq!(counters.region_waits, 0);
        pair.check_idle();
    });
}

/// A pair whose client has this call in flight, and has sent a control message: it asks its server for
/// larger Receives.
fn asking(xid: u32) -> Pair {
    let mut pair = granted(Setup::speaking(Versions::Two));
    call_with(&mut pair, xid);
    let size = ReceiveSize::new(8192).expect("no less than the least");
    let want = vec![XcharVal::of::<ReceiveBufferSize>(&size)];
    let asked = pair.client.connection.request_peer(want);
    asked.expect("it may be asked");
    pair.client.turn();
    pair
}

#[test]
fn control_message_takes_no_xid_of_a_call_in_flight() {
    let xids = of_control(&asking(2));
    let [xid] = xids[..] else {
        panic!("one control message: {xids:?}")
    };
    let mut pair = asking(xid);
    assert_eq!(of_control(&pair), [xid + 1]);
    pair.drive();
    answer(&mut pair, xid);
    pair.check_idle();
}

#[test]
fn call_with_the_xid_of_a_control_message_is_sent_after_its_answer() {
    let mut pair = asking(2);
    let xid = of_control(&pair)[0];
    pair.call(request(xid, call(xid, 4, &[]), bound(100, &[])));
    assert_eq!(pair.client.connection.calls_waiting(), 1);
    pair.drive();
    assert_eq!(of_control(&pair), []);
    assert_eq!(pair.client.connection.calls_waiting(), 0);
    answer(&mut pair, xid);
    answer(&mut pair, 2);
    pair.check_idle();
}
