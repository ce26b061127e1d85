//! Statistics of a server: metrics over HTTP, and `stats` and `clients` over its control socket.

use crate::running::{PROGRAM, Served, fails, ok, text};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A value of the announcement.
pub(crate) fn said(served: &Served, key: &str) -> String {
    let said: serde_json::Value = serde_json::from_str(&served.said).unwrap();
    said[key].as_str().unwrap().to_owned()
}

/// Sends a request to an HTTP server, and gives its reply.
fn exchange(addr: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

/// Returns the document of an HTTP server at a path.
pub(crate) fn get(addr: &str, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    exchange(addr, &request)
}

/// A server with a file that was put there, and the arguments by which `stats` asks it.
fn served() -> (Served, [String; 2]) {
    let served = Served::new(&["--metrics", "0"]);
    let file = served.local("file", &[7; 100_000]);
    ok(&["put", &file, &served.url("")]);
    fails(&["cat", &served.url("none")], 1, "no such file");
    let socket = ["--socket".to_owned(), said(&served, "control")];
    (served, socket)
}

fn ask(command: &[&str], socket: &[String; 2]) -> String {
    let [option, path] = socket;
    text(&ok(&[command, &[&option[..], &path[..]]].concat()))
}

#[test]
fn metrics_are_in_the_text_format_of_prometheus() {
    let (served, _) = served();
    let addr = said(&served, "metrics");
    assert!(addr.starts_with("127.0.0.1:"), "{addr}: not for others");
    let reply = get(&addr, "/metrics");
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    assert!(
        head.contains("content-type: text/plain; version=0.0.4"),
        "{head}"
    );
    for line in [
        "# TYPE rpcrdma_nfs_calls_total counter",
        "rpcrdma_nfs_calls_total{program=\"nfs\",procedure=\"CREATE\"} 1",
        "rpcrdma_nfs_calls_total{program=\"nfs\",procedure=\"MKNOD\"} 0",
        "rpcrdma_nfs_calls_total{program=\"nfsacl\",procedure=\"SETACL\"} 0",
        "rpcrdma_nfs_calls_total{program=\"mount\",procedure=\"MNT\"} 2",
        "rpcrdma_nfs_errors_total{program=\"mount\",procedure=\"MNT\",class=\"denied\"} 0",
        "rpcrdma_nfs_errors_total{program=\"nfs\",procedure=\"LOOKUP\",class=\"not_found\"} 2",
        "# TYPE rpcrdma_nfs_call_duration_seconds histogram",
        "rpcrdma_duplicate_request_cache_lookups_total{result=\"hit\"} 0",
        "rpcrdma_connections_evicted_total 0",
        "rpcrdma_exports{state=\"served\"} 1",
        "rpcrdma_exports{state=\"absent\"} 0",
        "rpcrdma_reloads_total{result=\"failure\"} 0",
        "rpcrdma_last_reload_successful 1",
        "rpcrdma_export_bytes_total{export=\"/stuff\",class=\"write\"} 100000",
        "rpcrdma_export_bytes_total{export=\"/stuff\",class=\"read\"} 0",
        "rpcrdma_export_errors_total{export=\"/stuff\",class=\"not_found\"} 2",
        "# TYPE rpcrdma_connections gauge",
    ] {
        assert!(body.lines().any(|l| l == line), "{line} is not in {body}");
    }
    let last =
        "rpcrdma_nfs_call_duration_seconds_bucket{program=\"nfs\",procedure=\"NULL\",le=\"+Inf\"} ";
    assert!(body.contains(last), "{body}");
}

#[test]
fn requests_for_anything_else_than_metrics_are_refused() {
    let served = Served::new(&["--metrics", "0"]);
    let addr = said(&served, "metrics");
    assert!(get(&addr, "/").starts_with("HTTP/1.1 404 "));
    let post =
        "POST /metrics HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    assert!(exchange(&addr, post).starts_with("HTTP/1.1 405 "));
    let endless = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(100_000));
    let mut stream = TcpStream::connect(&addr).unwrap();
    // The server may close before it has all.
    let _ = stream.write_all(endless.as_bytes());
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    assert!(!reply.starts_with(b"HTTP/1.1 200"));
    assert!(
        get(&addr, "/metrics").starts_with("HTTP/1.1 200 "),
        "it goes on"
    );
}

#[test]
fn requests_that_never_end_keep_nobody_from_metrics() {
    let served = Served::new(&["--metrics", "0"]);
    let addr = said(&served, "metrics");
    let begun: Vec<TcpStream> = (0..40)
        .map(|_| {
            let mut stream = TcpStream::connect(&addr).unwrap();
            stream.write_all(b"GET /met").unwrap();
            stream
        })
        .collect();
    let mut stream = TcpStream::connect(&addr).unwrap();
    // The server waits twice as long for the end of those requests.
    stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    let request = b"GET /metrics HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
    stream.write_all(request).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
    drop(begun);
}

