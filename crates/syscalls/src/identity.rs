//! File system identity of a thread.
//!
//! The kernel checks an access to a file by the *file system identity* of the thread that asks: its
//! fsuid, fsgid, supplementary groups and effective capabilities (setfsuid(2), credentials(7)). A
//! server that runs as root changes them for one call and restores them, so that the kernel applies
//! access control lists, quotas, reserved blocks and set-group-id rules to the caller.

use rustix::io::Errno;
use rustix::process::{Gid, getgroups};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, capabilities, capabilities_secure_bits,
    set_capabilities, set_thread_groups,
};
use std::cell::{Cell, OnceCell};
use std::rc::Rc;

/// Capabilities that a thread drops while it acts for a user other than root: those that bypass
/// permission checks (setfsuid(2) drops them), and `CAP_SYS_RESOURCE`, which bypasses quotas and
/// reserved blocks.
const PRIVILEGES: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::LINUX_IMMUTABLE)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::MAC_OVERRIDE)
    .union(CapabilitySet::SYS_RESOURCE);

/// Largest number of supplementary groups (`NGROUPS_MAX`).
pub const MAX_GROUPS: usize = 65_536;

/// User and groups of a file system identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsUser<'a> {
    /// User id.
    pub uid: u32,
    /// Group id, the group of new files.
    pub gid: u32,
    /// Supplementary groups, in any order.
    pub groups: &'a [u32],
}

/// The own identity of a thread.
#[derive(Debug)]
struct Own {
    uid: u32,
    gid: u32,
    groups: Vec<Gid>,
    capabilities: CapabilitySets,
    /// Whether a change of the user drops and restores all [`PRIVILEGES`] of the thread, so that
    /// the capabilities need not be set separately (capabilities(7), "Effect of user ID changes").
    follows: bool,
}

impl Own {
    fn find() -> Result<Self, Errno> {
        let uid = fs_uid();
        let capabilities = capabilities(None)?;
        let of_files = PRIVILEGES.difference(CapabilitySet::SYS_RESOURCE);
        let follows = uid == 0
            && !capabilities_secure_bits()?.contains(CapabilitiesSecureBits::NO_SETUID_FIXUP)
            && !capabilities.effective.contains(CapabilitySet::SYS_RESOURCE)
            && capabilities.effective & of_files == capabilities.permitted & of_files;
        Ok(Self {
            uid,
            gid: fs_gid(),
            groups: getgroups()?,
            capabilities,
            follows,
        })
    }
}

thread_local! {
    static OWN: OnceCell<Rc<Own>> = const { OnceCell::new() };
    static ACTING: Cell<bool> = const { Cell::new(false) };
}

/// Guard that gives this thread the file system identity of another user until it is dropped.
///
/// Dropping the guard restores the thread's own identity, also in a panic. If the kernel refuses
/// that, the process ends: the thread must not continue as another user. No thread must be started
/// meanwhile: it would keep the user's identity forever.
///
/// The guard is not `Send`, so that a future that holds one while it waits cannot be moved between
/// threads:
///
/// ```compile_fail,E0277
/// fn spawn(_: impl Future<Output = ()> + Send) {}
/// let user = syscalls::FsUser { uid: 1000, gid: 1000, groups: &[] };
/// spawn(async move {
///     let acting = syscalls::ActingAs::enter(user);
///     std::future::ready(()).await;
///     drop(acting);
/// });
/// ```
///
/// A thread returns to the identity that it had when it first acted for a user. No other code in
/// the process may change the credentials of the thread after that.
#[derive(Debug)]
#[must_use = "the identity ends when this is dropped"]
pub struct ActingAs {
    own: Rc<Own>,
    changed: Changed,
}

/// Identity that dropping the guard restores.
#[derive(Clone, Copy, Debug, Default)]
struct Changed {
    groups: bool,
    gid: bool,
    capabilities: bool,
    uid: bool,
}

impl ActingAs {
    /// Gives this thread the identity of `user`.
    ///
    /// For root only the group is set: root keeps the capabilities of the process, so that other
    /// groups do not matter. An identity that the thread has already costs no system call.
    ///
    /// # Errors
    ///
    /// `PERM`: the process lacks `CAP_SETUID` or `CAP_SETGID`. `INVAL`: a user or group does not
    /// exist in the user namespace of the process, or there are more than [`MAX_GROUPS`]. The
    /// thread then keeps its identity.
    ///
    /// # Panics
    ///
    /// If this thread already acts for a user.
    pub fn enter(user: FsUser<'_>) -> Result<Self, Errno> {
        let own = own()?;
        assert!(
            !ACTING.replace(true),
            "a thread acts for one user at a time"
        );
        // From here on, dropping the guard undoes the changes made so far.
        let mut acting = Self {
            own,
            changed: Changed::default(),
        };
        acting.change(user)?;
        Ok(acting)
    }

