//! Turns on the CPU for the connections of an event loop, shared by address.
//!
//! A runtime gives each task its turn, so that an address with many connections would have as many
//! turns as connections. Here the connections of an address have [`TURNS`] turns together in each round
//! of the event loop. A round runs the tasks that are ready and then looks for I/O. Further connections
//! of the address wait in the order in which they came. The event loop tells when a round is over: a
//! connection that waits may be woken for any other reason, as by I/O, and that begins no round.
//!
//! Where no other address has had a turn for a while, a round has more of them: each costs a look for I/O,
//! which a few turns are not worth. Another address that comes then waits for as many turns once.
//!
//! A connection that is alone at its address does not need this, and costs a load and a count.

use oncrpc::PeerGroup;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Turns that the connections of one address have in a round of the event loop: as many as one
/// connection has before it lets others have theirs.
pub const TURNS: usize = 4;

/// The same of an address that has been alone on the event loop: the look for I/O then costs little beside them.
const TURNS_ALONE: usize = 16;

/// Rounds without a turn of another address after which one counts as alone. In less time, a client on the same
/// machine makes its next call.
const ROUNDS_ALONE: u32 = 32;

/// The connections of one event loop, by address.
#[derive(Clone, Debug, Default)]
pub struct EventLoop(Arc<Addresses>);

#[derive(Debug, Default)]
struct Addresses {
    by_group: Mutex<HashMap<PeerGroup, Arc<Address>>>,
    /// Turns of all of them so far.
    turns: Arc<AtomicU64>,
}

