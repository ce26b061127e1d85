//! The siw driver. Debian's kernels are configured without it (`CONFIG_RDMA_SIW` is not set), so
//! it is compiled out of tree from Debian's source of the very kernel.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::kernel::Kernel;
use crate::debian::{self, Package};
use crate::packages::tool;
use programs::command::output;

/// The compiler that the packaged headers ask for.
const COMPILER: &str = "gcc-12";

/// Builds `siw.ko` for `kernel`; everything else stays in `scratch`.
///
/// # Errors
///
/// A package cannot be got or the build fails; the error shows the end of its output.
pub(super) fn build(kernel: &Kernel, scratch: &Path, module: &Path) -> Result<()> {
    let headers = unpack_headers(kernel, scratch)?;
    let source = unpack_source(&kernel.source, scratch)?;
    let sources = format!("M={}", source.display());
    output(tool("make").arg("-C").arg(&headers).args([
        &sources,
        "CONFIG_RDMA_SIW=m",
        &format!("CC={COMPILER}"),
        "modules",
    ]))?;
    output(
        tool("strip")
            .arg("--strip-debug")
            .arg("-o")
            .arg(module)
            .arg(source.join("siw.ko")),
    )?;
    Ok(())
}

/// Unpacks the kernel's headers with what builds modules, and returns their folder.
fn unpack_headers(kernel: &Kernel, scratch: &Path) -> Result<PathBuf> {
    let root = scratch.join("headers");
    debian::unpack(&debian::download(&kernel.headers, scratch)?, &root)?;
    let needed = |name: &&str| {
        name.starts_with("linux-kbuild-")
            || (name.starts_with("linux-headers-") && name.ends_with("-common"))
    };
    for name in kernel.headers.depends().filter(needed) {
        debian::unpack(&debian::download(&Package::find(name)?, scratch)?, &root)?;
    }
    let folder = root.join(format!("usr/src/linux-headers-{}", kernel.release));
    // The packaged Makefile names the place where the package would be installed.
    let makefile = folder.join("Makefile");
    let text = fs::read_to_string(&makefile)?;
    fs::write(
        &makefile,
        text.replace("/usr/src/", &format!("{}/usr/src/", root.display())),
    )?;
    // With this file the build would want to add type information, by another package's tool.
    let symbols = folder.join("vmlinux");
    if symbols.exists() {
        fs::remove_file(symbols)?;
    }
    Ok(folder)
}

/// Unpacks siw's folder of the kernel source.
fn unpack_source(package: &Package, scratch: &Path) -> Result<PathBuf> {
    debian::unpack(
        &debian::download(package, scratch)?,
        &scratch.join("source"),
    )?;
    let folder = format!("{}/drivers/infiniband/sw/siw", package.name);
    let archive = scratch.join(format!("source/usr/src/{}.tar.xz", package.name));
    output(
        tool("tar")
            .arg("-C")
            .arg(scratch)
            .arg("-xJf")
            .arg(&archive)
            .arg(&folder),
    )?;
    let folder = scratch.join(folder);
    if !folder.join("Makefile").exists() {
        bail!("{} {} has no siw", package.name, package.version);
    }
    Ok(folder)
}
