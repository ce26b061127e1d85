//! Which addresses the server takes in over RDMA.

use crate::guard;
use nfs_server::Exports;
use std::net::SocketAddr;

/// Checks whether a client may connect. With `leaves_local`, connections of this machine are left to
/// another provider, over which their users can be told.
///
/// # Errors
///
/// Why it is refused.
pub(super) fn check(
    exports: &Exports,
    leaves_local: bool,
    addr: SocketAddr,
) -> Result<(), &'static str> {
    if !exports.admits(addr.ip()) {
        return Err("no export is for this address");
    }
    match leaves_local {
        true => guard::check_not_local(addr),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfs_server::{AccessList, ExportOptions, HandleKey, MemFs};
    use std::sync::Arc;

    fn is_allowed(allowed: &str, leaves_local: bool) -> bool {
        let allow = AccessList::new([allowed.parse().unwrap()]);
        let options = ExportOptions::default().with_allow(allow);
        let exports = Exports::new(HandleKey::random().unwrap())
            .with("/x", Arc::new(MemFs::new(1 << 20)), options)
            .unwrap();
        check(&exports, leaves_local, "127.0.0.1:700".parse().unwrap()).is_ok()
    }

    #[test]
    fn connections_of_this_machine_can_be_left_to_another_provider() {
        assert!(is_allowed("127.0.0.0/8", false));
        assert!(!is_allowed("127.0.0.0/8", true));
        assert!(!is_allowed("192.0.2.0/24", false));
    }
}
