//! Credentials of a client.

use oncrpc::auth::{MAX_GIDS, MAX_MACHINE_NAME};
use oncrpc::{AuthSys, Credential};

/// Returns the AUTH_SYS credential of the current process: effective user and groups, and the
/// machine's name.
///
/// AUTH_SYS carries at most 16 supplementary groups (RFC 5531 Appendix A): the first 16 are used.
pub fn current_user() -> Credential {
    let machine = rustix::system::uname();
    let name = machine.nodename().to_bytes();
    let groups = rustix::process::getgroups().unwrap_or_default();
    Credential::Sys(AuthSys {
        stamp: std::process::id(),
        machine_name: name
            .iter()
            .copied()
            .take(MAX_MACHINE_NAME as usize)
            .collect(),
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        gids: groups
            .iter()
            .map(|gid| gid.as_raw())
            .take(MAX_GIDS as usize)
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn present_user_is_named() {
        let Credential::Sys(sys) = current_user() else {
            panic!("AUTH_SYS is made");
        };
        assert_eq!(sys.uid, rustix::process::geteuid().as_raw());
        assert!(!sys.machine_name.is_empty());
    }
}
