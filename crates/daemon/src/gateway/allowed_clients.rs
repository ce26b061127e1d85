//! The clients of a pair: who may connect, and how often others tried to.

use nfs_server::AccessList;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{PoisonError, RwLock};

/// Clients that may connect to a pair, to NFS and to MOUNT.
pub(super) struct AllowedClients {
    list: RwLock<AccessList>,
    refused: AtomicU64,
}

impl AllowedClients {
    /// Those of a list.
    pub(super) fn new(list: AccessList) -> Self {
        Self {
            list: RwLock::new(list),
            refused: AtomicU64::new(0),
        }
    }

    /// Those of another list from now on.
    pub(super) fn replace(&self, list: AccessList) {
        *self.list.write().unwrap_or_else(PoisonError::into_inner) = list;
    }

    /// Whether an address may connect now.
    pub(super) fn allows(&self, addr: IpAddr) -> bool {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        list.allows(addr)
    }

    /// Whether a connection from an address is taken in. Counts it if not.
    pub(super) fn admits(&self, addr: IpAddr) -> bool {
        let allowed = self.allows(addr);
        if !allowed {
            self.refused.fetch_add(1, Relaxed);
        }
        allowed
    }

    /// Connections that were refused so far.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfs_server::Network;

    #[test]
    fn refusals_are_counted_by_the_list_of_that_time() {
        let list = |network: &str| AccessList::new([network.parse::<Network>().unwrap()]);
        let clients = AllowedClients::new(list("192.0.2.0/24"));
        let (one, other) = ([192, 0, 2, 1].into(), [198, 51, 100, 1].into());
        assert!(clients.admits(one) && !clients.admits(other));
        clients.replace(list("198.51.100.0/24"));
        assert!(!clients.admits(one) && clients.admits(other));
        assert_eq!(clients.refused(), 2);
    }
}
