//! `self` without the program that counts allocations, and with another one; and its account of
//! where the time of a call goes.

use crate::running::{PROGRAM, fails, ok, text};
use crate::schemas::prints;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};

/// Runs `bench` where the program that counts is this script, or is not there.
#[track_caller]
fn bench(counting: Option<&str>) -> (Value, String) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = dir.path().join("lab");
    fs::hard_link(PROGRAM, &program).unwrap();
    if let Some(script) = counting {
        let path = dir.path().join("lab-counting");
        // Written by another process: one that is forked meanwhile by another test would hold the
        // file open for writing, and such a file cannot be executed.
        let write = "printf %s \"$1\" > \"$2\" && chmod +x \"$2\"";
        let mut shell = Command::new("sh");
        let written = shell.args(["-c", write, "sh", script]).arg(&path).status();
        assert!(written.unwrap().success());
    }
    let output = Command::new(&program)
        .args([
            "self",
            "--only",
            "null",
            "-r",
            "1",
            "--run-time",
            "0.01",
            "--json",
        ])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    (serde_json::from_slice(&output.stdout).unwrap(), errors)
}

#[test]
fn bench_works_without_the_counting_program() {
    let (report, errors) = bench(None);
    assert!(report["results"][0]["value"].as_f64().unwrap() > 0.0);
    assert!(report["results"][0]["allocations"].is_null(), "{report}");
    assert!(errors.contains("allocations are not counted"), "{errors}");
    assert!(errors.contains("cargo build -p lab"), "{errors}");
}

#[test]
fn bench_shows_the_figures_of_the_counting_program() {
    let script = "#!/bin/sh\n[ \"$*\" = 'self --count-allocations --only null' ] && \
                  echo '{\"null\": {\"client\": 1.5, \"server\": 0.25}}'\n";
    let (report, errors) = bench(Some(script));
    let counted = &report["results"][0]["allocations"];
    assert_eq!(counted["client"].as_f64(), Some(1.5), "{errors}");
    assert_eq!(counted["server"].as_f64(), Some(0.25), "{errors}");
    let (report, errors) = bench(Some("#!/bin/sh\nexit 7\n"));
    assert!(report["results"][0]["allocations"].is_null());
    assert!(
        errors.contains("lab-counting failed: exit status: 7"),
        "{errors}"
    );
}

/// Shares of the layers of one end. Their nanoseconds must add up to those of a call.
fn shares(side: &Value) -> BTreeMap<String, f64> {
    let number = |value: &Value, name: &str| value[name].as_f64().unwrap();
    let layers = side["layers"].as_array().expect("there are enough samples");
    let sum: f64 = layers.iter().map(|layer| number(layer, "ns")).sum();
    let total = number(side, "cpu_ns");
    assert!((sum - total).abs() < total / 1000.0, "{sum} of {side}");
    let name = |layer: &Value| layer["layer"].as_str().unwrap().to_owned();
    let shares = layers
        .iter()
        .map(|layer| (name(layer), number(layer, "share")));
    shares.collect()
}

#[test]
fn profile_names_the_layers_that_a_call_passes() {
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("profile.svg");
    let null = [
        "self",
        "--profile",
        "--only",
        "null",
        "-r",
        "1",
        "--run-time",
        "0.5",
    ];
    let written = ["--json", "--svg", svg.to_str().unwrap()];
    let report = prints("self-profile", &[&null[..], &written].concat());
    let row = &report["results"][0];
    assert_eq!(row["name"], "null");
    for (end, other) in [("client", "nfs-server"), ("server", "nfs-client")] {
        let ours = shares(&row[end]["ours"]);
        let plain_tcp = shares(&row[end]["plain_tcp"]);
        // Those with the largest shares: the others may be without a sample.
        let passed = ["iwarp-proto", "rpcrdma-proto", "rpcrdma"];
        for layer in passed {
            assert!(
                ours.contains_key(layer),
                "{end}: {layer} is not in {ours:?}"
            );
        }
        assert!(!ours.contains_key(other), "{end}: {other} is in {ours:?}");
        // The connection that was profiled before is still there, and looks at its deadlines.
        let idle: f64 = passed
            .iter()
            .filter_map(|layer| plain_tcp.get(*layer))
            .sum();
        assert!(idle < 0.05, "{end}: {plain_tcp:?}");
        for shares in [ours, plain_tcp] {
            let kernel = shares
                .iter()
                .filter(|(layer, _)| layer.starts_with("kernel: "));
            let kernel: f64 = kernel.map(|(_, share)| share).sum();
            assert!(kernel > 0.05, "{end}: {shares:?}");
            let unknown = shares.get("unknown").copied().unwrap_or_default();
            assert!(unknown < 0.02, "{end}: {shares:?}");
        }
    }
    let drawn = fs::read_to_string(svg).unwrap();
    assert!(drawn.contains("null: NULL, depth 1") && drawn.contains("<title>server, plain TCP, "));
}

#[test]
fn plot_is_of_a_profile() {
    fails(&["self", "--svg", "profile.svg"], 2, "--profile");
}

#[test]
fn tables_fit_80_columns_and_have_bounds_where_they_are_asked_for() {
    let args = [
        "self",
        "--only",
        "read_4k_qd32_crc",
        "-r1",
        "--run-time=10ms",
    ];
    let shown = |args: &[&str]| {
        let lines: Vec<String> = text(&ok(args)).lines().map(str::to_owned).collect();
        let is_wide = |line: &&String| line.chars().count() > 80;
        assert_eq!(lines.iter().find(is_wide), None);
        lines
    };
    let lines = shown(&args);
    let has = |lines: &[String], part| lines.iter().any(|line| line.contains(part));
    assert!(
        has(&lines, "plain TCP") && has(&lines, "Idle connection: "),
        "{lines:#?}"
    );
    assert!(!has(&lines, "at least"), "{lines:#?}");
    let lines = shown(&[&args[..], &["--bounds"]].concat());
    assert!(has(&lines, "at least 0.52"), "{lines:#?}");
}
