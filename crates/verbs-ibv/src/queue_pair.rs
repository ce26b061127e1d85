//! A queue pair over a device: its state, and when it waits.
//!
//! Work is queued when it is posted, and given to the device in chains by `progress`. Reads wait in a queue of their
//! own until as few are outstanding as the peer serves, so that nothing waits behind them.
//!
//! All memory that the device knows of belongs to this value until its completion comes. When completions do not come,
//! the queue pair of the device is destroyed first: then it touches no memory any more.

use crate::adapter::{Adapter, MAX_SENDS};
use crate::cm::{CmId, Event, EventKind};
use crate::device_events::News;
use crate::devices::Transport;
use crate::ending;
use crate::hardware::{BATCH, Hardware};
use crate::send_queue::SendQueue;
use crate::sys::{IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, ibv_wc};
use crate::watch::Live;
use crate::windows::Windows;
use crate::work::{Exposed, Posted, Read, ReadPart, Receive, Work};
use buffer::Pool;
use slab::Slab;
use std::collections::{HashMap, VecDeque};
use std::future::Future as _;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};
use verbs::{
    CloseReason, Completion, Handle, IoCounters, Limits, Loss, Memory, NotPersistent, PostError,
    ProtocolError, QpOptions, QueuePair, RegisterError, RemoteAddress, WorkError, WorkRequest,
    WrId,
};

/// How long an orderly close waits for posted work to be sent.
const LINGER: Duration = Duration::from_secs(2);

/// How long the device may take to report what it will not do any more, when a connection ends.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Batches of completions handled in one call of `progress`.
const ROUNDS: usize = 8;

enum Phase {
    Open,
    /// Posted work is sent, then the connection is closed.
    Draining {
        until: Instant,
    },
    /// The connection has ended, and the device gives back what it has.
    Flushing {
        reason: CloseReason,
        until: Instant,
        /// The reason was concluded from nothing but the end itself: a better one replaces it.
        guessed: bool,
        /// (iWARP) Waits for the connection manager to say that the connection is closed: then it is known who has closed
        /// it, and that nothing is reset.
        asks: bool,
    },
    Closed(CloseReason),
}

/// One end of a connection over a device.
pub(crate) struct IbvQp {
    pub(crate) live: Option<Live>,
    phase: Phase,
    /// The owner has closed the connection: a peer that does so too changes nothing.
    closing: bool,
    /// Pieces of memory that one work request can have.
    pub(crate) pieces_of_a_request: usize,
    pub(crate) limits: Limits,
    pub(crate) transport: Transport,
    pub(crate) windows_used: bool,
    pub(crate) is_soft_roce: bool,
    peer: SocketAddr,
    description: String,
    /// Name of the device.
    device: String,
    /// Memory of this crate, for bytes that have to be copied.
    pub(crate) pool: Pool,
    pub(crate) receives: VecDeque<Receive>,
    /// Receives of those that the device has.
    pub(crate) posted_receives: usize,
    /// Number of the first Receive.
    pub(crate) first_receive: u64,
    /// Work other than Receives that has not completed.
    pub(crate) accepted: usize,
    pub(crate) queue: VecDeque<Work>,
    pub(crate) read_parts: VecDeque<ReadPart>,
    pub(crate) reads: Slab<Read>,
    /// Parts of Reads that the device has.
    pub(crate) outstanding_reads: usize,
    pub(crate) sends: SendQueue<Posted>,
    pub(crate) exposed: HashMap<u32, Exposed>,
    pub(crate) windows: Windows,
    ready: VecDeque<Completion>,
    /// There is something for the owner to look at.
    moved_early: bool,
    /// The device notifies us of the next completion.
    armed: bool,
    pub(crate) io: IoCounters,
    timer: Option<Pin<Box<Sleep>>>,
}

impl IbvQp {
    /// Creates the queue pair of an identifier with a device. On the runtime that will drive it.
    pub(crate) fn new(
        id: CmId,
        adapter: Arc<Adapter>,
        options: &QpOptions,
        pool: Pool,
        peer: SocketAddr,
    ) -> io::Result<Self> {
        let sizes = adapter.sizes(options);
        let limits = adapter.limits(options);
        let (transport, windows_used) = (adapter.transport, adapter.windows);
        let is_soft_roce = adapter.is_soft_roce;
        let (description, device) = (adapter.describe(), adapter.name.clone());
        let hardware = Hardware::new(id, adapter, sizes)?;
        let in_order = transport == Transport::InfiniBand;
        Ok(Self {
            live: Some(Live::new(hardware)?),
            phase: Phase::Open,
            closing: false,
            pieces_of_a_request: sizes.pieces as usize,
            limits,
            transport,
            windows_used,
            is_soft_roce,
            peer,
            description,
            device,
            pool,
            receives: VecDeque::new(),
            posted_receives: 0,
            first_receive: 0,
            accepted: 0,
            queue: VecDeque::new(),
            read_parts: VecDeque::new(),
            reads: Slab::new(),
            outstanding_reads: 0,
            sends: SendQueue::new(sizes.sends as usize, in_order),
            exposed: HashMap::new(),
            windows: Windows::default(),
            ready: VecDeque::new(),
            moved_early: false,
            armed: false,
            io: IoCounters::default(),
            timer: None,
        })
    }

