//! Thread-local cache of small buffers.
//!
//! A small call takes and drops two or three buffers on one thread. Without the cache, the lock and
//! the reference count of the pool cost six atomic operations per buffer.

use crate::pool::Home;
use std::cell::RefCell;
use std::sync::Arc;

/// Sizes of buffers that a thread caches: those of small messages.
const SIZES: [usize; 2] = [4 << 10, 8 << 10];

/// Buffers of each size that one thread caches, enough for a batch of calls.
const EACH: usize = 64;

/// Largest number of bytes that one thread caches. A pool that keeps less than that is not cached.
pub(crate) const MOST: usize = EACH * (SIZES[0] + SIZES[1]);

/// Cached memory with its pool.
type Kept = (Box<[u8]>, Arc<Home>);

thread_local! {
    static NEAR: RefCell<Near> = const { RefCell::new(Near([Vec::new(), Vec::new()])) };
}

struct Near([Vec<Kept>; SIZES.len()]);

impl Near {
    fn flush(&mut self) {
        for (memory, home) in self.0.iter_mut().flat_map(|kept| kept.drain(..)) {
            home.take_back(memory);
        }
    }
}

impl Drop for Near {
    fn drop(&mut self) {
        self.flush();
    }
}

#[inline]
fn class_of(size: usize) -> Option<usize> {
    match size {
        size if size == SIZES[0] => Some(0),
        size if size == SIZES[1] => Some(1),
        _ => None,
    }
}

/// Takes memory of this size and pool from the cache of the thread, if it has any.
#[inline]
pub(crate) fn take(size: usize, home: &Arc<Home>) -> Option<Kept> {
    let class = class_of(size)?;
    let take = |near: &RefCell<Near>| {
        let near = &mut near.borrow_mut().0[class];
        // Usually the last one matches: others exist only if a thread uses several pools.
        if let Some(last) = near.pop_if(|(_, other)| Arc::ptr_eq(home, other)) {
            return Some(last);
        }
        let at = near
            .iter()
            .rposition(|(_, other)| Arc::ptr_eq(home, other))?;
        Some(near.swap_remove(at))
    };
    NEAR.try_with(take).ok().flatten()
}

/// Adds memory to the cache of the thread; returns the memory for which there is no room. That may
/// be memory of another pool that was evicted.
#[inline]
pub(crate) fn keep(memory: Box<[u8]>, home: Arc<Home>) -> Option<Kept> {
    let Some(class) = class_of(memory.len()) else {
        return Some((memory, home));
    };
    let mut kept = Some((memory, home));
    // A thread that is ending has no cache any more.
    let _ = NEAR.try_with(|near| {
        let near = &mut near.borrow_mut().0[class];
        let in_the_way = if near.len() == EACH { near.pop() } else { None };
        if let Some(kept) = std::mem::replace(&mut kept, in_the_way) {
            near.push(kept);
        }
    });
    kept
}

/// Returns all memory that this thread caches to its pools.
pub(crate) fn flush() {
    let _ = NEAR.try_with(|near| near.borrow_mut().flush());
}
