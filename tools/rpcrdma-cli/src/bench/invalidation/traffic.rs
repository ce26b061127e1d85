//! Two ends and the calls between them.

use super::bed::Bed;
use super::counted::{Counted, Counts};
use anyhow::{Context, Result, bail, ensure};
use buffer::Buffer;
use bytes::Bytes;
use oncrpc::xdr::{Payload, Writer};
use oncrpc::{Reply, ReplyBound};
use rpcrdma_proto::header::Lists;
use rpcrdma_proto::v2::header::WordLayout;
use rpcrdma_proto::{CallId, CallRequest, Config, Connection, Counters, Design, Event, Owner};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};
use verbs::{Gather, IoCounters, QueuePair};

/// Bytes of an RPC call and of a reply before their data, about as in NFS.
const CALL_HEAD: usize = 120;
const REPLY_HEAD: usize = 120;

/// How long a measurement may stand still, in time that nobody simulates.
const PATIENCE: Duration = Duration::from_secs(20);

/// `msg_type` (RFC 5531 §9).
const CALL: u32 = 0;
const REPLY: u32 = 1;

/// What is called.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Bytes of data in a call and its reply together.
    pub(super) payload: usize,
    /// Chunks that they are in, each with a handle of its own: one is for results, and of several one
    /// half is for arguments.
    pub(super) stags: usize,
    /// Calls in flight at a time.
    pub(super) depth: usize,
    /// Whether every second call is one without data.
    pub(super) small_between: bool,
    /// How long the server works on a call.
    pub(super) service: Duration,
}

impl Shape {
    fn arguments(self) -> usize {
        self.stags / 2
    }

    fn results(self) -> usize {
        self.stags - self.arguments()
    }

    /// Bytes of one chunk.
    pub(super) fn part(self) -> usize {
        self.payload / self.stags
    }
}

/// What came of it.
pub(super) struct Outcome {
    /// Calls that had an end.
    pub(super) calls: u64,
    /// Both ends: client, server.
    pub(super) counts: [Counts; 2],
    /// What the queue pairs asked of their device, and what it reported: client, server.
    pub(super) io: [IoCounters; 2],
    /// What the client counted itself.
    pub(super) client: Counters,
    /// How long each call with data took.
    pub(super) latencies: Vec<Duration>,
}

/// Owns both ends: calls have numbers, and there is memory for all of them.
#[derive(Debug)]
struct Measured;

impl Owner for Measured {
    type Call = u64;
    type Lease = ();

    fn condemn(&mut self, _: u32, _: &Lists) {}

    fn take_condemned(&mut self, _: u32, _: &Lists) -> bool {
        false
    }
}

struct End<Q> {
    qp: Counted<Q>,
    connection: Connection<Measured>,
}

impl<Q: QueuePair> End<Q> {
    fn new(qp: Q, config: &Config, words: WordLayout) -> Self {
        let connection = Connection::new(config, Measured, None, qp.limits());
        Self {
            qp: Counted::new(qp, words),
            connection,
        }
    }

    /// What the host does when it is free.
    fn turn(&mut self) -> Result<bool> {
        let mut moved = false;
        while let Some(completion) = self.qp.poll_cq() {
            self.connection.handle_completion(completion);
            moved = true;
        }
        while self.connection.poll_memory().is_some() {
            self.connection.handle_memory(());
        }
        self.connection.send_waiting(Instant::now(), &mut self.qp);
        while let Some(work) = self.connection.poll_post() {
            moved = true;
            if let Err(refused) = self.qp.post(work) {
                self.connection.handle_refused(refused.into_work());
                break;
            }
        }
        if let Some(violation) = self.connection.violation() {
            bail!("the connection broke: {violation}");
        }
        if let Some(reason) = self.qp.closed() {
            bail!("the connection is over: {reason:?}");
        }
        Ok(moved)
    }
}

/// Two ends, and what is in flight.
pub(super) struct Traffic<B: Bed> {
    bed: B,
    client: End<B::Qp>,
    server: End<B::Qp>,
    shape: Shape,
    data: Bytes,
    /// Calls made so far; the number of one is its XID.
    made: u64,
    ended: u64,
    begun: BTreeMap<u64, Duration>,
    /// What the server works on, in the order in which it is done.
    in_service: VecDeque<(Duration, CallId<()>, u32)>,
    latencies: Vec<Duration>,
}

impl<B: Bed> Traffic<B> {
    pub(super) fn new(
        (bed, client, server): (B, B::Qp, B::Qp),
        configs: [&Config; 2],
        design: Option<Design>,
        shape: Shape,
    ) -> Self {
        let words = WordLayout::of(design);
        Self {
            bed,
            client: End::new(client, configs[0], words),
            server: End::new(server, configs[1], words),
            shape,
            data: Bytes::from(vec![0x5a; shape.part()]),
            made: 0,
            ended: 0,
            begun: BTreeMap::new(),
            in_service: VecDeque::new(),
            latencies: Vec::new(),
        }
    }

    /// Makes the connection warm, with a few calls that do not count, then calls so often.
    ///
    /// # Errors
    ///
    /// If a call or the connection fails, or nothing moves any more.
    pub(super) fn measure(mut self, calls: u64) -> Result<Outcome> {
        self.until_ended(4 * self.shape.depth as u64)?;
        let (before, io_before) = (self.counts(), self.io());
        let client_before = *self.client.connection.counters();
        let ended_before = self.ended;
        self.latencies.clear();
        self.until_ended(self.made + calls)?;
        let mut counts = self.counts();
        counts[0] -= before[0];
        counts[1] -= before[1];
        let mut io = self.io();
        io[0] -= io_before[0];
        io[1] -= io_before[1];
        let mut client = *self.client.connection.counters();
        client -= client_before;
        Ok(Outcome {
            calls: self.ended - ended_before,
            counts,
            io,
            client,
            latencies: self.latencies,
        })
    }

