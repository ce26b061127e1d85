//! Idle connections that give way to other clients, when the upstream takes no more connections of this gateway.
//!
//! Each client has an upstream connection of its own, and an upstream counts all of them for the gateway's address. What the
//! upstream would divide by the addresses of clients, the gateway has to: by the rule of [`rpc_serving::admission`], connections
//! move from addresses with many to those with few, and never back.

use crate::relay::Relay;
use crate::state::GatewayState;
use crate::transport_kind::TransportKind;
use oncrpc::Cause;
use rpc_serving::by_address::ByAddress;
use std::cmp::Reverse;
use std::error::Error;
use std::sync::Arc;
use tracing::warn;
use verbs::{RejectReason, SetupError};

/// Connections that an address has more than the one that is to have another, before one of them gives way.
const MORE: usize = 2;

/// Whether the upstream is there and takes no connection.
pub(crate) fn is_refused(error: &Cause) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error.error());
    while let Some(error) = cause {
        match error.downcast_ref() {
            Some(SetupError::Rejected(_)) => return true,
            Some(SetupError::Refused(why)) => return why.kind() == RejectReason::NoResources,
            _ => cause = error.source(),
        }
    }
    false
}

impl GatewayState {
    /// Closes an idle connection of the address with most, if that has more than the address of this one. Returns whether
    /// there was one, whose place at the upstream is free in a moment and [given](Relay::is_given_place) to this one.
    pub(crate) fn make_place_for(&self, to: &Relay) -> bool {
        // First of all, so that others of its address count it.
        to.set_given_place(true);
        let gave_way = self.give_place(to);
        to.set_given_place(gave_way);
        gave_way
    }

    /// Notes that a connection is up. One to which no other has given way may have taken a place that was freed for another
    /// client, which would wait for it in vain: that may be given one once more.
    pub(crate) fn note_place_of(&self, relay: &Relay) {
        if relay.is_given_place() || self.upstream_kind != TransportKind::Rdma {
            return;
        }
        let relays = self.all_relays();
        if let Some(waits) = relays.iter().find(|relay| relay.is_given_place()) {
            waits.set_given_place(false);
        }
    }

    fn give_place(&self, to: &Relay) -> bool {
        let relays = self.all_relays();
        let mut connected = ByAddress::<usize>::default();
        // Those that wait for a place count too, or each of them would take one of an address that has no more by then.
        let has_place = |relay: &&Arc<Relay>| relay.is_up() || relay.is_given_place();
        for relay in relays.iter().filter(has_place) {
            connected.change(relay.caller().group, |count| *count += 1);
        }
        let of = |group| connected.get(group).copied().unwrap_or_default();
        // It counts itself.
        let least = of(to.caller().group).saturating_sub(1) + MORE;
        let mut idle: Vec<_> = relays
            .iter()
            .map(|relay| (of(relay.caller().group), relay))
            .filter(|&(count, _)| count >= least)
            .filter_map(|(count, relay)| Some((count, Reverse(relay.idle_since()?), relay)))
            .collect();
        idle.sort_unstable_by_key(|&(count, since, _)| Reverse((count, since)));
        // One may come into use meanwhile.
        let gave_way = idle.iter().find(|(.., relay)| relay.give_way());
        if let Some((connections, _, relay)) = gave_way {
            self.warn_of_given_place(relay, *connections);
        }
        gave_way.is_some()
    }

    fn warn_of_given_place(&self, relay: &Arc<Relay>, connections: usize) {
        let caller = relay.caller();
        if self.log.may_warn(caller.group) {
            warn!(target: "gateway", listen = self.listen(), peer = %caller.addr, upstream = %self.upstream_name, connections, "the server takes no more connections of this gateway: an idle connection of the client address that has most is closed, so that another client is served");
        }
    }
}
