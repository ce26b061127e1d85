//! The last questions to a thread, with their answers: one that comes again is compared, and not answered anew.
//!
//! An answer is taken only for an equal question, so a question has in it all that the answer depends on. What can change is in it
//! by a number that a change raises: then older answers are found no more.

use std::cell::RefCell;

/// Questions that are remembered: 2 to the power of this.
const BITS: u32 = 4;

/// The last questions of a thread, a few, with their answers. Of those with the same place, the last one is remembered.
pub(crate) struct Recent<Q, A>(RefCell<[Option<(Q, A)>; 1 << BITS]>);

impl<Q, A: Copy> Recent<Q, A> {
    pub(crate) const fn new() -> Self {
        Self(RefCell::new([const { None }; 1 << BITS]))
    }

    /// Returns the answer to the question that `is_asked` finds equal, if it is remembered. Questions that come in turn should have
    /// different numbers.
    #[inline]
    pub(crate) fn answer(&self, number: u64, is_asked: impl FnOnce(&Q) -> bool) -> Option<A> {
        match &self.0.borrow()[place(number)] {
            Some((question, answer)) if is_asked(question) => Some(*answer),
            Some(_) | None => None,
        }
    }

    /// Remembers the answer to a question.
    pub(crate) fn remember(&self, number: u64, question: Q, answer: A) {
        self.0.borrow_mut()[place(number)] = Some((question, answer));
    }
}

/// Returns the place of a question with this number.
#[inline]
fn place(number: u64) -> usize {
    // Multiplies by the golden ratio: the highest bits depend on all others.
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - BITS)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_is_that_to_an_equal_question_only() {
        let recent = Recent::new();
        for question in 0..1000_u64 {
            // Many have the same number.
            let number = question % 7;
            assert_eq!(recent.answer(number, |other| *other == question), None);
            recent.remember(number, question, question + 1);
            assert_eq!(
                recent.answer(number, |other| *other == question),
                Some(question + 1)
            );
        }
    }

    #[test]
    fn numbers_in_a_row_have_different_places() {
        let places: std::collections::HashSet<_> = (0..8).map(place).collect();
        assert!(places.len() > 6, "{places:?}");
    }
}
