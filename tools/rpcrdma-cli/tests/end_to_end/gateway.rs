//! The gateway between our own servers and clients, over RDMA and over TCP.

mod check;
mod ending;
mod limits;
mod log;
mod mount;
mod outage;
mod pnfs;
mod reload;
mod service;
mod several;

use crate::running::{PROGRAM, Running, Served, fails, free_port, kill_if_silent, ok, run, text};
use buffer::Pool;
use nfs_client::{Export, Mount, current_user};
use nfs_server::{
    ExportOptions, Exports, HandleKey, LocalFs, LocalFsOptions, Mount3, Nfs3, Squash,
};
use oncrpc::xdr::Writer;
use oncrpc::{Credential, Procedure, Programs, ReplyBound, Transport, write_call};
use oncrpc_tcp::{Client, Limits, Server};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::future::pending;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{ChildStderr, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::runtime::Runtime;

const DEADLINE: Duration = Duration::from_secs(60);

/// An NFS server over TCP that exports a directory as `/stuff`, as filers do, with MOUNT at the same port.
struct Filer {
    _runtime: Runtime,
    addr: SocketAddr,
    /// Address of MOUNT.
    mount: SocketAddr,
}

impl Filer {
    fn new(dir: &Path) -> Self {
        Self::at("127.0.0.1:0".parse().unwrap(), dir)
    }

    fn at(addr: SocketAddr, dir: &Path) -> Self {
        Self::start(addr, None, dir)
    }

    /// With MOUNT at a port of its own.
    fn with_mount_apart(dir: &Path) -> Self {
        let anywhere = "127.0.0.1:0".parse().unwrap();
        Self::start(anywhere, Some(anywhere), dir)
    }

    fn start(addr: SocketAddr, mount: Option<SocketAddr>, dir: &Path) -> Self {
        let fs = LocalFs::open(dir, LocalFsOptions::default()).unwrap();
        let options = ExportOptions::default().with_squash(Squash::None);
        let exports = Exports::new(HandleKey::random().unwrap())
            .with("/stuff", Arc::new(fs), options)
            .unwrap();
        let nfs = Programs::new().with(Nfs3::new(exports.clone(), Pool::new(1 << 20)));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let serve = |at: SocketAddr, programs: Programs| {
            let listener = tokio::net::TcpListener::bind(at);
            let listener = runtime.block_on(listener).unwrap();
            let addr = listener.local_addr().unwrap();
            let limits = Limits {
                record: 2 << 20,
                ..Limits::default()
            };
            let server = Server::new(listener, Arc::new(programs), limits);
            runtime.spawn(server.run(pending()));
            addr
        };
        let (addr, mount) = match mount {
            Some(at) => (
                serve(addr, nfs),
                serve(at, Programs::new().with(Mount3::new(exports))),
            ),
            None => {
                let addr = serve(addr, nfs.with(Mount3::new(exports)));
                (addr, addr)
            }
        };
        Self {
            _runtime: runtime,
            addr,
            mount,
        }
    }

    fn url(&self) -> String {
        format!("tcp://{}", self.addr)
    }
}

/// A running gateway. Dropped, it is killed.
pub(crate) struct Gateway {
    child: Running,
    log: BufReader<ChildStderr>,
    said: Value,
    around: TempDir,
}

impl Gateway {
    fn new(args: &[&str]) -> Self {
        Self::within(tempfile::tempdir().unwrap(), args, &[])
    }

    pub(crate) fn between(listen: &str, upstream: &str, args: &[&str]) -> Self {
        let sides = ["--listen", listen, "--upstream", upstream];
        Self::new(&[&sides[..], args].concat())
    }

    fn configured(text: &str) -> Self {
        Self::configured_in(tempfile::tempdir().unwrap(), text, &[])
    }

    /// With a file beside other files of the test, in an environment that has these too.
    fn configured_in(around: TempDir, text: &str, environment: &[(&str, &str)]) -> Self {
        let file = around.path().join("gateway.toml");
        std::fs::write(&file, text).unwrap();
        Self::within(around, &["--config", file.to_str().unwrap()], environment)
    }

    fn within(around: TempDir, args: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = Command::new(PROGRAM);
        command
            .args(["gateway", "--json", "--control-socket"])
            .arg(around.path().join("control.sock"))
            .args(args)
            .envs(environment.iter().copied())
            .stdin(Stdio::null());
        Self::started(around, command)
    }

    /// With a socket that the service manager holds.
    fn activated(socket: TcpListener, args: &[&str]) -> Self {
        let around = tempfile::tempdir().unwrap();
        let mut command = activated(socket);
        command
            .args(["--json", "--control-socket"])
            .arg(around.path().join("control.sock"))
            .args(args);
        Self::started(around, command)
    }

    fn started(around: TempDir, mut command: Command) -> Self {
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .env_remove("RUST_LOG");
        let mut child = Running::spawn(&mut command);
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        if line.is_empty() {
            let mut errors = String::new();
            log.read_to_string(&mut errors).unwrap();
            panic!("the gateway ended: {errors}");
        }
        Self {
            child,
            log,
            said: serde_json::from_str(&line).unwrap(),
            around,
        }
    }

    /// Address of a pair's listener: `ADDR:PORT`.
    fn listening(&self, pair: usize) -> String {
        let url = self.said["pairs"][pair]["listen"].as_str().unwrap();
        url.split_once("://").unwrap().1.to_owned()
    }

    fn addr(&self, pair: usize) -> SocketAddr {
        self.listening(pair).parse().unwrap()
    }

    fn url(&self, path: &str) -> String {
        format!("nfs://{}/{path}", self.listening(0))
    }

    fn rdma_url(&self) -> String {
        format!("rdma://{}", self.listening(0))
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// The next line of the log with this in it.
    #[track_caller]
    fn hear(&mut self, part: &str) -> String {
        let heard = self.hear_until(part);
        heard.lines().last().unwrap().to_owned()
    }

    /// The log up to the next line with this in it.
    #[track_caller]
    fn hear_until(&mut self, part: &str) -> String {
        let _limit = kill_if_silent(&self.child);
        let mut all = String::new();
        loop {
            let before = all.len();
            let len = self.log.read_line(&mut all).unwrap();
            assert!(len > 0, "the log ended without {part}: {all}");
            if all[before..].contains(part) {
                return all;
            }
        }
    }

    fn ask(&self, command: &[&str]) -> String {
        let socket = self.around.path().join("control.sock");
        let socket = ["--socket", socket.to_str().unwrap()];
        text(&ok(&[command, &socket[..]].concat()))
    }

    /// A counter of the first pair.
    fn counter(&self, name: &str) -> u64 {
        let stats: Value = serde_json::from_str(&self.ask(&["stats", "--json"])).unwrap();
        stats["pairs"][0]["counters"][name].as_u64().unwrap()
    }

    /// Text that Prometheus gets.
    pub(crate) fn metrics(&self) -> String {
        let mut stream = TcpStream::connect(self.said["metrics"].as_str().unwrap()).unwrap();
        let request = b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        stream.write_all(request).unwrap();
        let mut metrics = String::new();
        stream.read_to_string(&mut metrics).unwrap();
        metrics
    }

    fn configure(&self, text: &str) {
        std::fs::write(self.around.path().join("gateway.toml"), text).unwrap();
    }
}

/// A gateway with a socket as its descriptor 3.
fn activated(socket: TcpListener) -> Command {
    let mut command = Command::new("sh");
    let script = "exec \"$0\" \"$@\" 3<&0 </dev/null";
    command
        .args(["-c", script, PROGRAM, "gateway"])
        .env("LISTEN_FDS", "1")
        .env("LISTEN_FDNAMES", "edge")
        .env_remove("LISTEN_PID")
        .stdin(OwnedFd::from(socket));
    command
}

/// A directory with a file, and what is in the file: more than one READ gets.
fn stuff() -> (TempDir, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..3_000_001_u32).map(|at| at.to_le_bytes()[1]).collect();
    std::fs::write(dir.path().join("file"), &content).unwrap();
    (dir, content)
}

/// Whether NULL of NFS version 3 is answered.
async fn null(client: &Client) -> bool {
    let (mut w, xid) = (Writer::default(), client.next_xid());
    let null = Procedure {
        prog: 100_003,
        vers: 3,
        proc: 0,
    };
    write_call(&mut w, xid, null, &Credential::None);
    let reply = client.call(w.finish(), ReplyBound::default()).await;
    reply.is_ok_and(|reply| oncrpc::read_reply(&reply, xid).is_ok())
}

/// Reads a file as a client over TCP does.
async fn use_over_tcp(addr: SocketAddr, content: &[u8]) {
    let connect = || Client::connect(addr, DEADLINE);
    let mount = Mount::new(connect().await.unwrap(), current_user());
    let (mounted, _) = mount.mount_above("/stuff/file").await.unwrap();
    let export = Export::open(connect().await.unwrap(), current_user(), mounted.handle);
    let export = export.await.unwrap();
    let read = export.read_all("file", 4 << 20).await.unwrap();
    assert!(read == content);
}

#[test]
fn rdma_clients_use_a_server_over_tcp() {
    let (dir, content) = stuff();
    let filer = Filer::new(dir.path());
    let gateway = Gateway::between("rdma://127.0.0.1:0", &filer.url(), &[]);
    assert!(ok(&["cat", &gateway.url("stuff/file")]) == content);
    let other = gateway.around.path().join("other");
    std::fs::write(&other, &content).unwrap();
    ok(&["put", other.to_str().unwrap(), &gateway.url("stuff/")]);
    assert!(std::fs::read(dir.path().join("other")).unwrap() == content);
    let listed = text(&ok(&["ls", &gateway.url("stuff/")]));
    assert_eq!(listed, "file  other\n".replace("  ", "\n"));
}

#[test]
fn tcp_clients_use_a_server_over_rdma() {
    let served = Served::new(&["--trust-local", "--squash", "none"]);
    let content = vec![7; 3_000_001];
    std::fs::write(served.dir.join("file"), &content).unwrap();
    let upstream = format!("rdma://{}", served.listening);
    let gateway = Gateway::between("tcp://127.0.0.1:0", &upstream, &["--trust-local"]);
    let runtime = Runtime::new().unwrap();
    runtime.block_on(use_over_tcp(gateway.addr(0), &content));
    let client = runtime.block_on(Client::connect(gateway.addr(0), DEADLINE));
    let client = client.unwrap();
    assert!(runtime.block_on(null(&client)));
    let own = client.local_addr().unwrap().to_string();
    let said = gateway.ask(&["clients", "--json"]);
    let mut clients = said
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let seen = clients.find(|client| client["address"] == *own).unwrap();
    let of = |name: &str| seen[name].clone();
    assert_eq!((of("provider"), of("state")), ("tcp".into(), "idle".into()));
    assert_eq!((of("calls"), of("inline_bytes_in")), (1.into(), 40.into()));
    assert_eq!(of("upstream_provider"), "iwarp");
    let url = pair(&gateway)["listen"].clone();
    assert_eq!(of("listen"), url);
    let shown = gateway.ask(&["clients", "-l"]);
    let shown = shown.lines().find(|line| line.contains(&own)).unwrap();
    assert!(shown.ends_with(url.as_str().unwrap()), "{shown}");
}

#[test]
fn two_gateways_are_a_tunnel_of_version_two_between_tcp_ends() {
    let (dir, content) = stuff();
    let filer = Filer::new(dir.path());
    let two = ["--rpcrdma-version", "2"];
    let near_filer = Gateway::between("rdma://127.0.0.1:0", &filer.url(), &two);
    let near_client = Gateway::between("tcp://127.0.0.1:0", &near_filer.rdma_url(), &two);
    let runtime = Runtime::new().unwrap();
    runtime.block_on(use_over_tcp(near_client.addr(0), &content));
    let client = runtime.block_on(Client::connect(near_client.addr(0), DEADLINE));
    let client = client.unwrap();
    assert!(runtime.block_on(null(&client)));
    let clients = near_filer.ask(&["clients", "--json"]);
    assert!(clients.contains("\"version\":2"), "{clients}");
}

#[test]
fn client_whose_gateway_is_gone_goes_on_through_another_one() {
    let served = Served::new(&["--trust-local", "--squash", "none"]);
    let content = vec![7; 3_000_001];
    std::fs::write(served.dir.join("file"), &content).unwrap();
    let upstream = format!("rdma://{}", served.listening);
    let gateway = || Gateway::between("tcp://127.0.0.1:0", &upstream, &["--trust-local"]);
    let (first, second) = (gateway(), gateway());
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let connect = |to: &Gateway| Client::connect(to.addr(0), DEADLINE);
        let mount = Mount::new(connect(&first).await.unwrap(), current_user());
        let (mounted, _) = mount.mount_above("/stuff/file").await.unwrap();
        drop(first);
        let client = connect(&second).await.unwrap();
        let export = Export::open(client, current_user(), mounted.handle);
        let read = export.await.unwrap().read_all("file", 4 << 20).await;
        assert!(read.unwrap() == content);
    });
}

