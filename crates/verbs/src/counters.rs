//! Statistics of a queue pair.

use crate::{Completion, WorkKind};

/// I/O statistics of a queue pair since it was created.
///
/// A provider leaves at zero what it cannot know: a provider without sockets has no system calls of its own, and a device
/// does not tell how many bytes it has moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoCounters {
    /// System calls that received bytes; those that found none are not counted.
    pub reads: u64,
    /// System calls that sent bytes.
    pub writes: u64,
    /// Bytes received, framing included.
    pub bytes_in: u64,
    /// Bytes sent, framing included.
    pub bytes_out: u64,
    /// Bytes of payload copied within memory, in both directions.
    pub bytes_copied: u64,
    /// Messages of the peer that had to wait for a block of the shared receive queue.
    pub held_back: u64,
    /// Work requests, completions and registrations.
    pub work: WorkCounters,
}

impl std::ops::AddAssign for IoCounters {
    fn add_assign(&mut self, other: Self) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        self.bytes_copied += other.bytes_copied;
        self.held_back += other.held_back;
        self.work += other.work;
    }
}

impl std::ops::SubAssign for IoCounters {
    fn sub_assign(&mut self, other: Self) {
        self.reads -= other.reads;
        self.writes -= other.writes;
        self.bytes_in -= other.bytes_in;
        self.bytes_out -= other.bytes_out;
        self.bytes_copied -= other.bytes_copied;
        self.held_back -= other.held_back;
        self.work -= other.work;
    }
}

/// Declares counters with their names, their sum and their difference.
macro_rules! counters {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $field:ident,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$doc])* pub $field: u64,)*
        }

        impl $name {
            /// Returns each counter with its name, in a fixed order.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), self.$field),)*].into_iter()
            }
        }

        impl std::ops::AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                $(self.$field += other.$field;)*
            }
        }

        impl std::ops::SubAssign for $name {
            fn sub_assign(&mut self, other: Self) {
                $(self.$field -= other.$field;)*
            }
        }
    };
}

counters! {
    /// Work that a queue pair has asked of its device, and that the device has reported.
    ///
    /// Each costs time of the host: a doorbell is a write to the device or a system call, a completion has to be taken
    /// from its queue, and a registration is a system call that locks memory. Software iWARP counts work requests,
    /// registrations and remote invalidations, and has none of the others.
    WorkCounters {
        /// Send work requests.
        sends,
        /// RDMA Write work requests. One Write of the owner is several if its source has more pieces than a work request
        /// of the device.
        writes,
        /// RDMA Read work requests: one for each segment of a chunk, where the device takes one at a time.
        rdma_reads,
        /// Receive work requests.
        receives,
        /// Bindings of memory windows.
        binds,
        /// Invalidations of handles by this end. One without a work request, as for a handle that is a registration for
        /// one use, is not counted.
        local_invalidations,
        /// Handles that a Send of the peer invalidated.
        remote_invalidations,
        /// Work requests whose data was copied into them, so that the device does not read it from memory.
        inline_data,
        /// Calls that gave the device a chain of work requests other than Receives (`ibv_post_send`).
        doorbells,
        /// Calls that gave the device a chain of Receives (`ibv_post_recv`).
        receive_doorbells,
        /// Completions that the device reported, of work requests other than Receives: those that were signalled.
        completions,
        /// Completions of Receives.
        receive_completions,
        /// Looks at the completion queue, whether they found something or not (`ibv_poll_cq`).
        polls,
        /// Requests to be notified of the next completion (`ibv_req_notify_cq`).
        arms,
        /// Notifications that were taken (`ibv_get_cq_event`).
        notifications,
        /// Registrations of memory.
        registrations,
    }
}

impl WorkCounters {
    /// Counts a work request.
    pub fn count(&mut self, work: WorkKind) {
        *match work {
            WorkKind::Send => &mut self.sends,
            WorkKind::Write => &mut self.writes,
            WorkKind::Read => &mut self.rdma_reads,
            WorkKind::Receive => &mut self.receives,
            WorkKind::Bind => &mut self.binds,
            WorkKind::Invalidate => &mut self.local_invalidations,
        } += 1;
    }

    /// Counts what a completion tells of the peer: handles that it invalidated.
    pub fn note(&mut self, completion: Option<&Completion>) {
        if let Some(Completion::Receive {
            invalidated: Some(invalidated),
            ..
        }) = completion
        {
            self.remote_invalidations += 1 + invalidated.also.len() as u64;
        }
    }

    /// All work requests.
    pub fn posts(&self) -> u64 {
        self.sends
            + self.writes
            + self.rdma_reads
            + self.receives
            + self.binds
            + self.local_invalidations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_of_sums_is_what_was_added() {
        let mut before = IoCounters::default();
        before.work.count(WorkKind::Send);
        before.work.polls = 7;
        let mut after = before;
        let mut more = IoCounters {
            bytes_copied: 9,
            ..IoCounters::default()
        };
        for kind in [
            WorkKind::Send,
            WorkKind::Write,
            WorkKind::Read,
            WorkKind::Receive,
            WorkKind::Bind,
            WorkKind::Invalidate,
        ] {
            more.work.count(kind);
        }
        after += more;
        assert_eq!(after.work.sends, 2);
        after -= before;
        assert_eq!(after, more);
        assert_eq!(after.work.posts(), 6);
        let named = |name| after.work.iter().find(|(counter, _)| *counter == name);
        assert_eq!(named("sends"), Some(("sends", 1)));
    }
}
