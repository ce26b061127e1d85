//! A wrapper whose queue pairs are watched.

use super::party::Party;
use super::qp::WatchedQp;
use super::rules::Role;
use rpcrdma_proto::PrivateData;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;
use verbs::{
    BoxFuture, Connected, Incoming, Limits, Listener, Provider, QpOptions, QueuePair, SetupError,
    WorkRequest, WrapProvider,
};

impl Party {
    /// The same provider, watched.
    pub fn provider(&self, provider: Arc<dyn Provider>) -> Arc<dyn Provider> {
        Arc::new(WatchedProvider {
            party: self.clone(),
            inner: provider,
        })
    }
}

/// A provider, watched.
struct WatchedProvider {
    party: Party,
    inner: Arc<dyn Provider>,
}

/// Whether both ends agreed to invalidate each other's handles (RFC 8797 §4.1).
fn agreed(ours: &[u8], theirs: &[u8]) -> bool {
    let r = |bytes| PrivateData::find(bytes).is_some_and(|said| said.remote_invalidation);
    r(ours) && r(theirs)
}

impl WrapProvider for WatchedProvider {
    type Inner = dyn Provider;

    fn inner(&self) -> &Self::Inner {
        &*self.inner
    }

    fn wrap_connect<'a>(
        &'a self,
        to: SocketAddr,
        options: &'a QpOptions,
        private_data: &'a [u8],
        receives: Vec<WorkRequest>,
    ) -> BoxFuture<'a, Result<Connected, SetupError>> {
        Box::pin(async move {
            let posted = receives.len();
            let connecting = self.inner.connect(to, options, private_data, receives);
            let made = match connecting.await {
                Ok(made) => made,
                Err(error) => {
                    self.party.note(|| format!("makes no connection: {error}"));
                    return Err(error);
                }
            };
            let agreed = agreed(private_data, &made.private_data);
            Ok(Connected {
                qp: Box::new(
                    WatchedQp::new(&self.party, made.qp, Role::Client, posted, agreed)
                        .with_options(options),
                ),
                private_data: made.private_data,
            })
        })
    }

    fn wrap_listen<'a>(
        &'a self,
        on: SocketAddr,
    ) -> BoxFuture<'a, Result<Box<dyn Listener>, SetupError>> {
        Box::pin(async move {
            Ok(Box::new(WatchedListener {
                party: self.party.clone(),
                inner: self.inner.listen(on).await?,
            }) as Box<dyn Listener>)
        })
    }
}

struct WatchedListener {
    party: Party,
    inner: Box<dyn Listener>,
}

impl Listener for WatchedListener {
    fn local_addr(&self) -> SocketAddr {
        self.inner.local_addr()
    }

    fn accept(&mut self) -> BoxFuture<'_, Result<Box<dyn Incoming>, SetupError>> {
        Box::pin(async move {
            Ok(Box::new(WatchedIncoming {
                party: self.party.clone(),
                inner: self.inner.accept().await?,
                request: Vec::new(),
            }) as Box<dyn Incoming>)
        })
    }
}

struct WatchedIncoming {
    party: Party,
    inner: Box<dyn Incoming>,
    request: Vec<u8>,
}

impl Incoming for WatchedIncoming {
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
        Box::pin(async move {
            self.request = self.inner.request(timeout).await?;
            Ok(self.request.clone())
        })
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
            let posted = receives.len();
            let agreed = agreed(private_data, &self.request);
            let qp = self.inner.accept(options, private_data, receives).await?;
            let qp = WatchedQp::new(&self.party, qp, Role::Server, posted, agreed);
            Ok(Box::new(qp.with_options(options)) as Box<dyn QueuePair>)
        })
    }

    fn reject<'a>(self: Box<Self>, private_data: &'a [u8]) -> BoxFuture<'a, ()>
    where
        Self: 'a,
    {
        self.inner.reject(private_data)
    }
}
