//! A server as a service of systemd, which the test stands in for.

use crate::running::{PROGRAM, Say, Served, fails_with, free_port, ok, text};
use crate::statistics::get;
use rustix::process::Signal;
use serde_json::Value;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::Command;

/// Socket to which a server reports its state.
struct Manager {
    socket: UnixDatagram,
}

impl Manager {
    /// A server with its files in `stuff`, what it is told by the environment, and who hears from it.
    fn starting(environment: &[(&str, &str)]) -> (Served, Self) {
        let around = tempfile::tempdir().unwrap();
        let path = around.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let path = path.to_str().unwrap().to_owned();
        let mut all = vec![("NOTIFY_SOCKET", path.as_str())];
        all.extend(environment);
        let served = Served::configured_in(
            around,
            |around| {
                format!(
                    "[[export]]\npath = {:?}\nsquash = \"none\"\n",
                    around.join("stuff")
                )
            },
            &[],
            &all,
        );
        (served, Self { socket })
    }

    /// The next message.
    fn hear(&self) -> String {
        let mut message = [0; 4096];
        let len = self.socket.recv(&mut message).unwrap();
        String::from_utf8(message[..len].to_vec()).unwrap()
    }
}

#[test]
fn manager_is_told_of_readiness_reload_and_end() {
    let (served, manager) = Manager::starting(&[]);
    assert_eq!(manager.hear().trim(), "READY=1\nSTATUS=serving /stuff");
    served.signal(Signal::HUP);
    let reloading = manager.hear();
    let since = reloading
        .trim()
        .strip_prefix("RELOADING=1\nMONOTONIC_USEC=");
    assert!(
        since.unwrap_or_default().parse::<u64>().is_ok(),
        "{reloading}"
    );
    assert_eq!(manager.hear().trim(), "READY=1\nSTATUS=serving /stuff");
    served.configure("[[exprt]]\n");
    served.signal(Signal::HUP);
    assert!(manager.hear().starts_with("RELOADING=1\n"));
    let said = manager.hear();
    let says = "READY=1\nSTATUS=serving /stuff; the last reload failed: ";
    assert!(said.starts_with(says), "{said}");
    assert!(
        said.contains("exports.toml:5: exprt: there is no key exprt"),
        "{said}"
    );
    served.signal(Signal::TERM);
    let said = manager.hear();
    assert_eq!(said.trim(), "STOPPING=1\nSTATUS=letting calls finish");
    assert_eq!(served.wait().status.code(), Some(0));
}

#[test]
fn watchdog_is_fed_while_the_event_loops_run() {
    let (served, manager) = Manager::starting(&[("WATCHDOG_USEC", "2000")]);
    assert!(manager.hear().starts_with("READY=1"));
    for _ in 0..3 {
        assert_eq!(manager.hear().trim(), "WATCHDOG=1");
    }
    // A stopped process runs no event loop; what it said before is all there is.
    served.signal(Signal::STOP);
    served.wait_until_stopped();
    manager.socket.set_nonblocking(true).unwrap();
    let mut message = [0; 64];
    while manager.socket.recv(&mut message).is_ok() {}
    served.signal(Signal::CONT);
    manager.socket.set_nonblocking(false).unwrap();
    assert_eq!(manager.hear().trim(), "WATCHDOG=1");
}

/// A server that is started with a file of exports and a socket as its descriptor 3, as the service of our package is.
fn activated(name: &str, args: &[&str]) -> (Served, SocketAddr) {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = socket.local_addr().unwrap();
    let around = tempfile::tempdir().unwrap();
    let dir = around.path().join("stuff");
    std::fs::create_dir(&dir).unwrap();
    let exports = format!("[[export]]\npath = {dir:?}\nsquash = \"none\"\n");
    let config = around.path().join("exports.toml");
    std::fs::write(&config, exports).unwrap();
    let mut command = Command::new("sh");
    command
        .args([
            "-c",
            "exec \"$0\" \"$@\" 3<&0 </dev/null",
            PROGRAM,
            "serve",
            "--json",
            "--config",
        ])
        .arg(config)
        .args(args)
        .env("LISTEN_FDS", "1")
        .env("LISTEN_FDNAMES", name)
        .env("STATE_DIRECTORY", around.path().join("state:/elsewhere"))
        .env_remove("LISTEN_PID")
        .stdin(OwnedFd::from(socket));
    (Served::started(around, dir, command, Say::Json), addr)
}

