//! A server that answers MOUNT over TCP only, as Linux does.

use crate::running::{PROGRAM, fails, free_port, ok, text};
use buffer::Pool;
use nfs_server::{
    ExportOptions, Exports, HandleKey, LocalFs, LocalFsOptions, Mount3, Nfs3, Squash,
};
use oncrpc::Programs;
use rpcrdma::{Server, ServerConfig};
use std::future::pending;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use verbs_iwarp::Iwarp;

/// Script that runs `showmount -e` in a network of its own, with an rpcbind of its own. All of it ends
/// with the shell.
const SHOWMOUNT: &str = r#"
set -e
ip link set lo up
mount -t tmpfs none /run
mkdir /run/rpcbind /run/data
rpcbind -w
mkfifo /run/said
"$0" serve /run/data --rpcbind --state-dir /run/state --json --listen 127.0.0.1:0 --mount-port 0 >/run/said &
read said </run/said
showmount --no-headers -e 127.0.0.1
"#;

#[test]
fn showmount_lists_exports_of_a_server_that_rpcbind_knows() {
    let is_there = |program: &str| {
        let found = Command::new(program).arg("--version").output();
        found.is_ok_and(|output| output.status.code() != Some(127))
    };
    let programs = ["unshare", "ip", "rpcbind", "showmount"].into_iter();
    let missing: Vec<&str> = programs.filter(|program| !is_there(program)).collect();
    if !missing.is_empty() || !rustix::process::geteuid().is_root() {
        eprintln!("not run: it needs root, and nfs-common; there is no {missing:?}");
        return;
    }
    let output = Command::new("unshare")
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child"])
        .args(["sh", "-c", SHOWMOUNT, PROGRAM])
        .output()
        .unwrap();
    assert_eq!(
        text(&output.stdout),
        "/data 127.0.0.0/8,::1/128\n/     127.0.0.0/8,::1/128\n",
        "{}",
        text(&output.stderr)
    );
}

fn exports(dir: &Path) -> Exports {
    let fs = LocalFs::open(dir, LocalFsOptions::default()).unwrap();
    let options = ExportOptions::default().with_squash(Squash::None);
    Exports::new(HandleKey::random().unwrap())
        .with("/srv/data", Arc::new(fs), options)
        .unwrap()
}

#[test]
fn mount_is_asked_for_over_tcp_where_rdma_has_none() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "content").unwrap();
    let exports = exports(dir.path());
    let runtime = Runtime::new().unwrap();
    let (server, listener) = runtime.block_on(async {
        let programs = Programs::new().with(Nfs3::new(exports.clone(), Pool::new(1 << 20)));
        let server = Server::bind(
            Arc::new(Iwarp::default()),
            "127.0.0.1:0".parse().unwrap(),
            Arc::new(programs),
            ServerConfig::default(),
        );
        let listener = TcpListener::bind("127.0.0.1:0");
        (server.await.unwrap(), listener.await.unwrap())
    });
    let url = format!("nfs://{}/srv/data/file", server.local_addr());
    let mount_port = listener.local_addr().unwrap().port().to_string();
    let args = ["cat", "--mount-port", &mount_port, &url];

    // What answers at the usual port of MOUNT may be another server of that host.
    let not_asked = "MOUNT over TCP at port 20048 is not asked";
    fails(&["cat", &url], 1, not_asked);
    let local = dir.path().join("file").display().to_string();
    fails(&["put", &local, &url], 1, not_asked);
    fails(&["exports", &server.local_addr().to_string()], 1, not_asked);

    let nobody = free_port().to_string();
    let args_nobody = ["cat", "--mount-port", &nobody, &url];
    fails(&args_nobody, 1, "nobody does over TCP at port");

    let mounts = Programs::new().with(Mount3::new(exports));
    let mounts = oncrpc_tcp::Server::new(listener, Arc::new(mounts), oncrpc_tcp::Limits::default());
    runtime.spawn(mounts.run(pending()));
    assert_eq!(ok(&args), b"content");
    let server_addr = server.local_addr().to_string();
    let over_tcp = format!("127.0.0.1:{mount_port}");
    let exports = ok(&["exports", "--tcp", &over_tcp]);
    assert!(!exports.is_empty());
    let nobody = format!("127.0.0.1:{}", free_port());
    fails(
        &["exports", "--tcp", &nobody],
        1,
        "nobody answers MOUNT over TCP",
    );
    let exports = ok(&["exports", "--mount-port", &mount_port, &server_addr]);
    assert_eq!(
        text(&exports),
        "/srv/data  127.0.0.0/8,::1/128\n/          127.0.0.0/8,::1/128\n"
    );
    runtime.block_on(server.shutdown());
}
