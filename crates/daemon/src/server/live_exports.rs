//! The exports of a running server: opened, and replaced as a whole.

use super::export_changes::ExportChanges;
use super::mounts::{self, MountTable};
use super::plan::{Plan, Presence};
use crate::clients::{self, Addresses, HostName};
use crate::errors::Misconfigured;
use crate::names::Names;
use anyhow::Context;
use nfs_client::printable;
use nfs_server::{
    ExportOptions, Exports, FileSystem, LocalFs, LocalFsOptions, OpenError, exports_state,
};
use oncrpc::plain;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::future::{Future, pending};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// How often it is looked for what is to be exported and is not there.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// Exports that are not served now, by name, with the reasons: the others are served without them.
pub type AbsentExports = BTreeMap<String, String>;

/// The exports of a running server.
pub struct LiveExports {
    pub(super) exports: Exports,
    plans: Vec<Plan>,
    open: Vec<OpenDirectory>,
    how: HowToOpen,
    names: Names,
    addresses: Addresses,
    /// Mounts below exports that cannot be served, with the reasons that were logged.
    unserved: BTreeSet<(PathBuf, String)>,
    absent: AbsentExports,
    mount_points: MountPoints,
}

/// Mount points below exports that are served, or were since the exports were read, each with its directory (device and
/// inode).
type MountPoints = BTreeMap<PathBuf, (u64, u64)>;

/// Options with which directories are opened.
#[derive(Clone)]
pub(super) struct HowToOpen {
    /// Those of each directory, but for the number of open files.
    pub(super) options: LocalFsOptions,
    /// Files that may be kept open, of all exports.
    pub(super) open_files: usize,
}

/// A directory that is open as long as an export has it.
#[derive(Clone)]
struct OpenDirectory {
    path: PathBuf,
    fs: Arc<LocalFs>,
}

impl OpenDirectory {
    /// Whether this is the directory with this device and inode: a path may lead elsewhere later.
    fn is(&self, identity: (u64, u64)) -> bool {
        self.fs.identity().is_ok_and(|own| own == identity)
    }
}

