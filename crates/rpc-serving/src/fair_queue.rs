//! A queue in which addresses have turns, and the connections of an address.

use oncrpc::PeerGroup;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Items that wait, each of a connection: one address after the other has its turn, and of an address one connection
/// after the other. The items of a connection stay in their order. `K` tells connections apart.
///
/// ```
/// use oncrpc::PeerGroup;
/// use rpc_serving::fair_queue::{FairQueue, Turn};
///
/// let [first, second] = [1, 2].map(|last| PeerGroup::of([192, 0, 2, last].into()));
/// let mut queue = FairQueue::default();
/// for item in ["a", "b", "c"] {
///     queue.push(first, 1, item);
/// }
/// queue.push(second, 2, "d");
/// let order = std::iter::from_fn(|| queue.pop(|_, _| Turn::Takes));
/// let order: Vec<_> = order.map(|(_, _, item)| item).collect();
/// assert_eq!(order, ["a", "d", "b", "c"]);
/// ```
#[derive(Debug)]
pub struct FairQueue<K, T> {
    addresses: HashMap<PeerGroup, Connections<K, T>>,
    /// Addresses with items, in the order of their turns.
    turns: VecDeque<PeerGroup>,
}

/// The items of one address.
#[derive(Debug)]
struct Connections<K, T> {
    /// It has no turn until it [resumes](FairQueue::resume).
    is_parked: bool,
    items: HashMap<K, VecDeque<T>>,
    /// Connections with items, in the order of their turns.
    turns: VecDeque<K>,
}

/// The answer to an address whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Its item leaves the queue.
    Takes,
    /// Its item stays, and the next address is asked.
    IsPassed,
    /// The same, and the address has no turn until it [resumes](FairQueue::resume): only that can make a difference. So
    /// however many addresses wait for that, nobody looks at them.
    IsParked,
    /// Its item stays, and no other overtakes it.
    Waits,
}

impl<K, T> Default for FairQueue<K, T> {
    fn default() -> Self {
        Self {
            addresses: HashMap::new(),
            turns: VecDeque::new(),
        }
    }
}

impl<K: Copy + Eq + Hash, T> FairQueue<K, T> {
    /// Adds an item behind those of its connection.
    pub fn push(&mut self, group: PeerGroup, connection: K, item: T) {
        let address = self.addresses.entry(group).or_insert_with(|| {
            self.turns.push_back(group);
            Connections {
                is_parked: false,
                items: HashMap::new(),
                turns: VecDeque::new(),
            }
        });
        let items = address.items.entry(connection).or_default();
        if items.is_empty() {
            address.turns.push_back(connection);
        }
        items.push_back(item);
    }

    /// Takes the item of the first address that `turn` lets take it. That address and its connection have their next turn
    /// behind all others; those that were passed keep their places.
    pub fn pop(
        &mut self,
        mut turn: impl FnMut(PeerGroup, &T) -> Turn,
    ) -> Option<(PeerGroup, K, T)> {
        let mut at = 0;
        loop {
            let group = *self.turns.get(at)?;
            match turn(group, self.next_of(group)?) {
                Turn::Takes => break,
                Turn::IsPassed => at += 1,
                Turn::IsParked => self.park(group),
                Turn::Waits => return None,
            }
        }
        let group = self.turns.remove(at)?;
        let (connection, item) = self.take_next(group)?;
        Some((group, connection, item))
    }

    /// Takes items in turn until `turn` lets no further address take one. It is asked for an address until that is passed:
    /// what made it pass one does not change meanwhile.
    pub fn pop_all(
        &mut self,
        mut turn: impl FnMut(PeerGroup, &T) -> Turn,
    ) -> Vec<(PeerGroup, K, T)> {
        let mut taken = Vec::new();
        let mut passed = VecDeque::new();
        while let Some(group) = self.turns.pop_front() {
            let Some(next) = self.next_of(group) else {
                continue;
            };
            match turn(group, next) {
                Turn::Takes => {
                    let item = self.take_next(group);
                    taken.extend(item.map(|(connection, item)| (group, connection, item)));
                }
                Turn::IsPassed => passed.push_back(group),
                Turn::IsParked => self.park(group),
                Turn::Waits => {
                    self.turns.push_front(group);
                    break;
                }
            }
        }
        passed.append(&mut self.turns);
        self.turns = passed;
        taken
    }

