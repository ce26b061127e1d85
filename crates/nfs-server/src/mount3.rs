//! The MOUNT version 3 program (RFC 1813 §5): from the path of an export to its handle.

use crate::client_options::{ClientOptions, denial};
use crate::exports::{Export, Exports, Unresolved, mountable};
use crate::fs::{Access, Error, FileId, FileSystem, Identity, Name, Outcome, Step};
use crate::in_flight::InFlight;
use crate::metrics::{Counted, ErrorClass, Metrics, ProgramStats, Sample};
use crate::user_groups::UserGroups;
use nfs_proto::limits::MAX_GROUPS;
use nfs_proto::mount::{
    DirPath, Dump, ExportEntry, ExportList, HostName, Mount, MountEntry, MountList, MountStatus,
    Mounted, Null, Unmount, UnmountAll,
};
use nfs_proto::{List, MOUNT_PROGRAM, MOUNT_V3, MountProcedure, Wire, mount};
use oncrpc::auth::{AUTH_NONE, AUTH_SYS};
use oncrpc::{Answer, Call, Caller, Program, Reply};
use rpc_serving::warnings::{Suppressed, Warnings};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Largest number of mounts kept for DUMP. The list is for people: clients that have gone stay in
/// it, and the oldest entries are dropped.
const MAX_MOUNTS: usize = 256;

/// Largest number of lookups of paths below exports, and of roots that may take time, at a time, of which one client may have half.
/// Further ones are refused.
const MAX_IN_FLIGHT: usize = 256;

/// The MOUNT version 3 program.
#[derive(Clone)]
pub struct Mount3 {
    exports: Exports,
    in_flight: InFlight,
    users: UserGroups,
    mounts: Arc<Mutex<VecDeque<Entry>>>,
    warnings: Arc<Warnings>,
    /// The last refusal that was logged.
    refused: Arc<Mutex<Option<Entry>>>,
    metrics: Metrics<PROCEDURES>,
}

/// Procedures of MOUNT version 3.
const PROCEDURES: usize = MountProcedure::Export as usize + 1;

const COUNTED: Counted = Counted {
    program: "mount",
    procedure: |number| {
        Some(match MountProcedure::try_from(number).ok()? {
            MountProcedure::Null => "NULL",
            MountProcedure::Mount => "MNT",
            MountProcedure::Dump => "DUMP",
            MountProcedure::Unmount => "UMNT",
            MountProcedure::UnmountAll => "UMNTALL",
            MountProcedure::Export => "EXPORT",
        })
    },
    // The first word of a list tells whether there is an entry.
    failure: |number, status| (number == MountProcedure::Mount as u32).then(|| failure(status)),
};

/// Returns the class of a MNT status, which is not 0.
fn failure(status: u32) -> ErrorClass {
    match MountStatus::try_from(status) {
        Ok(MountStatus::NoEntry) => ErrorClass::NotFound,
        Ok(MountStatus::Perm | MountStatus::Access) => ErrorClass::Denied,
        Ok(MountStatus::NotDirectory) => ErrorClass::Exists,
        Ok(MountStatus::Invalid | MountStatus::NameTooLong | MountStatus::NotSupported) => {
            ErrorClass::Invalid
        }
        Ok(MountStatus::Io | MountStatus::ServerFault) | Err(_) => ErrorClass::Server,
    }
}

#[derive(Clone, PartialEq, Eq)]
struct Entry {
    host: IpAddr,
    path: Vec<u8>,
}

/// Reason of a refused mount.
struct Refusal {
    /// Status for the client.
    status: MountStatus,
    /// Reason for the log.
    why: String,
}

impl Refusal {
    fn new(status: MountStatus, why: impl Into<String>) -> Self {
        Self {
            status,
            why: why.into(),
        }
    }
}

