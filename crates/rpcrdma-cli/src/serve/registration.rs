//! Telling rpcbind where the programs of a server are.

use anyhow::Context;
use nfs_proto::{MOUNT_PROGRAM, MOUNT_V3, NFS_PROGRAM, NFS_V3};
use oncrpc::rpcbind::{NetId, Registration, Rpcbind};
use oncrpc::tcp;
use std::net::SocketAddr;
use std::time::Duration;

/// How long rpcbind may take to answer.
const DEADLINE: Duration = Duration::from_secs(5);

/// Registrations that were made and are to be removed at the end.
pub(crate) struct Registered {
    rpcbind: Rpcbind<tcp::Client>,
    entries: Vec<Registration>,
}

impl Registered {
    /// Registers NFS and MOUNT, over RDMA at `rdma` and MOUNT over TCP at `mount`.
    ///
    /// # Errors
    ///
    /// If rpcbind is not running or refuses; then nothing stays registered.
    pub(crate) async fn new(rdma: SocketAddr, mount: SocketAddr) -> anyhow::Result<Self> {
        let rpcbind = Rpcbind::local(DEADLINE)
            .await
            .context("cannot register with rpcbind: start it, or leave --rpcbind out")?;
        let mut registered = Self {
            rpcbind,
            entries: Vec::new(),
        };
        for entry in entries(rdma, mount) {
            match registered.rpcbind.set(&entry).await {
                Ok(()) => registered.entries.push(entry),
                Err(error) => {
                    registered.remove().await;
                    return Err(error.into());
                }
            }
        }
        Ok(registered)
    }

    /// Removes the registrations. What cannot be removed is logged: nobody can do more.
    pub(crate) async fn remove(self) {
        for entry in &self.entries {
            match self.rpcbind.unset(entry).await {
                Ok(true) => {}
                Ok(false) => tracing::warn!(?entry, "the registration was not ours any more"),
                Err(error) => tracing::warn!(?entry, %error, "cannot remove a registration"),
            }
        }
    }
}

/// What is registered: both programs over RDMA, MOUNT over TCP. NFS itself is not served over TCP.
fn entries(rdma: SocketAddr, mount: SocketAddr) -> [Registration; 3] {
    let (over_rdma, over_tcp) = (NetId::rdma(rdma.ip()), NetId::tcp(mount.ip()));
    let entry = |prog, vers, netid, addr| Registration {
        prog,
        vers,
        netid,
        addr,
    };
    [
        entry(NFS_PROGRAM, NFS_V3, over_rdma, rdma),
        entry(MOUNT_PROGRAM, MOUNT_V3, over_rdma, rdma),
        entry(MOUNT_PROGRAM, MOUNT_V3, over_tcp, mount),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn netids_follow_the_family_of_the_address() {
        let netids = |rdma: &str, mount: &str| {
            entries(rdma.parse().unwrap(), mount.parse().unwrap()).map(|entry| entry.netid.as_str())
        };
        assert_eq!(
            netids("127.0.0.1:1", "127.0.0.1:2"),
            ["rdma", "rdma", "tcp"]
        );
        assert_eq!(netids("[::1]:1", "[::1]:2"), ["rdma6", "rdma6", "tcp6"]);
    }
}
