//! Work that is posted to the send queue of the device, and which of it is signalled.
//!
//! A device reports only what is signalled, and failures. Where it completes in order, what was posted before a
//! completion has completed too.

use std::collections::VecDeque;

/// Work requests from one that is signalled to the next, at most.
const SIGNAL_EVERY: usize = 16;

/// Work that is posted to the device, with all that it needs until it has completed.
pub(crate) struct SendQueue<T> {
    posted: VecDeque<Option<T>>,
    /// Number of the first entry.
    first: u64,
    depth: usize,
    /// Whether completions come in the order of posting. iWARP devices report a Read when its data has arrived, which
    /// may be behind what was posted later.
    in_order: bool,
    since_signal: usize,
}

impl<T> SendQueue<T> {
    pub(crate) fn new(depth: usize, in_order: bool) -> Self {
        Self {
            posted: VecDeque::new(),
            first: 0,
            depth,
            in_order,
            since_signal: 0,
        }
    }

    /// How many work requests there is room for.
    pub(crate) fn room(&self) -> usize {
        self.depth - self.posted.len()
    }

    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.posted.is_empty()
    }

    /// All work that has not completed.
    pub(crate) fn outstanding(&self) -> impl Iterator<Item = &T> {
        self.posted.iter().flatten()
    }

    /// Enters a work request, and gives its number.
    ///
    /// # Panics
    ///
    /// If there is no room.
    pub(crate) fn push(&mut self, work: T) -> u64 {
        assert!(self.room() > 0, "the caller asks for room first");
        self.posted.push_back(Some(work));
        self.first + self.posted.len() as u64 - 1
    }

    /// Whether the next work request has to be signalled. `wanted` says that its completion is needed, for instance
    /// because it is the last one for now.
    pub(crate) fn signal(&mut self, wanted: bool) -> bool {
        self.since_signal += 1;
        let signal = wanted || !self.in_order || self.since_signal >= SIGNAL_EVERY;
        if signal {
            self.since_signal = 0;
        }
        signal
    }

    /// Takes out what has completed with this completion: the entry itself last. Nothing, if the number is none of
    /// what is outstanding.
    pub(crate) fn complete(&mut self, number: u64) -> Vec<T> {
        let Some(at) = number
            .checked_sub(self.first)
            .and_then(|at| usize::try_from(at).ok())
            .filter(|at| *at < self.posted.len())
        else {
            return Vec::new();
        };
        let mut done = Vec::new();
        if self.in_order {
            done.extend(self.posted.drain(..=at).flatten());
            self.first += at as u64 + 1;
        } else {
            done.extend(self.posted[at].take());
            while let Some(None) = self.posted.front() {
                self.posted.pop_front();
                self.first += 1;
            }
        }
        done
    }

    /// Takes out everything, when the device will not report it any more.
    pub(crate) fn drain(&mut self) -> Vec<T> {
        self.first += self.posted.len() as u64;
        self.posted.drain(..).flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completion_stands_for_all_before_it_where_they_come_in_order() {
        let mut queue = SendQueue::new(4, true);
        let numbers: Vec<u64> = (0..4).map(|work| queue.push(work)).collect();
        assert_eq!(queue.room(), 0);
        assert_eq!(queue.complete(numbers[2]), [0, 1, 2]);
        assert_eq!(queue.complete(numbers[2]), [0; 0]);
        assert_eq!(queue.room(), 3);
        let next = queue.push(4);
        assert_eq!(queue.complete(next), [3, 4]);
        assert!(queue.is_empty());
    }

    #[test]
    fn completion_stands_for_itself_where_order_is_not_kept() {
        let mut queue = SendQueue::new(4, false);
        let numbers: Vec<u64> = (0..3).map(|work| queue.push(work)).collect();
        assert_eq!(queue.complete(numbers[1]), [1]);
        assert_eq!(queue.room(), 1);
        assert_eq!(queue.complete(numbers[1]), [0; 0]);
        assert_eq!(queue.complete(numbers[0]), [0]);
        assert_eq!(queue.room(), 3);
        assert_eq!(queue.outstanding().collect::<Vec<_>>(), [&2]);
    }

    #[test]
    fn number_that_is_not_outstanding_completes_nothing() {
        let mut queue = SendQueue::new(2, true);
        let number = queue.push("work");
        assert!(queue.complete(number + 1).is_empty());
        assert!(queue.complete(u64::MAX).is_empty());
        assert_eq!(queue.drain(), ["work"]);
        assert!(queue.complete(number).is_empty());
        assert_eq!(queue.push("more"), number + 1);
    }

    #[test]
    fn one_in_sixteen_is_signalled_and_each_that_is_wanted() {
        let mut queue: SendQueue<()> = SendQueue::new(1, true);
        let signalled: Vec<usize> = (1..=40)
            .filter(|number| queue.signal(*number == 20))
            .collect();
        assert_eq!(signalled, [16, 20, 36]);
        let mut queue: SendQueue<()> = SendQueue::new(1, false);
        assert!((0..3).all(|_| queue.signal(false)));
    }
}
