//! The program against itself: a server, and every command that works on it.

mod access_lists;
mod addresses;
mod bench_server;
mod commands;
mod common_options;
mod config;
mod conform;
mod contrib;
mod copies;
mod copy_plan;
mod coreutils;
mod designs;
mod devices;
mod dialects;
mod ending;
mod errors;
mod files;
mod full;
mod gateway;
mod hard_links;
mod holes;
mod hostile;
mod interrupts;
mod local_users;
mod ls;
mod manual;
mod memory;
mod mistakes;
mod monitoring;
mod mount;
mod nfs4;
mod operation;
mod outage;
mod ping;
mod probe;
mod progress;
mod resume;
mod running;
mod schemas;
mod scripted;
mod statistics;
mod systemd;
mod tcp;
mod terminal;
mod unfinished;
mod zones;

use running::{Served, text};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::TcpStream;

#[test]
fn server_exits_successfully_on_sigterm_and_sigint() {
    for signal in [Signal::TERM, Signal::INT] {
        let served = Served::new(&[]);
        assert_eq!(text(&running::ok(&["ls", &served.url("")])), "");
        let output = served.stop(signal);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
}

#[test]
fn every_command_explains_itself_with_examples() {
    for command in [
        "serve",
        "gateway",
        "ls",
        "cat",
        "get",
        "put",
        "cp",
        "mkdir",
        "rmdir",
        "rm",
        "mv",
        "ln",
        "touch",
        "chmod",
        "chown",
        "stat",
        "du",
        "df",
        "exports",
        "ping",
        "probe",
        "devices",
        "bench",
        "stats",
        "clients",
        "completions",
        "man-pages",
    ] {
        let help = text(&running::ok(&[command, "--help"]));
        assert!(help.contains("Examples:\n  rpcrdma "), "{command}: {help}");
    }
}

#[test]
fn announcement_says_how_to_mount_and_under_which_rules() {
    let served = Served::with(&["--read-only", "--squash", "all"], running::Say::Text);
    let said = &served.said;
    for part in [
        "/stuff is ",
        "(read-only, also as /)",
        "127.0.0.0/8, ::1/128",
        "serving NFSv4.2, 4.1 and 3 on RPC-over-RDMA ",
        "\n  mount -t nfs -o proto=rdma,port=",
        "\n  mount -t nfs -o vers=3,nolock,proto=rdma,port=",
        "rpcrdma ls -l nfs://127.0.0.1:",
    ] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    // The easiest mount: one command on each line, below what they are for.
    let lines: Vec<&str> = said.lines().map(str::trim).collect();
    let over_tcp = "or without an RDMA device, over TCP (serve with --tcp 2049), or through a gateway on the client:";
    let at = lines.iter().position(|line| *line == over_tcp);
    let at = at.unwrap_or_else(|| panic!("{over_tcp} is not in {said}"));
    let gateway = "rpcrdma gateway --listen tcp://127.0.0.1 --upstream rdma://127.0.0.1:";
    assert!(lines[at + 1].starts_with(gateway), "{said}");
    let mount = lines[at + 2];
    assert_eq!(mount, "mount -t nfs -o port=2049 127.0.0.1:/stuff /mnt");
}

#[test]
fn easiest_mount_is_where_readers_begin() {
    for (page, text) in [
        ("README.md", include_str!("../../../../README.md")),
        (
            "first-mount.md",
            include_str!("../../../../docs/guide/first-mount.md"),
        ),
        (
            "linux-client.md",
            include_str!("../../../../docs/guide/linux-client.md"),
        ),
    ] {
        for command in [
            "\nmount -t nfs -o proto=rdma,port=20049 ",
            "\nmount -t nfs -o port=2049 ",
            "\nmount -t nfs -o vers=3,nolock,",
        ] {
            assert!(text.contains(command), "{page} lacks {command}");
        }
    }
}

#[test]
fn server_whose_standard_error_nobody_reads_goes_on_serving() {
    // Every work request is logged: of a thousand calls more than any pipe holds.
    let served = Served::new(&["--log=trace"]);
    let calls = [
        "ping",
        &served.listening,
        "--count",
        "1000",
        "--interval",
        "0",
    ];
    running::ok(&calls);
    let file = served.local("file", &[7; 100_000]);
    running::ok(&["put", &file, &served.url("")]);
    assert_eq!(running::ok(&["cat", &served.url("file")]), [7; 100_000]);
    let output = served.stop(Signal::TERM);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0));
    assert!(errors.contains(" lines of the log were lost\n"));
}

#[test]
fn warnings_about_one_peer_are_limited_and_summed_up() {
    let served = Served::new(&[]);
    for _ in 0..100 {
        let mut stream = TcpStream::connect(&served.listening).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        // It is refused.
        let _ = stream.read_to_end(&mut Vec::new());
    }
    let output = served.stop(Signal::TERM);
    let errors = text(&output.stderr);
    let warnings = errors.matches("connection setup failed").count();
    assert_eq!(warnings, 8, "{errors}");
    let me = rustix::process::geteuid().as_raw();
    let rest = format!("further warnings about this peer peer=uid {me} of this machine count=92");
    assert!(errors.contains(&rest), "{errors}");
}
