//! The directory of persistent state: its default place, and that no client reaches it.

use nix::unistd::{Uid, User};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, openat, statx};
use std::io;
use std::path::{Path, PathBuf};

/// Directories above another that are looked at: more than a path can have.
const MAX_ABOVE: usize = 4096;

/// Directories in a state directory with others in them.
const EXPORTS: &str = "exports";

/// Returns whether one of two directories is within the other, or they are one: clients of the export could
/// read the key of file handles, or rename a directory above it, so that a later start finds another key.
/// Directories are known by device and inode, as a bind mount gives them other paths. If the state
/// directory is not there, the place for it counts.
///
/// # Errors
///
/// A directory cannot be looked at.
pub fn exports_state(export: &Path, state_dir: &Path) -> io::Result<bool> {
    let export_fd = open_directory(export)?;
    let exported = Directory::of(&export_fd)?;
    let is_there = |dir: &&Path| !dir.as_os_str().is_empty() && dir.is_dir();
    let place = state_dir.ancestors().find(is_there);
    let place = place.unwrap_or(Path::new("."));
    let place_fd = open_directory(place)?;
    let state = Directory::of(&place_fd)?;
    if is_within(place_fd, exported)? {
        return Ok(true);
    }
    if place != state_dir {
        return Ok(false);
    }
    // A bind mount of a directory of the state has nothing of it above.
    Ok(is_within(export_fd, state)? || has_directory(state_dir, exported)?)
}

/// A directory, whatever path leads to it.
#[derive(Clone, Copy)]
struct Directory {
    /// Device and inode.
    id: (u32, u32, u64),
    mount: u64,
}

impl Directory {
    fn of(fd: &OwnedFd) -> io::Result<Self> {
        let flags = StatxFlags::INO | StatxFlags::MNT_ID;
        let found = statx(fd, c"", AtFlags::EMPTY_PATH, flags)?;
        Ok(Self {
            id: (found.stx_dev_major, found.stx_dev_minor, found.stx_ino),
            mount: found.stx_mnt_id,
        })
    }
}

fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(CWD, path, flags, Mode::empty())?)
}

/// Whether a directory is another one, or below it.
fn is_within(mut dir: OwnedFd, other: Directory) -> io::Result<bool> {
    let mut at = Directory::of(&dir)?;
    for _ in 0..MAX_ABOVE {
        if at.id == other.id {
            return Ok(true);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        dir = openat(dir.as_fd(), c"..", flags, Mode::empty())?;
        let above = Directory::of(&dir)?;
        // Above the root is the root.
        if (above.id, above.mount) == (at.id, at.mount) {
            return Ok(false);
        }
        at = above;
    }
    Err(io::ErrorKind::InvalidInput.into())
}

/// Whether a directory of a state directory is this one.
fn has_directory(state_dir: &Path, wanted: Directory) -> io::Result<bool> {
    let exports = state_dir.join(EXPORTS);
    let below = match std::fs::read_dir(&exports) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        below => below?,
    };
    let is_wanted =
        |path: &Path| io::Result::Ok(Directory::of(&open_directory(path)?)?.id == wanted.id);
    if is_wanted(&exports)? {
        return Ok(true);
    }
    for entry in below {
        let path = entry?.path();
        if path.is_dir() && is_wanted(&path)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the default state directory of this user: `$XDG_STATE_HOME/rpcrdma`, or
/// `~/.local/state/rpcrdma` in the home directory that `$HOME` or else the user database names; `None`
/// without a home directory.
pub fn default_state_dir() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let home_of_user = || Some(User::from_uid(Uid::effective()).ok()??.dir);
    state_dir(variable, home_of_user)
}

fn state_dir(
    variable: impl Fn(&str) -> Option<PathBuf>,
    home_of_user: impl FnOnce() -> Option<PathBuf>,
) -> Option<PathBuf> {
    let absolute = |path: Option<PathBuf>| path.filter(|path| path.is_absolute());
    let home = || absolute(variable("HOME")).or_else(|| absolute(home_of_user()));
    absolute(variable("XDG_STATE_HOME"))
        .or_else(|| Some(home()?.join(".local/state")))
        .map(|state| state.join("rpcrdma"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with a state directory in it, and how the two are related to others.
    fn check(export: &Path, state: &Path, expected: bool) {
        let found = exports_state(export, state).unwrap();
        assert_eq!(found, expected, "{export:?} {state:?}");
    }

    #[test]
    fn state_within_an_export_is_found_whether_it_is_there_or_not() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        for path in ["srv", "var/state/exports/1", "other"] {
            std::fs::create_dir_all(at(path)).unwrap();
        }
        let state = at("var/state");
        for export in [
            "",
            "var",
            "var/state",
            "var/state/exports",
            "var/state/exports/1",
        ] {
            check(&at(export), &state, true);
        }
        check(&at("srv"), &state, false);
        check(&at("srv"), &at("srv/state/to/be"), true);
        check(&at("srv"), &at("other/state"), false);
        std::os::unix::fs::symlink(at("srv"), at("link")).unwrap();
        check(&at("srv"), &at("link/state"), true);
    }

    #[test]
    fn state_under_a_bind_mount_is_found() {
        use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
        #[expect(
            deprecated,
            reason = "the one that is not is unsafe, for what other namespaces do to memory"
        )]
        let alone = rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNS);
        if alone.is_err() {
            return eprintln!("skipped: only root has mounts of its own");
        }
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount_change("/", private).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        for path in ["srv", "var/lib/state/exports/1"] {
            std::fs::create_dir_all(at(path)).unwrap();
        }
        let state = at("var/lib/state");
        for bound in [
            "var",
            "var/lib",
            "var/lib/state",
            "var/lib/state/exports",
            "var/lib/state/exports/1",
        ] {
            mount_bind(at(bound), at("srv")).unwrap();
            check(&at("srv"), &state, true);
            rustix::mount::unmount(at("srv"), rustix::mount::UnmountFlags::DETACH).unwrap();
        }
        check(&at("srv"), &state, false);
    }

    #[test]
    fn state_is_in_the_home_that_the_environment_or_the_user_database_says() {
        let check = |variables: &[(&str, &str)], of_user: Option<&str>, expected: Option<&str>| {
            let variable = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, path)| PathBuf::from(path))
            };
            let found = state_dir(variable, || of_user.map(PathBuf::from));
            assert_eq!(found, expected.map(PathBuf::from), "{variables:?}");
        };
        let (state, home) = (("XDG_STATE_HOME", "/s"), ("HOME", "/h"));
        check(&[state, home], Some("/u"), Some("/s/rpcrdma"));
        check(&[home], Some("/u"), Some("/h/.local/state/rpcrdma"));
        check(&[], Some("/u"), Some("/u/.local/state/rpcrdma"));
        check(&[("HOME", "")], Some("/u"), Some("/u/.local/state/rpcrdma"));
        check(&[("XDG_STATE_HOME", "s")], None, None);
        check(&[], None, None);
    }
}
