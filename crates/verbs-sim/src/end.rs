//! One end of a connection: posted work, registered memory and completions.

mod inward;
mod outward;

use crate::costs::Clock;
use crate::options::{EndOptions, Faults, Stall, Way};
use crate::reads::Reads;
use crate::regions::{Regions, VIRTUAL_BASE};
use crate::rng::Rng;
use crate::wire::{Message, Wire};
use buffer::{Buffer, gather_len};
use std::collections::VecDeque;
use std::task::{Context, Poll};
use std::time::Duration;
use verbs::{
    CloseReason, Completion, Handle, Handles, IoCounters, Limits, Loss, Memory, NoBlock,
    NotPersistent, PostError, ReceiveShare, RegisterError, RemoteAddress, SharedReceiveQueue,
    WorkError, WorkRequest, WrId,
};

/// How long an orderly close may take before it is over anyway.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// Messages sent, and messages taken in, per call of `progress`.
const BATCH: usize = 64;

/// Resources held by one end or by a whole fabric. All zeros means that nothing is leaked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outstanding {
    /// Receives posted.
    pub receives: usize,
    /// Other work posted and not complete.
    pub work: usize,
    /// Completions that nobody has taken.
    pub completions: usize,
    /// Regions that the peer can reach.
    pub regions: usize,
    /// Messages sent that the peer has not taken in.
    pub on_the_wire: usize,
}

/// Traffic statistics of one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Sends that went out.
    pub sends: u64,
    /// Of these, with a handle of the peer's to invalidate.
    pub sends_with_invalidate: u64,
    /// Writes that went out.
    pub writes: u64,
    /// Read requests that went out, one per segment.
    pub read_requests: u64,
    /// Handles invalidated by this end itself.
    pub local_invalidations: u64,
    /// Most Read requests of the peer that waited for their response at a time.
    pub most_inbound_reads: usize,
    /// Signalled completions that found the host asleep, each of which costs an
    /// [interrupt](crate::Costs::interrupt).
    pub wakeups: u64,
}

#[derive(Debug)]
pub(crate) struct End {
    limits: Limits,
    faults: Faults,
    /// Those that are still to come.
    stalls: VecDeque<Stall>,
    rng: Rng,
    /// Those that are posted; with a shared receive queue, the block of the next message.
    receives: VecDeque<(WrId, Buffer)>,
    share: Option<ReceiveShare>,
    /// The next message found no block when it was looked for.
    waits: bool,
    /// Work requests, with the time at which the host had posted each.
    posted: VecDeque<(Duration, WorkRequest)>,
    reads: Reads,
    responses: VecDeque<Vec<u8>>,
    requests_seen: u64,
    regions: Regions,
    zero_based: bool,
    completions: VecDeque<Done>,
    completed_receives: usize,
    state: State,
    /// Until when nothing comes in, and until when nothing goes out.
    stalled_in: Duration,
    stalled_out: Duration,
    handled: u64,
    begun: u64,
    traffic: Traffic,
    io: IoCounters,
    clock: Clock,
}

/// A completion that is there, or will be.
#[derive(Debug)]
struct Done {
    queue: Queue,
    completion: Completion,
    /// When its owner can see it.
    visible: Duration,
    /// Whether that is later than when it was made.
    later: bool,
    /// Whether the host waits for it, and is woken by it.
    signalled: bool,
}

/// Which limit a completion counts against until it is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    Receives,
    Work,
}

#[derive(Debug)]
enum State {
    Open,
    /// We closed: what is posted still goes out, then the last word, then the peer's is awaited.
    Closing {
        deadline: Duration,
        fin_sent: bool,
    },
    Closed(CloseReason),
}

