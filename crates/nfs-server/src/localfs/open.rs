//! Opening a directory for export.

use super::handles::Resolver;
use super::handles::kernel::KernelHandles;
use super::handles::table::Table;
use super::id::{self, IdentifiedBy};
use super::open_files::node::{Node, Root};
use super::options::{Changes, Handles, LocalFsOptions};
use super::rights::Process;
use super::sys::{self, Pace, ProcFd, Stat};
use super::volume::change_values::ChangeValues;
use super::volume::fileid::FileIds;
use super::volume::in_flight::InFlight;
use super::volume::kind::{FsKind, figures, file_system, magic};
use super::volume::witness::Witness;
use super::volume::{Hidden, Volume, VolumeFacts};
use super::write_verifier::WriteVerifier;
use crate::fs::Identity;
use crate::state_dir::exports_state;
use buffer::Pool;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Access, Mode, OFlags, StatVfsMountFlags};
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use syscalls::{ActingAs, FsUser};

/// Explains why openat2 failed on a directory.
fn cannot_enter(path: PathBuf, errno: Errno) -> OpenError {
    let what = match errno {
        Errno::ACCESS => {
            let error = errno.into();
            return OpenError::Directory { path, error };
        }
        Errno::NOSYS => {
            "openat2, which keeps clients within it, is missing: the kernel is older than Linux 5.6, or \
             the seccomp filter of a container hides it"
        }
        // No other rule forbids opening a directory that can be searched.
        Errno::PERM => {
            "openat2, which keeps clients within it, is forbidden: the seccomp filter of a container or \
             a service has to allow it"
        }
        _ => "it cannot be opened with openat2, which keeps clients within it",
    };
    let error = errno.into();
    OpenError::Kernel { path, what, error }
}

/// Why a directory cannot be exported.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant is documented by its message")]
#[non_exhaustive]
pub enum OpenError {
    #[error("{path}: cannot open the directory: {error}")]
    Directory { path: PathBuf, error: io::Error },
    #[error("{path}: cannot be exported: {what}: {error}")]
    Kernel {
        path: PathBuf,
        what: &'static str,
        error: io::Error,
    },
    #[error("{path}: cannot keep file handles here: {error} (--state-dir names another directory)")]
    State { path: PathBuf, error: io::Error },
    #[error(
        "{path}: it is in {kind}, and what is there has no file handles and no sizes, as the kernel makes it up when it is looked at; export a directory of a disk"
    )]
    Pseudo { path: PathBuf, kind: &'static str },
    #[error(
        "{path}: it holds the state of this server, the key of its file handles among it, and cannot be exported (export a directory that does not hold it, or name another place for the state with --state-dir)"
    )]
    OwnState { path: PathBuf },
    #[error(
        "{path}: it is in use: the same directory is exported twice, or by another server with the same --state-dir"
    )]
    InUse { path: PathBuf },
    #[error("{path}: it is damaged: {error} (remove it to go on; clients have to mount again)")]
    Damaged { path: PathBuf, error: redb::Error },
}

/// A directory that is opened for export, with the facts on which the layers are built.
pub(super) struct Opening {
    pub(super) volume: Volume,
    pub(super) root: Root,
    pub(super) resolver: Resolver,
    pub(super) verifier: WriteVerifier,
    pub(super) process: Process,
    /// Device of the file system.
    pub(super) device: (u32, u32),
    pub(super) changes: Changes,
    pub(super) pool: Pool,
    pub(super) open_files: Option<usize>,
}

