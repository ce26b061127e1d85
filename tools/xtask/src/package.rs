//! `cargo xtask package`: a Debian package, and an image for containers.

mod check;
mod deb;
mod facts;
mod licenses;
mod oci;
mod pages;
mod root;
mod share;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use self::facts::{Progress, sha256};

/// Default folder of packages, from the root of the work tree.
const OUTPUT: &str = "target/package";

/// A Debian package (cargo-deb), and an archive of an OCI image with the static program and nothing else
#[derive(Args)]
pub(crate) struct Options {
    /// Make only this
    #[arg(long, value_enum)]
    only: Option<Kind>,
    /// Folder for the packages
    #[arg(long, value_name = "DIR", default_value = OUTPUT)]
    output: PathBuf,
    /// Maintainer of the Debian package
    #[arg(long, value_name = "NAME <MAIL>")]
    maintainer: Option<String>,
    /// Then use them: the Debian package in a clean Debian, the image unpacked by others' tools
    #[arg(long)]
    check: bool,
    /// Make nothing but the tree of the image, in this directory: for contrib/Containerfile
    #[arg(long, value_name = "DIR", conflicts_with_all = ["only", "output", "maintainer", "check"])]
    root: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// The Debian package
    Deb,
    /// The OCI archive
    Oci,
}

/// Packages that were made.
struct Packages {
    deb: Option<PathBuf>,
    oci: Option<PathBuf>,
}

/// Makes the packages and says where they are.
///
/// # Errors
///
/// The program does not build, a tool is missing, or a file cannot be written.
pub(crate) fn run(options: &Options) -> Result<()> {
    let progress = Progress::start();
    if let Some(folder) = &options.root {
        let tree = root::tree(&progress)?;
        return tree
            .write_to(folder)
            .with_context(|| format!("cannot write to {}", folder.display()));
    }
    let made = make(options, &progress)?;
    if options.check {
        if let Some(package) = &made.deb {
            check::deb(package, &progress)?;
        }
        if let Some(archive) = &made.oci {
            check::oci(archive, &progress)?;
        }
    }
    let all: Vec<_> = [&made.deb, &made.oci].into_iter().flatten().collect();
    println!();
    for path in all {
        println!("{}", described(path)?);
    }
    Ok(())
}

/// Makes the Debian package of the program that is quick to build, for tests, and says where it is.
///
/// # Errors
///
/// Those of [`run`].
pub(crate) fn debian_package() -> Result<PathBuf> {
    let folder = programs::root().join(OUTPUT);
    fs::create_dir_all(&folder)?;
    deb::make(&folder, "release", None, &Progress::start())
}

fn make(options: &Options, progress: &Progress) -> Result<Packages> {
    let folder = programs::root().join(&options.output);
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let wanted = |kind| options.only.is_none_or(|only| only == kind);
    let deb = match wanted(Kind::Deb) {
        true => Some(deb::make(
            &folder,
            "dist",
            options.maintainer.as_deref(),
            progress,
        )?),
        false => None,
    };
    let oci = match wanted(Kind::Oci) {
        true => Some(oci::make(&folder, progress)?),
        false => None,
    };
    Ok(Packages { deb, oci })
}

/// A file's path, size and checksum, in a line.
fn described(path: &Path) -> Result<String> {
    let mut file = fs::File::open(path)?;
    let size = file.metadata()?.len();
    let mut content = Vec::new();
    file.read_to_end(&mut content)?;
    let shown = path.strip_prefix(programs::root()).unwrap_or(path);
    Ok(format!(
        "{}\n  {:.1} MiB, sha256 {}",
        shown.display(),
        size as f64 / f64::from(1 << 20),
        sha256(&content)
    ))
}
