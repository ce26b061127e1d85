//! Work of the client's queue pairs per call.

use crate::table::Columns;
use rpcrdma::IoCounters;
use serde::Serialize;

/// Declares the members, each of which is a counter of the same name.
macro_rules! work {
    ($($(#[$doc:meta])* $field:ident = $text:literal,)*) => {
        /// Work of the client's queue pairs per call, from the end of the ramp time: what its device was asked for and
        /// what it reported. What a provider cannot know is 0.
        #[derive(Clone, Debug, PartialEq, Serialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        pub(super) struct Work {
            /// Calls that ended since; the other members are divided by them.
            calls: u64,
            $($(#[$doc])* $field: f64,)*
            /// Bytes of payload copied within memory by the transport.
            bytes_copied: f64,
        }

        impl Work {
            /// None without a call.
            pub(super) fn new(done: &IoCounters, calls: u64) -> Option<Self> {
                let per_call = |count: u64| count as f64 / calls as f64;
                (calls > 0).then(|| Self {
                    calls,
                    $($field: per_call(done.work.$field),)*
                    bytes_copied: per_call(done.bytes_copied),
                })
            }

            /// One line for each counter that is not 0.
            pub(super) fn table(&self) -> Columns {
                let mut lines = Columns::new(&[0]);
                let counts = [$(($text, self.$field),)* ("bytes copied", self.bytes_copied)];
                for (name, count) in counts.into_iter().filter(|&(_, count)| count > 0.0) {
                    lines.add([name, &format!("{count:.3}")]);
                }
                lines
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
    /// Handles that a Send of the server invalidated.
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
        let table = work.table().to_string();
        assert_eq!(table.lines().count(), 3, "{table}");
        assert!(table.contains("1.500"), "{table}");
        assert!(Work::new(&done, 0).is_none());
    }
}
