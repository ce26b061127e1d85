//! Documents of the control socket about clients of NFS version 4 and what they hold, and their text.

use nfs_client::printable;
use printing::table::Columns;
use printing::units;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::time::Duration;

/// Opens and owners of locks that are listed at most.
pub const MAX_HELD: usize = 10_000;

/// A client of NFS version 4.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct Nfs4ClientStatus {
    /// Client id, in hexadecimal digits.
    pub id: String,
    /// Name by which the client calls itself, as text: other bytes are written as `\xNN`, a backslash as `\\`.
    pub name: String,
    /// Addresses and ports of its connections, at most 16.
    pub addresses: Vec<String>,
    /// Minor version of its newest session; null without one.
    pub minor_version: Option<u32>,
    /// `unconfirmed` (without a session as yet), `active`, `courtesy` (its lease ran out, and what it holds is in nobody's way) or
    /// `leaving` (what it holds ends).
    pub state: String,
    /// Whether it has reclaimed what it had before a restart of the server, and may open and lock files.
    pub has_reclaimed: bool,
    /// Seconds since it last renewed its lease.
    pub renewed_seconds: f64,
    /// Sessions.
    pub sessions: u64,
    /// Calls that it may have in flight, in all sessions together.
    pub slots: u64,
    /// Whether the server can call it, to tell it that a lock is free.
    pub callbacks: bool,
    /// Opens.
    pub opens: u64,
    /// Locks of byte ranges.
    pub locks: u64,
    /// Locks that it waits for.
    pub waiting: u64,
    /// Opens and owners of locks that an administrator took from it, of which it has not taken note as yet.
    pub revoked: u64,
}

/// An open of a client of NFS version 4, or the locks of one owner in an open.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct HeldStatus {
    /// Client id, in hexadecimal digits.
    pub client: String,
    /// Name of the client, as text.
    pub client_name: String,
    /// Name of the owner, in the client's terms, as text.
    pub owner: String,
    /// Name of the export; null if it is exported no more.
    pub export: Option<String>,
    /// Path of the file on the server, if it is known.
    pub path: Option<String>,
    /// The file as handles of the export name it, in hexadecimal digits.
    pub file: String,
    /// `open` or `locks`.
    pub kind: String,
    /// Of an open: whether it is for reading.
    #[serde(default)]
    pub reads: bool,
    /// Of an open: whether it is for writing.
    #[serde(default)]
    pub writes: bool,
    /// Of an open: whether others may not open the file for reading.
    #[serde(default)]
    pub denies_reading: bool,
    /// Of an open: whether others may not open the file for writing.
    #[serde(default)]
    pub denies_writing: bool,
    /// The locks of an owner, at most 16.
    #[serde(default)]
    pub locks: Vec<LockStatus>,
    /// Whether the owner has more of them.
    #[serde(default)]
    pub has_more_locks: bool,
    /// Whether an administrator took it from the client, which has not taken note as yet.
    pub revoked: bool,
}

/// A lock of a byte range.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct LockStatus {
    /// The first byte.
    pub first: u64,
    /// The last byte; null for the end of the file, however long it gets.
    pub last: Option<u64>,
    /// Whether it excludes all others, as for writing.
    pub exclusive: bool,
}

/// A list of what clients hold.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HeldList {
    /// Opens, and owners of locks.
    pub held: Vec<HeldStatus>,
    /// Whether there are more.
    pub has_more: bool,
    /// Why there is no list.
    #[serde(default)]
    pub error: Option<String>,
}

