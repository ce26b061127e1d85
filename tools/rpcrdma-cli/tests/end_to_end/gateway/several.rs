//! `stats`, `clients` and `exports` where several servers and gateways run on one machine.

use super::{Filer, Gateway, stuff};
use crate::running::{PROGRAM, Served, free_port, ok, text};
use rustix::process::Signal;
use serde_json::Value;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

/// A place for control sockets that the commands look into.
struct Machine {
    home: TempDir,
}

impl Machine {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join("rpcrdma")).unwrap();
        Self { home }
    }

    fn socket(&self, name: &str) -> String {
        let path = self.home.path().join("rpcrdma").join(name);
        path.to_str().unwrap().to_owned()
    }

    fn serve(&self, name: &str) -> Served {
        Served::new(&["--control-socket", &self.socket(name)])
    }

    fn gateway(&self, upstream: &str) -> Gateway {
        let mut command = Command::new(PROGRAM);
        command
            .args(["gateway", "--json", "--listen", "rdma://127.0.0.1:0"])
            .args(["--upstream", upstream])
            .env("XDG_STATE_HOME", self.home.path())
            .env_remove("RUNTIME_DIRECTORY");
        Gateway::started(tempfile::tempdir().unwrap(), command)
    }

    /// Runs a command that finds what runs here.
    fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(PROGRAM);
        let command = command.args(args).env("XDG_STATE_HOME", self.home.path());
        command.output().unwrap()
    }

    #[track_caller]
    fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let errors = text(&output.stderr);
        assert!(output.status.success(), "{errors}");
        text(&output.stdout)
    }
}

#[test]
fn stats_shows_a_server_and_a_gateway_with_the_socket_of_each() {
    let machine = Machine::new();
    let served = machine.serve("control-server.sock");
    let gateway = machine.gateway("tcp://127.0.0.1:1");
    let shown = machine.ok(&["stats"]);
    let server = format!("server at {}, process {}", served.listening, served.pid());
    let pair = format!(
        "gateway at {}, process {}",
        gateway.rdma_url(),
        gateway.child.id()
    );
    let sockets = [
        machine.socket("control-server.sock"),
        gateway.said["control"].as_str().unwrap().to_owned(),
    ]
    .map(|socket| format!("\n--socket {socket}\n"));
    for part in [&server, &pair].into_iter().chain(&sockets) {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    assert!(shown.contains("\n\nserver at "), "{shown}");

    let twice = machine.ok(&["stats", "--interval", "0.01", "--count", "2"]);
    for part in [&server, &pair] {
        assert_eq!(twice.matches(part).count(), 2, "{twice}");
        let again = twice.rfind(&**part).unwrap();
        assert!(twice[..again].ends_with("\n\n"), "{twice}");
    }
    assert!(twice.contains("\ncalls        0/s\n"), "{twice}");

    let lines = machine.ok(&["stats", "--json"]);
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let pids: Vec<_> = lines
        .iter()
        .map(|line| line["pid"].as_u64().unwrap())
        .collect();
    assert_eq!(pids.len(), 2);
    for pid in [served.pid(), gateway.child.id()] {
        assert!(pids.contains(&pid.into()), "{pids:?}");
    }
}

#[test]
fn clients_shows_which_server_each_client_is_connected_to() {
    let machine = Machine::new();
    let served = machine.serve("control-server.sock");
    let (dir, content) = stuff();
    let filer = Filer::new(dir.path());
    let gateway = machine.gateway(&filer.url());
    assert!(ok(&["cat", &gateway.url("stuff/file")]) == content);
    let clients = [served.listening.clone(), gateway.listening(0)].map(|listening| {
        let client = TcpStream::connect(&listening).unwrap();
        let from = client.local_addr().unwrap().to_string();
        (client, from, format!("rdma://{listening}"))
    });
    for (_, from, listen) in &clients {
        // It is in setup until it says something.
        let found = loop {
            let lines = machine.ok(&["clients", "--json"]);
            let mut lines = lines
                .lines()
                .map(|line| serde_json::from_str::<Value>(line).unwrap());
            if let Some(found) = lines.find(|line| line["address"] == **from) {
                break found;
            }
        };
        assert_eq!(found["listen"], **listen);
    }
    let shown = machine.ok(&["clients"]);
    for part in ["server at ", "gateway at "] {
        assert!(shown.contains(part), "{shown}");
    }
}

#[test]
fn server_that_has_stopped_answering_is_told_and_others_are_shown() {
    let machine = Machine::new();
    let _served = machine.serve("control-a.sock");
    let other = machine.socket("control-b.sock");
    // Whoever has this socket closes each connection without an answer.
    let listener = std::os::unix::net::UnixListener::bind(&other).unwrap();
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let output = machine.run(&["stats"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("server at "));
    assert!(text(&output.stderr).contains(&other));
}

#[test]
fn exports_are_those_of_the_server_beside_a_gateway() {
    let machine = Machine::new();
    let served = machine.serve("control-a.sock");
    let _gateway = machine.gateway("tcp://127.0.0.1:1");
    assert!(machine.ok(&["exports"]).contains("/stuff"));

    let other = machine.serve("control-b.sock");
    let output = machine.run(&["exports"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("several servers run here"), "{said}");
    for (server, name) in [(&served, "control-a.sock"), (&other, "control-b.sock")] {
        let at = format!(
            "{} (server at {}, process {})",
            machine.socket(name),
            server.listening,
            server.pid()
        );
        assert!(said.contains(&at), "{at} is not in {said}");
    }
    assert!(!said.contains("gateway"), "{said}");
    other.stop(Signal::TERM);
    assert!(!Path::new(&machine.socket("control-b.sock")).exists());
    assert!(machine.ok(&["exports"]).contains("/stuff"));
}

#[test]
fn each_address_of_a_pair_is_served_and_shown_as_a_pair() {
    let (dir, content) = stuff();
    let filer = Filer::new(dir.path());
    let around = tempfile::tempdir().unwrap();
    let mount = free_port();
    let file = format!(
        "[[pair]]\nlisten = [\"rdma://127.0.0.1:0\", \"rdma://127.0.0.2:0\", \"rdma://127.0.0.1:0\"]\n\
         upstream = \"{}\"\nmount_port = {mount}\n",
        filer.url()
    );
    let gateway = Gateway::configured_in(around, &file, &[]);
    for pair in 0..3 {
        let path = "stuff/file";
        let at = gateway.listening(pair);
        assert!(ok(&["cat", &format!("nfs://{at}/{path}")]) == content);
    }
    let ports = gateway.said["pairs"].as_array().unwrap().iter();
    let ports: Vec<Option<u64>> = ports.map(|pair| pair["mount_port"].as_u64()).collect();
    // Both addresses of one host have the same.
    assert_eq!(ports, [Some(mount.into()); 3]);
}