    /// The device, for as long as the connection has not ended.
    pub(crate) fn hardware(&mut self) -> Option<&mut Hardware> {
        self.live.as_mut().map(|live| &mut live.hardware)
    }

    /// Posts the Receives that must be there before the peer can send.
    pub(crate) fn post_receives(&mut self, receives: Vec<WorkRequest>) -> io::Result<()> {
        for receive in receives {
            let posted = self.post(receive);
            posted.map_err(|error| {
                let text = format!("a receive could not be posted: {error}");
                io::Error::new(io::ErrorKind::InvalidInput, text)
            })?;
        }
        match &self.phase {
            Phase::Open => Ok(()),
            Phase::Draining { .. } => Err(io::ErrorKind::NotConnected.into()),
            Phase::Flushing { reason, .. } | Phase::Closed(reason) => {
                Err(io::Error::other(reason.clone()))
            }
        }
    }

    /// Waits for the next event of the connection manager, while the connection is set up.
    pub(crate) async fn event(&mut self) -> io::Result<Event> {
        let Some(live) = &mut self.live else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        live.event().await
    }

    /// Enters what was negotiated.
    pub(crate) fn established(&mut self, outstanding_reads: usize, inbound_reads: usize) {
        self.limits.outstanding_reads = self.limits.outstanding_reads.min(outstanding_reads);
        self.limits.inbound_reads = self.limits.inbound_reads.min(inbound_reads);
        self.description += &format!(
            ", IRD {}, ORD {}",
            self.limits.inbound_reads, self.limits.outstanding_reads
        );
        tracing::debug!(peer = %self.peer, connection = self.description, "connected");
    }

