//! The guest's programs, from Debian's packages, each with the libraries it is linked to.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::cached;
use crate::debian;
use crate::packages::tool;
use crate::report::Report;
use programs::command::output;

const PACKAGES: [&str; 28] = [
    "acl",
    "attr",
    "bash",
    "btrfs-progs",
    "busybox-static",
    "coreutils",
    "diffutils",
    "dmsetup",
    "e2fsprogs",
    "findutils",
    "ibverbs-providers",
    "ibverbs-utils",
    "iproute2",
    "kmod",
    "krb5-user",
    "libc6",
    "libgcc-s1",
    "libibverbs1",
    "librdmacm1",
    "libtirpc-common",
    "netbase",
    "nfs-common",
    "nfs-kernel-server",
    "quota",
    "rdmacm-utils",
    "rpcbind",
    "util-linux",
    "xfsprogs",
];

/// Programs that are copied; busybox stands in for every other name it knows.
const PROGRAMS: [&str; 38] = [
    "bash",
    "btrfs",
    "busybox",
    "kmod",
    "ip",
    "rdma",
    "mount.nfs",
    "rpcbind",
    "rpc.nfsd",
    "rpc.mountd",
    "rpc.gssd",
    "exportfs",
    "cp",
    "dd",
    "diff",
    "dmsetup",
    "fallocate",
    "find",
    "flock",
    "getfacl",
    "getfattr",
    "ibv_devinfo",
    "kinit",
    "klist",
    "ls",
    "mkfs.btrfs",
    "mkfs.ext4",
    "mkfs.xfs",
    "mv",
    "rm",
    "rping",
    "setfacl",
    "setfattr",
    "setquota",
    "sha256sum",
    "showmount",
    "stat",
    "touch",
];

/// Names that are links to one of [`PROGRAMS`].
const ALIASES: [(&str, &str); 5] = [
    ("depmod", "kmod"),
    ("insmod", "kmod"),
    ("lsmod", "kmod"),
    ("modprobe", "kmod"),
    ("umount.nfs", "mount.nfs"),
];

/// Files of `/etc`: tables that programs look up names in, and the RDMA drivers that libibverbs loads.
const TABLES: [&str; 6] = [
    "libibverbs.d/rxe.driver",
    "libibverbs.d/siw.driver",
    "netconfig",
    "protocols",
    "rpc",
    "services",
];

/// Opened at run time, so no program names them: the C library opens the first at the end of a thread, and
/// our program the others if it is to use RDMA hardware.
const OPENED: [&str; 3] = ["libgcc_s.so.1", "libibverbs.so.1", "librdmacm.so.1"];

/// The folder of libibverbs' drivers, and how the names of those in the guest begin. The interface's version
/// follows.
const DRIVER_FOLDER: &str = "usr/lib/x86_64-linux-gnu/libibverbs";
const DRIVERS: [&str; 2] = ["librxe-rdmav", "libsiw-rdmav"];

const PROGRAM_FOLDERS: [&str; 4] = ["usr/sbin", "sbin", "usr/bin", "bin"];
const LIBRARY_FOLDERS: [&str; 5] = [
    "lib/x86_64-linux-gnu",
    "usr/lib/x86_64-linux-gnu",
    "lib64",
    "usr/lib64",
    "usr/lib",
];

const LOADER: &str = "ld-linux-x86-64.so.2";

/// To be changed when the code here makes something else of the same lists.
const RECIPE: u32 = 1;

/// The folder with the guest's `usr` and `etc`, made if need be.
///
/// # Errors
///
/// A package cannot be got, or does not have what is expected of it.
pub(super) fn ready(lab: &Path, report: &Report) -> Result<PathBuf> {
    let inputs = (RECIPE, PACKAGES, PROGRAMS, ALIASES, TABLES, OPENED, DRIVERS);
    cached(lab, "userland", inputs, |scratch, made| {
        report.say("build", "the guest's programs, from Debian's packages");
        let unpacked = scratch.join("unpacked");
        for package in debian::download_closure(&PACKAGES, scratch)? {
            debian::unpack(&package, &unpacked)?;
        }
        Assembly {
            from: &unpacked,
            to: made,
            libraries: BTreeSet::new(),
        }
        .everything()
    })
}

/// Picks files out of unpacked packages.
struct Assembly<'a> {
    from: &'a Path,
    to: &'a Path,
    /// Names of the libraries that were copied.
    libraries: BTreeSet<String>,
}

