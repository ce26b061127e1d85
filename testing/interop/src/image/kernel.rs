//! Debian's kernel as packaged, and those of its modules that the guest loads.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::{cached, siw};
use crate::Series;
use crate::debian::{self, Package};
use crate::packages::tool;
use crate::report::Report;
use programs::command::output;

/// The kernel's file in the folder that [`ready`] returns.
pub(super) const IMAGE: &str = "vmlinuz";

/// The folder of modules in the folder that [`ready`] returns.
pub(super) const MODULES: &str = "lib/modules";

/// Modules that the guest loads; what these depend on comes with them. Some are built into some kernels.
const WANTED: [&str; 31] = [
    "virtio_pci",
    "virtio_blk",
    "virtio_net",
    "virtio_rng",
    "ib_core",
    "iw_cm",
    "rdma_cm",
    "ib_uverbs",
    "rdma_ucm",
    // RoCE in software, the checksum it looks up by name, and a network card that is nobody else's.
    "rdma_rxe",
    "crc32_generic",
    "dummy",
    "sunrpc",
    "rpcrdma",
    "lockd",
    "nfsv3",
    "nfsv4",
    "nfsd",
    // Kerberos, and what it encrypts with.
    "rpcsec_gss_krb5",
    "cts",
    // By it our server finds who is at the other end of a connection from the same machine.
    "tcp_diag",
    // Addresses with routes of their own.
    "vrf",
    // Disks with limits of users, those whose writes are recorded, and what can be on them.
    "loop",
    "quota_v2",
    "dm_mod",
    "dm_log_writes",
    "ext4",
    "xfs",
    "btrfs",
    "crc32c_generic",
    "libcrc32c",
];

/// Without these no test can run: they must be there, built in or not.
const INDISPENSABLE: [&str; 20] = [
    "virtio_net",
    "virtio_blk",
    "loop",
    "quota_v2",
    "dm_log_writes",
    "ext4",
    "xfs",
    "btrfs",
    "iw_cm",
    "rdma_cm",
    "ib_uverbs",
    "rdma_ucm",
    "rdma_rxe",
    "dummy",
    "rpcrdma",
    "nfsv3",
    "nfsv4",
    "nfsd",
    "rpcsec_gss_krb5",
    "vrf",
];

/// Files that tell depmod and modprobe what is built in.
const LISTS: [&str; 3] = [
    "modules.builtin",
    "modules.builtin.modinfo",
    "modules.order",
];

/// To be changed when the code here or in `siw.rs` makes something else of the same packages.
const RECIPE: u32 = 1;

/// The packages of one kernel.
pub(super) struct Kernel {
    /// As `uname -r` says it.
    pub(super) release: String,
    pub(super) image: Package,
    pub(super) headers: Package,
    pub(super) source: Package,
}

/// The folder with the kernel, its modules and siw, built if need be.
///
/// # Errors
///
/// A package cannot be got, or siw does not build.
pub(super) fn ready(folder: &Path, series: Series, report: &Report) -> Result<PathBuf> {
    let kernel = find(series)?;
    let inputs = (RECIPE, &kernel.release, &kernel.image.version, WANTED);
    cached(folder, "kernel", inputs, |scratch, made| {
        report.say(
            "build",
            &format!("kernel {} ({})", kernel.release, kernel.image.version),
        );
        let unpacked = scratch.join("image");
        debian::unpack(&debian::download(&kernel.image, scratch)?, &unpacked)?;
        let release = &kernel.release;
        fs::copy(
            unpacked.join(format!("boot/vmlinuz-{release}")),
            made.join(IMAGE),
        )?;
        let modules = made.join(MODULES).join(release);
        fs::create_dir_all(&modules)?;
        copy_modules(&unpacked, release, &modules)?;
        report.say("build", "siw, out of tree from Debian's kernel source");
        siw::build(&kernel, scratch, &modules.join("siw.ko"))?;
        output(tool("depmod").arg("-b").arg(made).arg(release))?;
        Ok(())
    })
}

