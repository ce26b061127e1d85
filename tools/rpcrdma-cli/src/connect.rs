//! Connecting to a server, with errors that say what to do.

use crate::endpoint::{Endpoint, NO_ADDRESS};
use crate::transport::TransportArgs;
use crate::units;
use anyhow::{Context, anyhow};
use clap::Args;
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
    /// credit. The server can read the previous content. Remote invalidation then needs per_call or
    /// per_call_several
    #[arg(long, value_name = "SIZE", help_heading = "Connection",
        value_parser = units::size_within::<u32>(1..=MAX_PERSISTENT))]
    persistent_memory: Option<u32>,
}

/// Most bytes of arguments that are copied.
const MAX_PERSISTENT: u64 = 1 << 20;

/// Most connections that can be asked for.
const MAX_CONNECTIONS: i64 = rpcrdma::MAX_CONNECTIONS as i64;

impl ConnectArgs {
    fn config(&self) -> ClientConfig {
        let usual = ClientConfig::default();
        let mut config = usual
            .clone()
            .with_connections(self.nconnect.into())
            .with_versions(self.transport.versions())
            .with_version_timeout(usual.version_timeout.min(self.timeout))
            .with_credits(self.transport.credits)
            .with_send_size(self.transport.inline_size_or(usual.send_size))
            .with_receive_size(self.transport.inline_size_or(usual.receive_size))
            .with_remote_invalidation(self.transport.remote_invalidation())
            .with_call_timeout(self.timeout)
            .with_setup_timeout(usual.setup_timeout.min(self.timeout))
            .with_spin(self.transport.spin());
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
        let provider = self.transport.provider()?;
        let mut last = anyhow!(NO_ADDRESS);
        for addr in addrs {
            match Client::connect(provider.clone(), addr, self.config()).await {
                Ok(client) => return Ok((client, addr)),
                Err(error) => {
                    let error = explain(addr, error.source);
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

/// What went wrong in setting up a connection, and what to do about it, without the address.
fn explain(addr: SocketAddr, error: SetupError) -> anyhow::Error {
    match error {
        SetupError::Io(error) => explain_io(error),
        SetupError::Rejected(_) => anyhow!(
            "the server refused the connection: this address is not allowed (--allow, or hosts in its \
             file){}, or it has too many connections",
            other_user(addr)
        ),
        SetupError::TimedOut(what, after) => anyhow!(
            "no answer: timed out after {} waiting for {what} (check host and port, that RPC-over-RDMA is \
             served there over what --provider says, and that no firewall drops the connection)",
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
    match addr.ip().to_canonical().is_loopback() {
        true => ", the server runs as another user of this machine",
        false => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbs::{ProtocolMismatch, Reason};

    #[test]
    fn refusal_is_reported_with_what_can_be_behind_it() {
        let check = |addr: &str, user: bool| {
            let refused = SetupError::Rejected(Vec::new());
            let text = explain(addr.parse().unwrap(), refused).to_string();
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
        let text = |error: SetupError| format!("{:#}", explain(addr, error));
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
        let text = explain(addr, SetupError::Io(refused)).to_string();
        assert!(text.starts_with("no server there (start one"), "{text}");
    }
}