impl Mount3 {
    /// Creates the program for these exports.
    pub fn new(exports: Exports) -> Self {
        Self {
            exports,
            in_flight: InFlight::new(MAX_IN_FLIGHT),
            users: UserGroups::default(),
            mounts: Arc::default(),
            warnings: Arc::default(),
            refused: Arc::default(),
            metrics: Metrics::new(COUNTED),
        }
    }

    /// Returns the statistics of all calls, over any transport.
    pub fn stats(&self) -> ProgramStats {
        self.metrics.stats()
    }

    /// Sets the source of callers' groups.
    #[must_use]
    pub fn with_users(mut self, users: UserGroups) -> Self {
        self.users = users;
        self
    }

    fn mount(&self, mut call: Call) -> Answer {
        let path = match call.decode(Mount::parse) {
            Ok(args) => args.path.get().to_vec(),
            Err(error) => return Answer::Now(call.unreadable(error)),
        };
        let (export, options, rest) = match self.find(&path, &call.caller) {
            Ok(found) => found,
            Err(refusal) => return Answer::Now(self.refuse(call, &path, &refusal)),
        };
        let way = self.exports.way_to(&export);
        let root = export.fs.root_to_mount();
        if rest.is_empty()
            && way.is_empty()
            && let Outcome::Ready(Ok(root)) = root
        {
            return Answer::Now(self.mounted(call, path, &export, root));
        }
        let Some(counted) = self.in_flight.enter(&call.caller) else {
            let why = "too many paths of exports are being looked for";
            let refusal = Refusal::new(MountStatus::ServerFault, why);
            return Answer::Now(self.refuse(call, &path, &refusal));
        };
        // Looking up a path below an export may wait for a disk, and so may its root.
        let this = self.clone();
        Answer::Blocking(Box::new(move || {
            let _counted = counted;
            if !this.users.look_up(&mut call) {
                return reply(call, &Err::<Mounted, _>(MountStatus::ServerFault));
            }
            let who = options.identity(&call.cred);
            let searched = way
                .iter()
                .try_for_each(|(fs, dirs)| search(&**fs, &who, dirs));
            let searched = searched.and_then(|()| root.wait().map_err(status));
            match searched.and_then(|root| descend(&*export.fs, &who, root, &rest)) {
                Ok(file) => this.mounted(call, path, &export, file),
                Err(status) => {
                    let uid = who.uid;
                    let why = match status {
                        MountStatus::NoEntry => "there is no such directory in the export".into(),
                        MountStatus::Access => format!("uid {uid} may not search the way there"),
                        other => format!("the way there cannot be taken: {other}"),
                    };
                    this.refuse(call, &path, &Refusal::new(status, why))
                }
            }
        }))
    }

    fn find(
        &self,
        path: &[u8],
        caller: &Caller,
    ) -> Result<(Export, ClientOptions, Vec<u8>), Refusal> {
        let (export, rest) = self.exports.resolve(path).map_err(|error| {
            let why = match error {
                Unresolved::NoExport => "no export has this path".to_owned(),
                Unresolved::Absent(why) => format!("this export is not served now: {why}"),
            };
            Refusal::new(MountStatus::NoEntry, why)
        })?;
        let options = export.options.for_caller(caller).ok_or_else(|| {
            let why = format!("no rule of the export {} has this address", export.name);
            Refusal::new(MountStatus::Access, why)
        })?;
        Ok((export, options, rest))
    }

    /// Answers a refused mount with its status, and logs the reason.
    fn refuse(&self, call: Call, path: &[u8], refusal: &Refusal) -> Reply {
        let now = Instant::now();
        self.summarise(now);
        let client = call.caller.addr.ip().to_canonical();
        if !self.is_next_try(client, path) && self.warnings.allows(call.caller.group, now) {
            tracing::warn!(
                %client,
                path = %path.escape_ascii(),
                reason = refusal.why,
                "mount refused"
            );
        }
        reply(call, &Err::<Mounted, _>(refusal.status))
    }

