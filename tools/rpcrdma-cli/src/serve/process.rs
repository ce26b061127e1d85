//! What this process is, before it has threads that serve.

use rustix::fs::Mode;

/// Sees to it that what callers make has the rights they ask for, and that acting for them takes as few
/// system calls as can be.
///
/// The umask would take rights from what they make. Files of the server itself are made with theirs
/// said, or in directories that are its own.
pub(super) fn prepare() {
    rustix::process::umask(Mode::empty());
    if rustix::process::geteuid().is_root() {
        // Root needs no group to use a file. Without groups of its own, a thread that acts for a caller in
        // no other group need not change them twice for each call. Whether it may act for callers at all
        // is seen when directories are opened.
        let _ = rustix::thread::set_thread_groups(&[]);
    }
}
