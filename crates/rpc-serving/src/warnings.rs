//! Rate limit for warnings about peers, so that a peer which breaks rules on purpose cannot fill the
//! log of a server.

use oncrpc::PeerGroup;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Warnings about one address in [`WARNING_PERIOD`]; more are only counted.
pub const MAX_WARNINGS: u64 = 8;

/// Period in which warnings about an address are counted together.
pub const WARNING_PERIOD: Duration = Duration::from_secs(10);

/// Largest number of addresses whose warnings are counted separately. All others share one count.
pub const MAX_WARNED: usize = 256;

/// Decides which warnings are logged, and counts the others.
#[derive(Debug, Default)]
pub struct Warnings {
    /// Counts by address; `None` for addresses without their own count.
    recent: Mutex<HashMap<Option<PeerGroup>, Recent>>,
}

#[derive(Clone, Copy, Debug)]
struct Recent {
    until: Instant,
    logged: u64,
    suppressed: u64,
}

/// Warnings that were not logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suppressed {
    /// The address; `None` for several addresses.
    pub peer: Option<PeerGroup>,
    /// Number of suppressed warnings.
    pub count: u64,
}

impl Warnings {
    /// Returns whether to log a warning about `peer`, and counts it if not.
    pub fn allows(&self, peer: PeerGroup, now: Instant) -> bool {
        let mut recent = self.lock();
        let known = recent.contains_key(&Some(peer));
        if !known && recent.len() >= MAX_WARNED {
            recent.retain(|_, counted| now < counted.until || counted.suppressed > 0);
        }
        let key = (known || recent.len() < MAX_WARNED).then_some(peer);
        let fresh = Recent {
            until: now + WARNING_PERIOD,
            logged: 0,
            suppressed: 0,
        };
        let counted = recent.entry(key).or_insert(fresh);
        if now >= counted.until && counted.suppressed == 0 {
            *counted = fresh;
        }
        let allowed = counted.logged < MAX_WARNINGS;
        match allowed {
            true => counted.logged += 1,
            false => counted.suppressed += 1,
        }
        allowed
    }

    /// Returns the earliest time at which [`summary`](Self::summary) returns anything.
    pub fn next_summary(&self) -> Option<Instant> {
        let recent = self.lock();
        let owed = recent.values().filter(|counted| counted.suppressed > 0);
        owed.map(|counted| counted.until).min()
    }

    /// Returns the warnings suppressed in completed periods, one entry per line to log.
    pub fn summary(&self, now: Instant) -> Vec<Suppressed> {
        let mut recent = self.lock();
        let over = recent.extract_if(|_, counted| now >= counted.until);
        over.filter(|(_, counted)| counted.suppressed > 0)
            .map(|(peer, counted)| Suppressed {
                peer,
                count: counted.suppressed,
            })
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Option<PeerGroup>, Recent>> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn peer(number: u32) -> PeerGroup {
        PeerGroup::of(IpAddr::from(number.to_be_bytes()))
    }

    #[test]
    fn warnings_about_one_peer_are_limited_and_the_rest_is_summed_up() {
        let (warnings, now) = (Warnings::default(), Instant::now());
        let logged = (0..1000).filter(|_| warnings.allows(peer(1), now)).count();
        assert_eq!(logged as u64, MAX_WARNINGS);
        assert!(warnings.allows(peer(2), now), "another peer");
        assert_eq!(warnings.summary(now), []);
        let later = now + WARNING_PERIOD;
        assert_eq!(warnings.next_summary(), Some(later));
        let suppressed = Suppressed {
            peer: Some(peer(1)),
            count: 1000 - MAX_WARNINGS,
        };
        assert_eq!(warnings.summary(later), [suppressed]);
        assert_eq!(warnings.next_summary(), None);
        assert!(warnings.allows(peer(1), later));
    }

    #[test]
    fn peer_that_is_quiet_for_a_while_is_warned_about_again() {
        let (warnings, now) = (Warnings::default(), Instant::now());
        for _ in 0..MAX_WARNINGS {
            assert!(warnings.allows(peer(1), now));
        }
        assert!(warnings.allows(peer(1), now + WARNING_PERIOD));
    }

    #[test]
    fn peers_beyond_those_that_are_counted_share_one_count() {
        let (warnings, now) = (Warnings::default(), Instant::now());
        for number in 0..100_000 {
            warnings.allows(peer(number), now);
        }
        assert!(warnings.lock().len() <= MAX_WARNED + 1);
        let later = now + WARNING_PERIOD;
        let shared = Suppressed {
            peer: None,
            count: 100_000 - MAX_WARNED as u64 - MAX_WARNINGS,
        };
        assert_eq!(warnings.summary(later), [shared]);
        assert!(warnings.lock().is_empty());
    }

    #[test]
    fn counts_of_quiet_peers_make_room_for_others() {
        let (warnings, now) = (Warnings::default(), Instant::now());
        for number in 0..u32::try_from(MAX_WARNED).expect("a small number") {
            warnings.allows(peer(number), now);
        }
        let later = now + WARNING_PERIOD;
        for _ in 0..100 {
            warnings.allows(peer(1_000_000), later);
        }
        let counted = warnings.lock().get(&Some(peer(1_000_000))).copied();
        assert_eq!(
            counted.map(|counted| counted.suppressed),
            Some(100 - MAX_WARNINGS)
        );
    }
}