impl Opening {
    /// Opens a directory for export.
    ///
    /// # Errors
    ///
    /// If it cannot be exported.
    pub(super) fn new(path: PathBuf, options: LocalFsOptions) -> Result<Self, OpenError> {
        let root = open_root(&path)?;
        let proc = ProcFd::open().map_err(kernel_error(&path, "/proc is not mounted"))?;
        let system = figures(rustix::fs::fstatfs(&root)).map_err(kernel_error(&path, "statfs"))?;
        let system = system.as_ref();
        if let Some(kind) = system.and_then(FsKind::pseudo) {
            return Err(OpenError::Pseudo { path, kind });
        }
        let kind = FsKind::of(system);
        let stat = sys::stat(&root, IdentifiedBy::Birth).map_err(kernel_error(&path, "statx"))?;
        let uniform = kind.is_uniform(&stat, root.as_fd());
        sys::open_entry(&root, b".", Pace::Patient)
            .map_err(|errno| cannot_enter(path.clone(), errno))?;
        if let Some(state_dir) = &options.state_dir {
            check_state(&path, state_dir)?;
        }
        let keeps_handles = system.is_some_and(FsKind::keeps_handles);
        let (resolver, state) =
            open_handles(&path, &options, (root.as_fd(), &proc), keeps_handles)?;
        let by = match &resolver {
            Resolver::Kernel(_) if kind.is_local() => kind.identified_by(&stat, true),
            Resolver::Kernel(_) => IdentifiedBy::Birth,
            Resolver::Table(_) => identified_by(kind, &stat, uniform),
        };
        let stat = sys::stat(&root, by).map_err(kernel_error(&path, "statx"))?;
        if matches!(resolver, Resolver::Table(_)) && stat.born.is_none() {
            warn_of_reuse(&path);
        }
        let file = resolver
            .identify_root(by, root.as_fd(), &stat)
            .map_err(kernel_error(&path, "its file handle"))?;
        let file_ids = FileIds::of(file, uniform);
        let fileid = file_ids.number(file, stat.attributes.fileid);
        let hidden = hidden_state(state, by, &stat)
            .map_err(kernel_error(&path, "statx of the state directory"))?;
        let verifier = WriteVerifier::new();
        let is_mount = sys::is_mount_point(&root).map_err(kernel_error(&path, "statx"))?;
        let flags = figures(rustix::fs::fstatvfs(&root)).map_err(kernel_error(&path, "statvfs"))?;
        let flags = flags.map_or(StatVfsMountFlags::empty(), |found| found.f_flag);
        let process = this_process(&path, root.as_fd())?;
        let device = file_system(stat.mount).unwrap_or(stat.device);
        let in_flight = InFlight::of(device);
        let sees = kind.tells_of_changes() && !by.path();
        let witness = Witness::new(sees, Arc::clone(&in_flight));
        let changes = ChangeValues::probe(root.as_fd(), kind, in_flight, witness);
        let volume = Volume::new(VolumeFacts {
            path,
            proc,
            kind,
            magic: system.map(magic),
            by,
            kernel_handles: matches!(resolver, Resolver::Kernel(_)),
            file_ids,
            hidden,
            abilities: kind.abilities(system, root.as_fd()),
            changes,
            no_exec: flags.contains(StatVfsMountFlags::NOEXEC),
            mount: stat.mount,
            device,
        });
        let node = Node::new(&stat, (file, id::key_of(file), fileid), root, &verifier);
        Ok(Self {
            volume,
            root: Root {
                mount: stat.mount,
                device: stat.device,
                is_mount,
                node: Arc::new(node),
            },
            resolver,
            verifier,
            process,
            device,
            changes: options.changes,
            pool: options.pool,
            open_files: options.open_files,
        })
    }
}

/// Error of a call of the kernel at an export.
fn kernel_error(path: &Path, what: &'static str) -> impl FnOnce(Errno) -> OpenError {
    move |errno| OpenError::Kernel {
        path: path.to_owned(),
        what,
        error: errno.into(),
    }
}

/// Opens the directory of an export as a place (O_PATH).
fn open_root(path: &Path) -> Result<OwnedFd, OpenError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, Mode::empty());
    opened.map_err(|errno| OpenError::Directory {
        path: path.to_owned(),
        error: errno.into(),
    })
}