#[test]
fn programs_see_what_each_side_is_over() {
    let (dir, _) = stuff();
    let filer = Filer::new(dir.path());
    // Loopback is left to software iWARP, whatever devices this machine has.
    let near_filer = Gateway::between("rdma://127.0.0.1:0", &filer.url(), &["--trust-local"]);
    let upstream = format!("rdma://{}", near_filer.listening(0));
    let options = ["--trust-local", "--provider", "iwarp"];
    let near_client = Gateway::between("tcp://127.0.0.1:0", &upstream, &options);
    let over = |provider: &str, gateway: &Gateway| serde_json::json!([{"provider": provider, "address": gateway.listening(0)}]);
    let (filers, clients) = (pair(&near_filer), pair(&near_client));
    assert_eq!(filers["listeners"], over("iwarp", &near_filer));
    assert_eq!(
        filers["upstream_over"],
        serde_json::json!([{"provider": "tcp"}])
    );
    assert_eq!(clients["listeners"], over("tcp", &near_client));
    assert_eq!(
        clients["upstream_over"],
        serde_json::json!([{"provider": "iwarp"}])
    );

    let runtime = Runtime::new().unwrap();
    let client = runtime.block_on(Client::connect(near_client.addr(0), DEADLINE));
    let client = client.unwrap();
    assert!(runtime.block_on(null(&client)));
    let asked = |gateway: &Gateway, command: &str| -> Value {
        serde_json::from_str(&gateway.ask(&[command, "--json"])).unwrap()
    };
    let connections = |gateway: &Gateway| {
        let now = asked(gateway, "stats")["pairs"][0].clone();
        assert_eq!(now["listeners"], pair(gateway)["listeners"]);
        now["upstream_over"].clone()
    };
    let one = |provider: &str| {
        serde_json::json!([{
            "provider": provider, "device": null, "connections": 1, "remote_invalidations": 0
        }])
    };
    assert_eq!(connections(&near_client), one("iwarp"));
    assert_eq!(connections(&near_filer), one("tcp"));
    let shown = asked(&near_filer, "clients");
    assert_eq!(
        (&shown["provider"], &shown["upstream_provider"]),
        (&"iwarp".into(), &"tcp".into())
    );
}