/// The state of clients of NFS version 4, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct StateStatus {
    /// Seconds in which clients renew their lease.
    pub lease_seconds: f64,
    /// Directory with the records of clients; null if there is none, and clients lose their locks when the server restarts.
    pub records: Option<String>,
    /// Whether new opens and locks wait, as clients reclaim those that they had before the server was restarted.
    pub grace: bool,
    /// Seconds until that ends, unless clients still reclaim then.
    pub grace_seconds_left: Option<f64>,
    /// Clients that have not reclaimed theirs yet.
    pub awaited_clients: u64,
    /// Client ids.
    pub clients: Share,
    /// Sessions.
    pub sessions: Share,
    /// Opens, and owners of locks in them.
    pub opens: Share,
    /// Locks of byte ranges.
    pub locks: Share,
    /// Owners that wait for locks.
    pub waiting: Share,
    /// Something that was done, in words, as it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<String>,
    /// Why it was not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A number, and how large it may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub struct Share {
    /// How many there are.
    pub now: u64,
    /// How many there may be.
    pub limit: u64,
}

/// Something to do with the state of clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateAction {
    /// End a client, named by its id or its name.
    Expire(String),
    /// Revoke all that clients hold in an export.
    Release(String),
    /// End the grace period.
    EndGrace,
}

/// A line for each client of NFS version 4; nothing without any.
pub fn describe_clients(clients: &[Nfs4ClientStatus]) -> String {
    let mut table = Columns::with_long_lines(&[0, 1, 2, 3, 10], 2);
    if clients.is_empty() {
        return String::new();
    }
    let names = [
        "NFSv4 client",
        "address",
        "v",
        "state",
        "renewed",
        "sessions",
        "slots",
        "opens",
        "locks",
        "waiting",
        "name",
    ];
    table.add(names.map(str::to_owned));
    for client in clients {
        let minor = client.minor_version;
        let state = match (&*client.state, client.has_reclaimed) {
            ("active", false) => "reclaims",
            (state, _) => state,
        };
        table.add([
            client.id.clone(),
            match &client.addresses[..] {
                [] => "-".to_owned(),
                [one] => shown(one),
                [one, more @ ..] => format!("{} +{}", shown(one), more.len()),
            },
            minor.map_or("-".to_owned(), |minor| format!("4.{minor}")),
            shown(state),
            seconds(client.renewed_seconds),
            client.sessions.to_string(),
            client.slots.to_string(),
            client.opens.to_string(),
            client.locks.to_string(),
            client.waiting.to_string(),
            shown(&client.name),
        ]);
    }
    table.to_string()
}

/// A line for each open, and for the locks of each owner.
pub fn describe_held(list: &HeldList) -> String {
    if list.held.is_empty() {
        return "no opens and no locks\n".to_owned();
    }
    let mut table = Columns::with_long_lines(&[0, 1, 2, 3], 2);
    table.add(["client", "kind", "what", "file"].map(str::to_owned));
    for held in &list.held {
        let kind = match held.revoked {
            true => "revoked".to_owned(),
            false => shown(&held.kind),
        };
        let file = match (&held.path, &held.export) {
            (Some(path), _) => shown(path),
            (None, Some(export)) => format!("{} {}", shown(export), shown(&held.file)),
            (None, None) => format!("- {}", shown(&held.file)),
        };
        table.add([shown(&held.client), kind, held.describe(), file]);
    }
    let more = match list.has_more {
        true => "and more, which are not shown\n",
        false => "",
    };
    format!("{table}{more}")
}

impl HeldStatus {
    /// Access of an open, or the locks, in words.
    fn describe(&self) -> String {
        if self.kind == "open" {
            let words = |reads, writes| match (reads, writes) {
                (true, true) => "read, write",
                (true, false) => "read",
                (false, true) => "write",
                (false, false) => "",
            };
            return match words(self.denies_reading, self.denies_writing) {
                "" => words(self.reads, self.writes).to_owned(),
                denied => format!("{}; denies {denied}", words(self.reads, self.writes)),
            };
        }
        let locks = self.locks.iter().map(|lock| {
            let kind = if lock.exclusive { "write" } else { "read" };
            let last = lock.last.map_or("end".to_owned(), |last| last.to_string());
            format!("{kind} {}-{last}", lock.first)
        });
        let more = self.has_more_locks.then(|| "...".to_owned());
        locks.chain(more).collect::<Vec<_>>().join(", ")
    }
}

