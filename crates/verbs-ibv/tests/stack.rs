//! RPC-over-RDMA and NFS over a device of this machine, and the end of the device.
//!
//! It needs a device, as the [suite for providers](../tests/conformance.rs) does, and to be root for the test that
//! removes it:
//!
//! ```text
//! VERBS_IBV_DEVICE=rxe0 VERBS_IBV_ADDRESS=10.0.0.1 cargo test -p verbs-ibv --test stack
//! ```

use rpcrdma::nfs::client::{Export, current_user};
use rpcrdma::nfs::proto::SetAttributes;
use rpcrdma::nfs::server::{AccessList, ExportOptions, Exports, HandleKey, MemFs, Mount3, Nfs3};
use rpcrdma::{Client, ClientConfig, Pool, Programs, Server, ServerConfig};
use std::env;
use std::fs::read_to_string;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use verbs_ibv::{Config, Ibv};

/// Nothing here takes as long.
const PATIENCE: Duration = Duration::from_secs(60);

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} has to name an RDMA device or its address"))
}

fn provider() -> Arc<Ibv> {
    let device = Some(variable("VERBS_IBV_DEVICE"));
    Arc::new(
        Ibv::open(Config {
            device,
            ..Config::default()
        })
        .expect("the device is there"),
    )
}

fn address() -> SocketAddr {
    let ip: IpAddr = variable("VERBS_IBV_ADDRESS")
        .parse()
        .expect("an IP address");
    SocketAddr::new(ip, 0)
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let _ = tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_test_writer()
        .try_init();
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(async {
            let done = tokio::time::timeout(PATIENCE, future).await;
            done.expect("it ends in time")
        })
}

/// A server for a file system in memory.
async fn serve(provider: Arc<Ibv>) -> Server {
    let exports = Exports::new(HandleKey::random().expect("a key"));
    let files = Arc::new(MemFs::new(64 << 20));
    let this_machine = address().ip().to_string().parse();
    let allowed = AccessList::new([this_machine.expect("an address")]);
    let options = ExportOptions::default().with_allow(allowed);
    let exports = exports.with("/data", files, options).expect("an export");
    let programs = Programs::new()
        .with(Nfs3::new(exports.clone(), Pool::new(16 << 20)))
        .with(Mount3::new(exports));
    let config = ServerConfig::default();
    let server = Server::bind(provider, address(), Arc::new(programs), config);
    server.await.expect("a server")
}

async fn connect(provider: Arc<Ibv>, server: &Server) -> Client {
    let connected = Client::connect(provider, server.local_addr(), ClientConfig::default());
    connected.await.expect("a connection")
}

fn pattern(length: u32) -> Vec<u8> {
    (0..length)
        .map(|at| at.wrapping_mul(167).to_le_bytes()[1])
        .collect()
}

/// Calls with all kinds of chunks, many at a time.
#[test]
fn files_are_written_and_read_whole() {
    run(async {
        let provider = provider();
        let server = serve(provider.clone()).await;
        let client = connect(provider, &server).await;
        let mounted = Export::mount(client.clone(), current_user(), "/data").await;
        let export = Arc::new(mounted.expect("an export"));
        let lengths = [0, 1, 1000, 4096, 5001, 70_000, 1 << 20, (3 << 20) + 1];
        let copies = (0..4).flat_map(|copy| lengths.map(|length| (copy, length)));
        let files = copies.map(|(copy, length)| {
            let export = Arc::clone(&export);
            tokio::spawn(async move {
                let name = format!("file-{copy}-{length}");
                let bytes = pattern(length);
                let plain = SetAttributes::default();
                let written = export.write_all(&name, bytes.clone(), plain).await;
                written.expect("the file is written");
                let found = export.read_all(&name, 4 << 20).await.expect("it is read");
                assert!(found == bytes, "{name} is what was written");
            })
        });
        for file in files.collect::<Vec<_>>() {
            file.await.expect("a file");
        }
        client.close().await;
        server.shutdown().await;
    });
}

/// Whoever runs this compares what the kernel has of the device, before and after.
#[test]
fn connections_come_and_go() {
    run(async {
        let provider = provider();
        let server = serve(provider.clone()).await;
        for _ in 0..30 {
            let client = connect(provider.clone(), &server).await;
            let mounted = Export::mount(client.clone(), current_user(), "/data").await;
            let export = mounted.expect("an export");
            let plain = SetAttributes::default();
            export
                .write_all("file", "text", plain)
                .await
                .expect("written");
            client.close().await;
        }
        server.shutdown().await;
    });
}

/// The device goes while calls are in flight, which does not make the kernel wait for this process. When it is back, the
/// server listens on it, the client connects again, and the calls go on.
#[test]
fn calls_go_on_when_a_removed_device_is_back() {
    let device = variable("VERBS_IBV_DEVICE");
    let kind = device.trim_end_matches(|c: char| c.is_ascii_digit());
    let parent = format!("/sys/class/infiniband/{device}/parent");
    let interface = read_to_string(parent).unwrap_or_else(|_| "eth0".into());
    let interface = interface.trim();
    run(async {
        let provider = provider();
        let server = serve(provider.clone()).await;
        let client = connect(provider.clone(), &server).await;
        let mounted = Export::mount(client.clone(), current_user(), "/data").await;
        let export = mounted.expect("an export");
        let bytes = pattern(1 << 20);
        let plain = SetAttributes::default();
        let written = export.write_all("file", bytes.clone(), plain).await;
        written.expect("the file is written");
        let (count, mut counted) = watch::channel(0);
        let traffic = tokio::spawn(async move {
            while !count.is_closed() {
                let found = export.read_all("file", 2 << 20).await.expect("it is read");
                assert!(found == bytes, "the file is what was written");
                count.send_modify(|count| *count += 1);
            }
        });
        let before = *counted.wait_for(|count| *count > 0).await.expect("traffic");
        rdma(format!("link delete {device}")).await;
        rdma(format!("link add {device} type {kind} netdev {interface}")).await;
        // One may have come between the count and the end of the device.
        let after = counted.wait_for(|count| *count > before + 5).await;
        drop(after.expect("calls go on"));
        drop(counted);
        traffic.await.expect("the traffic ends");
        client.close().await;
        server.shutdown().await;
    });
}

/// Runs `rdma` of iproute2 beside everything else.
async fn rdma(arguments: String) {
    let run = move || Command::new("rdma").args(arguments.split(' ')).status();
    let done = tokio::task::spawn_blocking(run).await.expect("a thread");
    assert!(done.expect("rdma").success());
}
