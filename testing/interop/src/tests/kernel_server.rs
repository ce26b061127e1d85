//! The kernel's server in a guest, within the host's reach.

use std::time::Duration;

use anyhow::Result;

use crate::TestRun;
use crate::guest::{Boot, Guest, free_ports};

/// Ports of nfsd and mountd in the guest.
const GUEST_PORTS: [u16; 2] = [20049, 20048];

/// A guest that serves `/export` until it is told to stop.
pub(super) struct KernelServer<'a> {
    guest: Guest<'a>,
    /// The host's port that leads to nfsd.
    pub(super) port: u16,
    /// The host's port that leads to mountd.
    pub(super) mount_port: u16,
}

impl<'a> KernelServer<'a> {
    /// Starts it, with a file `/export/shelf/big` of so many MiB.
    pub(super) fn start(run: &'a TestRun<'a>, big_mib: usize, limit: Duration) -> Result<Self> {
        let [port, mount_port] = free_ports()?;
        let boot = Boot {
            name: "server",
            script: "kernel-server.sh",
            environment: &[("BIG_MIB", big_mib.to_string())],
            forwards: &[(port, GUEST_PORTS[0]), (mount_port, GUEST_PORTS[1])],
            limit,
            ..Boot::default()
        };
        let mut guest = Guest::boot(run, &boot)?;
        guest.expect("ready")?;
        Ok(Self {
            guest,
            port,
            mount_port,
        })
    }

    /// The checksum of a file below `/export`, as the guest sees it.
    pub(super) fn sum(&mut self, path: &str) -> Result<String> {
        self.guest.tell(&format!("sum {path}"))?;
        self.guest.expect("sum")
    }

    /// Makes `/export/many` with so many entries.
    pub(super) fn make_entries(&mut self, count: usize) -> Result<()> {
        self.guest.tell(&format!("entries {count}"))?;
        self.guest.expect("done")?;
        Ok(())
    }

    /// Ends the kernel's server and has it come back with these inline sizes.
    pub(super) fn restart(&mut self, inline_size: usize) -> Result<()> {
        self.guest.ask(&format!("restart {inline_size}"))
    }

    /// Has it come back without what was written, and not committed, of a file of so many bytes.
    pub(super) fn lose(&mut self, bytes: usize) -> Result<()> {
        self.guest.ask(&format!("lose {bytes}"))
    }

    /// The number of files in a folder below `/export`, and a checksum of all that is in them.
    pub(super) fn tree(&mut self, path: &str) -> Result<String> {
        self.guest.tell(&format!("tree {path}"))?;
        self.guest.expect("tree")
    }

    pub(super) fn stop(mut self) -> Result<()> {
        self.guest.tell("stop")?;
        self.guest.finish()
    }
}