    fn counts(&self) -> [Counts; 2] {
        [self.client.qp.counts, self.server.qp.counts]
    }

    fn io(&self) -> [IoCounters; 2] {
        [self.client.qp.io_counters(), self.server.qp.io_counters()]
    }

    /// Goes on until so many calls were made, and all of them have ended.
    fn until_ended(&mut self, made: u64) -> Result<()> {
        let mut moved_last = Instant::now();
        while self.ended < made {
            if self.turn(made)? {
                moved_last = Instant::now();
            } else {
                ensure!(moved_last.elapsed() < PATIENCE, "nothing moves any more");
                let due = self.next_due();
                self.bed.wait(due);
            }
        }
        // What is posted without an answer is not left to the next.
        while self.client.qp.progress() | self.server.qp.progress() {}
        Ok(())
    }

    /// When a host is free again, or a call has been served.
    fn next_due(&self) -> Option<Duration> {
        let now = self.bed.now();
        let served = self.in_service.front().map(|(at, ..)| *at);
        let hosts = [&self.client, &self.server].map(|end| self.bed.busy_until(&end.qp.inner));
        let all = served.into_iter().chain(hosts);
        all.filter(|at| *at > now).min()
    }

    fn turn(&mut self, made: u64) -> Result<bool> {
        let mut moved = self.client.qp.progress() | self.server.qp.progress();
        let now = self.bed.now();
        if self.bed.busy_until(&self.client.qp.inner) <= now {
            moved |= self.client.turn()?;
            moved |= self.take_replies(now)?;
            moved |= self.make_calls(now, made)?;
        }
        if self.bed.busy_until(&self.server.qp.inner) <= now {
            moved |= self.server.turn()?;
            moved |= self.serve(now)?;
        }
        Ok(moved)
    }

    fn take_replies(&mut self, now: Duration) -> Result<bool> {
        let mut moved = false;
        while let Some(event) = self.client.connection.poll_event() {
            let Event::Reply { call, reply } = event else {
                bail!("nobody calls the client");
            };
            moved = true;
            let reply = reply.context("a call failed")?;
            let begun = self.begun.remove(&call);
            let begun = begun.context("a call has one end")?;
            let expected = match self.is_small(call) {
                true => 0,
                false => self.shape.results(),
            };
            ensure!(reply.items().len() == expected, "a reply has its results");
            if expected > 0 {
                let ended = self.bed.busy_until(&self.client.qp.inner).max(now);
                self.latencies.push(ended - begun);
            }
            self.ended += 1;
        }
        Ok(moved)
    }

    fn is_small(&self, number: u64) -> bool {
        self.shape.small_between && number % 2 == 1
    }

    /// Calls as far as there is room.
    fn make_calls(&mut self, now: Duration, made: u64) -> Result<bool> {
        let mut moved = false;
        while self.made < made && self.begun.len() < self.shape.depth {
            let number = self.made;
            self.made += 1;
            // The host comes to it when it has done what it is at.
            let begun = self.bed.busy_until(&self.client.qp.inner).max(now);
            self.begun.insert(number, begun);
            let request = self.request(number);
            let End { qp, connection } = &mut self.client;
            let called = connection.call(Instant::now(), request, qp);
            let failed = called.err().map(|failed| failed.error);
            failed
                .map_or(Ok(()), Err)
                .context("a call cannot be made")?;
            moved = true;
        }
        Ok(moved)
    }

    fn request(&self, number: u64) -> CallRequest<u64> {
        let xid = u32::try_from(number).expect("a measurement has few calls");
        let (arguments, results) = match self.is_small(number) {
            true => (0, 0),
            false => (self.shape.arguments(), self.shape.results()),
        };
        let message = self.message(xid, CALL, CALL_HEAD, arguments);
        let bound = ReplyBound {
            fixed: REPLY_HEAD,
            results: std::iter::repeat_n(self.shape.part(), results).collect(),
        };
        CallRequest::new(number, message, bound).with_items_moved()
    }

    fn message(&self, xid: u32, direction: u32, head: usize, items: usize) -> Payload {
        let mut w = Writer::new(Buffer::with_capacity(head));
        w.u32(xid);
        w.u32(direction);
        for _ in 2..head / 4 {
            w.u32(0);
        }
        for _ in 0..items {
            w.item(Gather::from_elem(self.data.clone(), 1));
        }
        w.finish()
    }

    /// The server takes in calls, and answers those that it has worked on.
    fn serve(&mut self, now: Duration) -> Result<bool> {
        let mut moved = false;
        while let Some(event) = self.server.connection.poll_event() {
            let Event::Call { id, message } = event else {
                bail!("the server calls nobody");
            };
            let xid = message.head().first_chunk().copied();
            let xid = u32::from_be_bytes(xid.context("a call has an XID")?);
            self.in_service
                .push_back((now + self.shape.service, id, xid));
            moved = true;
        }
        while self.in_service.front().is_some_and(|(at, ..)| *at <= now) {
            let Some((_, id, xid)) = self.in_service.pop_front() else {
                break;
            };
            let results = match self.is_small(u64::from(xid)) {
                true => 0,
                false => self.shape.results(),
            };
            let reply = self.message(xid, REPLY, REPLY_HEAD, results);
            self.server.connection.reply(id, Reply::Message(reply));
            moved = true;
        }
        Ok(moved)
    }
}