/// Line of a gateway about its pair.
fn pair(gateway: &Gateway) -> &Value {
    &gateway.said["pairs"][0]
}

#[test]
fn gateway_on_a_machine_without_a_device_uses_software_and_loads_no_library() {
    if crate::devices::has_devices() {
        eprintln!("skipped: this machine has RDMA devices");
        return;
    }
    let listen = format!("rdma://0.0.0.0:{}", free_port());
    // The dynamic linker tells which libraries it looks for.
    let output = Command::new(PROGRAM)
        .args(["gateway", "--check", "--json", "--allow", "192.0.2.0/24"])
        .args(["--listen", &listen, "--upstream", "rdma://192.0.2.1"])
        .env("LD_DEBUG", "libs")
        .output()
        .unwrap();
    let (printed, libraries) = (text(&output.stdout), text(&output.stderr));
    let printed: Value = serde_json::from_str(&printed).unwrap();
    let pair = &printed["pairs"][0];
    let address = listen.strip_prefix("rdma://").unwrap();
    assert_eq!(
        pair["listeners"],
        serde_json::json!([{"provider": "iwarp", "address": address}])
    );
    assert_eq!(
        pair["upstream_over"],
        serde_json::json!([{"provider": "iwarp"}])
    );
    for library in ["ibverbs", "rdmacm"] {
        assert!(!libraries.contains(library), "{libraries}");
    }
}

