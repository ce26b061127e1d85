//! Names of users and groups, from the user database of this machine.
//!
//! The ids are those of the server. Names are right where both machines have the same users, as
//! NFS version 3 with AUTH_SYS demands of them anyway.

use crate::failure::Usage;
use nfs_client::printable;
use nix::unistd::{Gid, Group, Uid, User};
use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Users whose names are remembered, and as many groups. When there are more, all are forgotten.
const MAX_NAMES: usize = 4096;

/// How long the user database may take. After that, ids are shown as numbers.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(10);

/// Names of users and groups; numbers where there is no name.
pub(crate) struct Owners {
    /// Whether names are wanted, and the database answers.
    names: bool,
    users: BTreeMap<u32, Option<String>>,
    groups: BTreeMap<u32, Option<String>>,
}

/// Names by their ids.
type Found = BTreeMap<u32, Option<String>>;

impl Owners {
    /// Looks names up, unless numbers are wanted.
    pub(crate) fn new(numeric: bool) -> Self {
        Self {
            names: !numeric,
            users: BTreeMap::new(),
            groups: BTreeMap::new(),
        }
    }

    /// Looks up the names of these users and groups, as far as they are not known yet.
    pub(crate) async fn learn(&mut self, owners: impl IntoIterator<Item = (u32, u32)>) {
        if !self.names {
            return;
        }
        let (mut users, mut groups) = (BTreeSet::new(), BTreeSet::new());
        for (user, group) in owners {
            if !self.users.contains_key(&user) && users.len() < MAX_NAMES {
                users.insert(user);
            }
            if !self.groups.contains_key(&group) && groups.len() < MAX_NAMES {
                groups.insert(group);
            }
        }
        if users.is_empty() && groups.is_empty() {
            return;
        }
        match timeout(DATABASE_TIMEOUT, look_up(users, groups)).await {
            Ok(Some((users, groups))) => {
                remember(&mut self.users, users);
                remember(&mut self.groups, groups);
            }
            Ok(None) | Err(_) => {
                tracing::warn!("the user database does not answer: owners are shown as numbers");
                self.names = false;
            }
        }
    }

    /// Name of a user that was learnt, if there is one.
    pub(crate) fn user_name(&self, uid: u32) -> Option<&str> {
        self.users.get(&uid)?.as_deref()
    }

    /// Name of a group that was learnt, if there is one.
    pub(crate) fn group_name(&self, gid: u32) -> Option<&str> {
        self.groups.get(&gid)?.as_deref()
    }

    /// A user as it is shown.
    pub(crate) fn user(&self, uid: u32) -> String {
        self.user_name(uid)
            .map_or_else(|| uid.to_string(), str::to_owned)
    }

    /// A group as it is shown.
    pub(crate) fn group(&self, gid: u32) -> String {
        self.group_name(gid)
            .map_or_else(|| gid.to_string(), str::to_owned)
    }
}

fn remember(names: &mut Found, found: Found) {
    if names.len() + found.len() > MAX_NAMES {
        names.clear();
    }
    names.extend(found);
}

/// Asks the database in a thread of its own: nobody waits for one that hangs, not even the end of the
/// program. Nothing if there is no thread.
async fn look_up(users: BTreeSet<u32>, groups: BTreeSet<u32>) -> Option<(Found, Found)> {
    let (send, found) = oneshot::channel();
    thread::Builder::new()
        .name("user database".to_owned())
        .spawn(move || {
            let user = |uid| User::from_uid(Uid::from_raw(uid)).ok()?;
            let group = |gid| Group::from_gid(Gid::from_raw(gid)).ok()?;
            let shown = |name: String| printable(name.as_bytes());
            let users = users
                .into_iter()
                .map(|uid| (uid, user(uid).map(|user| shown(user.name))));
            let groups = groups
                .into_iter()
                .map(|gid| (gid, group(gid).map(|group| shown(group.name))));
            // Nobody listens any more if it took too long.
            let _ = send.send((users.collect(), groups.collect()));
        })
        .ok()?;
    found.await.ok()
}

