//! The shared receive queue: memory for the messages of many connections.

use buffer::{Buffer, Lender, Pool};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::WrId;

/// Largest number of bytes of returned blocks that a queue keeps for reuse. Further blocks go back
/// to the system.
pub const SHARED_RECEIVE_KEEP: usize = 16 << 20;

/// A shared receive queue: a bounded number of blocks of one size, for the messages that arrive on
/// many queue pairs. Shared by cloning.
///
/// A queue pair that is made with one ([`QpOptions::shared_receives`](crate::QpOptions)) takes no
/// posted Receives. Each message that it receives is in a block, which goes back to the queue when
/// the buffer is dropped, wherever that happens. A block has no memory before it is lent.
///
/// A queue pair holds at most a share of the blocks ([`QpOptions::receives`](crate::QpOptions)), so
/// that no peer takes the blocks of all others (RFC 5041 §8.3.2). Many queue pairs of one peer can be
/// bounded together by a [part](Self::part). What happens to a message that finds no block,
/// [`Limits::holds_peer_back`](crate::Limits::holds_peer_back) says.
///
/// A provider with receive queues in hardware takes all blocks when it creates its own queue, and
/// each returned block later, by [`attach`](Self::attach).
#[derive(Clone)]
pub struct SharedReceiveQueue {
    part: Arc<Part>,
}

/// Statistics of a [`SharedReceiveQueue`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedReceiveStats {
    /// Blocks that hold a message, or are reserved for one.
    pub lent: usize,
    /// Queue pairs that wait for a block.
    pub waiting: usize,
    /// Queue pairs attached.
    pub attached: usize,
    /// Largest number of blocks lent at a time so far. It exceeds the size of the queue if queue
    /// pairs overdrew.
    pub most_lent: usize,
}

/// The share of one queue pair in a [`SharedReceiveQueue`].
///
/// Lent blocks outlive the share. Dropping the share gives up its place in the queue of waiters.
pub struct ReceiveShare {
    account: Arc<Account>,
    /// Memory whose return is told to the account.
    pool: Pool,
}

/// Why there is no block for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoBlock {
    /// All blocks, or all that its part may have, are lent. The share waits for its turn.
    Empty,
    /// This share already holds as many blocks as it may.
    ShareUsed,
}

struct Queue {
    pool: Pool,
    blocks: usize,
    block_size: usize,
    /// One lock for all counts, taken once when a block is lent and once when it comes back: a
    /// grant to the first who waits has to see them together. Nothing is woken under it.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Blocks lent or kept for shares whose turn has come, those beyond the number of blocks included.
    lent: usize,
    most_lent: usize,
    /// Of these, the blocks that the others find missing: not what a part has beyond its most.
    used: usize,
    parts: Vec<PartCounts>,
    vacant_parts: Vec<usize>,
    shares: Vec<Share>,
    vacant_shares: Vec<usize>,
    /// Parts that have shares waiting and may have another block, the next one first.
    turns: VecDeque<usize>,
}

/// The counts of one part.
#[derive(Default)]
struct PartCounts {
    most: usize,
    /// Blocks lent to its shares, and those kept for them.
    held: usize,
    /// Its shares that wait for a block, in the order in which they came.
    waiting: VecDeque<usize>,
    in_turns: bool,
}

/// The counts of one share.
#[derive(Default)]
struct Share {
    attached: bool,
    most: usize,
    held: usize,
    turn: Turn,
    waker: Option<Waker>,
}

/// State of a share that needs a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Turn {
    /// The share does not wait.
    #[default]
    None,
    /// The share waits for one of its own blocks to come back.
    Own,
    /// The share waits in the queue of its part.
    Queued,
    /// A block is reserved for the share.
    Granted,
}

/// Names the counts of one part, which are vacant when nobody has this any more: neither a queue, nor
/// a share, nor a block.
struct Part {
    queue: Arc<Queue>,
    index: usize,
}

/// Says for which share a block was lent.
struct Account {
    part: Arc<Part>,
    index: usize,
}

