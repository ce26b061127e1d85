//! The kernel's client and its server, each in a guest, with our gateway between them: version 4.2 with what only
//! the kernel's server has, and what that calls the client for.

use anyhow::{Result, ensure};

use super::{HOST, KernelServer, LIMIT, Mounted};
use crate::TestRun;
use crate::gateway::Place;
use crate::guest::{Boot, Guest};
use crate::serve::Ports;
use crate::tests::MIB;

/// Delegations in each part of the test.
const FILES: usize = 8;

/// Bytes of the file that the server copies: of less the client waits for the end of the copy.
const COPIED: usize = 8 * MIB;

/// The kernel's server waits so long for a delegation, as long as for a lease, and takes it away.
const LEASE_SECONDS: u64 = 90;

pub(in crate::tests) fn run(run: &TestRun<'_>) -> Result<()> {
    let server = start_server(run)?;
    let upstream = format!("tcp://127.0.0.1:{}", server.ports[0]);
    through_gateway(run, server, "rdma", upstream)
}

/// The other way: the client is called over TCP, by a server over RDMA.
pub(in crate::tests) fn run_to_rdma(run: &TestRun<'_>) -> Result<()> {
    let server = start_server(run)?;
    let upstream = format!("rdma://127.0.0.1:{}", server.ports[1]);
    through_gateway(run, server, "tcp", upstream)
}

fn through_gateway(
    run: &TestRun<'_>,
    server: KernelServer<'_>,
    listen: &str,
    upstream: String,
) -> Result<()> {
    let place = Place {
        name: "gateway",
        listen,
        upstream,
        options: vec![format!("--upstream-mount={}", server.ports[2])],
        within: None,
    };
    let gateway = place.start(run)?;
    let mut lab = Lab::start(run, server, listen, gateway.ports())?;
    lab.held("recalled")?;
    lab.recalled("recalled")?;
    lab.held("lost")?;
    lab.step("the gateway is killed and comes back");
    let ports = gateway.ports();
    gateway.kill();
    let gateway = place.start_on(run, ports)?;
    lab.client.ask("connected")?;
    lab.recalled("lost")?;
    lab.end()?;
    gateway.stop()
}

/// Without a gateway, over TCP: tells a fault of the test, the client or the server from one of ours.
pub(in crate::tests) fn reference(run: &TestRun<'_>) -> Result<()> {
    let server = start_server(run)?;
    let ports = (server.ports[0], server.ports[2]);
    let mut lab = Lab::start(run, server, "tcp", ports)?;
    lab.held("recalled")?;
    lab.recalled("recalled")?;
    lab.end()
}

/// Version 3 would bring lockd with a grace period of its own, in which there are no delegations.
fn start_server<'a>(run: &'a TestRun<'a>) -> Result<KernelServer<'a>> {
    KernelServer::start(run, "--no-nfs-version 3")
}

struct Lab<'a> {
    run: &'a TestRun<'a>,
    server: KernelServer<'a>,
    client: Guest<'a>,
}

impl<'a> Lab<'a> {
    /// A client that mounts what these ports lead to. It is at work on a mount of its own before the test of
    /// callbacks.
    fn start(
        run: &'a TestRun<'a>,
        mut server: KernelServer<'a>,
        proto: &str,
        ports: Ports,
    ) -> Result<Self> {
        let mounted = Mounted {
            server: HOST,
            proto,
            ports,
            root: "/",
            complete: true,
        };
        let mut environment = mounted.environment();
        environment.push(("COPIED", COPIED.to_string()));
        let boot = Boot {
            name: "client",
            script: "gateway-callbacks.sh",
            environment: &environment,
            limit: LIMIT,
            ..Boot::default()
        };
        let mut client = Guest::boot(run, &boot)?;
        server.ready()?;
        client.tell("serves")?;
        client.expect("mounted")?;
        Ok(Self {
            run,
            server,
            client,
        })
    }

    /// The client has a delegation of each file of a set.
    fn held(&mut self, set: &str) -> Result<()> {
        self.step(&format!("delegations: {set}"));
        self.server.guest.ask(&format!("make {set} {FILES}"))?;
        self.client.ask(&format!("open {set} {FILES}"))
    }

    /// Somebody else writes to these files, while the client has calls of its own under way.
    fn recalled(&mut self, set: &str) -> Result<()> {
        self.client.ask("busy")?;
        self.server.guest.tell("channel")?;
        let channel = self.server.guest.expect("channel")?;
        ensure!(channel == "UP", "the callback channel is {channel}");
        self.server.guest.tell(&format!("write {set} {FILES}"))?;
        let seconds: u64 = self.server.guest.expect("written")?.parse()?;
        ensure!(
            seconds < LEASE_SECONDS,
            "a delegation was taken away after {seconds} s, not given back"
        );
        self.client.ask("idle")?;
        self.client.ask(&format!("recalled {set} {FILES}"))
    }

    fn end(mut self) -> Result<()> {
        self.client.tell("stop")?;
        self.client.finish()?;
        self.server.stop()
    }

    fn step(&self, what: &str) {
        self.run.report.say(self.run.name, what);
    }
}
