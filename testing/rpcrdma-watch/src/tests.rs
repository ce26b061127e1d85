//! Each rule is broken once, and that is found.

mod designs;

use super::{Party, Watch};
use buffer::{Buffer, Gather};
use bytes::Bytes;
use rpcrdma_proto::header::{self, Lists, ReadChunk, WriteChunk, procedure};
use rpcrdma_proto::{InlineThreshold, PrivateData};
use std::sync::Arc;
use std::time::Duration;
use verbs::{
    Handle, Memory, Provider, QpOptions, QueuePair, RemoteAddress, Segment, WorkRequest, WrId,
};
use verbs_sim::{EndOptions, Fabric};

const XID: u32 = 7;

/// A requester and a responder that are driven by hand, and watched.
struct Bench {
    watch: Watch,
    party: Party,
    at_responder: Party,
    requester: Box<dyn QueuePair>,
    responder: Box<dyn QueuePair>,
}

fn receive() -> WorkRequest {
    WorkRequest::Receive {
        wr: WrId(0),
        buffer: Buffer::with_capacity(1024),
    }
}

fn message(xid: u32, credits: u32, lists: &Lists, direction: u32) -> Buffer {
    let mut buffer = Buffer::with_capacity(1024);
    header::emit(&mut buffer, procedure::MSG, xid, credits, lists);
    for word in [xid, direction] {
        buffer.extend_from_slice(&word.to_be_bytes());
    }
    buffer
}

fn segment(handle: Handle, length: u32) -> Segment {
    Segment {
        handle,
        length,
        offset: 0,
    }
}

fn to_be_read(handle: Handle, length: u32) -> Lists {
    let mut lists = Lists::default();
    lists.reads.push(ReadChunk {
        position: 8,
        segments: [segment(handle, length)].into_iter().collect(),
    });
    lists
}

fn to_be_written(handle: Handle, length: u32) -> Lists {
    let mut lists = Lists::default();
    lists.writes.push(WriteChunk {
        segments: [segment(handle, length)].into_iter().collect(),
    });
    lists
}

impl Bench {
    fn new() -> Self {
        let watch = Watch::default();
        let parties = [watch.party("requester"), watch.party("responder")];
        Self::between(watch, parties)
    }

    /// Another connection of the same two.
    fn beside(&self) -> Self {
        let parties = [self.party.clone(), self.at_responder.clone()];
        Self::between(self.watch.clone(), parties)
    }

    fn between(watch: Watch, parties: [Party; 2]) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        runtime.block_on(Self::connected(watch, parties))
    }

    async fn connected(watch: Watch, [party, at_responder]: [Party; 2]) -> Self {
        let fabric = Fabric::new(1);
        let zero_based = EndOptions {
            zero_based: true,
            ..EndOptions::default()
        };
        let provider = || -> Arc<dyn Provider> { Arc::new(fabric.provider(zero_based.clone())) };
        let of_requester = party.provider(provider());
        let of_responder = at_responder.provider(provider());
        let said = PrivateData {
            send: InlineThreshold::DEFAULT,
            receive: InlineThreshold::DEFAULT,
            remote_invalidation: true,
        };
        let said = said.emit();
        let on = "127.0.0.1:0".parse().expect("an address");
        let mut listener = of_responder.listen(on).await.expect("it listens");
        let options = QpOptions::default();
        let receives = || (0..4).map(|_| receive()).collect();
        let to = listener.local_addr();
        let connecting = of_requester.connect(to, &options, &said, receives());
        let accepting = async {
            let mut incoming = listener.accept().await.expect("it comes");
            let limit = Duration::from_secs(1);
            incoming.request(limit).await.expect("it says something");
            let accepted = incoming.accept(&options, &said, receives()).await;
            accepted.expect("it is made")
        };
        let (connected, responder) = tokio::join!(connecting, accepting);
        Self {
            watch,
            party,
            at_responder,
            requester: connected.expect("it is made").qp,
            responder,
        }
    }

    fn turn(&mut self) {
        while self.requester.progress() | self.responder.progress() {}
        for qp in [&mut self.requester, &mut self.responder] {
            while qp.poll_cq().is_some() {}
        }
    }

    fn region(&mut self, source: bool) -> Handle {
        let memory = match source {
            true => Memory::Source(Gather::from_elem(Bytes::from_static(b"12345678"), 1)),
            false => Memory::Sink(Buffer::with_capacity(8)),
        };
        let at = self.requester.register(memory).expect("there is room");
        at.handle
    }

    fn send(&mut self, call: bool, buffer: Buffer, invalidate: Option<Handle>) {
        let qp = match call {
            true => &mut self.requester,
            false => &mut self.responder,
        };
        let work = WorkRequest::Send {
            wr: WrId(1),
            buffer,
            rest: Gather::new(),
            invalidate: invalidate.map(Into::into),
        };
        qp.post(work).expect("there is room");
        self.turn();
    }

    fn call(&mut self, xid: u32, lists: &Lists) {
        self.send(true, message(xid, 4, lists, 0), None);
    }

    fn reply(&mut self, xid: u32, credits: u32, lists: &Lists) {
        self.send(false, message(xid, credits, lists, 1), None);
    }

    fn post(&mut self, by_requester: bool, work: WorkRequest) {
        let qp = match by_requester {
            true => &mut self.requester,
            false => &mut self.responder,
        };
        qp.post(work).expect("there is room");
        self.turn();
    }

    /// Something was found, and this is what it says.
    fn found(&self, what: &str) {
        let findings = self.watch.findings();
        assert!(
            findings.iter().any(|finding| finding.contains(what)),
            "{what}: {findings:?}"
        );
    }
}

