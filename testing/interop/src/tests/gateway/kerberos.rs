//! The kernel's client on nfs-ganesha with Kerberos, in each of its three kinds, with our gateway between them.

use std::fs;
use std::os::unix::fs::MetadataExt;

use anyhow::{Context, Result, ensure};

use super::ganesha::{Lab, PORTS, UPSTREAM};
use super::{LIMIT, Mounted};
use crate::TestRun;
use crate::gateway::Gateway;
use crate::guest::{Boot, Guest};

/// Version of NFS and kind of Kerberos: of authentication only, with integrity, and with privacy.
const MOUNTS: [&str; 5] = ["4.2:krb5", "4.2:krb5i", "4.2:krb5p", "3:krb5", "3:krb5p"];

/// The user of `kerberos.sh`.
const USER: u32 = 1000;

/// Files of the realm that the guest is given.
const KEYS: [&str; 3] = ["krb5.conf", "guest.keytab", "user.keytab"];

pub(in crate::tests) fn run(run: &TestRun<'_>) -> Result<()> {
    let lab = Lab::with_kerberos(run)?;
    let gateway = lab.place("gateway", "rdma", UPSTREAM).start(run)?;
    drive(&lab, "rdma", Some(&gateway))?;
    gateway.stop()
}

/// Without a gateway, over TCP: tells a fault of the test, the client or the server from one of ours.
pub(in crate::tests) fn reference(run: &TestRun<'_>) -> Result<()> {
    let lab = Lab::with_kerberos(run)?;
    drive(&lab, "tcp", None)
}

fn drive(lab: &Lab<'_>, proto: &str, gateway: Option<&Gateway>) -> Result<()> {
    let mounted = Mounted {
        // The name that the server has in the realm.
        server: "host",
        proto,
        ports: gateway.map_or(PORTS, Gateway::ports),
        root: "/export",
        complete: false,
    };
    let mut environment = mounted.environment();
    environment.push(("MOUNTS", MOUNTS.join(" ")));
    let realm = lab.realm();
    let keys = KEYS.map(|name| (name, realm.join(name)));
    let files = keys.each_ref().map(|(name, path)| (*name, path.as_path()));
    let boot = Boot {
        name: "guest",
        script: "gateway-kerberos.sh",
        environment: &environment,
        files: &files,
        within: Some(&lab.ganesha),
        limit: LIMIT,
        ..Boot::default()
    };
    let mut guest = Guest::boot(lab.run, &boot)?;
    for mount in MOUNTS {
        let made = lab.folder.join(guest.expect("made")?);
        let about = fs::metadata(&made).with_context(|| made.display().to_string())?;
        ensure!(
            about.uid() == USER,
            "{mount}: the server thinks that uid {} made {}",
            about.uid(),
            made.display()
        );
        guest.tell("seen")?;
    }
    guest.finish()
}
