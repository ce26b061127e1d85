//! Credits that count messages (ietf-07 §4.2.1): each end says which message of the peer is the last
//! that it has a Receive for.

use buffer::Buffer;

/// Octets of a header that hold `rdma_credit`.
const CREDITS: std::ops::Range<usize> = 8..12;

/// Credits of both directions of a connection. Every Send counts, whatever it carries.
///
/// The draft has a header say "Sent message count" plus the credits, which compares two directions
/// with each other; it can only be the *received* count. And it permits a message while the sent
/// count is not *greater* than the peer's value, which is one too many at the beginning (§4.3).
#[derive(Debug)]
pub(crate) struct MessageCredits {
    /// Sends posted on the connection, modulo 2^32.
    sent: u32,
    /// Receives completed on the connection, modulo 2^32.
    received: u32,
    /// The number of the last message that the peer accepts: its latest `rdma_credit`.
    limit: u32,
    /// The number of the last message of the peer that it was told is accepted.
    told: u32,
    /// The same before the last message was posted.
    told_before: u32,
}

impl MessageCredits {
    /// Those of a new connection: the first message of each end needs no grant (§4.2.1).
    pub(crate) fn new() -> Self {
        Self {
            sent: 0,
            received: 0,
            limit: 1,
            told: 1,
            told_before: 1,
        }
    }

    /// Returns how many messages may be sent now.
    pub(crate) fn room(&self) -> u32 {
        distance(self.limit, self.sent)
    }

    /// Returns the number of messages sent, modulo 2^32.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.into()
    }

    /// Returns how many messages the peer may send, as far as it was told.
    pub(crate) fn left_to_peer(&self) -> u32 {
        distance(self.told, self.received)
    }

    /// Records that a message has arrived.
    pub(crate) fn handle_message(&mut self) {
        self.received = self.received.wrapping_add(1);
    }

    /// Handles the credits in a message of the peer. They may be fewer than before.
    pub(crate) fn handle_credits(&mut self, credits: u32) {
        self.limit = credits;
    }

    /// Stamps a message that is posted now, with `window` messages that the peer may have
    /// outstanding. Returns false, and does nothing, if the peer accepts no message.
    pub(crate) fn stamp(&mut self, message: &mut Buffer, window: u32) -> bool {
        if self.room() == 0 {
            return false;
        }
        self.count(message, window);
        true
    }

    /// Whether a message that carries nothing but credits is due: the peer has used up more than
    /// half of what it may send (§4.2.1.1). It may be sent beyond the peer's limit, which has a
    /// Receive for one; the next one only once the peer has said more. `within` a message in parts it
    /// is due only when the peer can send nothing: by the letter of §6.3.6 it interrupts that message.
    pub(crate) fn grant_is_due(&self, window: u32, within: bool) -> bool {
        let least = match within {
            true => window.min(1),
            false => window.div_ceil(2),
        };
        self.left_to_peer() < least && self.sent.wrapping_sub(self.limit) as i32 <= 0
    }

    /// Stamps a message that carries nothing but credits.
    pub(crate) fn stamp_grant(&mut self, message: &mut Buffer, window: u32) {
        self.count(message, window);
    }

    /// Takes back that the last message was posted.
    pub(crate) fn handle_refused(&mut self) {
        self.sent = self.sent.wrapping_sub(1);
        self.told = self.told_before;
    }

    fn count(&mut self, message: &mut Buffer, window: u32) {
        self.sent = self.sent.wrapping_add(1);
        self.told_before = self.told;
        // Never less than before: the peer may have sent as much, and could then not even say more. Its
        // Receives are there.
        let told = self.received.wrapping_add(window);
        if distance(told, self.told) > 0 {
            self.told = told;
        }
        message[CREDITS].copy_from_slice(&self.told.to_be_bytes());
    }
}

