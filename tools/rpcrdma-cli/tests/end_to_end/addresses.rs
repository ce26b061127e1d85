//! A server with several addresses, and a pair of a gateway with several.

use crate::running::{PROGRAM, Say, Served, fails, ok, run, text};
use crate::statistics::get;
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};

fn said_of(served: &Served) -> Value {
    serde_json::from_str(&served.said).unwrap()
}

/// The addresses of a server over software iWARP, and those of MOUNT.
fn listening(said: &Value) -> (Vec<String>, Vec<String>) {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let listeners = said["listeners"].as_array().unwrap().iter();
    let listeners = listeners.map(|listener| text(&listener["address"]));
    let mounts = said["mounts"].as_array().unwrap().iter().map(text);
    (listeners.collect(), mounts.collect())
}

/// A second address of this machine, in another family if it has IPv6.
fn other_address() -> (&'static str, &'static str) {
    match TcpListener::bind("[::1]:0") {
        Ok(_) => ("[::1]:0", "[::1]"),
        Err(_) => ("127.0.0.2:0", "127.0.0.2"),
    }
}

#[test]
fn addresses_share_files_and_each_client_is_shown_with_its_own() {
    let (second, host) = other_address();
    let args = [
        "--listen",
        second,
        "--listen",
        "127.0.0.1:0",
        "--metrics",
        "0",
    ];
    let served = Served::new(&args);
    let said = said_of(&served);
    let (listeners, mounts) = listening(&said);
    let [first, second, third] = &listeners[..] else {
        panic!("{said}");
    };
    assert!(first.starts_with("127.0.0.1:") && third.starts_with("127.0.0.1:"));
    assert!(second.starts_with(&format!("{host}:")), "{second}");
    // Once at each host, and at one port.
    let port = served.mount_port;
    assert_eq!(
        mounts,
        [format!("127.0.0.1:{port}"), format!("{host}:{port}")]
    );
    for mount in &mounts {
        let (host, port) = mount.rsplit_once(':').unwrap();
        let shown = ok(&["exports", "--tcp", "--mount-port", port, host]);
        assert!(text(&shown).contains("/stuff"));
    }
    let commands = said["exports"][0]["mounts"].as_array().unwrap();
    assert_eq!(commands.len(), 3);
    assert!(commands[1].as_str().unwrap().contains(host), "{said}");

    let file = served.local("file", b"content");
    ok(&["put", &file, &format!("nfs://{second}/file")]);
    assert_eq!(ok(&["cat", &format!("nfs://{third}/file")]), b"content");

    let control = said["control"].as_str().unwrap();
    let connected: Vec<std::net::TcpStream> = [first, second]
        .map(|at| std::net::TcpStream::connect(at).unwrap())
        .into();
    for (stream, at) in connected.iter().zip([first, second]) {
        let from = stream.local_addr().unwrap().to_string();
        let listen = loop {
            let lines = text(&ok(&["clients", "--json", "--socket", control]));
            let mut lines = lines
                .lines()
                .map(|line| serde_json::from_str::<Value>(line).unwrap());
            if let Some(mut found) = lines.find(|line| line["address"] == *from) {
                break found["listen"].take();
            }
        };
        assert_eq!(listen, format!("rdma://{at}"));
    }
    let shown = text(&ok(&["stats", "-l", "--socket", control]));
    let addresses = format!("listening at {first}, {second}, {third}\n");
    assert!(shown.contains(&addresses), "{shown}");
    let metrics = || get(said["metrics"].as_str().unwrap(), "/metrics");
    let shown = metrics();
    for at in &listeners {
        let info = format!("listen=\"rdma://{first}\",address=\"{at}\",provider=\"iwarp\"");
        assert!(shown.contains(&info), "{info} is not in {shown}");
    }
    let counts = [(first, 1), (second, 1), (third, 0)].map(|(at, count)| {
        format!("rpcrdma_connections_by_listener{{address=\"{at}\"}} {count}\n")
    });
    // Those of earlier commands may not have ended yet.
    while !counts.iter().all(|count| metrics().contains(count)) {}
    drop(connected);
    assert_eq!(served.stop(Signal::TERM).status.code(), Some(0));
}

#[test]
fn start_is_refused_if_one_address_cannot_be_had_and_check_names_each() {
    let taken = TcpListener::bind("127.0.0.2:0").unwrap();
    let addr = taken.local_addr().unwrap();
    let around = tempfile::tempdir().unwrap();
    let (at, port) = (addr.to_string(), addr.port());
    let serve = [
        "serve",
        ".",
        "--provider",
        "iwarp",
        "--mount-port",
        "0",
        "--state-dir",
        around.path().to_str().unwrap(),
        "--allow",
        "127.0.0.0/8",
        "--listen",
        "127.0.0.1:0",
        "--listen",
        &at,
        "--listen",
        "192.0.2.77",
    ];
    let in_use = format!("port {port} of 127.0.0.2 is in use");
    fails(&serve, 1, &in_use);
    let output = run(&[&serve[..], &["--check"]].concat());
    let said = text(&output.stderr);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!((output.status.code(), lines.len()), (Some(1), 2), "{said}");
    assert!(lines[0].contains(&in_use), "{said}");
    assert!(lines[1].contains("192.0.2.77 is not an address of this machine"));
    drop(taken);
}

