//! Two ends and the calls between them.

use super::bed::Bed;
use super::counted::{Counted, Counts};
use anyhow::{Context, Result, bail, ensure};
use buffer::Buffer;
use bytes::Bytes;
use oncrpc::xdr::{Payload, Writer, padded};
use oncrpc::{Reply, ReplyBound};
use rpcrdma_proto::header::Lists;
use rpcrdma_proto::v2::header::WordLayout;
use rpcrdma_proto::{
    CallId, CallRequest, Config, Connection, Counters, Design, Event, Owner, Versions,
};
use smallvec::SmallVec;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};
use verbs::{Gather, IoCounters, QueuePair};

/// How long a measurement may stand still, in time that is not simulated.
const PATIENCE: Duration = Duration::from_secs(20);

/// `msg_type` (RFC 5531 §9).
const CALL: u32 = 0;
const REPLY: u32 = 1;

/// Bytes of the parts of a call and of its reply.
#[derive(Clone, Debug)]
pub(crate) struct Sizes {
    /// The call without the arguments below and their lengths.
    pub(crate) call: usize,
    /// Arguments that may move by themselves.
    pub(crate) arguments: SmallVec<[usize; 2]>,
    /// The reply without the results below and their lengths.
    pub(crate) reply: usize,
    /// Results that may move by themselves.
    pub(crate) results: SmallVec<[usize; 2]>,
    /// Upper bound of the reply that the client knows.
    pub(crate) bound: ReplyBound,
    /// Whether arguments and results have chunks even where they fit a Send.
    pub(crate) moved: bool,
}

impl Sizes {
    /// A call and a reply of so many bytes, at least a header of RPC each, without data that may move by itself.
    pub(crate) fn plain(call: usize, reply: usize) -> Self {
        Self {
            call,
            arguments: SmallVec::new(),
            reply,
            results: SmallVec::new(),
            bound: ReplyBound::new(reply),
            moved: false,
        }
    }

    /// Bytes of the whole reply.
    fn reply_len(&self) -> usize {
        let results = self.results.iter();
        self.reply
            + results
                .map(|&len| size_of::<u32>() + padded(len))
                .sum::<usize>()
    }
}

/// Calls to make, by their number.
pub(crate) trait Workload {
    /// Calls in flight at a time.
    fn depth(&self) -> usize;

    /// Time that the server works on a call.
    fn service(&self) -> Duration;

    /// Sizes of the call with this number.
    fn sizes(&self, number: u64) -> Sizes;
}

/// When an end gives memory to calls that need it for chunks.
///
/// Calls without chunks need none, so this decides about the order of calls that arrive at the same time. Nothing
/// in the protocol does. Figures that depend on it say nothing about a design.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// With the completion of the call, as the driver of the library does: calls are served as they arrive.
    Arrival,
    /// After all completions that the host finds: calls with chunks are served behind those without.
    MemoryLast,
}

/// Counts and times of one run.
pub(crate) struct Outcome {
    /// Calls that had an end.
    pub(crate) calls: u64,
    /// Both ends: client, server.
    pub(crate) counts: [Counts; 2],
    /// Times that a completion woke the host: client, server.
    pub(crate) wakeups: [u64; 2],
    /// Requests to the device of each end, and what it reported: client, server.
    pub(crate) io: [IoCounters; 2],
    /// Counters of the client's connection.
    pub(crate) client: Counters,
    /// Number of each call and how long it took, in the order of their ends.
    pub(crate) latencies: Vec<(u64, Duration)>,
}

/// Totals of both ends since the beginning of the connection.
#[derive(Clone, Copy)]
pub(crate) struct Snapshot {
    pub(crate) ended: u64,
    pub(crate) now: Duration,
    pub(crate) counts: [Counts; 2],
    pub(crate) wakeups: [u64; 2],
    pub(crate) io: [IoCounters; 2],
    pub(crate) client: Counters,
}

/// Owner of both ends: calls have numbers, and there is memory for all of them.
#[derive(Debug)]
pub(crate) struct Measured;

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
    order: Order,
}

