//! Shares of addresses.

/// Address of a client, as a number that the caller makes of it: what one address can take of the server is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AddressKey(pub u128);

/// Returns whether an address may have one more of something, of which it has `its` now, all have `all`, and there are `max`: it
/// has at most as much as it leaves free, so that others always find some.
pub(crate) fn may_grow(its: usize, all: usize, max: usize) -> bool {
    its < max.saturating_sub(all)
}
