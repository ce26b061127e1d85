//! Counters of a connection.

use std::ops::{AddAssign, SubAssign};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of a connection, modelled on the `xprt: rdma` line of `mountstats` in Linux.
        /// Byte counts are payload that moved by RDMA Read and Write.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// Returns each counter with its name, in a fixed order.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }

        impl AddAssign for Counters {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)*
            }
        }

        impl SubAssign for Counters {
            fn sub_assign(&mut self, other: Self) {
                $(self.$name -= other.$name;)*
            }
        }
    };
}

counters! {
    /// Calls sent, as Requester.
    calls_sent,
    /// Replies received, as Requester.
    replies_received,
    /// Calls received, as Responder.
    calls_received,
    /// Replies sent, as Responder.
    replies_sent,
    /// Read chunks offered, as Requester.
    read_chunks_offered,
    /// Write chunks offered, as Requester.
    write_chunks_offered,
    /// Reply chunks offered, as Requester.
    reply_chunks_offered,
    /// Bytes offered in Read chunks, as Requester.
    read_bytes_offered,
    /// Bytes received in Write chunks, as Requester.
    write_bytes_received,
    /// Bytes received in Reply chunks, as Requester.
    reply_bytes_received,
    /// Bytes of messages received inline: transport headers and inline data.
    inline_bytes_received,
    /// Bytes of messages sent inline: transport headers and inline data.
    inline_bytes_sent,
    /// Messages sent as parts of an RPC message.
    parts_sent,
    /// Messages received as parts of an RPC message.
    parts_received,
    /// Regions registered for calls, as Requester.
    registrations,
    /// Read chunks requested, as Responder.
    read_chunks_pulled,
    /// Bytes of Read chunks requested, as Responder.
    read_bytes_pulled,
    /// Write chunks filled, as Responder.
    write_chunks_filled,
    /// Bytes of the Writes posted into Write chunks, as Responder.
    write_bytes_posted,
    /// Reply chunks filled, as Responder.
    reply_chunks_filled,
    /// Bytes of the Writes posted into Reply chunks, as Responder.
    reply_bytes_posted,
    /// Handles of this end that the peer invalidated.
    remote_invalidations,
    /// Of these, handles invalidated by a peer that did not set R itself, as Linux' server does
    /// not.
    remote_invalidations_without_r,
    /// Of these, handles of another call than the answered one (reminv §4.6).
    remote_invalidations_inter_call,
    /// Handles of this end that it invalidated itself.
    local_invalidations,
    /// Handles of the peer that replies of this end invalidated.
    invalidations_sent,
    /// Of these, handles of another call than the answered one (reminv §4.6).
    invalidations_sent_inter_call,
    /// Replies of this end that invalidated nothing because their call shared a handle with another
    /// call (RFC 8797 §4.1).
    invalidations_withheld,
    /// Handles that a call of the peer named for invalidation without offering them (reminv §5.3).
    foreign_handles_named,
    /// RDMA_ERROR messages received that ended a call.
    errors_received,
    /// ERR_VERS sent.
    version_errors_sent,
    /// ERR_CHUNK sent, and in version two BAD_HEADER.
    chunk_errors_sent,
    /// (Version two) INVAL_OPTION sent.
    option_errors_sent,
    /// (Version two) Control messages sent, errors not counted.
    control_sent,
    /// (Version two) Control messages received, valid or not.
    control_received,
    /// Calls whose chunks broke the connection, which are refused on the next one (RFC 8166
    /// §4.5.3).
    calls_condemned,
    /// Messages discarded: invalid headers that are not answered with an error, RDMA_DONE, and
    /// calls in a direction without calls.
    discarded,
    /// Messages of the peer that were longer than this end had announced that it receives. Its
    /// Receives happened to hold them.
    oversized,
    /// Replies without a matching call.
    unknown_replies,
    /// Replies that violated the protocol.
    bad_replies,
    /// Calls cancelled before their end.
    cancelled,
    /// Calls that waited for a credit before they were sent.
    credit_waits,
    /// Calls that waited for the provider to have room for their regions.
    region_waits,
    /// Calls of the peer that waited for memory before their chunks were pulled.
    memory_waits,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_add_up_by_name() {
        let mut all = Counters {
            calls_sent: 1,
            ..Counters::default()
        };
        all += Counters {
            calls_sent: 2,
            bad_replies: 3,
            ..Counters::default()
        };
        let value = |name| all.iter().find(|&(n, _)| n == name).map(|(_, value)| value);
        assert_eq!(value("calls_sent"), Some(3));
        assert_eq!(value("bad_replies"), Some(3));
    }
}
