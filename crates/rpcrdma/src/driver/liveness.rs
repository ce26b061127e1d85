//! Watches a quiet connection: liveness of the peer, the first-reply timeout and the idle timer.
//! Plain values; the caller passes in the time.

use crate::driver::calls::CallHandle;
use crate::driver::owner::CallRequest;
use oncrpc::xdr;
use oncrpc::{Credential, MAX_REPLY_HEADER, Procedure, ReplyBound, write_call};
use rpcrdma_proto::Counters;
use std::time::{Duration, Instant};

/// Creates a call of procedure NULL of a program. Any reply counts, also that the peer lacks the
/// program.
pub(crate) fn null_call(xid: u32, (prog, vers): (u32, u32)) -> CallRequest {
    let mut w = xdr::Writer::default();
    let proc = 0;
    write_call(
        &mut w,
        xid,
        Procedure { prog, vers, proc },
        &Credential::None,
    );
    let bound = ReplyBound {
        fixed: MAX_REPLY_HEADER,
        ..ReplyBound::default()
    };
    CallRequest::new(CallHandle::of_nobody(), w.finish(), bound)
}

/// Returns the number of messages of the peer so far that prove that it is alive.
pub(crate) fn heard(counters: &Counters) -> u64 {
    counters.replies_received
        + counters.errors_received
        + counters.bad_replies
        + counters.unknown_replies
        + counters.calls_received
}

/// Liveness of a peer that has gone silent (RFC 8267 §6.7.2).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Liveness {
    after: Duration,
    within: Duration,
    heard: u64,
    /// Start of the peer's silence, while it is expected to send.
    since: Instant,
    asked: Option<Instant>,
}

/// State of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    /// The peer has sent something lately, or owes nothing.
    Well,
    /// The peer has been silent for too long: send a probe.
    Ask,
    /// The peer has not answered the probe for this long.
    Silent(Duration),
}

impl Liveness {
    /// Creates a probe `after` this much silence, which the peer must answer `within` that time.
    pub(crate) fn new(now: Instant, after: Duration, within: Duration) -> Self {
        Self {
            after,
            within,
            heard: 0,
            since: now,
            asked: None,
        }
    }

    /// Returns the current state. `heard` is the number of messages of the peer so far, `wanted`
    /// whether the peer is expected to send.
    pub(crate) fn look(&mut self, now: Instant, heard: u64, wanted: bool) -> Health {
        if heard != self.heard || !wanted && self.asked.is_none() {
            self.heard = heard;
            self.since = now;
            self.asked = None;
        }
        match self.asked {
            Some(asked) if now >= asked + self.within => Health::Silent(self.within),
            None if now >= self.since + self.after => Health::Ask,
            Some(_) | None => Health::Well,
        }
    }

    /// Records that a probe was sent.
    pub(crate) fn asked(&mut self, now: Instant) {
        self.asked = Some(now);
    }

    /// Returns the latest time of the next check.
    pub(crate) fn next(&self) -> Instant {
        match self.asked {
            Some(asked) => asked + self.within,
            None => self.since + self.after,
        }
    }
}

/// Waits for the first message on a new connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstReply {
    heard: u64,
    moved: u64,
    /// Start of the time without progress on the connection.
    since: Instant,
}

impl FirstReply {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            heard: 0,
            moved: 0,
            since: now,
        }
    }

    /// Returns for how long the peer has owed its first message without a byte moving. `owed` is
    /// the send time of the oldest call in flight, `moved` the bytes moved so far: a large call may
    /// take long on a slow path.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        owed: Option<Instant>,
        moved: u64,
    ) -> Option<Duration> {
        if moved != self.moved {
            self.moved = moved;
            self.since = now;
        }
        let owed = owed.filter(|_| self.heard == 0)?;
        Some(now.saturating_duration_since(owed.max(self.since)))
    }

    /// Returns whether messages of the peer have arrived since the last call of this method.
    /// `heard` is their number.
    pub(crate) fn listen(&mut self, heard: u64) -> bool {
        std::mem::replace(&mut self.heard, heard) != heard
    }
}

/// Measures how long a connection has been idle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdleTimer {
    used: u64,
    /// Whether the connection was in use at the last look.
    was_in_use: bool,
    since: Instant,
}

