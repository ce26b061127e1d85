//! Requests of a server to its clients in version two: Receives as large as its replies (xcharext
//! §4.2).

use crate::driver::owner::Connection;
use rpcrdma_proto::v2::characteristics::{ReceiveBufferSize, ReceiveSize, XcharVal};
use rpcrdma_proto::v2::session::{Event, Settled};
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
    /// Bytes of those that it began with, or would not go below.
    least: Option<usize>,
    /// Bytes of those that it would not go beyond.
    most: usize,
    /// Since when its replies have been small.
    small_since: Instant,
}

impl Asking {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            next: now,
            least: None,
            most: usize::MAX,
            small_since: now,
        }
    }

    /// Asks for larger Receives if a reply has needed them, and for smaller ones if none does.
    pub(super) fn look(&mut self, now: Instant, connection: &mut Connection) {
        if now < self.next {
            return;
        }
        self.next = now + LOOK;
        let Some(session) = connection.session() else {
            return;
        };
        if !session.peer_has_characteristics() {
            return;
        }
        let size = session.peer::<ReceiveBufferSize>().bytes();
        while let Some(event) = connection.poll_characteristics() {
            self.note(size, &event);
        }
        let needed = connection.take_largest_reply();
        if let Some(wanted) = self.wanted(now, size, needed) {
            let wanted = XcharVal::of::<ReceiveBufferSize>(&wanted);
            // It may not take requests, or still be at the last one.
            let _ = connection.request_peer(vec![wanted]);
        }
    }

    /// Notes the outcome of a request, where the size is this now.
    fn note(&mut self, size: usize, event: &Event) {
        match event {
            // What was done shows in the size.
            Event::Settled {
                outcome: Settled::Done,
                ..
            }
            | Event::Wanted(_)
            | Event::PeerChanged(_) => {}
            Event::Settled {
                wanted,
                outcome: Settled::Rejected | Settled::Partly(_),
            } => match wanted.read::<ReceiveBufferSize>() {
                Ok(Some(wanted)) if wanted.bytes() > size => self.most = size,
                Ok(Some(_)) => self.least = Some(size),
                Ok(None) | Err(_) => {}
            },
        }
    }

    /// The size to ask for, given the present one and the bytes of the largest reply of late.
    fn wanted(&mut self, now: Instant, size: usize, needed: usize) -> Option<ReceiveSize> {
        let least = *self.least.get_or_insert(size);
        let least = least.max(ReceiveSize::DEFAULT.bytes());
        if needed * SMALL_PART > size {
            self.small_since = now;
        }
        let wanted = if needed > size && needed <= self.most {
            needed.next_power_of_two().min(self.most)
        } else if size > least && now >= self.small_since + SMALL_FOR {
            self.small_since = now;
            (size / 2).max(least)
        } else {
            return None;
        };
        ReceiveSize::new(u32::try_from(wanted).ok()?)
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
            assert_eq!(wanted.map(ReceiveSize::bytes), expected, "{after}");
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

    #[test]
    fn no_less_is_asked_for_than_the_client_began_with() {
        let start = Instant::now();
        let mut asking = Asking::new(start);
        assert_eq!(asking.wanted(start, 5000, 100), None);
        let later = start + SMALL_FOR;
        let wanted = asking.wanted(later, 8192, 100);
        assert_eq!(wanted.map(ReceiveSize::bytes), Some(5000));
    }

    /// A client had Receives of one size, was asked for another, and came to `size`.
    fn settled(asking: &mut Asking, wanted: u32, outcome: Settled, size: u32) {
        let wanted = ReceiveSize::new(wanted).expect("not too small");
        let wanted = XcharVal::of::<ReceiveBufferSize>(&wanted);
        asking.note(size as usize, &Event::Settled { wanted, outcome });
    }

    #[test]
    fn client_that_does_not_go_along_is_not_asked_again() {
        let start = Instant::now();
        let later = start + Duration::from_secs(100);
        let mut asking = Asking::new(start);
        let check = |asking: &mut Asking, size, needed, expected: Option<usize>| {
            let wanted = asking.wanted(later, size, needed);
            assert_eq!(wanted.map(ReceiveSize::bytes), expected, "{size} {needed}");
        };
        check(&mut asking, 8192, 10_000, Some(16_384));
        let value = ReceiveSize::new(12_300).expect("not too small");
        let partly = Settled::Partly(XcharVal::of::<ReceiveBufferSize>(&value));
        settled(&mut asking, 16_384, partly, 12_300);
        check(&mut asking, 12_300, 12_400, None);
        // What it has come to it may come to again.
        check(&mut asking, 8192, 12_290, Some(12_300));
        settled(&mut asking, 12_300, Settled::Rejected, 8192);
        check(&mut asking, 8192, 8193, None);
        // Nor is it asked for less than it goes down to.
        asking.small_since = start;
        check(&mut asking, 65_536, 100, Some(32_768));
        settled(&mut asking, 32_768, Settled::Rejected, 65_536);
        asking.small_since = start;
        check(&mut asking, 65_536, 100, None);
    }
}
