//! Our gateway between clients and servers of others, and each of these tests without it.

mod callbacks;
mod chain;
mod compounds;
mod ganesha;
mod kerberos;
mod libnfs;
mod over_rxe;
mod to_rdma;

pub(super) use self::callbacks::{
    reference as reference_callbacks, run as callbacks, run_to_rdma as callbacks_to_rdma,
};
pub(super) use self::chain::{reference as reference_chain, run as chain};
pub(super) use self::compounds::{reference as reference_compounds, run as compounds};
pub(crate) use self::ganesha::{
    PORTS as GANESHA_PORTS, UPSTREAM as GANESHA_UPSTREAM, start as start_ganesha,
};
pub(super) use self::ganesha::{reference as reference_ganesha, run as ganesha};
pub(super) use self::kerberos::{reference as reference_kerberos, run as kerberos};
pub(super) use self::over_rxe::run as over_rxe;
pub(super) use self::to_rdma::{reference as reference_to_rdma, run as to_rdma};

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use crate::TestRun;
use crate::guest::{Boot, Guest, free_ports};
use crate::serve::Ports;

/// Of a guest's script; the longest takes three minutes on an idle machine.
const LIMIT: Duration = Duration::from_secs(900);

/// Entries of the large directory.
const ENTRIES: usize = 1000;

/// The address that a guest has for the 127.0.0.1 of its host.
const HOST: &str = "10.0.2.2";

/// Bytes of the disk of the kernel's server.
const DISK: u64 = 512 << 20;

/// Ports of the kernel's server in its guest: over TCP, over RDMA, and mountd.
const GUEST_PORTS: [u16; 3] = [2049, 20049, 20048];

/// Parameters for a client of the server that it mounts (`guest/work.sh`).
struct Mounted<'a> {
    server: &'a str,
    proto: &'a str,
    ports: Ports,
    /// The path of the export in version 4.
    root: &'a str,
    /// Whether it has all of version 4.2 that the client uses.
    complete: bool,
}

impl Mounted<'_> {
    fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("SERVER", self.server.into()),
            ("PROTO", self.proto.into()),
            ("PORT", self.ports.0.to_string()),
            ("MOUNT_PORT", self.ports.1.to_string()),
            ("ROOT", self.root.into()),
            ("COMPLETE", u8::from(self.complete).to_string()),
            ("ENTRIES", ENTRIES.to_string()),
        ]
    }
}

/// The kernel's server in a guest, over TCP and over RDMA.
struct KernelServer<'a> {
    guest: Guest<'a>,
    /// The host's ports that lead to it: TCP, RDMA and mountd.
    ports: [u16; 3],
    disk: PathBuf,
}

impl<'a> KernelServer<'a> {
    /// Starts it, with further options of `rpc.nfsd`.
    fn start(run: &'a TestRun<'a>, options: &str) -> Result<Self> {
        let disk = run.work.join("disk");
        File::create(&disk)?.set_len(DISK)?;
        let ports: [u16; 3] = free_ports()?;
        let forwards: Vec<_> = ports.into_iter().zip(GUEST_PORTS).collect();
        let boot = Boot {
            name: "server",
            script: "gateway-server.sh",
            environment: &[
                ("ENTRIES", ENTRIES.to_string()),
                ("NFSD_OPTIONS", options.into()),
            ],
            disks: &[&disk],
            forwards: &forwards,
            limit: LIMIT,
            ..Boot::default()
        };
        let guest = Guest::boot(run, &boot)?;
        Ok(Self { guest, ports, disk })
    }

    /// Waits until it serves.
    fn ready(&mut self) -> Result<()> {
        self.guest.expect("ready").map(drop)
    }

    /// Ends it, and has its log tell what the kernel says.
    fn stop(mut self) -> Result<()> {
        self.guest.tell("stop")?;
        self.guest.finish()?;
        Ok(std::fs::remove_file(&self.disk)?)
    }
}
