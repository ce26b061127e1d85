//! Looks up the groups of callers in the user database of this machine, instead of trusting those
//! that they claim.
//!
//! AUTH_SYS has room for 16 groups (RFC 5531 Appendix A), and any caller can claim any group. The
//! database may be remote, so only jobs query it, and results are cached. If it hangs, it blocks a
//! bounded number of their threads. Lookups and the cache are shared by address, because a machine can
//! claim any number of users.

use crate::client_options::ANONYMOUS;
use nix::unistd::{Uid, User, getgrouplist};
use oncrpc::{AuthSys, Call, Credential, PeerGroup};
use rpc_serving::by_address::ByAddress;
use std::collections::{HashMap, VecDeque};
use std::ffi::CString;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Largest number of users whose groups are cached. The oldest of the address that had most of them
/// looked up is evicted.
const MAX_USERS: usize = 4096;

/// Largest number of groups of a user; further ones are ignored.
const MAX_GROUPS_OF_USER: usize = 4096;

/// How long the groups of a user are cached.
const GROUPS_MAX_AGE: Duration = Duration::from_secs(300);

/// How long the absence of an entry, or a failure of the database, is cached.
const NO_GROUPS_MAX_AGE: Duration = Duration::from_secs(30);

/// Largest number of concurrent lookups. An address may have as many as it leaves free; further ones
/// wait.
const MAX_LOOKUPS: usize = 16;

/// How long a call waits for a lookup that another call has started, or for one of [`MAX_LOOKUPS`]
/// to end. After that it is answered jukebox.
const LOOKUP_WAIT: Duration = Duration::from_secs(2);

/// Source of the groups of users.
pub trait UserDatabase: Send + Sync {
    /// Returns the entry of a user; `None` if there is none. May take long.
    ///
    /// # Errors
    ///
    /// If the database does not answer.
    fn user(&self, uid: u32) -> io::Result<Option<UserEntry>>;
}

/// Entry of a user in the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserEntry {
    /// Primary group.
    pub gid: u32,
    /// All groups, including the primary one.
    pub groups: Vec<u32>,
}

/// The database that the C library consults (nsswitch.conf).
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemUsers;

impl UserDatabase for SystemUsers {
    fn user(&self, uid: u32) -> io::Result<Option<UserEntry>> {
        let Some(user) = User::from_uid(Uid::from_raw(uid))? else {
            return Ok(None);
        };
        let name = CString::new(user.name)?;
        let groups = getgrouplist(&name, user.gid)?;
        Ok(Some(UserEntry {
            gid: user.gid.as_raw(),
            groups: groups.into_iter().map(|gid| gid.as_raw()).collect(),
        }))
    }
}

/// Replaces claimed groups by those of the user database.
///
/// Applies to users of this machine that were [identified](oncrpc::Caller::local_uid), and to all
/// callers if configured. Clones share their state.
#[derive(Clone)]
pub struct UserGroups {
    of_everybody: bool,
    shared: Arc<Shared>,
}

struct Shared {
    database: Box<dyn UserDatabase>,
    /// See [`LOOKUP_WAIT`].
    wait: Duration,
    state: Mutex<State>,
    /// Signalled when a lookup ends.
    looked_up: Condvar,
}

#[derive(Default)]
struct State {
    users: HashMap<u32, Known>,
    /// Users in the order of lookups, by the address that had them looked up. Some may have been looked
    /// up again since.
    order: ByAddress<VecDeque<(u32, Instant)>>,
    /// Length of all of these.
    ordered: usize,
    /// Lookups in progress.
    being_looked_up: HashMap<u32, Lookup>,
    /// Time until which no further failure of the database is logged.
    quiet_until: Option<Instant>,
}

/// A lookup in progress: its start, and the address whose call began it.
#[derive(Clone, Copy)]
struct Lookup {
    since: Instant,
    of: PeerGroup,
}

#[derive(Clone)]
struct Known {
    entry: Option<Arc<UserEntry>>,
    until: Instant,
}

impl Default for UserGroups {
    fn default() -> Self {
        Self::new(SystemUsers)
    }
}

impl UserGroups {
    /// Creates a source that applies to users of this machine only.
    pub fn new(database: impl UserDatabase + 'static) -> Self {
        Self {
            of_everybody: false,
            shared: Arc::new(Shared {
                database: Box::new(database),
                wait: LOOKUP_WAIT,
                state: Mutex::default(),
                looked_up: Condvar::new(),
            }),
        }
    }

    /// Applies to all callers with AUTH_SYS, including those on other machines. They keep their
    /// claimed primary group, so that newgrp(1) works there.
    #[must_use]
    pub fn of_everybody(mut self) -> Self {
        self.of_everybody = true;
        self
    }

    /// Replaces the groups of the caller if that needs no lookup; returns whether they are final.
    /// If not, [`look_up`](Self::look_up) must be called on a thread that may wait.
    pub(crate) fn settle(&self, call: &mut Call) -> bool {
        let Some(uid) = self.whose(call) else {
            return true;
        };
        let known = self.shared.lock().known(uid, Instant::now());
        let Some(known) = known else {
            return false;
        };
        replace(call, known.entry.as_deref());
        true
    }

    /// Replaces the groups of the caller by those in the database; false if that takes too long and
    /// the call must be answered jukebox.
    #[must_use]
    pub(crate) fn look_up(&self, call: &mut Call) -> bool {
        let Some(uid) = self.whose(call) else {
            return true;
        };
        match self.shared.look_up(uid, call.caller.group) {
            Ok(entry) => replace(call, entry.as_deref()),
            Err(TooSlow) => return false,
        }
        true
    }