impl LiveExports {
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
            absent: AbsentExports::new(),
            mount_points: MountPoints::new(),
        };
        served.replace(plans).await?;
        Ok(served)
    }

    /// The exports in a line.
    pub(super) fn status(&self) -> String {
        let present = self.plans.iter().map(|plan| &plan.export.name);
        let present: Vec<_> = present
            .filter(|name| !self.absent.contains_key(*name))
            .collect();
        let serving = match present.as_slice() {
            [one] => format!("serving {one}"),
            many => format!("serving {} exports", many.len()),
        };
        match names(self.absent.keys()) {
            absent if absent.is_empty() => serving,
            absent => format!("{serving}, not there: {absent}"),
        }
    }

    /// The exports, with the directories that were found.
    pub fn plans(&self) -> &[Plan] {
        &self.plans
    }

    /// Addresses of the hosts that rules name.
    pub(super) fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// The exports that are not served now, and why.
    pub fn absent(&self) -> &AbsentExports {
        &self.absent
    }

    /// Waits until something is there that is to be exported and was not, if there is such.
    pub(super) fn return_of_absent(&self) -> impl Future<Output = ()> + use<> {
        let absent = self.plans.iter();
        let absent: Vec<Plan> = absent
            .filter(|plan| self.absent.contains_key(&plan.export.name))
            .cloned()
            .collect();
        async move {
            if absent.is_empty() {
                return pending().await;
            }
            loop {
                tokio::time::sleep(LOOK_AGAIN).await;
                if any_is_there(absent.clone()).await {
                    return;
                }
            }
        }
    }

    /// The kind of file handles of each directory, in words.
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
    pub(super) async fn replace(&mut self, plans: Vec<Plan>) -> anyhow::Result<ExportChanges> {
        let hosts = hosts(&plans);
        let addresses = self.names.look_up(hosts, &self.addresses).await;
        let before = self.plans.clone();
        self.make(&plans, &addresses, Directories::AsNow).await?;
        self.addresses = addresses;
        Ok(ExportChanges::new(&before, &self.plans))
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
    pub(super) fn depends_on_mounts(&self) -> bool {
        let depends = |plan: &Plan| plan.crossmnt || matches!(plan.presence, Presence::Mounted(_));
        self.plans.iter().any(depends)
    }

    /// Serves what is there and mounted now.
    pub(super) async fn look_again(&mut self) {
        let (plans, addresses) = (self.plans.clone(), self.addresses.clone());
        if let Err(error) = self.make(&plans, &addresses, Directories::AsOpened).await {
            tracing::warn!(
                error = format!("{error:#}"),
                "cannot serve what is there now"
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
            known_mounts: Vec::new(),
            absent: AbsentExports::new(),
            mount_points: match directories {
                Directories::AsOpened => self.mount_points.clone(),
                Directories::AsNow => MountPoints::new(),
            },
        };
        let (plans, addresses) = (plans.to_vec(), addresses.clone());
        let made = tokio::task::spawn_blocking(move || making.all(plans, &addresses));
        let (exports, plans, making) = made.await.context("opening directories")??;
        self.exports.replace(&exports);
        making.tell_known_mounts();
        self.open = making.open;
        self.plans = plans;
        for (path, why) in &making.unserved {
            if !self.unserved.contains(&(path.clone(), why.clone())) {
                // Anybody who may mount something names it.
                let path = printable(path.as_os_str().as_bytes());
                let why = printable(why.as_bytes());
                tracing::warn!(target: "serve", %path, why, "what is or was here is not served");
            }
        }
        self.unserved = making.unserved;
        self.mount_points = making.mount_points;
        self.tell_of_absent(&making.absent);
        self.absent = making.absent;
        Ok(())
    }

    /// Logs which exports have come and gone by themselves.
    fn tell_of_absent(&self, now: &AbsentExports) {
        for plan in &self.plans {
            let name = &plan.export.name;
            let path = printable(plan.export.path.as_os_str().as_bytes());
            let export = printable(name.as_bytes());
            match (self.absent.get(name), now.get(name)) {
                (before, Some(why)) if before != Some(why) => {
                    let why = printable(why.as_bytes());
                    tracing::warn!(target: "serve", %export, %path, why, "export is not served: it is not there");
                }
                (Some(_), None) => {
                    tracing::info!(target: "serve", %export, %path, "export is served, as it is there now");
                }
                (None, None) | (_, Some(_)) => {}
            }
        }
    }
}

/// Looks on a thread that nobody waits for at the end of the process: a disk may never answer.
async fn any_is_there(plans: Vec<Plan>) -> bool {
    let (answer, answered) = oneshot::channel();
    let thread = std::thread::Builder::new().name("rpcrdma-absent".to_owned());
    let looking = thread.spawn(move || {
        // Nobody may wait for it any more.
        let _ = answer.send(plans.iter().any(|plan| plan.locate().is_ok()));
    });
    looking.is_ok() && answered.await.unwrap_or(false)
}

/// Names of exports in a line, not more than people read.
pub fn names<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let names: Vec<String> = names
        .map(|name| printable(name.as_bytes()).to_string())
        .collect();
    clients::summed_up(&names)
}

/// Directory to serve where the path of an export leads to another file system than when it was opened.
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
    /// Below directories that are served with what is mounted there, the mounts that were looked at.
    known_mounts: Vec<(PathBuf, Arc<HashSet<u64>>)>,
    absent: AbsentExports,
    mount_points: MountPoints,
}

impl Making {
    /// Tells file systems which mounts were looked at: those that are in the list of exports by now, and
    /// those that are not served.
    fn tell_known_mounts(&self) {
        for open in &self.open {
            let crossing = self.known_mounts.iter();
            let mut crossing = crossing.filter(|(dir, _)| open.path.starts_with(dir));
            let known = crossing.next().map(|(_, known)| Arc::clone(known));
            open.fs.know_mounts(known);
        }
    }

