//! Wireshark on the command line, with the dissector under test.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use programs::command::tail;

/// The dissector, from the root of the work tree.
const SCRIPT: &str = "contrib/wireshark/rpcrdma-v2.lua";

/// Text of Wireshark where a dissector in Lua fails.
const LUA_ERROR: &str = "Lua Error";

/// Preferences. MPA is recognized by content on any port. The reassembly of Wireshark's own iWARP dissector
/// finds one Send in a frame only, so that of the script is used.
const PREFERENCES: [&str; 2] = [
    "tcp.try_heuristic_first:TRUE",
    "iwarp_ddp_rdmap.reassemble_iwarp_rdma_send:FALSE",
];

/// `tshark` with the dissector, and a folder for captures.
pub(super) struct Tshark {
    folder: PathBuf,
}

/// Fields of one frame: the values of each field that the frame has, in order.
#[derive(Debug, Default)]
pub(super) struct Row(HashMap<&'static str, Vec<String>>);

impl Row {
    /// All values of a field.
    pub(super) fn all(&self, field: &str) -> &[String] {
        self.0.get(field).map_or(&[], Vec::as_slice)
    }

    /// The first value of a field.
    pub(super) fn first(&self, field: &str) -> Option<&str> {
        self.all(field).first().map(String::as_str)
    }

    pub(super) fn has(&self, field: &str) -> bool {
        !self.all(field).is_empty()
    }

    /// Whether the field is there once, with this value.
    pub(super) fn is(&self, field: &str, value: &str) -> bool {
        self.all(field) == [value]
    }
}

impl Tshark {
    /// # Errors
    ///
    /// There is no `tshark`.
    pub(super) fn new(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let tshark = Self {
            folder: folder.to_owned(),
        };
        let version = tshark.command().arg("--version").output();
        let version = version.context("cannot run tshark, of Debian's package tshark")?;
        ensure!(version.status.success(), "tshark --version fails");
        Ok(tshark)
    }

    /// Writes a capture of this name, and returns where it is.
    pub(super) fn write(&self, name: &str, capture: &[u8]) -> Result<PathBuf> {
        let path = self.folder.join(format!("{name}.pcap"));
        fs::write(&path, capture)?;
        Ok(path)
    }

    /// These fields of each frame that a filter selects, with further preferences.
    pub(super) fn rows(
        &self,
        capture: &Path,
        filter: &str,
        fields: &[&'static str],
        preferences: &[&str],
    ) -> Result<Vec<Row>> {
        let mut command = self.reading(capture, filter);
        for preference in preferences {
            command.args(["-o", preference]);
        }
        command.args(["-T", "fields", "-E", "occurrence=a"]);
        for field in fields {
            command.args(["-e", field]);
        }
        let text = run(&mut command)?;
        let rows = text.lines().map(|line| {
            let values = fields.iter().zip(line.split('\t'));
            let there = values.filter(|(_, values)| !values.is_empty());
            Row(there
                .map(|(field, values)| (*field, values.split(',').map(str::to_owned).collect()))
                .collect())
        });
        Ok(rows.collect())
    }

    /// Everything about each frame, as text.
    pub(super) fn details(&self, capture: &Path) -> Result<String> {
        run(self.reading(capture, "tcp").arg("-V"))
    }

    fn reading(&self, capture: &Path, filter: &str) -> Command {
        let mut command = self.command();
        // Twice, as Wireshark does for its window: the second pass knows what comes later.
        command
            .arg("-2")
            .arg("-r")
            .arg(capture)
            .args(["-Y", filter]);
        for preference in PREFERENCES {
            command.args(["-o", preference]);
        }
        let script = programs::root().join(SCRIPT);
        command.args(["-X", &format!("lua_script:{}", script.display())]);
        command
    }

    /// `tshark` without the settings and scripts of whoever runs it.
    fn command(&self) -> Command {
        let mut command = Command::new("tshark");
        command
            .env("HOME", &self.folder)
            .env("XDG_CONFIG_HOME", &self.folder)
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::null());
        command
    }
}

fn run(command: &mut Command) -> Result<String> {
    let done = command.output().context("cannot run tshark")?;
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let errors = String::from_utf8_lossy(&done.stderr);
    ensure!(
        done.status.success(),
        "tshark failed ({}):\n{}",
        done.status,
        tail(&errors)
    );
    for text in [said.as_str(), &errors] {
        let fault = text.lines().find(|line| line.contains(LUA_ERROR));
        ensure!(
            fault.is_none(),
            "{SCRIPT}: {}",
            fault.unwrap_or_default().trim()
        );
    }
    // tshark goes on without a script that does not load.
    ensure!(!errors.contains("Lua:"), "{SCRIPT}:\n{}", tail(&errors));
    Ok(said)
}
