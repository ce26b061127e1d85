//! A server over TCP beside RPC-over-RDMA.

use crate::running::{Served, fails, free_port, ok, run, text};
use crate::statistics::{get, said};
use nfs_client::{Export, Mount, current_user};
use nfs_proto::{SetAttributes, Status};
use oncrpc_tcp::Client;
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;
use tokio::runtime::Runtime;

/// How long a call may take: longer than any machine does.
const DEADLINE: Duration = Duration::from_secs(60);

/// The addresses at which a server says that it listens over TCP.
fn over_tcp(said: &str) -> Vec<String> {
    let said: Value = serde_json::from_str(said).unwrap();
    let listeners = said["listeners"].as_array().unwrap().iter();
    let tcp = listeners.filter(|listener| listener["provider"] == "tcp");
    tcp.map(|listener| listener["address"].as_str().unwrap().to_owned())
        .collect()
}

async fn connect(at: &str) -> Client {
    let client = Client::connect(at.parse().unwrap(), DEADLINE);
    client.await.unwrap()
}

/// An export by its name, which is asked for at the same port.
async fn opened(at: &str, name: &str) -> Export<Client> {
    let mount = Mount::new(connect(at).await, current_user());
    let root = mount.mount(name).await.unwrap().handle;
    let client = connect(at).await;
    Export::open(client, current_user(), root).await.unwrap()
}

/// An export of a directory beside the file, for root as root.
fn export(around: &Path, name: &str) -> String {
    let dir = around.join(name);
    fs::create_dir_all(&dir).unwrap();
    format!("[[export]]\npath = {dir:?}\nsquash = \"none\"\n")
}

#[test]
fn files_over_tcp_are_those_over_rdma_and_its_clients_are_shown_until_the_end() {
    let options = ["--tcp", "0", "--tcp", "127.0.0.2:0", "--metrics", "0"];
    let served = Served::new(&options);
    let listeners = over_tcp(&served.said);
    let [first, second] = &listeners[..] else {
        panic!("{}", served.said);
    };
    assert!(first.starts_with("127.0.0.1:") && second.starts_with("127.0.0.2:"));
    let runtime = Runtime::new().unwrap();
    let data = vec![7; 3 << 20];
    let file = served.local("file", &data);
    ok(&["put", &file, &served.url("file")]);
    let export = runtime.block_on(async {
        let export = opened(first, "/stuff").await;
        assert!(export.read_all("file", 4 << 20).await.unwrap() == data);
        let other = opened(second, "/stuff").await;
        let written = other.write_all("other", data.clone(), SetAttributes::default());
        written.await.unwrap();
        export
    });
    assert!(ok(&["cat", &served.url("other")]) == data);

    let control = said(&served, "control");
    let clients = text(&ok(&["clients", "--json", "--socket", &control]));
    let clients = clients.lines();
    let mut clients = clients.map(|line| serde_json::from_str::<Value>(line).unwrap());
    let at_first = format!("tcp://{first}");
    let client = clients.find(|client| client["listen"] == *at_first);
    let client = client.unwrap();
    assert_eq!(client["provider"], "tcp");
    assert_eq!(client["state"], "idle");
    assert!(client["calls"].as_u64().unwrap() > 3, "{client}");
    assert!(
        client["inline_bytes_out"].as_u64().unwrap() > 3 << 20,
        "{client}"
    );
    let stats = text(&ok(&["stats", "--json", "--socket", &control]));
    let stats: Value = serde_json::from_str(&stats).unwrap();
    assert!(stats["bytes_in"].as_u64().unwrap() > 6 << 20, "{stats}");
    assert_eq!(over_tcp(&stats.to_string()), listeners);
    let metrics = get(&said(&served, "metrics"), "/metrics");
    for metric in [
        format!("address=\"{first}\",provider=\"tcp\",device=\"\",socket=\"\"}} 1\n"),
        format!("rpcrdma_connections_by_listener{{address=\"{first}\"}} 1\n"),
    ] {
        assert!(metrics.contains(&metric), "{metric} is not in {metrics}");
    }

    assert_eq!(served.stop(Signal::TERM).status.code(), Some(0));
    assert!(runtime.block_on(export.stat("file")).is_err());
}

#[test]
fn address_that_no_export_is_for_is_not_taken_in_over_tcp() {
    let mut served = Served::new(&["--tcp", "0", "--allow", "192.0.2.0/24"]);
    let mut stream = TcpStream::connect(&over_tcp(&served.said)[0]).unwrap();
    assert!(!matches!(stream.read(&mut [0]), Ok(1..)));
    served.hear("refused a connection: the address is not allowed");
}

#[test]
fn port_of_tcp_that_is_taken_ends_the_start_and_the_check_but_for_the_server_that_has_it() {
    let port = free_port();
    let served = Served::configured(
        |around| format!("tcp = {port}\n{}", export(around, "stuff")),
        &["--provider", "iwarp"],
    );
    assert_eq!(over_tcp(&served.said), [format!("127.0.0.1:{port}")]);
    let state = served.beside("state");
    let config = served.beside("exports.toml");
    let check = [
        "serve",
        "--check",
        "--provider",
        "iwarp",
        "--config",
        &config,
    ];
    let output = run(&check);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let has = format!("has these ports already: 127.0.0.1:{port}.");
    assert!(said.contains(&has), "{said}");
    assert!(text(&output.stdout).contains(&format!("127.0.0.1:{port} over TCP, ")));
    let says = format!("port {port} of 127.0.0.1 is in use");
    fails(&["serve", "--config", &config], 1, &says);
    drop(served);
    let taken = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let exports = export(dir.path(), "stuff");
    let config = dir.path().join("other.toml");
    let text =
        format!("[server]\nlisten = \"127.0.0.1:0\"\nmount_port = 0\ntcp = {port}\n{exports}");
    fs::write(&config, text).unwrap();
    let config = config.to_str().unwrap();
    fails(&["serve", "--check", "--config", config], 1, &says);
    drop((taken, state));
}

#[test]
fn reload_changes_exports_for_clients_over_tcp_and_ports_at_a_restart() {
    let mut served = Served::configured(
        |around| format!("tcp = 0\n{}", export(around, "stuff")),
        &[],
    );
    fs::write(served.dir.join("file"), "content").unwrap();
    let at = over_tcp(&served.said).remove(0);
    let around = served.around.path().to_owned();
    let runtime = Runtime::new().unwrap();
    let stuff = runtime.block_on(opened(&at, "/stuff"));
    let mounts = |name: &str| {
        runtime.block_on(async {
            let mount = Mount::new(connect(&at).await, current_user());
            mount.mount(name).await.is_ok()
        })
    };
    let both = export(&around, "stuff") + &export(&around, "books");
    let reloaded = |served: &mut Served, exports: &str| {
        served.configure(exports);
        served.signal(Signal::HUP);
        served.hear("exports read again")
    };
    reloaded(&mut served, &format!("tcp = 0\n{both}"));
    assert!(mounts("/stuff") && mounts("/books"));
    let stat = runtime.block_on(stuff.stat("file")).unwrap();
    assert_eq!(stat.attributes.size, 7);
    reloaded(
        &mut served,
        &format!("tcp = [0, \"127.0.0.2:0\"]\n{}", export(&around, "books")),
    );
    let said = served.hear("that take effect at a restart");
    assert!(said.contains("at a restart: tcp"), "{said}");
    assert!(!mounts("/stuff") && mounts("/books"));
    let stat = runtime.block_on(stuff.stat("file")).unwrap_err();
    assert_eq!(stat.status(), Some(Status::Stale));
}
