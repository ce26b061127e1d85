//! Memory budget for the results of calls to clients, on all connections of a server together.
//!
//! A call whose results come in chunks registers memory for them. The memory stays registered until
//! the client has replied or the connection has ended, even if the caller gave the call up.

use oncrpc::{ReplyBound, TransportError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A budget of bytes. Calls wait for it first come, first served.
#[derive(Clone, Debug)]
pub(super) struct BackwardMemory {
    bytes: usize,
    left: Arc<Semaphore>,
}

/// Memory of calls on one connection that ended without a reply.
#[derive(Debug)]
pub(super) struct Kept(Mutex<State>);

#[derive(Debug)]
enum State {
    Connected(Option<OwnedSemaphorePermit>),
    Over,
}

impl BackwardMemory {
    pub(super) fn new(bytes: usize) -> Self {
        let bytes = bytes.min(Semaphore::MAX_PERMITS);
        Self {
            bytes,
            left: Arc::new(Semaphore::new(bytes)),
        }
    }

    /// Waits for the memory that the results of a call need; `None` for a call without such
    /// results.
    pub(super) async fn take(
        &self,
        bound: &ReplyBound,
        timeout: Duration,
    ) -> Result<Option<OwnedSemaphorePermit>, TransportError> {
        let len = bound
            .results
            .iter()
            .fold(0, |sum: usize, &len| sum.saturating_add(len));
        if len == 0 {
            return Ok(None);
        }
        let limit = self.bytes;
        let permits = u32::try_from(len).ok().filter(|_| len <= limit);
        let permits = permits.ok_or(TransportError::TooLarge { len, limit })?;
        let taken = Arc::clone(&self.left).acquire_many_owned(permits);
        let taken = tokio::time::timeout(timeout, taken).await;
        let taken = taken.map_err(|_| TransportError::TimedOut(timeout))?;
        Ok(Some(taken.expect("the semaphore is never closed")))
    }
}

impl Default for Kept {
    fn default() -> Self {
        Self(Mutex::new(State::Connected(None)))
    }
}

impl Kept {
    /// Keeps the memory of a call that ended without a reply. Returns whether the connection, on
    /// which it may be registered, still exists.
    pub(super) fn keep(&self, memory: OwnedSemaphorePermit) -> bool {
        match &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Connected(Some(kept)) => kept.merge(memory),
            State::Connected(kept @ None) => *kept = Some(memory),
            State::Over => return false,
        }
        true
    }

    /// Returns the kept memory to the budget: nothing is registered any more.
    pub(super) fn release(&self) {
        if let State::Connected(kept) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)
        {
            drop(kept.take());
        }
    }

    /// Returns the kept memory to the budget, now and from then on: the connection has ended.
    pub(super) fn end(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = State::Over;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    fn results(results: &[usize]) -> ReplyBound {
        ReplyBound {
            fixed: 100,
            results: results.iter().copied().collect(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn call_waits_for_memory_and_no_longer_than_it_may() {
        let memory = BackwardMemory::new(1000);
        let take = |bound: ReplyBound| {
            let memory = memory.clone();
            async move { memory.take(&bound, TIMEOUT).await }
        };
        let first = take(results(&[400, 300])).await.expect("there is enough");
        assert!(take(results(&[])).await.expect("it needs none").is_none());
        let refused = take(results(&[301])).await.err();
        assert_eq!(refused, Some(TransportError::TimedOut(TIMEOUT)));
        let waiting = tokio::spawn(take(results(&[1000])));
        tokio::task::yield_now().await;
        drop(first);
        assert!(waiting.await.expect("no panic").is_ok());
        let (len, limit) = (1001, 1000);
        let refused = take(results(&[1001])).await.err();
        assert_eq!(refused, Some(TransportError::TooLarge { len, limit }));
        let refused = take(results(&[usize::MAX, 1])).await.err();
        assert!(matches!(refused, Some(TransportError::TooLarge { .. })));
    }

    #[tokio::test(start_paused = true)]
    async fn memory_of_calls_without_a_reply_is_kept_until_nothing_is_registered() {
        let memory = BackwardMemory::new(1000);
        let kept = Kept::default();
        for _ in 0..2 {
            let taken = memory.take(&results(&[500]), TIMEOUT).await;
            assert!(kept.keep(taken.expect("there is enough").expect("it needs some")));
        }
        assert_eq!(memory.left.available_permits(), 0);
        kept.release();
        assert_eq!(memory.left.available_permits(), 1000);
        let taken = memory.take(&results(&[500]), TIMEOUT).await;
        let taken = taken.expect("there is enough").expect("it needs some");
        kept.end();
        assert!(!kept.keep(taken));
        assert_eq!(memory.left.available_permits(), 1000);
    }
}
