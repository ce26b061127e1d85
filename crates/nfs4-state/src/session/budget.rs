//! Slots of all sessions, divided by address.

use crate::address::AddressKey;
use crate::limits::MIN_SLOTS;
use std::collections::HashMap;

/// Slots of all sessions together.
#[derive(Debug)]
pub(crate) struct Budget {
    total: u32,
    used: u32,
    /// Those in use that clients are asked to give back.
    recalled: u32,
    addresses: HashMap<AddressKey, OfAddress>,
}

/// Sessions of an address, and their slots.
#[derive(Clone, Copy, Debug, Default)]
struct OfAddress {
    sessions: usize,
    slots: u32,
}

/// The budget as a session of one address finds it.
#[derive(Debug)]
pub(super) struct Room<'a> {
    budget: &'a mut Budget,
    address: AddressKey,
    its: OfAddress,
}

impl Budget {
    pub(super) fn new(total: u32) -> Self {
        Self {
            total,
            used: 0,
            recalled: 0,
            addresses: HashMap::new(),
        }
    }

    /// Returns the number of sessions of an address.
    pub(super) fn sessions_of(&self, address: AddressKey) -> usize {
        self.addresses.get(&address).map_or(0, |its| its.sessions)
    }

    /// Counts a session.
    pub(super) fn begin_session(&mut self, address: AddressKey) {
        self.addresses.entry(address).or_default().sessions += 1;
    }

    /// Counts a session no more. It has given its slots back.
    pub(super) fn end_session(&mut self, address: AddressKey) {
        let its = self.addresses.get_mut(&address);
        let its = its.expect("an address with a session");
        its.sessions -= 1;
        if its.sessions == 0 {
            self.addresses.remove(&address);
        }
    }

    pub(super) fn room(&mut self, address: AddressKey) -> Room<'_> {
        let its = self.addresses.get(&address).copied().unwrap_or_default();
        Room {
            budget: self,
            address,
            its,
        }
    }

    fn left(&self) -> u32 {
        self.total.saturating_sub(self.used)
    }

    /// Slots that are kept for those who come.
    fn reserve(&self) -> u32 {
        self.total / 8
    }

    /// Returns whether no session is to have more than its part.
    pub(super) fn is_pressed(&self) -> bool {
        self.left() < self.reserve()
    }

    /// Returns whether sessions with more than their part are to be asked for some: those asked for so far are too few.
    pub(super) fn is_lacking(&self) -> bool {
        self.left().saturating_add(self.recalled) < self.reserve()
    }

    /// Number of addresses, for tests of what is left.
    #[cfg(test)]
    pub(super) fn entries(&self) -> usize {
        self.addresses.len()
    }
}

impl Room<'_> {
    pub(super) fn is_pressed(&self) -> bool {
        self.budget.is_pressed()
    }

    pub(super) fn is_lacking(&self) -> bool {
        self.budget.is_lacking()
    }

    /// Slots of a session, if all addresses had as many, and all sessions of an address.
    pub(super) fn part(&self) -> u32 {
        let among = |slots: u32, n: usize| slots / u32::try_from(n).unwrap_or(u32::MAX).max(1);
        let shared = self.budget.total - self.budget.reserve();
        let of_address = among(shared, self.budget.addresses.len());
        among(of_address, self.its.sessions).max(MIN_SLOTS)
    }

    /// Most slots that the address may take now: with them it has as many as it leaves.
    fn free(&self) -> u32 {
        self.budget.left().saturating_sub(self.its.slots) / 2
    }

    /// Returns how many of the wanted slots a new session gets.
    pub(super) fn grant(&self, wanted: u32) -> u32 {
        let unreserved = self.budget.left().saturating_sub(self.budget.reserve());
        let most = match unreserved >= wanted {
            true => self.free(),
            false => self.free().min(self.part()),
        };
        wanted.min(most.max(MIN_SLOTS))
    }

    /// Returns how many of the wanted further slots a session with so many gets. Beyond its part, none are of those that are kept for
    /// others: what it got would be asked back at once.
    pub(super) fn grant_more(&self, active: u32, wanted: u32) -> u32 {
        let unreserved = self.budget.left().saturating_sub(self.budget.reserve());
        let most = match active < self.part() {
            true => self.free().min(unreserved.max(self.part() - active)),
            false => self.free().min(unreserved),
        };
        wanted.min(most)
    }

    pub(super) fn take(&mut self, slots: u32) {
        self.budget.used += slots;
        self.change(|its| its.slots += slots);
    }

    pub(super) fn give_back(&mut self, slots: u32) {
        self.budget.used -= slots;
        self.change(|its| its.slots -= slots);
    }

    /// Notes how many slots a session is asked for, after it was asked for others.
    pub(super) fn recall(&mut self, before: u32, now: u32) {
        self.budget.recalled = self.budget.recalled - before + now;
    }

    fn change(&mut self, change: impl FnOnce(&mut OfAddress)) {
        change(&mut self.its);
        let entry = self.budget.addresses.entry(self.address);
        *entry.or_default() = self.its;
    }
}

#[cfg(test)]
impl Budget {
    /// Number of slots in use. Beyond the total there are only those that every session has.
    pub(super) fn used(&self) -> u32 {
        self.used
    }

    pub(super) fn recalled(&self) -> u32 {
        self.recalled
    }
}