impl StateStatus {
    /// The numbers in lines.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        let mut row = |name: &str, value: String| {
            // A String takes all.
            let _ = writeln!(text, "{name:9}{value}");
        };
        row("lease", seconds(self.lease_seconds));
        row(
            "grace",
            match (self.grace, self.grace_seconds_left) {
                (false, _) => "over".to_owned(),
                (true, None) => "ending".to_owned(),
                (true, Some(left)) => format!(
                    "{} left, {} {} still to reclaim",
                    seconds(left),
                    self.awaited_clients,
                    if self.awaited_clients == 1 {
                        "client has"
                    } else {
                        "clients have"
                    }
                ),
            },
        );
        row(
            "records",
            self.records.as_deref().map_or_else(
                || "none: NFSv4 clients lose their locks when the server restarts".to_owned(),
                shown,
            ),
        );
        for (name, share) in [
            ("clients", self.clients),
            ("sessions", self.sessions),
            ("opens", self.opens),
            ("locks", self.locks),
            ("waiting", self.waiting),
        ] {
            row(name, format!("{} of {}", share.now, share.limit));
        }
        text
    }
}

fn shown(text: &str) -> String {
    printable(text.as_bytes())
}

/// Whole seconds, in words.
fn seconds(time: f64) -> String {
    let time = Duration::try_from_secs_f64(time.round()).unwrap_or_default();
    units::duration(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_shown_with_what_they_hold() {
        let client = Nfs4ClientStatus {
            id: "00ff".to_owned(),
            name: "Linux NFSv4.2 host".to_owned(),
            addresses: vec!["192.0.2.1:700".to_owned(), "192.0.2.1:701".to_owned()],
            minor_version: Some(2),
            state: "active".to_owned(),
            renewed_seconds: 12.4,
            opens: 3,
            ..Nfs4ClientStatus::default()
        };
        let text = describe_clients(std::slice::from_ref(&client));
        let line = text.lines().nth(1).unwrap();
        for part in [
            "  192.0.2.1:700 +1  4.2  reclaims ",
            " 12 s ",
            "  Linux NFSv4.2 host",
        ] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
        assert_eq!(describe_clients(&[]), "");
    }

    #[test]
    fn opens_and_locks_are_shown_with_their_files() {
        let open = HeldStatus {
            client: "01".to_owned(),
            export: Some("/data".to_owned()),
            path: Some("/srv/data/f\n".to_owned()),
            kind: "open".to_owned(),
            reads: true,
            denies_writing: true,
            ..HeldStatus::default()
        };
        let lock = |first, last, exclusive| LockStatus {
            first,
            last,
            exclusive,
        };
        let locks = HeldStatus {
            kind: "locks".to_owned(),
            path: None,
            file: "beef".to_owned(),
            locks: vec![lock(0, Some(9), false), lock(20, None, true)],
            has_more_locks: true,
            ..open.clone()
        };
        let list = HeldList {
            held: vec![open, locks],
            has_more: true,
            error: None,
        };
        let text = describe_held(&list);
        for part in [
            "01      open   read; denies write",
            "/srv/data/f\\x0a\n",
            "read 0-9, write 20-end, ...",
            "/data beef\n",
            "and more",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }

    #[test]
    fn state_is_shown_against_its_limits() {
        let mut state = StateStatus {
            lease_seconds: 90.0,
            grace: true,
            grace_seconds_left: Some(30.2),
            awaited_clients: 2,
            clients: Share {
                now: 3,
                limit: 10_000,
            },
            ..StateStatus::default()
        };
        let text = state.describe();
        assert!(
            text.contains("grace    30 s left, 2 clients have"),
            "{text}"
        );
        assert!(text.contains("clients  3 of 10000\n"), "{text}");
        state.grace = false;
        assert!(state.describe().contains("grace    over\n"));
    }
}
