//! Accepts connections from allowed addresses only.

use nfs_server::Exports;
use std::net::SocketAddr;
use std::sync::Arc;
use verbs::{BoxFuture, Incoming, Listener, Provider, SetupError, WrapProvider};

/// A provider whose listeners take in allowed addresses only. Of others nothing is read but the
/// request for a connection, which is refused.
pub(crate) struct Guarded {
    pub(crate) inner: Arc<dyn Provider>,
    /// Those for whom an export is are allowed.
    pub(crate) exports: Exports,
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
            let exports = self.exports.clone();
            Ok(Box::new(GuardedListener { inner, exports }) as Box<dyn Listener>)
        })
    }
}

struct GuardedListener {
    inner: Box<dyn Listener>,
    exports: Exports,
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
                if self.exports.admits(addr.ip()) {
                    return Ok(incoming);
                }
                tracing::warn!(%addr, "refused a connection: no export is for this address");
            }
        })
    }
}
