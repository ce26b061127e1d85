//! A one-time event that any number of tasks can wait for.

use std::sync::Arc;
use tokio::sync::Semaphore;

/// A one-time event. Waiters are woken in the order in which they began to wait, so that a run in
/// virtual time is reproducible.
#[derive(Clone, Debug)]
pub(super) struct Stop(Arc<Semaphore>);

impl Stop {
    /// An event that has not happened.
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    /// Triggers the event.
    pub(super) fn set(&self) {
        self.0.close();
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.is_closed()
    }

    /// Waits for the event.
    pub(super) async fn wait(&self) {
        // There is never a permit: this ends with an error, or not at all.
        let _ = self.0.acquire().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[tokio::test]
    async fn those_who_wait_hear_of_it_in_the_order_in_which_they_began_to() {
        let stop = Stop::new();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..20 {
            let (stop, heard) = (stop.clone(), Arc::clone(&heard));
            tasks.spawn(async move {
                stop.wait().await;
                heard.lock().expect("no panic holds it").push(number);
            });
        }
        tokio::task::yield_now().await;
        assert!(!stop.is_set());
        stop.set();
        tasks.join_all().await;
        assert!(stop.is_set());
        let heard = heard.lock().expect("no panic holds it");
        assert!(heard.is_sorted() && heard.len() == 20);
    }
}
