//! The log of a gateway: what it names, and under what its lines are filed.

use super::{Filer, Gateway, stuff};
use crate::running::{PROGRAM, fails, free_port, ok, run, text};
use rustix::process::Signal;
use serde_json::Value;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::process::Command;

#[test]
fn what_a_gateway_says_itself_is_filed_under_its_name_in_logs_for_programs() {
    let args = ["--log-format", "json"];
    let mut gateway = Gateway::between("rdma://127.0.0.1:0", "tcp://127.0.0.1:1", &args);
    gateway.signal(Signal::TERM);
    let said: Value = serde_json::from_str(&gateway.hear("letting calls finish")).unwrap();
    assert_eq!(said["target"], "gateway");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!("rdma://{}", taken.local_addr().unwrap());
    let ended = run(&[
        "gateway",
        "--log-format",
        "json",
        "--listen",
        &listen,
        "--upstream",
        "tcp://127.0.0.1:1",
    ]);
    let said = text(&ended.stderr);
    let last: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&last["level"], &last["target"]),
        (&"ERROR".into(), &"gateway".into())
    );
}

#[test]
fn statistics_in_a_log_for_programs_are_numbers_in_one_object_for_each_pair() {
    let around = tempfile::tempdir().unwrap();
    let pair = |upstream: &str| {
        format!("[[pair]]\nlisten = \"rdma://127.0.0.1:0\"\nupstream = \"tcp://{upstream}\"\n")
    };
    let (dir, _) = stuff();
    let filer = Filer::new(dir.path());
    let pairs = pair(&filer.addr.to_string()) + &pair("127.0.0.1:1");
    let file = around.path().join("gateway.toml");
    std::fs::write(&file, pairs).unwrap();
    let args = ["--config", file.to_str().unwrap(), "--log-format", "json"];
    let mut gateway = Gateway::within(around, &args, &[]);
    ok(&["cat", &gateway.url("stuff/file")]);
    gateway.signal(Signal::USR1);
    let shown: Value = serde_json::from_str(&gateway.ask(&["stats", "--json"])).unwrap();
    for (index, pair) in shown["pairs"].as_array().unwrap().iter().enumerate() {
        let said: Value = serde_json::from_str(&gateway.hear("statistics")).unwrap();
        assert_eq!(said["level"], "INFO");
        assert_eq!(said["message"], "statistics");
        assert_eq!(said["target"], "gateway");
        assert_eq!(said["pid"], gateway.child.id());
        for key in ["listen", "upstream"] {
            assert_eq!(said[key], pair[key], "{said}");
        }
        let names = |of: &Value| -> Vec<String> {
            let members = of["counters"].as_object().unwrap();
            members.keys().cloned().collect()
        };
        assert_eq!(names(&said), names(pair));
        let calls = said["counters"]["calls"].as_u64().unwrap();
        assert_eq!(calls > 0, index == 0, "{said}");
        assert_eq!(said["oldest_call_seconds"], 0.0);
    }
}

#[test]
fn errors_name_keys_of_the_file_and_options_of_the_command_line() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let (listen, free) = (format!("rdma://127.0.0.1:{port}"), "rdma://127.0.0.1:0");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("gateway.toml");
    let configured = |text: &str, says: &str| {
        std::fs::write(&file, text).unwrap();
        let args = ["gateway", "--config", file.to_str().unwrap()];
        fails(&args, 1, says);
        fails(&[&args[..], &["--check"]].concat(), 1, says);
    };
    let given = |listen: &str, more: &[&str], says: &str| {
        let pair = [
            "gateway",
            "--listen",
            listen,
            "--upstream",
            "tcp://127.0.0.1:1",
        ];
        fails(&[&pair[..], more].concat(), 1, says);
    };
    let pair = |listen: &str| {
        format!("[[pair]]\nlisten = \"{listen}\"\nupstream = \"tcp://127.0.0.1:1\"\n")
    };
    configured(
        &pair(&listen),
        &format!("choose another port with listen of the pair {listen}"),
    );
    given(&listen, &[], "choose another port with --listen");
    configured(
        &format!("{}mount_port = {port}\n", pair(free)),
        &format!("choose another port with mount_port of the pair {free}"),
    );
    let port = port.to_string();
    given(
        free,
        &["--mount-port", &port],
        "another port with --mount-port",
    );
    configured(
        &format!("[gateway]\nmetrics = {port}\n{}", pair(free)),
        "choose another port with metrics of [gateway]",
    );
    given(free, &["--metrics", &port], "another port with --metrics");
}

#[test]
fn clients_of_mount_that_are_refused_are_logged_with_the_pair_and_counted() {
    let args = ["--mount-port", "0", "--allow", "192.0.2.0/24"];
    let mut gateway = Gateway::between("rdma://127.0.0.1:0", "tcp://127.0.0.1:1", &args);
    let port = gateway.said["pairs"][0]["mount_port"].as_u64().unwrap();
    let client = TcpStream::connect(("127.0.0.1", u16::try_from(port).unwrap())).unwrap();
    let said = gateway.hear("not allowed");
    let from = client.local_addr().unwrap().to_string();
    for part in [&from, &gateway.rdma_url()] {
        assert!(said.contains(part), "{said}");
    }
    assert_eq!(gateway.counter("refused"), 1);
}

#[test]
fn state_directory_that_cannot_be_made_is_told_with_what_to_do() {
    let around = tempfile::tempdir().unwrap();
    let file = around.path().join("file");
    std::fs::write(&file, "").unwrap();
    let mut command = Command::new(PROGRAM);
    let listen = format!("rdma://127.0.0.1:{}", free_port());
    command
        .args(["gateway", "--json", "--listen", &listen])
        .args(["--upstream", "tcp://127.0.0.1:1"])
        .env("XDG_STATE_HOME", &file)
        .env_remove("RUNTIME_DIRECTORY");
    let mut gateway = Gateway::started(around, command);
    assert_eq!(gateway.said["control"], Value::Null);
    let said = gateway.hear("cannot ask this gateway");
    let dir = file.join("rpcrdma");
    for part in [dir.to_str().unwrap(), "--control-socket"] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn clients_that_speak_the_other_transport_are_logged_with_the_pair() {
    let check = |scheme: &str, upstream: &str, sends: &[u8], says: &str| {
        let listen = format!("{scheme}://127.0.0.1:{}", free_port());
        let mut gateway = Gateway::between(&listen, upstream, &[]);
        let mut client = TcpStream::connect(gateway.addr(0)).unwrap();
        client.write_all(sends).unwrap();
        let said = gateway.hear(says);
        assert!(said.contains(&listen), "{said}");
    };
    let call = [&[0x80, 0, 0, 40][..], &[0; 40]].concat();
    check(
        "rdma",
        "tcp://127.0.0.1:1",
        &call,
        "connection setup failed",
    );
    let request = b"MPA ID Req Frame\x40\x01\0\0";
    check("tcp", "rdma://127.0.0.1:1", request, "RFC 5531 §11");
    let http = b"GET / HTTP/1.1\r\n\r\n";
    check(
        "tcp",
        "rdma://127.0.0.1:1",
        http,
        "does the peer speak RPC?",
    );
}
