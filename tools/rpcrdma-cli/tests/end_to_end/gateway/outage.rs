//! A server that is away, or speaks the other transport: what the log of a gateway says of it.

use super::{Filer, Gateway, stuff};
use crate::running::{PROGRAM, Running, Served, free_port, text};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

#[test]
fn outage_is_one_warning_for_all_clients_and_one_line_when_the_server_answers_again() {
    let (dir, content) = stuff();
    let addr: SocketAddr = ([127, 0, 0, 1], free_port()).into();
    let mut gateway = Gateway::between("rdma://127.0.0.1:0", &format!("tcp://{addr}"), &[]);
    let url = gateway.url("stuff/file");
    let client = || {
        Running::spawn(
            Command::new(PROGRAM)
                .args(["cat", &url])
                .stdout(Stdio::piped()),
        )
    };
    let clients = [client(), client(), client()];
    // Each of them has been tried for at least once.
    while gateway.counter("connections") < 3 || gateway.counter("upstream_attempts_failed") < 9 {}
    let _filer = Filer::at(addr, dir.path());
    for client in clients {
        let output = client.output();
        assert!(output.stdout == content, "{}", text(&output.stderr));
    }
    let said = gateway.hear_until("answers again after");
    assert_eq!(said.matches("cannot be reached").count(), 1, "{said}");
    let last = said.lines().last().unwrap();
    assert!(last.contains("INFO"), "{last}");
    assert!(last.contains(&gateway.rdma_url()), "{last}");
    assert!(last.contains("waited or ended: 3)"), "{last}");
}

#[test]
fn rdma_port_behind_a_tcp_url_is_told_in_the_log() {
    let served = Served::new(&["--trust-local"]);
    let upstream = format!("tcp://{}", served.listening);
    let mut gateway = Gateway::between("rdma://127.0.0.1:0", &upstream, &[]);
    let addr = gateway.listening(0);
    let mut ping = Command::new(PROGRAM);
    ping.args(["ping", "-c1", &addr]);
    let _ping = Running::spawn(ping.stdout(Stdio::null()).stderr(Stdio::null()));
    let said = gateway.hear("before its first reply");
    assert!(said.contains("is it an NFS/RDMA port"), "{said}");
}

#[test]
fn tcp_port_behind_an_rdma_url_is_told_in_the_log() {
    let (dir, _) = stuff();
    let filer = Filer::new(dir.path());
    let upstream = format!("rdma://{}", filer.addr);
    let mut gateway = Gateway::between("rdma://127.0.0.1:0", &upstream, &[]);
    let addr = gateway.listening(0);
    let mut ping = Command::new(PROGRAM);
    ping.args(["ping", "-c1", &addr]);
    let _ping = Running::spawn(ping.stdout(Stdio::null()).stderr(Stdio::null()));
    let said = gateway.hear("cannot be reached");
    assert!(said.contains("is this the plain NFS/TCP port?"), "{said}");
}
