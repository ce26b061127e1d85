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
use std::time::{Duration, Instant};
use tokio::sync::watch;
use verbs_ibv::{Config, Ibv};

/// Nothing here takes as long.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long the kernel may wait for this process when a device is removed.
const REMOVAL_LIMIT: Duration = Duration::from_secs(2);

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
    run_for(PATIENCE, future)
}

fn run_for<T>(patience: Duration, future: impl Future<Output = T>) -> T {
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
            let done = tokio::time::timeout(patience, future).await;
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

/// Of each kind of object in the kernel, how many belong to programs: in the machine of the test that is this one alone.
///
/// Memory windows are not among them. But a protection domain cannot be freed while one is left.
fn objects() -> [(&'static str, usize); 5] {
    ["pd", "cq", "qp", "cm_id", "mr"].map(|kind| {
        let listed = Command::new("rdma")
            .args(["resource", "show", kind])
            .output();
        let listed = listed.expect("rdma of iproute2");
        assert!(listed.status.success(), "{listed:?}");
        let text = String::from_utf8_lossy(&listed.stdout);
        // Those of the kernel have the name of a module, and no process.
        (
            kind,
            text.lines().filter(|line| line.contains(" pid ")).count(),
        )
    })
}

/// Waits until the objects are these: what has ended may still be taken down.
async fn settle(expected: [(&str, usize); 5]) {
    let waiting = async {
        while objects() != expected {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let settled = tokio::time::timeout(Duration::from_secs(20), waiting).await;
    assert!(settled.is_ok(), "{:?} instead of {expected:?}", objects());
}

/// The objects once they have not changed for a while.
async fn settled() -> [(&'static str, usize); 5] {
    let mut last = objects();
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        match objects() {
            same if same == last => return same,
            other => last = other,
        }
    }
}

/// Each of them has memory exposed for a call, from which a window stays behind if it is not invalidated.
#[test]
fn connections_leave_no_object_in_the_kernel() {
    const CONNECTIONS: usize = 1000;
    run_for(Duration::from_secs(600), async {
        let none = objects();
        assert!(none.iter().all(|(_, count)| *count == 0), "{none:?}");
        let provider = provider();
        let server = serve(provider.clone()).await;
        let mut idle = None;
        for number in 0..CONNECTIONS {
            let client = connect(provider.clone(), &server).await;
            let mounted = Export::mount(client.clone(), current_user(), "/data").await;
            let export = mounted.expect("an export");
            if number % 10 == 0 {
                let bytes = pattern(20_000);
                let written = export.write_all("file", bytes.clone(), SetAttributes::default());
                written.await.expect("the file is written");
                let found = export.read_all("file", 1 << 20).await;
                assert!(found.expect("it is read") == bytes);
            }
            client.close().await;
            // The first connections made what is kept for further ones.
            if number == 20 {
                idle = Some(settled().await);
            }
        }
        let idle = idle.expect("there were as many");
        assert!(
            idle.iter().any(|(_, count)| *count > 0),
            "the server has some"
        );
        settle(idle).await;
        assert_eq!(server.shutdown().await.accepted, CONNECTIONS as u64);
        drop(provider);
        settle(none).await;
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
        let start = Instant::now();
        rdma(format!("link delete {device}")).await;
        let took = start.elapsed();
        assert!(took < REMOVAL_LIMIT, "the kernel waited for {took:?}");
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
