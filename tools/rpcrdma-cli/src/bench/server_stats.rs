//! Work of the server for the calls of a measurement, as its control socket tells.

use crate::control_args::OneControlArgs;
use anyhow::{Context, Result, bail, ensure};
use printing::work::Work;
use rpcrdma::Client;
use rpcrdma_daemon::control::{ServerStatus, Status};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long a server may take to publish all that it did. Its counters are up to a tenth of a second old, unless the machine
/// is busy.
const PUBLISHED_WITHIN: Duration = Duration::from_secs(2);

/// Pause before a server is asked again that has not published all.
const ASKED_AGAIN: Duration = Duration::from_millis(50);

/// A server that got at least this part of the calls of a client is the one that answered it. With a ramp time, the server
/// is asked a little earlier or later than the client.
const PART_OF_CALLS: u64 = 2;

/// The control socket of the measured server.
pub(super) struct ServerStats {
    control: OneControlArgs,
    /// Totals before the client connected.
    first: Totals,
}

/// Totals of a server at some moment.
pub(super) struct Totals {
    pid: u32,
    /// Calls of all its clients.
    calls: u64,
    work: BTreeMap<String, u64>,
}

impl ServerStats {
    /// Finds the server with this control socket, or the only one on this machine, before the client connects.
    ///
    /// # Errors
    ///
    /// If there is none, or none that counts its work.
    pub(super) async fn find(socket: Option<PathBuf>) -> Result<Self> {
        let control = OneControlArgs::of(socket);
        let first = totals(&control).await?;
        Ok(Self { control, first })
    }

    /// Its totals of about now.
    ///
    /// # Errors
    ///
    /// If it does not answer, or does not count its work.
    pub(super) async fn totals(&self) -> Result<Totals> {
        totals(&self.control).await
    }

    /// Its totals once all calls that the client has sent so far are in them, or none come any more.
    ///
    /// # Errors
    ///
    /// As those of [`totals`](Self::totals).
    pub(super) async fn settled(&self, client: &Client) -> Result<Totals> {
        let calls = self.first.calls + client.counters().calls_sent;
        let until = Instant::now() + PUBLISHED_WITHIN;
        loop {
            let totals = self.totals().await?;
            if totals.calls >= calls || Instant::now() >= until {
                return Ok(totals);
            }
            sleep(ASKED_AGAIN).await;
        }
    }
}

async fn totals(control: &OneControlArgs) -> Result<Totals> {
    match control.stats().await? {
        Status::Server(status) => Totals::of(*status),
        Status::Gateway(_) => bail!("a gateway does not count its work; a server does"),
    }
}

impl Totals {
    fn of(status: ServerStatus) -> Result<Self> {
        let calls = status.rdma.get("calls_received").copied();
        let calls = calls.filter(|_| !status.work.is_empty());
        Ok(Self {
            pid: status.pid,
            calls: calls.context("the server is of a version that does not count its work")?,
            work: status.statistics.work,
        })
    }

    /// Work per call between these and later ones, in which this client made so many calls.
    ///
    /// # Errors
    ///
    /// If they cannot be those of the server that answered the client.
    pub(super) fn until(self, later: Self, of_client: u64) -> Result<Work> {
        ensure!(
            self.pid == later.pid,
            "the server was started again meanwhile"
        );
        let calls = later.calls.saturating_sub(self.calls);
        ensure!(
            calls >= of_client.div_ceil(PART_OF_CALLS),
            "the server of that control socket got {calls} calls, and this client made {of_client}: it is another \
             server"
        );
        let done = later.work.into_iter().map(|(name, count)| {
            let before = self.work.get(&name).copied().unwrap_or(0);
            (name, count.saturating_sub(before))
        });
        Work::new(&done.collect(), calls).context("no call was made")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(pid: u32, calls: u64, sends: u64) -> Totals {
        Totals {
            pid,
            calls,
            work: BTreeMap::from([("sends".to_owned(), sends)]),
        }
    }

    #[test]
    fn work_of_a_server_is_by_the_calls_of_all_its_clients() {
        let work = totals(1, 100, 100).until(totals(1, 120, 140), 10).unwrap();
        assert_eq!(work.calls(), 20);
        let json = serde_json::to_value(work).unwrap();
        assert_eq!(json["sends"], 2.0);
    }

    #[test]
    fn totals_of_another_server_are_refused() {
        let fails = |later: Totals, says: &str| {
            let error = totals(1, 100, 100).until(later, 10).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        };
        fails(totals(2, 120, 140), "started again");
        fails(totals(1, 104, 104), "another server");
    }
}
