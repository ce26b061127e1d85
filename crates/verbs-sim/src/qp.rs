//! The end that its owner holds.

use crate::connection::Connection;
use crate::end::{Outstanding, Traffic};
use crate::fabric::{ConnectionId, Fabric, Side, World};
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::task::{Context, Poll};
use std::time::Duration;
use verbs::{
    CloseReason, Completion, Handle, Limits, Memory, PostError, QueuePair, RegisterError,
    WorkRequest,
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
}

impl SimQp {
    pub(crate) fn new(fabric: Fabric, connection: ConnectionId, side: Side) -> Self {
        let (limits, peer) = fabric.with(|world| {
            let connection = connection_in(world, connection);
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
        }
    }

    /// Which connection, for [`Fabric::cut`] and the like.
    pub fn connection(&self) -> ConnectionId {
        self.connection
    }

    /// What this end holds at the moment.
    pub fn outstanding(&self) -> Outstanding {
        self.at(|connection, side, _| connection.outstanding(side))
    }

    /// What this end has done.
    pub fn traffic(&self) -> Traffic {
        self.at(|connection, side, _| connection.end(side).traffic())
    }

    fn at<R>(&self, act: impl FnOnce(&mut Connection, Side, Duration) -> R) -> R {
        self.fabric.with(|world| {
            let now = world.now;
            act(connection_in(world, self.connection), self.side, now)
        })
    }
}

fn connection_in(world: &mut World, id: ConnectionId) -> &mut Connection {
    world
        .connections
        .get_mut(&id)
        .expect("a connection exists for as long as one of its ends")
}

impl QueuePair for SimQp {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    #[expect(clippy::result_large_err, reason = "the refused work is handed back")]
    fn post(&mut self, work: WorkRequest) -> Result<(), PostError> {
        self.at(|connection, side, _| connection.end_mut(side).post(work))
    }

    fn register(&mut self, memory: Memory) -> Result<Handle, RegisterError> {
        self.at(|connection, side, _| connection.end_mut(side).register(memory))
    }

    fn poll_cq(&mut self) -> Option<Completion> {
        self.at(|connection, side, _| connection.end_mut(side).poll_cq())
    }

    fn progress(&mut self) -> bool {
        self.at(Connection::progress)
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.at(|connection, side, now| {
            if connection.is_ready(side, now) {
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

    fn describe(&self) -> String {
        format!(
            "simulated, ORD {}, IRD {}",
            self.limits.outstanding_reads, self.limits.inbound_reads
        )
    }
}

impl Drop for SimQp {
    fn drop(&mut self) {
        let gone = self.fabric.with(|world| {
            let now = world.now;
            let over = connection_in(world, self.connection).abandon(self.side, now);
            if over {
                world.connections.remove(&self.connection)
            } else {
                None
            }
        });
        drop(gone);
    }
}
