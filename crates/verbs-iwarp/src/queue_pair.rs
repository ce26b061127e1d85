//! Queue pair: the protocol state of one end of a connection, with its socket.

use crate::config::{Config, CrcMode};
use crate::shared::Shared;
use crate::socket;
use crate::timers::Timers;
use iwarp_proto::mpa::{Agreed, Frame, MAX_DEPTH, Revision};
use iwarp_proto::terminate::Cause;
use iwarp_proto::{
    Endpoint, EndpointConfig, MAX_INVALIDATIONS, MAX_MESSAGE, MAX_PARTS, MAX_REGION, MAX_REGIONS,
    MAX_SENDS, Role,
};
use rustix::net::Shutdown;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::task::{Context, Poll};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::timeout;
use verbs::{
    CloseReason, Completion, Handle, Invalidation, IoCounters, Limits, Loss, Memory, NotPersistent,
    PostError, PrivateDataCapacity, QpOptions, QueuePair, Reason, RegisterError, RemoteAddress,
    SetupError, WorkCounters, WorkRequest,
};

/// Receives that can be posted at a time on one connection, whatever its options ask for.
pub(crate) const MAX_RECEIVES: usize = 1 << 16;

/// Rounds of sending and receiving in one call of `progress`, each of at most
/// [`FPDUS_PER_TURN`](iwarp_proto::FPDUS_PER_TURN) FPDUs taken in.
const ROUNDS: usize = 4;

/// Bytes to move in one call of `progress`, after which others get their turn.
const BUDGET: usize = 1 << 20;

/// A queue pair over TCP.
pub(crate) struct IwarpQp {
    stream: TcpStream,
    endpoint: Endpoint,
    limits: Limits,
    peer: SocketAddr,
    /// Revision of MPA, in words.
    revision: &'static str,
    timers: Timers,
    /// The socket took less than there was: there is no use in trying again before it says so.
    blocked: bool,
    /// Whether data moved since the last `progress`, as the next one is to report.
    moved_early: bool,
    /// Times that `progress` does not read the socket, because it was empty when the owner went to sleep or
    /// was woken: the owner handles what came or what it is to send, and sends its answer, before it looks for
    /// more. It saves two system calls for each wake-up. An owner that spins is never woken, and reads all the
    /// time.
    skip_reads: u8,
    shut_down: bool,
    /// Bytes in the send queue when the socket was shut down.
    unacknowledged_at_end: usize,
    work: WorkCounters,
}

/// Limits of a connection before anything is negotiated.
pub(crate) fn limits(config: &Config, options: &QpOptions) -> Limits {
    let capacity = Frame::capacity(true);
    Limits {
        private_data: PrivateDataCapacity {
            request: capacity,
            accept: capacity,
            reject: capacity,
        },
        private_data_exact: true,
        receives: options.receives.min(MAX_RECEIVES),
        shared_receives: true,
        holds_peer_back: true,
        sends: MAX_SENDS,
        outstanding_reads: MAX_DEPTH.into(),
        inbound_reads: MAX_DEPTH.into(),
        max_message: MAX_MESSAGE,
        regions: MAX_REGIONS,
        max_region: MAX_REGION,
        parts: MAX_PARTS,
        remote_invalidation: Invalidation::Region,
        invalidations: match config.several_invalidations {
            true => MAX_INVALIDATIONS,
            false => 1,
        },
        keepalive: true,
    }
}

pub(crate) fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// Outcome of one read from the socket.
enum Read {
    /// Bytes were read, and there may be more.
    More(usize),
    /// All available bytes were read.
    All,
    Blocked,
    /// The connection has ended, or the peer has closed its direction.
    End,
}

