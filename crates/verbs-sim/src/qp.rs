//! The queue pair of a simulated connection.

use crate::connection::Connection;
use crate::end::{End, Outstanding, Traffic};
use crate::fabric::Fabric;
use crate::options::PairOptions;
use crate::side::{ConnectionId, Side};
use crate::trace;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::task::{Context, Poll};
use std::time::Duration;
use verbs::{
    CloseReason, Completion, Handle, IoCounters, Limits, Memory, NotPersistent, PostError,
    QueuePair, RegisterError, RemoteAddress, WorkCounters, WorkRequest,
};

/// One end of a simulated connection.
#[derive(Debug)]
pub struct SimQp {
    fabric: Fabric,
    connection: ConnectionId,
    side: Side,
    limits: Limits,
    peer: SocketAddr,
    /// The reason never changes once it is there, so it is kept here to be lent out.
    closed: OnceLock<CloseReason>,
    work: WorkCounters,
}

impl Fabric {
    /// Both ends of a new connection.
    pub fn pair(&self, options: &PairOptions) -> (SimQp, SimQp) {
        let id = self.with(|world| {
            let addrs = [world.free_addr(), world.free_addr()];
            world.connect(&options.left, &options.right, addrs)
        });
        (
            SimQp::new(self.clone(), id, Side::Left),
            SimQp::new(self.clone(), id, Side::Right),
        )
    }
}

impl SimQp {
    pub(crate) fn new(fabric: Fabric, connection: ConnectionId, side: Side) -> Self {
        let (limits, peer) = fabric.with(|world| {
            let connection = world.connection(connection);
            (
                connection.end(side).limits().clone(),
                connection.addr(side.other()),
            )
        });
        Self {
            fabric,
            connection,
            side,
            limits,
            peer,
            closed: OnceLock::new(),
            work: WorkCounters::default(),
        }
    }

    /// Identifier of the connection, for [`Fabric::cut`] and the like.
    pub fn connection(&self) -> ConnectionId {
        self.connection
    }

    /// Resources that this end holds.
    pub fn outstanding(&self) -> Outstanding {
        self.at(|connection, side, _| connection.outstanding(side))
    }

    /// Traffic statistics of this end.
    pub fn traffic(&self) -> Traffic {
        self.at(|connection, side, _| connection.end(side).traffic())
    }

    /// Until when the host of this end is busy with what it was told to do ([`Costs`](crate::Costs)).
    /// Whoever counts with that lets it rest until then, and its peer and both RNICs go on.
    pub fn busy_until(&self) -> Duration {
        self.at(|connection, side, _| connection.end(side).busy_until())
    }

    /// Does something to this end, and says in the trace what came of it.
    fn traced<R>(
        &self,
        act: impl FnOnce(&mut End, Duration) -> R,
        event: impl FnOnce(&R) -> Option<String>,
    ) -> R {
        self.fabric.with(|world| {
            let now = world.now;
            let end = world.connection(self.connection).end_mut(self.side);
            let result = act(end, now);
            if let Some(event) = event(&result) {
                let line = || format!("{} {event}", self.side.of(self.connection));
                world.trace.event(world.now, line);
            }
            result
        })
    }

    fn at<R>(&self, act: impl FnOnce(&mut Connection, Side, Duration) -> R) -> R {
        self.fabric.with(|world| {
            let now = world.now;
            act(world.connection(self.connection), self.side, now)
        })
    }
}

impl QueuePair for SimQp {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    #[expect(clippy::result_large_err, reason = "the refused work is handed back")]
    fn post(&mut self, work: WorkRequest) -> Result<(), PostError> {
        let (kind, what) = (work.kind(), trace::of_work(&work));
        let posted = self.traced(
            |end, now| end.post(now, work),
            |posted| match posted {
                Ok(()) => Some(format!("posts {what}")),
                Err(PostError::Full(_)) => Some(format!("may not post {what} now")),
                Err(PostError::Invalid(_)) => Some(format!("may not post {what}")),
            },
        );
        if posted.is_ok() {
            self.work.count(kind);
        }
        posted
    }

    fn register(&mut self, memory: Memory) -> Result<RemoteAddress, RegisterError> {
        let len = memory.len();
        let registered = self.traced(
            |end, now| end.register(now, memory),
            |registered| match registered {
                Ok(at) => Some(format!("registers {len} bytes as {:?}", at.handle)),
                Err(error) => Some(format!("may not register {len} bytes: {error}")),
            },
        );
        if registered.is_ok() {
            self.work.registrations += 1;
        }
        registered
    }

    fn copy_in(
        &mut self,
        handle: Handle,
        offset: usize,
        bytes: &[u8],
    ) -> Result<(), NotPersistent> {
        self.at(|connection, side, now| {
            let end = connection.end_mut(side);
            end.persistent(now, handle, offset, bytes.len())?
                .copy_from_slice(bytes);
            Ok(())
        })
    }

    fn copy_out(
        &mut self,
        handle: Handle,
        offset: usize,
        bytes: &mut [u8],
    ) -> Result<(), NotPersistent> {
        self.at(|connection, side, now| {
            let end = connection.end_mut(side);
            bytes.copy_from_slice(end.persistent(now, handle, offset, bytes.len())?);
            Ok(())
        })
    }

    fn poll_cq(&mut self) -> Option<Completion> {
        let completion = self.traced(End::poll_cq, |completion| {
            let completion = completion.as_ref()?;
            Some(format!("sees {}", trace::of_completion(completion)))
        });
        self.work.note(completion.as_ref());
        completion
    }

    fn progress(&mut self) -> bool {
        self.at(Connection::progress)
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.at(|connection, side, now| {
            if connection.is_ready(side, now) || connection.poll_block(side, now, cx).is_ready() {
                return Poll::Ready(());
            }
            connection.wait(side, cx.waker());
            Poll::Pending
        })
    }

    fn closed(&self) -> Option<&CloseReason> {
        if self.closed.get().is_none() {
            let closed = self.at(|connection, side, _| connection.end(side).closed().cloned());
            if let Some(reason) = closed {
                return Some(self.closed.get_or_init(|| reason));
            }
        }
        self.closed.get()
    }

    fn close(&mut self) {
        self.at(|connection, side, now| connection.end_mut(side).close(now));
    }

    fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    fn unacknowledged(&self) -> usize {
        0
    }

    fn io_counters(&self) -> IoCounters {
        IoCounters {
            work: self.work,
            ..self.at(|connection, side, _| connection.end(side).io())
        }
    }

    fn describe(&self) -> String {
        format!(
            "simulated, ORD {}, IRD {}",
            self.limits.outstanding_reads, self.limits.inbound_reads
        )
    }
}

impl Drop for SimQp {
    fn drop(&mut self) {
        self.fabric.abandon(self.connection, self.side);
    }
}