/// Finds this series in the package lists.
fn find(series: Series) -> Result<Kernel> {
    // Debian's default kernel has no package that is named after its series.
    let meta = match series {
        Series::V6_1 => Package::find("linux-image-amd64")?,
        Series::V6_12 => Package::find("linux-image-6.12-amd64")?,
    };
    let prefix = format!("linux-image-{}.", series.name());
    let Some(image) = meta.depends().find(|name| name.starts_with(&prefix)) else {
        bail!(
            "{} {} does not bring a kernel {}",
            meta.name,
            meta.version,
            series.name()
        );
    };
    let release = image.trim_start_matches("linux-image-").to_owned();
    Ok(Kernel {
        image: Package::find(image)?,
        headers: Package::find(&format!("linux-headers-{release}"))?,
        source: Package::find(&format!("linux-source-{}", series.name()))?,
        release,
    })
}

fn copy_modules(unpacked: &Path, release: &str, to: &Path) -> Result<()> {
    output(tool("depmod").arg("-b").arg(unpacked).arg(release))?;
    let from = unpacked.join("lib/modules").join(release);
    let dependencies = fs::read_to_string(from.join("modules.dep"))?;
    let built_in = fs::read_to_string(from.join("modules.builtin"))?;
    let (modules, absent) = closure(&dependencies, &built_in, &WANTED);
    if let Some(name) = INDISPENSABLE.iter().find(|name| absent.contains(**name)) {
        bail!("kernel {release} has no module {name}");
    }
    for module in modules {
        copy_module(&from.join(module), to)?;
    }
    for list in LISTS {
        fs::copy(from.join(list), to.join(list))?;
    }
    Ok(())
}

/// Copies one module, unpacked; newer Debian kernels have them compressed.
fn copy_module(module: &Path, folder: &Path) -> Result<()> {
    let name = module
        .file_name()
        .and_then(|name| name.to_str())
        .context("a module's name")?;
    match name.strip_suffix(".xz") {
        None => {
            fs::copy(module, folder.join(name))?;
        }
        Some(unpacked) => {
            let into = fs::File::create(folder.join(unpacked))?;
            let status = tool("xz").arg("-dc").arg(module).stdout(into).status()?;
            if !status.success() {
                bail!("xz -dc {} failed", module.display());
            }
        }
    }
    Ok(())
}

/// The files of the modules `wanted` and of all they depend on, by what `modules.dep` says; and
/// the names that neither it nor `modules.builtin` knows.
fn closure<'a>(
    dependencies: &'a str,
    built_in: &str,
    wanted: &[&'a str],
) -> (BTreeSet<&'a str>, BTreeSet<&'a str>) {
    let by_name: BTreeMap<_, _> = dependencies
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(file, needs)| (module_name(file), (file, needs)))
        .collect();
    let built_in: BTreeSet<_> = built_in.lines().map(module_name).collect();
    let mut files = BTreeSet::new();
    let mut absent = BTreeSet::new();
    for name in wanted {
        match by_name.get(*name) {
            // depmod lists indirect dependencies too.
            Some((file, needs)) => {
                files.insert(*file);
                files.extend(needs.split_whitespace());
            }
            None if built_in.contains(*name) => {}
            None => {
                absent.insert(*name);
            }
        }
    }
    (files, absent)
}

/// A module's name from the name of its file: modprobe takes `-` for `_`.
fn module_name(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.split('.').next().unwrap_or(name).replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closure_takes_dependencies_and_reports_missing_modules() {
        let dependencies = "kernel/net/rpc-rdma.ko.xz: kernel/net/sunrpc.ko.xz kernel/ib.ko.xz\n\
                            kernel/net/sunrpc.ko.xz:\nkernel/ib.ko.xz:\nkernel/other.ko.xz:\n";
        let built_in = "kernel/drivers/virtio/virtio_pci.ko\n";
        let wanted = ["rpc_rdma", "virtio_pci", "missing"];
        let (files, absent) = closure(dependencies, built_in, &wanted);
        let expected = [
            "kernel/ib.ko.xz",
            "kernel/net/rpc-rdma.ko.xz",
            "kernel/net/sunrpc.ko.xz",
        ];
        assert_eq!(files.into_iter().collect::<Vec<_>>(), expected);
        assert_eq!(absent.into_iter().collect::<Vec<_>>(), ["missing"]);
    }
}
