//! Every case against a Responder passes against our own server.

use crate::only_these;
use conform::{Finding, Fixture, Known, Report, Responder, Told, Verdict};
use rpcrdma::nfs::client::{Export, current_user};
use rpcrdma::nfs::server::{ExportOptions, Exports, HandleKey, MemFs, Mount3, Nfs3};
use rpcrdma::{Client, ClientConfig, Iwarp, Pool, Programs, Provider, Server, ServerConfig};
use rpcrdma_proto::v2::Dialect;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

/// A server with a file system in memory, and files for the cases.
pub(crate) struct Served {
    runtime: Runtime,
    server: Server,
    files: Fixture,
    patience: Duration,
}

impl Served {
    pub(crate) fn start() -> Self {
        Self::over(Arc::new(Iwarp::default()))
    }

    /// A server over this provider.
    pub(crate) fn over(provider: Arc<dyn Provider>) -> Self {
        Self::speaking(Dialect::default(), provider)
    }

    /// One whose version two is of this draft.
    pub(crate) fn speaking(dialect: Dialect, provider: Arc<dyn Provider>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (server, files) = runtime.block_on(async {
            let exports = Exports::new(HandleKey::random().unwrap());
            let files = Arc::new(MemFs::new(16 << 20));
            let exports = exports
                .with("/files", files, ExportOptions::default())
                .unwrap();
            let nfs = Nfs3::new(exports.clone(), Pool::new(1 << 20));
            let programs = Programs::new().with(nfs).with(Mount3::new(exports));
            let programs = Arc::new(programs);
            let at = (Ipv4Addr::LOCALHOST, 0).into();
            let bind = |provider: Arc<dyn Provider>| {
                let config = ServerConfig::default().with_dialect(dialect);
                Server::bind(provider, at, programs.clone(), config)
            };
            // The files are made over a provider without faults.
            let honest = bind(Arc::new(Iwarp::default())).await.unwrap();
            let files = files_at(honest.local_addr()).await;
            honest.shutdown().await;
            (bind(provider).await.unwrap(), files)
        });
        Self {
            runtime,
            server,
            files,
            patience: Duration::from_secs(30),
        }
    }

    /// The same whose answers are waited for no longer than this.
    pub(crate) fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.local_addr()
    }

    pub(crate) fn run(self, only: &[&str]) -> Report {
        let address = self.address();
        self.run_at(address, only)
    }

    /// The same by another address.
    pub(crate) fn run_at(self, address: SocketAddr, only: &[&str]) -> Report {
        let responder = Responder {
            provider: Arc::new(Iwarp::default()),
            address,
            over_tcp: true,
            patience: self.patience,
            files: Some(self.files.clone()),
            selection: only_these(only),
            known: Known::default(),
        };
        let report = responder.run(|told| {
            if let Told::Ended(finding) = told {
                print!("{}", conform::report::verdict_line(finding, true));
            }
        });
        let report = report.unwrap();
        self.runtime.block_on(self.server.shutdown());
        report
    }
}

async fn files_at(server: SocketAddr) -> Fixture {
    let client = Client::connect(Arc::new(Iwarp::default()), server, ClientConfig::default());
    let client = client.await.unwrap();
    let export = Export::mount(client.clone(), current_user(), "/files")
        .await
        .unwrap();
    let files = Fixture::create(&export, b"").await.unwrap();
    client.close().await;
    files
}

/// Cases that do not apply to our server: it has set R, and asks for CRCs.
const SKIPPED: [&str; 2] = ["INV-03", "MPA-16"];

/// Our server with this draft of version two passes every case, but for these, which it skips.
#[track_caller]
fn passes(dialect: Dialect, is_skipped: impl Fn(&str) -> bool) {
    let served = Served::speaking(dialect, Arc::new(Iwarp::default()));
    let report = served.run(&[]);
    for Finding {
        code, verdict, why, ..
    } in &report.findings
    {
        let expected = match SKIPPED.contains(code) || is_skipped(code) {
            true => Verdict::Skip,
            false => Verdict::Pass,
        };
        assert_eq!(*verdict, expected, "{code}: {why}");
    }
}

#[test]
fn our_server_passes_every_case() {
    passes(Dialect::Cel01, |code| {
        // It speaks version two, and of the other draft only what every server does.
        let other = code.starts_with("IETF-") && code != "IETF-01";
        code == "V2-02" || other || code.starts_with("ICALL-")
    });
}

#[test]
fn our_server_of_ietf_07_passes_every_case() {
    passes(Dialect::Ietf07, |code| {
        let other = code.starts_with("V2-") && !matches!(code, "V2-01" | "V2-02");
        other || code.starts_with("XCH-")
    });
}
