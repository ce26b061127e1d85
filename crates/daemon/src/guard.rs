//! Accepts RDMA connections from allowed addresses only.

use oncrpc::PeerGroup;
use rpc_serving::warning_log::WarningLog;
use std::net::SocketAddr;
use std::sync::Arc;
use verbs::{BoxFuture, Incoming, Listener, Provider, SetupError, WrapProvider};

/// A provider whose listeners take in allowed addresses only. Of others nothing is read but the
/// request for a connection, which is refused.
pub(crate) struct Guarded {
    inner: Arc<dyn Provider>,
    check: CheckPeer,
    log: Arc<WarningLog>,
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
            log: Arc::default(),
        }
    }

    /// Uses a log that others use too, or that names the listener.
    pub(crate) fn with_log(self, log: Arc<WarningLog>) -> Self {
        Self { log, ..self }
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
                log: Arc::clone(&self.log),
            }) as Box<dyn Listener>)
        })
    }
}

struct GuardedListener {
    inner: Box<dyn Listener>,
    check: CheckPeer,
    log: Arc<WarningLog>,
}

impl Listener for GuardedListener {
    fn local_addr(&self) -> SocketAddr {
        self.inner.local_addr()
    }

    fn accept(&mut self) -> BoxFuture<'_, Result<Box<dyn Incoming>, SetupError>> {
        Box::pin(async move {
            loop {
                let incoming = tokio::select! {
                    incoming = self.inner.accept() => incoming?,
                    never = self.log.summarise_when_due() => match never {},
                };
                let addr = incoming.peer_addr();
                let Err(why) = (self.check)(addr) else {
                    return Ok(incoming);
                };
                self.log.warn_of(PeerGroup::of(addr.ip()), |listen| {
                    tracing::warn!(listen, peer = %addr, "refused a connection: {why}");
                });
            }
        })
    }
}

impl Drop for GuardedListener {
    fn drop(&mut self) {
        self.log.summarise_all();
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