    /// Leaves an address with items without a turn until it [resumes](Self::resume).
    pub fn park(&mut self, group: PeerGroup) {
        if let Some(address) = self.addresses.get_mut(&group)
            && !std::mem::replace(&mut address.is_parked, true)
        {
            self.turns.retain(|&other| other != group);
        }
    }

    /// Gives an address its turns again, behind all others, if it has been [parked](Turn::IsParked).
    pub fn resume(&mut self, group: PeerGroup) {
        if let Some(address) = self.addresses.get_mut(&group)
            && std::mem::take(&mut address.is_parked)
        {
            self.turns.push_back(group);
        }
    }

    /// Takes the next item of an address whose turn it is, and gives it its next turn behind all others.
    fn take_next(&mut self, group: PeerGroup) -> Option<(K, T)> {
        let address = self.addresses.get_mut(&group)?;
        let connection = address.turns.pop_front()?;
        let items = address.items.get_mut(&connection)?;
        let item = items.pop_front()?;
        match items.is_empty() {
            true => drop(address.items.remove(&connection)),
            false => address.turns.push_back(connection),
        }
        match address.turns.is_empty() {
            true => drop(self.addresses.remove(&group)),
            false => self.turns.push_back(group),
        }
        Some((connection, item))
    }

    /// Removes the items of a connection, in their order.
    pub fn cancel(&mut self, group: PeerGroup, connection: K) -> VecDeque<T> {
        self.take_out(group, connection, std::mem::take)
    }

    /// Removes the first item of a connection that `is_it` selects.
    pub fn remove(
        &mut self,
        group: PeerGroup,
        connection: K,
        is_it: impl FnMut(&T) -> bool,
    ) -> Option<T> {
        self.take_out(group, connection, |items| {
            let at = items.iter().position(is_it)?;
            items.remove(at)
        })
    }

    /// Has `take` remove items of a connection, and forgets a connection and an address without any.
    fn take_out<R: Default>(
        &mut self,
        group: PeerGroup,
        connection: K,
        take: impl FnOnce(&mut VecDeque<T>) -> R,
    ) -> R {
        let Some(address) = self.addresses.get_mut(&group) else {
            return R::default();
        };
        let Some(items) = address.items.get_mut(&connection) else {
            return R::default();
        };
        let taken = take(items);
        if items.is_empty() {
            address.items.remove(&connection);
            address.turns.retain(|&other| other != connection);
        }
        if address.turns.is_empty() {
            self.addresses.remove(&group);
            self.turns.retain(|&other| other != group);
        }
        taken
    }

    /// The item of a connection that has its turn first.
    pub fn first_mut(&mut self, group: PeerGroup, connection: K) -> Option<&mut T> {
        let address = self.addresses.get_mut(&group)?;
        address.items.get_mut(&connection)?.front_mut()
    }

    /// The item that an address takes at its next turn.
    pub fn next_of(&self, group: PeerGroup) -> Option<&T> {
        let address = self.addresses.get(&group)?;
        address.items.get(address.turns.front()?)?.front()
    }

    /// The next item of each connection of an address, in the order of their turns.
    pub fn next_of_each(&self, group: PeerGroup) -> impl Iterator<Item = (K, &T)> {
        let address = self.addresses.get(&group).into_iter();
        address.flat_map(|address| {
            let turns = address.turns.iter();
            turns.filter_map(|of| Some((*of, address.items.get(of)?.front()?)))
        })
    }

    /// Addresses with items that have turns, in the order of these.
    pub fn groups(&self) -> impl Iterator<Item = PeerGroup> {
        self.turns.iter().copied()
    }