impl<Q: QueuePair> End<Q> {
    fn new(qp: Q, [config, peer]: [&Config; 2], words: WordLayout, order: Order) -> Self {
        // An end of version two tells its characteristics by itself.
        let peer = (peer.versions == Versions::One).then_some(peer.own);
        let connection = Connection::new(config, Measured, peer, qp.limits());
        Self {
            qp: Counted::new(qp, words),
            connection,
            order,
        }
    }

    /// Work of the host when it is free.
    fn turn(&mut self) -> Result<bool> {
        let mut moved = false;
        while let Some(completion) = self.qp.poll_cq() {
            self.connection.handle_completion(completion);
            if self.order == Order::Arrival {
                self.lend_memory();
            }
            moved = true;
        }
        self.lend_memory();
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

    fn lend_memory(&mut self) {
        while self.connection.poll_memory().is_some() {
            self.connection.handle_memory(());
        }
    }
}

/// Two ends, and the calls in flight.
pub(crate) struct Traffic<B: Bed, W> {
    bed: B,
    client: End<B::Qp>,
    server: End<B::Qp>,
    workload: W,
    /// Data of calls and replies, as far as they have any.
    data: Bytes,
    /// Calls made so far; the number of one is its XID.
    made: u64,
    ended: u64,
    begun: BTreeMap<u64, (Duration, usize)>,
    /// Calls in service, in the order in which they end.
    in_service: VecDeque<(Duration, CallId<()>, u64)>,
    latencies: Vec<(u64, Duration)>,
}

impl<B: Bed, W: Workload> Traffic<B, W> {
    pub(crate) fn new(
        (bed, client, server): (B, B::Qp, B::Qp),
        configs: [&Config; 2],
        design: Option<Design>,
        order: Order,
        workload: W,
    ) -> Self {
        let words = WordLayout::of(design);
        Self {
            bed,
            client: End::new(client, configs, words, order),
            server: End::new(server, [configs[1], configs[0]], words, order),
            workload,
            data: Bytes::new(),
            made: 0,
            ended: 0,
            begun: BTreeMap::new(),
            in_service: VecDeque::new(),
            latencies: Vec::new(),
        }
    }

    /// Makes so many calls after a few that warm the connection up and are not counted.
    ///
    /// # Errors
    ///
    /// If a call or the connection fails, or nothing moves any more.
    pub(crate) fn measure(mut self, calls: u64) -> Result<Outcome> {
        self.until_ended(4 * self.workload.depth() as u64)?;
        let before = self.snapshot();
        self.latencies.clear();
        self.until_ended(self.made + calls)?;
        let mut after = self.snapshot();
        for end in 0..2 {
            after.counts[end] -= before.counts[end];
            after.wakeups[end] -= before.wakeups[end];
            after.io[end] -= before.io[end];
        }
        after.client -= before.client;
        Ok(Outcome {
            calls: after.ended - before.ended,
            counts: after.counts,
            wakeups: after.wakeups,
            io: after.io,
            client: after.client,
            latencies: self.latencies,
        })
    }

    /// Makes calls until `made` were made, and all of them have ended.
    ///
    /// # Errors
    ///
    /// Those of [`measure`](Self::measure).
    pub(crate) fn until_ended(&mut self, made: u64) -> Result<()> {
        self.until(made, |traffic| traffic.ended >= made)?;
        // What is posted without an answer is not left to the next.
        while self.client.qp.progress() | self.server.qp.progress() {}
        Ok(())
    }

    /// Makes calls, up to `made` in all, until `done` says so. Others are then in flight.
    ///
    /// # Errors
    ///
    /// Those of [`measure`](Self::measure).
    pub(crate) fn until(&mut self, made: u64, done: impl Fn(&Self) -> bool) -> Result<()> {
        let mut moved_last = Instant::now();
        while !done(self) {
            if self.turn(made)? {
                moved_last = Instant::now();
            } else {
                ensure!(moved_last.elapsed() < PATIENCE, "nothing moves any more");
                let due = self.next_due();
                self.bed.wait(due);
            }
        }
        Ok(())
    }

