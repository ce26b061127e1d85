//! libibverbs and librdmacm in the guest, over its software devices: rxe (RoCE) and siw (iWARP).

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::interop::TestRun;
use crate::interop::guest::{Boot, Guest};

/// Takes some seconds on an idle machine.
const DEVICES_LIMIT: Duration = Duration::from_secs(180);

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
            && port["state"] == "active"
            && port["protocol"] == self.protocol
            && addresses.is_some_and(|all| all.iter().any(|one| one == self.address))
            && device["memory_windows"] == self.windows
            && device["remote_invalidation"] == self.remote_invalidation;
        ensure!(is_as_expected, "this is not {}: {line:#}", self.name);
        Ok(())
    }
}
