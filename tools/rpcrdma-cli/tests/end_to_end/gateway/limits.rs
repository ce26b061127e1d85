//! Clients that a gateway has no place for, or no longer allows.

use super::{DEADLINE, Filer, Gateway, null, stuff};
use crate::running::{PROGRAM, Running, free_port, run};
use oncrpc_tcp::Client;
use rustix::process::Signal;
use std::net::TcpStream;
use std::process::{Command, Stdio};
use tokio::runtime::Runtime;

#[test]
fn connections_refused_as_too_many_are_told_with_the_limit_and_counted() {
    let (dir, _) = stuff();
    let filer = Filer::new(dir.path());
    let check = |listen: &str, upstream: &str| {
        let args = ["--max-connections", "1", "--metrics", "0"];
        let listen = format!("{listen}://127.0.0.1:{}", free_port());
        let mut gateway = Gateway::between(&listen, upstream, &args);
        let addr = gateway.listening(0);
        let runtime = Runtime::new().unwrap();
        let (mut first, mut second) = (None, None);
        let mut ping = Command::new(PROGRAM);
        if listen.starts_with("tcp") {
            let connected = runtime.block_on(Client::connect(gateway.addr(0), DEADLINE));
            let client = connected.unwrap();
            runtime.block_on(async {
                // Its call waits for the server.
                let call = null(&client);
                tokio::select! {
                    _ = call => {}
                    () = async { while gateway.counter("connections") == 0 { tokio::task::yield_now().await } } => {}
                }
            });
            first = Some(client);
            second = Some(TcpStream::connect(gateway.addr(0)).unwrap());
        } else {
            ping.args(["ping", "-i", "10ms", &addr]);
            let pinging = Running::spawn(ping.stdout(Stdio::null()).stderr(Stdio::null()));
            while gateway.counter("calls") == 0 {}
            assert!(!run(&["ping", "-c1", &addr]).status.success());
            drop(pinging);
        }
        let said = gateway.hear("too many connections from this address: 1 of 1 are its limit");
        assert!(said.contains("--max-connections"), "{said}");
        assert!(said.contains(&listen), "{said}");
        assert_eq!(gateway.counter("refused_as_too_many"), 1);
        let metrics = gateway.metrics();
        let metric = format!("rpcrdma_gateway_refused_as_too_many_total{{listen=\"{listen}\"");
        assert!(metrics.contains(&metric), "{metrics}");
        let stats = gateway.ask(&["stats"]);
        assert!(stats.contains("too many"), "{stats}");
        drop((first, second));
    };
    check("rdma", &filer.url());
    check("tcp", "rdma://127.0.0.1:1");
}

#[test]
fn client_that_is_no_longer_allowed_loses_its_connection_at_a_reload_and_others_keep_theirs() {
    let served = crate::running::Served::new(&["--trust-local"]);
    let pair = |allow: &str| {
        format!(
            "[gateway]\ntrust_local = true\n[[pair]]\nlisten = \"tcp://127.0.0.1:0\"\n\
             upstream = \"rdma://{}\"\nallow = [{allow}]\n",
            served.listening
        )
    };
    let mut gateway = Gateway::configured(&pair("\"127.0.0.1\""));
    let runtime = Runtime::new().unwrap();
    let connected = runtime.block_on(Client::connect(gateway.addr(0), DEADLINE));
    let client = connected.unwrap();
    assert!(runtime.block_on(null(&client)));
    gateway.configure(&pair("\"127.0.0.1\", \"192.0.2.0/24\""));
    gateway.signal(Signal::HUP);
    let said = gateway.hear("pairs read again");
    assert!(
        said.contains("changed allow of tcp://127.0.0.1:0 (connections kept)"),
        "{said}"
    );
    assert!(runtime.block_on(null(&client)));
    gateway.configure(&pair("\"192.0.2.0/24\""));
    gateway.signal(Signal::HUP);
    gateway.hear("nobody can connect");
    let said = gateway.hear("pairs read again");
    assert!(said.contains("not allowed any more: 1)"), "{said}");
    runtime.block_on(client.ended());
    gateway.configure(&(pair("\"192.0.2.0/24\", \"127.0.0.1\"") + "mount_port = 0\n"));
    gateway.signal(Signal::HUP);
    let said = gateway.hear("pairs read again");
    assert!(said.contains("started anew tcp://127.0.0.1:0"), "{said}");
}
