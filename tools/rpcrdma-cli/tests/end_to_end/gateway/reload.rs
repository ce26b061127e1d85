//! Pairs that a gateway is told to replace.

use super::{DEADLINE, Filer, Gateway, null, stuff};
use crate::running::{Served, free_port, ok};
use oncrpc_tcp::Client;
use rustix::process::Signal;
use serde_json::Value;
use std::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

#[test]
fn reload_adds_and_removes_pairs_and_leaves_others_alone() {
    let (dir, content) = stuff();
    let filer = Filer::new(dir.path());
    let served = Served::new(&["--trust-local", "--squash", "none"]);
    std::fs::write(served.dir.join("file"), &content).unwrap();
    let (kept, first, second) = (free_port(), free_port(), free_port());
    let pair = |listen: &str, port: u16, upstream: &str| {
        format!("[[pair]]\nlisten = \"{listen}://127.0.0.1:{port}\"\nupstream = \"{upstream}\"\n")
    };
    let options = "[gateway]\ntrust_local = true\n";
    let stays = pair("tcp", kept, &format!("rdma://{}", served.listening));
    let mut gateway = Gateway::configured(&format!(
        "{options}{stays}{}",
        pair("rdma", first, &filer.url())
    ));
    ok(&["ls", &format!("nfs://127.0.0.1:{first}/stuff/")]);
    let runtime = Runtime::new().unwrap();
    let addr = gateway.addr(0);
    let client = runtime.block_on(Client::connect(addr, DEADLINE)).unwrap();
    assert!(runtime.block_on(null(&client)));

    let other = pair("rdma", second, &filer.url());
    gateway.configure(&format!("{options}{stays}{other}"));
    gateway.signal(Signal::HUP);
    let said = gateway.hear("pairs read again");
    assert!(
        said.contains(&format!("added rdma://127.0.0.1:{second}")),
        "{said}"
    );
    assert!(
        said.contains(&format!("removed rdma://127.0.0.1:{first}")),
        "{said}"
    );
    assert!(
        runtime.block_on(null(&client)),
        "the connection is still there"
    );
    ok(&["ls", &format!("nfs://127.0.0.1:{second}/stuff/")]);
    assert!(TcpStream::connect(("127.0.0.1", first)).is_err());

    gateway.configure("[[pair]]\nlisten = \"rdma://127.0.0.1\"\nupstrem = \"tcp://filer\"\n");
    gateway.signal(Signal::HUP);
    let said = gateway.hear("the pairs stay as they are");
    assert!(
        said.contains("gateway.toml:3: pair[0].upstrem: there is no key"),
        "{said}"
    );
    assert!(runtime.block_on(null(&client)));
    let stats: Value = serde_json::from_str(&gateway.ask(&["stats", "--json"])).unwrap();
    assert_eq!(stats["pairs"].as_array().unwrap().len(), 2);
    assert_eq!(stats["reloads"]["failed"], 1);
    assert_eq!(
        (gateway.counter("connections"), gateway.counter("calls")),
        (1, 3)
    );
}

#[test]
fn reload_ends_no_pair_for_one_that_cannot_be_started() {
    let (dir, content) = stuff();
    let filer = Filer::new(dir.path());
    let (port, taken) = (free_port(), free_port());
    let _other = TcpListener::bind(("127.0.0.1", taken)).unwrap();
    let elsewhere = TcpListener::bind(("127.0.0.2", port)).unwrap();
    let pair = |listen: &str, upstream: &str| {
        format!("[[pair]]\nlisten = \"rdma://{listen}\"\nupstream = \"{upstream}\"\n")
    };
    let here = format!("127.0.0.1:{port}");
    let before = pair(&here, &filer.url());
    let mut gateway = Gateway::configured(&before);
    let url = gateway.url("stuff/file");
    let mut reload = |text: &str, says: &str, why: &str, shows: &str| {
        gateway.configure(text);
        gateway.signal(Signal::HUP);
        let said = gateway.hear(says);
        assert!(said.contains(why), "{said}");
        assert!(ok(&["cat", &url]) == content);
        // The log comes before what is told of the reload.
        let stats = loop {
            let stats = gateway.ask(&["stats", "-l"]);
            if stats.contains(why) {
                break stats;
            }
        };
        assert!(stats.contains(shows), "{stats}");
        assert!(
            stats.contains(&format!("rdma://{here}  {}", filer.url())),
            "{stats}"
        );
    };
    let kept = format!("not changed: rdma://{here} to tcp://");
    let unknown = pair(&here, "tcp://no-such-host.invalid");
    reload(&unknown, "is not changed", "cannot find this host", &kept);
    let mount = format!("{before}mount_port = {taken}\n");
    let in_use = format!("port {taken} of 127.0.0.1 is in use");
    reload(&mount, "is not changed", &in_use, &kept);
    let moved = pair(&format!("127.0.0.1:{taken}"), &filer.url());
    reload(
        &moved,
        "is not changed",
        &in_use,
        &format!("rdma://{here} goes on"),
    );
    // That another has the port is known once the pair has ended, which is started again.
    let wider = pair(&format!("0.0.0.0:{port}"), &filer.url()) + "allow = [\"127.0.0.1\"]\n";
    let in_use_everywhere = format!("port {port} of 0.0.0.0 is in use");
    reload(
        &wider,
        "is not changed",
        &in_use_everywhere,
        &format!("rdma://{here} goes on"),
    );
    reload(
        &(before.clone() + &moved),
        "is not served",
        &in_use,
        &format!("not served: rdma://127.0.0.1:{taken}"),
    );
    drop(elsewhere);
    gateway.configure(&before);
    gateway.signal(Signal::HUP);
    gateway.hear("nothing has changed");
    while gateway.ask(&["stats"]).contains("not served") {}
}

#[test]
fn options_that_take_effect_at_a_restart_are_named_at_a_reload() {
    let pair = "[[pair]]\nlisten = \"rdma://127.0.0.1:0\"\nupstream = \"tcp://127.0.0.1:1\"\n";
    let mut gateway = Gateway::configured(&format!(
        "[gateway]\nthreads = 1\nidle_timeout = \"1m\"\n{pair}"
    ));
    let text = "[gateway]\nidle_timeout = \"1m\"\nmax_connections = 7\nallow = [\"127.0.0.1\"]\n";
    gateway.configure(&format!("{text}{pair}"));
    gateway.signal(Signal::HUP);
    let said = gateway.hear("take effect at a restart");
    assert!(
        said.trim_end()
            .ends_with("restart: max_connections, threads"),
        "{said}"
    );
}
