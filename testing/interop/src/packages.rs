//! The Debian packages a run needs on the host, and nothing else than those.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::report::Report;

/// Something the host must have, and the Debian package that brings it.
struct Need {
    what: What,
    package: &'static str,
}

enum What {
    Program(&'static str),
    Library(&'static str),
}

const fn program(name: &'static str, package: &'static str) -> Need {
    Need {
        what: What::Program(name),
        package,
    }
}

const NEEDS: [Need; 32] = [
    program("apt-get", "apt"),
    program("dpkg-deb", "dpkg"),
    program("tar", "tar"),
    program("sha256sum", "coreutils"),
    program("xz", "xz-utils"),
    program("depmod", "kmod"),
    program("readelf", "binutils"),
    program("make", "make"),
    // The compiler Debian 12 builds its kernels with; siw has to match them.
    program("gcc-12", "gcc-12"),
    // Linked by objtool of the packaged kernel build.
    Need {
        what: What::Library("libelf.so.1"),
        package: "libelf1",
    },
    program("qemu-system-x86_64", "qemu-system-x86"),
    program("tshark", "tshark"),
    program("prometheus", "prometheus"),
    program("promtool", "prometheus"),
    program("mmdebstrap", "mmdebstrap"),
    program("dpkg-shlibdeps", "dpkg-dev"),
    // A server of NFS 3 to 4.2 in namespaces, and a client.
    program("unshare", "util-linux"),
    program("ip", "iproute2"),
    program("hostname", "hostname"),
    program("ganesha.nfsd", "nfs-ganesha"),
    Need {
        what: What::Library("ganesha/libfsalvfs.so"),
        package: "nfs-ganesha-vfs",
    },
    program("rpcbind", "rpcbind"),
    program("nfs-cp", "libnfs-utils"),
    // File systems to serve.
    program("bindfs", "bindfs"),
    program("mergerfs", "mergerfs"),
    program("unionfs-fuse", "unionfs-fuse"),
    program("mount.exfat-fuse", "exfat-fuse"),
    program("mkfs.exfat", "exfatprogs"),
    program("mkfs.btrfs", "btrfs-progs"),
    // A realm for it.
    program("krb5kdc", "krb5-kdc"),
    program("kadmin.local", "krb5-admin-server"),
    program("kinit", "krb5-user"),
];

/// Folders of programs that are not on everybody's path.
const SYSTEM_PROGRAMS: [&str; 2] = ["/usr/sbin", "/sbin"];

const LIBRARIES: [&str; 2] = ["/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu"];

/// Verifies that everything a run needs is there.
///
/// # Errors
///
/// Names what is missing and how to install it.
pub(super) fn check() -> Result<()> {
    let missing = missing();
    if missing.is_empty() {
        return Ok(());
    }
    let mut text =
        String::from("the interoperability run needs Debian packages that are missing:\n");
    for need in &missing {
        let (What::Program(name) | What::Library(name)) = need.what;
        text += &format!("  {name}, of the package {}\n", need.package);
    }
    let packages = packages(&missing);
    bail!(
        "{text}Install them (or run cargo xtask interop --install):\n  \
         apt-get update && apt-get install -y --no-install-recommends {}",
        packages.join(" ")
    );
}

/// Fetches Debian's package lists and installs what is missing.
///
/// # Errors
///
/// `apt-get` fails, or there is no right to use it.
pub(super) fn install(report: &Report) -> Result<()> {
    report.say("install", "apt-get update");
    apt_get(&["update"])?;
    let packages = packages(&missing());
    if packages.is_empty() {
        report.say("install", "every package is there");
        return Ok(());
    }
    report.say(
        "install",
        &format!("apt-get install {}", packages.join(" ")),
    );
    apt_get(
        &[
            &["install", "-y", "--no-install-recommends"],
            packages.as_slice(),
        ]
        .concat(),
    )
}

/// A command for one of the programs that [`check`] has found.
pub(super) fn tool(name: &str) -> Command {
    Command::new(find(name).unwrap_or_else(|| PathBuf::from(name)))
}

fn missing() -> Vec<&'static Need> {
    let there = |need: &&Need| match need.what {
        What::Program(name) => find(name).is_some(),
        What::Library(name) => LIBRARIES
            .iter()
            .any(|folder| Path::new(folder).join(name).exists()),
    };
    NEEDS.iter().filter(|need| !there(need)).collect()
}

/// The packages that bring these, each once.
fn packages(needs: &[&Need]) -> Vec<&'static str> {
    let mut packages: Vec<_> = needs.iter().map(|need| need.package).collect();
    packages.dedup();
    packages
}

fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(SYSTEM_PROGRAMS.iter().map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    let mut command = if rustix::process::geteuid().is_root() {
        Command::new("apt-get")
    } else {
        let mut sudo = Command::new("sudo");
        sudo.args(["--preserve-env=DEBIAN_FRONTEND", "apt-get"]);
        sudo
    };
    command.arg("-qq").args(arguments.iter().map(OsStr::new));
    command.env("DEBIAN_FRONTEND", "noninteractive");
    let status = command.status().context("cannot run apt-get")?;
    if !status.success() {
        bail!("apt-get {} failed ({status})", arguments.join(" "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_on_the_path_only_if_they_exist() {
        assert!(find("sh").is_some());
        assert_eq!(find("no-such-program-anywhere"), None);
    }
}
