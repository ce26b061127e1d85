//! What `bench` does without the program that counts allocations, and with another one.

use super::running::{PROGRAM, text};
use std::fs;
use std::process::{Command, Stdio};

/// Runs `bench` where the program that counts is this script, or is not there.
#[track_caller]
fn bench(counting: Option<&str>) -> (serde_json::Value, String) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = dir.path().join("rpcrdma");
    fs::hard_link(PROGRAM, &program).unwrap();
    if let Some(script) = counting {
        let path = dir.path().join("rpcrdma-counting");
        // Written by another process: one that is forked meanwhile by another test would hold the
        // file open for writing, and such a file cannot be executed.
        let write = "printf %s \"$1\" > \"$2\" && chmod +x \"$2\"";
        let mut shell = Command::new("sh");
        let written = shell.args(["-c", write, "sh", script]).arg(&path).status();
        assert!(written.unwrap().success());
    }
    let output = Command::new(&program)
        .args([
            "bench",
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
    assert!(
        errors.contains("cargo build -p rpcrdma-counting"),
        "{errors}"
    );
}

#[test]
fn bench_shows_the_figures_of_the_counting_program() {
    let script = "#!/bin/sh\n[ \"$*\" = 'bench --count-allocations --only null' ] && \
                  echo '{\"null\": {\"client\": 1.5, \"server\": 0.25}}'\n";
    let (report, errors) = bench(Some(script));
    let counted = &report["results"][0]["allocations"];
    assert_eq!(counted["client"].as_f64(), Some(1.5), "{errors}");
    assert_eq!(counted["server"].as_f64(), Some(0.25), "{errors}");
    let (report, errors) = bench(Some("#!/bin/sh\nexit 7\n"));
    assert!(report["results"][0]["allocations"].is_null());
    assert!(
        errors.contains("rpcrdma-counting failed: exit status: 7"),
        "{errors}"
    );
}
