//! The limit of locked memory, which RDMA devices need.

use printing::units;
use rpcrdma::ServerConfig;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities};

/// Raises the limit of locked memory as far as this process may. Returns a warning if that is not enough for all
/// connections.
pub(crate) fn warning(config: &ServerConfig) -> Option<String> {
    let may_lock_all =
        capabilities(None).is_ok_and(|all| all.effective.contains(CapabilitySet::IPC_LOCK));
    if may_lock_all {
        return None;
    }
    let limit = getrlimit(Resource::Memlock);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if let Err(error) = setrlimit(Resource::Memlock, raised) {
        tracing::debug!(%error, ?limit, "cannot raise the limit of locked memory");
    }
    let of_one = u64::from(config.credits) * config.receive_size.bytes() as u64;
    too_little(
        getrlimit(Resource::Memlock).current?,
        of_one,
        config.max_connections as u64,
    )
}

/// The warning for a limit, if so many connections have Receives of so many bytes each.
fn too_little(limit: u64, of_one: u64, connections: u64) -> Option<String> {
    let enough_for = limit / of_one.max(1);
    (enough_for < connections).then(|| {
        format!(
            "the limit of locked memory, {}, is enough for about {enough_for} connections with all their credits over RDMA devices: raise it \
             (`ulimit -l unlimited`, LimitMEMLOCK=infinity of a service), or let each take less with --credits",
            units::size(limit)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_is_reported_if_it_is_not_enough_for_all_connections() {
        assert_eq!(too_little(8 << 20, 1 << 20, 8), None);
        let said = too_little(8 << 20, 1 << 20, 9).unwrap();
        assert!(
            said.contains("8 MiB, is enough for about 8 connections "),
            "{said}"
        );
        assert!(said.contains("LimitMEMLOCK=infinity"), "{said}");
    }
}
