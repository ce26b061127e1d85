//! Calls retried alone: those that may have broken connections (RFC 8166 §4.5.3).

use crate::driver::owner::CallRequest;
use std::collections::VecDeque;

/// Connections lost with a call in flight before that call is retried alone, where possible.
const ALONE_FROM: u32 = 2;

/// Connections lost with only this call in flight before the call fails: no other call of this end
/// can have broken them.
pub(crate) const MAX_LOSSES: u32 = 3;

/// Largest number of sweeps for which other calls wait while one is retried alone: at least one
/// whole interval.
const SWEEPS_ALONE: u8 = 2;

pub(super) fn is_retried_alone(request: &CallRequest) -> bool {
    request.losses >= ALONE_FROM
}

/// The calls retried alone that wait for one connection.
///
/// They are sent one at a time, with nothing else in flight, and other calls wait meanwhile: if the
/// connection is lost, it is known which call was in flight. Nobody waits for long. If other calls leave
/// no gap, they are held back every other sweep until the calls retried alone have had their turn; they go
/// on when such a call takes long; and if the connection is never free, the calls retried alone are sent
/// beside what is in flight.
#[derive(Debug, Default)]
pub(super) struct RetriedAlone {
    /// Calls in the order of their losses alone, fewest first, so that each has its turn before one
    /// is given up.
    calls: VecDeque<CallRequest>,
    /// Remaining sweeps for which others wait while a call is retried alone.
    alone: u8,
    /// Others wait until the calls retried alone have had their turn.
    turn: bool,
}

/// The next call to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Others,
    RetriedAlone,
    Nobody,
}

impl RetriedAlone {
    /// Returns whose turn it is on a connection with `out` calls in flight; `others` tells whether
    /// other calls wait.
    pub(super) fn turn(&self, out: usize, others: bool) -> Turn {
        let alone = self.alone > 0 && out > 0;
        match (alone, self.calls.is_empty()) {
            (true, _) => Turn::Nobody,
            (false, true) => Turn::Others,
            (false, false) if out == 0 && (self.turn || !others) => Turn::RetriedAlone,
            (false, false) if self.turn => Turn::Nobody,
            (false, false) => Turn::Others,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Inserts a call before those with as many losses alone.
    pub(super) fn push(&mut self, request: CallRequest) {
        let less = |other: &CallRequest| other.losses_alone < request.losses_alone;
        let at = self.calls.partition_point(less);
        self.calls.insert(at, request);
    }

    /// Takes the next call.
    pub(super) fn pop(&mut self) -> Option<CallRequest> {
        self.calls.pop_front()
    }

    /// Records that a call is sent alone.
    pub(super) fn sent_alone(&mut self) {
        self.alone = SWEEPS_ALONE;
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &CallRequest> {
        self.calls.iter()
    }

    pub(super) fn retain(&mut self, keep: impl FnMut(&CallRequest) -> bool) {
        self.calls.retain(keep);
    }

    /// Handles a sweep interval. Returns the calls to send beside others, the last one first.
    pub(super) fn sweep(&mut self) -> impl Iterator<Item = CallRequest> {
        let mut released = VecDeque::new();
        if self.alone > 0 {
            self.alone -= 1;
            self.turn &= self.alone > 0;
        } else if self.turn {
            released = std::mem::take(&mut self.calls);
            self.turn = false;
        } else {
            self.turn = !self.calls.is_empty();
        }
        released.into_iter().rev()
    }

    /// Handles a new connection, or the end of one.
    pub(super) fn begin(&mut self) {
        self.alone = 0;
        self.turn = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::calls::CallHandle;
    use oncrpc::ReplyBound;
    use oncrpc::xdr;

    fn request(xid: u32, losses_alone: u32) -> CallRequest {
        let mut w = xdr::Writer::default();
        w.u32(xid);
        w.u32(0);
        let mut request =
            CallRequest::new(CallHandle::of_nobody(), w.finish(), ReplyBound::default());
        (request.losses, request.losses_alone) = (ALONE_FROM, losses_alone);
        request
    }

    fn retried_alone(calls: &[(u32, u32)]) -> RetriedAlone {
        let mut retried_alone = RetriedAlone::default();
        // As calls are put back: the last one first.
        for &(xid, losses_alone) in calls.iter().rev() {
            retried_alone.push(request(xid, losses_alone));
        }
        retried_alone
    }

    #[test]
    fn those_lost_alone_least_often_go_first_and_else_in_order() {
        let mut retried_alone = retried_alone(&[(1, 2), (2, 0), (3, 1), (4, 0), (5, 1)]);
        let order: Vec<_> = std::iter::from_fn(|| retried_alone.pop())
            .map(|request| request.xid())
            .collect();
        assert_eq!(order, [2, 4, 3, 5, 1]);
    }

    #[test]
    fn call_retried_alone_goes_when_nothing_else_is_in_flight_and_others_wait() {
        let mut retried_alone = retried_alone(&[(1, 0), (2, 0)]);
        assert_eq!(retried_alone.turn(3, false), Turn::Others);
        assert_eq!(retried_alone.turn(0, true), Turn::Others);
        assert_eq!(retried_alone.turn(0, false), Turn::RetriedAlone);
        retried_alone.pop();
        retried_alone.sent_alone();
        assert_eq!(retried_alone.turn(1, true), Turn::Nobody);
        assert_eq!(retried_alone.turn(0, false), Turn::RetriedAlone);
        retried_alone.pop();
        retried_alone.sent_alone();
        assert_eq!(retried_alone.turn(1, true), Turn::Nobody);
        assert_eq!(retried_alone.turn(0, true), Turn::Others);
    }

    #[test]
    fn others_that_leave_no_gap_wait_after_a_sweep() {
        let mut retried_alone = retried_alone(&[(1, 0), (2, 0)]);
        assert_eq!(retried_alone.sweep().count(), 0);
        assert_eq!(retried_alone.turn(5, true), Turn::Nobody);
        assert_eq!(retried_alone.turn(0, true), Turn::RetriedAlone);
        retried_alone.pop();
        retried_alone.sent_alone();
        // The next one follows at once.
        assert_eq!(retried_alone.turn(0, true), Turn::RetriedAlone);
    }

    #[test]
    fn slow_call_retried_alone_delays_others_for_two_sweeps_at_most() {
        let mut retried_alone = retried_alone(&[(1, 0), (2, 0)]);
        retried_alone.pop();
        retried_alone.sent_alone();
        assert_eq!(retried_alone.sweep().count(), 0);
        assert_eq!(retried_alone.turn(1, true), Turn::Nobody);
        assert_eq!(retried_alone.sweep().count(), 0);
        assert_eq!(retried_alone.turn(1, true), Turn::Others);
    }

    #[test]
    fn calls_retried_alone_go_beside_a_call_that_does_not_end() {
        let mut retried_alone = retried_alone(&[(1, 0), (2, 1)]);
        assert_eq!(retried_alone.sweep().count(), 0);
        let released: Vec<_> = retried_alone.sweep().map(|request| request.xid()).collect();
        assert_eq!(released, [2, 1]);
        assert_eq!(retried_alone.turn(1, true), Turn::Others);
    }

    #[test]
    fn turns_do_not_carry_over_to_the_next_connection() {
        let mut retried_alone = retried_alone(&[(1, 0)]);
        assert_eq!(retried_alone.sweep().count(), 0);
        retried_alone.sent_alone();
        retried_alone.begin();
        assert_eq!(retried_alone.turn(1, true), Turn::Others);
    }
}