fn check(what: &str, breaks: impl FnOnce(&mut Bench)) {
    let mut bench = Bench::new();
    breaks(&mut bench);
    bench.found(what);
}

#[test]
fn call_that_keeps_all_rules_has_no_finding() {
    let mut bench = Bench::new();
    let handle = bench.region(false);
    let lists = to_be_written(handle, 8);
    bench.call(XID, &lists);
    bench.at_responder.executed(XID);
    let write = WorkRequest::Write {
        wr: WrId(2),
        source: Gather::from_elem(Bytes::from_static(b"1234"), 1),
        to: RemoteAddress { handle, offset: 4 },
    };
    bench.post(false, write);
    bench.send(false, message(XID, 3, &lists, 1), Some(handle));
    bench.party.delivered(XID);
    let Bench {
        watch,
        party,
        at_responder,
        requester,
        responder,
    } = bench;
    drop((requester, responder));
    watch.finish(&[&party, &at_responder]);
    assert_eq!(party.sent(XID), 1);
}

#[test]
fn reply_that_is_delivered_with_a_region_exposed_is_found() {
    check("is delivered with", |bench| {
        let handle = bench.region(false);
        let lists = to_be_written(handle, 8);
        bench.call(XID, &lists);
        bench.reply(XID, 4, &lists);
        bench.party.delivered(XID);
    });
}

#[test]
fn reply_over_one_connection_is_not_mistaken_for_one_over_another() {
    let mut lost = Bench::new();
    let handle = lost.region(false);
    let lists = to_be_written(handle, 8);
    lost.call(XID, &lists);
    lost.reply(XID, 3, &lists);
    let mut bench = lost.beside();
    bench.call(XID, &Lists::default());
    bench.reply(XID, 3, &Lists::default());
    bench.party.delivered(XID);
    assert_eq!(bench.watch.findings(), Vec::<String>::new());
    // Once more, and there is only the other one.
    bench.party.delivered(XID);
    bench.found("is delivered with");
}

#[test]
fn reply_of_a_gateway_to_a_call_that_was_sent_again_is_no_reply_to_the_first() {
    // The client of this connection is gone, and its call is in flight.
    let mut left = Bench::new();
    let handle = left.region(false);
    left.call(XID, &to_be_written(handle, 8));
    // The gateway cannot carry it over the next connection, and says so itself.
    left.party.delivered_by_gateway(XID, 2);
    assert_eq!(left.watch.findings(), Vec::<String>::new());
    // Sent only once, it would be this one that was answered.
    left.party.delivered_by_gateway(XID, 1);
    left.found("is delivered with");
}

#[test]
fn region_that_is_invalidated_before_the_reply_is_found() {
    check("before the reply", |bench| {
        let handle = bench.region(true);
        bench.call(XID, &to_be_read(handle, 8));
        let wr = WrId(3);
        bench.post(true, WorkRequest::Invalidate { wr, handle });
    });
}

#[test]
fn offer_of_an_unregistered_region_is_found() {
    check("offers", |bench| {
        bench.call(XID, &to_be_read(Handle(99), 8))
    });
    check("offers", |bench| {
        let handle = bench.region(true);
        bench.call(XID, &to_be_read(handle, 9));
    });
    check("offers", |bench| {
        let handle = bench.region(true);
        bench.call(XID, &to_be_written(handle, 8));
    });
}