impl IwarpQp {
    /// On the runtime of the caller.
    pub(crate) fn new(
        provider: &Shared,
        stream: TcpStream,
        role: Role,
        agreed: &Agreed,
        options: &QpOptions,
    ) -> Result<Self, SetupError> {
        let peer = stream.peer_addr()?;
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|error| io::Error::other(error.to_string()))?;
        let config = &provider.config;
        let base = limits(config, options);
        let endpoint = Endpoint::new(EndpointConfig {
            role,
            crc: agreed.crc,
            strict: config.crc == CrcMode::Strict,
            markers: agreed.markers,
            ird: agreed.ird,
            ord: agreed.ord,
            receives: base.receives,
            shared_receives: options.shared_receives.clone(),
            pool: provider.pool.clone(),
            max_ulpdu: socket::max_ulpdu(&stream, config.fpdu, agreed.markers),
            rtr: agreed.rtr,
            invalidations: base.invalidations,
            seed,
        });
        Ok(Self {
            limits: Limits {
                outstanding_reads: agreed.ord.into(),
                inbound_reads: agreed.ird.into(),
                ..base
            },
            peer,
            revision: revision(agreed),
            timers: Timers::new(config),
            blocked: false,
            moved_early: false,
            skip_reads: 0,
            shut_down: false,
            unacknowledged_at_end: 0,
            work: WorkCounters::default(),
            stream,
            endpoint,
        })
    }

    /// Posts the Receives that must be there before the peer can send.
    pub(crate) fn post_receives(&mut self, receives: Vec<WorkRequest>) -> Result<(), SetupError> {
        for receive in receives {
            self.post(receive)
                .map_err(|error| invalid(&format!("a receive could not be posted: {error}")))?;
        }
        Ok(())
    }

    /// Sends a Terminate and gives the peer a moment to read it.
    pub(crate) async fn refuse(&mut self, cause: Cause) {
        self.endpoint.refuse(cause);
        let end = std::future::poll_fn(|cx| {
            let moved = self.progress();
            if self.closed().is_some() {
                return Poll::Ready(());
            }
            // A peer that goes on talking has its turn, and others theirs.
            if moved || self.poll_ready(cx).is_ready() {
                cx.waker().wake_by_ref();
            }
            Poll::Pending
        });
        let _ = timeout(crate::handshake::LAST_WORD, end).await;
    }

    /// Sends until the socket takes no more, nothing is left, or the budget is spent.
    fn flush(&mut self, budget: &mut usize) -> bool {
        let mut moved = false;
        while *budget > 0 && self.endpoint.has_output() {
            let stream = &self.stream;
            match self
                .endpoint
                .send_with(|slices| socket::write(stream, slices))
            {
                Ok(written) => {
                    *budget = budget.saturating_sub(written);
                    self.blocked = false;
                    moved = true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.blocked = true;
                    break;
                }
                Err(error) => {
                    self.write_failed(error);
                    return true;
                }
            }
        }
        moved
    }

    /// Reads once, directly from the descriptor.
    fn read(&mut self) -> Read {
        let Self {
            endpoint, stream, ..
        } = self;
        let result = read(endpoint, stream);
        self.note(result)
    }

    /// Reads once, and lets the runtime know when nothing is left: only so does it wake us when
    /// more arrives.
    fn read_for_runtime(&mut self) -> Read {
        let Self {
            endpoint, stream, ..
        } = self;
        let mut result = Err(io::ErrorKind::WouldBlock.into());
        let _ = stream.try_io(Interest::READABLE, || {
            result = read(endpoint, stream);
            match result {
                // A short read has emptied the socket, as a failed one would tell.
                Ok((read, offered)) if read < offered => Err(io::ErrorKind::WouldBlock.into()),
                Err(ref error) if error.kind() == io::ErrorKind::WouldBlock => {
                    Err(io::ErrorKind::WouldBlock.into())
                }
                Ok(_) | Err(_) => Ok(()),
            }
        });
        self.note(result)
    }

    fn note(&mut self, result: io::Result<(usize, usize)>) -> Read {
        match result {
            Ok((0, _)) => Read::End,
            Ok((read, offered)) if read < offered => Read::All,
            Ok((read, _)) => Read::More(read),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Read::Blocked,
            Err(error) => {
                self.endpoint.lost(lost(error));
                Read::End
            }
        }
    }

    /// A write that fails may mean that the peer said why and left: its last words count more.
    fn write_failed(&mut self, error: io::Error) {
        while self.endpoint.closed().is_none() {
            if self.endpoint.resume() {
                continue;
            }
            match self.read() {
                Read::More(_) | Read::All => {}
                Read::Blocked => return self.endpoint.lost(lost(error)),
                Read::End => return,
            }
        }
    }

    /// Closes our half of the stream when all is said, and all of it when the connection is over.
    fn shut_down(&mut self) {
        let over = self.endpoint.closed().is_some();
        if self.shut_down || !(over || self.endpoint.wants_shutdown()) {
            return;
        }
        self.shut_down = true;
        // From now on the FIN of this end would count.
        self.unacknowledged_at_end = self.in_send_queue();
        let how = if over {
            Shutdown::Both
        } else {
            Shutdown::Write
        };
        // It fails if the peer was faster.
        let _ = rustix::net::shutdown(&self.stream, how);
    }

    /// Bytes that TCP has taken, and the peer has not acknowledged. All that is unknown counts.
    fn in_send_queue(&self) -> usize {
        syscalls::unacknowledged(self.stream.as_fd()).unwrap_or(usize::MAX)
    }

    /// Work that was done without the socket is worth a turn of the owner's loop as well, once.
    fn note_completions(&mut self) {
        self.moved_early |= self.endpoint.has_completions();
    }

    /// Whether the socket has something for us, moving it if so.
    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            match self.stream.poll_read_ready(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => {
                    self.endpoint.lost(lost(error));
                    return Poll::Ready(());
                }
                Poll::Ready(Ok(())) => {}
            }
            match self.read_for_runtime() {
                // It was ready before we last read: now the runtime knows.
                Read::Blocked => continue,
                Read::All => self.skip_reads = 2,
                Read::More(_) | Read::End => {}
            }
            self.moved_early = true;
            return Poll::Ready(());
        }
    }

    /// Whether the socket takes more, handing it some if so.
    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            match self.stream.poll_write_ready(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => {
                    self.endpoint.lost(lost(error));
                    return Poll::Ready(());
                }
                Poll::Ready(Ok(())) => {}
            }
            let Self {
                endpoint, stream, ..
            } = self;
            let stream = &*stream;
            let written = stream.try_io(Interest::WRITABLE, || {
                endpoint.send_with(|slices| socket::write(stream, slices))
            });
            match written {
                Ok(_) => {
                    self.blocked = false;
                    self.moved_early = true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => self.write_failed(error),
            }
            return Poll::Ready(());
        }
    }
}

