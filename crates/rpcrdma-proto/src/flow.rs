//! Flow control: credits, and the Receives behind them (RFC 8166 §3.3.1).
//!
//! Each direction of a connection has its own account (RFC 8167 §4.1): credits this end may use as
//! a Requester, and credits it grants as a Responder. The roles report what happened and ask
//! [`FlowControl`]; they do not count themselves.

use crate::limits::{CREDIT_TOLERANCE, PART_RECEIVES, RECEIVE_SLACK};
use crate::messages::MessageCredits;
use crate::receives::ReceiveQueue;

/// Calls of a peer that are tolerated beyond those that it is told of: the reading of the draft by which
/// a message may be sent at the limit permits one more, and one may be on its way.
const SPARE_CALLS: usize = 2;

/// Messages that calls leave for replies, at most.
const MESSAGES_FOR_REPLIES: u32 = 4;

/// Flow control of one connection: each call needs a credit, which an earlier reply granted.
#[derive(Debug)]
pub(crate) struct FlowControl {
    calls: Allowance,
    grant: Grant,
    receives: ReceiveQueue,
    /// Credits that count messages, in a version that has them instead of those that count calls.
    messages: Option<MessageCredits>,
}

impl FlowControl {
    pub(crate) fn new(calls: Allowance, grant: Grant, receives: ReceiveQueue) -> Self {
        Self {
            calls,
            grant,
            receives,
            messages: None,
        }
    }

    /// Counts messages, from the first one of the connection on, or calls.
    pub(crate) fn count_messages(&mut self, messages: bool) {
        match messages {
            true => {
                self.messages.get_or_insert_with(MessageCredits::new);
            }
            false => self.messages = None,
        }
    }

    /// Returns the credits that count messages, if the version has them.
    pub(crate) fn messages(&mut self) -> Option<&mut MessageCredits> {
        self.messages.as_mut()
    }

    /// Returns how many messages the peer may have outstanding: one for each credit and each reply to a
    /// call of this end, and some parts of these, less the messages of calls that are `in_service`: so
    /// calls in parts take no more memory than whole ones. A credit is for any message, so calls may use
    /// them all; with those that are here already, `calls`, they are never more than are tolerated.
    pub(crate) fn window(&self, in_service: usize, calls: usize) -> u32 {
        let messages = self.grant.now().min(self.grant.most) + self.calls.used() + PART_RECEIVES;
        let left = (messages as usize).saturating_sub(in_service);
        let most = self.tolerated().saturating_sub(calls + SPARE_CALLS);
        u32::try_from(left.min(most)).unwrap_or(u32::MAX)
    }

    /// Returns the credits that calls of this end request.
    pub(crate) fn asked(&self) -> u32 {
        self.calls.asked()
    }

    /// Returns the credits in force for calls of this end.
    pub(crate) fn in_force(&self) -> u32 {
        match &self.messages {
            None => self.calls.in_force(),
            Some(_) => self.calls.asked(),
        }
    }

    /// Returns the number of this end's calls in flight, cancelled ones included.
    pub(crate) fn in_flight(&self) -> usize {
        self.calls.used() as usize
    }

    /// Returns how many calls of this end may be sent now, behind so many messages that wait to be
    /// posted.
    #[inline]
    pub(crate) fn room(&self, need: Need, queued: usize) -> usize {
        let room = match &self.messages {
            None => self.calls.room(need),
            Some(messages) => {
                let queued = u32::try_from(queued).unwrap_or(u32::MAX);
                let room = messages.room().saturating_sub(queued);
                self.calls.room_within(self.without_replies(room), need)
            }
        };
        room as usize
    }

    /// Returns how many of so many messages may be calls: some are kept for replies to the peer, which
    /// may wait for these before it answers.
    fn without_replies(&self, room: u32) -> u32 {
        let kept = self.grant.most.min(MESSAGES_FOR_REPLIES);
        match self.calls.used() {
            // One call always goes.
            0 => room.min(room.saturating_sub(kept).max(1)),
            1.. => room.saturating_sub(kept),
        }
    }

    /// Whether the peer accepts no message, and owes none that could change that: only it can end
    /// this (ietf-07 §4.2.1.1).
    pub(crate) fn is_starved(&self) -> bool {
        let messages = self.messages.as_ref();
        self.in_flight() == 0 && messages.is_some_and(|messages| messages.room() == 0)
    }