    /// Returns the user whose groups are to be replaced, if any.
    fn whose(&self, call: &Call) -> Option<u32> {
        match &call.cred {
            Credential::Sys(sys) if self.of_everybody || call.caller.known_uid().is_some() => {
                Some(sys.uid)
            }
            Credential::Sys(_) | Credential::None | Credential::Other { .. } => None,
        }
    }
}

/// The database did not answer in time.
#[derive(Debug)]
struct TooSlow;

/// Replaces the claimed groups by those of the database.
fn replace(call: &mut Call, entry: Option<&UserEntry>) {
    let is_known = call.caller.known_uid().is_some();
    let Credential::Sys(AuthSys { gid, gids, .. }) = &mut call.cred else {
        return;
    };
    let groups = entry.map_or(&[][..], |entry| &entry.groups);
    if is_known && !groups.contains(gid) {
        *gid = entry.map_or(ANONYMOUS, |entry| entry.gid);
    }
    *gids = groups.into();
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the database entry of a user, for a call from this address. Concurrent calls share one
    /// lookup.
    fn look_up(&self, uid: u32, of: PeerGroup) -> Result<Option<Arc<UserEntry>>, TooSlow> {
        let came = Instant::now();
        let mut state = self.lock();
        loop {
            let now = Instant::now();
            if let Some(known) = state.known(uid, now) {
                return Ok(known.entry);
            }
            // A call does not wait for a lookup that already hangs.
            let since = match state.being_looked_up.get(&uid) {
                Some(lookup) => lookup.since,
                None if state.may_look_up(of) => {
                    state.being_looked_up.insert(uid, Lookup { since: now, of });
                    break;
                }
                None => state.oldest_lookup().unwrap_or(came),
            };
            let left = (since.min(came) + self.wait).saturating_duration_since(now);
            if left.is_zero() {
                state.warn(uid, "the user database does not answer", now);
                return Err(TooSlow);
            }
            let waited = self.looked_up.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(state);
        let begun = BeingLookedUp { shared: self, uid };
        let found = self.database.user(uid);
        let mut state = self.lock();
        let now = Instant::now();
        let entry = found.unwrap_or_else(|error| {
            state.warn(uid, &format!("{error}; the user acts without"), now);
            None
        });
        let entry = entry.map(|mut entry| {
            if entry.groups.len() > MAX_GROUPS_OF_USER {
                tracing::warn!(
                    uid,
                    groups = entry.groups.len(),
                    "of so many groups the first {MAX_GROUPS_OF_USER} count"
                );
                entry.groups.truncate(MAX_GROUPS_OF_USER);
            }
            Arc::new(entry)
        });
        state.remember(uid, of, entry.clone(), now);
        drop(state);
        drop(begun);
        Ok(entry)
    }
}

/// A lookup in progress. Dropping it, also in a panic, allows others to try.
struct BeingLookedUp<'a> {
    shared: &'a Shared,
    uid: u32,
}

impl Drop for BeingLookedUp<'_> {
    fn drop(&mut self) {
        self.shared.lock().being_looked_up.remove(&self.uid);
        self.shared.looked_up.notify_all();
    }
}

impl State {
    fn known(&self, uid: u32, now: Instant) -> Option<Known> {
        let known = self.users.get(&uid)?;
        (now < known.until).then(|| known.clone())
    }

    /// Whether a call from this address may begin a lookup. An address without one gets the last place.
    fn may_look_up(&self, of: PeerGroup) -> bool {
        let left = MAX_LOOKUPS - self.being_looked_up.len();
        let lookups = self.being_looked_up.values();
        let own = lookups.filter(|lookup| lookup.of == of).count();
        left > 0 && (own == 0 || own < left)
    }

    fn oldest_lookup(&self) -> Option<Instant> {
        let lookups = self.being_looked_up.values();
        lookups.map(|lookup| lookup.since).min()
    }

    /// Logs a failure of the database, unless one was logged recently.
    fn warn(&mut self, uid: u32, error: &str, now: Instant) {
        if self.quiet_until.is_none_or(|until| until <= now) {
            self.quiet_until = Some(now + NO_GROUPS_MAX_AGE);
            tracing::warn!(uid, %error, "cannot look up the groups of a user");
        }
    }

    fn remember(&mut self, uid: u32, of: PeerGroup, entry: Option<Arc<UserEntry>>, now: Instant) {
        let age = match entry {
            Some(_) => GROUPS_MAX_AGE,
            None => NO_GROUPS_MAX_AGE,
        };
        let until = now + age;
        self.users.insert(uid, Known { entry, until });
        self.order.change(of, |users| users.push_back((uid, until)));
        self.ordered += 1;
        if self.ordered > MAX_USERS {
            self.forget();
        }
    }

    /// Forgets the oldest user of the address that had most of them looked up.
    fn forget(&mut self) {
        let most = self.order.iter().max_by_key(|(_, users)| users.len());
        let Some((of, _)) = most else {
            return;
        };
        let oldest = self.order.change(of, VecDeque::pop_front);
        self.ordered -= 1;
        if let Some((uid, until)) = oldest
            && self
                .users
                .get(&uid)
                .is_some_and(|known| known.until == until)
        {
            self.users.remove(&uid);
        }
    }
}

#[cfg(test)]
mod tests;
