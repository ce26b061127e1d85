//! Tests of our server with the kernel's own in its place, in a second guest: they tell a fault of
//! the test from a fault of ours.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::kernel_server::KernelServer;
use super::linux_mounts_us::drive;
use super::{ENTRIES, capture};
use crate::TestRun;

pub(super) fn mounts(run: &TestRun<'_>) -> Result<()> {
    let mut server = KernelServer::start(run, 0, Duration::from_secs(900))?;
    server.make_entries(ENTRIES)?;
    let sum = drive(
        run,
        ("10.0.2.2", server.port, server.mount_port, "/export"),
        true,
        None,
    )?;
    ensure!(
        server.sum("data")? == sum,
        "the servers's file differs from the one that was written"
    );
    server.stop()
}

pub(super) fn tshark(run: &TestRun<'_>) -> Result<()> {
    let server = KernelServer::start(run, 0, Duration::from_secs(300))?;
    let capture = capture::record(run, server.port, server.mount_port, "/export")?;
    let port = server.port;
    server.stop()?;
    capture::dissect(run, &capture, port)?;
    Ok(())
}