    /// Returns the number of messages sent, modulo 2^32, if the peer accepts no more.
    pub(crate) fn sent_without_room(&self) -> Option<u64> {
        let messages = self.messages.as_ref()?;
        (messages.room() == 0).then(|| messages.sent())
    }

    /// Records that a call of this end is sent.
    pub(crate) fn handle_call_sent(&mut self) {
        self.calls.spend();
    }

    /// Records the reply to a call of this end, valid or not.
    pub(crate) fn handle_call_answered(&mut self) {
        self.calls.give_back();
    }

    /// Handles a grant of the peer.
    #[inline]
    pub(crate) fn handle_grant(&mut self, credits: u32) {
        if self.messages.is_none() {
            self.calls.handle_grant(credits);
        }
    }

    /// Whether calls of the peer are accepted.
    pub(crate) fn takes_calls(&self) -> bool {
        self.grant.exposed() > 0
    }

    /// Returns the credits that the next reply grants at most.
    pub(crate) fn granted(&self) -> u32 {
        self.grant.now()
    }

    /// Sets the credits that replies grant from the next one on.
    pub(crate) fn set_granted(&mut self, credits: u32) {
        self.grant.set(credits);
    }

    /// Returns the largest grant.
    pub(crate) fn most_granted(&self) -> u32 {
        self.grant.most
    }

    /// Records the credits that a call of the peer requests.
    pub(crate) fn handle_asked(&mut self, credits: u32) {
        // Credits that count messages are asked for by nobody.
        let asked = match self.messages {
            Some(_) => self.grant.most,
            None => credits,
        };
        self.grant.handle_asked(asked);
    }

    /// Returns the credits that the last call of the peer requested.
    pub(crate) fn asked_by_peer(&self) -> u32 {
        self.grant.asked
    }

    /// Returns the number of Receives that are posted or will be, for the calls that the peer may send and the replies
    /// that it owes.
    pub(crate) fn receives_held(&self) -> usize {
        self.receives.posted().max(self.receives_needed())
    }

    #[inline]
    fn receives_needed(&self) -> usize {
        let calls = self.grant.exposed() as usize + self.in_flight() + RECEIVE_SLACK;
        match &self.messages {
            None => calls,
            // One more than the peer was told of, for credits alone (ietf-07 §4.2.1.1).
            Some(messages) => {
                let parts = PART_RECEIVES as usize;
                (calls + parts).max(messages.left_to_peer() as usize + RECEIVE_SLACK)
            }
        }
    }

    /// Returns the grant to a peer that requests `asked` credits.
    pub(crate) fn offer(&self, asked: u32) -> u32 {
        self.grant.offer(asked)
    }

    /// Records that a reply with the grant is queued.
    pub(crate) fn handle_replied(&mut self) {
        self.grant.replied();
    }

    /// Returns the largest number of calls of the peer that are tolerated.
    pub(crate) fn tolerated(&self) -> usize {
        let calls = self.grant.tolerated();
        match self.messages {
            None => calls,
            // A credit is for any message: those for replies may be used for calls.
            Some(_) => calls + (self.calls.asked() + PART_RECEIVES) as usize,
        }
    }

    /// Records that a message used a Receive.
    #[inline]
    pub(crate) fn handle_message(&mut self) {
        self.receives.use_one();
        if let Some(messages) = &mut self.messages {
            messages.handle_message();
        }
    }

    /// Returns the number of Receives of `size` bytes to post now, for both directions (RFC 8167
    /// §4.3). They count as posted.
    #[inline]
    pub(crate) fn receives_to_post(&mut self, size: usize) -> usize {
        let needed = self.receives_needed();
        self.receives.post_up_to(needed, size)
    }

    /// Returns the size of the smallest Receive that a message may use, in bytes.
    pub(crate) fn smallest_receive(&self) -> usize {
        self.receives.smallest()
    }
}

/// The credits of a Requester.
#[derive(Debug)]
pub(crate) struct Allowance {
    /// Credits that each call requests; zero in an unused direction.
    asked: u32,
    /// Credits that the last valid reply granted; one before the first reply (RFC 8166 §3.3.3).
    granted: u32,
    /// Calls in flight, cancelled ones included.
    used: u32,
    /// Whether the last credit is reserved for liveness probes (RFC 8267 §6.7.2).
    reserve: bool,
}

