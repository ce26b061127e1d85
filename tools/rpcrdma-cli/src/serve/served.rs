//! The exports of a running server: opened, and replaced as a whole.

use super::mounts;
use super::names::Names;
use super::plan::{Addresses, Plan};
use anyhow::Context;
use nfs_client::printable;
use nfs_server::{ExportOptions, Exports, LocalFs, LocalFsOptions};
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
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
    /// What is mounted below exports and cannot be served, and why; the operator was told.
    unserved: BTreeSet<(PathBuf, String)>,
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
            unserved: BTreeSet::new(),
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
        self.make(&plans, &addresses, Directories::AsNow).await?;
        let names = |plans: &[Plan]| -> BTreeSet<String> {
            plans.iter().map(|plan| plan.export.name.clone()).collect()
        };
        let (before, after) = (names(&self.plans), names(&plans));
        let kept = after.intersection(&before).count();
        self.plans = plans;
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
        let plans = self.plans.clone();
        match self.make(&plans, &addresses, Directories::AsOpened).await {
            Ok(()) => {
                self.addresses = addresses;
                tracing::info!(target: "serve", "addresses of hosts have changed");
            }
            Err(error) => {
                tracing::warn!(
                    error = format!("{error:#}"),
                    "cannot use new addresses of hosts"
                );
            }
        }
    }

    /// Whether it matters what is mounted.
    pub(super) fn crosses_mounts(&self) -> bool {
        self.plans.iter().any(|plan| plan.crossmnt)
    }

    /// Serves what is mounted now below exports that have it served.
    pub(super) async fn mounts_have_changed(&mut self) {
        let (plans, addresses) = (self.plans.clone(), self.addresses.clone());
        if let Err(error) = self.make(&plans, &addresses, Directories::AsOpened).await {
            tracing::warn!(
                error = format!("{error:#}"),
                "cannot serve what is mounted now"
            );
        }
    }

    /// Makes a list of exports, and serves it.
    async fn make(
        &mut self,
        plans: &[Plan],
        addresses: &Addresses,
        directories: Directories,
    ) -> anyhow::Result<()> {
        let making = Making {
            directories,
            none: self.exports.none(),
            before: self.open.clone(),
            open: Vec::new(),
            how: self.how.clone(),
            unserved: BTreeSet::new(),
        };
        let (plans, addresses) = (plans.to_vec(), addresses.clone());
        let made = tokio::task::spawn_blocking(move || making.all(&plans, &addresses));
        let (exports, making) = made.await.context("opening directories")??;
        self.exports.replace(&exports);
        self.open = making.open;
        for (path, why) in &making.unserved {
            if !self.unserved.contains(&(path.clone(), why.clone())) {
                // Anybody who may mount something names it.
                let path = printable(path.as_os_str().as_bytes());
                let why = printable(why.as_bytes());
                tracing::warn!(target: "serve", %path, %why, "what is mounted here is not served");
            }
        }
        self.unserved = making.unserved;
        Ok(())
    }
}

/// Which directory an export is, where another file system is at its path than when it was opened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Directories {
    /// The one that was opened: a disk that was unmounted must not have its clients write to what is
    /// below.
    AsOpened,
    /// The one that is there now, as the administrator asks for.
    AsNow,
}

/// A list of exports that is being made.
struct Making {
    directories: Directories,
    none: Exports,
    /// Directories that are open already.
    before: Vec<OpenDirectory>,
    /// Those that are needed.
    open: Vec<OpenDirectory>,
    how: HowToOpen,
    unserved: BTreeSet<(PathBuf, String)>,
}

impl Making {
    fn all(mut self, plans: &[Plan], addresses: &Addresses) -> anyhow::Result<(Exports, Self)> {
        let mut exports = self.none.clone();
        for plan in plans {
            let fs = self.export(&plan.export.dir, plans.len())?;
            let options: ExportOptions = plan.options(addresses);
            exports = exports.with(&plan.export.name, fs, options)?;
        }
        let mut left = MAX_MOUNTS;
        for plan in plans.iter().filter(|plan| plan.crossmnt) {
            let dir = &plan.export.dir;
            let mounts = mounts::below(dir).context("cannot read what is mounted")?;
            for path in mounts {
                match self.mount(&exports, plan, &path, plans.len()) {
                    Ok(one_more) if left > 0 => {
                        exports = one_more;
                        left -= 1;
                    }
                    Ok(_) => {
                        let why = format!("{MAX_MOUNTS} others are");
                        self.unserved.insert((path, why));
                    }
                    Err(why) => {
                        self.unserved.insert((path, format!("{why:#}")));
                    }
                }
            }
        }
        Ok((exports, self))
    }

    /// The exports and a file system that is mounted below one.
    fn mount(
        &mut self,
        exports: &Exports,
        plan: &Plan,
        path: &Path,
        count: usize,
    ) -> anyhow::Result<Exports> {
        let below = path.strip_prefix(&plan.export.dir)?;
        let below = below.to_str().context("its path is not UTF-8")?;
        let name = format!("{}/{below}", plan.export.name.trim_end_matches('/'));
        let fs = self.open(path, count)?;
        Ok(exports.clone().with_mount(&name, fs)?)
    }

    /// The directory of an export.
    fn export(&mut self, path: &Path, count: usize) -> anyhow::Result<Arc<LocalFs>> {
        let opened = self.before.iter().find(|open| open.path == *path);
        let Some(opened) = opened.cloned() else {
            return self.open(path, count);
        };
        let is_another = identity(path).is_ok_and(|now| now != opened.identity);
        match self.directories {
            Directories::AsNow if is_another => {
                let shown = path.display();
                tracing::warn!(target: "serve", path = %shown, "another file system is here than before");
                self.open(path, count)
            }
            Directories::AsNow => self.open(path, count),
            Directories::AsOpened => {
                if is_another {
                    let why = "the export is the file system that was here before, until a reload";
                    self.unserved.insert((path.to_owned(), why.to_owned()));
                }
                let fs = Arc::clone(&opened.fs);
                self.open.push(opened);
                Ok(fs)
            }
        }
    }

    /// A directory, as it is if it is open.
    fn open(&mut self, path: &Path, count: usize) -> anyhow::Result<Arc<LocalFs>> {
        let identity =
            identity(path).with_context(|| format!("cannot serve {}", path.display()))?;
        let is_it = |other: &&OpenDirectory| other.path == *path && other.identity == identity;
        if let Some(open) = self.open.iter().find(is_it) {
            return Ok(Arc::clone(&open.fs));
        }
        let fs = match self.before.iter().find(is_it) {
            Some(open) => Arc::clone(&open.fs),
            None => Arc::new(LocalFs::open(
                path,
                LocalFsOptions {
                    open_files: Some(self.how.open_files.div_ceil(count)),
                    ..self.how.options.clone()
                },
            )?),
        };
        self.open.push(OpenDirectory {
            path: path.to_owned(),
            identity,
            fs: Arc::clone(&fs),
        });
        Ok(fs)
    }
}

/// File systems that are served with the exports that they are mounted below.
const MAX_MOUNTS: usize = 1024;

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

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let about = path.metadata()?;
    Ok((about.dev(), about.ino()))
}
