//! libnfs, over TCP, through two gateways to nfs-ganesha over TCP. Between the two the transport is version two of
//! RPC-over-RDMA.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::ganesha::{Lab, PORTS, UPSTREAM};
use crate::TestRun;
use crate::serve::Ports;
use crate::tests::load::WAIT_LIMIT;
use crate::tests::our_client::Running;
use crate::tests::{MIB, write_noise};

/// Bytes of a file that is written while gateways end, and how much of it is there when one does.
const LARGE: usize = 96 * MIB;
const WRITTEN: u64 = 8 * MIB as u64;

const POLL: Duration = Duration::from_millis(2);

pub(in crate::tests) fn run(run: &TestRun<'_>) -> Result<()> {
    let lab = Lab::start(run)?;
    let far_place = lab.place("far-gateway", "rdma", UPSTREAM);
    let far = far_place.start(run)?;
    let upstream = format!("rdma://127.0.0.1:{}", far.port);
    let mut near_place = lab.place("near-gateway", "tcp", &upstream);
    near_place.options = vec![
        "--rpcrdma-version=2".into(),
        format!("--upstream-mount={}", far.mount_port),
    ];
    let near = near_place.start(run)?;
    lab.libnfs(near.ports())?;

    let far_ports = far.ports();
    let mut large = Large::begin(&lab, near.ports(), "far")?;
    lab.step("the gateway at the server is killed");
    far.kill();
    large.is_unfinished()?;
    let far = far_place.start_on(run, far_ports)?;
    large.end()?;

    let near_ports = near.ports();
    let mut large = Large::begin(&lab, near_ports, "near")?;
    lab.step("the gateway at the client is killed");
    near.kill();
    large.is_unfinished()?;
    let near = near_place.start_on(run, near_ports)?;
    large.end()?;

    near.stop()?;
    far.stop()?;
    let log = fs::read_to_string(run.logs.join("far-gateway.log"))?;
    ensure!(
        log.contains("speaks version 2;") && !log.contains("speaks version 1;"),
        "not every connection between the gateways is of version two"
    );
    Ok(())
}

/// Without gateways: tells a fault of the test, libnfs or the server from one of ours.
pub(in crate::tests) fn reference(run: &TestRun<'_>) -> Result<()> {
    let lab = Lab::start(run)?;
    lab.libnfs(PORTS)?;
    let large = Large::begin(&lab, PORTS, "large")?;
    large.end()
}

/// A large file that libnfs is writing.
struct Large {
    copy: Running,
    source: PathBuf,
    file: PathBuf,
}

impl Large {
    /// Begins to write it, and waits until a part is there.
    fn begin(lab: &Lab<'_>, ports: Ports, name: &str) -> Result<Self> {
        let source = lab.run.work.join(name);
        write_noise(&source, LARGE)?;
        let (mut command, path) = lab.libnfs_at(ports).copy_command(&source, name);
        let mut large = Self {
            copy: Running::start(lab.run, &format!("nfs-cp-{name}"), &mut command)?,
            source,
            file: lab.folder.join(path),
        };
        let start = Instant::now();
        while large.written() < WRITTEN {
            large.copy.still_runs()?;
            ensure!(start.elapsed() < WAIT_LIMIT, "libnfs does not write");
            thread::sleep(POLL);
        }
        Ok(large)
    }

    /// Bytes that the server has, from the start of the file; none before it is made.
    fn written(&self) -> u64 {
        fs::metadata(&self.file).map_or(0, |about| about.len())
    }

    fn is_unfinished(&mut self) -> Result<()> {
        let bytes = self.written();
        ensure!(
            bytes < LARGE as u64,
            "all was written before the gateway ended"
        );
        self.copy.still_runs()
    }

    /// Waits until it is written, and compares.
    fn end(self) -> Result<()> {
        self.copy.finish(WAIT_LIMIT)?;
        ensure!(
            fs::read(&self.source)? == fs::read(&self.file)?,
            "{} is not what libnfs wrote",
            self.file.display()
        );
        fs::remove_file(&self.source)?;
        Ok(fs::remove_file(&self.file)?)
    }
}