/// Returns how far `end` is ahead of `count`; zero if it is behind. Both wrap around, and differ by
/// less than 2^31 (§4.2.1).
fn distance(end: u32, count: u32) -> u32 {
    match end.wrapping_sub(count) {
        ahead if ahead < 1 << 31 => ahead,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message() -> Buffer {
        let mut message = Buffer::default();
        message.extend_from_slice(&[0; 16]);
        message
    }

    fn credits(message: &Buffer) -> u32 {
        u32::from_be_bytes(message[CREDITS].try_into().expect("a word"))
    }

    #[test]
    fn first_message_needs_no_grant_and_the_second_does() {
        let mut credits = MessageCredits::new();
        assert!(credits.stamp(&mut message(), 8));
        assert!(!credits.stamp(&mut message(), 8));
        credits.handle_credits(3);
        assert!(credits.stamp(&mut message(), 8) && credits.stamp(&mut message(), 8));
        assert!(!credits.stamp(&mut message(), 8));
    }

    #[test]
    fn grant_counts_as_every_message_does() {
        let mut credits = MessageCredits::new();
        credits.handle_credits(3);
        assert!(credits.stamp(&mut message(), 8));
        credits.stamp_grant(&mut message(), 8);
        assert_eq!((credits.sent(), credits.room()), (2, 1));
        assert!(credits.stamp(&mut message(), 8));
        assert!(!credits.stamp(&mut message(), 8));
    }

    #[test]
    fn header_says_which_message_of_the_peer_is_the_last() {
        let mut ours = MessageCredits::new();
        ours.handle_credits(100);
        for _ in 0..5 {
            ours.handle_message();
        }
        let mut sent = message();
        assert!(ours.stamp(&mut sent, 8));
        assert_eq!(credits(&sent), 13);
        assert_eq!(ours.left_to_peer(), 8);
    }

    #[test]
    fn counts_wrap_around() {
        let mut credits = MessageCredits::new();
        (credits.sent, credits.received) = (u32::MAX, u32::MAX);
        credits.handle_credits(1);
        assert_eq!(credits.room(), 2);
        assert!(credits.stamp(&mut message(), 3));
        assert_eq!((credits.sent, credits.told, credits.room()), (0, 2, 1));
    }

    #[test]
    fn lower_credits_stop_messages_and_are_no_huge_number() {
        let mut credits = MessageCredits::new();
        credits.handle_credits(10);
        for _ in 0..5 {
            assert!(credits.stamp(&mut message(), 8));
        }
        credits.handle_credits(3);
        assert_eq!(credits.room(), 0);
    }

    #[test]
    fn one_grant_goes_beyond_the_limit_and_no_second() {
        let mut credits = MessageCredits::new();
        assert!(credits.stamp(&mut message(), 8));
        for _ in 0..8 {
            credits.handle_message();
        }
        assert!(credits.grant_is_due(8, false));
        credits.stamp_grant(&mut message(), 8);
        for _ in 0..8 {
            credits.handle_message();
        }
        assert!(
            !credits.grant_is_due(8, false),
            "the peer has no Receive for it"
        );
        credits.handle_credits(2);
        assert!(credits.grant_is_due(8, false));
    }

    #[test]
    fn grant_within_a_message_waits_until_the_peer_can_send_nothing() {
        let mut credits = MessageCredits::new();
        assert!(credits.stamp(&mut message(), 8));
        for _ in 0..7 {
            credits.handle_message();
            assert!(!credits.grant_is_due(8, true));
        }
        assert!(credits.grant_is_due(8, false));
        credits.handle_message();
        assert!(credits.grant_is_due(8, true));
    }

    proptest! {
        /// Two ends with grants of any size, one Receive more than granted: none is ever missing,
        /// and no message waits for ever.
        #[test]
        fn messages_find_receives_and_none_waits_for_ever(
            windows in [1..9_u32, 1..9_u32],
            steps in prop::collection::vec((0..2_usize, any::<bool>(), any::<bool>()), 1..200),
        ) {
            let mut ends = [MessageCredits::new(), MessageCredits::new()];
            let mut waiting = [0_u32; 2];
            let mut line: [std::collections::VecDeque<u32>; 2] = Default::default();
            let rest = (0..2000).map(|n| (n % 2, false, n % 4 < 2));
            for (end, is_new, delivers) in steps.into_iter().chain(rest) {
                waiting[end] += u32::from(is_new);
                let mut sent = message();
                // As many as it has told of are posted again at once, and one for credits alone.
                let mut posted = ends[1 - end].told.wrapping_sub(ends[1 - end].received);
                if waiting[end] > 0 && ends[end].stamp(&mut sent, windows[end]) {
                    waiting[end] -= 1;
                    line[end].push_back(credits(&sent));
                } else if ends[end].grant_is_due(windows[end], false) {
                    ends[end].stamp_grant(&mut sent, windows[end]);
                    line[end].push_back(credits(&sent));
                    posted = posted.wrapping_add(1);
                } else {
                    posted = u32::MAX;
                }
                prop_assert!(line[end].len() <= posted as usize, "a message finds no Receive");
                let other = 1 - end;
                while let Some(told) = line[end].pop_front_if(|_| delivers) {
                    ends[other].handle_message();
                    ends[other].handle_credits(told);
                }
            }
            prop_assert_eq!(waiting, [0, 0]);
        }
    }
}
