//! Groups of users from the user database of this machine, instead of those that callers claim.
//!
//! AUTH_SYS has room for 16 groups (RFC 5531 Appendix A), and any caller can claim any group. The
//! database may be remote, so only jobs query it, and results are cached. If it hangs, it blocks a
//! bounded number of their threads.

use crate::client_options::ANONYMOUS;
use nix::unistd::{Uid, User, getgrouplist};
use oncrpc::{AuthSys, Call, Credential};
use std::collections::{HashMap, VecDeque};
use std::ffi::CString;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Users whose groups are remembered. Of more the oldest are asked for again.
const MAX_USERS: usize = 4096;

/// Groups of one user that are taken into account.
const MAX_GROUPS_OF_USER: usize = 4096;

/// How long the groups of a user are good.
const GROUPS_MAX_AGE: Duration = Duration::from_secs(300);

/// How long it is remembered that a user has no entry, or that the database did not answer.
const NO_GROUPS_MAX_AGE: Duration = Duration::from_secs(30);

/// Users that are looked up at a time. Others wait for one of them.
const MAX_LOOKUPS: usize = 16;

/// How long a call waits for a lookup of another one, or for one of [`MAX_LOOKUPS`]. Then its client is told
/// to come again.
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
    /// Somebody was looked up.
    looked_up: Condvar,
}

#[derive(Default)]
struct State {
    users: HashMap<u32, Known>,
    /// In the order in which they were looked up. Some may have been again since.
    order: VecDeque<(u32, Instant)>,
    /// Since when each user is being looked up.
    being_looked_up: HashMap<u32, Instant>,
    /// No further failure of the database is logged before this.
    quiet_until: Option<Instant>,
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
    /// Creates it for users of this machine only.
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

    /// Extends it to all callers with AUTH_SYS, on other machines too. These keep their claimed
    /// primary group, so that newgrp(1) works there.
    #[must_use]
    pub fn of_everybody(mut self) -> Self {
        self.of_everybody = true;
        self
    }

    /// Whether the groups of the caller are settled: nothing is to be replaced, or it was just now.
    /// Otherwise [`look_up`](Self::look_up) is to be called where it may wait.
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

    /// Replaces the groups of the caller by what the database says; false if that takes too long, and the
    /// client is to come again.
    #[must_use]
    pub(crate) fn look_up(&self, call: &mut Call) -> bool {
        let Some(uid) = self.whose(call) else {
            return true;
        };
        match self.shared.look_up(uid) {
            Ok(entry) => replace(call, entry.as_deref()),
            Err(TooSlow) => return false,
        }
        true
    }

    /// The user whose groups are to be replaced.
    fn whose(&self, call: &Call) -> Option<u32> {
        match &call.cred {
            Credential::Sys(sys) if self.of_everybody || call.caller.known_uid().is_some() => {
                Some(sys.uid)
            }
            Credential::Sys(_) | Credential::None | Credential::Other { .. } => None,
        }
    }
}

/// The database does not answer in time.
#[derive(Debug)]
struct TooSlow;

/// Puts the groups of the database in place of those claimed.
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

    /// What the database says of a user, asked once for all who want to know meanwhile.
    fn look_up(&self, uid: u32) -> Result<Option<Arc<UserEntry>>, TooSlow> {
        let came = Instant::now();
        let mut state = self.lock();
        loop {
            let now = Instant::now();
            if let Some(known) = state.known(uid, now) {
                return Ok(known.entry);
            }
            // Whoever comes to a lookup that hangs already does not wait for it.
            let since = match state.being_looked_up.get(&uid) {
                Some(since) => *since,
                None if state.being_looked_up.len() < MAX_LOOKUPS => {
                    state.being_looked_up.insert(uid, now);
                    break;
                }
                None => state
                    .being_looked_up
                    .values()
                    .min()
                    .map_or(came, |oldest| *oldest),
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
        state.remember(uid, entry.clone(), now);
        drop(state);
        drop(begun);
        Ok(entry)
    }
}

/// A user that is being looked up. Dropped, in a panic as well, others may try.
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

    /// Says that groups are not to be had, unless it was said lately.
    fn warn(&mut self, uid: u32, error: &str, now: Instant) {
        if self.quiet_until.is_none_or(|until| until <= now) {
            self.quiet_until = Some(now + NO_GROUPS_MAX_AGE);
            tracing::warn!(uid, %error, "cannot look up the groups of a user");
        }
    }

    fn remember(&mut self, uid: u32, entry: Option<Arc<UserEntry>>, now: Instant) {
        let age = match entry {
            Some(_) => GROUPS_MAX_AGE,
            None => NO_GROUPS_MAX_AGE,
        };
        let until = now + age;
        self.users.insert(uid, Known { entry, until });
        self.order.push_back((uid, until));
        while self.order.len() > MAX_USERS {
            let oldest = self.order.pop_front();
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
}

#[cfg(test)]
mod tests;
