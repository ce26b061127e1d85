//! Source, number and size of the Receives of a connection.

use smallvec::SmallVec;

/// Source of the Receives of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Receives {
    /// The connection posts them, one for each message that may come (RFC 8166 §3.3.1).
    #[default]
    Posted,
    /// A shared receive queue holds them. The connection neither posts nor counts Receives.
    Shared {
        /// Size of each Receive in bytes, which is the upper limit of the size announced to the
        /// peer.
        size: usize,
    },
}

/// The Receives of one connection.
#[derive(Debug)]
pub(crate) enum ReceiveQueue {
    Posted(Posted),
    Shared { size: usize },
}

/// Posted Receives. They are used in order, and differ in size after a change of the Receive size.
#[derive(Debug, Default)]
pub(crate) struct Posted {
    /// Generations as size and number, the oldest first; neighbours differ in size.
    generations: SmallVec<[(usize, usize); 2]>,
    count: usize,
}

impl ReceiveQueue {
    /// Creates the queue of a new connection, with `posted` Receives of `size` bytes unless the
    /// Receives are shared.
    pub(crate) fn new(source: Receives, posted: usize, size: usize) -> Self {
        match source {
            Receives::Posted => Self::Posted(Posted::new(posted, size)),
            Receives::Shared { size } => Self::Shared { size },
        }
    }

    /// Returns how many to post so that `needed` are posted, and counts them as posted, `size`
    /// bytes each.
    pub(crate) fn post_up_to(&mut self, needed: usize, size: usize) -> usize {
        match self {
            Self::Posted(posted) => {
                let missing = needed.saturating_sub(posted.count);
                if missing > 0 {
                    posted.post(missing, size);
                }
                missing
            }
            Self::Shared { .. } => 0,
        }
    }

    /// Returns the number of posted Receives; 0 if they are shared.
    pub(crate) fn posted(&self) -> usize {
        match self {
            Self::Posted(posted) => posted.count,
            Self::Shared { .. } => 0,
        }
    }

    /// Records that a message used the oldest Receive.
    pub(crate) fn use_one(&mut self) {
        match self {
            Self::Posted(posted) => posted.use_one(),
            Self::Shared { .. } => {}
        }
    }

    /// Returns the size of the smallest Receive that a message may use, in bytes.
    pub(crate) fn smallest(&self) -> usize {
        match self {
            Self::Posted(posted) => posted.smallest(),
            Self::Shared { size } => *size,
        }
    }
}

impl Posted {
    fn new(count: usize, size: usize) -> Self {
        Self {
            generations: SmallVec::from_elem((size, count), 1),
            count,
        }
    }

    fn post(&mut self, many: usize, size: usize) {
        self.count += many;
        match self.generations.last_mut() {
            Some((last, count)) if *last == size => *count += many,
            _ => self.generations.push((size, many)),
        }
    }

    /// One generation stays in the list, even if nothing of it is left.
    fn use_one(&mut self) {
        self.count -= 1;
        let (_, count) = &mut self.generations[0];
        *count -= 1;
        if *count == 0 && self.generations.len() > 1 {
            self.generations.remove(0);
        }
    }

    fn smallest(&self) -> usize {
        let posted = self.generations.iter().filter(|(_, count)| *count > 0);
        let sizes = posted.map(|&(size, _)| size);
        sizes.min().unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receives_are_used_in_the_order_in_which_they_were_posted() {
        let mut receives = ReceiveQueue::new(Receives::Posted, 2, 4096);
        assert_eq!(receives.post_up_to(3, 8192), 1);
        assert_eq!(receives.post_up_to(3, 8192), 0);
        assert_eq!(receives.smallest(), 4096);
        receives.use_one();
        assert_eq!(receives.post_up_to(3, 1024), 1);
        receives.use_one();
        assert_eq!(receives.smallest(), 1024, "those of 4096 are used");
        receives.use_one();
        receives.use_one();
        assert_eq!(receives.smallest(), usize::MAX, "none is left");
        assert_eq!(receives.post_up_to(1, 2048), 1);
        assert_eq!(receives.smallest(), 2048);
    }

    #[test]
    fn shared_receives_are_neither_posted_nor_counted() {
        let mut receives = ReceiveQueue::new(Receives::Shared { size: 8192 }, 2, 4096);
        assert_eq!(receives.post_up_to(1000, 4096), 0);
        (0..10).for_each(|_| receives.use_one());
        assert_eq!(receives.smallest(), 8192);
    }
}
