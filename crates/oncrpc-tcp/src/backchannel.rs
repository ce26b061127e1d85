//! Calls from a server to its clients, on the connections on which they call (RFC 8881 §2.10.3.1).

use crate::shared::Shared;
use oncrpc::xdr::Payload;
use oncrpc::{ConnectionId, ReplyBound, Transport, TransportError};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Registry of the connections on which clients can be called, of one server or several.
///
/// A service that calls its clients holds a clone of the registry that its server is
/// [given](crate::Server::backchannels). It is used like `Backchannels` of the crate `rpcrdma`:
///
/// ```
/// use oncrpc::xdr::{Payload, Writer};
/// use oncrpc::{Answer, Caller, Reply, ReplyBound, Service, Transport};
/// use oncrpc_tcp::Backchannels;
///
/// struct Callbacks {
///     backchannels: Backchannels,
/// }
///
/// impl Service for Callbacks {
///     fn call(&self, call: Payload, caller: &Caller) -> Answer {
///         // What the client says here is that it takes calls on this connection.
///         let Some(backchannel) = self.backchannels.get(caller.connection) else {
///             return Answer::Now(Reply::Nothing);
///         };
///         let client = backchannel.client_is_ready();
///         Answer::Later(Box::pin(async move {
///             let mut w = Writer::default();
///             w.u32(client.next_xid());
///             w.u32(0);
///             // ... the rest of the message
///             match client.call(w.finish(), ReplyBound::new(100)).await {
///                 Ok(_reply) => Reply::Message(call),
///                 Err(_why) => Reply::Nothing,
///             }
///         }))
///     }
/// }
///
/// let backchannels = Backchannels::default();
/// let service = Callbacks { backchannels: backchannels.clone() };
/// # drop((backchannels, service));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Backchannels {
    open: Arc<Mutex<BTreeMap<ConnectionId, Arc<Shared>>>>,
}

/// A connection on which the client can be called once it is known to be ready.
#[derive(Clone, Debug)]
pub struct Backchannel {
    shared: Arc<Shared>,
}

/// Transport for calls to one client, over one connection.
///
/// Calls fail when their [time](crate::Limits::backward) is up or the connection ends. Their XIDs
/// have nothing to do with those of the client's calls.
#[derive(Clone, Debug)]
pub struct BackwardClient {
    shared: Arc<Shared>,
}

impl Backchannels {
    /// Returns the connection over which a call came, or `None` if it has ended.
    pub fn get(&self, connection: ConnectionId) -> Option<Backchannel> {
        let shared = Arc::clone(self.lock().get(&connection)?);
        Some(Backchannel { shared })
    }

    /// Number of connections in the registry.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether the registry is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn add(&self, shared: &Arc<Shared>) {
        let connection = shared.caller.connection;
        self.lock().insert(connection, Arc::clone(shared));
    }

    pub(crate) fn remove(&self, connection: ConnectionId) {
        self.lock().remove(&connection);
    }

    pub(crate) fn drain(&self) {
        self.lock()
            .values()
            .for_each(|shared| shared.output.drain());
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ConnectionId, Arc<Shared>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backchannel {
    /// Identifier of the connection.
    pub fn connection(&self) -> ConnectionId {
        self.shared.caller.connection
    }

    /// The client's address.
    pub fn addr(&self) -> SocketAddr {
        self.shared.caller.addr
    }

    /// Declares that the client is ready for calls on this connection, as it has said by means of
    /// the upper layer. From then on the connection is not closed for being idle.
    pub fn client_is_ready(&self) -> BackwardClient {
        self.shared.set_ready();
        BackwardClient {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl BackwardClient {
    /// Identifier of the connection.
    pub fn connection(&self) -> ConnectionId {
        self.shared.caller.connection
    }

    /// The client's address.
    pub fn addr(&self) -> SocketAddr {
        self.shared.caller.addr
    }
}

impl Transport for BackwardClient {
    fn next_xid(&self) -> u32 {
        self.shared.calls.next_xid()
    }

    async fn call(&self, call: Payload, _: ReplyBound) -> Result<Payload, TransportError> {
        self.shared.call(call, usize::MAX).await
    }
}