    /// Whether posted work still goes to the device.
    pub(crate) fn sends_on(&self) -> bool {
        self.live.is_some() && matches!(self.phase, Phase::Open | Phase::Draining { .. })
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open)
    }

    pub(crate) fn complete(&mut self, completion: Completion) {
        self.ready.push_back(completion);
    }

    pub(crate) fn fail(&mut self, wr: WrId, error: WorkError) {
        self.complete(Completion::Failed { wr, error });
    }

    /// Ends the connection for this reason. The first reason counts, unless it was a guess.
    pub(crate) fn end(&mut self, reason: CloseReason) {
        self.end_with(reason, false);
    }

    /// The device stopped the queue pair, without a word about why.
    pub(crate) fn stopped_by_device(&mut self) {
        // On InfiniBand the queue pair stops by itself only when the peer did what is not allowed: if it closes the
        // connection, it is up to this end to stop. iWARP devices stop in any case.
        let reason = match self.transport {
            Transport::Iwarp => CloseReason::Lost(Loss::Reset.into()),
            _ => CloseReason::PeerError(ProtocolError::Unspecified.into()),
        };
        self.end_with(reason, true);
    }

    fn end_with(&mut self, reason: CloseReason, guess: bool) {
        let (reason, guess) = match reason {
            CloseReason::Peer if self.closing => (CloseReason::Local, false),
            _ if self.closing && guess => (CloseReason::Local, false),
            reason => (reason, guess),
        };
        match &mut self.phase {
            Phase::Open | Phase::Draining { .. } => {
                self.disconnect();
                self.fail_queue_pair();
                let asks = guess && self.transport == Transport::Iwarp;
                self.flush(reason, guess, asks);
            }
            Phase::Flushing {
                reason: known,
                guessed,
                asks,
                ..
            } if *guessed && !guess => {
                *known = reason;
                *guessed = false;
                *asks = false;
            }
            Phase::Flushing { .. } | Phase::Closed(_) => {}
        }
    }

    /// Ends a connection in order: all is sent, or has had its time.
    fn end_in_order(&mut self) {
        // An iWARP card that is told to fail a queue pair resets its TCP connection, if that is not closed yet, and with it
        // what the peer does not have yet. On InfiniBand, to disconnect is to fail the queue pair.
        if self.transport == Transport::Iwarp && self.disconnect() {
            self.flush(CloseReason::Local, false, true);
        } else {
            self.end(CloseReason::Local);
        }
    }

    /// Begins to wait for what the device gives back.
    fn flush(&mut self, reason: CloseReason, guessed: bool, asks: bool) {
        tracing::debug!(peer = %self.peer, %reason, "the connection ends");
        self.phase = Phase::Flushing {
            reason,
            until: Instant::now() + FLUSH_TIMEOUT,
            guessed,
            asks,
        };
        self.flush_queue();
        self.moved_early = true;
    }

    /// Begins to close the connection. Says whether there was one: the peer may have been faster.
    fn disconnect(&mut self) -> bool {
        let hardware = self.hardware();
        hardware.is_some_and(|hardware| hardware.id.disconnect().is_ok())
    }

    /// Has the device give back all that it has.
    fn fail_queue_pair(&mut self) {
        if let Some(hardware) = self.hardware() {
            hardware.fail();
        }
    }

    /// Fails what the device does not have yet. Memory that is exposed stays so until the queue pair is destroyed.
    fn flush_queue(&mut self) {
        for work in std::mem::take(&mut self.queue) {
            if let Some(wr) = work.wr() {
                self.finish_failed(wr, WorkError::Flushed);
            }
        }
        self.flush_read_parts();
    }

    /// Fails Reads and parts of Reads that the device does not have yet.
    fn flush_read_parts(&mut self) {
        for part in std::mem::take(&mut self.read_parts) {
            self.finish_read_part(part.read, Some(WorkError::Flushed));
        }
    }

    /// Fails Reads that wait, when nothing is received any more.
    fn flush_reads(&mut self) {
        let (reads, others): (VecDeque<_>, _) = std::mem::take(&mut self.queue)
            .into_iter()
            .partition(|work| matches!(work, Work::Read { .. }));
        self.queue = others;
        for work in reads {
            if let Some(wr) = work.wr() {
                self.finish_failed(wr, WorkError::Flushed);
            }
        }
        self.flush_read_parts();
    }

    /// Handles the events of the connection manager that are there.
    fn handle_events(&mut self) -> io::Result<()> {
        while let Some(live) = &mut self.live {
            let Some(event) = live.hardware.id.event()? else {
                return Ok(());
            };
            match event.kind {
                EventKind::Disconnected => self.disconnected(),
                EventKind::DeviceRemoval => {
                    self.end(CloseReason::Lost(Loss::DeviceRemoved.into()));
                    self.tear_down();
                }
                EventKind::Rejected | EventKind::ConnectError | EventKind::Unreachable => {
                    self.end(CloseReason::Lost(Loss::Reset.into()));
                }
                // It goes through a link that its network interface has given up.
                EventKind::AddressChange => {
                    self.end(CloseReason::Lost(Loss::LinkDown.into()));
                }
                EventKind::Request(_)
                | EventKind::LostRequest(_)
                | EventKind::AddressResolved
                | EventKind::AddressError
                | EventKind::RouteResolved
                | EventKind::RouteError
                | EventKind::Established
                | EventKind::Other => {}
            }
        }
        Ok(())
    }

    /// The device says something about the queue pair, or about itself.
    fn handle_device(&mut self, news: &News) {
        if self.note_device(news) {
            self.tear_down();
        }
    }

    /// Handles all that the device has said.
    fn handle_device_news(&mut self) {
        while let Some(live) = &self.live
            && let Some(news) = live.hardware.device_news()
        {
            self.handle_device(&news);
        }
    }

    /// Ends the connection for what the device says, if that is a reason. Says whether nothing completes any more.
    fn note_device(&mut self, news: &News) -> bool {
        match news {
            News::DeviceFailed => {
                self.end(CloseReason::Lost(Loss::DeviceRemoved.into()));
                return true;
            }
            News::PortDown => {
                // The link may be back since: then the device sends again what was lost.
                let active = self.hardware().is_some_and(|port| port.port_is_active());
                if !active {
                    self.end(CloseReason::Lost(Loss::LinkDown.into()));
                }
            }
            News::CompletionQueueFailed => {
                let error = io::Error::other("the completion queue has overrun or failed");
                self.end(ending::system(error));
                return true;
            }
            News::QueuePair(IBV_EVENT_QP_ACCESS_ERR) => {
                self.end(CloseReason::PeerError(ProtocolError::MemoryAccess.into()));
            }
            News::QueuePair(IBV_EVENT_QP_REQ_ERR) => {
                self.end(CloseReason::PeerError(ProtocolError::InvalidMessage.into()));
            }
            News::QueuePair(IBV_EVENT_QP_FATAL) => self.stopped_by_device(),
            // That the connection is established, or that the last Receive is used, is known otherwise.
            News::QueuePair(event) => tracing::debug!(event, "an event of the queue pair"),
        }
        false
    }

    /// The connection is closed, by the peer or, on iWARP, by both. What the peer sent before counts.
    fn disconnected(&mut self) {
        if let Phase::Flushing { asks, .. } = &mut self.phase
            && std::mem::take(asks)
        {
            self.fail_queue_pair();
        }
        if self.transport == Transport::InfiniBand
            && self.is_open()
            && let Some(live) = &self.live
            && live.hardware.has_failed()
        {
            self.stopped_by_device();
        }
        while self.take_completions() {}
        if matches!(self.phase, Phase::Flushing { guessed: true, .. })
            && self.transport == Transport::InfiniBand
        {
            return;
        }
        self.end(CloseReason::Peer);
    }

    /// Takes one batch of completions from the device. Says whether there were some.
    pub(crate) fn take_completions(&mut self) -> bool {
        let Some(live) = &mut self.live else {
            return false;
        };
        let mut room = [ibv_wc::default(); BATCH];
        self.io.work.polls += 1;
        match live.hardware.poll(&mut room) {
            Ok([]) => false,
            Ok(found) => {
                let found = found.len();
                for completion in &room[..found] {
                    self.handle_completion(completion);
                }
                true
            }
            Err(error) => {
                self.end(ending::system(error));
                self.tear_down();
                true
            }
        }
    }

    /// Does what the phase asks for. Says whether something changed.
    fn step(&mut self) -> bool {
        match &self.phase {
            Phase::Open | Phase::Closed(_) => false,
            Phase::Draining { until } => {
                let reads_only = self.sends.outstanding().all(|work| work.is_read());
                let done = self.queue.is_empty() && reads_only;
                if done || Instant::now() >= *until {
                    self.end_in_order();
                    return true;
                }
                false
            }
            Phase::Flushing { until, asks, .. } => {
                let empty = self.sends.is_empty() && self.posted_receives == 0 && !asks;
                if empty || Instant::now() >= *until {
                    self.tear_down();
                    return true;
                }
                false
            }
        }
    }

    /// Destroys the queue pair, and then gives all memory back.
    fn tear_down(&mut self) {
        self.ask_device();
        let reason = match &self.phase {
            Phase::Flushing { reason, .. } | Phase::Closed(reason) => reason.clone(),
            Phase::Open | Phase::Draining { .. } => CloseReason::Local,
        };
        while self.live.is_some() && self.take_last_completions() {}
        self.flush_queue();
        // Software RoCE waits for windows that are bound to a queue pair, so that they go first. Nothing moves any
        // more: the queue pair has failed.
        for exposed in self.exposed.values_mut() {
            exposed.window = None;
        }
        self.windows.clear();
        if let Some(live) = &mut self.live {
            live.hardware.id.destroy_qp();
        }
        // From here on the device touches no memory of this connection.
        self.exposed.clear();
        for posted in self.sends.drain() {
            self.finish(&posted.what, Err(WorkError::Flushed));
        }
        for receive in std::mem::take(&mut self.receives) {
            self.fail(receive.wr, WorkError::Flushed);
        }
        self.posted_receives = 0;
        self.live = None;
        self.phase = Phase::Closed(reason);
        self.moved_early = true;
    }

    /// Looks whether the device has said why it stopped the queue pair, if that is not known. Flushed work may be seen
    /// before its event.
    fn ask_device(&mut self) {
        while let Phase::Flushing { guessed: true, .. } = self.phase
            && let Some(live) = &self.live
            && let Some(news) = live.hardware.device_news()
        {
            self.note_device(&news);
        }
    }

    /// Takes completions that came before the end of the queue pair.
    fn take_last_completions(&mut self) -> bool {
        let Some(live) = &mut self.live else {
            return false;
        };
        let mut room = [ibv_wc::default(); BATCH];
        self.io.work.polls += 1;
        let Ok(found) = live.hardware.poll(&mut room) else {
            return false;
        };
        let found = found.len();
        for completion in &room[..found] {
            self.handle_completion(completion);
        }
        found > 0
    }

    /// Waits for news of the connection manager or the device.
    fn poll_news(&mut self, cx: &mut Context<'_>) -> io::Result<Poll<()>> {
        loop {
            let Some(live) = &mut self.live else {
                return Ok(Poll::Ready(()));
            };
            if let Poll::Ready(there) = live.poll_events(cx) {
                there?;
                self.handle_events()?;
                self.moved_early = true;
                return Ok(Poll::Ready(()));
            }
            if let Poll::Ready(there) = live.poll_device(cx) {
                // It is told below, also of what another connection has taken from the device.
                there?;
                live.hardware.take_device_events();
                continue;
            }
            if live.hardware.poll_device_news(cx).is_ready() {
                if live.hardware.is_removed() {
                    self.handle_device(&News::DeviceFailed);
                }
                self.handle_device_news();
                self.moved_early = true;
                return Ok(Poll::Ready(()));
            }
            if !self.armed {
                live.hardware.arm()?;
                self.io.work.arms += 1;
                self.armed = true;
                // What came before that is not notified.
                if self.take_completions() {
                    self.moved_early = true;
                    return Ok(Poll::Ready(()));
                }
                continue;
            }
            match live.poll_notifications(cx) {
                Poll::Pending => return Ok(Poll::Pending),
                Poll::Ready(there) => {
                    there?;
                    if live.hardware.notification()? {
                        self.io.work.notifications += 1;
                        self.armed = false;
                        if self.take_completions() {
                            self.moved_early = true;
                            return Ok(Poll::Ready(()));
                        }
                    }
                }
            }
        }
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (Phase::Draining { until } | Phase::Flushing { until, .. }) = self.phase else {
            return Poll::Pending;
        };
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(sleep_until(until)));
        if timer.deadline() != until {
            timer.as_mut().reset(until);
        }
        timer.as_mut().poll(cx)
    }
}

