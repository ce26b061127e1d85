//! Times of the kernel's client on nfs-ganesha, by several ways to it: through our gateway, and through what does less.
//!
//! The client is in a guest, and all else on the host. Its software iWARP is emulated with it, so that RDMA costs it more
//! than TCP: that is told apart by two of our gateways, which have RDMA between them on the host, and by our server over
//! RDMA.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::gateway::Place;
use super::guest::{Boot, Guest, free_ports};
use super::namespaces::Namespaces;
use super::packages::tool;
use super::serve::{Ports, Serve};
use super::servers::{GuestMachine, seconds};
use super::tests::{GANESHA_PORTS, GANESHA_UPSTREAM, start_ganesha};
use super::{TestRun, timed};

/// A way to the files. All but the last lead to nfs-ganesha.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// Over TCP, with nothing in between.
    Direct,
    /// Over TCP, through `socat`, a relay that does nothing.
    Socat,
    /// Over TCP, through two of them.
    Socats,
    /// Over RDMA, through our gateway.
    Gateway,
    /// Over TCP, through two of our gateways, with RDMA between them.
    Gateways,
    /// Over RDMA, to our server.
    Serve,
}

/// All ways, with the names that the guest has for them, and their transports.
const WAYS: [(Way, &str, &str); 6] = [
    (Way::Direct, "direct", "tcp"),
    (Way::Socat, "socat", "tcp"),
    (Way::Gateway, "gateway", "rdma"),
    (Way::Socats, "socats", "tcp"),
    (Way::Gateways, "gateways", "tcp"),
    (Way::Serve, "serve", "rdma"),
];

/// Works of the guest, in this order, and how much of each.
pub const WORKS: [&str; 3] = ["write", "read", "getattr"];
/// Size of the file that is written and read.
pub const MIB: usize = 32;
/// GETATTR calls of a round.
pub const STATS: usize = 500;

/// How long the guest may take beside its rounds, and for each of them.
const LIMIT: Duration = Duration::from_secs(300);
const ROUND_LIMIT: Duration = Duration::from_secs(180);

/// Times measured in a guest.
pub struct WayTimes {
    /// The guest.
    pub guest: GuestMachine,
    /// Seconds of each round, by work and way.
    pub times: BTreeMap<(&'static str, Way), Vec<f64>>,
}

/// Boots Debian 12's kernel and times its client on each way, so many rounds.
///
/// # Errors
///
/// The user is not root, the guest cannot be built or booted, or a piece of work fails.
pub fn time_ways(program: &Path, rounds: usize, install: bool) -> Result<WayTimes> {
    timed("ways", program, install, |run| drive(run, rounds))
}

fn drive(run: &TestRun<'_>, rounds: usize) -> Result<WayTimes> {
    // In memory, so that no disk is measured.
    let files = tempfile::Builder::new()
        .prefix("rpcrdma-ways-")
        .tempdir_in("/dev/shm")
        .context("cannot make a directory in /dev/shm")?;
    let ganesha = start_ganesha(run, files.path(), &[])?;
    let [socat, socats] = free_ports()?;
    let (server, mountd) = GANESHA_PORTS;
    let _socats = [
        Socat::start(run, &ganesha, socat, server)?,
        Socat::start(run, &ganesha, socats, socat)?,
    ];
    let gateway = Place {
        name: "gateway",
        listen: "rdma",
        upstream: GANESHA_UPSTREAM.into(),
        options: Vec::new(),
        within: Some(&ganesha),
    };
    let gateway = gateway.start(run)?;
    let gateways = Place {
        name: "gateway-in-front",
        listen: "tcp",
        upstream: format!("rdma://127.0.0.1:{}", gateway.port),
        options: vec![format!("--upstream-mount={}", gateway.mount_port)],
        within: Some(&ganesha),
    };
    let gateways = gateways.start(run)?;
    let serve = Serve::start_within(run, files.path(), &ganesha)?;
    let ports = |way| -> Ports {
        match way {
            Way::Direct => GANESHA_PORTS,
            Way::Socat => (socat, mountd),
            Way::Socats => (socats, mountd),
            Way::Gateway => gateway.ports(),
            Way::Gateways => gateways.ports(),
            Way::Serve => serve.ports(),
        }
    };
    let ways = WAYS.map(|(way, name, proto)| {
        let (port, mount_port) = ports(way);
        format!("{name}:{proto}:{port}:{mount_port}")
    });
    let boot = Boot {
        name: "guest",
        script: "ways.sh",
        environment: &[
            ("WAYS", ways.join(" ")),
            ("ROUNDS", rounds.to_string()),
            ("MIB", MIB.to_string()),
            ("STATS", STATS.to_string()),
        ],
        within: Some(&ganesha),
        limit: LIMIT + ROUND_LIMIT * u32::try_from(rounds)?,
        ..Boot::default()
    };
    let mut guest = Guest::boot(run, &boot)?;
    let machine = guest.expect("machine")?;
    let machine = GuestMachine::parse(&machine)
        .with_context(|| format!("the guest says of itself: {machine}"))?;
    let mut times = BTreeMap::new();
    for _ in 0..rounds {
        for work in WORKS {
            for (way, name, _) in WAYS {
                let took = seconds(&guest.expect("took")?, work, name)?;
                let all: &mut Vec<f64> = times.entry((work, way)).or_default();
                all.push(took);
            }
        }
    }
    guest.finish()?;
    gateways.stop()?;
    gateway.stop()?;
    serve.stop()?;
    let left = fs::read_dir(files.path())?.count();
    ensure!(left == 0, "{left} files are left in the export");
    Ok(WayTimes {
        guest: machine,
        times,
    })
}

/// A relay that passes bytes on. Dropping it ends it; those of its connections end with the namespaces.
struct Socat(Child);

impl Socat {
    fn start(run: &TestRun<'_>, within: &Namespaces, port: u16, upstream: u16) -> Result<Self> {
        let mut command = tool("socat");
        command.arg(format!(
            "TCP-LISTEN:{port},bind=127.0.0.1,fork,reuseaddr,nodelay"
        ));
        command.arg(format!("TCP:127.0.0.1:{upstream},nodelay"));
        let mut command: Command = within.enter(&command);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(run.logs.join(format!("socat-{port}.log")))?)
            .spawn()
            .context("cannot run socat")?;
        Ok(Self(child))
    }
}

impl Drop for Socat {
    fn drop(&mut self) {
        // An error here means that it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
