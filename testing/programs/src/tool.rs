//! Programs of fixed versions that cargo installs below `target`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::command::{cargo, line, output};

/// A program on the registry.
pub struct Tool {
    /// Name of the package and of its program.
    pub name: &'static str,
    /// The version that is installed and used.
    pub version: &'static str,
    /// More arguments for `cargo install`.
    pub arguments: &'static [&'static str],
}

impl Tool {
    /// The path of the program: the one in `PATH` or in `folder` if it has this version, otherwise one that is
    /// installed in `folder`.
    ///
    /// # Errors
    ///
    /// Cargo cannot install it.
    pub fn find(&self, folder: &Path, say: impl FnOnce(&str)) -> Result<PathBuf> {
        let ours = folder.join("bin").join(self.name);
        for candidate in [PathBuf::from(self.name), ours.clone()] {
            let version = output(Command::new(&candidate).arg("--version"));
            if version.is_ok_and(|version| self.is_version(&version)) {
                return Ok(candidate);
            }
        }
        say(&format!("{}, with cargo install", self.name));
        let mut install = cargo();
        install
            // A debug build is no quicker to run for what a debugger needs to know, and slower to compile.
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .args(["install", "--quiet", "--locked", "--force", self.name])
            .args(["--version", self.version])
            .args(self.arguments)
            .arg("--root")
            .arg(folder);
        let status = install.stdin(Stdio::null()).status()?;
        if !status.success() {
            bail!("{} failed ({status})", line(&install));
        }
        Ok(ours)
    }

    /// Whether a program that printed this for `--version` is the one wanted.
    fn is_version(&self, printed: &str) -> bool {
        let mut words = printed.split_whitespace();
        words.any(|word| word.trim_start_matches('v') == self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_compared_as_a_whole() {
        let tool = Tool {
            name: "mdbook",
            version: "0.5.4",
            arguments: &[],
        };
        assert!(tool.is_version("mdbook v0.5.4\n"));
        assert!(tool.is_version("0.5.4"));
        assert!(!tool.is_version("mdbook v0.5.40"));
        assert!(!tool.is_version("mdbook v0.5.3"));
    }
}