impl SharedReceiveQueue {
    /// Identifier in completions of messages in blocks, for which no Receive was posted.
    pub const WR: WrId = WrId(u64::MAX);

    /// Creates a queue of `blocks` blocks of at least `block_size` bytes each.
    pub fn new(blocks: usize, block_size: usize) -> Self {
        let most = blocks.saturating_mul(block_size);
        let queue = Arc::new(Queue {
            pool: Pool::new(most.min(SHARED_RECEIVE_KEEP)),
            blocks,
            block_size,
            state: Mutex::default(),
        });
        Self::with_part(&queue, blocks)
    }

    /// Creates a part of this queue: its queue pairs share the same blocks, and together hold at
    /// most `most` of them. A part of a part is another part of the whole queue.
    ///
    /// A queue pair that waits while its part is used up waits for blocks of its part, in order,
    /// and others pass it by. Parts whose queue pairs wait for blocks of others are served in
    /// turns. A queue pair that [overdraws](ReceiveShare::take) does so beyond its part too; what a
    /// part has beyond
    /// `most` is not missing to others.
    #[must_use]
    pub fn part(&self, most: usize) -> Self {
        Self::with_part(&self.part.queue, most)
    }

    fn with_part(queue: &Arc<Queue>, most: usize) -> Self {
        let counts = PartCounts {
            most,
            ..PartCounts::default()
        };
        let mut state = queue.state();
        let State {
            parts,
            vacant_parts,
            ..
        } = &mut *state;
        let index = insert(parts, vacant_parts, counts);
        drop(state);
        let queue = Arc::clone(queue);
        Self {
            part: Arc::new(Part { queue, index }),
        }
    }

    /// Number of blocks in all parts together.
    pub fn blocks(&self) -> usize {
        self.part.queue.blocks
    }

    /// Size of a block in bytes, which is that of the largest message that always fits.
    pub fn block_size(&self) -> usize {
        self.part.queue.block_size
    }

    /// Statistics of all parts together.
    pub fn stats(&self) -> SharedReceiveStats {
        let state = self.part.queue.state();
        SharedReceiveStats {
            lent: state.lent,
            waiting: state.parts.iter().map(|part| part.waiting.len()).sum(),
            attached: state.shares.iter().filter(|share| share.attached).count(),
            most_lent: state.most_lent,
        }
    }

    /// Whether queue pairs of other parts wait for blocks that this part may hold.
    pub fn others_wait(&self) -> bool {
        let state = self.part.queue.state();
        state.turns.iter().any(|&part| part != self.part.index)
    }

    /// Attaches a queue pair with a share of at most `most` blocks. For providers.
    pub fn attach(&self, most: usize) -> ReceiveShare {
        let share = Share {
            attached: true,
            most,
            ..Share::default()
        };
        let queue = &self.part.queue;
        let mut state = queue.state();
        let State {
            shares,
            vacant_shares,
            ..
        } = &mut *state;
        let index = insert(shares, vacant_shares, share);
        drop(state);
        let part = Arc::clone(&self.part);
        let account = Arc::new(Account { part, index });
        ReceiveShare {
            pool: queue.pool.lending(Arc::clone(&account) as Arc<dyn Lender>),
            account,
        }
    }
}

impl fmt::Debug for SharedReceiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReceiveQueue")
            .field("blocks", &self.blocks())
            .field("block_size", &self.block_size())
            .field("stats", &self.stats())
            .finish()
    }
}

impl ReceiveShare {
    /// Size of a block in bytes.
    pub fn block_size(&self) -> usize {
        self.account.queue().block_size
    }

