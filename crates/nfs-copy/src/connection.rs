//! Connections to servers, over any transport.

use oncrpc::xdr::Payload;
use oncrpc::{ReplyBound, Transport, TransportError};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

/// A connection to a server, over RDMA, TCP or any other [`Transport`]. Clones are the same connection.
///
/// Servers of one copy may have different transports. Each call costs an allocation for its future, which is little beside
/// its round trip and the data that it moves.
#[derive(Clone)]
pub struct Connection(Arc<dyn Calls>);

impl Connection {
    /// A connection that makes its calls with this transport.
    pub fn new(transport: impl Transport + Send + Sync + 'static) -> Self {
        Self(Arc::new(transport))
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

impl Transport for Connection {
    fn next_xid(&self) -> u32 {
        self.0.next_xid()
    }

    fn call(
        &self,
        call: Payload,
        bound: ReplyBound,
    ) -> impl Future<Output = Result<Payload, TransportError>> + Send {
        self.0.call(call, bound)
    }

    fn depth(&self) -> usize {
        self.0.depth()
    }

    fn connections_ended(&self) -> u64 {
        self.0.connections_ended()
    }
}

/// A call in flight.
type Calling<'a> = Pin<Box<dyn Future<Output = Result<Payload, TransportError>> + Send + 'a>>;

/// A transport whose type is not known.
trait Calls: Send + Sync {
    fn next_xid(&self) -> u32;

    fn call(&self, call: Payload, bound: ReplyBound) -> Calling<'_>;

    fn depth(&self) -> usize;

    fn connections_ended(&self) -> u64;
}

impl<T: Transport + Send + Sync> Calls for T {
    fn next_xid(&self) -> u32 {
        Transport::next_xid(self)
    }

    fn call(&self, call: Payload, bound: ReplyBound) -> Calling<'_> {
        Box::pin(Transport::call(self, call, bound))
    }

    fn depth(&self) -> usize {
        Transport::depth(self)
    }

    fn connections_ended(&self) -> u64 {
        Transport::connections_ended(self)
    }
}