#[test]
fn rdma_clients_use_a_server_over_rdma() {
    let served = Served::new(&["--trust-local"]);
    std::fs::write(served.dir.join("file"), "content").unwrap();
    let upstream = format!("rdma://{}", served.listening);
    let gateway = Gateway::between("rdma://127.0.0.1:0", &upstream, &[]);
    assert_eq!(ok(&["cat", &gateway.url("stuff/file")]), b"content");
}

#[test]
fn mount_is_passed_on_over_tcp() {
    let (dir, _) = stuff();
    let filer = Filer::new(dir.path());
    let port = filer.addr.port().to_string();
    let gateway = Gateway::between(
        "rdma://127.0.0.1:0",
        &filer.url(),
        &["--mount-port", "0", "--upstream-mount", &port],
    );
    let mount_port = gateway.said["pairs"][0]["mount_port"].to_string();
    let args = [
        "exports",
        "--mount-port",
        &mount_port,
        &gateway.listening(0),
    ];
    let exports = text(&ok(&args));
    assert!(exports.starts_with("/stuff "), "{exports}");
    let said = pair(&gateway);
    let command = |at: usize| said["mount"][at].as_str().unwrap();
    assert!(command(0).contains("vers=4.2"), "{said}");
    assert!(
        command(1).contains("vers=3,nolock,mountproto=tcp"),
        "{said}"
    );
    assert_eq!(said["upstream_mount"], filer.addr.to_string());
}