/// The connections of one address on one event loop.
#[derive(Debug, Default)]
struct Address {
    connections: AtomicUsize,
    state: Mutex<State>,
    /// Turns of all addresses so far.
    turns_of_all: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct State {
    /// Number of this round.
    round: u64,
    /// Turns in this round.
    taken: usize,
    /// Turns of all addresses before this round.
    before: u64,
    /// Rounds until now in which no other address had a turn.
    rounds_alone: u32,
    /// The event loop will tell when the round is over.
    is_awaited: bool,
    /// Connections that wait for a turn.
    waiting: VecDeque<(u64, Waker)>,
    next_id: u64,
}

/// The turns of one connection.
#[derive(Debug)]
pub struct Turns {
    event_loop: EventLoop,
    group: PeerGroup,
    address: Arc<Address>,
    /// Its place among those that wait.
    place: Option<u64>,
    /// The round in which it has its turn, if it shares turns.
    round: Option<u64>,
}

impl EventLoop {
    /// Adds a connection of a peer in `group`.
    pub fn join(&self, group: PeerGroup) -> Turns {
        let mut addresses = self.lock();
        let address = addresses.entry(group).or_insert_with(|| {
            Arc::new(Address {
                turns_of_all: Arc::clone(&self.0.turns),
                ..Address::default()
            })
        });
        let address = Arc::clone(address);
        address.connections.fetch_add(1, Relaxed);
        drop(addresses);
        Turns {
            event_loop: self.clone(),
            group,
            address,
            place: None,
            round: None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PeerGroup, Arc<Address>>> {
        let by_group = self.0.by_group.lock();
        by_group.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Address {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The waker of an address begins its next round.
impl Wake for Address {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut state = self.lock();
        state.begin_round(self.turns_of_all.load(Relaxed));
        state.wake_first();
    }
}

impl Turns {
    /// Waits for a turn, and takes it. `next_round` has to have the waker of its context woken once, in the
    /// next round of the event loop.
    pub fn poll_begin(
        &mut self,
        cx: &mut Context<'_>,
        next_round: impl FnOnce(&mut Context<'_>),
    ) -> Poll<()> {
        if self.place.is_none() && self.is_alone() {
            self.round = None;
            self.address.turns_of_all.fetch_add(1, Relaxed);
            return Poll::Ready(());
        }
        let mut state = self.address.lock();
        let turn = match self.place {
            // Those that wait have theirs in this round all the same.
            None if state.taken + state.waiting.len() < state.turns() => Poll::Ready(()),
            None => {
                self.place = Some(state.enter(cx.waker()));
                Poll::Pending
            }
            place if state.first() == place && state.taken < state.turns() => {
                self.place = None;
                state.waiting.pop_front();
                Poll::Ready(())
            }
            Some(place) => {
                state.attend(place, cx.waker());
                Poll::Pending
            }
        };
        if turn.is_ready() {
            self.address.turns_of_all.fetch_add(1, Relaxed);
            self.round = Some(state.round);
            state.taken += 1;
            if state.waiting.is_empty() {
                return turn;
            }
            // The next one would only wait again.
            if state.taken < state.turns() {
                state.wake_first();
                return turn;
            }
        }
        if !std::mem::replace(&mut state.is_awaited, true) {
            // An event loop that has ended wakes at once.
            drop(state);
            let round = Waker::from(Arc::clone(&self.address));
            next_round(&mut Context::from_waker(&round));
        }
        turn
    }

    /// Gives back a turn in which there was nothing to do.
    pub fn give_back(&self) {
        if !self.is_alone() {
            let mut state = self.address.lock();
            // What is left of a round that is over is of no use to anybody.
            if self.round != Some(state.round) {
                return;
            }
            state.taken = state.taken.saturating_sub(1);
        }
        self.address.turns_of_all.fetch_sub(1, Relaxed);
    }

    /// Counts a turn that the connection has had without waiting for it.
    pub fn count(&self) {
        if !self.is_alone() {
            self.address.lock().taken += 1;
        }
        self.address.turns_of_all.fetch_add(1, Relaxed);
    }

    /// Whether the connection is the only one of its address, and has a turn whenever it wants.
    pub fn is_alone(&self) -> bool {
        self.address.connections.load(Relaxed) <= 1
    }
}

impl State {
    /// Begins a round, after so many turns of all addresses.
    fn begin_round(&mut self, turns_of_all: u64) {
        let of_others = turns_of_all.wrapping_sub(self.before) != self.taken as u64;
        self.rounds_alone = match of_others {
            true => 0,
            false => self.rounds_alone.saturating_add(1),
        };
        (self.before, self.taken, self.is_awaited) = (turns_of_all, 0, false);
        self.round = self.round.wrapping_add(1);
    }

    /// Turns that the address has in this round.
    fn turns(&self) -> usize {
        match self.rounds_alone >= ROUNDS_ALONE {
            true => TURNS_ALONE,
            false => TURNS,
        }
    }

    fn enter(&mut self, waker: &Waker) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.waiting.push_back((id, waker.clone()));
        id
    }

    /// Notes by whom a connection that waits is to be woken. That mostly does not change.
    fn attend(&mut self, place: u64, waker: &Waker) {
        let found = self.waiting.binary_search_by_key(&place, |(id, _)| *id);
        if let Ok(index) = found {
            self.waiting[index].1.clone_from(waker);
        }
    }

    fn first(&self) -> Option<u64> {
        self.waiting.front().map(|(id, _)| *id)
    }

    /// Removes the first of those that wait, and wakes the next one.
    fn leave_first(&mut self) {
        self.waiting.pop_front();
        self.wake_first();
    }

    fn wake_first(&self) {
        if let Some((_, first)) = self.waiting.front() {
            first.wake_by_ref();
        }
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            let mut state = self.address.lock();
            match state.first() == Some(place) {
                true => state.leave_first(),
                false => state.waiting.retain(|(id, _)| *id != place),
            }
        }
        let mut addresses = self.event_loop.lock();
        if self.address.connections.fetch_sub(1, Relaxed) == 1 {
            addresses.remove(&self.group);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::atomic::AtomicBool;

    /// A runtime of one thread: tasks that are ready run in order, then it looks for I/O.
    #[derive(Default)]
    struct Runtime {
        ready: Arc<Mutex<VecDeque<usize>>>,
        deferred: Vec<Waker>,
    }

    struct Task {
        number: usize,
        is_ready: AtomicBool,
        ready: Arc<Mutex<VecDeque<usize>>>,
    }

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            if !self.is_ready.swap(true, Relaxed) {
                self.ready.lock().unwrap().push_back(self.number);
            }
        }
    }

    /// A connection that always has work, and the number of its turns.
    struct Busy {
        turns: Option<Turns>,
        task: Arc<Task>,
        had: usize,
    }

    struct Sim {
        event_loop: EventLoop,
        runtime: Runtime,
        all: Vec<Busy>,
    }

    impl Sim {
        /// Connections of these addresses.
        fn new(addresses: &[u8]) -> Self {
            let mut sim = Self {
                event_loop: EventLoop::default(),
                runtime: Runtime::default(),
                all: Vec::new(),
            };
            for last in addresses {
                sim.join(*last);
            }
            sim
        }

        /// Adds a connection of this address. Returns its number.
        fn join(&mut self, last: u8) -> usize {
            let number = self.all.len();
            let task = Arc::new(Task {
                number,
                is_ready: AtomicBool::new(false),
                ready: Arc::clone(&self.runtime.ready),
            });
            Arc::clone(&task).wake();
            let group = PeerGroup::of([127, 0, 0, last].into());
            self.all.push(Busy {
                turns: Some(self.event_loop.join(group)),
                task,
                had: 0,
            });
            number
        }

        /// Runs what is ready, and lets those come that wait for the next round. Returns the
        /// connections that had a turn.
        fn round(&mut self) -> Vec<usize> {
            self.round_with_wakes([])
        }

        /// The same with one of these wakes of connections behind each poll, for other reasons than a turn.
        fn round_with_wakes(&mut self, wakes: impl IntoIterator<Item = usize>) -> Vec<usize> {
            let mut wakes = wakes.into_iter();
            let mut had = Vec::new();
            loop {
                let next = self.runtime.ready.lock().unwrap().pop_front();
                let Some(number) = next else { break };
                if let Some(woken) = wakes.next() {
                    Arc::clone(&self.all[woken].task).wake();
                }
                let busy = &mut self.all[number];
                busy.task.is_ready.store(false, Relaxed);
                let Some(turns) = &mut busy.turns else {
                    continue;
                };
                let waker = Waker::from(Arc::clone(&busy.task));
                let deferred = &mut self.runtime.deferred;
                let polled = turns.poll_begin(&mut Context::from_waker(&waker), |cx| {
                    deferred.push(cx.waker().clone());
                });
                if polled.is_ready() {
                    busy.had += 1;
                    had.push(number);
                    // As a connection with more work than one turn does.
                    match turns.is_alone() {
                        true => self.runtime.deferred.push(waker),
                        false => waker.wake(),
                    }
                }
            }
            self.runtime.deferred.drain(..).for_each(Waker::wake);
            had
        }
    }

    #[test]
    fn connections_of_one_address_have_a_few_turns_together_in_each_round() {
        let mut addresses = vec![1; 128];
        addresses.push(2);
        let mut sim = Sim::new(&addresses);
        for _ in 0..128 {
            let had = sim.round();
            assert_eq!(had.len(), TURNS + 1, "{had:?}");
            assert!(had.contains(&128), "the other one has one each time");
        }
        // They take turns among themselves.
        assert!(sim.all[..128].iter().all(|busy| busy.had == TURNS));
    }

    #[test]
    fn wake_for_another_reason_than_a_turn_begins_no_round() {
        const BUSY: usize = 16;
        let mut sim = Sim::new(&[1; BUSY]);
        for _ in 0..BUSY {
            let had = sim.round_with_wakes((0..BUSY).cycle().take(8 * BUSY));
            assert_eq!(had.len(), TURNS, "{had:?}");
        }
        assert!(sim.all.iter().all(|busy| busy.had == TURNS));
    }

    #[test]
    fn first_that_waits_may_leave_as_the_round_begins_for_which_it_has_waited() {
        let mut sim = Sim::new(&[1; TURNS + 3]);
        assert_eq!(sim.round(), [0, 1, 2, 3]);
        sim.all[TURNS].turns = None;
        assert_eq!(sim.round(), [5, 6, 0, 1]);
    }

    #[test]
    fn address_alone_for_a_while_has_more_turns_until_another_comes() {
        const BUSY: usize = 2 * TURNS_ALONE;
        let mut sim = Sim::new(&[1; BUSY]);
        for _ in 0..ROUNDS_ALONE {
            assert_eq!(sim.round().len(), TURNS);
        }
        assert_eq!(sim.round().len(), TURNS_ALONE);
        let other = sim.join(2);
        let had = sim.round();
        assert!(
            had.contains(&other) && had.len() <= TURNS_ALONE + 1,
            "{had:?}"
        );
        for _ in 0..2 * ROUNDS_ALONE {
            assert_eq!(sim.round().len(), TURNS + 1);
        }
        sim.all[other].turns = None;
        for _ in 0..ROUNDS_ALONE {
            assert_eq!(sim.round().len(), TURNS);
        }
        assert_eq!(sim.round().len(), TURNS_ALONE);
    }

    #[test]
    fn address_with_one_connection_has_a_turn_whenever_it_wants() {
        let event_loop = EventLoop::default();
        let mut alone = event_loop.join(PeerGroup::of([127, 0, 0, 1].into()));
        for _ in 0..10 * TURNS {
            let mut cx = Context::from_waker(Waker::noop());
            let polled = alone.poll_begin(&mut cx, |_| panic!("it need not wait"));
            assert!(polled.is_ready());
        }
        drop(alone);
        assert!(event_loop.lock().is_empty());
    }

    #[test]
    fn turn_without_work_does_not_count() {
        let event_loop = EventLoop::default();
        let join = || event_loop.join(PeerGroup::of([127, 0, 0, 1].into()));
        let (mut one, _other) = (join(), join());
        let begin = |turns: &mut Turns| {
            let mut asked = false;
            let mut cx = Context::from_waker(Waker::noop());
            let polled = turns.poll_begin(&mut cx, |_| asked = true);
            assert_eq!(polled.is_pending(), asked);
            polled.is_ready()
        };
        for _ in 0..10 * TURNS {
            assert!(begin(&mut one));
            one.give_back();
        }
        for _ in 0..TURNS {
            assert!(begin(&mut one));
        }
        assert!(!begin(&mut one));
    }

    proptest! {
        #[test]
        fn each_connection_has_its_turns_whoever_leaves_or_is_woken(
            addresses in prop::collection::vec(0u8..4, 1..40),
            leave in prop::collection::vec(0usize..40, 0..40),
            wakes in prop::collection::vec(0usize..40, 0..80),
        ) {
            let mut sim = Sim::new(&addresses);
            for leaves in leave {
                let there: Vec<usize> = (0..addresses.len())
                    .filter(|&number| sim.all[number].turns.is_some())
                    .collect();
                let had = sim.round_with_wakes(wakes.iter().map(|wake| wake % addresses.len()));
                for address in 0..4 {
                    let count = |of: &[usize]| of.iter().filter(|&&of| addresses[of] == address).count();
                    let most = match count(&there) == there.len() {
                        true => TURNS_ALONE,
                        false => TURNS,
                    };
                    // One alone has a turn whenever it is woken.
                    prop_assert!(count(&there) == 1 || count(&had) <= most);
                }
                if let Some(busy) = sim.all.get_mut(leaves) {
                    busy.turns = None;
                }
            }
            let before: Vec<usize> = sim.all.iter().map(|busy| busy.had).collect();
            for _ in 0..addresses.len() {
                sim.round();
            }
            for (busy, before) in sim.all.iter().zip(before) {
                prop_assert!(busy.turns.is_none() || busy.had > before);
            }
            sim.all.clear();
            prop_assert!(sim.event_loop.lock().is_empty());
        }
    }
}
