//! The guest by itself, so that what fails afterwards is not the guest's fault.

use std::time::Duration;

use anyhow::Result;

use crate::TestRun;
use crate::guest::{Boot, Guest};

pub(super) fn run(run: &TestRun<'_>) -> Result<()> {
    let boot = Boot {
        name: "guest",
        script: "kernel-selftest.sh",
        environment: &[],
        limit: Duration::from_secs(180),
        ..Boot::default()
    };
    Guest::boot(run, &boot)?.finish()
}
