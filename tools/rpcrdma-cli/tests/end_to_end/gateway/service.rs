//! A gateway as a service of systemd.

use super::{Filer, Gateway, activated, stuff, use_over_tcp};
use crate::running::{PROGRAM, Running, Served, ok, text};
use rustix::process::Signal;
use serde_json::Value;
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use tokio::runtime::Runtime;

#[test]
fn manager_is_told_of_readiness_reload_and_end() {
    let around = tempfile::tempdir().unwrap();
    let path = around.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    let hear = || {
        let mut message = [0; 4096];
        let len = socket.recv(&mut message).unwrap();
        text(&message[..len])
    };
    let pair = "[[pair]]\nlisten = \"rdma://127.0.0.1:0\"\nupstream = \"tcp://127.0.0.1:1\"\n";
    let path = path.to_str().unwrap().to_owned();
    let mut gateway = Gateway::configured_in(around, pair, &[("NOTIFY_SOCKET", &path)]);
    let at = gateway.rdma_url();
    let passing = format!("READY=1\nSTATUS=passing {at} on to tcp://127.0.0.1:1");
    assert_eq!(hear().trim(), passing);
    gateway.signal(Signal::HUP);
    assert!(hear().starts_with("RELOADING=1\n"));
    assert_eq!(hear().trim(), passing);
    gateway.configure("[[pare]]\n");
    gateway.signal(Signal::HUP);
    assert!(hear().starts_with("RELOADING=1\n"));
    let said = hear();
    assert!(
        said.starts_with(&format!("{passing}; the last reload failed: ")),
        "{said}"
    );
    gateway.signal(Signal::TERM);
    assert!(hear().starts_with("STOPPING=1\n"));
    assert_eq!(gateway.child.wait().unwrap().code(), Some(0));
}

#[test]
fn watchdog_is_fed_by_both_kinds_of_event_loops() {
    let around = tempfile::tempdir().unwrap();
    let path = around.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    let pairs = "[[pair]]\nlisten = \"rdma://127.0.0.1:0\"\nupstream = \"tcp://127.0.0.1:1\"\n\
                 [[pair]]\nlisten = \"tcp://127.0.0.1:0\"\nupstream = \"rdma://127.0.0.1:1\"\n";
    let path = path.to_str().unwrap().to_owned();
    let environment = [("NOTIFY_SOCKET", &*path), ("WATCHDOG_USEC", "2000")];
    let _gateway = Gateway::configured_in(around, pairs, &environment);
    let mut message = [0; 4096];
    for expected in ["READY=1", "WATCHDOG=1", "WATCHDOG=1"] {
        let len = socket.recv(&mut message).unwrap();
        assert!(text(&message[..len]).starts_with(expected));
    }
}

#[test]
fn watchdog_is_fed_while_a_pair_that_was_removed_finishes_its_calls() {
    let around = tempfile::tempdir().unwrap();
    let path = around.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    let hear = || {
        let mut message = [0; 4096];
        let len = socket.recv(&mut message).unwrap();
        text(&message[..len])
    };
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = silent.local_addr().unwrap();
    let pair = |upstream: &str| {
        format!("[[pair]]\nlisten = \"rdma://127.0.0.1:0\"\nupstream = \"tcp://{upstream}\"\n")
    };
    let path = path.to_str().unwrap().to_owned();
    let environment = [("NOTIFY_SOCKET", &*path), ("WATCHDOG_USEC", "2000")];
    let pairs = pair(&upstream.to_string());
    let gateway = Gateway::configured_in(around, &pairs, &environment);
    let mut ping = Command::new(PROGRAM);
    ping.args(["ping", "-c1", &gateway.listening(0)]);
    let _ping = Running::spawn(ping.stdout(Stdio::null()).stderr(Stdio::null()));
    let (mut call, _) = silent.accept().unwrap();
    call.read_exact(&mut [0; 4]).unwrap();

    gateway.configure(&pair("127.0.0.1:1"));
    gateway.signal(Signal::HUP);
    while !hear().starts_with("RELOADING=1") {}
    // One may have been under way before.
    for _ in 0..3 {
        let said = hear();
        assert_eq!(said.trim(), "WATCHDOG=1");
    }
    drop(call);
    while !hear().starts_with("READY=1") {}
}

#[test]
fn socket_of_the_service_manager_is_used_for_rdma_and_after_a_reload_too() {
    let (dir, content) = stuff();
    let filer = Filer::new(dir.path());
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = socket.local_addr().unwrap();
    let around = tempfile::tempdir().unwrap();
    let file = around.path().join("gateway.toml");
    let listen = format!("[[pair]]\nlisten = \"rdma://{addr}\"\n");
    std::fs::write(&file, format!("{listen}upstream = \"tcp://127.0.0.1:1\"\n")).unwrap();
    let mut gateway = Gateway::activated(socket, &["--config", file.to_str().unwrap()]);
    assert_eq!(gateway.addr(0), addr);
    std::fs::write(&file, format!("{listen}upstream = \"{}\"\n", filer.url())).unwrap();
    gateway.signal(Signal::HUP);
    gateway.hear("pairs read again");
    assert!(ok(&["cat", &gateway.url("stuff/file")]) == content);
}

