//! Calls from a server to its clients, on the connections on which they call (RFC 8167, RFC 8881 §2.10.3.1).

use oncrpc::xdr::Payload;
use oncrpc::{Caller, ConnectionId, ReplyBound, Transport, TransportError};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Registry of the connections on which clients can be called, of one server or several, over any transport.
///
/// A service that calls its clients holds a clone of the registry that its servers are given:
///
/// ```
/// use oncrpc::xdr::{Payload, Writer};
/// use oncrpc::{Answer, Caller, Reply, ReplyBound, Service, Transport};
/// use rpc_serving::backchannels::Backchannels;
///
/// struct Callbacks {
///     backchannels: Backchannels,
/// }
///
/// impl Service for Callbacks {
///     fn call(&self, call: Payload, caller: &Caller) -> Answer {
///         // What the client says here is that it takes calls on this connection, as it does
///         // with NFS version 4.1's CREATE_SESSION: not before this may it be called.
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
    open: Arc<Mutex<BTreeMap<ConnectionId, Arc<dyn BackwardConnection>>>>,
}

/// A connection on which the client can be called once it is known to be ready.
///
/// A call to a client that is not ready may end its connection, each time it comes back. So a
/// server must not call before the client has said that it is ready (RFC 8167 §6).
#[derive(Clone, Debug)]
pub struct Backchannel {
    connection: Arc<dyn BackwardConnection>,
}

/// Transport for calls to one client, over one connection.
///
/// Calls fail when the time that the server is configured with is up or the connection ends. To have a call survive that,
/// repeat it with the same XID when the client is back and ready (RFC 8167 §5.4). XIDs have nothing to do with those
/// of the client's calls.
///
/// Over RDMA, calls wait for a credit of the client. In version one, each call and each reply must fit one Send; a
/// larger one fails (RFC 8167 §5.3). In version two the client announces what it accepts (xcharext §3.3).
#[derive(Clone, Debug)]
pub struct BackwardClient {
    connection: Arc<dyn BackwardConnection>,
}

/// Largest messages that are certain to be carried, in bytes of the RPC message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageSizes {
    /// Largest call.
    pub call: usize,
    /// Largest reply.
    pub reply: usize,
}

/// A call to a client in flight.
///
/// It is boxed, so that one registry has the connections of all transports. A server calls a client when a lock or a
/// delegation is recalled, and not for each call of the client.
pub type BackwardCall<'a> =
    Pin<Box<dyn Future<Output = Result<Payload, TransportError>> + Send + 'a>>;

/// The server's end of a connection on which it may call the client. A transport implements it.
pub trait BackwardConnection: Debug + Send + Sync {
    /// The client.
    fn caller(&self) -> &Caller;

    /// Declares that the client is ready for calls.
    fn set_ready(&self);

    /// Returns an XID that no call to the client in flight has.
    fn next_xid(&self) -> u32;

    /// Calls the client, as [`Transport::call`].
    fn call(&self, call: Payload, bound: ReplyBound) -> BackwardCall<'_>;

    /// Returns the number of calls that the client accepts at a time, as [`Transport::depth`].
    fn depth(&self) -> usize;

    /// Returns the largest call to the client, and reply, that are certain to be carried; `None` without a limit.
    fn message_sizes(&self) -> Option<MessageSizes> {
        None
    }
}

/// Entry of a connection in a registry. Dropping it removes it.
#[derive(Debug)]
pub struct OpenBackchannel {
    registry: Backchannels,
    connection: ConnectionId,
}

impl Backchannels {
    /// Returns the connection over which a call came, or `None` if it has ended or clients of its server cannot be
    /// called.
    pub fn get(&self, connection: ConnectionId) -> Option<Backchannel> {
        let connection = Arc::clone(self.lock().get(&connection)?);
        Some(Backchannel { connection })
    }

    /// Number of connections in the registry.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether the registry is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a connection, on behalf of a server.
    pub fn open(&self, connection: Arc<dyn BackwardConnection>) -> OpenBackchannel {
        let id = connection.caller().connection;
        self.lock().insert(id, connection);
        OpenBackchannel {
            registry: self.clone(),
            connection: id,
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ConnectionId, Arc<dyn BackwardConnection>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OpenBackchannel {
    fn drop(&mut self) {
        let connection = self.registry.lock().remove(&self.connection);
        // It may be the last that refers to it.
        drop(connection);
    }
}

impl Backchannel {
    /// Identifier of the connection.
    pub fn connection(&self) -> ConnectionId {
        self.connection.caller().connection
    }

    /// The client's address.
    pub fn addr(&self) -> SocketAddr {
        self.connection.caller().addr
    }

    /// Largest call to the client, and reply, that are certain to be carried: over RDMA those that fit one Send, as all of
    /// version one must (RFC 8167 §5.3). `None` where the transport has no such limit.
    pub fn message_sizes(&self) -> Option<MessageSizes> {
        self.connection.message_sizes()
    }

    /// Declares that the client is ready for calls on this connection, as it has said by means of
    /// the upper layer (RFC 8167 §6). From then on the connection is not closed for being idle.
    pub fn client_is_ready(&self) -> BackwardClient {
        self.connection.set_ready();
        BackwardClient {
            connection: Arc::clone(&self.connection),
        }
    }
}

impl BackwardClient {
    /// Identifier of the connection.
    pub fn connection(&self) -> ConnectionId {
        self.connection.caller().connection
    }

    /// The client's address.
    pub fn addr(&self) -> SocketAddr {
        self.connection.caller().addr
    }

    /// Like [`Backchannel::message_sizes`].
    pub fn message_sizes(&self) -> Option<MessageSizes> {
        self.connection.message_sizes()
    }
}

impl Transport for BackwardClient {
    fn next_xid(&self) -> u32 {
        self.connection.next_xid()
    }

    fn call(
        &self,
        call: Payload,
        bound: ReplyBound,
    ) -> impl Future<Output = Result<Payload, TransportError>> + Send {
        self.connection.call(call, bound)
    }

    /// Returns the number of calls that the client accepts at a time.
    fn depth(&self) -> usize {
        self.connection.depth()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oncrpc::USUAL_DEPTH;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    #[derive(Debug)]
    struct Fake {
        caller: Caller,
        is_ready: AtomicBool,
    }

    impl BackwardConnection for Fake {
        fn caller(&self) -> &Caller {
            &self.caller
        }

        fn set_ready(&self) {
            self.is_ready.store(true, Relaxed);
        }

        fn next_xid(&self) -> u32 {
            7
        }

        fn call(&self, call: Payload, _: ReplyBound) -> BackwardCall<'_> {
            Box::pin(async { Ok(call) })
        }

        fn depth(&self) -> usize {
            USUAL_DEPTH
        }
    }

    #[test]
    fn connection_is_found_until_it_ends_and_is_ready_once_somebody_says_so() {
        let registry = Backchannels::default();
        let connection = Arc::new(Fake {
            caller: Caller::new(([192, 0, 2, 1], 700).into()),
            is_ready: AtomicBool::new(false),
        });
        let id = connection.caller.connection;
        let open = registry.open(Arc::clone(&connection) as _);
        let backchannel = registry.get(id).expect("it is open");
        assert!(!connection.is_ready.load(Relaxed));
        let client = backchannel.client_is_ready();
        assert!(connection.is_ready.load(Relaxed));
        assert_eq!((client.connection(), client.next_xid()), (id, 7));
        drop(open);
        assert!(registry.get(id).is_none() && registry.is_empty());
    }
}
