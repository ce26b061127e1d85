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
    /// Whether connections of this machine are left to another provider, over which their users can be told.
    pub(crate) leaves_local: bool,
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
            Ok(Box::new(GuardedListener {
                inner,
                exports: self.exports.clone(),
                leaves_local: self.leaves_local,
            }) as Box<dyn Listener>)
        })
    }
}

struct GuardedListener {
    inner: Box<dyn Listener>,
    exports: Exports,
    leaves_local: bool,
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
                if !self.exports.admits(addr.ip()) {
                    tracing::warn!(%addr, "refused a connection: no export is for this address");
                } else if self.leaves_local && socket_owner::is_local(addr) {
                    tracing::warn!(
                        %addr,
                        "refused a connection of this machine over an RDMA device, as its user cannot be told there: \
                         connect over software iWARP (--provider iwarp), or serve with --trust-local"
                    );
                } else {
                    return Ok(incoming);
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfs_server::{AccessList, ExportOptions, HandleKey, MemFs};
    use std::time::Duration;
    use verbs::QpOptions;
    use verbs_iwarp::{Config, Iwarp};

    /// Whether a connection over loopback is taken in.
    async fn takes_in(allowed: &str, leaves_local: bool) -> bool {
        let allow = AccessList::new([allowed.parse().unwrap()]);
        let options = ExportOptions::default().with_allow(allow);
        let exports = Exports::new(HandleKey::random().unwrap());
        let guarded = Guarded {
            inner: Arc::new(Iwarp::new(Config::default())),
            exports: exports
                .with("/x", Arc::new(MemFs::new(1 << 20)), options)
                .unwrap(),
            leaves_local,
        };
        let here = "127.0.0.1:0".parse().unwrap();
        let mut listener = guarded.listen(here).await.unwrap();
        let client = Iwarp::new(Config::default());
        let (to, options) = (listener.local_addr(), QpOptions::default());
        let connecting = client.connect(to, &options, &[], Vec::new());
        let taking = async {
            let mut incoming = listener.accept().await.unwrap();
            incoming.request(Duration::from_secs(10)).await.unwrap();
        };
        tokio::select! {
            () = taking => true,
            connected = connecting => {
                assert!(connected.is_err());
                false
            }
        }
    }

    #[tokio::test]
    async fn connections_of_this_machine_can_be_left_to_another_provider() {
        assert!(takes_in("127.0.0.0/8", false).await);
        assert!(!takes_in("127.0.0.0/8", true).await);
        assert!(!takes_in("192.0.2.0/24", false).await);
    }
}
