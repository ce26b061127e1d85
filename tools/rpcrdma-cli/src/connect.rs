//! Connecting to a server, with errors that say what to do.

use crate::endpoint::{Endpoint, NO_ADDRESS};
use crate::transport::TransportArgs;
use anyhow::{Context, anyhow};
use clap::Args;
use printing::units;
use rpcrdma::any::ConnectError;
use rpcrdma::{Client, ClientConfig, PersistentArguments};
use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;
use verbs::SetupError;

/// Options of everything that connects to a server.
#[derive(Args, Clone, Debug)]
pub(crate) struct ConnectArgs {
    #[command(flatten)]
    pub(crate) transport: TransportArgs,

    /// Fail a call after this time
    #[arg(long, default_value = "60s", value_name = "DURATION", value_parser = units::parse_duration,
        help_heading = "Connection")]
    pub(crate) timeout: Duration,

    /// Number of connections to the server; calls are spread over them
    #[arg(long, default_value_t = 1, value_name = "N", help_heading = "Connection",
        value_parser = clap::value_parser!(u8).range(1..=MAX_CONNECTIONS))]
    pub(crate) nconnect: u8,

    /// Copy arguments up to this size into memory that stays registered, one buffer for each
    /// credit. The server can read the previous content. Remote invalidation then needs
    /// per_call, per_call_several or per_call_all
    #[arg(long, value_name = "SIZE", help_heading = "Connection",
        value_parser = units::size_within::<u32>(1..=MAX_PERSISTENT))]
    persistent_memory: Option<u32>,

    /// Register all memory of a call under one handle, which one invalidation ends. Only over
    /// software iWARP; it has no effect over RDMA devices
    #[arg(long, help_heading = "Connection")]
    one_region: bool,
}

/// Most bytes of arguments that are copied.
const MAX_PERSISTENT: u64 = 1 << 20;

/// Most connections that can be asked for.
const MAX_CONNECTIONS: i64 = rpcrdma::MAX_CONNECTIONS as i64;

impl ConnectArgs {
    fn config(&self) -> ClientConfig {
        let usual = ClientConfig::default();
        let config = self.transport.settings().client();
        let mut config = config
            .with_connections(self.nconnect.into())
            .with_version_timeout(usual.version_timeout.min(self.timeout))
            .with_one_region(self.one_region)
            .with_call_timeout(self.timeout)
            .with_setup_timeout(usual.setup_timeout.min(self.timeout));
        config.persistent_arguments = self.persistent_memory.map(|bytes| PersistentArguments {
            regions: self.transport.credits as usize,
            bytes: bytes as usize,
        });
        config
    }

    /// Connects to the first address of the server that answers, and says which it is.
    ///
    /// # Errors
    ///
    /// What was wrong with the last of them, and what to do about it.
    pub(crate) async fn connect(&self, server: &Endpoint) -> anyhow::Result<(Client, SocketAddr)> {
        self.connect_for(server, server).await
    }

    /// The same for something on the server, such as a URL, which errors name.
    ///
    /// # Errors
    ///
    /// As those of [`connect`](Self::connect).
    pub(crate) async fn connect_for(
        &self,
        server: &Endpoint,
        what: &(impl Display + ?Sized),
    ) -> anyhow::Result<(Client, SocketAddr)> {
        let connected = self.connect_to(server).await;
        connected.with_context(|| what.to_string())
    }

    async fn connect_to(&self, server: &Endpoint) -> anyhow::Result<(Client, SocketAddr)> {
        let addrs = server.addresses().await?;
        let providers = self.transport.providers()?;
        let mut last = anyhow!(NO_ADDRESS);
        for addr in addrs {
            match providers.connect(addr, self.config()).await {
                Ok(client) => return Ok((client, addr)),
                Err(error) => {
                    let error = explain(error);
                    last = match server.is(addr) {
                        true => error,
                        // A host may have several.
                        false => error.context(addr),
                    };
                }
            }
        }
        Err(last)
    }
}

/// Error of connecting over one provider or several, with advice, without the address.
fn explain(error: ConnectError) -> anyhow::Error {
    let addr = error.to;
    let last = explain_setup(addr, error.source);
    match error.over_devices {
        None => last,
        Some(devices) => {
            let devices = explain_setup(addr, devices);
            anyhow!("{last:#}; over an RDMA device: {devices:#}")
        }
    }
}