impl QueuePair for IbvQp {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn post(&mut self, work: WorkRequest) -> Result<(), PostError> {
        let posted = self.accept_work(work);
        self.moved_early |= !self.ready.is_empty();
        posted
    }

    fn register(&mut self, memory: Memory) -> Result<RemoteAddress, RegisterError> {
        self.expose(memory)
    }

    fn copy_in(
        &mut self,
        handle: Handle,
        offset: usize,
        bytes: &[u8],
    ) -> Result<(), NotPersistent> {
        self.copy_to_exposed(handle, offset, bytes)
    }

    fn copy_out(
        &mut self,
        handle: Handle,
        offset: usize,
        bytes: &mut [u8],
    ) -> Result<(), NotPersistent> {
        self.copy_from_exposed(handle, offset, bytes)
    }

    fn poll_cq(&mut self) -> Option<Completion> {
        self.ready.pop_front()
    }

    fn progress(&mut self) -> bool {
        let mut moved = std::mem::take(&mut self.moved_early);
        // A connection at work does not wait, where it would hear of this.
        if self
            .live
            .as_ref()
            .is_some_and(|live| live.hardware.is_removed())
        {
            self.handle_device(&News::DeviceFailed);
        }
        for _ in 0..ROUNDS {
            if !self.take_completions() {
                break;
            }
            moved = true;
        }
        moved |= self.give_work();
        moved |= self.step();
        moved | std::mem::take(&mut self.moved_early)
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.moved_early || self.live.is_none() || self.has_work_to_give() {
            return Poll::Ready(());
        }
        match self.poll_news(cx) {
            Ok(Poll::Ready(())) => return Poll::Ready(()),
            Ok(Poll::Pending) => {}
            Err(error) => {
                self.end(ending::system(error));
                self.tear_down();
                return Poll::Ready(());
            }
        }
        self.poll_timer(cx)
    }

