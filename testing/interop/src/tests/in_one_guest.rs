//! Tests for which our server is in the guest, beside the kernel's client: the file systems it exports are
//! made for the test, by root, and the script sees both ends of each of them.

use std::fs::File;
use std::time::Duration;

use anyhow::Result;

use crate::TestRun;
use crate::guest::{Boot, Guest};
use programs::command::build_as_tested;

/// Each takes less than a minute on an idle machine.
const LIMIT: Duration = Duration::from_secs(480);

/// The disk that both servers serve, and how often each is timed.
const SYNCED_DISK: u64 = 512 << 20;
const SYNC_ROUNDS: usize = 9;

/// Turns of each of two mounts: a wrong answer that they give one time in a hundred shows.
const TURNS: usize = 100;

pub(super) fn quotas(run: &TestRun<'_>) -> Result<()> {
    with_script(run, "quotas.sh", &[])
}

pub(super) fn moved(run: &TestRun<'_>) -> Result<()> {
    with_script(run, "moved.sh", &[])
}

pub(super) fn two_mounts(run: &TestRun<'_>) -> Result<()> {
    with_script(run, "two-mounts.sh", &[("TURNS", TURNS.to_string())])
}

pub(super) fn nested_mounts(run: &TestRun<'_>) -> Result<()> {
    with_script(run, "nested-mounts.sh", &[])
}

/// Sockets of programs are tried by the tests of `socket-owner` whose results depend on the kernel.
pub(super) fn local_users(run: &TestRun<'_>) -> Result<()> {
    let kernels = build_as_tested("crates/socket-owner", "--test", "kernels")?;
    let boot = Boot {
        files: &[("kernels", &kernels)],
        ..boot(run, "local-users.sh", &[])
    };
    Guest::boot(run, &boot)?.finish()
}

/// Cost of stable storage beside the kernel's server, on one file system. The script prints it.
pub(super) fn sync_costs(run: &TestRun<'_>) -> Result<()> {
    let disk = run.work.join("disk");
    File::create(&disk)?.set_len(SYNCED_DISK)?;
    let environment = [("ROUNDS", SYNC_ROUNDS.to_string())];
    let boot = Boot {
        disks: &[&disk],
        ..boot(run, "sync-costs.sh", &environment)
    };
    Guest::boot(run, &boot)?.finish()
}

fn with_script(run: &TestRun<'_>, script: &str, environment: &[(&str, String)]) -> Result<()> {
    Guest::boot(run, &boot(run, script, environment))?.finish()
}

fn boot<'a>(run: &TestRun<'a>, script: &'a str, environment: &'a [(&'a str, String)]) -> Boot<'a> {
    Boot {
        name: "guest",
        script,
        environment,
        program: Some(run.program),
        limit: LIMIT,
        ..Boot::default()
    }
}