impl End {
    pub(crate) fn new(options: &EndOptions, inbound_reads_of_peer: usize, rng: Rng) -> Self {
        let mut limits = options.limits.clone();
        limits.outstanding_reads = limits.outstanding_reads.min(inbound_reads_of_peer);
        let queue = options.shared_receives.as_ref();
        Self {
            share: queue.map(|queue| queue.attach(limits.receives)),
            waits: false,
            reads: Reads::new(limits.outstanding_reads),
            limits,
            faults: options.faults.clone(),
            stalls: options.faults.stalls.iter().copied().collect(),
            rng,
            receives: VecDeque::new(),
            posted: VecDeque::new(),
            responses: VecDeque::new(),
            requests_seen: 0,
            regions: Regions::default(),
            zero_based: options.zero_based,
            completions: VecDeque::new(),
            completed_receives: 0,
            state: State::Open,
            stalled_in: Duration::ZERO,
            stalled_out: Duration::ZERO,
            handled: 0,
            begun: 0,
            traffic: Traffic::default(),
            io: IoCounters::default(),
            clock: Clock::new(options.costs),
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Payload that was sent and taken in.
    pub(crate) fn io(&self) -> IoCounters {
        self.io
    }

    pub(crate) fn traffic(&self) -> Traffic {
        Traffic {
            wakeups: self.clock.wakeups(),
            ..self.traffic
        }
    }

    /// Until when its host is busy.
    pub(crate) fn busy_until(&self) -> Duration {
        self.clock.host()
    }

    pub(crate) fn outstanding(&self) -> Outstanding {
        Outstanding {
            receives: self.receives.len(),
            work: self.posted.len() + self.reads.len(),
            completions: self.completions.len(),
            regions: self.regions.len(),
            on_the_wire: 0,
        }
    }

    pub(crate) fn closed(&self) -> Option<&CloseReason> {
        match &self.state {
            State::Closed(reason) => Some(reason),
            State::Open | State::Closing { .. } => None,
        }
    }

    pub(crate) fn stall(&mut self, way: Way, until: Duration) {
        match way {
            Way::In => self.stalled_in = until,
            Way::Out => self.stalled_out = until,
            Way::Both => (self.stalled_in, self.stalled_out) = (until, until),
        }
    }

    #[expect(clippy::result_large_err, reason = "the refused work is handed back")]
    pub(crate) fn post(&mut self, now: Duration, work: WorkRequest) -> Result<(), PostError> {
        match self.state {
            State::Open => {}
            State::Closing { .. } | State::Closed(_) => {
                let queue = queue_of(&work);
                self.fail(queue, work.wr(), WorkError::Flushed);
                return Ok(());
            }
        }
        if !self.possible(&work) {
            return Err(PostError::Invalid(work));
        }
        if self.is_full(&work) {
            return Err(PostError::Full(work));
        }
        let posted = self.clock.post(now);
        match work {
            WorkRequest::Receive { wr, buffer } => self.receives.push_back((wr, buffer)),
            WorkRequest::Send { .. }
            | WorkRequest::Write { .. }
            | WorkRequest::Read { .. }
            | WorkRequest::Invalidate { .. } => self.posted.push_back((posted, work)),
        }
        Ok(())
    }

    fn possible(&self, work: &WorkRequest) -> bool {
        let most = self.limits.max_message as usize;
        match work {
            // As hardware has it: who takes from a shared queue has none of its own.
            WorkRequest::Receive { .. } => self.share.is_none(),
            WorkRequest::Invalidate { .. } => true,
            WorkRequest::Send {
                buffer,
                rest,
                invalidate,
                ..
            } => {
                let handles = invalidate.as_ref().map_or(0, Handles::count);
                buffer.len() + gather_len(rest) <= most && handles <= self.limits.invalidations
            }
            WorkRequest::Write { source, .. } => gather_len(source) <= most,
            WorkRequest::Read { sink, from, .. } => {
                let length: u64 = from.iter().map(|segment| u64::from(segment.length)).sum();
                let most = most.min(sink.capacity()) as u64;
                self.limits.outstanding_reads > 0 && length <= most
            }
        }
    }

    fn is_full(&mut self, work: &WorkRequest) -> bool {
        let completed = self.completions.len() - self.completed_receives;
        let taken = self.posted.len() + self.reads.len() + completed;
        let full = match queue_of(work) {
            Queue::Receives => {
                self.receives.len() + self.completed_receives >= self.limits.receives
            }
            Queue::Work => taken >= self.limits.sends,
        };
        if full {
            return true;
        }
        // An injected refusal must be followed by a completion, or the poster would wait for ever.
        match self.faults.refuse_post {
            Some(one_in) if taken > 0 => self.rng.below(one_in.get()) == 0,
            Some(_) | None => false,
        }
    }

    pub(crate) fn register(
        &mut self,
        now: Duration,
        memory: Memory,
    ) -> Result<RemoteAddress, RegisterError> {
        match self.state {
            State::Open => {}
            State::Closing { .. } | State::Closed(_) => return Err(RegisterError::Closed(memory)),
        }
        let (most, max_region) = (self.limits.parts, self.limits.max_region);
        let registrable = match &memory {
            Memory::Parts(parts) => parts.are_registrable(most, max_region),
            Memory::Source(_) | Memory::Sink(_) | Memory::Persistent(..) => {
                !memory.is_empty() && memory.len() <= max_region
            }
        };
        if !registrable {
            return Err(RegisterError::Size(memory));
        }
        let refused = match self.faults.refuse_registration {
            Some(one_in) => self.rng.below(one_in.get()) == 0,
            None => false,
        };
        if refused || self.regions.len() >= self.limits.regions {
            return Err(RegisterError::Full(memory));
        }
        self.clock.register(now, memory.len());
        let base = if self.zero_based { 0 } else { VIRTUAL_BASE };
        Ok(self.regions.register(memory, base, &mut self.rng))
    }

    /// So many bytes of persistent memory, for its owner.
    pub(crate) fn persistent(
        &mut self,
        now: Duration,
        handle: Handle,
        offset: usize,
        length: usize,
    ) -> Result<&mut [u8], NotPersistent> {
        self.clock.copy(now, length);
        self.regions.persistent(handle, offset, length)
    }

    pub(crate) fn poll_cq(&mut self, now: Duration) -> Option<Completion> {
        let first = self.first_visible(now)?;
        let Done {
            queue,
            completion,
            visible,
            signalled,
            ..
        } = self.completions.remove(first)?;
        if signalled {
            self.clock.complete(now, visible);
        }
        if queue == Queue::Receives {
            self.completed_receives -= 1;
        }
        Some(completion)
    }

    /// Whether [`progress`](Self::progress) would move something now.
    pub(crate) fn is_ready(&self, now: Duration, inward: &Wire, outward: &Wire) -> bool {
        match &self.state {
            State::Closed(_) => true,
            State::Closing { deadline, .. } if *deadline <= now => true,
            State::Open | State::Closing { .. } => {
                let comes = inward.peek(now).is_some() && !self.waits_for_block(now, inward);
                (comes && self.stalled_in <= now)
                    || (self.stalled_out <= now && self.can_send(now, outward))
                    || self.has_become_visible(now)
            }
        }
    }

    fn can_send(&self, now: Duration, outward: &Wire) -> bool {
        let something = !self.posted.is_empty() || !self.responses.is_empty();
        let begins = self.has_posted(now) || !self.responses.is_empty();
        (begins && outward.has_room())
            || self.reads.can_request()
            || (!something && self.owes_fin())
    }

    /// The completion to be seen next. One that takes its time holds up those behind it of the same
    /// queue.
    fn first_visible(&self, now: Duration) -> Option<usize> {
        let mut waits = [false; 2];
        self.completions.iter().position(|done| {
            let waits = &mut waits[usize::from(done.queue == Queue::Receives)];
            *waits |= done.visible > now;
            !*waits
        })
    }

    /// Whether work is posted and the host is done with posting it.
    fn has_posted(&self, now: Duration) -> bool {
        self.posted
            .front()
            .is_some_and(|(posted, _)| *posted <= now)
    }

    /// Whether a completion can be seen that took its time.
    fn has_become_visible(&self, now: Duration) -> bool {
        let mut done = self.completions.iter();
        done.any(|done| done.later && done.visible <= now)
    }

    fn owes_fin(&self) -> bool {
        match self.state {
            State::Closing { fin_sent, .. } => !fin_sent,
            State::Open | State::Closed(_) => false,
        }
    }

    /// When [`is_ready`](Self::is_ready) may change by time alone, if it is after `now`.
    pub(crate) fn next_event(&self, now: Duration, inward: &Wire) -> Option<Duration> {
        let deadline = match &self.state {
            State::Closed(_) => return None,
            State::Open => None,
            State::Closing { deadline, .. } => Some(*deadline),
        };
        let comes = match self.stalled_in > now {
            true => Some(self.stalled_in),
            false => inward.next_due(),
        };
        let posted = self.posted.front().map(|(posted, _)| *posted);
        let visible = self.completions.iter().map(|done| done.visible);
        [deadline, comes, posted, Some(self.stalled_out)]
            .into_iter()
            .flatten()
            .chain(visible)
            .filter(|at| *at > now && *at < Duration::MAX)
            .min()
    }

    /// Takes in what has arrived and sends what is posted, a bounded amount of each. Says whether
    /// anything moved.
    pub(crate) fn progress(
        &mut self,
        now: Duration,
        inward: &mut Wire,
        outward: &mut Wire,
    ) -> bool {
        let mut moved = false;
        for _ in 0..BATCH {
            self.meet_stalls(now);
            if self.stalled_in > now || self.closed().is_some() {
                break;
            }
            if !self.find_block(now, inward) {
                break;
            }
            let Some(message) = inward.pop(now) else {
                break;
            };
            self.waits = false;
            moved = true;
            self.handled += 1;
            self.take_in(now, message, inward, outward);
        }
        for _ in 0..BATCH {
            self.meet_stalls(now);
            let rests = self.stalled_out > now || self.closed().is_some();
            if rests || !self.send_next(now, inward, outward) {
                break;
            }
            moved = true;
            self.handled += 1;
        }
        if let State::Closing { deadline, .. } = self.state
            && deadline <= now
        {
            self.end(CloseReason::Local, None);
            moved = true;
        }
        moved
    }

    /// Whether the next message can be taken in. A Send takes its block here; without one the peer
    /// is held back, unless this end cannot do that.
    fn find_block(&mut self, now: Duration, inward: &Wire) -> bool {
        let Some(share) = &self.share else {
            return true;
        };
        let is_send = matches!(inward.peek(now), Some(Message::Send { .. }));
        if !is_send || !self.receives.is_empty() || !matches!(self.state, State::Open) {
            return true;
        }
        // Calls that hold blocks may wait for a Read response behind this message.
        let reads = self.has_reads();
        match share.take(reads) {
            Ok(block) => {
                self.receives.push_back((SharedReceiveQueue::WR, block));
                true
            }
            // It is refused for want of a Receive.
            Err(NoBlock::ShareUsed) if reads => true,
            Err(_) if !self.limits.holds_peer_back => true,
            Err(_) => {
                self.waits = true;
                false
            }
        }
    }

    /// Reads of ours that are not done.
    fn has_reads(&self) -> bool {
        let is_read = |work: &WorkRequest| matches!(work, WorkRequest::Read { .. });
        self.reads.len() > 0 || self.posted.iter().any(|(_, work)| is_read(work))
    }

    /// Whether the next message waits for a block, and cannot have one in another way.
    fn waits_for_block(&self, now: Duration, inward: &Wire) -> bool {
        self.waits
            && matches!(self.state, State::Open)
            && !self.has_reads()
            && inward.peek(now).is_some()
    }

    /// Waits for that block.
    pub(crate) fn poll_block(
        &mut self,
        now: Duration,
        inward: &Wire,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        match &self.share {
            Some(share) if self.waits_for_block(now, inward) => share.poll_ready(cx),
            Some(_) | None => Poll::Pending,
        }
    }

    /// Begins the stalls that are due.
    fn meet_stalls(&mut self, now: Duration) {
        let handled = self.handled;
        while let Some(stall) = self.stalls.pop_front_if(|stall| handled >= stall.after) {
            self.stall(stall.way, now.saturating_add(stall.lasting));
        }
    }

    /// Ends the connection in good order.
    pub(crate) fn close(&mut self, now: Duration) {
        match self.state {
            State::Closing { .. } | State::Closed(_) => return,
            State::Open => {}
        }
        self.state = State::Closing {
            deadline: now + CLOSE_LIMIT,
            fin_sent: false,
        };
        // Nothing more is taken in, so neither Receives nor Reads can complete.
        self.flush_receives();
        self.flush_reads(None);
        for (posted, work) in std::mem::take(&mut self.posted) {
            match work {
                WorkRequest::Read { wr, .. } => self.fail(Queue::Work, wr, WorkError::Flushed),
                WorkRequest::Receive { .. }
                | WorkRequest::Send { .. }
                | WorkRequest::Write { .. }
                | WorkRequest::Invalidate { .. } => self.posted.push_back((posted, work)),
            }
        }
    }

    /// The owner has dropped it. Everything it holds is dropped.
    pub(crate) fn abandon(&mut self, now: Duration, inward: &mut Wire, outward: &mut Wire) {
        let said_goodbye = match self.state {
            State::Closed(_) => true,
            State::Closing { fin_sent, .. } => fin_sent,
            State::Open => false,
        };
        if !said_goodbye {
            self.send(now, Message::Reset(Loss::Reset), inward, outward);
        }
        inward.deafen();
        self.end(CloseReason::Local, None);
        self.completions.clear();
        self.completed_receives = 0;
        self.regions = Regions::default();
    }

    /// The connection is over: every piece of work gets its one completion.
    fn end(&mut self, reason: CloseReason, refused: Option<u64>) {
        if self.closed().is_some() {
            return;
        }
        self.state = State::Closed(reason);
        self.flush_reads(refused);
        for (_, work) in std::mem::take(&mut self.posted) {
            self.fail(Queue::Work, work.wr(), WorkError::Flushed);
        }
        self.flush_receives();
        self.responses.clear();
    }

    fn flush_receives(&mut self) {
        if let Some(share) = &self.share {
            share.stop_waiting();
            self.receives.clear();
        }
        for (wr, _) in std::mem::take(&mut self.receives) {
            self.fail(Queue::Receives, wr, WorkError::Flushed);
        }
    }

    fn flush_reads(&mut self, refused: Option<u64>) {
        for (wr, refused) in self.reads.abandon(refused) {
            let error = if refused {
                WorkError::RemoteAccess
            } else {
                WorkError::Flushed
            };
            self.fail(Queue::Work, wr, error);
        }
    }

    fn fail(&mut self, queue: Queue, wr: WrId, error: WorkError) {
        self.complete(queue, Completion::Failed { wr, error });
    }

    /// Work is done, and its owner can see that at once.
    fn complete(&mut self, queue: Queue, completion: Completion) {
        self.complete_at(Duration::ZERO, Duration::ZERO, queue, completion);
    }

    /// Work is done, and its owner can see that at a time.
    fn complete_at(
        &mut self,
        now: Duration,
        visible: Duration,
        queue: Queue,
        completion: Completion,
    ) {
        if queue == Queue::Receives {
            self.completed_receives += 1;
        }
        if self.clock.signals_last()
            && matches!(completion, Completion::Invalidate { .. })
            && let Some(last) = self.completions.back_mut()
            && matches!(last.completion, Completion::Invalidate { .. })
            && last.visible > now
        {
            // The RNIC is not done with the one before: that is seen with this one.
            last.visible = visible;
            last.signalled = false;
        }
        self.completions.push_back(Done {
            queue,
            signalled: is_signalled(&completion),
            completion,
            visible,
            later: visible > now,
        });
    }
}

/// Whether a completion is one that a host waits for.
fn is_signalled(completion: &Completion) -> bool {
    match completion {
        Completion::Send { .. } | Completion::Write { .. } => false,
        Completion::Receive { .. }
        | Completion::Read { .. }
        | Completion::Invalidate { .. }
        | Completion::Failed { .. } => true,
    }
}

fn queue_of(work: &WorkRequest) -> Queue {
    match work {
        WorkRequest::Receive { .. } => Queue::Receives,
        WorkRequest::Send { .. }
        | WorkRequest::Write { .. }
        | WorkRequest::Read { .. }
        | WorkRequest::Invalidate { .. } => Queue::Work,
    }
}
