//! Resources of a connection: its parts of what connections share.

use super::addresses::Address;
use super::receive_memory::ReceiveLease;
use rpc_serving::turns::Turns;
use rpc_serving::workers::Load;
use verbs::SharedReceiveQueue;

/// Resources that a connection holds as long as it exists.
pub(super) struct Kept {
    pub(super) address: Address,
    /// Memory of Receives that the connection posts itself, until it is served.
    pub(super) receive_memory: Option<ReceiveLease>,
    /// Its turns on its worker, until it is served.
    pub(super) turns: Option<Turns>,
    pub(super) _load: Load,
}

impl Kept {
    /// The part of the shared receive queue for connections of this address.
    pub(super) fn receives(&self) -> Option<SharedReceiveQueue> {
        self.address.shared.receives.clone()
    }
}