/// Opens the handles of the kernel, or else the table of file locations in the state directory. Returns that directory, too,
/// if it is there.
fn open_handles(
    path: &Path,
    options: &LocalFsOptions,
    (root, proc): (BorrowedFd<'_>, &ProcFd),
    keeps_handles: bool,
) -> Result<(Resolver, Option<std::fs::File>), OpenError> {
    let state_dir = options.state_dir.as_deref();
    let kernel = match options.handles {
        Handles::Auto if !keeps_handles => Err(Errno::OPNOTSUPP),
        Handles::Auto => KernelHandles::open(root, proc).inspect_err(|error| {
            tracing::debug!(export = %path.display(), %error, "no handles of the kernel");
        }),
        Handles::Table => Err(Errno::OPNOTSUPP),
    };
    match kernel {
        Ok(handles) => Ok((Resolver::Kernel(handles), open_state(state_dir)?)),
        Err(_) => {
            let (table, state) = open_table(path, state_dir)?;
            Ok((Resolver::Table(table), state))
        }
    }
}

fn warn_of_reuse(path: &Path) {
    tracing::warn!(
        export = %path.display(),
        "this file system does not keep when a file was made: the handle of a removed file \
         may lead to a new one with its inode number or path"
    );
}

/// The state directory, if clients could meet it in the export of this root.
fn hidden_state(
    state: Option<std::fs::File>,
    by: IdentifiedBy,
    root: &Stat,
) -> Result<Option<Hidden>, Errno> {
    let Some(state) = state else {
        return Ok(None);
    };
    let stat = sys::stat(&state, by)?;
    let hidden = Hidden::new(state, stat, by);
    let is_met = by == IdentifiedBy::Birth || hidden.device() == root.device;
    Ok(is_met.then_some(hidden))
}

/// The rights of this process, and those that it can check and take on for callers.
///
/// # Errors
///
/// If the kernel or a lack of capabilities keeps it from serving callers.
fn this_process(path: &Path, root: BorrowedFd<'_>) -> Result<Process, OpenError> {
    syscalls::check_access(root, Access::EXISTS).map_err(kernel_error(
        path,
        "this kernel has no faccessat2 (Linux 5.8), which tells what callers may do",
    ))?;
    let acts_for_callers = acts_for_callers().map_err(kernel_error(
        path,
        "run by root, the server acts for its callers, for which it needs the capabilities \
         CAP_SETUID and CAP_SETGID",
    ))?;
    let umask = umask().map_err(|error| OpenError::Kernel {
        path: path.to_owned(),
        what: "/proc/self/status does not tell the umask",
        error,
    })?;
    Ok(Process {
        me: this_user(),
        umask,
        acts_for_callers,
    })
}

/// Returns the user who runs this process.
fn this_user() -> Identity {
    Identity {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: rustix::process::getgroups()
            .unwrap_or_default()
            .into_iter()
            .map(rustix::fs::Gid::as_raw)
            .collect(),
    }
}

/// Returns what identifies a file where the kernel has no handles.
fn identified_by(kind: FsKind, root: &Stat, uniform: bool) -> IdentifiedBy {
    #[cfg(test)]
    if let Some(by) = tests::AS_IF.get() {
        return by;
    }
    kind.identified_by(root, uniform)
}

/// Whether this process acts for its callers: it is root, and can act as others.
///
/// # Errors
///
/// If the process is root, other users exist, and it lacks the capabilities.
pub(super) fn acts_for_callers() -> Result<bool, Errno> {
    match rustix::process::geteuid().is_root() {
        true => acts_for_others(),
        false => Ok(false),
    }
}

/// Whether this process, which is root, acts as other users. In a user namespace with a single user
/// it does everything as itself.
///
/// # Errors
///
/// If other users exist and the process lacks the capabilities.
fn acts_for_others() -> Result<bool, Errno> {
    let other = FsUser {
        uid: 1,
        gid: 1,
        groups: &[1],
    };
    match ActingAs::enter(other) {
        Ok(_) => Ok(true),
        Err(_) if std::fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| is_alone(&map)) => {
            Ok(false)
        }
        Err(errno) => Err(errno),
    }
}

/// Whether the map of a user namespace (user_namespaces(7)) has a single user.
fn is_alone(map: &str) -> bool {
    let mut fields = map.split_whitespace();
    fields.nth(2) == Some("1") && fields.next().is_none()
}

