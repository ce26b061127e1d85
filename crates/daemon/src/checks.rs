//! Checks that a server and a gateway have in common before they start.

use crate::clients::summed_up;
use anyhow::Context;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

/// Ports that processes of one kind have which run already. It is a warning, as one of them may be the one that reads the file
/// again.
#[derive(Clone, Debug)]
pub(crate) struct PortsInUse {
    /// The kind of process, in a word.
    what: &'static str,
    by_process: BTreeMap<u32, Vec<SocketAddr>>,
}

impl PortsInUse {
    /// None so far, of `gateway` or `server`.
    pub(crate) fn of(what: &'static str) -> Self {
        let by_process = BTreeMap::new();
        Self { what, by_process }
    }

    pub(crate) fn add(&mut self, pid: u32, addr: SocketAddr) {
        self.by_process.entry(pid).or_default().push(addr);
    }

    /// One sentence for each process that has ports.
    pub(crate) fn describe_taken(&self) -> impl Iterator<Item = String> {
        let what = self.what;
        self.describe(move |ports| {
            format!(
                "has these ports already: {ports}. It keeps them if it reads this file at a reload; a second {what} cannot \
                 start while it runs"
            )
        })
    }

    /// One sentence for each process that is registered with rpcbind.
    pub(crate) fn describe_registered(&self) -> impl Iterator<Item = String> {
        let what = self.what;
        self.describe(move |ports| {
            format!(
                "is registered with rpcbind, for {ports}. It replaces that if it reads this file at a reload; a second \
                 {what} cannot while it runs"
            )
        })
    }

    fn describe(&self, has: impl Fn(String) -> String) -> impl Iterator<Item = String> {
        let what = self.what;
        self.by_process.iter().map(move |(pid, ports)| {
            let ports: Vec<String> = ports.iter().map(ToString::to_string).collect();
            format!("the {what} with process {pid} {}", has(summed_up(&ports)))
        })
    }
}

/// Whether a process has the ports of this one. One in a network of its own, as in a container, has others.
pub(crate) fn shares_network(pid: u32) -> bool {
    let network = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net")).ok();
    match (network(&pid.to_string()), network("self")) {
        (Some(other), Some(own)) => other == own,
        // That of another user is not told.
        (None, _) | (_, None) => true,
    }
}

/// Whether this user may make a directory, or files in it.
pub(crate) fn may_write(dir: &Path) -> anyhow::Result<()> {
    let there = dir.ancestors().find(|dir| dir.exists());
    let there = there.unwrap_or(Path::new("/"));
    let rights = Access::WRITE_OK | Access::EXEC_OK;
    accessat(CWD, there, rights, AtFlags::EACCESS).with_context(|| {
        let there = there.display();
        format!("{}: this user may not write to {there}", dir.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_a_running_process_are_one_sentence() {
        let mut ports = PortsInUse::of("gateway");
        for port in 1..=9 {
            ports.add(7, ([127, 0, 0, 1], port).into());
        }
        ports.add(8, ([127, 0, 0, 1], 10).into());
        let said: Vec<String> = ports.describe_taken().collect();
        assert_eq!(said.len(), 2);
        assert!(
            said[0].starts_with("the gateway with process 7 has"),
            "{said:?}"
        );
        assert!(said[1].contains("127.0.0.1:10"), "{said:?}");
    }
}