/// Kind of a call, which decides about the reserved credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// A call of the upper layer.
    Call,
    /// A liveness probe.
    HealthCheck,
}

impl Allowance {
    pub(crate) fn new(asked: u32, reserve: bool) -> Self {
        Self {
            asked,
            granted: 1,
            used: 0,
            reserve,
        }
    }

    pub(crate) fn asked(&self) -> u32 {
        self.asked
    }

    /// Returns the credits in force: the lower of requested and granted.
    pub(crate) fn in_force(&self) -> u32 {
        self.granted.min(self.asked)
    }

    pub(crate) fn used(&self) -> u32 {
        self.used
    }

    /// Returns how many calls may be sent now. A single credit is not reserved, because it would
    /// never be used.
    pub(crate) fn room(&self, need: Need) -> u32 {
        self.reserved(self.in_force(), need)
            .saturating_sub(self.used)
    }

    /// Returns how many calls may be sent now where the peer accepts so many messages.
    pub(crate) fn room_within(&self, messages: u32, need: Need) -> u32 {
        let most = self.reserved(self.asked, need).saturating_sub(self.used);
        // The last message is not kept for a probe: it would stop a peer that accepts one.
        most.min(messages)
    }

    /// Returns how many of `all` credits a call of this kind may use.
    fn reserved(&self, all: u32, need: Need) -> u32 {
        match need {
            Need::Call if self.reserve && all > 1 => all - 1,
            Need::Call | Need::HealthCheck => all,
        }
    }

    pub(crate) fn spend(&mut self) {
        self.used += 1;
    }

    /// Records the reply to a call, valid or not.
    pub(crate) fn give_back(&mut self) {
        self.used -= 1;
    }

    /// Handles the grant of a valid reply. Zero would be a deadlock; more than requested has no
    /// Receives at this end. If more calls are in flight, none is sent until there are fewer.
    pub(crate) fn handle_grant(&mut self, credits: u32) {
        self.granted = credits.clamp(1, self.asked.max(1));
    }
}

/// The credits that a Responder grants.
#[derive(Debug)]
pub(crate) struct Grant {
    /// Largest grant.
    most: u32,
    /// Credits that the last call requested.
    asked: u32,
    /// Grant of the next reply.
    now: u32,
    /// Calls that the peer may have in flight, as far as it knows: more than `now` for a while
    /// after a lower grant.
    exposed: u32,
}

impl Grant {
    pub(crate) fn new(most: u32, first: u32) -> Self {
        Self {
            most,
            now: first,
            exposed: first,
            asked: 0,
        }
    }

    /// Records the credits that a call requests.
    pub(crate) fn handle_asked(&mut self, credits: u32) {
        self.asked = credits;
    }

    /// Sets the grant, clamped to 1 to the largest one. A higher grant counts at once, so that its
    /// Receives are posted before a reply announces it (RFC 8166 §3.3.1).
    pub(crate) fn set(&mut self, credits: u32) {
        self.now = credits.clamp(1, self.most.max(1));
        self.exposed = self.exposed.max(self.now);
    }

    /// Returns the current grant.
    pub(crate) fn now(&self) -> u32 {
        self.now
    }

    /// Returns the number of calls that may arrive, and have Receives; zero if no calls are
    /// accepted.
    pub(crate) fn exposed(&self) -> u32 {
        self.exposed.min(self.most)
    }

    /// Returns the largest number of calls before the peer is considered to ignore its credits. A
    /// lowered grant does not change it: calls whose replies are still being sent count too.
    pub(crate) fn tolerated(&self) -> usize {
        self.most as usize * CREDIT_TOLERANCE
    }

    /// Returns the grant in a reply to a call that requested `asked` credits: that number, limited
    /// by the current grant, and never zero.
    pub(crate) fn offer(&self, asked: u32) -> u32 {
        asked.clamp(1, self.now.max(1))
    }

