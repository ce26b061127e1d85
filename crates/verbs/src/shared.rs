//! The shared receive queue: memory for the messages of many connections.

use buffer::{Buffer, Lender, Pool};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::WrId;

/// Bytes of returned blocks that a queue keeps for reuse, at most. What is beyond goes back to the
/// system.
pub const SHARED_RECEIVE_KEEP: usize = 16 << 20;

/// A shared receive queue: a bounded number of blocks of one size, for the messages that arrive on
/// many queue pairs. Shared by cloning.
///
/// A queue pair that is made with one ([`QpOptions::shared_receives`](crate::QpOptions)) takes no
/// posted Receives. Each message that it receives is in a block, which goes back to the queue when
/// the buffer is dropped, wherever that happens. A block has no memory before it is lent.
///
/// A queue pair holds at most a share of the blocks ([`QpOptions::receives`](crate::QpOptions)), so
/// that no peer takes the blocks of all others (RFC 5041 §8.3.2). What happens to a message that
/// finds no block, [`Limits::holds_peer_back`](crate::Limits::holds_peer_back) says.
///
/// A provider with receive queues in hardware takes all blocks when it makes its own queue, and
/// each one that comes back later: [`attach`](Self::attach) is the provider's way in.
#[derive(Clone)]
pub struct SharedReceiveQueue {
    queue: Arc<Queue>,
}

/// What a [`SharedReceiveQueue`] has lent, at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedReceiveStats {
    /// Blocks that hold a message, or are reserved for one.
    pub lent: usize,
    /// Queue pairs that wait for a block.
    pub waiting: usize,
    /// Queue pairs attached.
    pub attached: usize,
    /// Most blocks lent at a time so far. More than there are, where queue pairs overdrew.
    pub most_lent: usize,
}

/// The part of a [`SharedReceiveQueue`] that one queue pair may use.
///
/// The blocks that it lent outlive it. Dropping it gives up its place among those who wait.
pub struct ReceiveShare {
    account: Arc<Account>,
    /// Memory whose return is told to the account.
    pool: Pool,
}

/// Why there is no block for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoBlock {
    /// All blocks are lent. The share waits for its turn.
    Empty,
    /// This share holds as many blocks as it may.
    ShareUsed,
}

struct Queue {
    pool: Pool,
    blocks: usize,
    block_size: usize,
    /// One lock for all counts, taken once when a block is lent and once when it comes back: a
    /// grant to the first who waits has to see them together. Nothing is allocated or woken under
    /// it.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Blocks lent, those beyond the number of blocks included.
    lent: usize,
    most_lent: usize,
    /// Blocks kept for shares whose turn has come.
    granted: usize,
    shares: Vec<Share>,
    vacant: Vec<usize>,
    /// Shares that wait for a block, in the order in which they came.
    waiting: VecDeque<usize>,
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

/// Where a share stands that needs a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Turn {
    /// It needs none.
    #[default]
    None,
    /// It waits for one of its own blocks to come back.
    Own,
    /// It waits in the queue.
    Queued,
    /// A block is kept for it.
    Granted,
}

/// Says for which share a block was lent.
struct Account {
    queue: Arc<Queue>,
    index: usize,
}

impl SharedReceiveQueue {
    /// The name of a Receive that nobody posted, in the completion of a message in a block.
    pub const WR: WrId = WrId(u64::MAX);

    /// A queue of so many blocks, each of at least `block_size` bytes.
    pub fn new(blocks: usize, block_size: usize) -> Self {
        let most = blocks.saturating_mul(block_size);
        Self {
            queue: Arc::new(Queue {
                pool: Pool::new(most.min(SHARED_RECEIVE_KEEP)),
                blocks,
                block_size,
                state: Mutex::default(),
            }),
        }
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> usize {
        self.queue.blocks
    }

    /// Bytes of a block: of the largest message that is sure to fit.
    pub fn block_size(&self) -> usize {
        self.queue.block_size
    }

    /// What is lent.
    pub fn stats(&self) -> SharedReceiveStats {
        let state = self.queue.state();
        SharedReceiveStats {
            lent: state.lent + state.granted,
            waiting: state.waiting.len(),
            attached: state.shares.iter().filter(|share| share.attached).count(),
            most_lent: state.most_lent,
        }
    }

    /// A share of at most `most` blocks, for a queue pair. For providers.
    pub fn attach(&self, most: usize) -> ReceiveShare {
        let mut state = self.queue.state();
        let share = Share {
            attached: true,
            most,
            ..Share::default()
        };
        let index = match state.vacant.pop() {
            Some(index) => {
                state.shares[index] = share;
                index
            }
            None => {
                state.shares.push(share);
                state.shares.len() - 1
            }
        };
        drop(state);
        let queue = Arc::clone(&self.queue);
        let account = Arc::new(Account { queue, index });
        ReceiveShare {
            pool: self
                .queue
                .pool
                .lending(Arc::clone(&account) as Arc<dyn Lender>),
            account,
        }
    }
}

impl fmt::Debug for SharedReceiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReceiveQueue")
            .field("blocks", &self.queue.blocks)
            .field("block_size", &self.queue.block_size)
            .field("stats", &self.stats())
            .finish()
    }
}