/// The same for one provider.
fn explain_setup(addr: SocketAddr, error: SetupError) -> anyhow::Error {
    match error {
        SetupError::Io(error) => explain_io(error),
        SetupError::Rejected(_) => anyhow!(
            "the server refused the connection: this address is not allowed (--allow, or in its \
             file `hosts` of an export or `allow` of a gateway){}, or it has too many connections",
            other_user(addr)
        ),
        SetupError::TimedOut(what, after) => anyhow!(
            "no answer: timed out after {} waiting for {what} (check host and port, that RPC-over-RDMA is \
             served there over the protocol of this end, as --provider and `rpcrdma devices` show it, and that no \
             firewall drops the connection)",
            units::duration(after)
        ),
        error @ SetupError::NotOurProtocol(_) => anyhow!(error),
        other => anyhow!(other).context("cannot connect"),
    }
}

fn explain_io(error: io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::ConnectionRefused => {
            anyhow!("no server there (start one with `rpcrdma serve DIR`, or check host and port)")
        }
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
            anyhow!("this host is unreachable (check the address, and the network)")
        }
        _ => anyhow!(error).context("cannot connect"),
    }
}

/// Why a server of this machine may refuse a connection besides.
fn other_user(addr: SocketAddr) -> &'static str {
    if addr.ip().to_canonical().is_loopback() {
        ", the server runs as another user of this machine"
    } else if socket_owner::is_local(addr) {
        ", the server runs as another user of this machine or takes connections of its own machine over software \
         iWARP only (--provider iwarp)"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma::any::Over;
    use verbs::{ProtocolMismatch, Reason};

    fn refused() -> SetupError {
        io::Error::from(ErrorKind::ConnectionRefused).into()
    }

    #[test]
    fn devices_that_were_tried_before_are_reported_behind_the_last_error() {
        let timed_out = || SetupError::TimedOut("the answer", Duration::from_secs(3));
        for device in [refused, timed_out] {
            let to = "192.0.2.1:20049".parse().unwrap();
            let error = ConnectError::new(to, Over::Software, refused());
            assert_eq!(
                explain(error).to_string(),
                "no server there (start one with `rpcrdma serve DIR`, or check host and port)"
            );
            let error = ConnectError::new(to, Over::Software, refused());
            let error = explain(error.after_devices(device())).to_string();
            assert!(error.starts_with("no server there"), "{error}");
            assert!(error.contains("; over an RDMA device: no "), "{error}");
        }
    }

    #[test]
    fn refusal_is_reported_with_what_can_be_behind_it() {
        let check = |addr: &str, user: bool| {
            let refused = SetupError::Rejected(Vec::new());
            let text = explain_setup(addr.parse().unwrap(), refused).to_string();
            assert!(text.contains("this address is not allowed"), "{text}");
            assert_eq!(
                text.contains("another user of this machine"),
                user,
                "{text}"
            );
        };
        check("192.0.2.1:20049", false);
        check("127.0.0.1:20049", true);
        check("[::1]:20049", true);
    }

    #[test]
    fn causes_are_reported_with_their_details() {
        let addr = "127.0.0.1:20049".parse().unwrap();
        let text = |error: SetupError| format!("{:#}", explain_setup(addr, error));
        let reset = || io::Error::from(ErrorKind::ConnectionReset);
        let reason = Reason::new(ProtocolMismatch::NoMessage).with_detail(reset());
        assert_eq!(
            text(SetupError::NotOurProtocol(reason)),
            "the peer closed the connection without a message: connection reset"
        );
        assert_eq!(text(reset().into()), "cannot connect: connection reset");
        assert_eq!(
            text(SetupError::NoDevice(reset())),
            "cannot connect: no RDMA device reaches this address: connection reset"
        );
    }

    #[test]
    fn absent_server_is_reported_with_how_to_start_one() {
        let addr = "127.0.0.1:20049".parse().unwrap();
        let refused = std::io::Error::from(ErrorKind::ConnectionRefused);
        let text = explain_setup(addr, SetupError::Io(refused)).to_string();
        assert!(text.starts_with("no server there (start one"), "{text}");
    }
}
