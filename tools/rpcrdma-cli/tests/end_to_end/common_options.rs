//! Options that all commands have: durations and sizes with units, and the log.

use crate::running::{PROGRAM, Served, fails, fails_with, ok, run, text};
use std::process::{Command, Stdio};

#[test]
fn durations_and_sizes_have_units_on_the_command_line_and_in_the_file() {
    let ping = |served: &Served, options: &[&str]| {
        ok(&[&["ping", "-c1", &served.listening], options].concat());
    };
    let served = Served::new(&["--idle-timeout", "1m 30s", "--inline-size", "64k"]);
    ping(
        &served,
        &["--timeout", "1m", "-i", "500ms", "--inline-size=16KiB"],
    );
    ping(
        &served,
        &["--timeout", "60", "-i", "0.5", "--inline-size=4096"],
    );
    let in_file = |options: &str| {
        let exports = |around: &std::path::Path| {
            format!(
                "{options}\n[[export]]\npath = \"{}/stuff\"\n",
                around.display()
            )
        };
        Served::configured(exports, &[])
    };
    ping(
        &in_file("idle_timeout = \"10m\"\ninline_size = \"8K\""),
        &[],
    );
    ping(&in_file("idle_timeout = 600\ninline_size = 8192"), &[]);
    fails(
        &["ping", "--timeout", "1x", "host"],
        2,
        "such as 500ms, 10s or 1m30s",
    );
    fails(
        &["serve", "--inline-size", "1 GiB"],
        2,
        "it is not 1024 to 262144",
    );
    fails(
        &["serve", "--inline-size", "4Q"],
        2,
        "such as 4096, 64k or 1MiB",
    );
}

#[test]
fn log_option_counts_more_than_the_environment() {
    let served = Served::new(&[]);
    let ping = ["ping", "-c1", &served.listening];
    let logged = |options: &[&str]| {
        let output = run(&[&ping[..], options].concat());
        assert_eq!(output.status.code(), Some(0));
        text(&output.stderr)
    };
    assert_eq!(logged(&[]), "");
    assert!(logged(&["--log", "debug"]).contains("DEBUG"));
    assert_eq!(logged(&["--log", "off"]), "");
    assert_eq!(
        logged(&["--log", "debug,rpcrdma=off"])
            .matches("DEBUG rpcrdma")
            .count(),
        0
    );
    let misspelt = "'dbug' is no level: there are error, warn, info, debug, trace and off";
    fails(&["ping", "--log", "dbug", "host"], 2, misspelt);
    fails_with(
        &["ping", "host"],
        &[("RUST_LOG", "dbug")],
        2,
        &format!("rpcrdma: RUST_LOG: {misspelt}"),
    );
    let both = [&ping[..], &["--log=off"]].concat();
    fails_with(&both, &[("RUST_LOG", "dbug")], 0, "");
}

#[test]
fn part_of_the_log_that_is_misspelt_is_told_whatever_the_filter_lets_through() {
    let told = |options: &[&str], variable: &str| {
        let output = Command::new(PROGRAM)
            .args(["devices", "--json"])
            .args(options)
            .env("RUST_LOG", variable)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        text(&output.stderr)
    };
    let says = "nothing in this program logs as 'gatway'; its parts are serve, gateway, ";
    let said = told(&["--log", "off,gatway=debug"], "");
    assert!(said.contains(&format!("rpcrdma: --log: {says}")), "{said}");
    let said = told(&[], "gatway=debug");
    assert!(
        said.contains(&format!("rpcrdma: RUST_LOG: {says}")),
        "{said}"
    );
    let said = told(&["--log", "off,gateway=debug,rpcrdma::client=debug"], "");
    assert!(!said.contains("nothing in this program"), "{said}");
}

#[test]
fn check_of_a_file_wants_a_file() {
    let says = "name it with --config FILE";
    fails(&["serve", "/tmp", "--check=file"], 2, says);
    let (listen, upstream) = ("--listen=tcp://127.0.0.1:0", "--upstream=rdma://127.0.0.1");
    fails(&["gateway", listen, upstream, "--check=file"], 2, says);
}