    /// Records that a reply with the grant was sent. The peer has one call less in flight, and
    /// sends none until it has fewer in flight than granted; so this is safe even before it has
    /// learnt of the grant.
    pub(crate) fn replied(&mut self) {
        self.exposed = self.now.max(self.exposed.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_credit_is_there_before_the_first_reply_and_whatever_is_granted() {
        let mut credits = Allowance::new(8, true);
        assert_eq!(credits.room(Need::Call), 1);
        for granted in [0, 1] {
            credits.handle_grant(granted);
            assert_eq!(credits.room(Need::Call), 1, "{granted}");
        }
        credits.handle_grant(u32::MAX);
        assert_eq!(credits.in_force(), 8);
    }

    #[test]
    fn last_credit_is_for_health_checks_only() {
        let mut credits = Allowance::new(8, true);
        credits.handle_grant(3);
        credits.spend();
        credits.spend();
        assert_eq!(credits.room(Need::Call), 0);
        assert_eq!(credits.room(Need::HealthCheck), 1);
        credits.spend();
        assert_eq!(credits.room(Need::HealthCheck), 0);
    }

    #[test]
    fn lower_grant_stops_calls_until_fewer_are_out() {
        let mut credits = Allowance::new(8, false);
        credits.handle_grant(8);
        (0..8).for_each(|_| credits.spend());
        credits.give_back();
        credits.handle_grant(2);
        assert_eq!(credits.room(Need::Call), 0);
        (0..6).for_each(|_| credits.give_back());
        assert_eq!((credits.used(), credits.room(Need::Call)), (1, 1));
    }

    #[test]
    fn direction_that_is_not_used_has_no_credit() {
        let mut credits = Allowance::new(0, false);
        credits.handle_grant(5);
        assert_eq!(credits.room(Need::HealthCheck), 0);
        assert_eq!(Grant::new(0, 0).exposed(), 0);
    }

    #[test]
    fn whatever_is_asked_for_at_least_one_is_granted_and_at_most_what_there_is() {
        let grant = Grant::new(8, 8);
        let check = |asked, expected| assert_eq!(grant.offer(asked), expected, "{asked}");
        check(0, 1);
        check(1, 1);
        check(8, 8);
        check(9, 8);
        check(u32::MAX, 8);
    }

    #[test]
    fn receives_of_a_lowered_grant_go_one_by_one_with_the_replies() {
        let mut grant = Grant::new(8, 8);
        grant.set(6);
        assert_eq!((grant.offer(128), grant.exposed()), (6, 8));
        grant.replied();
        grant.replied();
        grant.replied();
        assert_eq!(grant.exposed(), 6);
        grant.set(100);
        assert_eq!((grant.offer(128), grant.exposed()), (8, 8));
        grant.set(0);
        assert_eq!(grant.offer(128), 1);
    }

    /// Event of one direction.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Set(u32),
        Send,
        /// The oldest call in flight arrives.
        Arrive,
        Reply,
        /// The oldest reply in flight arrives.
        Hear,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            1 => (0..20_u32).prop_map(Step::Set),
            8 => Just(Step::Send),
            6 => Just(Step::Arrive),
            4 => Just(Step::Reply),
            4 => Just(Step::Hear),
        ]
    }

    proptest! {
        /// The Receives of a Responder, posted anew as each is used, are enough for every order of
        /// events.
        #[test]
        fn no_call_finds_no_receive(
            most in 1..16_u32,
            first in 1..16_u32,
            asked in 1..32_u32,
            steps in prop::collection::vec(step(), 0..300),
        ) {
            let mut grant = Grant::new(most, first.min(most));
            let mut allowance = Allowance::new(asked, false);
            let (mut coming, mut here) = (0, 0);
            let mut replies = std::collections::VecDeque::new();
            let mut posted = grant.exposed();
            for step in steps {
                match step {
                    Step::Set(credits) => grant.set(credits),
                    Step::Send if allowance.room(Need::Call) > 0 => {
                        allowance.spend();
                        coming += 1;
                    }
                    Step::Arrive if coming > 0 => {
                        prop_assert!(posted > 0, "a call finds no Receive");
                        coming -= 1;
                        posted -= 1;
                        here += 1;
                        prop_assert!(here <= grant.exposed());
                    }
                    Step::Reply if here > 0 => {
                        here -= 1;
                        replies.push_back(grant.offer(asked));
                        grant.replied();
                    }
                    Step::Hear => if let Some(credits) = replies.pop_front() {
                        allowance.give_back();
                        allowance.handle_grant(credits);
                    },
                    Step::Send | Step::Arrive | Step::Reply => {}
                }
                // The calls that are here need no Receive any more.
                posted = posted.max(grant.exposed().saturating_sub(here));
                prop_assert!(coming <= posted);
            }
        }
    }
}