impl QueuePair for IwarpQp {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn post(&mut self, work: WorkRequest) -> Result<(), PostError> {
        let kind = work.kind();
        let posted = self.endpoint.post(work);
        if posted.is_ok() {
            self.work.count(kind);
        }
        self.note_completions();
        posted
    }

    fn register(&mut self, memory: Memory) -> Result<RemoteAddress, RegisterError> {
        let handle = self.endpoint.register(memory)?;
        self.work.registrations += 1;
        Ok(RemoteAddress { handle, offset: 0 })
    }

    fn copy_in(
        &mut self,
        handle: Handle,
        offset: usize,
        bytes: &[u8],
    ) -> Result<(), NotPersistent> {
        let memory = self.endpoint.persistent(handle, offset, bytes.len())?;
        memory.copy_from_slice(bytes);
        Ok(())
    }

    fn copy_out(
        &mut self,
        handle: Handle,
        offset: usize,
        bytes: &mut [u8],
    ) -> Result<(), NotPersistent> {
        bytes.copy_from_slice(self.endpoint.persistent(handle, offset, bytes.len())?);
        Ok(())
    }

    fn poll_cq(&mut self) -> Option<Completion> {
        self.work.note(self.endpoint.peek_cq());
        self.endpoint.poll_cq()
    }