    /// The exports, and the plans with the directories that were found.
    fn all(
        mut self,
        mut plans: Vec<Plan>,
        addresses: &Addresses,
    ) -> anyhow::Result<(Exports, Vec<Plan>, Self)> {
        let mut exports = self.none.clone();
        let count = plans.len();
        for plan in &mut plans {
            let opened = self.export(plan, count);
            let options: ExportOptions = plan.options(addresses);
            let name = &plan.export.name;
            exports = match present(plan, opened)? {
                Ok(fs) => exports.with(name, fs, options)?,
                Err(why) => {
                    let with = exports.with_absent(name, &why, options)?;
                    self.absent.insert(name.clone(), why);
                    with
                }
            };
        }
        let mut left = MAX_MOUNTS;
        let absent = self.absent.clone();
        let crossing = plans.iter().filter(|plan| plan.crossmnt);
        for plan in crossing.filter(|plan| !absent.contains_key(&plan.export.name)) {
            let dir = &plan.export.dir;
            let mounts = MountTable::read().context("cannot read what is mounted")?;
            let known = Arc::new(mounts.ids());
            self.known_mounts.push((dir.clone(), known));
            let mounts = mounts::below(&mounts, dir);
            let points = self.mount_points.keys();
            let gone: Vec<_> = points
                .filter(|path| path.starts_with(dir) && !mounts.contains(path))
                .cloned()
                .collect();
            for path in mounts {
                match self.mount(&exports, plan, &path, plans.len()) {
                    Ok(one_more) if left > 0 => {
                        exports = one_more;
                        left -= 1;
                        if let Ok(above) = directory_of(&path) {
                            self.mount_points.insert(path, above);
                        }
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
            for (number, path) in gone.into_iter().enumerate() {
                let name = name_below(plan, &path)?;
                let without = exports.clone().with_unmounted(&name);
                let is_there = directory_of(&path).ok().as_ref() == self.mount_points.get(&path);
                match without {
                    Ok(without) if is_there && number < MAX_MOUNTS => {
                        exports = without;
                        let why = "it was unmounted: clients get stale file handles until a reload";
                        self.unserved.insert((path, why.to_owned()));
                    }
                    // Nor is the directory there in which it was mounted, or there are too many.
                    Ok(_) | Err(_) => {
                        self.mount_points.remove(&path);
                    }
                }
            }
        }
        Ok((exports, plans, self))
    }

    /// The exports and a file system that is mounted below one.
    fn mount(
        &mut self,
        exports: &Exports,
        plan: &Plan,
        path: &Path,
        count: usize,
    ) -> anyhow::Result<Exports> {
        let name = name_below(plan, path)?;
        let fs = self.open(path, count)?;
        Ok(exports.clone().with_mount(&name, fs)?)
    }

    /// The directory of an export, which the plan has then, if it was not there before.
    fn export(&mut self, plan: &mut Plan, count: usize) -> anyhow::Result<Arc<LocalFs>> {
        let is_open = |path: &Path| self.before.iter().find(|open| open.path == *path).cloned();
        let directories = match plan.presence {
            Presence::Mounted(_) => Directories::AsNow,
            Presence::Required | Presence::Optional => self.directories,
        };
        let stays = directories == Directories::AsOpened && is_open(&plan.export.dir).is_some();
        if plan.presence != Presence::Required && !stays {
            plan.export.dir = plan.locate()?;
        }
        let path = &*plan.export.dir;
        let Some(opened) = is_open(path) else {
            return self.open(path, count);
        };
        // If it is gone, the one that is there now takes its place.
        let _ = opened.fs.root_to_mount().wait();
        let is_another = identity(path).is_ok_and(|now| !opened.is(now));
        match directories {
            Directories::AsNow if is_another => {
                let shown = path.display();
                tracing::warn!(target: "serve", path = %shown, "another directory or file system is here than before");
                self.open(path, count)
            }
            Directories::AsNow => self.open(path, count),
            Directories::AsOpened => {
                if is_another {
                    let why = "the export is the directory that was here before, until a reload";
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
            identity(path).with_context(|| format!("{}: cannot be served", path.display()))?;
        let is_it = |other: &&OpenDirectory| other.path == *path && other.is(identity);
        if let Some(open) = self.open.iter().find(is_it) {
            return Ok(Arc::clone(&open.fs));
        }
        let fs = match self.before.iter().find(is_it) {
            Some(open) => Arc::clone(&open.fs),
            None => Arc::new(LocalFs::open(
                path,
                self.how
                    .options
                    .clone()
                    .with_open_files(self.how.open_files.div_ceil(count)),
            )?),
        };
        self.open.push(OpenDirectory {
            path: path.to_owned(),
            fs: Arc::clone(&fs),
        });
        Ok(fs)
    }
}

/// The directory that has the name of a mount point.
fn directory_of(path: &Path) -> io::Result<(u64, u64)> {
    identity(path.parent().unwrap_or(path))
}

/// The path of what is mounted below an export, as clients see it.
fn name_below(plan: &Plan, path: &Path) -> anyhow::Result<String> {
    let below = path.strip_prefix(&plan.export.dir)?;
    let below = below.to_str().context("its path is not UTF-8")?;
    Ok(format!(
        "{}/{below}",
        plan.export.name.trim_end_matches('/')
    ))
}

/// File systems that are served with the exports that they are mounted below.
const MAX_MOUNTS: usize = 1024;

/// The directory that was opened, or the reason why an export is absent that may be.
///
/// # Errors
///
/// If the export may not be absent, or could not be served if it were there.
fn present<T>(plan: &Plan, opened: anyhow::Result<T>) -> anyhow::Result<Result<T, String>> {
    let error = match opened {
        Ok(opened) => return Ok(Ok(opened)),
        Err(error) => error,
    };
    let is_wrong = matches!(
        error.downcast_ref(),
        Some(OpenError::Pseudo { .. } | OpenError::OwnState { .. })
    );
    if plan.presence != Presence::Required && !is_wrong {
        return Ok(Err(plain(&format_args!("{error:#}"))));
    }
    match &plan.origin {
        Some(origin) if is_wrong => Err(Misconfigured(format!("{origin}: {error:#}")).into()),
        Some(origin) => Err(error.context(origin.clone())),
        None => Err(error),
    }
}

/// Opens each directory to see whether it can be served, and closes it. Those that are not there now and
/// need not be are named; what speaks against others is added to the errors.
///
/// # Errors
///
/// If the system gives no random bytes.
pub fn check(
    plans: &[Plan],
    state_dir: Option<&Path>,
    errors: &mut Vec<anyhow::Error>,
) -> anyhow::Result<AbsentExports> {
    let mut absent = AbsentExports::new();
    let mut exports = Exports::new(nfs_server::HandleKey::random()?);
    for plan in plans {
        // Without the state, which a server may be using.
        let open = || {
            let path = plan.locate()?;
            if let Some(state_dir) = state_dir
                && exports_state(&path, state_dir).context("the state directory")?
            {
                return Err(OpenError::OwnState { path }.into());
            }
            anyhow::Ok(LocalFs::open(path, LocalFsOptions::default())?)
        };
        let (name, options) = (&plan.export.name, plan.options(&Addresses::new()));
        let before = exports.clone();
        let with = present(plan, open()).and_then(|opened| match opened {
            Ok(fs) => Ok(before.with(name, Arc::new(fs), options)?),
            Err(why) => {
                let with = before.with_absent(name, &why, options)?;
                absent.insert(name.clone(), why);
                Ok(with)
            }
        });
        match with {
            Ok(with) => exports = with,
            Err(error) => errors.push(error),
        }
    }
    Ok(absent)
}

/// The hosts that rules name.
pub fn hosts(plans: &[Plan]) -> BTreeSet<HostName> {
    plans.iter().flat_map(Plan::hosts).cloned().collect()
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let about = path.metadata()?;
    Ok((about.dev(), about.ino()))
}