/// The user and the group that `USER`, `USER:GROUP`, `USER:` or `:GROUP` means, each a name or a number;
/// `USER:` stands for the group that the user database has for the user.
///
/// # Errors
///
/// [`Usage`] if there is no such user or group.
pub(crate) fn parse_owner(text: &str) -> Result<(Option<u32>, Option<u32>), Usage> {
    let (user, group) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (text, None),
    };
    let uid = match user {
        "" => None,
        user => Some(find_user(user)?),
    };
    let gid = match group {
        None => None,
        Some("") => match uid {
            Some(uid) => Some(login_group(user, uid)?),
            None => None,
        },
        Some(group) => Some(find_group(group)?),
    };
    Ok((uid, gid))
}

/// The largest id: the one above it means that there is none (chown(2)).
const MAX_ID: u32 = u32::MAX - 1;

fn find_user(user: &str) -> Result<u32, Usage> {
    match User::from_name(user) {
        Ok(Some(found)) => Ok(found.uid.as_raw()),
        Ok(None) | Err(_) => number(user).ok_or_else(|| {
            Usage(format!(
                "there is no user {} on this machine (a number needs none)",
                printable(user.as_bytes())
            ))
        }),
    }
}

fn find_group(group: &str) -> Result<u32, Usage> {
    match Group::from_name(group) {
        Ok(Some(found)) => Ok(found.gid.as_raw()),
        Ok(None) | Err(_) => number(group).ok_or_else(|| {
            Usage(format!(
                "there is no group {} on this machine (a number needs none)",
                printable(group.as_bytes())
            ))
        }),
    }
}

fn login_group(user: &str, uid: u32) -> Result<u32, Usage> {
    match User::from_uid(Uid::from_raw(uid)) {
        Ok(Some(found)) => Ok(found.gid.as_raw()),
        Ok(None) | Err(_) => Err(Usage(format!(
            "user {} is not known on this machine: give the group, as in {}:GROUP",
            printable(user.as_bytes()),
            printable(user.as_bytes())
        ))),
    }
}

fn number(text: &str) -> Option<u32> {
    let text = text.strip_prefix('+').unwrap_or(text);
    text.parse().ok().filter(|id| *id <= MAX_ID)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn names_come_from_the_database_and_ids_without_one_are_numbers() {
        let nobody = 4_000_000_000;
        let mut owners = Owners::new(false);
        owners.learn([(0, 0), (nobody, nobody)]).await;
        assert_eq!(
            (owners.user(0), owners.group(0)),
            ("root".into(), "root".into())
        );
        assert_eq!(owners.user(nobody), nobody.to_string());
        let mut owners = Owners::new(true);
        owners.learn([(0, 0)]).await;
        assert_eq!((owners.user(0), owners.group(0)), ("0".into(), "0".into()));
    }

    #[tokio::test]
    async fn number_of_names_that_are_remembered_is_bounded() {
        let mut owners = Owners::new(false);
        let many = u32::try_from(3 * MAX_NAMES).unwrap();
        for first in (0..many).step_by(1000) {
            owners.learn((first..first + 1000).map(|id| (id, id))).await;
            assert!(owners.users.len() <= MAX_NAMES && owners.groups.len() <= MAX_NAMES);
        }
    }

    #[test]
    fn owners_are_names_or_numbers() {
        let check = |text: &str, owner| assert_eq!(parse_owner(text).unwrap(), owner, "{text}");
        check("root", (Some(0), None));
        check("root:", (Some(0), Some(0)));
        check(":root", (None, Some(0)));
        check("0:0", (Some(0), Some(0)));
        check("+7:+8", (Some(7), Some(8)));
        check("4294967294", (Some(MAX_ID), None));
        check(":", (None, None));
        check("", (None, None));
        for bad in [
            "no such user",
            "-1",
            "4294967295",
            "4294967290:",
            "root:no such group",
        ] {
            assert!(parse_owner(bad).is_err(), "{bad}");
        }
    }
}
