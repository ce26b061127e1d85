//! How the descriptors of the process are shared among pairs.

use super::plan::PairPlan;
use super::urls::Scheme;
use crate::capacity::{OF_DEVICE, OF_SOFTWARE};
use gateway::CALLS_WITHOUT_PORT;
use oncrpc_tcp::Limits;

/// Descriptors of the process itself: standard streams, the control socket, metrics, an event queue for each thread.
const OF_PROCESS: usize = 24;

/// Descriptors of a pair without clients: its listeners and its event queues, and calls of MOUNT that come over
/// connections of NFS.
const OF_PAIR: usize = 12 + CALLS_WITHOUT_PORT;

/// Descriptors of a client of MOUNT: its connection, and one to the server while it has a call.
const OF_MOUNT_CLIENT: usize = 2;

/// Divisor for the descriptors that MOUNT of all pairs has together, if they are few.
const MOUNT_PART: usize = 4;

/// Divisor for the descriptors that clients have which are being refused, if they are few.
const REFUSALS_PART: usize = 32;

/// Clients over software iWARP that one listener refuses at a time, if there are descriptors for them.
const MOST_REFUSALS: usize = 64;

/// The descriptors of the process, and the pairs that share them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shares {
    /// Descriptors that this process may have.
    pub(super) descriptors: usize,
    pub(super) pairs: usize,
    /// Pairs that pass MOUNT on.
    pub(super) with_mount: usize,
    /// Descriptors that a client of every pair takes together.
    pub(super) of_clients: usize,
}

impl Shares {
    /// Descriptors left for clients: a quarter of all in any case.
    fn left(&self) -> usize {
        let taken = OF_PROCESS
            + self
                .pairs
                .saturating_mul(OF_PAIR + refusals(self.descriptors));
        let left = self.descriptors.saturating_sub(taken);
        left.max(self.descriptors / 4)
    }

    /// Clients that MOUNT of each pair may have.
    pub(super) fn mount_connections(&self) -> usize {
        let of_pair = self.left() / MOUNT_PART / self.with_mount.max(1);
        (of_pair / OF_MOUNT_CLIENT).clamp(1, Limits::default().connections)
    }

    /// Descriptors that are enough for so many client connections of each pair.
    pub(super) fn needed(&self, connections: usize) -> usize {
        let of_mount = self.with_mount * Limits::default().connections * OF_MOUNT_CLIENT;
        let of_pairs = self.pairs * (OF_PAIR + MOST_REFUSALS);
        OF_PROCESS + of_pairs + of_mount + connections.saturating_mul(self.of_clients)
    }

    /// Client connections of each pair.
    pub(super) fn connections(&self) -> usize {
        let of_mount = self.with_mount * self.mount_connections() * OF_MOUNT_CLIENT;
        let left = self.left().saturating_sub(of_mount);
        (left / self.of_clients.max(1)).max(1)
    }
}

/// Clients over software iWARP that one listener refuses at a time. Each has a descriptor until it has read that.
pub(super) fn refusals(descriptors: usize) -> usize {
    (descriptors / REFUSALS_PART).clamp(1, MOST_REFUSALS)
}

/// Descriptors of a client connection and the one to the server.
pub(super) fn of_client(plan: &PairPlan) -> usize {
    let has_device = !plan.provider.device_names().is_empty();
    let of_side = |scheme| match scheme {
        Scheme::Rdma if has_device => OF_DEVICE,
        Scheme::Rdma | Scheme::Tcp => OF_SOFTWARE,
    };
    of_side(plan.listen.scheme) + of_side(plan.upstream.scheme)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(descriptors: usize, pairs: usize, with_mount: usize, of_clients: usize) -> Shares {
        Shares {
            descriptors,
            pairs,
            with_mount,
            of_clients,
        }
    }

    #[test]
    fn pairs_together_have_no_more_connections_than_there_are_descriptors() {
        for (descriptors, pairs, with_mount) in
            [(256, 2, 1), (1024, 1, 0), (1024, 3, 3), (65_536, 50, 50)]
        {
            let shares = of(descriptors, pairs, with_mount, 2 * pairs);
            let of_mount = with_mount * shares.mount_connections() * OF_MOUNT_CLIENT;
            let own = OF_PROCESS + pairs * (OF_PAIR + refusals(descriptors));
            let all = own + of_mount + shares.connections() * 2 * pairs;
            assert!(all <= descriptors, "{all} of {descriptors}");
            assert!(
                all + 2 * pairs + 4 * with_mount > descriptors,
                "{all} of {descriptors}"
            );
        }
    }

    #[test]
    fn few_descriptors_are_shared_and_not_reserved() {
        assert_eq!(of(64, 2, 1, 4).connections(), 3);
        assert!(of(256, 2, 1, 4).connections() >= 30);
        let usual = of(1024, 1, 1, 2);
        assert_eq!(usual.mount_connections(), 119);
        assert_eq!(of(16, 4, 4, 8).connections(), 1, "one is tried in any case");
        let many = of(usize::MAX, 1, 1, 2);
        assert_eq!(many.mount_connections(), Limits::default().connections);
    }
}
