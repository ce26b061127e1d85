//! Slots of all sessions, divided by address.
//!
//! Every session has [`MIN_SLOTS`], which are not counted here. A part of all others is kept for addresses that have less than their
//! part: no other address gets any of it. Whether clients give back what they are asked for does not matter for that: nothing is taken
//! from them (Linux hangs after NFS4ERR_BADSLOT), so that the bound is in what is granted. Those who do not give back only have others
//! asked in their place.

use crate::address::AddressKey;
use crate::limits::MIN_SLOTS;
use foldhash::HashMap;

/// Slots of all sessions together, beyond those that each has anyway.
#[derive(Debug)]
pub(crate) struct Budget {
    total: u32,
    used: u32,
    /// Those in use that clients are asked to give back.
    recalled: Recalled,
    addresses: HashMap<AddressKey, OfAddress>,
}

/// Slots that clients are asked to give back, as long as that can be expected: from the period in which they were asked to the end of the
/// next one.
#[derive(Debug, Default)]
struct Recalled {
    period: u64,
    in_period: u32,
    in_last: u32,
}

impl Recalled {
    fn all(&self) -> u32 {
        self.in_period.saturating_add(self.in_last)
    }

    /// Those of a period; `None` if nothing is expected of it any more.
    fn of(&mut self, period: u64) -> Option<&mut u32> {
        match self.period.checked_sub(period) {
            Some(0) => Some(&mut self.in_period),
            Some(1) => Some(&mut self.in_last),
            Some(_) | None => None,
        }
    }
}

/// The slots that a session is asked to give back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Recall {
    /// The period in which it was asked for the first of them.
    since: u64,
    slots: u32,
}

/// Returns how many of the slots of a session are counted.
pub(super) fn counted(slots: u32) -> u32 {
    slots.saturating_sub(MIN_SLOTS)
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
            recalled: Recalled::default(),
            addresses: HashMap::default(),
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
        self.left().saturating_add(self.recalled.all()) < self.reserve()
    }

    /// Begins another period. Returns whether there are slots that clients are asked for, and that are not expected any more.
    pub(super) fn next_period(&mut self) -> bool {
        let recalled = &mut self.recalled;
        let given_up = recalled.in_last;
        *recalled = Recalled {
            period: recalled.period + 1,
            in_period: 0,
            in_last: recalled.in_period,
        };
        given_up > 0
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

    /// Slots of an address, if all addresses had as many.
    fn part_of_address(&self) -> u32 {
        let shared = self.budget.total - self.budget.reserve();
        among(shared, self.budget.addresses.len())
    }

    /// Slots of a session, with those that are not counted, if all addresses had as many, and all sessions of an address.
    pub(super) fn part(&self) -> u32 {
        MIN_SLOTS + among(self.part_of_address(), self.its.sessions)
    }

    /// Most slots that the address may take now: with them it has as many as it leaves.
    fn free(&self) -> u32 {
        self.budget.left().saturating_sub(self.its.slots) / 2
    }

    /// Most slots that a session with so many may take now. Those that are kept are for an address and a session that have less than
    /// their parts: what others got of them would be asked back at once, and might not come.
    fn most_more(&self, active: u32) -> u32 {
        let unreserved = self.budget.left().saturating_sub(self.budget.reserve());
        let below_part = self.part().saturating_sub(active.max(MIN_SLOTS));
        let address_below = self.part_of_address().saturating_sub(self.its.slots);
        self.free()
            .min(unreserved.max(below_part.min(address_below)))
    }

    /// Returns how many of the wanted slots a new session gets.
    pub(super) fn grant(&self, wanted: u32) -> u32 {
        wanted.min(MIN_SLOTS) + counted(wanted).min(self.most_more(0))
    }

    /// Returns how many of the wanted further slots a session with so many gets.
    pub(super) fn grant_more(&self, active: u32, wanted: u32) -> u32 {
        wanted.min(self.most_more(active))
    }

    pub(super) fn take(&mut self, slots: u32) {
        self.budget.used += slots;
        self.change(|its| its.slots += slots);
    }

    pub(super) fn give_back(&mut self, slots: u32) {
        self.budget.used -= slots;
        self.change(|its| its.slots -= slots);
    }

    /// Notes how many slots a session is asked for now. Whoever is asked for more before it gave any back has no more time for them.
    pub(super) fn recall(&mut self, recall: &mut Recall, slots: u32) {
        let recalled = &mut self.budget.recalled;
        if let Some(expected) = recalled.of(recall.since) {
            *expected -= recall.slots;
        }
        if recall.slots == 0 {
            recall.since = recalled.period;
        }
        recall.slots = slots;
        if let Some(expected) = recalled.of(recall.since) {
            *expected += slots;
        }
    }

    fn change(&mut self, change: impl FnOnce(&mut OfAddress)) {
        change(&mut self.its);
        let entry = self.budget.addresses.entry(self.address);
        *entry.or_default() = self.its;
    }
}

