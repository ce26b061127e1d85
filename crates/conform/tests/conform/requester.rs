//! Every case against a Requester passes against our own client.

use crate::only_these;
use conform::requester::{Driver, EXPORT, Requester, Workload};
use conform::{Finding, Known, Report, Told, Verdict};
use rpcrdma::nfs::client::{Export, current_user};
use rpcrdma::nfs::proto::SetAttributes;
use rpcrdma::{Client, ClientConfig, Iwarp, Provider, Versions};
use rpcrdma_proto::v2::Dialect;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// A client of ours on a thread of its own.
pub(crate) struct OurClient {
    provider: Arc<dyn Provider>,
    versions: Versions,
    dialect: Dialect,
    running: Option<Running>,
}

struct Running {
    stop: oneshot::Sender<()>,
    done: Receiver<Result<(), String>>,
    thread: JoinHandle<()>,
}

impl OurClient {
    pub(crate) fn speaking(versions: Versions) -> Self {
        Self::over(Arc::new(Iwarp::default()), versions)
    }

    /// One over this provider.
    pub(crate) fn over(provider: Arc<dyn Provider>, versions: Versions) -> Self {
        Self {
            provider,
            versions,
            dialect: Dialect::default(),
            running: None,
        }
    }

    /// One whose version two is of this draft.
    pub(crate) fn with_dialect(self, dialect: Dialect) -> Self {
        Self { dialect, ..self }
    }
}

impl Driver for OurClient {
    fn start(&mut self, at: SocketAddr) -> io::Result<()> {
        let (stop, stopped) = oneshot::channel();
        let (tell, done) = channel();
        let provider = Arc::clone(&self.provider);
        let versions = (self.versions, self.dialect);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let worked = runtime.block_on(async {
                tokio::select! {
                    worked = work(provider, at, versions) => worked.map_err(|why| why.to_string()),
                    _ = stopped => Err("it was stopped".to_owned()),
                }
            });
            // Nobody may wait for it any more.
            let _ = tell.send(worked);
        });
        self.running = Some(Running { stop, done, thread });
        Ok(())
    }

    fn ended(&mut self) -> Option<Workload> {
        match self.running.as_ref()?.done.try_recv() {
            Ok(Ok(())) => Some(Workload::Done),
            Ok(Err(why)) => Some(Workload::Failed(why)),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Workload::Failed("it panicked".to_owned())),
        }
    }

    fn stop(&mut self) {
        if let Some(Running { stop, thread, .. }) = self.running.take() {
            // It may have ended by itself.
            let _ = stop.send(());
            thread.join().unwrap();
        }
    }
}

/// Writes and reads files, and lists directories.
async fn work(
    provider: Arc<dyn Provider>,
    at: SocketAddr,
    (versions, dialect): (Versions, Dialect),
) -> Result<(), Box<dyn std::error::Error>> {
    let config = ClientConfig::default()
        .with_call_timeout(Duration::from_secs(20))
        .with_versions(versions)
        .with_dialect(dialect);
    let client = Client::connect(provider, at, config).await?;
    let export = Export::mount(client.clone(), current_user(), EXPORT).await?;
    for length in [10, 100_001] {
        let data = vec![7; length];
        export
            .write_all("file", data.clone(), SetAttributes::default())
            .await?;
        assert!(export.read_all("file", 1 << 20).await? == data);
        export.entries("").await?;
    }
    export.remove("file").await?;
    client.close().await;
    Ok(())
}

/// A run of these cases against a client.
pub(crate) fn run(client: OurClient, only: &[&str]) -> Report {
    let requester = Requester::over_software(
        Iwarp::default(),
        (Ipv4Addr::LOCALHOST, 0).into(),
        Duration::from_secs(30),
        Duration::from_secs(30),
        Box::new(client),
    );
    let requester = requester.unwrap().with(only_these(only), Known::default());
    let report = requester.run(|told| {
        if let Told::Ended(finding) = told {
            print!("{}", conform::report::verdict_line(finding, true));
        }
    });
    report.unwrap()
}

#[track_caller]
fn passes(client: OurClient, only: &[&str], skipped: &[&str]) {
    let report = run(client, only);
    let of = |verdict| -> Vec<&Finding> {
        let all = report.findings.iter();
        all.filter(|finding| finding.verdict == verdict).collect()
    };
    assert!(of(Verdict::Fail).is_empty(), "{:?}", report.new_failures);
    assert!(of(Verdict::Error).is_empty(), "{:?}", report.new_failures);
    let found: Vec<&str> = of(Verdict::Skip)
        .iter()
        .map(|finding| finding.code)
        .collect();
    assert_eq!(found, skipped);
}

#[test]
fn our_client_passes_every_case() {
    // No call of this work is too long for a message, and version one alone is spoken.
    let skipped = ["RBASE-04", "RV2-01", "RV2-02", "RV2-03", "RV2-04"];
    passes(OurClient::speaking(Versions::One), &[], &skipped);
}

#[test]
fn our_client_of_version_two_passes_the_cases_about_its_draft() {
    let cases = ["RV2-01", "RV2-02", "RV2-03", "RV2-04"];
    for (dialect, skipped) in [
        (Dialect::Cel01, &cases[2..]),
        (Dialect::Ietf07, &cases[..2]),
    ] {
        let client = OurClient::speaking(Versions::Auto).with_dialect(dialect);
        passes(client, &["RV2-*"], skipped);
    }
}