/// Returns the umask of this process, from /proc: umask(2) would change it.
fn umask() -> io::Result<u32> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let found = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    found
        .and_then(|umask| u32::from_str_radix(umask.trim(), 8).ok())
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Checks that clients of an export reach no state of the server.
fn check_state(export: &Path, state_dir: &Path) -> Result<(), OpenError> {
    match exports_state(export, state_dir) {
        Ok(false) => Ok(()),
        Ok(true) => Err(OpenError::OwnState {
            path: export.into(),
        }),
        Err(error) => Err(OpenError::State {
            path: state_dir.into(),
            error,
        }),
    }
}

/// Opens the state directory, if there is one already.
fn open_state(state_dir: Option<&Path>) -> Result<Option<std::fs::File>, OpenError> {
    let Some(path) = state_dir else {
        return Ok(None);
    };
    match std::fs::File::open(path) {
        Ok(state) => Ok(Some(state)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(OpenError::State {
            path: path.into(),
            error,
        }),
    }
}

/// Opens the table of an export; returns it with the identity of the state directory.
fn open_table(
    path: &Path,
    state_dir: Option<&Path>,
) -> Result<(Table, Option<std::fs::File>), OpenError> {
    use std::io::Write;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::DirBuilderExt;
    let Some(state_dir) = state_dir else {
        let table = Table::open(None).map_err(|error| OpenError::Damaged {
            path: path.into(),
            error,
        })?;
        return Ok((table, None));
    };
    let key = siphasher::sip::SipHasher24::new().hash(path.as_os_str().as_bytes());
    let directory = state_dir.join("exports").join(format!("{key:016x}"));
    let opened = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&directory)
        .and_then(|()| private(&directory.join("path"))?.write_all(path.as_os_str().as_bytes()))
        .and_then(|()| std::fs::File::open(state_dir));
    let state = opened.map_err(|error| OpenError::State {
        path: directory.clone(),
        error,
    })?;
    let file = directory.join("handles.redb");
    // The store would create the file with mode 0666 less the umask, which is 0 in a server.
    private(&file).map_err(|error| OpenError::State {
        path: file.clone(),
        error,
    })?;
    match Table::open(Some(&file)) {
        Ok(table) => Ok((table, Some(state))),
        Err(redb::Error::DatabaseAlreadyOpen) => Err(OpenError::InUse { path: file }),
        // redb reports InvalidData for a file that is not a store.
        Err(redb::Error::Io(error)) if error.kind() != io::ErrorKind::InvalidData => {
            Err(OpenError::State { path: file, error })
        }
        Err(error) => Err(OpenError::Damaged { path: file, error }),
    }
}

/// Opens a file that no other user can read; creates it if it is missing.
fn private(path: &Path) -> io::Result<std::fs::File> {
    use std::os::unix::fs::OpenOptionsExt;
    std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .mode(0o600)
        .open(path)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        /// Identification of files, in place of the file system's own.
        pub(crate) static AS_IF: Cell<Option<IdentifiedBy>> = const { Cell::new(None) };
    }

    /// An opened directory on which no layer is built yet.
    pub(in crate::localfs) fn opened(path: &Path, handles: Handles) -> Opening {
        let options = LocalFsOptions::default()
            .with_changes(Changes::Cached)
            .with_handles(handles);
        Opening::new(path.to_owned(), options).unwrap()
    }

    #[test]
    fn missing_and_forbidden_openat2_are_told_from_a_closed_directory() {
        let text = |errno| cannot_enter("/d".into(), errno).to_string();
        assert!(text(Errno::NOSYS).contains("openat2, which keeps clients within it, is missing"));
        assert!(text(Errno::PERM).contains("openat2, which keeps clients within it, is forbidden"));
        let closed = text(Errno::ACCESS);
        assert!(
            closed.contains("ermission denied") && !closed.contains("openat2"),
            "{closed}"
        );
        assert!(text(Errno::MFILE).contains("it cannot be opened with openat2"));
    }

    #[test]
    fn user_namespace_with_one_user_has_nobody_to_act_for() {
        assert!(is_alone("         0       1000          1\n"));
        assert!(!is_alone("         0          0 4294967295\n"));
        assert!(!is_alone("0 1000 1\n1 100000 65536\n"));
        assert!(!is_alone(""));
    }
}
