//! Accepts RDMA connections from allowed addresses only.

use super::mount_proxy::Admits;
use std::net::SocketAddr;
use std::sync::Arc;
use verbs::{BoxFuture, Incoming, Listener, Provider, SetupError, WrapProvider};

/// A provider whose listeners take in allowed addresses only. Of others nothing is read but the
/// request for a connection, which is refused.
pub(super) struct Guarded {
    pub(super) inner: Arc<dyn Provider>,
    pub(super) admits: Admits,
}

impl WrapProvider for Guarded {
    type Inner = dyn Provider;

    fn inner(&self) -> &Self::Inner {
        &*self.inner
    }

    fn wrap_listen<'a>(
        &'a self,
        on: SocketAddr,
    ) -> BoxFuture<'a, Result<Box<dyn Listener>, SetupError>> {
        Box::pin(async move {
            let inner = self.inner.listen(on).await?;
            let admits = Arc::clone(&self.admits);
            Ok(Box::new(GuardedListener { inner, admits }) as Box<dyn Listener>)
        })
    }
}

struct GuardedListener {
    inner: Box<dyn Listener>,
    admits: Admits,
}

impl Listener for GuardedListener {
    fn local_addr(&self) -> SocketAddr {
        self.inner.local_addr()
    }

    fn accept(&mut self) -> BoxFuture<'_, Result<Box<dyn Incoming>, SetupError>> {
        Box::pin(async move {
            loop {
                let incoming = self.inner.accept().await?;
                let addr = incoming.peer_addr();
                if (self.admits)(addr.ip()) {
                    return Ok(incoming);
                }
                tracing::warn!(%addr, "refused a connection from an address that is not allowed");
            }
        })
    }
}