    fn change(&mut self, user: FsUser<'_>) -> Result<(), Errno> {
        let own = &self.own;
        let root = user.uid == 0;
        if !root && !is_same(user.groups, &own.groups) {
            if user.groups.len() > MAX_GROUPS {
                return Err(Errno::INVAL);
            }
            set_groups(user.groups)?;
            self.changed.groups = true;
        }
        if user.gid != own.gid {
            self.changed.gid = true;
            set_fs_gid(user.gid)?;
        }
        if user.uid != own.uid {
            self.changed.uid = true;
            set_fs_uid(user.uid)?;
        }
        // Set after the user: changing the user may have dropped some.
        let effective = own.capabilities.effective;
        if !root && !own.follows && effective.intersects(PRIVILEGES) {
            self.changed.capabilities = true;
            let sets = CapabilitySets {
                effective: effective - PRIVILEGES,
                ..own.capabilities
            };
            set_capabilities(None, sets)?;
        }
        Ok(())
    }

    fn restore(&self) -> Result<(), Errno> {
        let (own, changed) = (&self.own, self.changed);
        if changed.uid {
            set_fs_uid(own.uid)?;
        }
        if changed.gid {
            set_fs_gid(own.gid)?;
        }
        if changed.groups {
            set_thread_groups(&own.groups)?;
        }
        // Set after the user: changing the user may have restored some.
        if changed.capabilities || changed.uid && !own.follows {
            set_capabilities(None, own.capabilities)?;
        }
        Ok(())
    }
}

impl Drop for ActingAs {
    fn drop(&mut self) {
        if self.restore().is_err() {
            // The thread would continue with the rights of another user.
            std::process::abort();
        }
        ACTING.set(false);
    }
}

/// Returns the identity that this thread had at the first call.
fn own() -> Result<Rc<Own>, Errno> {
    OWN.with(|own| {
        if let Some(own) = own.get() {
            return Ok(Rc::clone(own));
        }
        let found = Rc::new(Own::find()?);
        Ok(Rc::clone(own.get_or_init(|| found)))
    })
}

fn is_same(groups: &[u32], own: &[Gid]) -> bool {
    groups.len() == own.len()
        && groups
            .iter()
            .zip(own)
            .all(|(group, own)| *group == own.as_raw())
}

fn set_groups(groups: &[u32]) -> Result<(), Errno> {
    // As many groups as AUTH_SYS allows need no allocation.
    let mut few = [Gid::ROOT; 16];
    if let Some(few) = few.get_mut(..groups.len()) {
        for (to, group) in few.iter_mut().zip(groups) {
            *to = gid(*group)?;
        }
        return set_thread_groups(few);
    }
    let many: Result<Vec<Gid>, Errno> = groups.iter().map(|group| gid(*group)).collect();
    set_thread_groups(&many?)
}

fn gid(group: u32) -> Result<Gid, Errno> {
    // -1 is not a valid group.
    match group {
        u32::MAX => Err(Errno::INVAL),
        group => Ok(Gid::from_raw(group)),
    }
}

/// An invalid id for setfsuid(2) and setfsgid(2). Both report no error and return the previous id;
/// a call with an invalid one changes nothing and thus returns the current id.
const NOBODY: u32 = u32::MAX;

fn fs_uid() -> u32 {
    // SAFETY: setfsuid(2) takes a number and touches no memory of the process. It applies to the
    // calling thread only, in glibc and musl too.
    #[allow(unsafe_code, reason = "rustix has no wrapper for it")]
    let now = unsafe { libc::setfsuid(NOBODY) };
    now.cast_unsigned()
}

fn fs_gid() -> u32 {
    // SAFETY: as for `fs_uid`.
    #[allow(unsafe_code, reason = "rustix has no wrapper for it")]
    let now = unsafe { libc::setfsgid(NOBODY) };
    now.cast_unsigned()
}

fn set_fs_uid(uid: u32) -> Result<(), Errno> {
    // SAFETY: as for `fs_uid`.
    #[allow(unsafe_code, reason = "rustix has no wrapper for it")]
    let _before = unsafe { libc::setfsuid(uid) };
    is_now(uid, fs_uid())
}

fn set_fs_gid(gid: u32) -> Result<(), Errno> {
    // SAFETY: as for `fs_uid`.
    #[allow(unsafe_code, reason = "rustix has no wrapper for it")]
    let _before = unsafe { libc::setfsgid(gid) };
    is_now(gid, fs_gid())
}

