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
pub mod persistent;
pub mod reads;
pub mod setup;
pub mod shared;
pub mod teardown;
pub mod writes;

pub use bench::Bench;
pub use fixture::{Fixture, run};
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
                write_is_there_before_the_send_behind_it,
                many_writes_are_there_before_the_send_behind_them,
                send_is_not_held_up_behind_reads_that_wait,
                receives_given_at_setup_are_used_first;
            messages:
                message_of_any_size_arrives_whole,
                message_may_fill_its_receive_exactly,
                message_of_a_mebibyte_arrives_whole,
                head_and_pieces_arrive_as_one_message,
                message_longer_than_its_receive_ends_the_connection,
                message_without_a_receive_ends_the_connection,
                longer_message_than_possible_is_not_taken;
            writes:
                write_changes_exactly_its_bytes,
                write_takes_its_bytes_from_all_pieces,
                large_write_arrives_whole,
                empty_write_does_no_harm,
                write_past_the_end_is_refused,
                write_whose_offset_overflows_is_refused,
                write_to_an_unknown_handle_is_refused,
                write_to_a_handle_of_another_connection_is_refused,
                write_to_a_source_is_refused,
                offence_on_one_connection_leaves_others_alone;
            reads:
                read_brings_exactly_its_bytes,
                read_gathers_its_segments,
                read_spans_the_pieces_of_a_source,
                large_read_arrives_whole,
                empty_read_completes,
                more_reads_than_can_be_outstanding_all_complete,
                more_segments_than_can_be_outstanding_all_arrive,
                reads_in_both_directions_complete,
                read_longer_than_its_sink_is_not_taken,
                read_where_none_is_possible_is_not_taken,
                read_past_the_end_is_refused,
                read_whose_offset_overflows_is_refused,
                read_from_an_unknown_handle_is_refused,
                read_from_a_handle_of_another_connection_is_refused,
                read_from_a_sink_is_refused;
            handles:
                handles_are_all_different_and_never_zero,
                memory_registered_again_has_another_handle,
                invalidation_brings_the_memory_back,
                invalidated_handle_is_dead_at_once,
                invalidation_waits_for_what_is_being_read,
                peer_can_invalidate_and_the_memory_comes_with_its_message,
                peer_may_invalidate_what_it_is_reading,
                handle_invalidated_by_the_peer_is_dead_at_once,
                handle_invalidated_by_the_peer_cannot_be_invalidated_again,
                invalidation_by_the_peer_of_an_unknown_handle_ends_the_connection,
                invalidation_by_the_peer_of_a_handle_of_another_connection_ends_it,
                invalidation_of_an_unknown_handle_ends_the_connection,
                empty_memory_is_not_registered,
                memory_larger_than_possible_is_not_registered;
            persistent:
                peer_reads_what_was_copied_in_last,
                what_the_peer_wrote_can_be_copied_out,
                persistent_memory_is_open_in_one_way_only,
                peer_cannot_reach_past_the_end_of_persistent_memory,
                peer_cannot_invalidate_persistent_memory,
                its_owner_can_invalidate_persistent_memory,
                nothing_else_is_copied_in_or_out;
            limits:
                more_receives_than_possible_are_not_taken,
                more_work_than_possible_is_not_taken,
                more_regions_than_possible_are_not_registered,
                what_is_asked_for_at_setup_is_not_exceeded,
                outstanding_reads_do_not_exceed_what_the_peer_serves;
            teardown:
                orderly_close_delivers_what_was_posted,
                close_flushes_receives_and_reads,
                close_by_both_at_once_is_orderly,
                peer_that_closes_flushes_what_is_outstanding,
                peer_that_is_dropped_is_noticed_when_idle,
                peer_that_is_dropped_flushes_what_is_outstanding,
                work_posted_after_the_end_is_flushed,
                memory_is_not_registered_after_the_end,
                registered_memory_is_dropped_with_its_owner;
            setup:
                private_data_arrives_both_ways,
                too_much_private_data_is_not_sent,
                rejection_carries_private_data,
                connection_that_is_dropped_unanswered_is_refused,
                nobody_listening_is_an_error,
                connector_that_gives_up_is_noticed,
                address_in_use_is_an_error,
                one_listener_makes_many_connections;
            shared:
                receive_is_not_posted_beside_a_shared_queue,
                message_longer_than_a_block_ends_the_connection,
                message_without_a_block_waits_for_one,
                block_that_is_dropped_elsewhere_wakes_who_waits,
                connection_takes_no_more_than_its_share,
                read_arrives_though_all_blocks_are_held_by_calls_before_it,
                connection_that_ends_gives_up_its_place;
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
