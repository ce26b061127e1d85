//! The addresses of the hosts that a pair names.

use anyhow::{anyhow, bail};
use nfs_client::{Endpoint, LookupError, NO_ADDRESS};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::timeout;

/// How long the name of a host is looked up. It is time for a second name server, where the first one is away.
const LOOKUP: Duration = Duration::from_secs(30);

/// The addresses of a host now.
///
/// # Errors
///
/// If it has none, or the system does not tell in time.
pub(crate) async fn addresses_of(endpoint: &Endpoint) -> anyhow::Result<Vec<SocketAddr>> {
    within(LOOKUP, endpoint.addresses()).await
}

/// The addresses of a host that the system is asked for, if it tells any within a limit.
async fn within(
    limit: Duration,
    asked: impl Future<Output = Result<Vec<SocketAddr>, LookupError>>,
) -> anyhow::Result<Vec<SocketAddr>> {
    let Ok(addrs) = timeout(limit, asked).await else {
        bail!("cannot find this host: no answer within {limit:?} (check the name servers)");
    };
    let mut addrs = addrs?;
    addrs.dedup();
    match addrs.is_empty() {
        true => Err(anyhow!(NO_ADDRESS)),
        false => Ok(addrs),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;

    #[tokio::test]
    async fn resolver_that_never_answers_is_not_waited_for() {
        let found = within(Duration::ZERO, pending()).await;
        let error = found.unwrap_err().to_string();
        assert!(error.contains("no answer within"), "{error}");
    }

    #[tokio::test]
    async fn host_without_an_address_is_an_error_and_one_address_is_tried_once() {
        let found = |addrs: Vec<SocketAddr>| within(LOOKUP, async { Ok(addrs) });
        let one: SocketAddr = "192.0.2.1:2049".parse().unwrap();
        assert_eq!(found(vec![one, one]).await.unwrap(), [one]);
        let error = found(Vec::new()).await.unwrap_err();
        assert_eq!(error.to_string(), NO_ADDRESS);
    }
}
