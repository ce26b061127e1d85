//! The exports of a running server: opened, and replaced as a whole.

use super::names::Names;
use super::plan::{Addresses, Plan};
use anyhow::Context;
use nfs_server::{ExportOptions, Exports, LocalFs, LocalFsOptions};
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The exports of a running server.
pub(super) struct Served {
    pub(super) exports: Exports,
    plans: Vec<Plan>,
    open: Vec<OpenDirectory>,
    how: HowToOpen,
    names: Names,
    addresses: Addresses,
}

/// How directories are opened.
#[derive(Clone)]
pub(super) struct HowToOpen {
    /// For each of them, but for the number of open files.
    pub(super) options: LocalFsOptions,
    /// Files that may be kept open, of all exports.
    pub(super) open_files: usize,
}

/// A directory that is open as long as an export has it.
#[derive(Clone)]
struct OpenDirectory {
    path: PathBuf,
    /// Device and inode: a path may lead elsewhere later.
    identity: (u64, u64),
    fs: Arc<LocalFs>,
}

/// How many exports came, went and stayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Replaced {
    pub(super) added: usize,
    pub(super) removed: usize,
    pub(super) kept: usize,
}

impl fmt::Display for Replaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            added,
            removed,
            kept,
        } = self;
        write!(f, "{added} added, {removed} removed, {kept} kept")
    }
}

impl Served {
    /// Serves these; `none` has the key of file handles.
    ///
    /// # Errors
    ///
    /// If a directory cannot be served.
    pub(super) async fn open(
        none: Exports,
        plans: Vec<Plan>,
        how: HowToOpen,
    ) -> anyhow::Result<Self> {
        let mut served = Self {
            exports: none,
            plans: Vec::new(),
            open: Vec::new(),
            how,
            names: Names::default(),
            addresses: Addresses::new(),
        };
        served.replace(plans).await?;
        Ok(served)
    }

    /// What is served, in a line.
    pub(super) fn status(&self) -> String {
        match self.plans.as_slice() {
            [one] => format!("serving {}", one.export.name),
            many => format!("serving {} exports", many.len()),
        }
    }

    pub(super) fn plans(&self) -> &[Plan] {
        &self.plans
    }

    /// Whether callers act with their own rights.
    pub(super) fn acts_for_callers(&self) -> bool {
        self.open.iter().any(|open| open.fs.acts_for_callers())
    }

    /// How the files of each directory are found from their handles, in words.
    pub(super) fn describe_handles(&self) -> String {
        let describe = |open: &OpenDirectory| match open.fs.has_kernel_handles() {
            true => format!("; {}: file handles of the kernel", open.path.display()),
            false => format!("; {}: a table of file handles", open.path.display()),
        };
        self.open.iter().map(describe).collect()
    }

    /// Serves these from now on. Directories that stay are not opened again; calls and connections go on.
    ///
    /// # Errors
    ///
    /// If one cannot be served; then all stays as it was.
    pub(super) async fn replace(&mut self, plans: Vec<Plan>) -> anyhow::Result<Replaced> {
        let hosts = hosts(&plans);
        let addresses = self.names.look_up(hosts, &self.addresses).await;
        let (open, how, count) = (self.open.clone(), self.how.clone(), plans.len());
        let paths: Vec<PathBuf> = plans.iter().map(|plan| plan.export.dir.clone()).collect();
        let opened = tokio::task::spawn_blocking(move || open_all(&paths, &open, &how, count));
        let open = opened.await.context("opening directories")??;
        let exports = list(&self.exports, &plans, &open, &addresses)?;
        let names = |plans: &[Plan]| -> BTreeSet<String> {
            plans.iter().map(|plan| plan.export.name.clone()).collect()
        };
        let (before, after) = (names(&self.plans), names(&plans));
        let kept = after.intersection(&before).count();
        self.exports.replace(&exports);
        self.plans = plans;
        self.open = open;
        self.addresses = addresses;
        Ok(Replaced {
            added: after.len() - kept,
            removed: before.len() - kept,
            kept,
        })
    }

    /// Looks up the names of hosts again.
    pub(super) async fn refresh(&mut self) {
        let hosts = hosts(&self.plans);
        if hosts.is_empty() {
            return;
        }
        let addresses = self.names.look_up(hosts, &self.addresses).await;
        if addresses == self.addresses {
            return;
        }
        match list(&self.exports, &self.plans, &self.open, &addresses) {
            Ok(exports) => {
                self.exports.replace(&exports);
                self.addresses = addresses;
                tracing::info!(target: "serve", "addresses of hosts have changed");
            }
            Err(error) => tracing::warn!(%error, "cannot use the new addresses of hosts"),
        }
    }
}

/// Opens a directory to see whether it can be served, and closes it.
///
/// # Errors
///
/// If it cannot.
pub(super) fn check(plans: &[Plan]) -> anyhow::Result<()> {
    for plan in plans {
        // Without the state, which a server may be using.
        LocalFs::open(&plan.export.dir, LocalFsOptions::default())?;
    }
    let none = Exports::new(nfs_server::HandleKey::random()?);
    let nothing: Arc<dyn nfs_server::FileSystem> = Arc::new(nfs_server::MemFs::new(0));
    plans.iter().try_fold(none, |exports, plan| {
        let options = plan.options(&Addresses::new());
        exports.with(&plan.export.name, Arc::clone(&nothing), options)
    })?;
    Ok(())
}

fn hosts(plans: &[Plan]) -> BTreeSet<super::plan::HostName> {
    plans.iter().flat_map(Plan::hosts).cloned().collect()
}

/// The directories, those that are open already taken as they are.
fn open_all(
    paths: &[PathBuf],
    open: &[OpenDirectory],
    how: &HowToOpen,
    exports: usize,
) -> anyhow::Result<Vec<OpenDirectory>> {
    let mut all: Vec<OpenDirectory> = Vec::new();
    for path in paths {
        if all.iter().any(|other| other.path == *path) {
            continue;
        }
        let identity =
            identity(path).with_context(|| format!("cannot serve {}", path.display()))?;
        let is_it = |other: &&OpenDirectory| other.path == *path && other.identity == identity;
        let fs = match open.iter().find(is_it) {
            Some(open) => Arc::clone(&open.fs),
            None => Arc::new(LocalFs::open(
                path,
                LocalFsOptions {
                    open_files: Some(how.open_files.div_ceil(exports)),
                    ..how.options.clone()
                },
            )?),
        };
        all.push(OpenDirectory {
            path: path.clone(),
            identity,
            fs,
        });
    }
    Ok(all)
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let about = path.metadata()?;
    Ok((about.dev(), about.ino()))
}

/// The list of exports as it is served.
fn list(
    served: &Exports,
    plans: &[Plan],
    open: &[OpenDirectory],
    addresses: &Addresses,
) -> anyhow::Result<Exports> {
    let mut exports = served.none();
    for plan in plans {
        let (dir, name) = (&plan.export.dir, &plan.export.name);
        let open = open.iter().find(|open| open.path == *dir);
        let open = open.with_context(|| format!("{} is not open", dir.display()))?;
        let options: ExportOptions = plan.options(addresses);
        exports = exports.with(name, Arc::clone(&open.fs) as _, options)?;
    }
    Ok(exports)
}