impl ReceiveShare {
    /// Bytes of a block.
    pub fn block_size(&self) -> usize {
        self.account.queue.block_size
    }

    /// A block for a message that has begun to arrive.
    ///
    /// With `overdraw` there is one though all are lent, up to the end of this share: the way out
    /// for a queue pair that has to receive what stands behind this message before blocks can come
    /// back.
    ///
    /// # Errors
    ///
    /// Why there is none. [`poll_ready`](Self::poll_ready) waits for one.
    pub fn take(&self, overdraw: bool) -> Result<Buffer, NoBlock> {
        let Account { queue, index } = &*self.account;
        let mut state = queue.state();
        let State {
            shares,
            waiting,
            granted,
            lent,
            most_lent,
            ..
        } = &mut *state;
        let share = &mut shares[*index];
        if share.turn == Turn::Granted {
            *granted -= 1;
        } else if share.held >= share.most {
            return Err(NoBlock::ShareUsed);
        } else {
            // Those who wait come first.
            let free = waiting.is_empty() && *lent + *granted < queue.blocks;
            if !free && !overdraw {
                return Err(NoBlock::Empty);
            }
            if share.turn == Turn::Queued {
                waiting.retain(|other| other != index);
            }
        }
        share.turn = Turn::None;
        share.waker = None;
        share.held += 1;
        *lent += 1;
        *most_lent = (*most_lent).max(*lent);
        drop(state);
        Ok(self.pool.take(queue.block_size))
    }

    /// Waits until [`take`](Self::take) has a block. Those who wait are served in the order in which
    /// they came, and each block that comes back wakes one of them.
    pub fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        let Account { queue, index } = &*self.account;
        let mut state = queue.state();
        let State {
            shares,
            waiting,
            granted,
            lent,
            ..
        } = &mut *state;
        let share = &mut shares[*index];
        let free = waiting.is_empty() && *lent + *granted < queue.blocks;
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
                waiting.push_back(*index);
            }
        }
        let waker = &mut share.waker;
        match waker {
            Some(known) => known.clone_from(cx.waker()),
            None => *waker = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Blocks that this share has lent and that are not back.
    pub fn held(&self) -> usize {
        self.account.queue.state().shares[self.account.index].held
    }

    /// Needs no block any more: gives up its place in the queue, or the block that was kept for it.
    pub fn stop_waiting(&self) {
        let Account { queue, index } = &*self.account;
        let mut state = queue.state();
        state.stop_waiting(*index);
        let next = state.grant(queue.blocks);
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
        let Account { queue, index } = &*self.account;
        let mut state = queue.state();
        state.stop_waiting(*index);
        state.shares[*index].attached = false;
        state.vacate(*index);
        let next = state.grant(queue.blocks);
        drop(state);
        wake(next);
    }
}

impl Lender for Account {
    fn returned(&self) {
        let mut state = self.queue.state();
        state.lent -= 1;
        let share = &mut state.shares[self.index];
        share.held -= 1;
        let own = match share.turn {
            Turn::Own => {
                share.turn = Turn::None;
                share.waker.take()
            }
            Turn::None | Turn::Queued | Turn::Granted => None,
        };
        state.vacate(self.index);
        let next = state.grant(self.queue.blocks);
        drop(state);
        wake(own);
        wake(next);
    }
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Keeps a block for the first who waits, if there is one of each. Gives whom to wake.
    ///
    /// One is enough: whatever makes a block free calls this.
    fn grant(&mut self, blocks: usize) -> Option<Waker> {
        if self.lent + self.granted >= blocks {
            return None;
        }
        let index = self.waiting.pop_front()?;
        self.granted += 1;
        let share = &mut self.shares[index];
        share.turn = Turn::Granted;
        share.waker.take()
    }

    fn stop_waiting(&mut self, index: usize) {
        let share = &mut self.shares[index];
        share.waker = None;
        match std::mem::take(&mut share.turn) {
            Turn::None | Turn::Own => {}
            Turn::Queued => self.waiting.retain(|other| *other != index),
            Turn::Granted => self.granted -= 1,
        }
    }

    /// Forgets a share that nobody has any more, when its last block is back.
    fn vacate(&mut self, index: usize) {
        let share = &self.shares[index];
        if !share.attached && share.held == 0 {
            self.vacant.push(index);
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
    fn each_block_that_comes_back_goes_to_the_first_who_waits() {
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
    fn who_stops_waiting_leaves_its_block_to_the_next() {
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
    fn what_is_overdrawn_comes_back_before_others_are_served() {
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
            for _ in 0..8 {
                let share = queue.attach(2);
                scope.spawn(move || work(share));
            }
        });
        let stats = queue.stats();
        assert_eq!((stats.lent, stats.waiting, stats.attached), (0, 0, 0));
        assert!(stats.most_lent <= 3);
    }
}
