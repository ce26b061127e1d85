//! Receives that are posted. They are used in the order in which they were posted, and those of one
//! connection need not all have the same size.

use smallvec::SmallVec;

/// How many Receives are posted, and how large they are.
#[derive(Debug, Default)]
pub(crate) struct Receives {
    /// Octets and number, the oldest first; neighbours differ in size.
    generations: SmallVec<[(usize, usize); 2]>,
    posted: usize,
}

impl Receives {
    pub(crate) fn new(posted: usize, octets: usize) -> Self {
        Self {
            generations: SmallVec::from_elem((octets, posted), 1),
            posted,
        }
    }

    /// How many are posted.
    pub(crate) fn posted(&self) -> usize {
        self.posted
    }

    /// One more was posted.
    pub(crate) fn post(&mut self, octets: usize) {
        self.posted += 1;
        match self.generations.last_mut() {
            Some((size, many)) if *size == octets => *many += 1,
            _ => self.generations.push((octets, 1)),
        }
    }

    /// The oldest was used. One of the last size stays in the list, even if it is none.
    pub(crate) fn used(&mut self) {
        self.posted -= 1;
        let (_, many) = &mut self.generations[0];
        *many -= 1;
        if *many == 0 && self.generations.len() > 1 {
            self.generations.remove(0);
        }
    }

    /// Octets of the smallest one.
    pub(crate) fn smallest(&self) -> usize {
        let posted = self.generations.iter().filter(|(_, many)| *many > 0);
        let sizes = posted.map(|&(octets, _)| octets);
        sizes.min().unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receives_are_used_in_the_order_in_which_they_were_posted() {
        let mut receives = Receives::new(2, 4096);
        receives.post(8192);
        assert_eq!((receives.posted(), receives.smallest()), (3, 4096));
        receives.used();
        receives.post(1024);
        receives.used();
        assert_eq!((receives.posted(), receives.smallest()), (2, 1024));
        receives.used();
        receives.used();
        assert_eq!((receives.posted(), receives.smallest()), (0, usize::MAX));
        receives.post(2048);
        assert_eq!(receives.smallest(), 2048);
    }
}