    /// Takes a block for a message that has begun to arrive.
    ///
    /// With `overdraw` a block is available even if all are lent, up to the limit of this share:
    /// the way out for a queue pair that must receive what follows this message before blocks can
    /// come back.
    ///
    /// # Errors
    ///
    /// Why there is no block. [`poll_ready`](Self::poll_ready) waits for one.
    pub fn take(&self, overdraw: bool) -> Result<Buffer, NoBlock> {
        let Account { part, index } = &*self.account;
        let queue = &part.queue;
        let mut state = queue.state();
        // Those who wait come first.
        let free = state.is_free(part.index, queue.blocks);
        let share = &state.shares[*index];
        match share.turn {
            Turn::Granted => {}
            _ if share.held >= share.most => return Err(NoBlock::ShareUsed),
            _ if !free && !overdraw => return Err(NoBlock::Empty),
            Turn::Queued => {
                state.leave_queue(part.index, *index);
                state.lend(part.index);
            }
            Turn::None | Turn::Own => state.lend(part.index),
        }
        let share = &mut state.shares[*index];
        share.turn = Turn::None;
        share.waker = None;
        share.held += 1;
        drop(state);
        Ok(self.pool.take(queue.block_size))
    }

    /// Waits until [`take`](Self::take) has a block. Waiters of one part are served in order, and
    /// each returned block wakes one of them.
    pub fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        let Account { part, index } = &*self.account;
        let queue = &part.queue;
        let mut state = queue.state();
        let free = state.is_free(part.index, queue.blocks);
        let share = &mut state.shares[*index];
        match share.turn {
            Turn::Granted => return Poll::Ready(()),
            Turn::Queued => {}
            Turn::None | Turn::Own if share.held >= share.most => share.turn = Turn::Own,
            Turn::None | Turn::Own if free => {
                share.turn = Turn::None;
                return Poll::Ready(());
            }
            Turn::None | Turn::Own => {
                share.turn = Turn::Queued;
                state.parts[part.index].waiting.push_back(*index);
                state.join_turns(part.index);
            }
        }
        let waker = &mut state.shares[*index].waker;
        match waker {
            Some(known) => known.clone_from(cx.waker()),
            None => *waker = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Number of blocks that this share has lent and not got back.
    pub fn held(&self) -> usize {
        let Account { part, index } = &*self.account;
        part.queue.state().shares[*index].held
    }

    /// Stops waiting: leaves the queue, or returns the block that was reserved for this share.
    pub fn stop_waiting(&self) {
        let Account { part, index } = &*self.account;
        let mut state = part.queue.state();
        state.stop_waiting(part.index, *index);
        let next = state.grant(part.queue.blocks);
        drop(state);
        wake(next);
    }
}

impl fmt::Debug for ReceiveShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiveShare")
            .field("held", &self.held())
            .finish_non_exhaustive()
    }
}

impl Drop for ReceiveShare {
    fn drop(&mut self) {
        let Account { part, index } = &*self.account;
        let mut state = part.queue.state();
        state.stop_waiting(part.index, *index);
        state.shares[*index].attached = false;
        let next = state.grant(part.queue.blocks);
        drop(state);
        wake(next);
    }
}

impl Account {
    fn queue(&self) -> &Queue {
        &self.part.queue
    }
}

impl Lender for Account {
    fn returned(&self) {
        let mut state = self.queue().state();
        state.take_back(self.part.index);
        let share = &mut state.shares[self.index];
        share.held -= 1;
        let own = match share.turn {
            Turn::Own => {
                share.turn = Turn::None;
                share.waker.take()
            }
            Turn::None | Turn::Queued | Turn::Granted => None,
        };
        let next = state.grant(self.queue().blocks);
        drop(state);
        wake(own);
        wake(next);
    }
}

impl Drop for Account {
    /// The share and its blocks are gone.
    fn drop(&mut self) {
        self.queue().state().vacant_shares.push(self.index);
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.queue.state().vacant_parts.push(self.index);
    }
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether there is a block for a share of this part that has not waited.
    fn is_free(&self, part: usize, blocks: usize) -> bool {
        let part = &self.parts[part];
        let nobody_waits = part.waiting.is_empty() && self.turns.is_empty();
        nobody_waits && part.held < part.most && self.used < blocks
    }

    /// One more block is lent to a share of this part, or kept for it.
    fn lend(&mut self, part: usize) {
        let part = &mut self.parts[part];
        self.used += usize::from(part.held < part.most);
        part.held += 1;
        self.lent += 1;
        self.most_lent = self.most_lent.max(self.lent);
    }

