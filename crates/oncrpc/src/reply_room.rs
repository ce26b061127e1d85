//! The largest reply that a transport can carry.

use crate::ReplyBound;

/// Capacity for the reply to one call: the size of the message itself, and of each chunk that the
/// call offers for a result (RFC 8166 §3.4.6).
///
/// A service can check it first, to avoid work whose results could not be returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyRoom {
    message: usize,
    results: [u32; Self::MAX_RESULTS],
}

/// Marks a result without its own chunk, which is part of the message.
const IN_MESSAGE: u32 = u32::MAX;

impl ReplyRoom {
    /// Largest number of results with chunks of their own.
    pub const MAX_RESULTS: usize = 16;

    /// Room for a reply of any size, as over TCP.
    pub const UNLIMITED: Self = Self {
        message: usize::MAX,
        results: [IN_MESSAGE; Self::MAX_RESULTS],
    };

    /// Room for a message of `bytes` bytes, counted from its XID: the larger of what fits inline
    /// and what fits the Reply chunk.
    pub fn of_message(bytes: usize) -> Self {
        Self {
            message: bytes,
            ..Self::UNLIMITED
        }
    }

    /// Adds chunks for results, in the order of the results: the bytes of each chunk, or `None`
    /// where the result is part of the message. Chunks beyond [`MAX_RESULTS`](Self::MAX_RESULTS)
    /// are ignored.
    #[must_use]
    pub fn with_chunks(mut self, chunks: impl IntoIterator<Item = Option<u64>>) -> Self {
        for (result, chunk) in self.results.iter_mut().zip(chunks) {
            *result = match chunk {
                Some(bytes) => {
                    u32::try_from(bytes).map_or(IN_MESSAGE - 1, |b| b.min(IN_MESSAGE - 1))
                }
                None => IN_MESSAGE,
            };
        }
        self
    }

    /// Largest size in bytes of the message itself, without the results that have chunks of their own.
    pub fn message(&self) -> usize {
        self.message
    }

    /// Whether a result has a chunk of its own.
    pub fn has_chunks(&self) -> bool {
        self.results.iter().any(|&result| result != IN_MESSAGE)
    }

    /// Largest size in bytes of a reply that can be returned, with all of its results.
    pub fn largest(&self) -> usize {
        let chunks = self.results.iter().filter(|&&result| result != IN_MESSAGE);
        chunks.fold(self.message, |sum, &chunk| {
            // RFC 4506 §3: items are padded to words.
            sum.saturating_add(chunk as usize).saturating_add(3)
        })
    }

    /// Whether a reply within this bound can be returned.
    pub fn carries(&self, reply: &ReplyBound) -> bool {
        let mut message = reply.fixed;
        for (index, &len) in reply.results.iter().enumerate() {
            match self.results.get(index) {
                Some(&IN_MESSAGE) | None => {
                    // RFC 4506 §3: items are padded to words.
                    let padded = len.checked_next_multiple_of(4).unwrap_or(usize::MAX);
                    message = message.saturating_add(padded);
                }
                Some(&chunk) if len > chunk as usize => return false,
                Some(_) => {}
            }
        }
        message <= self.message
    }
}

impl Default for ReplyRoom {
    fn default() -> Self {
        Self::UNLIMITED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(room: ReplyRoom, fixed: usize, results: &[usize], carried: bool) {
        let results = results.iter().copied().collect();
        let bound = ReplyBound { fixed, results };
        assert_eq!(room.carries(&bound), carried, "{room:?} {bound:?}");
    }

    #[test]
    fn reply_without_chunks_is_carried_up_to_the_size_of_the_message() {
        let room = ReplyRoom::of_message(1000);
        check(room, 1000, &[], true);
        check(room, 1001, &[], false);
        check(room, 100, &[899], true);
        check(room, 100, &[901], false);
        check(room, 101, &[897], false);
        check(ReplyRoom::UNLIMITED, 1 << 40, &[1 << 40, usize::MAX], true);
    }

    #[test]
    fn result_with_a_chunk_has_to_fit_it_however_large_the_message() {
        let room = ReplyRoom::of_message(1000).with_chunks([Some(5000), None, Some(0)]);
        check(room, 1000, &[5000], true);
        check(room, 100, &[5001], false);
        check(room, 100, &[5000, 900, 0], true);
        check(room, 100, &[5000, 901, 0], false);
        check(room, 100, &[5000, 0, 1], false);
        check(room, 100, &[0, 0, 0, 900], true);
        let huge = ReplyRoom::of_message(1000).with_chunks([Some(u64::MAX)]);
        check(huge, 100, &[1 << 30], true);
    }

    #[test]
    fn no_larger_reply_is_carried_than_the_largest() {
        assert_eq!(ReplyRoom::of_message(1000).largest(), 1000);
        assert_eq!(ReplyRoom::UNLIMITED.largest(), usize::MAX);
        let room = ReplyRoom::of_message(1000).with_chunks([Some(5001), None, Some(0)]);
        check(room, 1000, &[5001], true);
        assert_eq!(
            (room.message(), room.largest()),
            (1000, 1000 + 5001 + 3 + 3)
        );
    }

    #[test]
    fn results_beyond_the_known_chunks_have_no_chunk() {
        let room = ReplyRoom::of_message(10).with_chunks([Some(5); ReplyRoom::MAX_RESULTS + 1]);
        check(room, 10, &[5; ReplyRoom::MAX_RESULTS], true);
        check(room, 10, &[5; ReplyRoom::MAX_RESULTS + 1], false);
    }
}
