//! Rights of the process, before it has threads that serve.

use rustix::fs::Mode;

/// Clears the umask, so that files get the rights that callers ask for, and the groups of root, so that acting for callers
/// takes fewer system calls.
///
/// The umask would take rights from what they make. Files of the server itself are made with theirs
/// said, or in directories that are its own.
pub fn prepare() {
    rustix::process::umask(Mode::empty());
    if rustix::process::geteuid().is_root() {
        // Root needs no group to use a file. Without groups of its own, a thread that acts for a caller in
        // no other group need not change them twice for each call. Whether it may act for callers at all
        // is seen when directories are opened.
        let _ = rustix::thread::set_thread_groups(&[]);
    }
}
