//! The service of our Debian package under systemd, with the kernel's client on it in the same machine.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};

use crate::TestRun;
use crate::clean_debian;
use crate::guest::{Boot, Guest};
use crate::image::debian_root;

/// The guest takes about two minutes on an idle machine.
const LIMIT: Duration = Duration::from_secs(900);

/// The most that `systemd-analyze security` may say against the service: what it calls "OK" begins above.
const MAX_EXPOSURE: f64 = 4.0;

pub(super) fn run(run: &TestRun<'_>) -> Result<()> {
    let package = run.package.context("no package was made")?;
    let package = package.as_ref().map_err(|error| anyhow!("{error:#}"))?;
    let root = clean_debian(&debian_root::GUEST, |what| run.report.say("build", what))?;
    let image = debian_root::image(&root, run.image, &run.work)?;
    let run = &TestRun {
        image: &image,
        logs: run.logs.clone(),
        work: run.work.clone(),
        ..*run
    };
    let boot = Boot {
        name: "guest",
        script: "deb-under-systemd.sh",
        files: &[("rpcrdma.deb", package)],
        limit: LIMIT,
        ..Boot::default()
    };
    let mut guest = Guest::boot(run, &boot)?;
    let exposure = guest.expect("exposure")?;
    run.report.say(
        run.name,
        &format!("systemd-analyze security: {exposure} of 10"),
    );
    let exposure: f64 = exposure.parse().context("it is no number")?;
    ensure!(
        exposure <= MAX_EXPOSURE,
        "the service may do more than it needs"
    );
    guest.finish()
}