impl Assembly<'_> {
    fn everything(mut self) -> Result<()> {
        for folder in [
            "usr/bin",
            "usr/sbin",
            "usr/lib/x86_64-linux-gnu",
            "usr/lib64",
            DRIVER_FOLDER,
            "etc/libibverbs.d",
        ] {
            fs::create_dir_all(self.to.join(folder))?;
        }
        for name in PROGRAMS {
            self.program(name)?;
        }
        for name in OPENED {
            self.library(name)?;
        }
        for start in DRIVERS {
            self.driver(start)?;
        }
        let loader = self.find(LOADER, &LIBRARY_FOLDERS)?;
        fs::copy(loader, self.to.join("usr/lib64").join(LOADER))?;
        for (name, target) in ALIASES {
            // Mount looks for its helpers here, and the kernel for modprobe.
            let target = self.placed(target).context("an alias of no program")?;
            symlink(
                Path::new("/").join(target),
                self.to.join("usr/sbin").join(name),
            )?;
        }
        self.applets()?;
        for name in TABLES {
            let table = Path::new("etc").join(name);
            fs::copy(self.from.join(&table), self.to.join(&table))
                .with_context(|| format!("the packages have no {}", table.display()))?;
        }
        Ok(())
    }

    fn program(&mut self, name: &str) -> Result<()> {
        let source = self.find(name, &PROGRAM_FOLDERS)?;
        let system = source
            .parent()
            .is_some_and(|folder| folder.ends_with("sbin"));
        let folder = if system { "usr/sbin" } else { "usr/bin" };
        let program = self.to.join(folder).join(name);
        fs::copy(&source, &program)?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        self.linked_to(&source)
    }

    fn library(&mut self, name: &str) -> Result<()> {
        if name == LOADER || !self.libraries.insert(name.to_owned()) {
            return Ok(());
        }
        let source = self.find(name, &LIBRARY_FOLDERS)?;
        fs::copy(&source, self.to.join("usr/lib/x86_64-linux-gnu").join(name))?;
        self.linked_to(&source)
    }

    /// Copies the driver of libibverbs whose name begins like this.
    fn driver(&mut self, start: &str) -> Result<()> {
        for entry in fs::read_dir(self.from.join(DRIVER_FOLDER))? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(start) {
                let driver = self.to.join(DRIVER_FOLDER).join(entry.file_name());
                fs::copy(entry.path(), driver)?;
                return self.linked_to(&entry.path());
            }
        }
        bail!("the guest's packages have no {start}*.so")
    }

    /// Copies the libraries that an ELF file names.
    fn linked_to(&mut self, file: &Path) -> Result<()> {
        for name in needed(&output(tool("readelf").arg("--dynamic").arg(file))?) {
            self.library(name)?;
        }
        Ok(())
    }

    /// Links for all that busybox can do and no real program does.
    fn applets(&self) -> Result<()> {
        let busybox = self.to.join("usr/bin/busybox");
        for name in output(std::process::Command::new(&busybox).arg("--list"))?.lines() {
            if self.placed(name).is_none() {
                symlink("busybox", self.to.join("usr/bin").join(name))?;
            }
        }
        Ok(())
    }

    /// Path in the guest of a program that is there already.
    fn placed(&self, name: &str) -> Option<PathBuf> {
        ["usr/bin", "usr/sbin"]
            .iter()
            .map(|folder| Path::new(folder).join(name))
            .find(|path| self.to.join(path).symlink_metadata().is_ok())
    }

    fn find(&self, name: &str, folders: &[&str]) -> Result<PathBuf> {
        folders
            .iter()
            .map(|folder| self.from.join(folder).join(name))
            .find(|path| path.exists())
            .with_context(|| format!("the guest's packages have no {name}"))
    }
}

/// The names in the NEEDED lines that readelf prints.
fn needed(dynamic: &str) -> impl Iterator<Item = &str> {
    dynamic
        .lines()
        .filter(|line| line.contains("(NEEDED)"))
        .filter_map(|line| line.split_once('[')?.1.split_once(']'))
        .map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needed_libraries_are_read_from_readelf() {
        let text = " 0x0000000000000001 (NEEDED)    Shared library: [libc.so.6]\n \
                    0x000000000000000c (INIT)    0x1000\n \
                    0x0000000000000001 (NEEDED)    Shared library: [libm.so.6]\n";
        assert_eq!(needed(text).collect::<Vec<_>>(), ["libc.so.6", "libm.so.6"]);
    }
}