    /// Calls that have ended.
    pub(crate) fn ended(&self) -> u64 {
        self.ended
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let ends = [&self.client, &self.server];
        Snapshot {
            ended: self.ended,
            now: self.bed.now(),
            counts: ends.map(|end| end.qp.counts),
            wakeups: ends.map(|end| self.bed.wakeups(&end.qp.inner)),
            io: ends.map(|end| end.qp.io_counters()),
            client: *self.client.connection.counters(),
        }
    }

    /// Takes the times of the calls that have ended since this was called last.
    pub(crate) fn take_latencies(&mut self) -> Vec<(u64, Duration)> {
        std::mem::take(&mut self.latencies)
    }

    pub(crate) fn client(&self) -> &Connection<Measured> {
        &self.client.connection
    }

    pub(crate) fn client_mut(&mut self) -> &mut Connection<Measured> {
        &mut self.client.connection
    }

    pub(crate) fn server(&self) -> &Connection<Measured> {
        &self.server.connection
    }

    pub(crate) fn server_mut(&mut self) -> &mut Connection<Measured> {
        &mut self.server.connection
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
            let (begun, expected) = begun.context("a call has one end")?;
            ensure!(reply.stream_len() == expected, "a reply is complete");
            let ended = self.bed.busy_until(&self.client.qp.inner).max(now);
            self.latencies.push((call, ended - begun));
            self.ended += 1;
        }
        Ok(moved)
    }

    /// Calls as far as there is room.
    fn make_calls(&mut self, now: Duration, made: u64) -> Result<bool> {
        let mut moved = false;
        while self.made < made && self.begun.len() < self.workload.depth() {
            let number = self.made;
            self.made += 1;
            // The host comes to it when it has done what it is at.
            let begun = self.bed.busy_until(&self.client.qp.inner).max(now);
            let sizes = self.workload.sizes(number);
            self.begun.insert(number, (begun, sizes.reply_len()));
            let message = self.message(number, CALL, sizes.call, &sizes.arguments)?;
            let mut request = CallRequest::new(number, message, sizes.bound);
            if sizes.moved {
                request = request.with_items_moved();
            }
            let End { qp, connection, .. } = &mut self.client;
            let called = connection.call(Instant::now(), request, qp);
            let failed = called.err().map(|failed| failed.error);
            failed
                .map_or(Ok(()), Err)
                .context("a call cannot be made")?;
            moved = true;
        }
        Ok(moved)
    }

    fn message(
        &mut self,
        number: u64,
        direction: u32,
        head: usize,
        items: &[usize],
    ) -> Result<Payload> {
        ensure!(
            head >= 8 && head.is_multiple_of(4),
            "a message has an XID and a direction, and whole words"
        );
        let longest = items.iter().copied().max().unwrap_or(0);
        if longest > self.data.len() {
            self.data = Bytes::from(vec![0x5a; longest]);
        }
        let mut w = Writer::new(Buffer::with_capacity(head));
        w.u32(u32::try_from(number).context("a measurement has few calls")?);
        w.u32(direction);
        for _ in 2..head / 4 {
            w.u32(0);
        }
        for &item in items {
            w.item(Gather::from_elem(self.data.slice(..item), 1));
        }
        Ok(w.finish())
    }

    /// The server takes in calls, and answers those that it has worked on.
    fn serve(&mut self, now: Duration) -> Result<bool> {
        let mut moved = false;
        while let Some(event) = self.server.connection.poll_event() {
            let Event::Call { id, message } = event else {
                bail!("the server calls nobody");
            };
            let xid = message.head().first_chunk().copied();
            let number = u32::from_be_bytes(xid.context("a call has an XID")?);
            let done = now + self.workload.service();
            self.in_service.push_back((done, id, number.into()));
            moved = true;
        }
        while self.in_service.front().is_some_and(|(at, ..)| *at <= now) {
            let Some((_, id, number)) = self.in_service.pop_front() else {
                break;
            };
            let sizes = self.workload.sizes(number);
            let reply = self.message(number, REPLY, sizes.reply, &sizes.results)?;
            self.server.connection.reply(id, Reply::Message(reply));
            moved = true;
        }
        Ok(moved)
    }
}
