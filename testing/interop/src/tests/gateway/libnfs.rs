//! The tools of libnfs, a client of NFS 3 and 4.0 over TCP that runs as a program.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::ENTRIES;
use crate::TestRun;
use crate::namespaces::Namespaces;
use crate::packages::tool;
use crate::serve::Ports;
use crate::tests::{MIB, write_noise};
use programs::command::within;

/// The versions of NFS that it speaks, with bytes of a file that is written. In version 3 that is more than one
/// call holds, and no multiple of four. In version 4 libnfs 4.0.0 cannot encode a WRITE of more than a few
/// thousand bytes.
const VERSIONS: [(&str, usize); 2] = [("3", 8 * MIB + 1), ("4", 3501)];

/// The directory of the export for the files. libnfs opens none in the root of all that a server exports.
pub(super) const SHELF: &str = "shelf";

/// Of one tool; each takes less than a second on an idle machine.
const LIMIT: Duration = Duration::from_secs(120);

/// A server that exports `/export`, and where the tools reach it.
pub(super) struct Libnfs<'a> {
    pub(super) run: &'a TestRun<'a>,
    /// The namespaces whose network they are in.
    pub(super) within: Option<&'a Namespaces>,
    pub(super) ports: Ports,
    /// The path of the export in version 4.
    pub(super) root: &'a str,
}

impl Libnfs<'_> {
    /// In each version, writes a file, reads it and those that were written before, and lists the large directory.
    /// Returns the names of the files, which stay, with their content.
    ///
    /// # Errors
    ///
    /// A tool fails, or what is read or listed is wrong.
    pub(super) fn work(&self) -> Result<Vec<(String, Vec<u8>)>> {
        let mut written = Vec::new();
        for (version, size) in VERSIONS {
            let say = format!("libnfs, version {version}");
            self.run.report.say(self.run.name, &say);
            let name = format!("{SHELF}/libnfs-{version}");
            let source = self.run.work.join(format!("libnfs-{version}"));
            write_noise(&source, size)?;
            let local = source.display().to_string();
            self.tool("nfs-cp", &[local, self.url(version, &name)])?;
            written.push((name, fs::read(&source)?));
            for (name, content) in &written {
                self.read(version, name, content)?;
            }
            self.list(version)?;
        }
        Ok(written)
    }

    /// The command that copies a file of this machine to the shelf, in version 3, under this name; and its path in
    /// the export.
    pub(super) fn copy_command(&self, source: &Path, name: &str) -> (Command, String) {
        let path = format!("{SHELF}/{name}");
        let local = source.display().to_string();
        (self.command("nfs-cp", &[local, self.url("3", &path)]), path)
    }

    fn read(&self, version: &str, name: &str, content: &[u8]) -> Result<()> {
        let back = self.run.work.join("libnfs-back");
        let local = back.display().to_string();
        self.tool("nfs-cp", &[self.url(version, name), local])?;
        ensure!(
            fs::read(&back)? == content,
            "version {version}: what libnfs reads of {name} is not what it wrote"
        );
        Ok(fs::remove_file(&back)?)
    }

    fn list(&self, version: &str) -> Result<()> {
        let listed = self.tool("nfs-ls", &[self.url(version, "many")])?;
        let entries = listed.lines().filter(|line| line.contains(" entry-"));
        let count = entries.count();
        ensure!(
            count == ENTRIES,
            "version {version}: libnfs lists {count} entries of {ENTRIES}:\n{listed}"
        );
        Ok(())
    }

    fn url(&self, version: &str, path: &str) -> String {
        let root = match version {
            "3" => "/export",
            _ => self.root,
        };
        let (port, mount_port) = self.ports;
        format!(
            "nfs://127.0.0.1{}/{path}?version={version}&nfsport={port}&mountport={mount_port}",
            root.trim_end_matches('/')
        )
    }

    fn tool(&self, name: &str, arguments: &[String]) -> Result<String> {
        let mut command = self.command(name, arguments);
        Ok(within(&mut command, LIMIT, &self.run.work)?.stdout)
    }

    fn command(&self, name: &str, arguments: &[String]) -> Command {
        let mut command = tool(name);
        command.args(arguments);
        match self.within {
            Some(namespaces) => namespaces.enter(&command),
            None => command,
        }
    }
}
