//! IPv6 addresses with a zone (RFC 6874).

use crate::running::{PROGRAM, Say, Served, ok, text};
use std::net::TcpListener;
use std::process::{Command, Stdio};

#[test]
fn server_is_reached_at_an_address_with_a_zone() {
    if TcpListener::bind("[::1]:0").is_err() {
        eprintln!("skipped: this machine has no IPv6");
        return;
    }
    let around = tempfile::tempdir().unwrap();
    let dir = around.path().join("stuff");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("file"), "content").unwrap();
    let mut command = Command::new(PROGRAM);
    // The number of the loopback interface, which every user and every network has.
    command
        .args([
            "serve",
            "--json",
            "--listen",
            "[::1%1]:0",
            "--mount-port",
            "0",
        ])
        .arg("--state-dir")
        .arg(around.path().join("state"))
        .arg(&dir)
        .stdin(Stdio::null());
    let served = Served::started(around, dir, command, Say::Json);
    let port = served.listening.rsplit_once(':').unwrap().1;
    for host in ["[::1%251]", "[::1%1]"] {
        let url = format!("nfs://{host}:{port}/stuff/file");
        assert_eq!(ok(&["cat", &url]), b"content");
        let exports = text(&ok(&["exports", &format!("{host}:{port}")]));
        assert!(exports.starts_with("/stuff "), "{exports}");
    }
    let mount = format!("[::1%1]:{}", served.mount_port);
    let exports = text(&ok(&["exports", "--tcp", &mount]));
    assert!(exports.starts_with("/stuff "), "{exports}");
}
