//! Connections of a pair to its RDMA server.

use crate::providers::explain;
use gateway::ConnectRdma;
use oncrpc::Cause;
use rpcrdma::any::{self, ConnectError, Connector, Options, Selection};
use rpcrdma::{Client, ClientConfig};
use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use verbs::{BoxFuture, SetupError};

/// Makes connections over the providers that the kernel has devices for at that time. Logs why devices cannot be used, if that
/// was not so before.
pub(super) struct UpstreamConnector {
    connector: Connector,
    selection: Selection,
}

/// No connection to an address of the server.
#[derive(Debug)]
enum Unreached {
    Connect(Box<ConnectError>),
    NoProvider(String),
}

impl fmt::Display for Unreached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) => write!(f, "{error}{}", why_refused(error)),
            Self::NoProvider(why) => f.write_str(why),
        }
    }
}

impl Error for Unreached {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Connect(error) => error.source(),
            Self::NoProvider(_) => None,
        }
    }
}

/// Why a server may refuse a connection, if that is what it does.
fn why_refused(error: &ConnectError) -> &'static str {
    match error.source {
        SetupError::Rejected(_) => {
            " (does its allow have the address of this gateway? Or it has too many connections)"
        }
        _ => "",
    }
}

impl UpstreamConnector {
    /// A connector over the providers of these options.
    pub(super) fn new(options: Options) -> Self {
        let selection = options.selection.clone();
        let connector = Connector::new(options).with_notice(|why| {
            tracing::info!(
                target: "gateway",
                "connecting over software iWARP alone: RDMA devices cannot be used: {why}"
            );
        });
        Self {
            connector,
            selection,
        }
    }

    fn unreached(&self, error: any::Error) -> Unreached {
        match error {
            any::Error::Connect(error) => Unreached::Connect(Box::new(error)),
            any::Error::Open(error) => {
                Unreached::NoProvider(explain(error, &self.selection).to_string())
            }
        }
    }
}

impl ConnectRdma for UpstreamConnector {
    fn connect(
        &self,
        to: SocketAddr,
        config: ClientConfig,
    ) -> BoxFuture<'_, Result<Client, Cause>> {
        Box::pin(async move {
            let connected = self.connector.connect(to, config).await;
            Ok(connected.map_err(|error| self.unreached(error))?)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oncrpc::Chain;
    use rpcrdma::any::Over;
    use std::io::ErrorKind;

    #[test]
    fn error_names_each_provider_and_what_can_be_behind_a_refusal() {
        let check = |error: ConnectError, expected: &str| {
            let error = Unreached::Connect(Box::new(error));
            assert_eq!(Chain(&error).to_string(), expected);
        };
        let to = "192.0.2.1:20049".parse().unwrap();
        let refused = || SetupError::from(std::io::Error::from(ErrorKind::ConnectionRefused));
        let one = |source| ConnectError::new(to, Over::Software, source);
        check(
            one(refused()),
            "cannot connect to 192.0.2.1:20049: connection refused",
        );
        check(
            one(refused()).after_devices(refused()),
            "cannot connect to 192.0.2.1:20049 over an RDMA device: connection refused; over software iWARP: connection \
             refused",
        );
        let rejected = SetupError::Rejected(Vec::new());
        check(
            one(rejected),
            "cannot connect to 192.0.2.1:20049 (does its allow have the address of this gateway? Or it has too many \
             connections): the peer refused the connection",
        );
    }
}