fn said_of(served: &Served) -> Value {
    serde_json::from_str(&served.said).unwrap()
}

#[test]
fn socket_for_rdma_is_used_as_it_is_given() {
    let (mut served, addr) = activated("rdma", &["--mount-port", "0"]);
    assert_eq!(served.listening, addr.to_string());
    let said = served.hear("a socket of the service manager");
    let names = format!("socket=\"rdma\" address={addr}");
    assert!(said.contains(&names), "{said}");
    let control = said_of(&served)["control"].as_str().unwrap().to_owned();
    let shown = text(&ok(&["stats", "--socket", &control]));
    let sockets = format!("of the service manager: rdma at {addr}\n");
    assert!(shown.contains(&sockets), "{shown}");
    let file = served.local("file", b"content");
    ok(&["put", &file, &served.url("")]);
    assert!(served.around.path().join("state/handle.key").exists());
}

#[test]
fn socket_for_tcp_is_used_as_it_is_given() {
    let options = [
        "--listen",
        "127.0.0.1:0",
        "--mount-port",
        "0",
        "--tcp",
        "127.0.0.1:1",
    ];
    let (mut served, addr) = activated("tcp", &options);
    let said = said_of(&served);
    let listener = &said["listeners"][1];
    assert_eq!(listener["address"], addr.to_string(), "{said}");
    assert_eq!(
        (&listener["provider"], &listener["socket"]),
        (&"tcp".into(), &"tcp".into())
    );
    let heard = served.hear("a socket of the service manager");
    let names = format!("socket=\"tcp\" address={addr}");
    assert!(heard.contains(&names), "{heard}");
    let control = said["control"].as_str().unwrap();
    let shown = text(&ok(&["stats", "--socket", control]));
    let sockets = format!("of the service manager: tcp at {addr}\n");
    assert!(shown.contains(&sockets), "{shown}");
    let port = addr.port().to_string();
    let exports = ok(&["exports", "--mount-port", &port, "--tcp", "127.0.0.1"]);
    assert!(text(&exports).contains("/stuff"));
}

#[test]
fn socket_for_mount_is_used_as_it_is_given() {
    let (served, addr) = activated("mount", &["--listen", "127.0.0.1:0", "--metrics", "0"]);
    assert_eq!(served.mount_port, addr.port());
    let said = said_of(&served);
    let control = said["control"].as_str().unwrap();
    let shown = text(&ok(&["stats", "--json", "--socket", control]));
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["mount_socket"], "mount");
    assert_eq!(shown["listeners"][0]["socket"], Value::Null);
    let metrics = get(said["metrics"].as_str().unwrap(), "/metrics");
    let metric = format!(
        "rpcrdma_listener_info{{service=\"mount\",listen=\"rdma://{}\",address=\"{addr}\",provider=\"tcp\",\
         device=\"\",socket=\"mount\"}} 1\n",
        served.listening
    );
    assert!(metrics.contains(&metric), "{metric} is not in {metrics}");
    let port = addr.port().to_string();
    let exports = ok(&["exports", "--mount-port", &port, "--tcp", "127.0.0.1"]);
    assert!(text(&exports).contains("/stuff"));
}

#[test]
fn port_of_mount_that_a_socket_replaces_may_be_that_of_metrics() {
    let port = free_port().to_string();
    let args = [
        "--listen=127.0.0.1:0",
        "--mount-port",
        &port,
        "--metrics",
        &port,
    ];
    let (served, addr) = activated("mount", &args);
    assert_eq!(served.mount_port, addr.port());
}

#[test]
fn socket_with_another_name_is_refused() {
    let environment = [("LISTEN_FDS", "1"), ("LISTEN_FDNAMES", "web")];
    fails_with(
        &["serve", "."],
        &environment,
        2,
        "has to be rdma, tcp or mount",
    );
}