fn is_now(wanted: u32, now: u32) -> Result<(), Errno> {
    match wanted {
        NOBODY => Err(Errno::INVAL),
        wanted if wanted == now => Ok(()),
        _ => Err(Errno::PERM),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::thread;

    /// Lines of the kernel's status of this thread.
    fn status() -> Vec<String> {
        let status = fs::read_to_string("/proc/thread-self/status").expect("there is /proc");
        let lines = status.lines().filter(|line| {
            ["Uid:", "Gid:", "Groups:", "Cap"]
                .iter()
                .any(|name| line.starts_with(name))
        });
        lines.map(str::to_owned).collect()
    }

    fn line(name: &str) -> String {
        let found = status().into_iter().find(|line| line.starts_with(name));
        found.expect("the kernel tells it")
    }

    fn user(groups: &[u32]) -> FsUser<'_> {
        FsUser {
            uid: 1001,
            gid: 2002,
            groups,
        }
    }

    /// Whether this process may act for others; without that, there is nothing to be seen here.
    fn may_act() -> bool {
        let may = ActingAs::enter(user(&[])).is_ok();
        if !may {
            eprintln!("not run by root: skipped");
        }
        may
    }

    #[test]
    fn thread_has_the_identity_of_the_user_and_then_its_own() {
        if !may_act() {
            return;
        }
        let before = status();
        let acting = ActingAs::enter(user(&[7, 8])).unwrap();
        assert!(line("Uid:").ends_with("\t1001"));
        assert!(line("Gid:").ends_with("\t2002"));
        assert_eq!(line("Groups:").trim_end(), "Groups:\t7 8");
        let effective = capabilities(None).unwrap().effective;
        assert!(!effective.intersects(PRIVILEGES));
        drop(acting);
        assert_eq!(status(), before);
    }

    #[test]
    fn panic_gives_the_thread_its_own_identity_back() {
        if !may_act() {
            return;
        }
        let before = status();
        let panicked = std::panic::catch_unwind(|| {
            let _acting = ActingAs::enter(user(&[1, 2, 3])).unwrap();
            panic!("while it acts for a user");
        });
        assert!(panicked.is_err());
        assert_eq!(status(), before);
        // And it can act for somebody again.
        drop(ActingAs::enter(user(&[])).unwrap());
    }

    #[test]
    fn other_threads_stay_what_they_are() {
        if !may_act() {
            return;
        }
        let before = thread::scope(|scope| scope.spawn(status).join().unwrap());
        let (entered, ready) = std::sync::mpsc::channel();
        let (done, wait) = std::sync::mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                let _acting = ActingAs::enter(user(&[9])).unwrap();
                entered.send(()).unwrap();
                wait.recv().unwrap();
            });
            ready.recv().unwrap();
            assert_eq!(status(), before);
            done.send(()).unwrap();
        });
    }

    #[test]
    fn user_that_does_not_exist_changes_nothing() {
        if !may_act() {
            return;
        }
        let before = status();
        for (uid, gid, groups) in [
            (u32::MAX, 1, &[][..]),
            (1, u32::MAX, &[]),
            (1, 1, &[u32::MAX]),
        ] {
            let entered = ActingAs::enter(FsUser { uid, gid, groups });
            assert_eq!(entered.err(), Some(Errno::INVAL));
            assert_eq!(status(), before);
        }
        let many = vec![5; MAX_GROUPS + 1];
        assert_eq!(ActingAs::enter(user(&many)).err(), Some(Errno::INVAL));
        assert_eq!(status(), before);
    }

    #[test]
    fn root_keeps_the_capabilities_of_the_process() {
        if !may_act() {
            return;
        }
        let own = capabilities(None).unwrap();
        let root = FsUser {
            uid: 0,
            gid: 33,
            groups: &[],
        };
        let acting = ActingAs::enter(root).unwrap();
        assert_eq!(capabilities(None).unwrap(), own);
        assert_eq!(fs_gid(), 33);
        drop(acting);
        assert_eq!(fs_gid(), 0);
    }

    #[test]
    #[should_panic(expected = "one user at a time")]
    fn thread_acts_for_one_user_at_a_time() {
        let groups: Vec<u32> = getgroups().unwrap().into_iter().map(Gid::as_raw).collect();
        let itself = FsUser {
            uid: fs_uid(),
            gid: fs_gid(),
            groups: &groups,
        };
        let _first = ActingAs::enter(itself).unwrap();
        let _second = ActingAs::enter(itself);
    }

    #[test]
    fn files_are_made_and_refused_as_for_the_user() {
        if !may_act() {
            return;
        }
        let dir = std::env::temp_dir().join(format!("syscalls-identity-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, PermissionsExt::from_mode(0o777)).unwrap();
        let (secret, own) = (dir.join("secret"), dir.join("own"));
        fs::write(&secret, b"x").unwrap();
        fs::set_permissions(&secret, PermissionsExt::from_mode(0o040)).unwrap();
        std::os::unix::fs::chown(&secret, Some(0), Some(77)).unwrap();
        {
            let _acting = ActingAs::enter(user(&[])).unwrap();
            assert!(fs::read(&secret).is_err());
            fs::write(&own, b"x").unwrap();
        }
        {
            let _acting = ActingAs::enter(user(&[77])).unwrap();
            assert_eq!(fs::read(&secret).unwrap(), b"x");
        }
        let made = fs::metadata(&own).unwrap();
        assert_eq!((made.uid(), made.gid()), (1001, 2002));
        assert!(fs::read(&secret).is_ok());
        fs::remove_dir_all(&dir).unwrap();
    }
}
