//! A gateway over an RDMA device, with both its ends in one guest.

use std::time::Duration;

use anyhow::Result;

use crate::TestRun;
use crate::guest::{Boot, Guest};

/// Takes about a minute on an idle machine.
const LIMIT: Duration = Duration::from_secs(480);

/// RDMA in front of TCP and TCP in front of RDMA, two pairs as a tunnel, and the device removed under RDMA clients.
pub(in crate::tests) fn run(run: &TestRun<'_>) -> Result<()> {
    let boot = Boot {
        name: "guest",
        script: "gateway-over-rxe.sh",
        program: Some(run.program),
        limit: LIMIT,
        ..Boot::default()
    };
    Guest::boot(run, &boot)?.finish()
}
