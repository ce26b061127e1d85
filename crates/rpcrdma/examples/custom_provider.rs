//! A provider of one's own: one around another, which counts the work requests of its connections.
//!
//!     cargo run -p rpcrdma --example custom_provider
//!
//! A provider implements the traits [`Provider`], [`Listener`], [`Incoming`] and [`QueuePair`] of
//! [`rpcrdma::verbs`]. A provider that changes little of another one implements [`WrapProvider`] and
//! [`WrapQueuePair`] instead, and writes only the methods that it changes: tracing, fault injection and limits
//! are such providers.
//!
//! The test suite that each provider has to pass runs with `cargo test -p rpcrdma --example custom_provider`.

use rpcrdma::verbs::{
    BoxFuture, Connected, Incoming, Limits, Listener, PostError, QpOptions, QueuePair, SetupError,
    WorkRequest, WrapProvider, WrapQueuePair,
};
use rpcrdma::xdr::Writer;
use rpcrdma::{
    Client, ClientConfig, Credential, Iwarp, Procedure, Programs, Provider, ReplyBound, RpcError,
    Server, ServerConfig, Transport, read_reply, write_call,
};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Work requests that were posted on all connections of a provider.
#[derive(Debug, Default)]
struct Posted {
    receives: AtomicU64,
    sends: AtomicU64,
    writes: AtomicU64,
    reads: AtomicU64,
    invalidations: AtomicU64,
}

impl Posted {
    fn count(&self, work: &WorkRequest) {
        let counter = match work {
            WorkRequest::Receive { .. } => &self.receives,
            WorkRequest::Send { .. } => &self.sends,
            WorkRequest::Write { .. } => &self.writes,
            WorkRequest::Read { .. } => &self.reads,
            WorkRequest::Invalidate { .. } => &self.invalidations,
        };
        counter.fetch_add(1, Relaxed);
    }
}

/// A provider that counts.
struct Counting<P> {
    inner: P,
    posted: Arc<Posted>,
}

impl<P> Counting<P> {
    fn new(inner: P) -> Self {
        Self {
            inner,
            posted: Arc::default(),
        }
    }
}

/// A queue pair that counts what is posted on it.
fn counting(posted: &Arc<Posted>, inner: Box<dyn QueuePair>) -> Box<dyn QueuePair> {
    let posted = Arc::clone(posted);
    Box::new(CountingQp { inner, posted })
}

impl<P: Provider> WrapProvider for Counting<P> {
    type Inner = P;

    fn inner(&self) -> &P {
        &self.inner
    }

    fn wrap_connect<'a>(
        &'a self,
        to: SocketAddr,
        options: &'a QpOptions,
        private_data: &'a [u8],
        receives: Vec<WorkRequest>,
    ) -> BoxFuture<'a, Result<Connected, SetupError>> {
        Box::pin(async move {
            receives.iter().for_each(|work| self.posted.count(work));
            let connecting = self.inner.connect(to, options, private_data, receives);
            let Connected { qp, private_data } = connecting.await?;
            let qp = counting(&self.posted, qp);
            Ok(Connected { qp, private_data })
        })
    }

    fn wrap_listen<'a>(
        &'a self,
        on: SocketAddr,
    ) -> BoxFuture<'a, Result<Box<dyn Listener>, SetupError>> {
        Box::pin(async move {
            let inner = self.inner.listen(on).await?;
            let posted = Arc::clone(&self.posted);
            Ok(Box::new(CountingListener { inner, posted }) as Box<dyn Listener>)
        })
    }
}

struct CountingListener {
    inner: Box<dyn Listener>,
    posted: Arc<Posted>,
}

impl Listener for CountingListener {
    fn local_addr(&self) -> SocketAddr {
        self.inner.local_addr()
    }

    fn accept(&mut self) -> BoxFuture<'_, Result<Box<dyn Incoming>, SetupError>> {
        Box::pin(async move {
            let inner = self.inner.accept().await?;
            let posted = Arc::clone(&self.posted);
            Ok(Box::new(CountingIncoming { inner, posted }) as Box<dyn Incoming>)
        })
    }
}

struct CountingIncoming {
    inner: Box<dyn Incoming>,
    posted: Arc<Posted>,
}

impl Incoming for CountingIncoming {
    fn peer_addr(&self) -> SocketAddr {
        self.inner.peer_addr()
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.inner.socket()
    }

    fn limits(&self) -> Option<Limits> {
        self.inner.limits()
    }

    fn request<'a>(&'a mut self, timeout: Duration) -> BoxFuture<'a, Result<Vec<u8>, SetupError>> {
        self.inner.request(timeout)
    }

    fn accept<'a>(
        self: Box<Self>,
        options: &'a QpOptions,
        private_data: &'a [u8],
        receives: Vec<WorkRequest>,
    ) -> BoxFuture<'a, Result<Box<dyn QueuePair>, SetupError>>
    where
        Self: 'a,
    {
        Box::pin(async move {
            receives.iter().for_each(|work| self.posted.count(work));
            let qp = self.inner.accept(options, private_data, receives).await?;
            Ok(counting(&self.posted, qp))
        })
    }

    fn reject<'a>(self: Box<Self>, private_data: &'a [u8]) -> BoxFuture<'a, ()>
    where
        Self: 'a,
    {
        self.inner.reject(private_data)
    }
}

struct CountingQp {
    inner: Box<dyn QueuePair>,
    posted: Arc<Posted>,
}

impl WrapQueuePair for CountingQp {
    type Inner = dyn QueuePair;

    fn inner(&self) -> &Self::Inner {
        &*self.inner
    }

    fn inner_mut(&mut self) -> &mut Self::Inner {
        &mut *self.inner
    }

    fn wrap_post(&mut self, work: WorkRequest) -> Result<(), PostError> {
        self.posted.count(&work);
        self.inner.post(work)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let provider = Arc::new(Counting::new(Iwarp::default()));
    let posted = Arc::clone(&provider.posted);
    let at = (Ipv4Addr::LOCALHOST, 0).into();
    let service = Arc::new(Programs::new());
    let iwarp = Arc::new(Iwarp::default());
    let server = Server::bind(iwarp, at, service, ServerConfig::default()).await?;
    let client = Client::connect(provider, server.local_addr(), ClientConfig::default()).await?;

    // A server without programs says so to each call: one Send there, one Receive for the reply.
    for _ in 0..10 {
        let null = Procedure {
            prog: 0x2000_0001,
            vers: 1,
            proc: 0,
        };
        let (mut w, xid) = (Writer::default(), client.next_xid());
        write_call(&mut w, xid, null, &Credential::None);
        let reply = client.call(w.finish(), ReplyBound::new(64)).await?;
        assert_eq!(read_reply(&reply, xid).err(), Some(RpcError::ProgUnavail));
    }
    println!("{posted:?}");
    assert_eq!(posted.sends.load(Relaxed), 10);
    assert_eq!(posted.reads.load(Relaxed), 0);

    client.close().await;
    server.shutdown().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbs_conformance::Fixture;

    /// Connections over loopback, counted at both ends.
    struct Loopback;

    impl Fixture for Loopback {
        fn connector(&self) -> Arc<dyn Provider> {
            Arc::new(Counting::new(Iwarp::default()))
        }

        fn acceptor(&self) -> Arc<dyn Provider> {
            self.connector()
        }

        fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
            Box::pin(tokio::time::sleep(time))
        }

        fn block_on<F: Future>(&self, future: F) -> F::Output {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            runtime
                .enable_all()
                .build()
                .expect("a runtime")
                .block_on(future)
        }
    }

    verbs_conformance::suite!(Loopback);
}