    fn closed(&self) -> Option<&CloseReason> {
        match &self.phase {
            Phase::Closed(reason) => Some(reason),
            Phase::Open | Phase::Draining { .. } | Phase::Flushing { .. } => None,
        }
    }

    fn close(&mut self) {
        if self.is_open() {
            self.closing = true;
            self.phase = Phase::Draining {
                until: Instant::now() + LINGER,
            };
            self.flush_reads();
            self.moved_early = true;
        }
    }

    fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    fn io_counters(&self) -> IoCounters {
        self.io
    }

    fn unacknowledged(&self) -> usize {
        match self.transport {
            // A Send completes when its acknowledgement has arrived.
            Transport::InfiniBand => 0,
            // Of TCP below an iWARP device nothing is known.
            Transport::Iwarp | Transport::Other => usize::MAX,
        }
    }

    fn describe(&self) -> String {
        self.description.clone()
    }

    fn device(&self) -> Option<&str> {
        Some(&self.device)
    }
}

impl Drop for IbvQp {
    /// Tells the peer, and has the device stop before any memory goes.
    fn drop(&mut self) {
        self.end(CloseReason::Local);
        self.tear_down();
    }
}

/// Work of an owner is refused beyond this.
pub(crate) fn is_full(accepted: usize) -> bool {
    accepted >= MAX_SENDS
}
