//! Calls of the upstream to the client of its pair (RFC 8167, RFC 8881 §2.10.3.1).

use crate::core::Side;
use crate::pair::Pair;
use oncrpc::xdr::{Payload, Reader};
use oncrpc::{
    Answer, CallHeader, Caller, ConnectionId, Programs, Reply, ReplyBound, Service, Transport,
    TransportError,
};
use rpcrdma::InlineSizes;
use std::sync::{Arc, Weak};

/// Registry of the connections on which clients can be called.
pub(crate) enum Backchannels {
    Rdma(rpcrdma::Backchannels),
    Tcp(oncrpc_tcp::Backchannels),
}

/// A client that takes calls of the upstream.
#[derive(Clone)]
pub(crate) enum Backward {
    Rdma(rpcrdma::BackwardClient),
    Tcp(oncrpc_tcp::BackwardClient),
}

impl Backchannels {
    pub(crate) fn new(side: Side) -> Self {
        match side {
            Side::Rdma => Self::Rdma(rpcrdma::Backchannels::default()),
            Side::Tcp => Self::Tcp(oncrpc_tcp::Backchannels::default()),
        }
    }

    /// Declares that a client is ready for calls. `None` if its connection has ended.
    pub(crate) fn client_is_ready(&self, connection: ConnectionId) -> Option<Backward> {
        match self {
            Self::Rdma(all) => Some(Backward::Rdma(all.get(connection)?.client_is_ready())),
            Self::Tcp(all) => Some(Backward::Tcp(all.get(connection)?.client_is_ready())),
        }
    }

    /// Largest call to a client, and reply, that its connection carries in either version. `None`
    /// without such a limit.
    pub(crate) fn inline_sizes(&self, connection: ConnectionId) -> Option<InlineSizes> {
        match self {
            Self::Rdma(all) => Some(all.get(connection)?.inline_sizes()),
            Self::Tcp(_) => None,
        }
    }
}

impl Backward {
    async fn call(&self, call: Payload) -> Result<Payload, TransportError> {
        match self {
            // No reply to a callback has eligible results (RFC 8267 §6.5).
            Self::Rdma(client) => {
                let bound = ReplyBound::new(client.inline_sizes().reply);
                client.call(call, bound).await
            }
            Self::Tcp(client) => client.call(call, ReplyBound::default()).await,
        }
    }
}

/// The service for calls of the upstream of one pair.
pub(crate) struct Callbacks {
    pub(crate) pair: Weak<Pair>,
}

impl Service for Callbacks {
    fn call(&self, call: Payload, caller: &Caller) -> Answer {
        match self.pair.upgrade() {
            Some(pair) => pair.call_back(call, caller),
            None => Answer::Now(Reply::Nothing),
        }
    }
}

/// What the gateway must know of a callback to answer it itself.
struct Target {
    xid: u32,
    prog: u32,
    flavor: u32,
}

impl Pair {
    /// Answers a call of the upstream: by the client, if it has said that it takes calls.
    fn call_back(self: Arc<Self>, call: Payload, upstream: &Caller) -> Answer {
        let header = CallHeader::parse(&mut Reader::from(&call));
        let Ok(header) = header else {
            // Without programs, it answers what is wrong with the header (RFC 5531 §9).
            self.core.stats.malformed.bump();
            return Programs::new().call(call, upstream);
        };
        let target = Target {
            xid: header.xid,
            prog: header.prog,
            flavor: header.cred.flavour,
        };
        let Some(client) = self.backward() else {
            self.core.stats.callbacks_refused.bump();
            let prog = target.prog;
            self.warn(&format!(
                "PROG_UNAVAIL: the upstream calls program {prog:#x} of a client that has not said that it takes calls"
            ));
            return Programs::new().call(call, upstream);
        };
        self.core.stats.callbacks.bump();
        self.core.stats.bytes_down.add(call.stream_len() as u64);
        let upstream = *upstream;
        Answer::Later(Box::pin(async move {
            let reply = client.call(call).await;
            self.called_back(reply, &target, &upstream)
        }))
    }

    /// The reply of the client as it goes to the upstream.
    fn called_back(
        &self,
        reply: Result<Payload, TransportError>,
        target: &Target,
        upstream: &Caller,
    ) -> Reply {
        let stats = &self.core.stats;
        let error = match reply {
            Ok(reply)
                if upstream
                    .reply_room
                    .carries(&ReplyBound::new(reply.stream_len())) =>
            {
                stats.callback_replies.bump();
                stats.bytes_up.add(reply.stream_len() as u64);
                return Reply::Message(reply);
            }
            Ok(reply) => TransportError::TooLarge {
                len: reply.stream_len(),
                limit: 0,
            },
            Err(error) => error,
        };
        match error {
            // The upstream repeats a call, or waits in vain: it has limits of its own.
            TransportError::XidInUse(_)
            | TransportError::Disconnected(_)
            | TransportError::Unreachable(_)
            | TransportError::TimedOut(_) => Reply::Nothing,
            other => {
                self.warn(&format!("a callback cannot be carried: {other}"));
                self.system_error(target.xid, target.flavor, self.core.upstream_side)
            }
        }
    }
}
