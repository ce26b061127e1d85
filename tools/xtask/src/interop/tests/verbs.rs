//! libibverbs and librdmacm in the guest, over its software devices: rxe (RoCE) and siw (iWARP).

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::command::{build, output};
use crate::interop::TestRun;
use crate::interop::guest::{Boot, Guest};
use crate::interop::program::{Job, Link};

/// Takes some seconds on an idle machine.
const DEVICES_LIMIT: Duration = Duration::from_secs(180);

/// Takes less than a minute on an idle machine.
const PROGRAMS_LIMIT: Duration = Duration::from_secs(480);

/// The devices work without our part in it, and `rpcrdma devices` shows what they are.
pub(super) fn devices(run: &TestRun<'_>) -> Result<()> {
    let boot = Boot {
        name: "guest",
        script: "verbs-devices.sh",
        program: Some(run.program),
        limit: DEVICES_LIMIT,
        ..Boot::default()
    };
    let mut guest = Guest::boot(run, &boot)?;
    let rxe = Shown {
        name: "rxe0",
        transport: "InfiniBand",
        protocol: "RoCE v2",
        address: "10.0.3.1",
        windows: "type 2B",
        remote_invalidation: true,
    };
    rxe.check(&guest.expect("device")?)?;
    let siw = Shown {
        name: "siw0",
        transport: "iWARP",
        protocol: "iWARP",
        address: "10.0.2.15",
        windows: "none",
        remote_invalidation: false,
    };
    siw.check(&guest.expect("device")?)?;
    guest.finish()
}

/// Our server under the kernel's client, and our commands on the kernel's server, over rxe.
pub(super) fn programs(run: &TestRun<'_>) -> Result<()> {
    let boot = Boot {
        name: "guest",
        script: "verbs-programs.sh",
        program: Some(run.program),
        limit: PROGRAMS_LIMIT,
        ..Boot::default()
    };
    Guest::boot(run, &boot)?.finish()
}

/// What `rpcrdma devices --json` must show of a device with one port.
struct Shown {
    name: &'static str,
    transport: &'static str,
    protocol: &'static str,
    address: &'static str,
    windows: &'static str,
    remote_invalidation: bool,
}

impl Shown {
    fn check(&self, line: &str) -> Result<()> {
        let line: Value = serde_json::from_str(line)?;
        let device = &line["attributes"];
        let port = &device["ports"][0];
        let addresses = port["addresses"].as_array();
        let is_as_expected = line["name"] == self.name
            && line["transport"] == self.transport
            && line["usable"] == true
            && line["used_by_auto"] == (self.transport != "iWARP")
            && port["state"] == "active"
            && port["protocol"] == self.protocol
            && addresses.is_some_and(|all| all.iter().any(|one| one == self.address))
            && device["memory_windows"] == self.windows
            && device["remote_invalidation"] == self.remote_invalidation;
        ensure!(is_as_expected, "this is not {}: {line:#}", self.name);
        Ok(())
    }
}

/// Takes one or two minutes on an idle machine.
const CONFORMANCE_LIMIT: Duration = Duration::from_secs(1200);

/// Fewer tests than this are not the suite of verbs-conformance.
const MIN_TESTS: usize = 80;

/// Tests that fail over rxe, because of faults of the kernel.
const NOT_OVER_RXE: [&str; 2] = [
    // The second Send with Invalidate of a window crashes the kernel: a NULL pointer in rxe_invalidate_mw.
    "handles::handle_invalidated_by_the_peer_cannot_be_invalidated_again",
    // Nobody looks whose window it is.
    "handles::invalidation_by_the_peer_of_a_handle_of_another_connection_ends_it",
];

/// Tests that fail over siw, because of faults of the kernel.
const NOT_OVER_SIW: [&str; 3] = [
    // The listening end answers with the IRD of the request, and not with the one it was given.
    "limits::outstanding_reads_do_not_exceed_what_the_peer_serves",
    // Nobody looks whether the peer has the right to read.
    "persistent::persistent_memory_has_one_access_right_only",
    "reads::read_from_a_sink_is_refused",
];

/// The suite of tests that every provider passes, by our provider for hardware over rxe.
pub(super) fn conformance(run: &TestRun<'_>) -> Result<()> {
    over(run, Link::Rxe, &NOT_OVER_RXE)
}

/// The same over siw.
pub(super) fn conformance_siw(run: &TestRun<'_>) -> Result<()> {
    over(run, Link::Siw, &NOT_OVER_SIW)
}

fn over(run: &TestRun<'_>, link: Link, skipped: &[&str]) -> Result<()> {
    let target = ["--package=verbs-ibv", "--test=conformance"];
    let program = build(&target, "conformance")?;
    let listed = output(Command::new(&program).args(["--list", "--format=terse"]))?;
    let tests: Vec<_> = listed
        .lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .collect();
    ensure!(
        tests.len() >= MIN_TESTS,
        "the suite has only {} tests",
        tests.len()
    );
    // Connections of several tests at a time would have an emulated processor for each.
    let mut arguments = vec!["--test-threads=1".to_owned(), "--exact".to_owned()];
    for name in skipped {
        ensure!(tests.contains(name), "the suite has no test {name}");
        arguments.extend(["--skip".to_owned(), (*name).to_owned()]);
    }
    let job = Job {
        runs: &[(link, arguments)],
        program: &program,
        environment: &[],
        limit: CONFORMANCE_LIMIT,
    };
    let log = job.run(run)?;
    let passed: Vec<_> = log.lines().filter_map(passed).collect();
    let expected = tests.len() - skipped.len();
    ensure!(
        passed == [expected],
        "there passed {passed:?} tests, and not {expected}"
    );
    let done = format!("{expected} of {} tests passed", tests.len());
    run.report.say(run.name, &done);
    Ok(())
}

/// How many tests passed, by a line of a test program's output in the guest's log.
fn passed(line: &str) -> Option<usize> {
    let (_, result) = line.split_once("test result: ok. ")?;
    let (passed, rest) = result.split_once(" passed; ")?;
    rest.starts_with("0 failed; 0 ignored; ").then_some(())?;
    passed.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_result_without_ignored_tests_counts() {
        let line = |ignored| {
            format!("  9.11 test result: ok. 78 passed; 0 failed; {ignored} ignored; 0 measured")
        };
        assert_eq!(passed(&line(0)), Some(78));
        assert_eq!(passed(&line(1)), None);
        assert_eq!(passed("  9.11 test messages::a ... ok"), None);
    }
}