#[test]
fn stats_shows_calls_failures_and_latencies() {
    let (served, socket) = served();
    let shown = ask(&["stats"], &socket);
    assert!(
        shown.contains(&format!("at {}, process ", served.listening)),
        "{shown}"
    );
    let row = |name: &str| -> Vec<String> {
        let line = shown.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().map(str::to_owned).collect()
    };
    assert_eq!(row("CREATE")[1..3], ["1", "0"]);
    assert_eq!(row("mount/MNT")[1..3], ["2", "0"]);
    assert_eq!(row("LOOKUP")[2], "2", "{shown}");
    assert!(
        shown.ends_with("\nfailures\nLOOKUP  not_found 2\n"),
        "{shown}"
    );
    assert!(shown.lines().all(|line| line.len() <= 80), "{shown}");
    assert!(!shown.contains("MKNOD"), "{shown}");

    let json: serde_json::Value =
        serde_json::from_str(&ask(&["stats", "--json"], &socket)).unwrap();
    let procedures = json["procedures"].as_array().unwrap();
    let create = procedures.iter().find(|p| p["name"] == "CREATE").unwrap();
    assert_eq!(create["calls"], 1);
    assert_eq!(json["duplicate_requests"]["hits"], 0);
    assert!(json["connections"]["accepted"].as_u64().unwrap() >= 2);

    let twice = ["stats", "--interval", "0.01", "--count", "2"];
    let shown = ask(&twice, &socket);
    assert!(shown.contains("\ncalls        0/s\nRDMA"), "{shown}");
}

/// Calls of a procedure so far.
fn calls(socket: &[String; 2], procedure: &str) -> u64 {
    let json = ask(&["stats", "--json"], socket);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let procedures = json["procedures"].as_array().unwrap();
    let row = procedures.iter().find(|row| row["name"] == procedure);
    row.map_or(0, |row| row["calls"].as_u64().unwrap())
}

#[test]
fn copies_list_each_directory_once_and_need_no_other_call_for_each_file() {
    let served = Served::new(&[]);
    let socket = ["--socket".to_owned(), said(&served, "control")];
    let source = served.around.path().join("tree");
    for dir in 0..20 {
        for inside in ["a", "b/deep", "left-out"] {
            let dir = source.join(dir.to_string()).join(inside);
            std::fs::create_dir_all(&dir).unwrap();
            for file in 0..3 {
                std::fs::write(dir.join(file.to_string()), "data").unwrap();
            }
        }
    }
    let url = served.url("tree");
    ok(&["put", "-r", source.to_str().unwrap(), &url]);
    let files = 20 * 3 * 3;
    for procedure in ["CREATE", "WRITE", "RENAME"] {
        assert_eq!(calls(&socket, procedure), files, "{procedure}");
    }
    assert_eq!(calls(&socket, "MKDIR"), 1 + 20 * 5);
    assert_eq!(calls(&socket, "READDIRPLUS"), 0);
    let looked_up = calls(&socket, "LOOKUP");
    assert!(looked_up < 10, "{looked_up}");

    let back = served.beside("back");
    ok(&["get", "-r", "--exclude", "left-out", &url, &back]);
    assert_eq!(calls(&socket, "READ"), 20 * 2 * 3);
    assert_eq!(calls(&socket, "READDIRPLUS"), 1 + 20 * 4);
    let looked_up = calls(&socket, "LOOKUP") - looked_up;
    assert!(looked_up < 10, "{looked_up}");
    for procedure in ["GETATTR", "ACCESS", "SETATTR"] {
        let made = calls(&socket, procedure);
        assert!(made < 10, "{procedure}: {made}");
    }
}

#[test]
fn statistics_at_an_interval_end_by_the_interrupt() {
    let (_served, socket) = served();
    let mut stats = Command::new("env")
        .args(["--default-signal=INT", PROGRAM])
        .args(["stats", "--interval", "1h", "--json"])
        .args(&socket)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(stats.stdout.take().unwrap());
    assert!(out.read_line(&mut String::new()).unwrap() > 0);
    kill_process(Pid::from_child(&stats), Signal::INT).unwrap();
    let status = stats.wait().unwrap();
    assert_eq!(status.signal(), Some(Signal::INT.as_raw()));
}

#[test]
fn clients_shows_connections_with_their_credits() {
    let (served, socket) = served();
    let client = TcpStream::connect(&served.listening).unwrap();
    let from = client.local_addr().unwrap().to_string();
    // The others end soon, and this one is in setup until it says something.
    let lines = loop {
        let shown = ask(&["clients"], &socket);
        let lines: Vec<String> = shown.lines().map(str::to_owned).collect();
        if lines.len() == 2 && lines[1].starts_with(&from) {
            break lines;
        }
    };
    assert!(lines[0].starts_with("client "));
    let words: Vec<_> = lines[1].split_whitespace().collect();
    assert_eq!(words[..2], [&from[..], "setup"]);
    assert_eq!(words.last(), Some(&"-"), "it is over nothing yet");
    assert!(lines.iter().all(|line| line.len() <= 80), "{lines:?}");
    let json = ask(&["clients", "--json"], &socket);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["state"], "setup");
    assert_eq!(json["duplicate_request_hits"], 0);
}

#[test]
fn control_socket_is_for_the_user_alone_and_goes_with_the_server() {
    let served = Served::new(&[]);
    let path = said(&served, "control");
    let mode = Path::new(&path).metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    for request in ["{\"get\":\"secrets\"}\n", &"x".repeat(5000), ""] {
        let mut stream = UnixStream::connect(&path).unwrap();
        // The server may answer before it has all.
        let _ = stream.write_all(request.as_bytes());
        let _ = stream.shutdown(Shutdown::Write);
        let mut reply = Vec::new();
        let _ = stream.read_to_end(&mut reply);
        assert!(
            reply.is_empty() || reply.starts_with(b"{\"error\":"),
            "{reply:?}"
        );
    }
    ok(&["stats", "--socket", &path]);
    served.stop(Signal::TERM);
    assert!(!Path::new(&path).exists());
    fails(
        &["stats", "--socket", &path],
        1,
        "there is no control socket",
    );
}