    /// Whether a refused path is above the client's last refused one. A client that looks for the
    /// export of a path upwards is thus logged once. Any other path is remembered.
    fn is_next_try(&self, host: IpAddr, path: &[u8]) -> bool {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let is_next = refused
            .as_ref()
            .is_some_and(|last| last.host == host && is_above(path, &last.path));
        if !is_next {
            let path = path.to_vec();
            *refused = Some(Entry { host, path });
        }
        is_next
    }

    /// Logs the number of suppressed warnings about refusals, in periods of
    /// [`WARNING_PERIOD`](rpc_serving::warnings::WARNING_PERIOD) that ended by `now`. Call it now and
    /// then.
    pub fn summarise(&self, now: Instant) {
        for Suppressed { peer, count } in self.warnings.summary(now) {
            match peer {
                Some(peer) => tracing::warn!(%peer, count, "further mounts refused"),
                None => tracing::warn!(count, "further mounts refused, of many clients"),
            }
        }
    }

    fn mounted(&self, call: Call, path: Vec<u8>, export: &Export, file: FileId) -> Reply {
        let entry = Entry {
            host: call.caller.addr.ip().to_canonical(),
            path,
        };
        tracing::debug!(client = %entry.host, path = %entry.path.escape_ascii(), "mounted");
        let mut mounts = self.mounts.lock().unwrap_or_else(PoisonError::into_inner);
        mounts.retain(|other| *other != entry);
        mounts.push_back(entry);
        if mounts.len() > MAX_MOUNTS {
            mounts.pop_front();
        }
        drop(mounts);
        let mounted = Mounted {
            handle: self.exports.seal(export.id(), file),
            flavors: vec![AUTH_SYS, AUTH_NONE],
        };
        reply(call, &Ok::<_, MountStatus>(mounted))
    }

    fn forget(&self, caller: &Caller, path: Option<&[u8]>) {
        let host = caller.addr.ip().to_canonical();
        self.mounts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|entry| entry.host != host || path.is_some_and(|path| path != entry.path));
    }

    fn dump(&self, call: Call) -> Reply {
        let mounts = self
            .mounts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let hosts: Vec<String> = mounts.iter().map(|entry| entry.host.to_string()).collect();
        let list: MountList<'_> = List(
            mounts
                .iter()
                .zip(&hosts)
                .filter_map(|(entry, host)| {
                    Some(MountEntry {
                        host: HostName::new(host.as_bytes())?,
                        path: DirPath::new(&entry.path)?,
                    })
                })
                .collect(),
        );
        reply(call, &list)
    }

    fn export(&self, call: Call) -> Reply {
        let exports = self.exports.all();
        let groups: Vec<Vec<String>> = mountable(&exports)
            .map(|(_, export)| {
                let names = export.options.client_names();
                names.take(MAX_GROUPS as usize).collect()
            })
            .collect();
        let list: ExportList<'_> = List(
            mountable(&exports)
                .zip(&groups)
                .filter_map(|((path, _), groups)| {
                    let names = groups.iter();
                    Some(ExportEntry {
                        path: DirPath::new(path.as_bytes())?,
                        groups: List(
                            names
                                .filter_map(|name| HostName::new(name.as_bytes()))
                                .collect(),
                        ),
                    })
                })
                .collect(),
        );
        reply(call, &list)
    }
}

/// Checks that the caller has search permission on the directory at a path below the root, and on
/// those above it.
fn search(fs: &dyn FileSystem, who: &Identity, path: &[u8]) -> Result<(), MountStatus> {
    let dir = descend(fs, who, fs.root(), path)?;
    let may = fs.access(who, dir, Access::LOOKUP).wait();
    match may.result.map_err(status)?.contains(Access::LOOKUP) {
        true => Ok(()),
        false => Err(MountStatus::Access),
    }
}