#[test]
fn pair_that_a_reload_removed_may_have_its_socket_again() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = socket.local_addr().unwrap();
    let around = tempfile::tempdir().unwrap();
    let file = around.path().join("gateway.toml");
    let path = file.to_str().unwrap();
    let pair = |listen: &str| {
        format!("[[pair]]\nlisten = \"tcp://{listen}\"\nupstream = \"rdma://127.0.0.1:1\"\n")
    };
    std::fs::write(&file, pair(&addr.to_string())).unwrap();
    let mut gateway = Gateway::activated(socket, &["--config", path]);
    std::fs::write(&file, pair("127.0.0.1:0")).unwrap();
    gateway.signal(Signal::HUP);
    gateway.hear("pairs read again");
    while gateway.ask(&["stats"]).contains(&addr.to_string()) {}
    std::fs::write(&file, pair(&addr.to_string())).unwrap();
    let socket = gateway.around.path().join("control.sock");
    let control = ["--control-socket", socket.to_str().unwrap()];
    let check = ["gateway", "--config", path, "--check", "--json"];
    let said = text(&ok(&[&check[..], &control].concat()));
    assert!(
        said.contains("a second gateway cannot start while it runs"),
        "{said}"
    );
    gateway.signal(Signal::HUP);
    let said = gateway.hear("pairs read again");
    assert!(said.contains(&format!("added tcp://{addr}")), "{said}");
}

#[test]
fn socket_of_the_service_manager_is_used_for_tcp() {
    let served = Served::new(&["--trust-local", "--squash", "none"]);
    std::fs::write(served.dir.join("file"), b"content").unwrap();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = socket.local_addr().unwrap();
    let (listen, upstream) = (
        format!("tcp://{addr}"),
        format!("rdma://{}", served.listening),
    );
    let sides = [
        "--listen",
        &listen,
        "--upstream",
        &upstream,
        "--trust-local",
    ];
    let gateway = Gateway::activated(socket, &sides);
    assert_eq!(gateway.addr(0), addr);
    let runtime = Runtime::new().unwrap();
    runtime.block_on(use_over_tcp(addr, b"content"));
}

#[test]
fn socket_of_the_service_manager_is_told_with_its_name_and_address() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = socket.local_addr().unwrap();
    let around = tempfile::tempdir().unwrap();
    let file = around.path().join("gateway.toml");
    let pair = |listen: &str| {
        format!("[[pair]]\nlisten = \"{listen}\"\nupstream = \"rdma://127.0.0.1:1\"\n")
    };
    let url = format!("tcp://{addr}");
    std::fs::write(&file, pair(&url) + &pair("tcp://127.0.0.1:0")).unwrap();
    let args = ["--config", file.to_str().unwrap(), "--metrics", "0"];
    let mut gateway = Gateway::activated(socket, &args);
    assert_eq!(gateway.said["pairs"][0]["listeners"][0]["socket"], "edge");
    let said = gateway.hear("a socket of the service manager");
    for part in [
        &format!("listen=\"{url}\""),
        "socket=\"edge\"",
        &format!("address={addr}"),
    ] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    let shown = gateway.ask(&["stats", "-l"]);
    let sockets = format!("\nsockets of the service manager: edge at {addr}\n");
    assert!(shown.contains(&sockets), "{shown}");
    let shown: Value = serde_json::from_str(&gateway.ask(&["stats", "--json"])).unwrap();
    let listener = |pair: usize| shown["pairs"][pair]["listeners"][0].clone();
    assert_eq!(listener(0)["socket"], "edge");
    assert_eq!(listener(0)["address"], addr.to_string());
    assert_eq!(listener(1)["socket"], Value::Null, "it is its own");
    let metrics = gateway.metrics();
    let metric = format!(
        "rpcrdma_listener_info{{service=\"nfs\",listen=\"{url}\",address=\"{addr}\",provider=\"tcp\",device=\"\",\
         socket=\"edge\"}} 1\n"
    );
    assert!(metrics.contains(&metric), "{metric} is not in {metrics}");
}

#[test]
fn socket_for_mount_of_a_pair_is_told_with_its_name() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port().to_string();
    let args = [
        "--listen",
        "rdma://127.0.0.1:0",
        "--upstream",
        "tcp://127.0.0.1:1",
        "--mount-port",
        &port,
    ];
    let gateway = Gateway::activated(socket, &args);
    let shown: Value = serde_json::from_str(&gateway.ask(&["stats", "--json"])).unwrap();
    let pair = &shown["pairs"][0];
    assert_eq!(pair["mount_socket"], "edge");
    assert_eq!(pair["mount"], format!("127.0.0.1:{port}"));
    assert_eq!(pair["listeners"][0]["socket"], Value::Null);
    let text = gateway.ask(&["stats"]);
    assert!(
        text.contains(&format!(": edge at 127.0.0.1:{port}\n")),
        "{text}"
    );
}

#[test]
fn socket_of_no_pair_is_refused() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = socket.local_addr().unwrap();
    let sides = [
        "--listen",
        "tcp://127.0.0.1:0",
        "--upstream",
        "rdma://127.0.0.1:1",
    ];
    let output = activated(socket).args(sides).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("is that of no pair"), "{said}");
    assert!(said.contains(&format!("{addr} (edge)")), "{said}");
}
