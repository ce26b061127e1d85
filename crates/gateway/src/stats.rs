//! Statistics of a gateway.

use oncrpc::ConnectionId;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// An upstream connection.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UpstreamConnection {
    /// The client connection that it belongs to.
    pub client: ConnectionId,
    /// Name of the RDMA device at this end; `None` over software and over TCP.
    pub device: Option<String>,
    /// Handles of this end that the server invalidated; 0 over TCP.
    pub remote_invalidations: u64,
}

/// The connection of a TCP client that has made a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TcpClient {
    /// The connection.
    pub id: ConnectionId,
    /// Address of the client.
    pub addr: SocketAddr,
    /// Time since its first call.
    pub age: Duration,
    /// Calls passed on so far.
    pub calls: u64,
    /// Calls without a reply yet.
    pub in_flight: usize,
    /// Bytes of its calls.
    pub bytes_in: u64,
    /// Bytes of the replies to them.
    pub bytes_out: u64,
}

/// Declares the counters and their snapshot.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// Totals of a gateway since it was bound.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct GatewayStats {
            $($(#[$doc])* pub $name: u64,)+
        }

        /// Counters shared by all relays of a gateway.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)+
        }

        impl Counters {
            pub(crate) fn snapshot(&self) -> GatewayStats {
                GatewayStats { $($name: self.$name.get(),)+ }
            }
        }
    };
}

counters! {
    /// Client connections with an upstream connection, or one being made, at present.
    relays,
    /// Upstream connections made.
    upstream_connections,
    /// Failed attempts to make one.
    upstream_attempts_failed,
    /// Client connections closed because no upstream connection could be made in time.
    upstream_unreachable,
    /// Relays ended by the loss of the upstream connection.
    upstream_lost,
    /// Calls of clients passed on.
    calls,
    /// Replies to these passed back.
    replies,
    /// Calls of the upstream passed on to clients.
    callbacks,
    /// Replies to these passed back.
    callback_replies,
    /// Calls of the upstream refused, because the client did not say that it takes calls.
    callbacks_refused,
    /// Bytes of calls and callback replies passed to the upstream.
    bytes_up,
    /// Bytes of replies and callbacks passed to clients.
    bytes_down,
    /// Calls dropped because a call with the same XID was in flight on the same connection.
    repetitions,
    /// Calls repeated with a larger Reply chunk.
    larger_retries,
    /// Replies answered with ERR_CHUNK, because they fitted neither inline nor the offered chunks.
    replies_too_large,
    /// Calls answered with SYSTEM_ERR, because the upstream connection could not carry them or their
    /// replies, or because other replies had all the memory for too long.
    system_errors,
    /// Connections of clients closed because they did not take their replies, or had none, while others waited for
    /// the memory of these.
    clients_stalled,
    /// Calls denied, because a local user claimed to be another one.
    denied,
    /// Calls answered here because their headers or Read chunks are malformed.
    malformed,
    /// Calls that the upstream did not answer in time.
    timeouts,
}

/// A number that many threads change.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Relaxed);
    }

    pub(crate) fn bump(&self) {
        self.add(1);
    }

    pub(crate) fn drop_one(&self) {
        self.0.fetch_sub(1, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
