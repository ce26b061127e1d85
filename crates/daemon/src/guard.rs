//! Accepts RDMA connections from allowed addresses only.

use crate::peer_warnings::PeerWarnings;
use oncrpc::PeerGroup;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use verbs::{BoxFuture, Incoming, Listener, Provider, SetupError, WrapProvider};

/// A provider whose listeners take in allowed addresses only. Of others nothing is read but the
/// request for a connection, which is refused.
pub(crate) struct Guarded {
    inner: Arc<dyn Provider>,
    check: CheckPeer,
    listener: Arc<OnceLock<String>>,
}

/// Reason for the refusal of a connection of this machine over an RDMA device: software iWARP takes it.
const LOCAL_OVER_DEVICE: &str = "it is of this machine and over an RDMA device, where its user cannot be told: connect \
                                 over software iWARP (--provider iwarp), or listen with --trust-local";

/// Checks that a connection over an RDMA device is not of this machine.
///
/// # Errors
///
/// Why it is refused.
pub(crate) fn check_not_local(addr: SocketAddr) -> Result<(), &'static str> {
    match socket_owner::is_local(addr) {
        true => Err(LOCAL_OVER_DEVICE),
        false => Ok(()),
    }
}

/// Judges the address of a client. The error is the reason of the refusal, for the log.
type CheckPeer = Arc<dyn Fn(SocketAddr) -> Result<(), &'static str> + Send + Sync>;

impl Guarded {
    /// Guards a provider by this check of addresses.
    pub(crate) fn new(
        inner: Arc<dyn Provider>,
        check: impl Fn(SocketAddr) -> Result<(), &'static str> + Send + Sync + 'static,
    ) -> Self {
        Self {
            inner,
            check: Arc::new(check),
            listener: Arc::default(),
        }
    }

    /// Names the listener in the log, once it has a name: for processes that have several.
    pub(crate) fn named(self, listener: Arc<OnceLock<String>>) -> Self {
        Self { listener, ..self }
    }
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
                check: Arc::clone(&self.check),
                listener: Arc::clone(&self.listener),
                warnings: PeerWarnings::default(),
            }) as Box<dyn Listener>)
        })
    }
}

struct GuardedListener {
    inner: Box<dyn Listener>,
    check: CheckPeer,
    listener: Arc<OnceLock<String>>,
    warnings: PeerWarnings,
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
                let Err(why) = (self.check)(addr) else {
                    return Ok(incoming);
                };
                if self.warnings.may_warn(PeerGroup::of(addr.ip())) {
                    let listen = self.listener.get().map(String::as_str);
                    tracing::warn!(listen, peer = %addr, "refused a connection: {why}");
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use verbs::QpOptions;
    use verbs_iwarp::{Config, Iwarp};

    /// Whether a connection over loopback is taken in.
    async fn takes_in(verdict: Result<(), &'static str>) -> bool {
        let guarded = Guarded::new(Arc::new(Iwarp::new(Config::default())), move |addr| {
            assert!(addr.ip().is_loopback());
            verdict
        });
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
    async fn only_admitted_addresses_are_taken_in() {
        assert!(takes_in(Ok(())).await);
        assert!(!takes_in(Err("a reason")).await);
    }
}