fn among(slots: u32, n: usize) -> u32 {
    slots / u32::try_from(n).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
impl Budget {
    /// Number of slots in use.
    pub(super) fn used(&self) -> u32 {
        self.used
    }

    pub(super) fn recalled(&self) -> u32 {
        self.recalled.all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: AddressKey = AddressKey(1);

    /// A budget of which other addresses, with a session each, have some.
    fn budget(total: u32, others: u32, their: u32) -> Budget {
        let mut budget = Budget::new(total);
        for other in 0..others {
            let other = AddressKey(100 + u128::from(other));
            budget.begin_session(other);
            budget.room(other).take(their);
        }
        budget
    }

    #[test]
    fn session_below_its_part_gets_nothing_that_is_kept_if_its_address_is_above() {
        let mut budget = budget(800, 19, 34);
        for _ in 0..2 {
            budget.begin_session(ONE);
        }
        // Of 35 for each address.
        budget.room(ONE).take(60);
        assert_eq!(budget.left(), 94);
        let mut room = budget.room(ONE);
        assert!(room.part() > MIN_SLOTS);
        assert_eq!(room.grant_more(MIN_SLOTS, 16), 0);
        assert_eq!(room.grant(64), MIN_SLOTS);
        room.give_back(40);
        assert!(room.grant_more(MIN_SLOTS, 16) > 0);
    }

    #[test]
    fn slots_are_expected_back_until_the_end_of_the_period_after_that_in_which_they_were_asked_for()
    {
        let mut budget = budget(800, 1, 720);
        assert!(budget.is_lacking());
        let (mut first, mut second) = (Recall::default(), Recall::default());
        budget.room(ONE).recall(&mut first, 10);
        budget.room(ONE).recall(&mut second, 20);
        assert!(!budget.is_lacking() && budget.recalled() == 30);
        assert!(!budget.next_period());
        // Asked for more, and for less.
        budget.room(ONE).recall(&mut first, 15);
        budget.room(ONE).recall(&mut second, 0);
        assert_eq!(budget.recalled(), 15);
        budget.room(ONE).recall(&mut second, 7);
        assert_eq!(budget.recalled(), 22);
        assert!(budget.next_period(), "those of the first");
        assert!(budget.is_lacking() && budget.recalled() == 7);
        budget.room(ONE).recall(&mut first, 40);
        assert_eq!(budget.recalled(), 7, "it has not given any back");
        assert!(budget.next_period());
        budget.room(ONE).recall(&mut first, 0);
        budget.room(ONE).recall(&mut first, 5);
        assert_eq!(budget.recalled(), 5, "it has given all back");
        budget.room(ONE).recall(&mut first, 0);
        budget.room(ONE).recall(&mut second, 0);
        assert_eq!(budget.recalled(), 0);
    }
}
