//! Clients without RDMA on the kernel's server over RDMA, with our gateway between them: libnfs, and the kernel's
//! client over TCP.

use anyhow::Result;

use super::libnfs::Libnfs;
use super::{HOST, KernelServer, LIMIT, Mounted};
use crate::TestRun;
use crate::gateway::Place;
use crate::guest::{Boot, Guest};
use crate::serve::Ports;

/// The path of the export in version 4: that of an export with `fsid=0`.
const ROOT: &str = "/";

pub(in crate::tests) fn run(run: &TestRun<'_>) -> Result<()> {
    let mut server = KernelServer::start(run, "")?;
    server.ready()?;
    let [_, rdma, mountd] = server.ports;
    let place = Place {
        name: "gateway",
        listen: "tcp",
        upstream: format!("rdma://127.0.0.1:{rdma}"),
        options: vec![format!("--upstream-mount={mountd}")],
        within: None,
    };
    let gateway = place.start(run)?;
    drive(run, gateway.ports())?;
    gateway.stop()?;
    server.stop()
}

/// Without a gateway, over TCP: tells a fault of the test, a client or the server from one of ours.
pub(in crate::tests) fn reference(run: &TestRun<'_>) -> Result<()> {
    let mut server = KernelServer::start(run, "")?;
    server.ready()?;
    let [tcp, _, mountd] = server.ports;
    drive(run, (tcp, mountd))?;
    server.stop()
}

fn drive(run: &TestRun<'_>, ports: Ports) -> Result<()> {
    let libnfs = Libnfs {
        run,
        within: None,
        ports,
        root: ROOT,
    };
    libnfs.work()?;
    let mounted = Mounted {
        server: HOST,
        proto: "tcp",
        ports,
        root: ROOT,
        complete: true,
    };
    let mut environment = mounted.environment();
    environment.push(("VERSIONS", "3 4.1 4.2".into()));
    environment.push(("LOADED", String::new()));
    let boot = Boot {
        name: "client",
        script: "gateway.sh",
        environment: &environment,
        limit: LIMIT,
        ..Boot::default()
    };
    Guest::boot(run, &boot)?.finish()
}
