//! Events of the state in the log. Clients can cause as many as they like, so of each kind there are few lines in a while.

use crate::nfs4::owner_name::owner_name;
use nfs4_state::{ClientEnd, Event, GraceEnd, Limit};
use std::time::{Duration, Instant};

/// Time in which there are few lines of a kind.
const PERIOD: Duration = Duration::from_secs(60);

/// Lines about clients that end, in a period.
const MAX_ENDED: u32 = 16;

/// Tells events in the log.
#[derive(Default)]
pub(super) struct EventLog {
    ended: Few,
    limits: [Few; 4],
}

/// Lines of one kind.
#[derive(Default)]
struct Few {
    since: Option<Instant>,
    said: u32,
    left_out: u64,
}

impl Few {
    /// Returns whether one more line may be said.
    fn may_say(&mut self, now: Instant, most: u32) -> bool {
        if self.since.is_none_or(|since| since + PERIOD <= now) {
            self.since = Some(now);
            self.said = 0;
        }
        let may = self.said < most;
        match may {
            true => self.said += 1,
            false => self.left_out += 1,
        }
        may
    }

    /// Takes the number of lines that were left out in a period that is over.
    fn take_left_out(&mut self, now: Instant, all: bool) -> u64 {
        match all || self.since.is_none_or(|since| since + PERIOD <= now) {
            true => std::mem::take(&mut self.left_out),
            false => 0,
        }
    }
}

impl EventLog {
    /// Tells an event.
    pub(super) fn tell(&mut self, now: Instant, event: Event) {
        match event {
            Event::GraceEnded { why, lost: 0 } => tracing::info!(
                target: "serve",
                "NFSv4 clients may lock files again: {}",
                end_of_grace(why)
            ),
            Event::GraceEnded { why, lost } => tracing::warn!(
                target: "serve",
                lost,
                "NFSv4 clients may lock files again: {}; clients that had not reclaimed their locks have lost them",
                end_of_grace(why)
            ),
            Event::ClientEnded {
                client,
                owner,
                why,
                opens,
                locks,
            } => {
                self.summarise(now, false);
                if self.ended.may_say(now, MAX_ENDED) {
                    tracing::warn!(
                        target: "serve",
                        client = %owner_name(&owner),
                        id = format!("{:016x}", client.0),
                        opens,
                        locks,
                        "the state of an NFSv4 client ends: {}",
                        end_of_client(why)
                    );
                }
            }
            Event::LimitReached(limit) => {
                if self.limits[limit as usize].may_say(now, 1) {
                    tracing::warn!(
                        target: "serve",
                        "{}: NFSv4 clients that want more have to wait",
                        reached(limit)
                    );
                }
            }
        }
    }

    /// Tells how many clients have ended of which there was no line, once the period is over, or at the end.
    pub(super) fn summarise(&mut self, now: Instant, is_ending: bool) {
        let count = self.ended.take_left_out(now, is_ending);
        if count > 0 {
            tracing::warn!(target: "serve", count, "the state of further NFSv4 clients has ended");
        }
    }
}

fn end_of_grace(why: GraceEnd) -> &'static str {
    match why {
        GraceEnd::Complete => "all clients have reclaimed theirs",
        GraceEnd::TimeUp => "the time to reclaim locks is over",
        GraceEnd::Administrator => "the administrator has ended the time to reclaim locks",
    }
}

fn end_of_client(why: ClientEnd) -> &'static str {
    match why {
        ClientEnd::InTheWay => "its lease ran out, and another client wants what it has",
        ClientEnd::NoRoom => {
            "its lease ran out, and there is no room for what another client wants"
        }
        ClientEnd::Expired => "its lease ran out long ago",
        ClientEnd::Replaced => "its lease ran out, and another user has come under its name",
        ClientEnd::Administrator => "the administrator has ended it",
    }
}

fn reached(limit: Limit) -> &'static str {
    match limit {
        Limit::Clients => {
            "there are as many NFSv4 clients as there may be, of all or of one address"
        }
        Limit::Sessions => "there are as many sessions as there may be, of all or of one address",
        Limit::Opens => "as many files are open as may be, of all or of one address",
        Limit::Locks => "there are as many locks as there may be, of all or of one address or file",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::captured_log::captured_log;
    use nfs_proto::v4::ClientId;

    #[test]
    fn few_lines_tell_of_many_events() {
        let (mut log, now) = (EventLog::default(), Instant::now());
        let said = captured_log(|| {
            for n in 0..100 {
                log.tell(
                    now,
                    Event::ClientEnded {
                        client: ClientId(n),
                        owner: b"a client"[..].into(),
                        why: ClientEnd::InTheWay,
                        opens: 1,
                        locks: 2,
                    },
                );
                log.tell(now, Event::LimitReached(Limit::Opens));
                log.tell(now, Event::LimitReached(Limit::Locks));
            }
            log.summarise(now, false);
            log.summarise(now + PERIOD, false);
            log.summarise(now + PERIOD, true);
        });
        assert_eq!(said.matches("another client wants").count(), 16, "{said}");
        assert_eq!(said.matches("have to wait").count(), 2, "{said}");
        assert_eq!(said.matches("has ended").count(), 1, "{said}");
        assert!(said.contains("count=84"), "{said}");
    }

    #[test]
    fn end_of_grace_is_told_with_the_reason() {
        let mut log = EventLog::default();
        let why = GraceEnd::TimeUp;
        let said = captured_log(|| {
            log.tell(Instant::now(), Event::GraceEnded { why, lost: 3 });
            let why = GraceEnd::Complete;
            log.tell(Instant::now(), Event::GraceEnded { why, lost: 0 });
        });
        assert!(said.contains("the time to reclaim locks is over"), "{said}");
        assert!(said.contains("lost=3"), "{said}");
        assert!(said.contains("all clients have reclaimed theirs"), "{said}");
    }
}
