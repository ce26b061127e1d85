//! When a connection must give way: loans that have lasted for long, while others wait.

use oncrpc::PeerGroup;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// Time between two connections that give way: what one returns may be enough.
pub const GIVE_WAY_PAUSE: Duration = Duration::from_millis(250);

/// Loans of an amount to the calls of connections, with the times at which they began. `A` tells the connections of an
/// address apart.
#[derive(Debug)]
pub struct Loans<A> {
    lent: BTreeMap<u64, Loan<A>>,
    last: u64,
    /// When a connection gave way last.
    gave_way: Option<Instant>,
}

#[derive(Debug)]
struct Loan<A> {
    group: PeerGroup,
    connection: A,
    amount: usize,
    since: Instant,
}

impl<A> Default for Loans<A> {
    fn default() -> Self {
        Self {
            lent: BTreeMap::new(),
            last: 0,
            gave_way: None,
        }
    }
}

impl<A: Copy + Eq> Loans<A> {
    /// Lends `amount` to a connection of an address. Returns the number of the loan.
    pub fn lend(&mut self, group: PeerGroup, connection: A, amount: usize, now: Instant) -> u64 {
        self.last += 1;
        let loan = Loan {
            group,
            connection,
            amount,
            since: now,
        };
        self.lent.insert(self.last, loan);
        self.last
    }

    /// Changes the amount of a loan, which ends if that is nothing.
    pub fn resize(&mut self, number: u64, amount: usize) {
        match self.lent.get_mut(&number) {
            Some(loan) if amount > 0 => loan.amount = amount,
            _ => drop(self.lent.remove(&number)),
        }
    }

    /// Whether a connection must give way to others that have waited for `after` or longer: as long ago, half of its amount
    /// was lent, its address has been lent as much as any other, and none gave way in the last [`GIVE_WAY_PAUSE`]. One that
    /// must counts as having given way.
    pub fn must_give_way(
        &mut self,
        group: PeerGroup,
        connection: A,
        now: Instant,
        after: Duration,
    ) -> bool {
        if self.gave_way.is_some_and(|at| now < at + GIVE_WAY_PAUSE) {
            return false;
        }
        let own = |loan: &&Loan<A>| loan.group == group && loan.connection == connection;
        let (mut old, mut all) = (0, 0);
        for loan in self.lent.values().filter(own) {
            all += loan.amount;
            if now.saturating_duration_since(loan.since) >= after {
                old += loan.amount;
            }
        }
        let must = old > 0 && 2 * old >= all && self.has_most(group);
        if must {
            self.gave_way = Some(now);
        }
        must
    }

    /// Whether no address has been lent more than this one.
    fn has_most(&self, group: PeerGroup) -> bool {
        let mut by_address = HashMap::new();
        for loan in self.lent.values() {
            *by_address.entry(loan.group).or_insert(0) += loan.amount;
        }
        let own = by_address.get(&group).copied().unwrap_or(0);
        by_address.values().all(|&other| other <= own)
    }

    /// Whether nothing is lent.
    pub fn is_empty(&self) -> bool {
        self.lent.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_secs(30);

    fn group(last: u8) -> PeerGroup {
        PeerGroup::of([192, 0, 2, last].into())
    }

    #[test]
    fn connection_gives_way_once_half_of_its_loans_are_old() {
        let (mut loans, begin, of) = (Loans::default(), Instant::now(), group(1));
        let old = loans.lend(of, 'a', 10, begin);
        let _new = loans.lend(of, 'a', 10, begin + AFTER / 2);
        assert!(!loans.must_give_way(of, 'a', begin + AFTER / 2, AFTER));
        assert!(!loans.must_give_way(of, 'b', begin + AFTER, AFTER));
        assert!(loans.must_give_way(of, 'a', begin + AFTER, AFTER));
        loans.resize(old, 9);
        let later = begin + AFTER + GIVE_WAY_PAUSE;
        assert!(!loans.must_give_way(of, 'a', later, AFTER));
        loans.resize(old, 0);
        assert_eq!(loans.lent.len(), 1);
    }

    #[test]
    fn connections_give_way_one_after_the_other() {
        let (mut loans, begin, of) = (Loans::default(), Instant::now(), group(1));
        loans.lend(of, 'a', 10, begin);
        loans.lend(of, 'b', 10, begin);
        let now = begin + AFTER;
        assert!(loans.must_give_way(of, 'a', now, AFTER));
        assert!(!loans.must_give_way(of, 'b', now, AFTER));
        assert!(loans.must_give_way(of, 'b', now + GIVE_WAY_PAUSE, AFTER));
    }

    #[test]
    fn address_with_more_gives_way_first() {
        let (mut loans, begin) = (Loans::default(), Instant::now());
        loans.lend(group(1), 'a', 10, begin);
        loans.lend(group(2), 'a', 5, begin);
        let further = loans.lend(group(2), 'b', 6, begin);
        let now = begin + AFTER;
        assert!(!loans.must_give_way(group(1), 'a', now, AFTER));
        loans.resize(further, 4);
        assert!(loans.must_give_way(group(1), 'a', now, AFTER));
    }
}
