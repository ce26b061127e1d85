//! Small replies of one connection, some of which need no memory of the budget.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Largest size of a small reply in bytes: it comes inline.
pub(crate) const SMALL_REPLY: usize = 4096;

/// Bytes of a Receive of an RDMA upstream in which a reply comes, however small it is: the largest one.
pub(crate) const RECEIVE: usize = 32 << 10;

/// Bytes that a reply occupies beside its message until it is written.
pub(crate) const REPLY_COST: usize = 1024;

/// Small replies of one connection that need no lease, from the call until the reply is written. Those
/// of a client that reads seldom are more.
pub(crate) const SMALL_REPLIES: usize = 16;

/// Counter of the small replies of one connection that need no lease.
#[derive(Debug, Default)]
pub(crate) struct SmallReplies(Arc<AtomicUsize>);

/// A small reply that needs no lease, counted until it is dropped.
#[derive(Debug)]
pub(crate) struct SmallReply(Arc<AtomicUsize>);

impl SmallReplies {
    /// Counts a further one; `None` if there are as many as need no lease.
    pub(crate) fn take(&self) -> Option<SmallReply> {
        let more = |count| (count < SMALL_REPLIES).then_some(count + 1);
        let taken = self.0.fetch_update(Relaxed, Relaxed, more);
        taken.is_ok().then(|| SmallReply(Arc::clone(&self.0)))
    }
}

impl Drop for SmallReply {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_small_replies_of_a_connection_need_no_lease() {
        let replies = SmallReplies::default();
        let mut taken: Vec<_> = std::iter::from_fn(|| replies.take()).collect();
        assert_eq!(taken.len(), SMALL_REPLIES);
        taken.pop();
        assert!(replies.take().is_some(), "one is written");
    }
}