    /// A block is back from this part.
    fn take_back(&mut self, part: usize) {
        let counts = &mut self.parts[part];
        counts.held -= 1;
        self.used -= usize::from(counts.held < counts.most);
        self.lent -= 1;
        self.join_turns(part);
    }

    /// Gives this part a turn if one of its shares waits for a block that it may have.
    fn join_turns(&mut self, part: usize) {
        let counts = &mut self.parts[part];
        if !counts.in_turns && counts.held < counts.most && !counts.waiting.is_empty() {
            counts.in_turns = true;
            self.turns.push_back(part);
        }
    }

    /// Keeps a block for the first who waits of the part whose turn it is, if there is one of each.
    /// Gives whom to wake.
    ///
    /// One is enough: whatever makes a block free calls this.
    fn grant(&mut self, blocks: usize) -> Option<Waker> {
        while self.used < blocks {
            let part = self.turns.pop_front()?;
            let counts = &mut self.parts[part];
            counts.in_turns = false;
            // One that waited may have overdrawn since its part got its turn.
            if counts.held < counts.most
                && let Some(index) = counts.waiting.pop_front()
            {
                self.lend(part);
                self.join_turns(part);
                let share = &mut self.shares[index];
                share.turn = Turn::Granted;
                return share.waker.take();
            }
        }
        None
    }

    fn leave_queue(&mut self, part: usize, share: usize) {
        let counts = &mut self.parts[part];
        counts.waiting.retain(|&other| other != share);
        if counts.waiting.is_empty() && std::mem::take(&mut counts.in_turns) {
            self.turns.retain(|&other| other != part);
        }
    }

    fn stop_waiting(&mut self, part: usize, index: usize) {
        let share = &mut self.shares[index];
        share.waker = None;
        match std::mem::take(&mut share.turn) {
            Turn::None | Turn::Own => {}
            Turn::Queued => self.leave_queue(part, index),
            Turn::Granted => self.take_back(part),
        }
    }
}

