//! Credit grants to a client: fewer while its calls wait for memory, and more as it uses what it has, where each credit
//! has a Receive of its own.

use super::receive_memory::ReceiveLease;
use crate::driver::owner::Connection;
use std::time::{Duration, Instant};

/// Smallest grant, however many calls wait for memory, so that calls that need none can pass.
const LEAST_GRANT: u32 = 8;

/// Credits per call that does not wait for memory: as many calls may wait as proceed, so that freed
/// memory is used at once.
const GRANT_PER_CALL: u32 = 2;

/// Credits that a new client is granted where its Receives are its own: more as it uses them.
pub(super) const FIRST_GRANT: u32 = 8;

/// How long a client may take to use as many credits as it has, if it is to have more.
const GROWTH_PERIOD: Duration = Duration::from_secs(1);

/// The credits of one connection (RFC 8166 §3.3.1).
#[derive(Debug)]
pub(super) struct Grants {
    /// Largest grant now: there is memory for as many Receives.
    most: u32,
    /// Memory of the Receives, where each connection has its own.
    memory: Option<Growing>,
}

/// Receives of a connection that grow with use.
#[derive(Debug)]
struct Growing {
    lease: ReceiveLease,
    /// Receives beside those for calls.
    others: usize,
    /// Calls received, and when, the last time that the use of credits was looked at.
    seen: (u64, Instant),
}

impl Grants {
    /// `memory` is for the Receives of the connection, if these are its own.
    pub(super) fn new(connection: &Connection, memory: Option<ReceiveLease>, now: Instant) -> Self {
        let most = connection.grant();
        let memory = memory.map(|lease| Growing {
            others: lease.receives().saturating_sub(most as usize),
            lease,
            seen: (connection.counters().calls_received, now),
        });
        Self { most, memory }
    }

    /// Lowers the grant while calls wait for memory, and raises it when none does, up to what there are Receives for.
    pub(super) fn adjust(&mut self, now: Instant, connection: &mut Connection) {
        if let Some(memory) = &mut self.memory {
            self.most = memory.look(now, self.most, connection);
        }
        let waiting = connection.calls_waiting_for_memory();
        let now = connection.grant();
        let next = self.next(now, connection.calls_in(), waiting);
        if next != now {
            connection.set_grant(next);
        }
    }

    /// Returns the next grant, at least half and at most double the current one, because what is
    /// observed may be momentary.
    fn next(&self, now: u32, calls: usize, waiting: usize) -> u32 {
        let going_on = u32::try_from(calls - waiting).unwrap_or(u32::MAX);
        let wanted = match waiting {
            0 => self.most,
            _ => going_on.saturating_mul(GRANT_PER_CALL).max(LEAST_GRANT),
        };
        wanted
            .clamp(now / 2, now.saturating_mul(2))
            .clamp(1, self.most.max(1))
    }
}

impl Growing {
    /// Returns how many credits there may be, which were `most`.
    fn look(&mut self, now: Instant, most: u32, connection: &Connection) -> u32 {
        let held = connection.receives_held();
        let others = self.others;
        let of_calls = |most: u32| most as usize + others;
        if self.lease.is_wanted() {
            // One step at a time: posted Receives are given back as messages use them.
            let lower = match held <= of_calls(most) {
                true => (most / 2).max(FIRST_GRANT.min(most)),
                false => most,
            };
            self.lease.shrink_to(held.max(of_calls(lower)));
            return lower;
        }
        // What was given up before is used up by now.
        self.lease.shrink_to(held.max(of_calls(most)));
        let wanted = connection.most_granted().min(connection.asked_by_peer());
        if most >= wanted || !self.uses_all(now, most, connection) {
            return most;
        }
        let more = most.min(wanted - most);
        // There may be Receives left from before.
        let spare = self.lease.receives().saturating_sub(of_calls(most));
        let missing = (more as usize).saturating_sub(spare);
        let taken = self.lease.grow(missing);
        let more = (spare + taken).min(more as usize);
        most + u32::try_from(more).expect("no more than was wanted")
    }

    /// Whether the client has made as many calls as it has credits in one period, or all of them wait for answers at its
    /// end.
    fn uses_all(&mut self, now: Instant, most: u32, connection: &Connection) -> bool {
        let received = connection.counters().calls_received;
        let (before, since) = self.seen;
        let is_over = now - since >= GROWTH_PERIOD;
        let all_in = is_over && connection.calls_in() >= most as usize;
        let uses = received - before >= u64::from(most) || all_in;
        if uses || is_over {
            self.seen = (received, now);
        }
        uses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grant_follows_the_calls_that_go_on_while_others_wait() {
        let grants = Grants {
            most: 128,
            memory: None,
        };
        let check = |now, calls, waiting, next| {
            assert_eq!(grants.next(now, calls, waiting), next, "{calls} {waiting}");
        };
        check(128, 128, 112, 64);
        check(64, 100, 84, 32);
        check(32, 32, 16, 32);
        check(32, 32, 31, 16);
        check(16, 16, 16, 8);
        check(8, 8, 8, 8);
        check(8, 40, 10, 16);
        // Nobody waits any more.
        check(8, 8, 0, 16);
        check(100, 8, 0, 128);
        check(128, 128, 0, 128);
    }

    #[test]
    fn connection_that_has_few_credits_keeps_them() {
        for most in [1, 2, 8] {
            let grants = Grants { most, memory: None };
            assert_eq!(grants.next(most, most as usize, most as usize), most);
            assert_eq!(grants.next(most, 0, 0), most);
        }
    }
}
