//! Debian's packages: what the lists say about them, getting them, unpacking them. Nothing is
//! installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use programs::command::output;

/// Entry of a package in the package lists.
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
    depends: String,
}

impl Package {
    /// Looks up the version that would be installed.
    ///
    /// # Errors
    ///
    /// The package lists do not have it.
    pub(super) fn find(name: &str) -> Result<Self> {
        let shown = output(Command::new("apt-cache").args(["show", "--no-all-versions", name]));
        let entry = shown.ok().filter(|entry| !entry.trim().is_empty());
        let Some(entry) = entry else {
            bail!(
                "the package lists have no {name}; the guest is made of Debian 12's packages \
                 (with bookworm-security): run apt-get update"
            );
        };
        let version = field(&entry, "Version").context("a package without a version")?;
        let depends = field(&entry, "Depends").unwrap_or_default();
        Ok(Self {
            name: name.into(),
            version: version.into(),
            depends: depends.into(),
        })
    }

    /// The packages this one depends on, alternatives included, without versions.
    pub(super) fn depends(&self) -> impl Iterator<Item = &str> {
        self.depends
            .split([',', '|'])
            .filter_map(|one| one.split_whitespace().next())
    }
}

/// The value of a one-line field of a package's entry.
fn field<'a>(entry: &'a str, name: &str) -> Option<&'a str> {
    entry
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// Gets a package's file into `folder`.
///
/// # Errors
///
/// The archive cannot be reached.
pub(super) fn download(package: &Package, folder: &Path) -> Result<PathBuf> {
    let exact = format!("{}={}", package.name, package.version);
    output(
        Command::new("apt-get")
            .args(["-qq", "download", &exact])
            .current_dir(folder),
    )?;
    let prefix = format!("{}_", package.name);
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            return Ok(entry.path());
        }
    }
    bail!("apt-get download {exact} left no file");
}

/// Gets packages with everything they depend on, as if nothing were installed here.
///
/// # Errors
///
/// The archive cannot be reached.
pub(super) fn download_closure(packages: &[&str], folder: &Path) -> Result<Vec<PathBuf>> {
    let archives = folder.join("archives");
    fs::create_dir_all(archives.join("partial"))?;
    let status = folder.join("status");
    fs::write(&status, "")?;
    output(
        Command::new("apt-get")
            .args(["-qq", "-y", "--no-install-recommends", "--download-only"])
            .args(["-o", "Debug::NoLocking=1"])
            .arg("-o")
            .arg(format!("Dir::State::status={}", status.display()))
            .arg("-o")
            .arg(format!("Dir::Cache::archives={}/", archives.display()))
            .arg("install")
            .args(packages),
    )?;
    let mut files = Vec::new();
    for entry in fs::read_dir(&archives)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            files.push(path);
        }
    }
    Ok(files)
}

/// Unpacks a package's files below `folder`.
///
/// # Errors
///
/// The package is damaged or the disk is full.
pub(super) fn unpack(package: &Path, folder: &Path) -> Result<()> {
    output(Command::new("dpkg-deb").arg("-x").arg(package).arg(folder))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: &str = "Package: linux-image-amd64\nVersion: 6.1.1-1\nDepends: \
                         linux-image-6.1.0-56-amd64 (= 6.1.1-1), a | b:any\nDescription: x\n";

    #[test]
    fn fields_are_found_by_their_full_name() {
        assert_eq!(field(ENTRY, "Version"), Some("6.1.1-1"));
        assert_eq!(field(ENTRY, "Ver"), None);
    }

    #[test]
    fn dependencies_come_without_versions() {
        let package = Package {
            name: "linux-image-amd64".into(),
            version: "6.1.1-1".into(),
            depends: field(ENTRY, "Depends").unwrap().into(),
        };
        let depends: Vec<_> = package.depends().collect();
        assert_eq!(depends, ["linux-image-6.1.0-56-amd64", "a", "b:any"]);
    }
}
