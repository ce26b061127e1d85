//! `bench HOST[/PATH]`: what it measures, and what it leaves behind.

use crate::running::{PROGRAM, Running, Served, fails, free_port, ok, run, text, tree};
use crate::scripted::{Do, server};
use crate::terminal::{assert_fits, shown};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::process::{Command, Stdio};

/// Runs `bench --json`, which must succeed.
#[track_caller]
fn bench(args: &[&str]) -> Value {
    let document = ok(&[&["bench", "--json", "--time", "250ms"], args].concat());
    serde_json::from_slice(&document).unwrap()
}

/// Starts a measurement that goes on until it is told to end, or interrupted, however the tests were started.
fn endless(args: &[&str]) -> Running {
    let mut command = Command::new("env");
    command.args(["--default-signal=INT", PROGRAM, "bench"]);
    command.args(["--json", "--time", "1h"]).args(args);
    Running::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn server_without_a_path_is_measured_with_null_calls() {
    let served = Served::new(&[]);
    let found = bench(&["--depth", "3", "--nconnect", "2", &served.listening]);
    let null = &found["null"];
    assert!(
        number(&null["total_ios"]) > 0.0 && number(&null["iops"]) > 0.0,
        "{found}"
    );
    assert_eq!(null["lat_ns"]["N"], null["total_ios"]);
    let median = number(&null["lat_ns"]["percentile"]["50.000000"]);
    assert!(median >= number(&null["lat_ns"]["min"]) && median <= number(&null["lat_ns"]["max"]));
    assert_eq!(
        (&found["read"], &found["file"]),
        (&Value::Null, &Value::Null)
    );
    let options = &found["options"];
    assert_eq!(
        (&options["iodepth"], &options["nconnect"]),
        (&3.into(), &2.into())
    );
    let url = format!("nfs://{}", served.listening);
    assert_eq!(bench(&[&url])["options"]["rw"], "null");
}

/// A count is this many per call, but for a few messages of the connection and calls that were in flight.
#[track_caller]
fn assert_per_call(work: &Value, name: &str, count: f64) {
    let others = (number(&work[name]) - count) * number(&work["calls"]);
    assert!(others.abs() < 4.5, "{name}: {work}");
}

/// Software iWARP counts work requests, registrations and copies. With one call at a time, none is in flight at either end.
#[test]
fn work_is_counted_per_call_after_the_ramp_time() {
    let served = Served::new(&[]);
    let counted = |args: &[&str], expected: [(&str, f64); 4]| {
        let found = bench(&[&["--ramp-time", "200ms"], args].concat());
        let work = &found["work"];
        assert!(number(&work["calls"]) > 0.0, "{found}");
        for (name, count) in expected {
            assert_per_call(work, name, count);
        }
    };
    let (writes, reads) = (("writes", 0.0), ("rdma_reads", 0.0));
    counted(
        &[&served.listening],
        [("sends", 1.0), ("registrations", 0.0), writes, reads],
    );
    let url = served.url("");
    // The server reads the data from memory that the client registers.
    counted(
        &["--rw", "write", "--bs", "256k", "--size", "1m", &url],
        [("sends", 1.0), ("registrations", 1.0), writes, reads],
    );
    let shown = ok(&["bench", "--counts", "--time", "500ms", &served.listening]);
    let shown = text(&shown);
    assert!(
        shown.contains("work per call\n") && !shown.contains("server"),
        "{shown}"
    );
}

/// The control socket of a server.
fn control(served: &Served) -> String {
    let said: Value = serde_json::from_str(&served.said).unwrap();
    said["control"].as_str().unwrap().to_owned()
}

#[test]
fn work_of_the_server_is_counted_for_the_same_calls() {
    let served = Served::new(&[]);
    let stats = format!("--server-stats={}", control(&served));
    let url = served.url("");
    let counted = |args: &[&str], expected: [(&str, f64); 4]| {
        let found = bench(&[&[stats.as_str()], args].concat());
        let work = &found["server_work"];
        assert!(found["server_work_error"].is_null(), "{found}");
        // There is no other client.
        assert_eq!(work["calls"], found["work"]["calls"], "{found}");
        for (name, count) in expected {
            assert_per_call(work, name, count);
        }
    };
    counted(
        &[&served.listening],
        [
            ("sends", 1.0),
            ("writes", 0.0),
            ("rdma_reads", 0.0),
            ("registrations", 0.0),
        ],
    );
    // What the client does not do, the server does: it writes the data of READs, and reads that of WRITEs.
    let large = ["--bs", "256k", "--size", "1m", url.as_str()];
    counted(
        &[&["--rw", "read"], &large[..]].concat(),
        [
            ("sends", 1.0),
            ("writes", 1.0),
            ("rdma_reads", 0.0),
            ("registrations", 0.0),
        ],
    );
    counted(
        &[&["--rw", "write"], &large[..]].concat(),
        [
            ("sends", 1.0),
            ("writes", 0.0),
            ("rdma_reads", 1.0),
            ("registrations", 0.0),
        ],
    );
    let shown = text(&ok(&["bench", &stats, "--time=50ms", &served.listening]));
    let head = shown
        .lines()
        .find(|line| line.contains("client") && line.contains("server"));
    assert!(head.is_some(), "{shown}");
}

#[test]
fn work_of_the_server_after_a_ramp_time_is_per_call_too() {
    let served = Served::new(&[]);
    let stats = format!("--server-stats={}", control(&served));
    let found = bench(&[&stats, "--ramp-time=150ms", &served.listening]);
    let work = &found["server_work"];
    assert!(number(&work["calls"]) > 0.0, "{found}");
    assert_per_call(work, "sends", 1.0);
}

#[test]
fn work_of_a_server_that_cannot_be_told_is_a_failure_or_said() {
    let (served, other) = (Served::new(&[]), Served::new(&[]));
    let missing = format!("--server-stats={}", served.beside("missing"));
    fails(
        &["bench", &missing, "--time=50ms", &served.listening],
        1,
        "there is no control socket",
    );
    let another = format!("--server-stats={}", control(&other));
    let found = bench(&[&another, &served.listening]);
    let error = found["server_work_error"].as_str().unwrap();
    assert!(error.ends_with("it is another server"), "{found}");
    assert!(
        found["server_work"].is_null() && found["work"].is_object(),
        "{found}"
    );
    let shown = text(&ok(&["bench", &another, "--time=50ms", &served.listening]));
    let flat: Vec<_> = shown.split_whitespace().collect();
    assert!(
        flat.join(" ")
            .contains("the work of the server is not known: "),
        "{shown}"
    );
}

#[test]
fn each_pattern_makes_its_calls_and_leaves_no_file() {
    let served = Served::new(&[]);
    let url = served.url("");
    for (rw, reads, writes) in [
        ("read", true, false),
        ("write", false, true),
        ("randread", true, false),
        ("randwrite", false, true),
        ("rw", true, true),
        ("randrw", true, true),
    ] {
        let found = bench(&[
            "--rw", rw, "--size", "100k", "--depth", "4", "--seed", "7", &url,
        ]);
        for (direction, made) in [("read", reads), ("write", writes)] {
            let figures = &found[direction];
            assert_eq!(figures.is_object(), made, "{rw}: {found}");
            if made {
                let calls = number(&figures["total_ios"]);
                assert_eq!(
                    number(&figures["io_bytes"]),
                    calls * 4096.0,
                    "{rw}: {found}"
                );
                assert!(number(&figures["bw_bytes"]) > 0.0, "{rw}: {found}");
            }
        }
        assert_eq!(found["commit_ns"].is_u64(), writes, "{rw}: {found}");
        assert_eq!(found["file"]["temporary"], true);
        assert_eq!(found["file"]["size"], 100 << 10);
        assert_eq!(found["options"]["randseed"], 7);
        assert!(tree(&served.dir).is_empty(), "{rw}");
    }
}

#[test]
fn options_of_writes_are_those_of_fio() {
    let served = Served::new(&[]);
    let url = served.url("");
    let usual = ["--size", "64k", "--bs", "8k", &url];
    let only = |percent, direction| {
        let found = bench(&[&["--rw", "randrw", "--rwmix", percent], &usual[..]].concat());
        assert!(found[direction].is_null(), "{found}");
    };
    only("0", "read");
    only("100", "write");
    for sync in ["dsync", "file_sync"] {
        let found = bench(&[&["--rw", "write", "--sync", sync], &usual[..]].concat());
        assert!(found["commit_ns"].is_null(), "{found}");
    }
    let ramp = bench(&[&["--ramp-time", "50ms", "--randseed", "3"], &usual[..]].concat());
    assert_eq!(ramp["options"]["ramp_time"], 0.05);
    // Calls that began before its end may end later.
    assert!(number(&ramp["read"]["runtime"]) >= 40.0, "{ramp}");
}

#[test]
fn existing_file_is_read_and_not_written_unless_that_is_allowed() {
    let served = Served::new(&[]);
    let file = served.dir.join("file");
    let content = vec![b'x'; 10_000];
    std::fs::write(&file, &content).unwrap();
    let url = served.url("file");
    let found = bench(&["--rw", "randread", &url]);
    assert_eq!(
        (&found["file"]["size"], &found["file"]["temporary"]),
        (&10_000.into(), &false.into())
    );
    for rw in ["write", "randwrite", "rw", "randrw"] {
        fails(&["bench", "--rw", rw, &url], 2, "--overwrite lets");
    }
    assert_eq!(std::fs::read(&file).unwrap(), content);
    bench(&["--rw", "write", "--bs", "1000", "--overwrite", &url]);
    let written = std::fs::read(&file).unwrap();
    assert_eq!(written.len(), content.len());
    assert!(written != content);
    assert_eq!(tree(&served.dir).len(), 1);
}

#[test]
fn what_cannot_be_measured_is_said_before_anything_is_done() {
    let served = Served::new(&[]);
    let addr = &served.listening;
    std::fs::write(served.dir.join("small"), "small").unwrap();
    let (dir, small) = (served.url(""), served.url("small"));
    fails(&["bench"], 2, "HOST[:PORT][/PATH]");
    fails(&["bench", "self"], 2, "cargo run --release -p lab -- self");
    fails(
        &["bench", "--rw", "read", addr],
        2,
        "needs a file or a directory",
    );
    fails(&["bench", "--rw", "null", &dir], 2, "leave the path out");
    fails(&["bench", "--time", "0", addr], 2, "measures nothing");
    fails(&["bench", "--bs", "5M", &dir], 2, "--bs");
    fails(&["bench", "--depth", "1025", addr], 2, "1..=1024");
    let much = [
        "bench",
        "--bs",
        "4M",
        "--depth",
        "200",
        "--nconnect",
        "2",
        &dir,
    ];
    fails(&much, 2, "more than 1 GiB in flight");
    fails(&["bench", "--size", "1k", &dir], 2, "is less than --bs");
    fails(
        &["bench", "--bs", "4M", &dir],
        1,
        "takes no READ of more than",
    );
    fails(&["bench", &small], 1, "has 5 B");
    fails(&["bench", &served.url("missing")], 1, "no such file");
    fails(&["bench", "host/a?b"], 2, "%3F");
    assert_eq!(tree(&served.dir).len(), 1);
}

#[test]
fn interrupt_prints_what_was_measured_and_removes_the_file() {
    let served = Served::new(&[]);
    // A file that takes long to fill, and one that is filled at once.
    for size in ["1T", "64k"] {
        let bench = endless(&["--size", size, &served.url("")]);
        while served.dir.read_dir().unwrap().count() == 0 {
            std::thread::yield_now();
        }
        kill_process(Pid::from_child(&bench), Signal::INT).unwrap();
        let output = bench.output();
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(found["error"], "interrupted", "{found}");
        let failure: Value = serde_json::from_slice(&output.stderr).unwrap();
        assert_eq!(failure["error"], "interrupted", "{failure}");
        assert_ne!(output.status.code(), Some(0));
        assert!(tree(&served.dir).is_empty());
    }
}

#[test]
fn server_that_ends_fails_the_measurement_and_leaves_the_file() {
    let served = Served::new(&[]);
    let bench = endless(&["--size", "64k", "--timeout", "1s", &served.url("")]);
    while tree(&served.dir)
        .iter()
        .all(|(_, content)| content.len() < 64 << 10)
    {
        std::thread::yield_now();
    }
    // The directory is gone with what it is in.
    drop(served);
    let output = bench.output();
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(found["error"].is_string(), "{found}");
    let errors = text(&output.stderr);
    assert!(errors.contains(" is left on the server"), "{errors}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn document_is_printed_without_a_connection_too() {
    let addr = format!("127.0.0.1:{}", free_port());
    let output = run(&["bench", "--json", &format!("{addr}/file")]);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let error = found["error"].as_str().unwrap();
    assert!(error.contains(&addr), "{found}");
    let says = "no server there (start one with";
    assert!(error.contains(says), "{found}");
    assert_eq!(found["options"]["rw"], "read");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn call_without_a_reply_ends_the_measurement_with_what_was_measured() {
    let addr = server(|call| if call <= 5 { Do::Answer } else { Do::Ignore });
    let output = run(&[
        "bench",
        "--json",
        "--rpcrdma-version=1",
        "--timeout=2s",
        "--time=1h",
        &addr,
    ]);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["null"]["total_ios"], 5, "{found}");
    let error = found["error"].as_str().unwrap();
    assert!(error.starts_with("a NULL call failed: "), "{error}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn design_in_force_is_shown_and_its_absence_is_explained() {
    let served = Served::new(&[]);
    let shown = |how: &str| {
        let how = format!("--remote-invalidation={how}");
        let args = ["bench", "--time", "50ms", &how, &served.listening];
        text(&ok(&args))
    };
    let per_connection = shown("per_call,per_connection");
    assert!(
        per_connection.contains("invalidation  per_connection\n")
            && !per_connection.contains("agrees to no"),
        "{per_connection}"
    );
    let none = shown("per_call");
    assert!(
        none.contains("invalidation  none\n")
            && none.contains("agrees to no remote invalidation by per_call"),
        "{none}"
    );
    let off = shown("off");
    assert!(!off.contains("agrees to no"), "{off}");
    let found = bench(&["--remote-invalidation=per_call", &served.listening]);
    assert_eq!(found["options"]["remote_invalidation"][0], "per_call");
}

#[test]
fn report_and_progress_fit_the_terminal() {
    let served = Served::new(&[]);
    let args = [
        "bench",
        "--rw",
        "randrw",
        "--size",
        "4M",
        "--time",
        "600ms",
        &served.url(""),
    ];
    for width in [80, 50] {
        let lines = shown(width, &args);
        assert_fits(width.into(), &lines);
        let has = |part: &str| lines.iter().any(|line| line.contains(part));
        assert!(
            has("p99.99") && has("bandwidth") && has("a temporary file of 4 MiB"),
            "{lines:#?}"
        );
        assert!(has(" s of 600 ms, "), "{lines:#?}");
    }
}
