//! A value that another thread brings.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// A value that another thread brings, for one task that waits. Clones share it.
pub(super) struct Later<T>(Arc<Mutex<State<T>>>);

enum State<T> {
    Awaited(Option<Waker>),
    There(Option<T>),
}

impl<T> Clone for Later<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Later<T> {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(State::Awaited(None))))
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Brings the value, once, and wakes the task that waits.
    pub(super) fn bring(&self, value: T) {
        let before = std::mem::replace(&mut *self.lock(), State::There(Some(value)));
        if let State::Awaited(waker) = before {
            waker.into_iter().for_each(Waker::wake);
        }
    }

    /// Takes the value, or registers the task to be woken by it. It is taken once.
    pub(super) fn poll(&self, cx: &Context<'_>) -> Poll<T> {
        match &mut *self.lock() {
            State::There(value) => value.take().map_or(Poll::Pending, Poll::Ready),
            State::Awaited(waker) => {
                *waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}