    /// Whether an address has an item.
    pub fn waits(&self, group: PeerGroup) -> bool {
        self.addresses.contains_key(&group)
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn group(last: u8) -> PeerGroup {
        PeerGroup::of([192, 0, 2, last].into())
    }

    fn all(queue: &mut FairQueue<u8, u32>) -> Vec<u32> {
        std::iter::from_fn(|| queue.pop(|_, _| Turn::Takes))
            .map(|(.., item)| item)
            .collect()
    }

    #[test]
    fn connections_of_an_address_have_turns_too() {
        let mut queue = FairQueue::default();
        for (of, connection, item) in [(1, 1, 1), (1, 1, 2), (1, 2, 3), (2, 3, 4)] {
            queue.push(group(of), connection, item);
        }
        assert_eq!(all(&mut queue), [1, 4, 3, 2]);
        assert!(queue.is_empty() && queue.addresses.is_empty());
    }

    #[test]
    fn address_that_is_passed_keeps_its_place_and_one_that_waits_is_not_overtaken() {
        let mut queue = FairQueue::default();
        for of in 1..=3 {
            queue.push(group(of), 0, u32::from(of));
        }
        let others = |of, _: &u32| match of == group(1) {
            true => Turn::IsPassed,
            false => Turn::Takes,
        };
        assert_eq!(queue.pop(others).map(|(.., item)| item), Some(2));
        assert_eq!(queue.groups().collect::<Vec<_>>(), [group(1), group(3)]);
        assert_eq!(queue.pop(|_, _| Turn::Waits), None);
        assert_eq!(all(&mut queue), [1, 3]);
    }

    #[test]
    fn all_that_may_go_do_so_in_turn() {
        let mut queue = FairQueue::default();
        for (of, item) in [(1, 1), (1, 2), (2, 3), (3, 4), (3, 5), (4, 6)] {
            queue.push(group(of), of, item);
        }
        let mut asked = 0;
        let taken = queue.pop_all(|of, &item| {
            asked += 1;
            match item {
                2 => Turn::Waits,
                _ if of == group(3) => Turn::IsPassed,
                _ => Turn::Takes,
            }
        });
        let taken: Vec<_> = taken.into_iter().map(|(.., item)| item).collect();
        assert_eq!((taken, asked), (vec![1, 3, 6], 5));
        assert_eq!(queue.groups().collect::<Vec<_>>(), [group(3), group(1)]);
        assert_eq!(all(&mut queue), [4, 2, 5]);
    }

    #[test]
    fn address_that_is_parked_is_not_asked_until_it_resumes() {
        let mut queue = FairQueue::default();
        for (of, item) in [(1, 1), (1, 2), (2, 3), (3, 4)] {
            queue.push(group(of), of, item);
        }
        let parks = |of, _: &u32| match of == group(1) {
            true => Turn::IsParked,
            false => Turn::Takes,
        };
        assert_eq!(queue.pop(parks).map(|(.., item)| item), Some(3));
        assert_eq!(queue.groups().collect::<Vec<_>>(), [group(3)]);
        queue.push(group(1), 9, 5);
        assert!(queue.waits(group(1)) && !queue.is_empty());
        queue.resume(group(1));
        queue.resume(group(1));
        queue.push(group(2), 2, 6);
        let taken = queue.pop_all(parks);
        let taken: Vec<_> = taken.into_iter().map(|(.., item)| item).collect();
        assert_eq!(taken, [4, 6]);
        assert_eq!(queue.cancel(group(1), 1), [1, 2]);
        assert_eq!(queue.cancel(group(1), 9), [5]);
        assert!(queue.is_empty(), "a parked address is forgotten, too");
    }

    #[test]
    fn cancelled_and_removed_items_leave_nothing_behind() {
        let mut queue = FairQueue::default();
        for item in 0..3 {
            queue.push(group(1), 1, item);
        }
        queue.push(group(1), 2, 3);
        assert_eq!(queue.remove(group(1), 1, |&item| item == 1), Some(1));
        assert_eq!(queue.remove(group(1), 1, |&item| item == 1), None);
        assert_eq!(queue.cancel(group(1), 1), [0, 2]);
        assert_eq!(queue.cancel(group(1), 1), []);
        assert_eq!(queue.remove(group(1), 2, |_| true), Some(3));
        assert!(queue.is_empty() && !queue.waits(group(1)));
        assert!(queue.addresses.is_empty());
    }

    proptest! {
        /// Of the items of a round, each address with items has one, and each comes out once, in the order of its
        /// connection.
        #[test]
        fn every_address_has_one_turn_a_round(
            pushed in prop::collection::vec((0..5_u8, 0..3_u8), 0..60),
        ) {
            let mut queue = FairQueue::default();
            for (number, (of, connection)) in pushed.iter().enumerate() {
                queue.push(group(*of), (*of, *connection), number);
            }
            let mut last = HashMap::new();
            let mut came = 0;
            while !queue.is_empty() {
                let round: Vec<_> = queue.groups().collect();
                for expected in round {
                    let (of, connection, number) = queue.pop(|_, _| Turn::Takes).unwrap();
                    prop_assert_eq!(of, expected);
                    let before = last.insert(connection, number);
                    prop_assert!(before.is_none_or(|before| before < number));
                    came += 1;
                }
            }
            prop_assert_eq!(came, pushed.len());
        }
    }
}
