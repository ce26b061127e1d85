//! The tests that every provider of [`verbs`] passes.
//!
//! A provider's own tests say how to make connections and how to run a future, as a [`Fixture`],
//! and [`suite!`] turns that into one `#[test]` per behaviour:
//!
//! ```ignore
//! verbs_conformance::suite!(MyFixture::new());
//! ```
//!
//! Each behaviour is a function of a [`Bench`]. Most run in both directions: what the connecting
//! end can do, the listening end can. All of them check, beside what they are named for, what
//! always holds: each work request completes exactly once and as its own kind, Receives complete
//! in the order of posting, and when both ends are gone no memory is missing.
//!
//! What a behaviour needs from a provider is taken from its [`Limits`](verbs::Limits); nothing here
//! asks which provider it is.

mod bench;
mod fixture;
mod pair;
mod peer;

pub mod handles;
pub mod limits;
pub mod messages;
pub mod mixture;
pub mod ordering;
pub mod parts;
pub mod persistent;
pub mod reads;
pub mod setup;
pub mod several;
pub mod shared;
pub mod teardown;
pub mod writes;

pub use bench::Bench;
pub use fixture::{Blame, Fixture, run};
pub use pair::{At, Pair};
pub use peer::Peer;

/// Expands to one `#[test]` per behaviour, in one module per subject. The argument is an
/// expression that makes a new [`Fixture`].
#[macro_export]
macro_rules! suite {
    ($fixture:expr) => {
        $crate::tests! { $fixture;
            ordering:
                sends_arrive_in_order,
                write_is_placed_before_the_send_behind_it,
                many_writes_are_placed_before_the_send_behind_them,
                send_does_not_wait_behind_queued_reads,
                receives_given_at_setup_are_used_first;
            messages:
                message_of_any_size_arrives_whole,
                work_is_counted_by_kind,
                message_may_fill_its_receive_exactly,
                message_of_a_mebibyte_arrives_whole,
                head_and_pieces_arrive_as_one_message,
                message_longer_than_its_receive_ends_the_connection,
                message_without_a_receive_ends_the_connection,
                message_beyond_the_limit_is_refused;
            writes:
                write_changes_exactly_its_bytes,
                write_takes_its_bytes_from_all_pieces,
                large_write_arrives_whole,
                empty_write_completes,
                write_past_the_end_is_refused,
                write_whose_offset_overflows_is_refused,
                write_to_an_unknown_handle_is_refused,
                write_to_a_handle_of_another_connection_is_refused,
                write_to_a_source_is_refused,
                violation_on_one_connection_leaves_others_alone;
            reads:
                read_transfers_exactly_its_bytes,
                read_gathers_its_segments,
                read_spans_the_pieces_of_a_source,
                short_reads_pass_the_end_of_a_page,
                large_read_arrives_whole,
                empty_read_completes,
                more_reads_than_can_be_outstanding_all_complete,
                more_segments_than_can_be_outstanding_all_arrive,
                reads_in_both_directions_complete,
                read_longer_than_its_sink_is_not_accepted,
                read_is_refused_when_no_reads_are_possible,
                read_past_the_end_is_refused,
                read_whose_offset_overflows_is_refused,
                read_from_an_unknown_handle_is_refused,
                read_from_a_handle_of_another_connection_is_refused,
                read_from_a_sink_is_refused;
            handles:
                handles_are_all_different_and_never_zero,
                memory_registered_again_has_another_handle,
                invalidation_returns_the_memory,
                invalidated_handle_is_invalid_at_once,
                invalidation_waits_for_reads_being_served,
                invalidation_by_the_peer_returns_the_memory_with_its_message,
                peer_may_invalidate_what_it_is_reading,
                handle_invalidated_by_the_peer_is_invalid_at_once,
                handle_invalidated_by_the_peer_cannot_be_invalidated_again,
                invalidation_by_the_peer_of_an_unknown_handle_ends_the_connection,
                invalidation_by_the_peer_of_the_next_handle_ends_the_connection,
                invalidation_by_the_peer_of_a_handle_of_another_connection_ends_it,
                invalidation_of_an_unknown_handle_ends_the_connection,
                empty_memory_is_not_registered,
                memory_larger_than_the_limit_is_not_registered;
            persistent:
                peer_reads_what_was_copied_in_last,
                what_the_peer_wrote_can_be_copied_out,
                persistent_memory_has_one_access_right_only,
                peer_cannot_reach_past_the_end_of_persistent_memory,
                peer_cannot_invalidate_persistent_memory,
                its_owner_can_invalidate_persistent_memory,
                other_memory_cannot_be_copied_in_or_out;
            parts:
                parts_are_reached_at_their_addresses_and_come_back_together,
                peer_invalidates_all_parts_at_once,
                each_part_has_its_own_access_right,
                access_past_the_end_of_a_part_is_refused,
                parts_beyond_the_limits_are_not_registered;
            several:
                handles_of_one_send_come_back_with_its_message,
                each_handle_of_one_send_is_invalid_at_once,
                unknown_handle_among_several_ends_the_connection,
                handle_named_twice_ends_the_connection,
                more_handles_than_the_limit_are_not_accepted;
            limits:
                receives_beyond_the_limit_are_refused,
                work_beyond_the_limit_is_refused,
                regions_beyond_the_limit_are_not_registered,
                limits_asked_for_at_setup_are_not_exceeded,
                outstanding_reads_do_not_exceed_what_the_peer_serves;
            teardown:
                orderly_close_delivers_what_was_posted,
                close_flushes_receives_and_reads,
                close_by_both_at_once_is_orderly,
                close_by_the_peer_flushes_outstanding_work,
                dropped_peer_is_detected_when_idle,
                dropped_peer_flushes_outstanding_work,
                work_posted_after_the_end_is_flushed,
                memory_is_not_registered_after_the_end,
                registered_memory_is_dropped_with_its_owner;
            setup:
                private_data_arrives_both_ways,
                private_data_beyond_the_limit_is_refused,
                rejection_carries_private_data,
                dropped_incoming_connection_is_refused,
                nobody_listening_is_an_error,
                cancelled_connect_leaves_no_connection_or_one_that_ends,
                address_in_use_is_an_error,
                one_listener_makes_many_connections;
            shared:
                receive_is_not_posted_beside_a_shared_queue,
                message_longer_than_a_block_ends_the_connection,
                message_without_a_block_waits_for_one,
                block_dropped_on_another_thread_wakes_the_waiter,
                connection_takes_no_more_than_its_share,
                read_arrives_though_all_blocks_are_held_by_calls_before_it,
                connection_that_ends_leaves_the_queue_of_waiters;
            mixture:
                everything_at_once_in_both_directions;
        }
    };
}

/// The mechanism of [`suite!`].
#[doc(hidden)]
#[macro_export]
macro_rules! tests {
    ($fixture:expr; $($subject:ident: $($behaviour:ident),+;)+) => {
        fn fixture() -> impl $crate::Fixture {
            $fixture
        }

        $(mod $subject {
            $(#[test]
            fn $behaviour() {
                $crate::run(super::fixture(), $crate::$subject::$behaviour);
            })+
        })+
    };
}