#[test]
fn second_call_before_the_first_reply_is_found() {
    check("2 calls in flight with 1 credits", |bench| {
        bench.call(XID, &Lists::default());
        bench.call(XID + 1, &Lists::default());
    });
}

#[test]
fn credits_without_receives_are_found() {
    check("calls may come, and 0 replies, with", |bench| {
        bench.call(XID, &Lists::default());
        bench.reply(XID, 4, &Lists::default());
    });
    check("credits are granted of 4", |bench| {
        bench.call(XID, &Lists::default());
        bench.reply(XID, 5, &Lists::default());
    });
}

#[test]
fn call_that_is_answered_twice_is_found() {
    check("but there is no such call", |bench| {
        bench.call(XID, &Lists::default());
        bench.reply(XID, 1, &Lists::default());
        bench.reply(XID, 1, &Lists::default());
    });
}

#[test]
fn call_that_is_executed_twice_or_never_came_is_found() {
    check("executes call", |bench| bench.at_responder.executed(XID));
    check("executes call", |bench| {
        bench.call(XID, &Lists::default());
        bench.at_responder.executed(XID);
        bench.at_responder.executed(XID);
    });
}

#[test]
fn reply_before_the_end_of_its_reads_is_found() {
    check("is answered while 1 Reads go on", |bench| {
        let handle = bench.region(true);
        bench.call(XID, &to_be_read(handle, 8));
        let read = WorkRequest::Read {
            wr: WrId(4),
            sink: Buffer::with_capacity(8),
            from: [segment(handle, 8)].into_iter().collect(),
        };
        bench.responder.post(read).expect("there is room");
        bench.reply(XID, 1, &Lists::default());
    });
}

#[test]
fn access_to_what_no_call_offers_is_found() {
    let write = |handle, offset| WorkRequest::Write {
        wr: WrId(2),
        source: Gather::from_elem(Bytes::from_static(b"1234"), 1),
        to: RemoteAddress { handle, offset },
    };
    check("which no call offers", |bench| {
        let handle = bench.region(false);
        bench.post(false, write(handle, 0));
    });
    check("which no call offers", |bench| {
        let handle = bench.region(false);
        bench.call(XID, &to_be_written(handle, 8));
        bench.post(false, write(handle, 5));
    });
    check("which no call offers", |bench| {
        let handle = bench.region(false);
        let lists = to_be_written(handle, 8);
        bench.call(XID, &lists);
        bench.reply(XID, 1, &lists);
        bench.post(false, write(handle, 0));
    });
}

#[test]
fn handle_of_another_call_that_goes_with_a_reply_is_found() {
    check("invalidates", |bench| {
        let other = bench.region(false);
        bench.call(XID, &Lists::default());
        let reply = message(XID, 1, &Lists::default(), 1);
        bench.send(false, reply, Some(other));
    });
}

#[test]
fn leaked_queue_pair_is_found() {
    let bench = Bench::new();
    bench.party.check_gone();
    bench.found("is left");
}

/// A call of the server to its client.
fn call_back(bench: &mut Bench, lists: &Lists) {
    let call = message(XID, 1, lists, 0);
    bench.send(false, call, None);
}

#[test]
fn backward_call_to_a_client_that_is_not_ready_is_found() {
    for what in ["that may not be ready", "before it was said"] {
        check(what, |bench| call_back(bench, &Lists::default()));
    }
    let mut bench = Bench::new();
    bench.call(XID, &Lists::default());
    bench.reply(XID, 1, &Lists::default());
    call_back(&mut bench, &Lists::default());
    assert_eq!(bench.watch.findings(), [""; 0]);
}

#[test]
fn calls_of_both_directions_may_have_the_same_xid() {
    let mut bench = Bench::new();
    bench.call(XID, &Lists::default());
    call_back(&mut bench, &Lists::default());
    bench.send(true, message(XID, 1, &Lists::default(), 1), None);
    bench.reply(XID, 1, &Lists::default());
    assert_eq!(bench.watch.findings(), [""; 0]);
}

#[test]
fn chunks_of_a_backward_call_are_found() {
    check("to a client offers chunks", |bench| {
        bench.call(XID, &Lists::default());
        let memory = Memory::Sink(Buffer::with_capacity(8));
        let at = bench.responder.register(memory).expect("there is room");
        call_back(bench, &to_be_written(at.handle, 8));
    });
}
