//! The attacks on version two as draft-ietf-nfsv4-rpcrdma-version-two-07 has it.

use crate::attacks::Side::{Both, Client, Server};
use crate::attacks::{Attack, DISCARDS, TERMINATES, attack};

/// Reaction of a Responder to parts of a message that do not follow each other (ietf-07 §7.1.4).
const INVAL_CONT: &str = "RDMA2_ERR_INVAL_CONT, and the connection goes on";

/// Every attack of ietf-07.
pub const ATTACKS_OF_IETF07: &[Attack] = &[
    attack(
        "ietf-07 §4.2.1",
        Server,
        "sends calls beyond its credits, and grants none for the replies",
        "no reply without a credit; it ends the connection when they are too many",
        &["ietf07::calls_without_credits_for_their_replies_are_bounded"],
    ),
    attack(
        "ietf-07 §4.2.1.1",
        Both,
        "sends grants without end, and grants of any size",
        "fewer grants in answer, and credits of 2^31 and more count as none",
        &[
            "ietf07::grants_are_not_answered_by_grants_without_end",
            "ietf07::grants_of_any_size_harm_nobody",
            "ietf07_client::grants_are_not_answered_by_grants_without_end",
            "ietf07_client::calls_wait_for_credits_of_any_size",
        ],
    ),
    attack(
        "ietf-07 §6.3.6",
        Server,
        "sends parts without an end, of nearly nothing, or that contradict each other",
        INVAL_CONT,
        &[
            "ietf07::parts_without_an_end_are_refused_with_the_first",
            "ietf07::longest_message_in_the_smallest_parts_is_whole",
            "ietf07::contradictory_remainders_are_refused",
            "ietf07::messages_that_never_become_whole_leave_memory_to_others",
        ],
    ),
    attack(
        "ietf-07 §6.3.9",
        Client,
        "answers in parts without an end, of nearly nothing, or that contradict each other",
        "the call fails, and nothing else",
        &[
            "ietf07_client::parts_without_an_end_are_given_up_with_the_first",
            "ietf07_client::replies_in_the_smallest_parts_are_whole",
            "ietf07_client::parts_of_a_reply_that_contradict_each_other_end_the_call_and_nothing_else",
        ],
    ),
    attack(
        "ietf-07 §5",
        Both,
        "sends more properties than there are, in messages without end, or with values at their limits",
        "RDMA2_ERR_BAD_XDR or RDMA2_ERR_BAD_PROPVAL for what cannot be read; the defaults hold",
        &[
            "ietf07::property_lists_of_any_length_are_bounded",
            "ietf07::properties_at_their_limits_harm_nobody",
            "ietf07_client::properties_at_their_limits_leave_a_client_that_works",
            "ietf07_client::property_lists_that_are_wrong_are_refused_and_the_defaults_hold",
        ],
    ),
    attack(
        "ietf-07 §7",
        Both,
        "sends errors without their arguments, with absurd ones, and replies to nothing",
        DISCARDS,
        &[
            "ietf07::errors_with_any_arguments_are_discarded",
            "ietf07::replies_to_calls_never_made_are_discarded",
            "ietf07_client::errors_without_their_arguments_and_unknown_ones_are_discarded",
            "ietf07_client::errors_with_arguments_at_their_limits_end_the_call_and_nothing_else",
        ],
    ),
    attack(
        "ietf-07 §6.5",
        Both,
        "names, or takes away, a handle that was not offered",
        TERMINATES,
        &[
            "ietf07::handles_that_were_not_granted_are_not_invalidated",
            "ietf07_client::handles_that_were_not_offered_end_the_connection_when_they_are_invalidated",
        ],
    ),
    attack(
        "ours",
        Both,
        "sends messages of the other draft, which has the same number",
        "ERR_VERS for the first of a connection, RDMA2_ERR_INVAL_HTYPE or nothing for others",
        &[
            "ietf07::messages_of_the_other_draft_are_told_apart",
            "ietf07_client::messages_of_the_other_draft_change_nothing",
            "ietf07_client::other_answers_to_properties_are_named_or_not_waited_for",
        ],
    ),
];