    fn progress(&mut self) -> bool {
        let mut moved = std::mem::take(&mut self.moved_early);
        moved |= self.timers.handle(&mut self.endpoint);
        let mut budget = BUDGET;
        for _ in 0..ROUNDS {
            if self.endpoint.closed().is_some() {
                break;
            }
            moved |= self.flush(&mut budget);
            self.shut_down();
            if !self.endpoint.wants_input() {
                // First what is staged already, as far as there is memory for it.
                let resumed = self.endpoint.resume();
                moved |= resumed;
                if !resumed || self.endpoint.has_completions() {
                    break;
                }
                continue;
            }
            if self.skip_reads > 0 {
                self.skip_reads -= 1;
                break;
            }
            match self.read() {
                Read::More(read) => {
                    moved = true;
                    budget = budget.saturating_sub(read);
                }
                Read::All | Read::End => {
                    moved = true;
                    break;
                }
                Read::Blocked => break,
            }
            // What is done is handled before more is taken in.
            if budget == 0 || self.endpoint.has_completions() {
                break;
            }
        }
        self.shut_down();
        moved
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let over = self.endpoint.closed().is_some();
        if over || self.moved_early || self.endpoint.has_staged() {
            return Poll::Ready(());
        }
        if self.endpoint.has_output() && !self.blocked {
            return Poll::Ready(());
        }
        if self.timers.handle(&mut self.endpoint) {
            self.moved_early = true;
            return Poll::Ready(());
        }
        // A peer whose message has to wait is held back: its socket is not read.
        let readable = match self.endpoint.awaited_share() {
            Some(share) => share.poll_ready(cx),
            None => self.poll_readable(cx),
        };
        if readable.is_ready() {
            return Poll::Ready(());
        }
        if self.endpoint.has_output() && self.poll_writable(cx).is_ready() {
            return Poll::Ready(());
        }
        self.endpoint.release();
        let due = self.timers.poll(&mut self.endpoint, cx);
        if due.is_pending() {
            // The socket is empty, and has told so: whoever is woken by something else need not look.
            self.skip_reads = 2;
        }
        due
    }

    fn closed(&self) -> Option<&CloseReason> {
        self.endpoint.closed()
    }

    fn close(&mut self) {
        self.endpoint.close();
        self.timers.handle(&mut self.endpoint);
        self.note_completions();
    }

    fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    fn io_counters(&self) -> IoCounters {
        let counters = self.endpoint.counters();
        IoCounters {
            reads: counters.reads,
            writes: counters.writes,
            bytes_in: counters.bytes_in,
            bytes_out: counters.bytes_out,
            bytes_copied: counters.copied_in + counters.copied_out,
            held_back: counters.held_back,
            work: self.work,
        }
    }

    fn unacknowledged(&self) -> usize {
        match self.shut_down {
            true => self.unacknowledged_at_end,
            false => self.in_send_queue(),
        }
    }

    fn describe(&self) -> String {
        let config = self.endpoint.config();
        let crc = match (config.crc, config.strict) {
            (false, _) => "no CRC",
            (true, false) => "CRC32C",
            (true, true) => "CRC32C strict",
        };
        let markers = if config.markers { ", markers" } else { "" };
        format!(
            "iWARP over TCP, MPA revision {}, {crc}{markers}, IRD {}, ORD {}, ULPDU up to {}",
            self.revision, config.ird, config.ord, config.max_ulpdu
        )
    }
}

/// Reads once: how much, and how much could have been.
fn read(endpoint: &mut Endpoint, stream: &TcpStream) -> io::Result<(usize, usize)> {
    let mut offered = 0;
    let read = endpoint.recv_with(|places| {
        offered = places.iter().map(|place| place.len()).sum();
        socket::read(stream, places)
    })?;
    Ok((read, offered))
}

/// Reason of a connection lost by an error of its socket.
fn lost(error: io::Error) -> CloseReason {
    let loss = match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Loss::Reset,
        io::ErrorKind::TimedOut => Loss::Unresponsive,
        _ => Loss::System,
    };
    CloseReason::Lost(Reason::new(loss).with_detail(error))
}

/// The revision of MPA in words.
fn revision(agreed: &Agreed) -> &'static str {
    match (agreed.revision, agreed.enhanced) {
        (Revision::One, _) => "1",
        (Revision::Two, false) => "2",
        (Revision::Two, true) => "2 enhanced",
    }
}