#[test]
fn mount_of_a_server_that_is_away_is_answered_and_logged() {
    let nobody = free_port().to_string();
    let args = ["--mount-port", "0", "--upstream-mount", &nobody];
    let upstream = format!("tcp://127.0.0.1:{nobody}");
    let mut gateway = Gateway::between("rdma://127.0.0.1:0", &upstream, &args);
    let port = gateway.said["pairs"][0]["mount_port"].as_u64().unwrap();
    let runtime = Runtime::new().unwrap();
    let reply = runtime.block_on(async {
        let addr = ([127, 0, 0, 1], u16::try_from(port).unwrap()).into();
        let client = Client::connect(addr, DEADLINE).await.unwrap();
        let (mut w, xid) = (Writer::default(), client.next_xid());
        let exports = Procedure {
            prog: 100_005,
            vers: 3,
            proc: 5,
        };
        write_call(&mut w, xid, exports, &Credential::None);
        let reply = client
            .call(w.finish(), ReplyBound::default())
            .await
            .unwrap();
        oncrpc::read_reply(&reply, xid).err()
    });
    assert_eq!(reply, Some(oncrpc::RpcError::SystemErr));
    let said = gateway.hear("MOUNT of the server cannot be reached");
    let says = format!("at 127.0.0.1:{nobody}: ");
    assert!(said.contains(&says), "{said}");
    assert!(
        said.contains("nobody listens there: start it; --upstream-mount names"),
        "{said}"
    );
    assert!(said.contains(&gateway.rdma_url()), "{said}");
    assert_eq!(gateway.counter("mount_unanswered"), 1);
}

#[test]
fn clients_wait_for_a_server_that_is_away() {
    let (dir, content) = stuff();
    let addr: SocketAddr = ([127, 0, 0, 1], free_port()).into();
    let upstream = format!("tcp://localhost:{}", addr.port());
    let mut gateway = Gateway::between("rdma://127.0.0.1:0", &upstream, &[]);
    let url = gateway.url("stuff/file");
    let client = Running::spawn(
        Command::new(PROGRAM)
            .args(["cat", &url])
            .stdout(Stdio::piped()),
    );
    // The call of the client has come, and waits.
    while gateway.counter("connections") == 0 {}
    // As it is configured, and where it was looked for.
    gateway.hear(&format!("server {upstream} (tcp://"));
    assert!(gateway.counter("upstream_attempts_failed") > 0);
    let _filer = Filer::at(addr, dir.path());
    let output = client.output();
    assert!(output.stdout == content, "{}", text(&output.stderr));
}

#[test]
fn addresses_that_are_not_allowed_are_refused() {
    let (dir, _) = stuff();
    let filer = Filer::new(dir.path());
    for listen in ["rdma://127.0.0.1:0", "tcp://127.0.0.1:0"] {
        let served = Served::new(&["--trust-local"]);
        let upstream = match listen.starts_with("tcp") {
            true => format!("rdma://{}", served.listening),
            false => filer.url(),
        };
        let mut gateway = Gateway::between(listen, &upstream, &["--allow", "192.0.2.0/24"]);
        let mut stream = TcpStream::connect(gateway.addr(0)).unwrap();
        // What an RDMA client says first; a TCP server that takes it in would close, too, but not say why.
        stream.write_all(b"MPA ID Req Frame\x40\x01\0\0").unwrap();
        let said = gateway.hear("not allowed");
        let url = pair(&gateway)["listen"].as_str().unwrap();
        assert!(said.contains(url), "{said}");
        assert_eq!(gateway.counter("refused"), 1);
        drop(stream);
    }
}

