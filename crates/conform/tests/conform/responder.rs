//! Every case against a Responder passes against our own server.

use crate::only_these;
use conform::{Finding, Fixture, Known, Report, Responder, Told, Verdict};
use rpcrdma::nfs::client::{Export, current_user};
use rpcrdma::nfs::server::{ExportOptions, Exports, HandleKey, MemFs, Mount3, Nfs3};
use rpcrdma::{Client, ClientConfig, Iwarp, Pool, Programs, Provider, Server, ServerConfig};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

/// A server with a file system in memory, and files for the cases.
pub(crate) struct Served {
    runtime: Runtime,
    server: Server,
    files: Fixture,
}

impl Served {
    pub(crate) fn start() -> Self {
        Self::over(Arc::new(Iwarp::default()))
    }

    /// A server over this provider.
    pub(crate) fn over(provider: Arc<dyn Provider>) -> Self {
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
                Server::bind(provider, at, programs.clone(), ServerConfig::default())
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
        }
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
            patience: Duration::from_secs(30),
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

/// Cases that do not apply to our server: it has set R, asks for CRCs, and speaks version two.
const SKIPPED: [&str; 3] = ["INV-03", "MPA-16", "V2-02"];

#[test]
fn our_server_passes_every_case() {
    let report = Served::start().run(&[]);
    let of = |verdict| -> Vec<&Finding> {
        let all = report.findings.iter();
        all.filter(|finding| finding.verdict == verdict).collect()
    };
    assert!(of(Verdict::Fail).is_empty(), "{:?}", report.new_failures);
    assert!(of(Verdict::Error).is_empty(), "{:?}", report.new_failures);
    let skipped: Vec<&str> = of(Verdict::Skip)
        .iter()
        .map(|finding| finding.code)
        .collect();
    assert_eq!(skipped, SKIPPED);
}
