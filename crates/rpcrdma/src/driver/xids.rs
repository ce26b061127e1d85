//! XIDs of one end's calls.

use rpcrdma_proto::Xids;
use std::hash::{BuildHasher, Hasher, RandomState};

/// Returns XIDs with a random start, so that a server's duplicate request cache does not confuse
/// the calls of this run with those of the last.
pub(crate) fn random() -> Xids {
    let random = RandomState::new().build_hasher().finish();
    Xids::starting_at(u32::try_from(random >> 32).expect("32 bits"))
}