#[test]
fn gateway_tells_what_it_does() {
    let (dir, _) = stuff();
    let filer = Filer::new(dir.path());
    let args = ["--metrics", "0"];
    let mut gateway = Gateway::between("rdma://127.0.0.1:0", &filer.url(), &args);
    ok(&["cat", &gateway.url("stuff/file")]);
    let stats = gateway.ask(&["stats"]);
    assert!(stats.contains(&filer.url()), "{stats}");
    let metrics = gateway.metrics();
    for part in [
        "# TYPE rpcrdma_gateway_connections gauge",
        "rpcrdma_gateway_calls_total{listen=\"rdma://127.0.0.1:",
        "rpcrdma_last_reload_successful 1",
        "rpcrdma_gateway_pair_up{listen=\"rdma://127.0.0.1:",
    ] {
        assert!(metrics.contains(part), "{part} is not in {metrics}");
    }
    gateway.signal(Signal::USR1);
    let said = gateway.hear("statistics");
    assert!(said.contains("upstream_connections"), "{said}");
    gateway.signal(Signal::TERM);
    gateway.hear("letting calls finish");
    assert_eq!(gateway.child.wait().unwrap().code(), Some(0));
}

#[test]
fn what_makes_no_sense_is_refused_with_a_reason() {
    let check = |args: &[&str], says: &str| fails(&[&["gateway"], args].concat(), 2, says);
    let pair = |listen, upstream| ["--listen", listen, "--upstream", upstream];
    let tcp = pair("tcp://127.0.0.1:0", "tcp://127.0.0.1:1");
    check(&tcp, "--upstream: both sides are TCP");
    check(
        &pair("rdma://0.0.0.0:0", "tcp://127.0.0.1:1"),
        "--allow: listening at 0.0.0.0 serves other",
    );
    check(
        &pair("rdma://here", "tcp://127.0.0.1:1"),
        "it is not an address",
    );
    check(
        &pair("rdma://127.0.0.1", "udp://127.0.0.1"),
        "there is no transport udp",
    );
    check(&["--listen", "rdma://127.0.0.1"], "--upstream");
    check(&[], "--listen");
    let to_rdma = pair("tcp://127.0.0.1:0", "rdma://127.0.0.1:1");
    let reserved = [&to_rdma[..], &["--reserved-port"]].concat();
    check(
        &reserved,
        "--reserved-port: RPC-over-RDMA has no reserved ports",
    );
}

#[test]
fn reserved_ports_need_a_privilege() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can make a network whose lower ports are reserved");
        return;
    }
    // In a network of its own, where ports below 1024 are what they are by default.
    let script =
        "setpriv --bounding-set -net_bind_service --inh-caps -net_bind_service -- \"$0\" \"$@\"";
    let said = Command::new("unshare")
        .args(["--net", "sh", "-c", script, PROGRAM, "gateway"])
        .args(["--listen", "rdma://127.0.0.1:0"])
        .args(["--upstream", "tcp://127.0.0.1:1", "--reserved-port"])
        .output()
        .unwrap();
    let errors = text(&said.stderr);
    assert_eq!(said.status.code(), Some(1), "{errors}");
    let why = "--reserved-port needs CAP_NET_BIND_SERVICE (or root)";
    assert!(errors.contains(why), "{errors}");
}

#[test]
fn what_a_gateway_cannot_tell_is_said() {
    let upstream = "rdma://127.0.0.1:1";
    let gateway = Gateway::between("tcp://127.0.0.1:0", upstream, &["--trust-local"]);
    assert_eq!(gateway.ask(&["clients", "--json"]), "");
    let socket = gateway.around.path().join("control.sock");
    fails(
        &["exports", "--socket", socket.to_str().unwrap()],
        1,
        "this is a gateway, which has no exports of its own: ask the server",
    );
}

#[test]
fn probe_and_ping_say_what_the_silence_of_a_gateway_may_mean() {
    let gateway = Gateway::between("rdma://127.0.0.1:0", "tcp://127.0.0.1:1", &[]);
    let addr = gateway.listening(0);
    let says = "a gateway is silent like that while its server is away";
    // Enough for the connection, also on a busy machine: only the call has no answer.
    let probed = run(&["probe", "--timeout", "3s", &addr]);
    let said = text(&probed.stdout) + &text(&probed.stderr);
    assert!(
        said.contains(says) && said.contains("no answer in version 1"),
        "{said}"
    );
    let pinged = run(&["ping", "-c1", "-W3s", &addr]);
    assert!(text(&pinged.stderr).contains(says), "{pinged:?}");
}
