//! What a server asks its clients for where version two is spoken: Receives that its replies fit
//! (xcharext §4.2).

use rpcrdma_proto::v2::characteristics::{ReceiveBufferSize, ReceiveSize, XcharVal};
use rpcrdma_proto::{Connection, InlineSize};
use std::time::{Duration, Instant};

/// How often it is looked at, at most.
const LOOK: Duration = Duration::from_secs(1);

/// How long replies have to be small before smaller Receives are asked for.
const SMALL_FOR: Duration = Duration::from_secs(30);

/// Replies are small that are no larger than such a part of what the client receives.
const SMALL_PART: usize = 4;

/// The Receives of one client.
#[derive(Debug)]
pub(super) struct Asking {
    /// When to look again.
    next: Instant,
    /// Octets of those that it began with.
    first: Option<usize>,
    /// Since when its replies have been small.
    small_since: Instant,
}

impl Asking {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            next: now,
            first: None,
            small_since: now,
        }
    }

    /// Asks for larger Receives if a reply has needed them, and for smaller ones if none does.
    pub(super) fn look(&mut self, now: Instant, connection: &mut Connection) {
        if now < self.next {
            return;
        }
        self.next = now + LOOK;
        // What became of it shows in the size.
        while connection.poll_characteristics().is_some() {}
        let Some(session) = connection.session() else {
            return;
        };
        if !session.peer_has_characteristics() {
            return;
        }
        let size = session.peer::<ReceiveBufferSize>().octets();
        let needed = connection.take_largest_reply();
        if let Some(wanted) = self.wanted(now, size, needed) {
            let wanted = XcharVal::of::<ReceiveBufferSize>(&wanted);
            // It may not take requests, or still be at the last one.
            let _ = connection.request_peer(vec![wanted]);
        }
    }

    /// The size to ask for, given the present one and the octets of the largest reply of late.
    fn wanted(&mut self, now: Instant, size: usize, needed: usize) -> Option<ReceiveSize> {
        let first = *self.first.get_or_insert(size);
        if needed * SMALL_PART > size {
            self.small_since = now;
        }
        let wanted = if needed > size {
            needed.next_power_of_two()
        } else if size > first && now >= self.small_since + SMALL_FOR {
            self.small_since = now;
            (size / 2).max(first)
        } else {
            return None;
        };
        Some(InlineSize::at_most(wanted).max(InlineSize::DEFAULT).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_follows_the_replies_up_at_once_and_down_after_a_while() {
        let start = Instant::now();
        let mut asking = Asking::new(start);
        let mut check = |after, size, needed, expected: Option<usize>| {
            let now = start + Duration::from_secs(after);
            let wanted = asking.wanted(now, size, needed);
            assert_eq!(wanted.map(ReceiveSize::octets), expected, "{after}");
        };
        check(0, 8192, 8192, None);
        check(1, 8192, 8193, Some(16_384));
        check(2, 16_384, 20_000, Some(32_768));
        check(31, 32_768, 8193, None);
        check(60, 32_768, 8192, None);
        check(61, 32_768, 100, Some(16_384));
        check(90, 16_384, 100, None);
        check(91, 16_384, 0, Some(8192));
        check(200, 8192, 0, None);
    }
}