impl IdleTimer {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            used: 0,
            was_in_use: false,
            since: now,
        }
    }

    /// Returns for how long the connection has been idle. `used` counts its uses so far, `in_use`
    /// tells whether it is in use now. A use that has ended since the last look has ended just now:
    /// its end is what leads to a look.
    pub(crate) fn look(&mut self, now: Instant, used: u64, in_use: bool) -> Duration {
        let was_in_use = std::mem::replace(&mut self.was_in_use, in_use);
        if in_use || was_in_use || used != self.used {
            self.used = used;
            self.since = now;
        }
        now.saturating_duration_since(self.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_secs(10);
    const WITHIN: Duration = Duration::from_secs(5);

    fn at(seconds: u64, start: Instant) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn peer_that_is_heard_of_is_not_asked() {
        let start = Instant::now();
        let mut liveness = Liveness::new(start, AFTER, WITHIN);
        for second in 0..60 {
            let heard = second / 9;
            assert_eq!(liveness.look(at(second, start), heard, true), Health::Well);
        }
    }

    #[test]
    fn peer_of_which_nothing_is_wanted_is_not_asked() {
        let start = Instant::now();
        let mut liveness = Liveness::new(start, AFTER, WITHIN);
        assert_eq!(liveness.look(at(1000, start), 0, false), Health::Well);
        // The time begins when it owes something.
        assert_eq!(liveness.look(at(1009, start), 0, true), Health::Well);
        assert_eq!(liveness.look(at(1010, start), 0, true), Health::Ask);
    }

    #[test]
    fn silent_peer_is_asked_once_and_given_up() {
        let start = Instant::now();
        let mut liveness = Liveness::new(start, AFTER, WITHIN);
        assert_eq!(liveness.next(), at(10, start));
        assert_eq!(liveness.look(at(9, start), 0, true), Health::Well);
        assert_eq!(liveness.look(at(10, start), 0, true), Health::Ask);
        // There was no credit for it at first.
        assert_eq!(liveness.look(at(11, start), 0, true), Health::Ask);
        liveness.asked(at(11, start));
        assert_eq!(liveness.next(), at(16, start));
        assert_eq!(liveness.look(at(15, start), 0, true), Health::Well);
        assert_eq!(
            liveness.look(at(16, start), 0, true),
            Health::Silent(WITHIN)
        );
    }

    #[test]
    fn answer_to_the_question_begins_the_time_anew() {
        let start = Instant::now();
        let mut liveness = Liveness::new(start, AFTER, WITHIN);
        assert_eq!(liveness.look(at(10, start), 0, true), Health::Ask);
        liveness.asked(at(10, start));
        assert_eq!(liveness.look(at(12, start), 1, true), Health::Well);
        assert_eq!(liveness.look(at(21, start), 1, true), Health::Well);
        assert_eq!(liveness.look(at(22, start), 1, true), Health::Ask);
    }

    #[test]
    fn silence_counts_from_the_call_while_nothing_moves_and_ends_with_the_first_message() {
        let start = Instant::now();
        let mut first_reply = FirstReply::new(start);
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(first_reply.look(at(100, start), None, 50), None);
        let owed = Some(at(101, start));
        assert_eq!(first_reply.look(at(111, start), owed, 50), seconds(10));
        // Some bytes of the call were taken.
        assert_eq!(first_reply.look(at(112, start), owed, 60), seconds(0));
        assert_eq!(first_reply.look(at(120, start), owed, 60), seconds(8));
        assert!(!first_reply.listen(0));
        assert!(first_reply.listen(1) && !first_reply.listen(1));
        assert_eq!(first_reply.look(at(200, start), owed, 60), None);
    }

    #[test]
    fn disuse_counts_from_the_end_of_the_last_use() {
        let start = Instant::now();
        let mut idle_timer = IdleTimer::new(start);
        let seconds = Duration::from_secs;
        assert_eq!(idle_timer.look(at(5, start), 0, false), seconds(5));
        assert_eq!(idle_timer.look(at(6, start), 1, false), seconds(0));
        assert_eq!(idle_timer.look(at(9, start), 1, true), seconds(0));
        // A use that lasts longer than any limit does not count as disuse when it ends.
        assert_eq!(idle_timer.look(at(19, start), 1, false), seconds(0));
        assert_eq!(idle_timer.look(at(29, start), 1, false), seconds(10));
    }

    #[test]
    fn null_call_has_no_arguments_and_a_name_of_its_own() {
        let call = null_call(7, (100_003, 3));
        assert_eq!(call.xid(), 7);
    }
}
