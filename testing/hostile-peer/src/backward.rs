//! A server that makes backward calls (RFC 8167) to a [`Peer`](crate::Peer).

use crate::target::{PROGRAM, ask, echo, procedure, steady};
use crate::victim::{Calling, echoing};
use bytes::Bytes;
use oncrpc::xdr::Payload;
use oncrpc::{Answer, Caller, ConnectionId, Procedure, Programs, Service};
use rpcrdma::{Backchannels, Server};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Runtime;
use verbs_iwarp::Iwarp;

/// A server on loopback, which calls whoever called it last.
pub struct BackwardTarget {
    server: Server,
    backchannels: Backchannels,
    last: Arc<Noting>,
    runtime: Runtime,
}

/// The service of the server, and who called it last.
struct Noting {
    programs: Programs,
    last: Mutex<Option<ConnectionId>>,
}

impl Service for Noting {
    fn call(&self, call: Payload, caller: &Caller) -> Answer {
        *self.last.lock().expect("nothing panics with it") = Some(caller.connection);
        self.programs.call(call, caller)
    }
}

impl BackwardTarget {
    /// Starts a server of [`PROGRAM`] whose backward calls have this timeout.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn with_timeout(backward_timeout: Duration) -> Self {
        Self::with_memory(backward_timeout, steady().backward_memory)
    }

    /// The same, with this much memory for results of its backward calls.
    ///
    /// # Panics
    ///
    /// If it does not start.
    pub fn with_memory(backward_timeout: Duration, backward_memory: usize) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let last = Arc::new(Noting {
            programs: echo(),
            last: Mutex::new(None),
        });
        let backchannels = Backchannels::default();
        let config = steady()
            .with_backchannels(backchannels.clone())
            .with_backward_credits(4)
            .with_backward_timeout(backward_timeout)
            .with_backward_memory(backward_memory);
        let on = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let provider = Arc::new(Iwarp::default());
        let service = Arc::clone(&last) as Arc<dyn Service>;
        let server = runtime.block_on(Server::bind(provider, on, service, config));
        Self {
            server: server.expect("the server listens"),
            backchannels,
            last,
            runtime,
        }
    }

    /// The address on which the server listens.
    pub fn addr(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// Calls ECHO of whoever called last, with this data; its result may be as long.
    ///
    /// # Panics
    ///
    /// If nobody has, or the connection is over.
    pub fn echo(&self, data: &[u8]) -> Calling {
        let last = self.last.last.lock().expect("nothing panics with it");
        let backchannel = self.backchannels.get(last.expect("somebody has called"));
        let back = backchannel.expect("it is connected").client_is_ready();
        let data = Bytes::copy_from_slice(data);
        let procedure = Procedure {
            prog: PROGRAM,
            vers: 2,
            proc: procedure::ECHO,
        };
        Calling::new(&self.runtime, async move {
            ask(&back, procedure, |w| echoing(w, data)).await
        })
    }

    /// Waits for the outcome of a call.
    ///
    /// # Errors
    ///
    /// Why there is no reply.
    ///
    /// # Panics
    ///
    /// If the server did.
    pub fn outcome(&self, calling: Calling) -> Result<Payload, oncrpc::TransportError> {
        calling.outcome(&self.runtime)
    }
}
