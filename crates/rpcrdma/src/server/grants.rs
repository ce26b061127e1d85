//! Credit grants to a client whose calls wait for memory.

use crate::driver::owner::Connection;

/// Smallest grant, however many calls wait for memory, so that calls that need none can pass.
const LEAST_GRANT: u32 = 8;

/// Credits per call that does not wait for memory: as many calls may wait as proceed, so that freed
/// memory is used at once.
const GRANT_PER_CALL: u32 = 2;

/// The credits of one connection (RFC 8166 §3.3.1).
#[derive(Debug)]
pub(super) struct Grants {
    /// Largest grant: the number of Receives at connection setup.
    most: u32,
}

impl Grants {
    pub(super) fn new(connection: &Connection) -> Self {
        Self {
            most: connection.grant(),
        }
    }

    /// Lowers the grant while calls wait for memory, and raises it when none does.
    pub(super) fn adjust(&self, connection: &mut Connection) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grant_follows_the_calls_that_go_on_while_others_wait() {
        let grants = Grants { most: 128 };
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
            let grants = Grants { most };
            assert_eq!(grants.next(most, most as usize, most as usize), most);
            assert_eq!(grants.next(most, 0, 0), most);
        }
    }
}
