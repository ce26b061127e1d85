//! libibverbs and librdmacm in the guest, over its software devices: rxe (RoCE) and siw (iWARP).

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;

use super::linux_mounts_us_v4::{LOCKS, lock_program};
use crate::TestRun;
use crate::guest::{Boot, Guest};
use crate::program::{Job, Link, ProgramRun};
use programs::command::{build_as_tested, output};

/// Takes some seconds on an idle machine.
const DEVICES_LIMIT: Duration = Duration::from_secs(180);

/// Each takes a minute or two on an idle machine.
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

/// The kernel's client at work on our server in versions 4.2 and 4.1, over rxe.
pub(super) fn version_4(run: &TestRun<'_>) -> Result<()> {
    let locks = lock_program(run)?;
    let boot = Boot {
        name: "guest",
        script: "verbs-v4.sh",
        program: Some(run.program),
        files: &[(LOCKS, &locks)],
        limit: PROGRAMS_LIMIT,
        ..Boot::default()
    };
    Guest::boot(run, &boot)?.finish()
}

/// The device of our server is removed under clients at work, and comes back.
pub(super) fn removal(run: &TestRun<'_>) -> Result<()> {
    let boot = Boot {
        name: "guest",
        script: "verbs-removal.sh",
        program: Some(run.program),
        limit: PROGRAMS_LIMIT,
        ..Boot::default()
    };
    Guest::boot(run, &boot)?.finish()
}

/// Fields that `rpcrdma devices --json` must show of a device with one port.
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
const NOT_OVER_RXE: [&str; 3] = [
    // A Send with Invalidate of a window that is not bound crashes the kernel: a NULL pointer in rxe_invalidate_mw.
    "handles::handle_invalidated_by_the_peer_cannot_be_invalidated_again",
    // The same, where the next window is free and the key in its handle, a byte, happens to be this one's.
    "handles::invalidation_by_the_peer_of_the_next_handle_ends_the_connection",
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
    let suite = Suite::built("crates/verbs-ibv", "conformance")?;
    ensure!(
        suite.tests.len() >= MIN_TESTS,
        "the suite has only {} tests",
        suite.tests.len()
    );
    let mut arguments = vec!["--exact".to_owned()];
    for name in skipped {
        suite.has(name)?;
        arguments.extend(["--skip".to_owned(), (*name).to_owned()]);
    }
    let runs = [suite.over(link, arguments)];
    let expected = suite.tests.len() - skipped.len();
    pass(run, &runs, CONFORMANCE_LIMIT, &[expected])?;
    let done = format!("{expected} of {} tests passed", suite.tests.len());
    run.report.say(run.name, &done);
    Ok(())
}

/// Takes about two minutes on an idle machine.
const STACK_LIMIT: Duration = Duration::from_secs(1200);

/// The end-to-end tests of the library that take a device.
const END_TO_END: [&str; 11] = [
    "backward::both_directions_are_busy_at_once",
    "backward::server_calls_its_client_on_the_connection_of_its_calls",
    "designs::calls_of_a_server_with_chunks_keep_to_the_design_too",
    "designs::under_each_design_calls_of_every_shape_lose_one_handle_to_their_reply",
    "over_each::calls_of_every_shape_lose_one_handle_to_their_reply",
    "over_each::client_is_told_that_nobody_listens",
    "over_each::client_outlives_a_restart_of_the_server",
    "over_each::inline_sizes_of_the_two_ends_may_differ",
    "over_each::several_clients_move_bulk_data_at_once",
    "several_connections::calls_are_spread_over_the_connections_of_a_client",
    "versions::each_version_that_both_ends_speak_carries_calls_of_every_shape",
];

/// The stack above our provider for hardware, over rxe: end to end, under a hostile peer, in 1,000 connections, and when
/// the device is removed. Over siw: software iWARP reads from it.
pub(super) fn stack(run: &TestRun<'_>) -> Result<()> {
    let end_to_end = Suite::built("crates/rpcrdma", "end_to_end")?;
    let hostile = Suite::built("testing/hostile-peer", "over_verbs")?;
    let stack = Suite::built("crates/verbs-ibv", "stack")?;
    let software_iwarp = Suite::built("crates/verbs-ibv", "software_iwarp")?;
    let mut by_name = vec!["--exact".to_owned()];
    for name in END_TO_END {
        end_to_end.has(name)?;
        by_name.push(name.to_owned());
    }
    let runs = [
        end_to_end.over(Link::Rxe, by_name),
        hostile.over(Link::Rxe, Vec::new()),
        stack.over(Link::Rxe, Vec::new()),
        software_iwarp.over(Link::Siw, Vec::new()),
    ];
    let expected = [
        END_TO_END.len(),
        hostile.tests.len(),
        stack.tests.len(),
        software_iwarp.tests.len(),
    ];
    pass(run, &runs, STACK_LIMIT, &expected)
}

/// A program of tests.
struct Suite {
    program: PathBuf,
    tests: Vec<String>,
}

impl Suite {
    /// Builds the test `name` of the crate in `folder`.
    fn built(folder: &str, name: &str) -> Result<Self> {
        let program = build_as_tested(folder, "--test", name)?;
        let listed = output(Command::new(&program).args(["--list", "--format=terse"]))?;
        let tests = listed
            .lines()
            .filter_map(|line| line.strip_suffix(": test"));
        Ok(Self {
            tests: tests.map(str::to_owned).collect(),
            program,
        })
    }

    /// A run of it with these arguments, one test at a time: several would have an emulated processor for each thread.
    fn over(&self, link: Link, mut arguments: Vec<String>) -> ProgramRun<'_> {
        arguments.push("--test-threads=1".to_owned());
        ProgramRun {
            link,
            program: &self.program,
            arguments,
        }
    }

    fn has(&self, name: &str) -> Result<()> {
        let has = self.tests.iter().any(|test| test == name);
        ensure!(has, "there is no test {name}");
        Ok(())
    }
}

/// Runs programs of tests, of which so many must pass.
fn pass(
    run: &TestRun<'_>,
    runs: &[ProgramRun<'_>],
    limit: Duration,
    expected: &[usize],
) -> Result<()> {
    let job = Job {
        runs,
        environment: &[],
        limit,
    };
    let log = job.run(run)?;
    let passed: Vec<_> = log.lines().filter_map(passed).collect();
    ensure!(
        passed == expected,
        "there passed {passed:?} tests, and not {expected:?}"
    );
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