/// Puts a value where there is room, and says where.
fn insert<T>(values: &mut Vec<T>, vacant: &mut Vec<usize>, value: T) -> usize {
    match vacant.pop() {
        Some(index) => {
            values[index] = value;
            index
        }
        None => {
            values.push(value);
            values.len() - 1
        }
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::task::Wake;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    /// A share, and how often it was woken.
    struct One {
        share: ReceiveShare,
        woken: Arc<Woken>,
    }

    impl One {
        fn of(queue: &SharedReceiveQueue, most: usize) -> Self {
            Self {
                share: queue.attach(most),
                woken: Arc::default(),
            }
        }

        fn waits(&self) -> bool {
            let waker = Waker::from(Arc::clone(&self.woken));
            let mut cx = Context::from_waker(&waker);
            self.share.poll_ready(&mut cx).is_pending()
        }

        fn woken(&self) -> usize {
            self.woken.0.load(SeqCst)
        }

        fn take(&self) -> Buffer {
            self.share.take(false).expect("there is a block for it")
        }
    }

    #[test]
    fn each_returned_block_goes_to_the_first_waiter() {
        let queue = SharedReceiveQueue::new(2, 64);
        let [a, b, c, late] = [(); 4].map(|()| One::of(&queue, 9));
        let (first, second) = (a.take(), a.take());
        assert_eq!(a.share.take(false).unwrap_err(), NoBlock::Empty);
        assert!(b.waits() && c.waits() && b.waits());
        drop(first);
        assert_eq!((b.woken(), c.woken()), (1, 0));
        // The block is kept: whoever has not waited does not come first.
        assert_eq!(late.share.take(false).unwrap_err(), NoBlock::Empty);
        assert!(late.waits());
        drop(second);
        assert_eq!((b.woken(), c.woken(), late.woken()), (1, 1, 0));
        assert!(!c.waits() && !b.waits());
        let (_b, _c) = (b.take(), c.take());
        assert_eq!(queue.stats().lent, 2);
        assert_eq!(queue.stats().waiting, 1);
    }

    #[test]
    fn cancelled_waiter_passes_its_block_to_the_next() {
        let queue = SharedReceiveQueue::new(1, 64);
        let [a, b, c, d] = [(); 4].map(|()| One::of(&queue, 9));
        let block = a.take();
        assert!(b.waits() && c.waits() && d.waits());
        c.share.stop_waiting();
        drop(block);
        assert_eq!((b.woken(), d.woken()), (1, 0));
        drop(b.share);
        assert_eq!((c.woken(), d.woken()), (0, 1));
        drop(d.take());
        assert_eq!(queue.stats().lent, 0);
    }

    #[test]
    fn share_that_is_used_waits_for_a_block_of_its_own() {
        let queue = SharedReceiveQueue::new(9, 64);
        let (a, b) = (One::of(&queue, 2), One::of(&queue, 9));
        let (first, second) = (a.take(), b.take());
        let _third = a.take();
        assert_eq!(a.share.take(false).unwrap_err(), NoBlock::ShareUsed);
        assert_eq!(a.share.take(true).unwrap_err(), NoBlock::ShareUsed);
        assert!(a.waits());
        drop(second);
        assert_eq!(a.woken(), 0);
        drop(first);
        assert_eq!(a.woken(), 1);
        a.take();
    }

    #[test]
    fn overdrawn_blocks_are_returned_before_others_are_served() {
        let queue = SharedReceiveQueue::new(1, 64);
        let (a, b) = (One::of(&queue, 3), One::of(&queue, 3));
        let first = a.take();
        assert!(b.waits() && a.waits());
        let beyond = a.share.take(true).expect("its share is not used");
        assert_eq!(queue.stats().waiting, 1);
        drop(first);
        assert_eq!(b.woken(), 0);
        drop(beyond);
        assert_eq!(b.woken(), 1);
        assert_eq!(queue.stats().most_lent, 2);
    }

    #[test]
    fn blocks_outlive_the_share_they_were_lent_to() {
        let queue = SharedReceiveQueue::new(1, 64);
        let (a, b) = (One::of(&queue, 1), One::of(&queue, 1));
        let block = a.take();
        drop(a);
        // A share made meanwhile is another one.
        let c = One::of(&queue, 1);
        assert!(b.waits());
        drop(block.freeze());
        assert_eq!(b.woken(), 1);
        assert_eq!((c.share.held(), queue.stats().attached), (0, 2));
        drop(b);
        c.take();
    }

    #[test]
    fn part_that_is_used_up_waits_for_its_own_and_leaves_the_rest_to_others() {
        let queue = SharedReceiveQueue::new(4, 64);
        let part = queue.part(2);
        let [a, b] = [(); 2].map(|()| One::of(&part, 9));
        let other = One::of(&queue.part(9), 9);
        let own = [a.take(), a.take()];
        assert_eq!(b.share.take(false).unwrap_err(), NoBlock::Empty);
        assert!(b.waits());
        let others = [other.take(), other.take()];
        drop(others);
        assert_eq!(b.woken(), 0);
        let _other = other.take();
        drop(own);
        assert_eq!(b.woken(), 1);
        // The second block of the part is free, and the one that was kept for it is its own.
        let _held = [b.take(), a.take()];
        assert!(a.waits());
        assert_eq!((queue.stats().lent, queue.stats().waiting), (3, 1));
    }

    #[test]
    fn parts_that_wait_for_others_are_served_in_turns() {
        let queue = SharedReceiveQueue::new(2, 64);
        let (first, second) = (queue.part(2), queue.part(2));
        let holder = One::of(&queue, 9);
        let mut held = vec![holder.take(), holder.take()];
        let [a, b, c] = [(); 3].map(|()| One::of(&first, 9));
        let other = One::of(&second, 9);
        assert!(a.waits() && b.waits() && c.waits() && other.waits());
        let woken = || [&a, &b, &c, &other].map(One::woken);
        held.pop();
        assert_eq!(woken(), [1, 0, 0, 0]);
        held.pop();
        assert_eq!(woken(), [1, 0, 0, 1]);
        held.push(other.take());
        held.pop();
        assert_eq!(woken(), [1, 1, 0, 1]);
        // Its part has all it may have now.
        drop(holder);
        let free = One::of(&second, 9);
        assert!(free.waits() && c.waits());
        drop(a.take());
        assert_eq!((c.woken(), free.woken()), (0, 1));
    }

    #[test]
    fn blocks_overdrawn_by_a_part_are_not_taken_from_others() {
        let queue = SharedReceiveQueue::new(3, 64);
        let (a, b) = (One::of(&queue.part(1), 3), One::of(&queue.part(2), 3));
        let mut held = vec![a.take()];
        for _ in 0..2 {
            assert_eq!(a.share.take(false).unwrap_err(), NoBlock::Empty);
            held.push(a.share.take(true).expect("its share is not used"));
        }
        assert_eq!(a.share.take(true).unwrap_err(), NoBlock::ShareUsed);
        let others = [b.take(), b.take()];
        assert!(b.waits());
        assert_eq!(queue.stats().lent, 5);
        held.truncate(1);
        assert_eq!((b.woken(), queue.stats().lent), (0, 3));
        drop(others);
        assert_eq!(b.woken(), 1);
        drop((b, held));
        assert_eq!(queue.stats().lent, 0);
    }

    #[test]
    fn share_that_overdraws_leaves_its_turn_to_the_next() {
        let queue = SharedReceiveQueue::new(2, 64);
        let holder = One::of(&queue, 9);
        let held = [holder.take(), holder.take()];
        let (part, other) = (queue.part(1), One::of(&queue.part(1), 9));
        let [a, b] = [(); 2].map(|()| One::of(&part, 9));
        assert!(a.waits() && b.waits() && other.waits());
        let beyond = a.share.take(true).expect("its share is not used");
        drop(held);
        assert_eq!((a.woken(), b.woken(), other.woken()), (0, 0, 1));
        drop(beyond);
        assert_eq!((a.woken(), b.woken()), (0, 1));
    }

    #[test]
    fn dropped_parts_and_shares_leave_nothing() {
        let queue = SharedReceiveQueue::new(2, 64);
        for _ in 0..20 {
            let holder = One::of(&queue, 9);
            let held = [holder.take(), holder.take()];
            let gone = [(); 3].map(|()| One::of(&queue.part(1), 9));
            assert!(gone.iter().all(One::waits));
            // The block of a share that is gone, and of a part that is.
            drop(holder);
            let last = gone[0].share.take(true).expect("its share is not used");
            drop(gone);
            assert!(queue.part.queue.state().turns.is_empty());
            drop((held, last));
        }
        let state = queue.part.queue.state();
        assert_eq!((state.lent, state.used, state.turns.len()), (0, 0, 0));
        assert!(state.parts.len() <= 4 && state.shares.len() <= 4);
        assert_eq!(state.vacant_parts.len(), state.parts.len() - 1);
        assert_eq!(state.vacant_shares.len(), state.shares.len());
    }

    #[test]
    fn no_wake_up_is_lost_between_threads() {
        struct Thread(std::thread::Thread);
        impl Wake for Thread {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let queue = SharedReceiveQueue::new(3, 64);
        let work = |share: ReceiveShare| {
            let waker = Waker::from(Arc::new(Thread(std::thread::current())));
            let mut cx = Context::from_waker(&waker);
            let mut kept = Vec::new();
            for _ in 0..2000 {
                let block = loop {
                    match share.take(false) {
                        Ok(block) => break block,
                        Err(_) => {
                            kept.clear();
                            while share.poll_ready(&mut cx).is_pending() {
                                std::thread::park();
                            }
                        }
                    }
                };
                kept.push(block);
            }
        };
        std::thread::scope(|scope| {
            let parts = [queue.clone(), queue.part(2), queue.part(1)];
            for part in parts.iter().cycle().take(9) {
                let share = part.attach(2);
                scope.spawn(move || work(share));
            }
        });
        let stats = queue.stats();
        assert_eq!((stats.lent, stats.waiting, stats.attached), (0, 0, 0));
        assert!(stats.most_lent <= 3);
    }
}
