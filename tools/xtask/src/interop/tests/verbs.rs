//! libibverbs and librdmacm in the guest, over its software devices: rxe (RoCE) and siw (iWARP).

use std::time::Duration;

use anyhow::Result;

use crate::interop::TestRun;
use crate::interop::guest::{Boot, Guest};

/// Takes some seconds on an idle machine.
const DEVICES_LIMIT: Duration = Duration::from_secs(180);

/// The devices work without our part in it.
pub(super) fn devices(run: &TestRun<'_>) -> Result<()> {
    let boot = Boot {
        name: "guest",
        script: "verbs-devices.sh",
        limit: DEVICES_LIMIT,
        ..Boot::default()
    };
    Guest::boot(run, &boot)?.finish()
}
