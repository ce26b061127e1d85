//! The kernel's client on nfs-ganesha, in each version of NFS, with our gateway between them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};

use super::libnfs::{Libnfs, SHELF};
use super::{ENTRIES, HOST, LIMIT, Mounted};
use crate::TestRun;
use crate::gateway::{Gateway, Place};
use crate::guest::{Boot, Guest};
use crate::namespaces::Namespaces;
use crate::serve::Ports;
use crate::tests::load::{self, check_stable};

/// Of ganesha to come up.
const SERVER_LIMIT: Duration = Duration::from_secs(60);

/// Ports of ganesha, in a network of its own.
pub(crate) const PORTS: Ports = (2049, 20048);
pub(crate) const UPSTREAM: &str = "tcp://127.0.0.1:2049";

/// The versions of NFS that are used under load, and at how many ends of a server or a gateway it may be forgotten
/// which calls were executed: a server of version 4.2 remembers them for a client, and forgets them when it ends; a
/// server of version 3 remembers them for a connection.
const LOADED: [(&str, usize); 2] = [("4.2", 2), ("3", 4)];

/// Changes of names that are under way at a time.
const CHANGES: usize = 2;

pub(in crate::tests) fn run(run: &TestRun<'_>) -> Result<()> {
    let lab = Lab::start(run)?;
    let gateway = lab.place("gateway", "rdma", UPSTREAM).start(run)?;
    lab.drive("rdma", Some(gateway))
}

/// Without a gateway, over TCP: tells a fault of the test, the client or the server from one of ours.
pub(in crate::tests) fn reference(run: &TestRun<'_>) -> Result<()> {
    Lab::start(run)?.drive("tcp", None)
}

/// A ganesha in namespaces of its own, and what it exports.
pub(super) struct Lab<'a> {
    pub(super) run: &'a TestRun<'a>,
    pub(super) folder: PathBuf,
    pub(super) ganesha: Namespaces,
}

impl<'a> Lab<'a> {
    pub(super) fn start(run: &'a TestRun<'a>) -> Result<Self> {
        Self::start_with(run, &[])
    }

    /// One that wants Kerberos, with a realm of its own.
    pub(super) fn with_kerberos(run: &'a TestRun<'a>) -> Result<Self> {
        let realm = realm(run).display().to_string();
        Self::start_with(run, &[("KERBEROS", realm)])
    }

    fn start_with(run: &'a TestRun<'a>, environment: &[(&str, String)]) -> Result<Self> {
        let folder = load::export(run)?;
        let many = folder.join("many");
        fs::create_dir(&many)?;
        for number in 0..ENTRIES {
            File::create(many.join(format!("entry-{number}")))?;
        }
        fs::create_dir(folder.join(SHELF))?;
        let ganesha = start(run, &folder, environment)?;
        Ok(Self {
            run,
            folder,
            ganesha,
        })
    }

    /// Folder of the realm's files.
    pub(super) fn realm(&self) -> PathBuf {
        realm(self.run)
    }

    pub(super) fn place(&self, name: &'a str, listen: &'a str, upstream: &str) -> Place<'_> {
        Place {
            name,
            listen,
            upstream: upstream.into(),
            options: Vec::new(),
            within: Some(&self.ganesha),
        }
    }

    /// The tools of libnfs, on what listens at these ports.
    pub(super) fn libnfs_at(&self, ports: Ports) -> Libnfs<'_> {
        Libnfs {
            run: self.run,
            within: Some(&self.ganesha),
            ports,
            root: "/export",
        }
    }

    /// Has them work, and compares what they wrote.
    pub(super) fn libnfs(&self, ports: Ports) -> Result<()> {
        for (name, content) in self.libnfs_at(ports).work()? {
            ensure!(
                fs::read(self.folder.join(&name))? == content,
                "{name} is not what libnfs wrote"
            );
        }
        Ok(())
    }

    /// The client at work, and then under load while the server and the gateway end and come back.
    fn drive(mut self, proto: &str, mut gateway: Option<Gateway>) -> Result<()> {
        let run = self.run;
        let mounted = Mounted {
            server: HOST,
            proto,
            ports: gateway.as_ref().map_or(PORTS, Gateway::ports),
            root: "/export",
            complete: false,
        };
        let mut environment = mounted.environment();
        environment.push(("VERSIONS", "3 4.0 4.1 4.2".into()));
        environment.push(("LOADED", LOADED.map(|(version, _)| version).join(" ")));
        let boot = Boot {
            name: "guest",
            script: "gateway.sh",
            environment: &environment,
            within: Some(&self.ganesha),
            limit: LIMIT,
            ..Boot::default()
        };
        let mut guest = Guest::boot(run, &boot)?;
        for (version, ends) in LOADED {
            guest.take_notes();
            guest.expect("loaded")?;
            self.server_restarts(&mut guest)?;
            if let Some(running) = gateway.take() {
                gateway = Some(self.gateway_restarts(running, &mut guest)?);
            }
            guest.tell("stop")?;
            let errors: usize = guest.expect("errors")?.parse()?;
            ensure!(
                errors <= CHANGES * ends,
                "{errors} changes came again in version {version}"
            );
            let count = format!("version {version}: {errors} changes came again");
            run.report.say(run.name, &count);
        }
        guest.finish()?;
        gateway.map_or(Ok(()), Gateway::stop)
    }

    fn server_restarts(&mut self, guest: &mut Guest<'_>) -> Result<()> {
        for end in ["restart", "kill"] {
            self.step(&format!("the server is told to {end}"));
            self.ganesha.ask(end)?;
            guest.ask("moved")?;
        }
        Ok(())
    }

    /// While there is no gateway, no reply passes: what was acknowledged before is on the server.
    fn gateway_restarts(&self, gateway: Gateway, guest: &mut Guest<'_>) -> Result<Gateway> {
        let ports = gateway.ports();
        let place = self.place("gateway", "rdma", UPSTREAM);
        self.step("the gateway stops");
        gateway.stop()?;
        check_stable(guest, &self.folder)?;
        let gateway = place.start_on(self.run, ports)?;
        guest.ask("moved")?;
        self.step("the gateway is killed");
        gateway.kill();
        check_stable(guest, &self.folder)?;
        let gateway = place.start_on(self.run, ports)?;
        guest.ask("moved")?;
        Ok(gateway)
    }

    pub(super) fn step(&self, what: &str) {
        self.run.report.say(self.run.name, what);
    }
}

fn realm(run: &TestRun<'_>) -> PathBuf {
    run.work.join("kerberos")
}

/// Starts nfs-ganesha in namespaces of its own, with this folder as `/export`.
///
/// # Errors
///
/// It does not start, or the user is not root.
pub(crate) fn start(
    run: &TestRun<'_>,
    folder: &Path,
    more: &[(&str, String)],
) -> Result<Namespaces> {
    let work = run.work.join("ganesha");
    fs::create_dir(&work)?;
    let mut environment = vec![
        ("WORK", work.display().to_string()),
        ("EXPORT", folder.display().to_string()),
        ("LOG", run.logs.join("ganesha.log").display().to_string()),
        ("NFS_PORT", PORTS.0.to_string()),
        ("MOUNT_PORT", PORTS.1.to_string()),
    ];
    environment.extend_from_slice(more);
    let errors = File::create(run.logs.join("ganesha-script.log"))?;
    Namespaces::start("ganesha.sh", &environment, errors, SERVER_LIMIT)
}