/// Looks up the directory at a path below the root, name by name, without following symbolic links.
fn descend(
    fs: &dyn FileSystem,
    who: &Identity,
    root: FileId,
    path: &[u8],
) -> Result<FileId, MountStatus> {
    let mut at = root;
    let names = path.split(|&byte| byte == b'/');
    for name in names.filter(|name| !name.is_empty()) {
        let step = Step::Name(Name::new(name).map_err(status)?);
        let found = fs.lookup(who, at, step).wait().result.map_err(status)?;
        if !found.attributes.is_directory() {
            return Err(MountStatus::NotDirectory);
        }
        at = found.file;
    }
    Ok(at)
}

/// Whether a path is above another one.
fn is_above(path: &[u8], other: &[u8]) -> bool {
    let names = |path| -> Vec<&[u8]> {
        let names = <[u8]>::split(path, |&byte| byte == b'/');
        names.filter(|name| !name.is_empty()).collect()
    };
    let (path, other) = (names(path), names(other));
    path.len() < other.len() && other.starts_with(&path)
}

fn status(error: Error) -> MountStatus {
    match error {
        Error::NotFound | Error::Stale => MountStatus::NoEntry,
        Error::Access => MountStatus::Access,
        Error::NotOwner => MountStatus::Perm,
        Error::NotDirectory => MountStatus::NotDirectory,
        Error::NameTooLong => MountStatus::NameTooLong,
        Error::Invalid => MountStatus::Invalid,
        Error::NotSupported => MountStatus::NotSupported,
        Error::Io => MountStatus::Io,
        Error::NoDevice
        | Error::Exists
        | Error::CrossDevice
        | Error::IsDirectory
        | Error::TooLarge
        | Error::NoSpace
        | Error::ReadOnly
        | Error::TooManyLinks
        | Error::NotEmpty
        | Error::Quota
        | Error::NotSync
        | Error::BadCookie
        | Error::BadType
        | Error::Busy
        | Error::NoXattr
        | Error::XattrTooLarge
        | Error::PastEnd => MountStatus::ServerFault,
    }
}

fn reply<'a>(call: Call, results: &impl Wire<'a>) -> Reply {
    let mut w = call.into_success();
    results.write(&mut w);
    Reply::Message(w.finish())
}

/// Runs a procedure whose arguments are `$args`.
macro_rules! serve {
    ($call:ident, $args:ty, $then:expr) => {
        Answer::Now(match $call.decode(<$args>::parse).map(drop) {
            Ok(()) => $then($call),
            Err(error) => $call.unreadable(error),
        })
    };
}

impl Program for Mount3 {
    fn number(&self) -> u32 {
        MOUNT_PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        MOUNT_V3..=MOUNT_V3
    }

    fn call(&self, call: Call) -> Answer {
        let Ok(procedure) = MountProcedure::try_from(call.proc) else {
            return Answer::Now(call.proc_unavail());
        };
        let sample = Sample::take();
        let answer = self.answer(procedure, call);
        self.metrics.count(procedure as u32, answer, sample)
    }
}

impl Mount3 {
    fn answer(&self, procedure: MountProcedure, call: Call) -> Answer {
        if let Some(stat) = denial(&call) {
            return Answer::Now(call.denied(stat));
        }
        match procedure {
            MountProcedure::Null => serve!(call, Null, Call::void),
            MountProcedure::Mount => self.mount(call),
            MountProcedure::Dump => serve!(call, Dump, |call| self.dump(call)),
            MountProcedure::Unmount => serve!(call, Unmount, |call: Call| {
                let path = call.decode(|r| Unmount::parse(r).map(|args| args.path.get().to_vec()));
                self.forget(&call.caller, path.as_deref().ok());
                call.void()
            }),
            MountProcedure::UnmountAll => serve!(call, UnmountAll, |call: Call| {
                self.forget(&call.caller, None);
                call.void()
            }),
            MountProcedure::Export => serve!(call, mount::Export, |call| self.export(call)),
        }
    }
}

#[cfg(test)]
mod tests;
