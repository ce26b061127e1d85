//! File systems that are mounted below exports (proc_pid_mountinfo(5)).

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The mounts of this process.
const MOUNTS: &str = "/proc/self/mountinfo";

/// How long to wait after a look at the mounts before the next one: changes often come together.
const SETTLE: Duration = Duration::from_millis(100);

/// How often it is looked whether a mount is somewhere else: the kernel does not tell when a directory
/// above it is moved.
const LOOK_FOR_MOVES: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// Mounts at one moment.
#[derive(PartialEq, Eq)]
pub(super) struct MountTable(Vec<u8>);

impl MountTable {
    /// The mounts of now.
    ///
    /// # Errors
    ///
    /// If the system does not tell.
    pub(super) fn read() -> io::Result<Self> {
        std::fs::read(MOUNTS).map(Self)
    }

    /// The ids of all mounts.
    pub(super) fn ids(&self) -> HashSet<u64> {
        lines(&self.0).filter_map(id).collect()
    }
}

/// The mount points below a directory that can be reached, each before those below it.
pub(super) fn below(mounts: &MountTable, dir: &Path) -> Vec<PathBuf> {
    let mounts = points(&mounts.0, dir);
    let is_there = |(path, id): &(PathBuf, u64)| {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        // What is mounted may be covered by something that was mounted above it.
        statx(CWD, path, flags, StatxFlags::MNT_ID).is_ok_and(|about| about.stx_mnt_id == *id)
    };
    let reached = mounts.into_iter().filter(is_there);
    reached.map(|(path, _)| path).collect()
}

fn lines(mountinfo: &[u8]) -> impl Iterator<Item = &[u8]> {
    mountinfo.split(|&byte| byte == b'\n')
}

fn id(line: &[u8]) -> Option<u64> {
    let id = line.split(|&byte| byte == b' ').next()?;
    std::str::from_utf8(id).ok()?.parse().ok()
}

/// The mount points below a directory, with the number of the mount on top.
fn points(mountinfo: &[u8], dir: &Path) -> BTreeMap<PathBuf, u64> {
    let mut points = BTreeMap::new();
    for line in lines(mountinfo) {
        let mut fields = line.split(|&byte| byte == b' ');
        let id = id(line);
        let path = fields.nth(4).map(|path| PathBuf::from(unescaped(path)));
        let kind = line
            .windows(3)
            .position(|part| part == b" - ")
            .map(|at| &line[at + 3..]);
        // What automounts is no file system; looking into it would have it mount one.
        let is_automount = kind.is_some_and(|kind| kind.starts_with(b"autofs "));
        if let (Some(id), Some(path), false) = (id, path, is_automount)
            && path != dir
            && path.starts_with(dir)
        {
            points.insert(path, id);
        }
    }
    points
}

/// A field, in which space, tab, newline and backslash are written as octal numbers.
fn unescaped(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        let octal = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok();
        match (first, tail.get(..3).and_then(octal)) {
            (b'\\', Some(byte)) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    OsString::from_vec(bytes)
}

/// Tells when something is mounted or unmounted, or is somewhere else.
pub(super) struct MountWatch {
    changed: Arc<Notify>,
    /// No change is told of before this.
    settled: Mutex<Instant>,
    /// The thread ends when this is closed.
    _running: UnixStream,
}

impl MountWatch {
    /// Watches from now on, on a thread of its own.
    ///
    /// # Errors
    ///
    /// If the system does not let us.
    pub(super) fn new() -> io::Result<Self> {
        let (running, end) = UnixStream::pair()?;
        let mounts = File::open(MOUNTS)?;
        let table = MountTable::read()?;
        let changed = Arc::new(Notify::new());
        // Who looked before this may have missed something.
        changed.notify_one();
        let notify = Arc::clone(&changed);
        std::thread::Builder::new()
            .name("rpcrdma-mounts".to_owned())
            .spawn(move || {
                if let Err(error) = watch(&mounts, table, &end, &notify) {
                    tracing::warn!(%error, "cannot watch what is mounted any more");
                }
            })?;
        Ok(Self {
            changed,
            settled: Mutex::new(Instant::now()),
            _running: running,
        })
    }

    /// Waits for a change.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
        let settled = *self.settled();
        tokio::time::sleep_until(settled).await;
        *self.settled() = Instant::now() + SETTLE;
    }

    fn settled(&self) -> MutexGuard<'_, Instant> {
        self.settled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Notifies of changes until the other side of `end` is closed.
fn watch(
    mounts: &File,
    mut table: MountTable,
    end: &UnixStream,
    changed: &Notify,
) -> io::Result<()> {
    loop {
        let mut fds = [
            PollFd::new(mounts, PollFlags::PRI),
            PollFd::new(end, PollFlags::IN),
        ];
        match poll(&mut fds, Some(&LOOK_FOR_MOVES)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if !fds[1].revents().is_empty() {
            return Ok(());
        }
        let now = MountTable::read()?;
        if !fds[0].revents().is_empty() || now != table {
            table = now;
            changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_those_below_and_the_topmost_at_each() {
        let mountinfo = br"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 8:2 / /srv rw - ext4 /dev/sda2 rw
41 40 8:3 / /srv/a\040b\134c rw - xfs /dev/sda3 rw
42 41 0:30 / /srv/a\040b\134c/deep rw - tmpfs none rw
43 40 8:4 / /srv/twice rw - ext4 /dev/sda4 rw
44 43 8:5 / /srv/twice rw shared:7 master:8 - ext4 /dev/sda5 rw
45 22 8:6 / /srvother rw - ext4 /dev/sda6 rw
46 40 0:31 / /srv/auto rw - autofs systemd-1 rw

not a line";
        let points: Vec<(PathBuf, u64)> =
            points(mountinfo, Path::new("/srv")).into_iter().collect();
        assert_eq!(
            points,
            [
                ("/srv/a b\\c".into(), 41),
                ("/srv/a b\\c/deep".into(), 42),
                ("/srv/twice".into(), 44),
            ]
        );
    }

    #[test]
    fn mounts_of_this_machine_are_found() {
        let table = MountTable::read().unwrap();
        let mounts = below(&table, Path::new("/"));
        assert!(mounts.contains(&"/proc".into()), "{mounts:?}");
        assert!(table.ids().len() >= mounts.len());
        assert!(!mounts.contains(&"/".into()));
    }

    /// Something mounted for a test.
    struct Mounted(PathBuf);

    impl Drop for Mounted {
        fn drop(&mut self) {
            rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH).unwrap();
        }
    }

    #[tokio::test]
    async fn mount_that_is_moved_with_the_directory_above_it_is_told() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("not run: it needs root");
            return;
        }
        let around = tempfile::tempdir().unwrap();
        let [before, after] = ["before", "after"].map(|name| around.path().join(name));
        std::fs::create_dir_all(before.join("mnt")).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("none", before.join("mnt"), "tmpfs", flags, None).unwrap();
        let _mounted = Mounted(after.join("mnt"));
        let watch = MountWatch::new().unwrap();
        std::fs::rename(&before, &after).unwrap();
        let told = async {
            loop {
                watch.changed().await;
                let table = MountTable::read().unwrap();
                if below(&table, &after) == [after.join("mnt")] {
                    return;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(30), told)
            .await
            .expect("it is looked for every second");
    }
}