#[test]
fn addresses_that_cannot_be_had_together_are_refused_as_a_mistake() {
    let refused = |listen: &[&str], says: &str| {
        let listen = listen.iter().flat_map(|at| ["--listen", *at]);
        let args: Vec<&str> = ["serve", ".", "--allow", "127.0.0.0/8"]
            .into_iter()
            .chain(listen)
            .collect();
        fails(&args, 2, says);
    };
    refused(
        &["127.0.0.1:7", "127.0.0.1:7"],
        "listen 127.0.0.1:7 and listen 127.0.0.1:7 are both port 7",
    );
    refused(
        &["192.0.2.1", "0.0.0.0"],
        "listen 192.0.2.1:20049 is a part of listen 0.0.0.0:20049: leave it out",
    );
    refused(
        &["0.0.0.0", "192.0.2.1"],
        "listen 192.0.2.1:20049 is a part of listen 0.0.0.0:20049: leave it out",
    );
    refused(
        &["127.0.0.2", "127.0.0.1:20048"],
        "listen 127.0.0.1:20048 and mount_port are both port 20048",
    );
    let many: Vec<String> = (0..65).map(|n| format!("192.0.2.1:{}", 1000 + n)).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    refused(&many, "listen has more than 64 addresses");
}

#[test]
fn addresses_of_a_file_are_listened_at_and_others_take_effect_at_a_restart() {
    let mut served = Served::configured(
        |around| {
            let dir = around.join("stuff");
            format!("[[export]]\npath = {dir:?}\nsquash = \"none\"\n")
        },
        &["--listen", "127.0.0.2:0", "--listen", "127.0.0.3:0"],
    );
    let (before, _) = listening(&said_of(&served));
    // The command line counts more than the file.
    assert!(before[0].starts_with("127.0.0.2:") && before[1].starts_with("127.0.0.3:"));
    let path = served.beside("exports.toml");
    let file = std::fs::read_to_string(&path).unwrap();
    let line = file
        .lines()
        .find(|line| line.starts_with("listen"))
        .unwrap();
    let several = file.replace(line, "listen = [\"127.0.0.1:0\", \"127.0.0.4:0\"]");
    std::fs::write(&path, &several).unwrap();
    served.signal(Signal::HUP);
    let said = served.hear("that take effect at a restart");
    assert!(said.contains("at a restart: listen"), "{said}");
    for at in &before {
        assert_eq!(text(&ok(&["ls", &format!("nfs://{at}/")])), "");
    }
    let state = served.beside("state-of-another");
    let again = [
        "serve",
        "--json",
        "--check",
        "--config",
        &path,
        "--state-dir",
        &state,
    ];
    let checked: Value = serde_json::from_slice(&ok(&again)).unwrap();
    let expected = ["127.0.0.1:0", "127.0.0.4:0"].map(str::to_owned).to_vec();
    assert_eq!(listening(&checked).0, expected);
    std::fs::write(
        &path,
        several.replace("\"127.0.0.1:0\", \"127.0.0.4:0\"", ""),
    )
    .unwrap();
    fails(&again, 78, "server.listen: it is empty: name one at least");
}

#[test]
fn several_sockets_of_the_service_manager_are_used_for_their_roles() {
    let sockets = ["127.0.0.1:0", "127.0.0.2:0", "127.0.0.1:0", "127.0.0.2:0"]
        .map(|at| TcpListener::bind(at).unwrap());
    let addrs = sockets
        .each_ref()
        .map(|socket| socket.local_addr().unwrap().to_string());
    let around = tempfile::tempdir().unwrap();
    let dir = around.path().join("stuff");
    std::fs::create_dir(&dir).unwrap();
    // The shell inherits them under numbers that none of those has to which it moves them.
    let inherited = sockets.each_ref().map(|socket| {
        let copy = fcntl_dupfd_cloexec(socket, 20).unwrap();
        fcntl_setfd(&copy, FdFlags::empty()).unwrap();
        copy
    });
    let moved: Vec<String> = inherited
        .iter()
        .zip(3..)
        .map(|(socket, to)| format!("{to}<&{}", socket.as_raw_fd()))
        .collect();
    let mut command = Command::new("bash");
    command
        .args([
            "-c",
            &format!("exec \"$0\" \"$@\" {}", moved.join(" ")),
            PROGRAM,
        ])
        .args(["serve", "--json", "--squash", "none"])
        .arg(&dir)
        .env("LISTEN_FDS", "4")
        .env("LISTEN_FDNAMES", "rdma:rdma:mount:mount")
        .env("STATE_DIRECTORY", around.path().join("state"))
        .env_remove("LISTEN_PID")
        .stdin(Stdio::null());
    let served = Served::started(around, dir, command, Say::Json);
    drop((sockets, inherited));
    let said = said_of(&served);
    assert_eq!(listening(&said).0, addrs[..2]);
    assert_eq!(said["mounts"], json!(addrs[2..]));
    for listener in said["listeners"].as_array().unwrap() {
        assert_eq!(listener["socket"], "rdma");
    }
    // Each host has its own port of MOUNT.
    for (command, mount) in [0, 1].map(|at| {
        (
            &said["exports"][0]["mounts_of_version_three"][at],
            &addrs[2 + at],
        )
    }) {
        let port = mount.rsplit_once(':').unwrap().1;
        let part = format!("mountport={port} ");
        assert!(command.as_str().unwrap().contains(&part), "{command}");
    }
    let file = served.local("file", b"content");
    ok(&["put", &file, &format!("nfs://{}/file", addrs[0])]);
    assert_eq!(
        ok(&["cat", &format!("nfs://{}/file", addrs[1])]),
        b"content"
    );
    let control = said["control"].as_str().unwrap();
    let shown = text(&ok(&["stats", "-l", "--socket", control]));
    let [a, b, c, d] = &addrs;
    let of_manager =
        format!("of the service manager: rdma at {a}, rdma at {b}, mount at {c}, mount at {d}\n");
    assert!(shown.contains(&of_manager), "{shown}");
}
