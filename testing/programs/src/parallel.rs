//! Work on several things at a time.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

/// Does something with each item, with `jobs` of them at a time, in their order.
pub fn each<T: Send>(
    jobs: NonZeroUsize,
    items: impl IntoIterator<Item = T>,
    work: impl Fn(T) + Sync,
) {
    let waiting: Mutex<VecDeque<T>> = Mutex::new(items.into_iter().collect());
    thread::scope(|scope| {
        for _ in 0..jobs.get() {
            scope.spawn(|| {
                // The lock is not held while there is work.
                let next = || lock(&waiting).pop_front();
                while let Some(item) = next() {
                    work(item);
                }
            });
        }
    });
}

/// As many as there are CPUs for this process.
pub fn one_for_each_cpu() -> NonZeroUsize {
    thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

/// Takes a lock, also after a thread that held it panicked.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_item_is_worked_on_once() {
        let done = Mutex::new(Vec::new());
        let jobs = NonZeroUsize::new(3).unwrap();
        each(jobs, 0..10, |item| lock(&done).push(item));
        let mut done = done.into_inner().unwrap();
        done.sort_unstable();
        assert_eq!(done, Vec::from_iter(0..10));
    }
}
