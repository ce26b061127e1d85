//! Work of queue pairs per call.

use crate::table::Columns;
use serde::Serialize;
use std::collections::BTreeMap;
use verbs::IoCounters;

/// Declares the members, each of which is a counter of the same name.
macro_rules! work {
    ($($(#[$doc:meta])* $field:ident = $text:literal,)*) => {
        /// Work of the queue pairs of one end per call: what its device was asked for and what it reported. What a
        /// provider cannot know is 0.
        #[derive(Clone, Debug, PartialEq, Serialize)]
        #[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
        pub struct Work {
            /// Calls; the other members are divided by them.
            calls: u64,
            $($(#[$doc])* pub $field: f64,)*
        }

        impl Work {
            /// None without a call.
            pub fn new(done: &BTreeMap<String, u64>, calls: u64) -> Option<Self> {
                let per_call = |name| done.get(name).copied().unwrap_or(0) as f64 / calls as f64;
                (calls > 0).then(|| Self {
                    calls,
                    $($field: per_call(stringify!($field)),)*
                })
            }

            /// Each count with its name for people.
            fn counts(&self) -> Vec<(&'static str, f64)> {
                vec![$(($text, self.$field),)*]
            }
        }
    };
}

work! {
    /// Send work requests.
    sends = "Sends",
    /// RDMA Write work requests.
    writes = "RDMA Writes",
    /// RDMA Read work requests.
    rdma_reads = "RDMA Reads",
    /// Receive work requests.
    receives = "Receives",
    /// Bindings of memory windows.
    binds = "bindings of memory windows",
    /// Invalidations of handles by a work request of this end.
    local_invalidations = "local invalidations",
    /// Handles that a Send of the peer invalidated.
    remote_invalidations = "remote invalidations",
    /// Work requests whose data was copied into them.
    inline_data = "work requests with inline data",
    /// Calls that gave the device a chain of work requests other than Receives.
    doorbells = "doorbells",
    /// Calls that gave the device a chain of Receives.
    receive_doorbells = "doorbells for Receives",
    /// Signalled completions, without those of Receives.
    completions = "signalled completions",
    /// Completions of Receives.
    receive_completions = "completions of Receives",
    /// Looks at the completion queue.
    polls = "looks at the completion queue",
    /// Requests to be notified of the next completion.
    arms = "requests for a notification",
    /// Notifications that were taken.
    notifications = "notifications",
    /// Registrations of memory.
    registrations = "registrations",
    /// Bytes of payload copied within memory by the transport.
    bytes_copied = "bytes copied",
}

/// Counts of the work of queue pairs, by the names of their members in [`Work`].
pub fn counts(io: &IoCounters) -> BTreeMap<String, u64> {
    let all = io.work.iter().chain([("bytes_copied", io.bytes_copied)]);
    all.map(|(name, count)| (name.to_owned(), count)).collect()
}

impl Work {
    /// Calls of which these are the counts.
    pub fn calls(&self) -> u64 {
        self.calls
    }
}

/// A column for each end, and a line for each counter that is not 0 at all of them.
pub fn table(ends: &[(&str, &Work)]) -> Columns {
    let mut lines = Columns::new(&[0]);
    let mut row = |name: &str, cells: Vec<String>| {
        lines.add(
            std::iter::once(name.to_owned())
                .chain(cells)
                .collect::<Vec<_>>(),
        );
    };
    row("", ends.iter().map(|(end, _)| (*end).to_owned()).collect());
    let counts: Vec<_> = ends.iter().map(|(_, work)| work.counts()).collect();
    let Some(names) = counts.first() else {
        return lines;
    };
    for (at, (name, _)) in names.iter().enumerate() {
        let cells = counts.iter().map(|counts| counts[at].1);
        if cells.clone().any(|count| count > 0.0) {
            row(name, cells.map(|count| format!("{count:.3}")).collect());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_divided_by_the_calls() {
        let mut done = IoCounters::default();
        done.work.sends = 6;
        done.work.registrations = 1;
        done.bytes_copied = 100;
        let done = counts(&done);
        let work = Work::new(&done, 4).unwrap();
        assert_eq!(
            (
                work.calls,
                work.sends,
                work.registrations,
                work.bytes_copied
            ),
            (4, 1.5, 0.25, 25.0)
        );
        let shown = table(&[("client", &work)]).to_string();
        assert_eq!(shown.lines().count(), 4, "{shown}");
        assert!(shown.contains("1.500"), "{shown}");
        assert!(Work::new(&done, 0).is_none());
    }

    #[test]
    fn every_counter_of_a_queue_pair_has_a_member() {
        let done = counts(&IoCounters::default());
        let names: Vec<_> = done.keys().map(String::as_str).collect();
        let work = serde_json::to_value(Work::new(&done, 1)).unwrap();
        let mut members: Vec<_> = work.as_object().unwrap().keys().collect();
        members.retain(|name| *name != "calls");
        members.sort_unstable();
        assert_eq!(members, names);
    }

    #[test]
    fn ends_stand_side_by_side() {
        let end = |sends, writes| {
            let mut done = IoCounters::default();
            (done.work.sends, done.work.writes) = (sends, writes);
            Work::new(&counts(&done), 1).unwrap()
        };
        let shown = table(&[("client", &end(1, 0)), ("server", &end(1, 8))]).to_string();
        let rows: Vec<Vec<_>> = shown
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        let expected = [
            vec!["client", "server"],
            vec!["Sends", "1.000", "1.000"],
            vec!["RDMA", "Writes", "0.000", "8.000"],
        ];
        assert_eq!(rows[..3], expected, "{shown}");
    }
}
