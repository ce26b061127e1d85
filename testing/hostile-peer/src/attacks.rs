//! The attacks that are tried here, as a table: where each comes from, what is done, what the victim
//! owes itself and others, and which tests do it.
//!
//! RFC 5042 §5 is about those who are between the two ends, or pretend to be one of them: that is
//! for IPsec, and nothing that a peer says can show it. §7 is about programs that share an RNIC with
//! others: here each connection has its own, in a process with one owner. So what is left of it for
//! a peer to try is §6.
//!
//! What is not of version two alone is tried in both versions, by the same tests.

/// Victim of an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// A server, by its client.
    Server,
    /// A client, by its server.
    Client,
    /// Either, by the other.
    Both,
}

/// One kind of attack.
#[derive(Clone, Copy, Debug)]
pub struct Attack {
    /// Section of an RFC, or `ours`.
    pub source: &'static str,
    /// Victim of the attack.
    pub victim: Side,
    /// Act of the peer.
    pub does: &'static str,
    /// Reaction that is required of the victim, beyond serving others.
    pub must: &'static str,
    /// The tests, by file and name.
    pub tests: &'static [&'static str],
}

pub(crate) const fn attack(
    source: &'static str,
    victim: Side,
    does: &'static str,
    must: &'static str,
    tests: &'static [&'static str],
) -> Attack {
    Attack {
        source,
        victim,
        does,
        must,
        tests,
    }
}

use Side::{Both, Client, Server};

/// Reaction of a victim to a rule of DDP or RDMAP that is broken.
pub(crate) const TERMINATES: &str = "a Terminate that says so, and the end of this connection";

/// Reaction of a victim to a message that it need not answer.
pub(crate) const DISCARDS: &str = "nothing: the connection goes on, and no call ends by it";

/// Reaction of a Responder to a header that it cannot process (RFC 8166 §4.5.2).
const ERR_CHUNK: &str = "ERR_CHUNK, and the connection goes on";

/// The same in version two, for what only that has.
const BAD_HEADER: &str = "RDMA2_ERR_BAD_HEADER, and the connection goes on";

/// Every attack but those of ietf-07.
pub const ATTACKS: &[Attack] = &[
    // Spoofing: memory of another stream.
    attack(
        "RFC 5042 §6.1.1",
        Client,
        "uses an STag of another connection",
        TERMINATES,
        &["client_segments::handles_of_one_connection_are_invalid_on_another"],
    ),
    attack(
        "RFC 5042 §6.1.1",
        Both,
        "guesses STags",
        TERMINATES,
        &[
            "segments::writes_to_memory_that_is_not_offered_are_terminated",
            "segments::reads_of_memory_that_is_not_offered_are_terminated",
            "client::handles_that_were_not_offered_reach_nothing",
        ],
    ),
    // Tampering.
    attack(
        "RFC 5042 §6.2.1",
        Client,
        "writes beyond the end of a region, or where offset and length overflow",
        TERMINATES,
        &["client::memory_beyond_what_was_offered_cannot_be_written"],
    ),
    attack(
        "RFC 5042 §6.2.1",
        Both,
        "sends a Read Response that nobody asked for",
        TERMINATES,
        &[
            "segments::unknown_and_misplaced_opcodes_are_terminated",
            "client_segments::unsolicited_read_response_is_terminated",
        ],
    ),
    attack(
        "RFC 5042 §6.2.1",
        Server,
        "answers a Read with other bytes than were asked for",
        TERMINATES,
        &["recovery::server_state_is_restored_after_each_attack"],
    ),
    attack(
        "RFC 5042 §6.2.2",
        Client,
        "writes to a buffer when its call has its reply, invalidated by either end",
        TERMINATES,
        &["client::memory_is_out_of_reach_when_its_call_has_its_reply"],
    ),
    attack(
        "RFC 5042 §6.2.3",
        Client,
        "writes by the STag that is for reading",
        TERMINATES,
        &["client::memory_is_reached_only_in_the_way_that_was_offered"],
    ),
    // Disclosure.
    attack(
        "RFC 5042 §6.3.1",
        Client,
        "reads beyond the end of a region, or where offset and length overflow",
        TERMINATES,
        &["client::memory_beyond_what_was_offered_cannot_be_read"],
    ),
    attack(
        "RFC 5042 §6.3.3",
        Client,
        "reads a buffer when its call has its reply",
        TERMINATES,
        &["client_segments::arguments_cannot_be_read_when_their_call_has_its_reply"],
    ),
    attack(
        "RFC 5042 §6.3.5",
        Client,
        "reads by the STag that is for writing",
        TERMINATES,
        &["client::memory_is_reached_only_in_the_way_that_was_offered"],
    ),
    // Denial of service.
    attack(
        "RFC 5042 §6.4.1",
        Server,
        "opens connections and says nothing, or hangs up somewhere in the handshake",
        "they end with their time, or at once; nothing of them is left",
        &[
            "handshake::many_silent_peers_block_nobody",
            "handshake::peers_that_disconnect_during_the_handshake_leave_nothing_behind",
        ],
    ),
    attack(
        "RFC 5042 §6.4.1",
        Server,
        "takes every connection it can get, says nothing on them, and makes them anew",
        "clients at other addresses get connections in their place, and go on being served",
        &[
            "admission::silent_connections_before_mpa_leave_others_served",
            "admission::silent_connections_after_mpa_leave_others_served",
            "admission::silent_connections_after_one_call_leave_others_served",
            "admission::silent_connections_that_reconnect_leave_others_served",
            "admission::connection_with_a_call_in_flight_keeps_its_place",
            "tcp::silent_connections_leave_others_served",
        ],
    ),
    attack(
        "ours",
        Server,
        "has as many expensive calls in flight as it can, from several addresses",
        "calls of others get a thread, and no NFS3ERR_JUKEBOX",
        &["jobs::calls_of_others_are_executed_while_attackers_fill_their_job_quota"],
    ),
    attack(
        "RFC 5041 §8.3.2",
        Server,
        "holds as many Receives with calls as it can, on as many connections as it can get",
        "its connections are not read while it has its share; others are, and nothing is lost",
        &[
            "fairness::calls_that_hold_all_receives_they_can_get_leave_receives_to_others",
            "fairness::unanswered_reads_do_not_take_the_receives_of_others",
        ],
    ),
    attack(
        "ours",
        Server,
        "takes in the results of large calls slowly, or never hands over their arguments",
        "its address has its share of chunk memory, and its connection ends if others wait for that",
        &[
            "fairness::results_that_one_address_takes_in_slowly_hold_up_nobody",
            "fairness::results_that_several_addresses_take_in_slowly_hold_up_nobody",
            "fairness::arguments_that_never_come_from_one_address_hold_up_nobody",
            "fairness::arguments_that_never_come_from_several_addresses_hold_up_nobody",
            "fairness::results_that_take_long_to_make_take_no_more_memory_than_the_share_of_their_address",
        ],
    ),
    attack(
        "ours",
        Server,
        "offers large chunks with small calls",
        "no memory is leased but what their replies can take",
        &["fairness::small_calls_that_offer_much_lease_what_their_replies_can_take"],
    ),
    attack(
        "RFC 8167 §5.4",
        Server,
        "answers none of the calls that it is sent",
        "its connection ends when it has no credit left for others",
        &["backward::client_that_answers_no_backward_call_loses_its_connection"],
    ),
    attack(
        "RFC 8166 §4.4.1",
        Server,
        "never answers calls whose results have memory registered for them",
        "the memory counts until it is not registered any more, and others wait no longer than they may",
        &["backward::memory_for_results_that_a_client_keeps_registered_is_no_other_clients"],
    ),
    attack(
        "RFC 5042 §6.4.1",
        Server,
        "offers chunks and never hands them over",
        "their memory is not missing to others, and the connection ends in time",
        &["header::chunks_that_never_come_take_no_memory_from_others_for_long"],
    ),
    attack(
        "RFC 5042 §6.4.2",
        Both,
        "is slow: the handshake byte by byte, half a frame, half a message, no reply at all",
        "the setup or the call ends with its time; a connection that is idle ends if it is to",
        &[
            "handshake::stalled_handshake_is_dropped_at_its_deadline",
            "handshake::handshake_sent_byte_by_byte_is_dropped_at_its_deadline",
            "slow::half_a_frame_and_half_a_message_delay_nobody",
            "slow::connection_that_stops_in_the_middle_ends_when_it_is_idle_for_too_long",
            "client::connecting_to_a_silent_server_times_out",
            "client::call_to_a_silent_server_times_out",
        ],
    ),
    attack(
        "RFC 5042 §6.4.2",
        Server,
        "does not take in what is sent to it",
        "it is dropped when its calls are more than its credits",
        &["header::peer_that_reads_nothing_is_dropped_and_delays_nobody"],
    ),
    attack(
        "RFC 5042 §6.4.3.1",
        Both,
        "sends more messages than there are Receives",
        TERMINATES,
        &[
            "segments::more_messages_than_receives_are_terminated",
            "client_segments::more_messages_than_receives_are_terminated",
        ],
    ),
    attack(
        "RFC 5042 §6.4.3.3",
        Both,
        "sends more Read Requests than IRD",
        TERMINATES,
        &[
            "segments::flood_of_read_requests_is_terminated",
            "client_segments::flood_of_read_requests_is_terminated",
        ],
    ),
    attack(
        "RFC 5042 §6.4.4",
        Both,
        "sends Terminates: many, strange ones, in the middle of a message",
        "the end of this connection, without an answer",
        &[
            "segments::terminate_of_a_peer_is_taken_without_an_answer",
            "segments::flood_of_terminates_ends_the_connection_once",
            "segments::terminate_in_the_middle_of_a_message_ends_it",
            "client_segments::terminate_in_the_middle_of_a_message_ends_the_call",
        ],
    ),
    attack(
        "RFC 5042 §6.4.4",
        Server,
        "sends empty Writes, and Reads of nothing",
        "nothing: they reach no memory, and a flood of them takes no more turns than other messages",
        &[
            "segments::empty_writes_are_harmless_whatever_they_name",
            "fairness::floods_of_empty_segments_delay_only_their_senders",
        ],
    ),
    attack(
        "RFC 5042 §6.4.5",
        Both,
        "invalidates an STag that is not of this call, or none, or one that is dead",
        "the end of this connection",
        &[
            "segments::invalidation_of_a_handle_that_is_not_offered_is_terminated",
            "client::handles_that_were_not_offered_reach_nothing",
            "client_segments::handle_of_another_call_cannot_be_invalidated",
            "client_segments::reply_that_comes_twice_ends_one_call_only",
        ],
    ),
    attack(
        "RFC 5042 §6.4.6",
        Both,
        "makes work that completes with an error",
        "all that was posted comes back, and all memory with it",
        &[
            "recovery::server_state_is_restored_after_each_attack",
            "recovery::client_state_is_restored_after_each_attack",
        ],
    ),
    // MPA.
    attack(
        "RFC 5044 §7.1",
        Both,
        "speaks something else, or MPA of another revision or for the other part",
        "the end of the connection before anything is sent or taken up",
        &[
            "handshake::other_protocols_are_refused",
            "handshake::key_that_is_wrong_in_any_byte_is_refused",
            "handshake::unknown_revisions_are_refused",
            "handshake::enhanced_request_without_its_numbers_is_refused",
            "client::replies_that_are_no_mpa_are_told_apart",
            "client::server_of_plain_nfs_over_tcp_is_recognised",
        ],
    ),
    attack(
        "RFC 5044 §7.1.1",
        Both,
        "sends private data of any length",
        "up to 512 bytes are taken, more are refused before they are read",
        &[
            "private_data::server_takes_every_length_up_to_the_limit",
            "private_data::client_takes_every_length_up_to_the_limit",
            "handshake::private_data_that_is_too_long_is_refused_before_it_is_read",
            "handshake::unusual_but_valid_requests_are_accepted",
        ],
    ),
    attack(
        "RFC 5044 §8",
        Server,
        "sends FPDUs with a wrong CRC, or without one",
        TERMINATES,
        &[
            "segments::wrong_crc_is_terminated_and_nothing_is_delivered",
            "segments::wrong_crc_of_a_large_write_is_terminated",
            "segments::crc_is_checked_although_the_peer_did_not_ask_for_it",
        ],
    ),
    // DDP and RDMAP.
    attack(
        "RFC 5041 §7",
        Both,
        "skips or repeats numbers and offsets of messages",
        TERMINATES,
        &[
            "segments::sequence_numbers_out_of_order_are_terminated",
            "segments::offsets_out_of_order_are_terminated",
            "client_segments::messages_out_of_order_are_terminated",
        ],
    ),
    attack(
        "RFC 5041 §7",
        Server,
        "uses queues, versions and opcodes that there are not, or headers that are cut off",
        TERMINATES,
        &[
            "segments::unknown_queues_are_terminated",
            "segments::unknown_ddp_and_rdmap_versions_are_terminated",
            "segments::unknown_and_misplaced_opcodes_are_terminated",
            "segments::segment_too_short_for_its_header_is_terminated",
            "segments::read_requests_of_the_wrong_length_are_terminated",
        ],
    ),
    attack(
        "RFC 5041 §7",
        Server,
        "sends messages that are longer than was agreed",
        TERMINATES,
        &["segments::messages_longer_than_agreed_are_terminated"],
    ),
    // RPC-over-RDMA.
    attack(
        "RFC 8166 §3.3.1",
        Server,
        "sends more calls than it has credits",
        "it is tolerated twice over, then dropped",
        &["header::peer_that_goes_far_beyond_its_credits_is_dropped"],
    ),
    attack(
        "RFC 8166 §3.3.1",
        Both,
        "asks for or grants no credits, or 2^32-1",
        "one, and as many as there are Receives",
        &[
            "header::credit_grants_are_between_one_and_the_limit_of_the_server",
            "client::credit_grants_are_clamped_between_one_and_the_request",
        ],
    ),
    attack(
        "RFC 8166 §4.5",
        Both,
        "sends messages of less than 28 bytes, and others that are no header",
        DISCARDS,
        &[
            "header::messages_under_28_bytes_are_discarded",
            "client::invalid_replies_are_discarded_and_the_call_continues",
        ],
    ),
    attack(
        "RFC 8166 §4.5.1",
        Server,
        "speaks a version that is unknown",
        "ERR_VERS with the versions that are known, and the connection goes on",
        &["header::unknown_versions_draw_err_vers_with_the_supported_range"],
    ),
    attack(
        "cel-01 §5",
        Server,
        "changes to the other version on a connection",
        "ERR_VERS with the one that is spoken, and the connection goes on in that",
        &["version_two::change_of_version_draws_err_vers_with_the_version_in_use"],
    ),
    attack(
        "cel-01 §4.2",
        Server,
        "sends headers of version two that are no XDR, have directions that there are not, or say that \
         they are calls and are not",
        BAD_HEADER,
        &[
            "version_two::headers_that_are_wrong_draw_bad_header",
            "version_two::mutated_headers_harm_nobody",
        ],
    ),
    attack(
        "cel-01 §4.2",
        Both,
        "sends replies and errors of version two that nobody asked for, one or very many",
        DISCARDS,
        &[
            "version_two::unsolicited_replies_are_discarded",
            "version_two::flood_of_messages_without_a_response_does_not_grow_memory",
            "version_two_client::unsolicited_messages_are_discarded",
        ],
    ),
    attack(
        "cel-01 §5",
        Client,
        "changes to the other version on a connection",
        "ERR_VERS for a call, nothing for a reply; the connection goes on in the one that is spoken",
        &["version_two_client::message_of_the_other_version_is_refused_if_it_is_a_call"],
    ),
    attack(
        "cel-01 §5",
        Server,
        "begins with anything but a good INITXCH: too long, a reply, an error, another operation, calls \
         before the answer",
        "what is no reply decides what is spoken; only what fits no Receive ends the connection",
        &[
            "version_two::first_message_may_be_anything_that_fits_a_receive",
            "version_two::client_that_does_not_wait_for_the_answer_is_answered_in_order",
        ],
    ),
    attack(
        "cel-01 §5.1",
        Client,
        "answers the offer with another XID, direction or version, with what cannot be read, or takes a \
         handle along",
        "it is discarded, or defaults hold; a handle ends the connection",
        &[
            "version_two_client::invalid_answers_to_initxch_are_discarded",
            "version_two_client::unusable_answers_to_initxch_leave_the_defaults",
            "version_two_client::nothing_can_be_invalidated_before_there_is_a_call",
        ],
    ),
    attack(
        "cel-01 §5.1",
        Client,
        "does not answer the offer, answers half of it, or says other things without a pause",
        "the connection ends with its time, or when there are no Receives left",
        &[
            "version_two_client::unanswered_initxch_times_out",
            "version_two_client::flood_before_the_answer_ends_the_connection",
        ],
    ),
    attack(
        "cel-01 §5.2",
        Client,
        "lies about the versions it speaks",
        "a range is taken at its word: with version one in it that is spoken, else the connection ends",
        &[
            "version_two_client::version_ranges_without_a_supported_version_end_the_connection",
            "version_two_client::version_ranges_with_version_one_are_used_on_this_connection",
        ],
    ),
    attack(
        "cel-01 §5.2",
        Client,
        "sends RDMA2_ERR_VERS and other errors for a call in the middle of a connection",
        "that call ends, and nothing else",
        &["client::errors_end_the_call_and_nothing_else"],
    ),
    attack(
        "cel-01 §5",
        Client,
        "grants no credits, or 2^32-1, with its answer to the offer",
        "one, and as many as were asked for",
        &["version_two_client::credits_of_the_answer_are_within_one_and_what_was_asked"],
    ),
    attack(
        "xcharext §4",
        Both,
        "sends operations that there are not, or characteristics that are none",
        "RDMA2_ERR_INVAL_OPTION or RDMA2_ERR_BAD_HEADER, and nothing of it takes effect",
        &[
            "version_two::invalid_operations_are_refused_and_change_nothing",
            "version_two_client::operations_of_a_server_are_answered_and_harm_no_call",
        ],
    ),
    attack(
        "xcharext §2.1",
        Server,
        "lies about lengths of characteristics, or sends more of them than there can be",
        BAD_HEADER,
        &[
            "version_two::wrong_lengths_draw_bad_header",
            "version_two::lists_beyond_their_limits_draw_bad_header",
        ],
    ),
    attack(
        "xcharext §3.1",
        Both,
        "asks for Receives of 4 GiB, or of nearly none, or says that it has such",
        "none is larger than was configured, or smaller than everybody has",
        &[
            "version_two::any_receive_size_may_be_requested",
            "version_two_client::operations_of_a_server_are_answered_and_harm_no_call",
            "version_two_client::server_with_small_receives_is_sent_small_messages",
        ],
    ),
    attack(
        "xcharext §3.1",
        Both,
        "has Receives of another size with each message",
        "what was said last is kept to",
        &[
            "version_two::each_change_of_the_receive_size_is_respected",
            "version_two_client::each_change_of_the_receive_size_of_a_server_is_respected",
        ],
    ),
    attack(
        "xcharext §3.1",
        Server,
        "sends what is longer than it was told, or before it was told",
        TERMINATES,
        &["version_two::larger_messages_are_accepted_only_after_they_were_announced"],
    ),
    attack(
        "xcharext §3.3",
        Client,
        "calls with chunks where that was not allowed, or with hostile ones where it was",
        "RDMA2_ERR_BAD_HEADER; chunks that it does not hand over end the connection, and nothing is left",
        &[
            "version_two_client::chunks_for_a_client_without_a_service_are_refused",
            "version_two_client::chunks_for_a_client_that_cannot_read_them_are_refused",
            "version_two_client::hostile_chunks_of_backward_calls_draw_bad_header",
            "version_two_client::unreadable_chunks_of_backward_calls_end_only_their_connection",
        ],
    ),
    attack(
        "xcharext §3.3",
        Server,
        "is called with chunks, and reaches for other memory, answers wrongly, too late or not at all",
        "what a client does in its place: the call ends, or the connection; others are served",
        &[
            "backward::memory_of_a_server_is_reached_only_as_it_was_offered",
            "backward::memory_of_a_server_is_out_of_reach_when_its_call_has_its_reply",
            "backward::handle_of_another_backward_call_cannot_be_invalidated",
            "backward::invalid_backward_replies_harm_no_call",
            "backward::errors_of_a_client_end_the_backward_call_and_nothing_else",
            "backward::backward_calls_respect_what_the_client_supports",
            "backward::backward_call_without_a_reply_times_out",
        ],
    ),
    attack(
        "xcharext §4.1",
        Server,
        "says what it is again and again, or changes what it said would not",
        "it is answered; only the first counts",
        &[
            "version_two::repeated_initxch_is_answered_and_only_the_first_takes_effect",
            "version_two::property_announced_as_unchanging_cannot_be_updated_but_for_less",
        ],
    ),
    attack(
        "xcharext §4",
        Both,
        "asks without a pause, and takes in no answer",
        "the connection ends, when there are more than it has Receives for",
        &[
            "version_two::as_many_requests_as_there_are_receives_for_are_answered",
            "version_two::flood_of_operations_ends_the_connection",
            "version_two_client::flood_of_operations_ends_the_connection_and_its_calls",
        ],
    ),
    attack(
        "xcharext §4.3",
        Server,
        "answers a request never, with another XID, twice, with an error, or with subsets that overlap \
         or leave something out",
        "nothing waits for it, and nothing changes but what was said to be done",
        &[
            "asked::unanswered_or_pending_property_request_delays_nothing",
            "asked::malformed_and_contradictory_answers_change_nothing",
            "asked::answer_to_another_request_is_ignored",
            "asked::client_that_refuses_property_requests_is_served",
            "asked::receive_size_lowered_during_a_request_is_respected",
        ],
    ),
    attack(
        "xcharext §3.2",
        Client,
        "takes along a handle of a client that has not allowed it",
        "the end of the connection",
        &[
            "version_two_client::handles_of_a_client_without_remote_invalidation_cannot_be_invalidated",
        ],
    ),
    attack(
        "reminv §4",
        Both,
        "agrees on a design that was not offered, on several, or too late",
        "nothing is agreed on; a client that does not know what its server means ends the connection",
        &[
            "designs::client_agrees_on_exactly_one_design_that_it_offered",
            "designs::server_agrees_only_on_designs_that_were_validly_offered",
            "designs::design_alone_governs_where_there_is_one",
            "version_two_client::designs_that_were_not_offered_are_not_agreed_on",
        ],
    ),
    attack(
        "reminv §4",
        Client,
        "takes along a handle of another call, one that was never made or is gone, or memory that stays",
        "the end of the connection, unless it is one to be read and the design is inter-call",
        &[
            "designs::each_handle_of_a_call_can_be_invalidated_once",
            "designs::unknown_handles_cannot_be_invalidated",
            "designs::handle_of_another_call_can_be_invalidated_only_under_inter_call_and_if_read",
            "designs::persistent_memory_cannot_be_invalidated_and_is_not_listed",
        ],
    ),
    attack(
        "reminv §5.3",
        Server,
        "names a handle that is not of the call, or more than there can be",
        "a foreign one is left alone; what is no array draws RDMA2_ERR_BAD_HEADER",
        &[
            "designs::server_invalidates_only_handles_that_the_design_allows",
            "designs::malformed_handle_lists_draw_bad_header",
        ],
    ),
    attack(
        "reminv §5.3",
        Client,
        "replies with words that nobody said, or that are none",
        DISCARDS,
        &["designs::handle_list_of_a_reply_is_ignored_if_well_formed"],
    ),
    attack(
        "RFC 8166 §4.5.2",
        Server,
        "sends lists that are no XDR, 2^28 segments, too many chunks",
        ERR_CHUNK,
        &[
            "header::lists_that_are_not_xdr_draw_err_chunk",
            "header::impossible_numbers_of_segments_draw_err_chunk",
            "header::too_many_chunks_draw_err_chunk",
        ],
    ),
    attack(
        "RFC 8166 §4.5.2",
        Server,
        "offers chunks that overlap, lie beyond the inline part, or are larger than memory",
        ERR_CHUNK,
        &[
            "header::impossible_chunk_positions_draw_err_chunk",
            "header::chunks_larger_than_the_server_moves_draw_err_chunk",
        ],
    ),
    attack(
        "RFC 8166 §4.5.2",
        Server,
        "sends RDMA_NOMSG without a chunk, or a stream in two places",
        ERR_CHUNK,
        &["header::call_both_inline_and_in_a_chunk_or_nowhere_draws_err_chunk"],
    ),
    attack(
        "RFC 8166 §4.5.2",
        Server,
        "gives the RPC message another XID than its header",
        ERR_CHUNK,
        &["header::xid_that_differs_from_that_of_the_call_draws_err_chunk"],
    ),
    attack(
        "RFC 8166 §4.5.3",
        Server,
        "wants a reply for which it gives no room",
        ERR_CHUNK,
        &["header::reply_without_room_for_it_draws_err_chunk"],
    ),
    attack(
        "RFC 8166 §4.6",
        Server,
        "sends RDMA_MSGP, RDMA_DONE, errors, and replies to nothing",
        "ERR_CHUNK for the first, nothing for the others",
        &[
            "header::unknown_procedures_draw_err_chunk",
            "header::rdma_error_and_obsolete_procedures_are_discarded",
            "header::replies_to_calls_never_made_are_discarded",
        ],
    ),
    attack(
        "RFC 8166 §6.1",
        Server,
        "sends by reference what is not eligible",
        "ERR_CHUNK, and the call is not executed",
        &[
            "header::item_that_is_not_eligible_draws_err_chunk",
            "nfs::data_by_reference_where_none_is_eligible_is_refused",
        ],
    ),
    attack(
        "RFC 8166 §4.3",
        Client,
        "returns chunks that were not offered, longer ones, none, or another XID",
        "the call fails, and nothing else",
        &["client::replies_with_chunks_that_were_not_offered_end_the_call_and_nothing_else"],
    ),
    attack(
        "RFC 8166 §4.4.1",
        Client,
        "answers a call that was cancelled, and writes to its memory before that",
        "nothing: its memory was kept for that",
        &["client_segments::cancelled_call_keeps_its_memory_until_its_reply"],
    ),
    attack(
        "RFC 8166 §4.2.1",
        Client,
        "answers a call twice",
        "the second answer is discarded",
        &["client_segments::reply_that_comes_twice_ends_one_call_only"],
    ),
    attack(
        "RFC 8167 §6",
        Client,
        "calls a client that has not said that it takes calls",
        "PROG_UNAVAIL: nothing is executed",
        &["client::call_of_a_server_for_which_nobody_is_ready_is_not_executed"],
    ),
    // RPC and NFS.
    attack(
        "RFC 5531 §9",
        Server,
        "sends calls that are wrong in themselves, with credentials that are none",
        "the reply that RPC has for it",
        &[
            "rpc::unknown_program_is_unavailable",
            "rpc::unknown_version_is_a_mismatch_with_the_versions_there_are",
            "rpc::unknown_procedure_is_unavailable",
            "rpc::arguments_that_cannot_be_decoded_are_garbage",
            "rpc::header_that_is_cut_off_is_garbage",
            "rpc::other_versions_of_rpc_are_denied",
            "rpc::credentials_that_are_malformed_are_denied",
            "rpc::verifier_that_is_malformed_is_denied",
        ],
    ),
    attack(
        "RFC 5531 §11",
        Server,
        "sends records over TCP that are too long, cut off, or in pieces without end",
        "the end of the connection before they are read",
        &[
            "tcp::records_that_are_too_long_end_their_connection_before_they_are_read",
            "tcp::records_cut_off_anywhere_are_forgotten",
            "tcp::records_in_any_fragments_are_read",
            "tcp::other_protocols_get_no_answer",
        ],
    ),
    attack(
        "RFC 1813 §4.3",
        Server,
        "forges file handles, and names what is outside of an export",
        "an error of NFS or MOUNT, before a file system sees it",
        &[
            "nfs::forged_handles_are_refused_wherever_they_were_changed",
            "nfs::no_procedure_takes_a_forged_handle",
            "nfs::handles_of_another_length_are_stale_bad_or_garbage",
            "nfs::names_that_cannot_be_are_refused_in_every_procedure",
            "nfs::dots_do_not_lead_out_and_cannot_be_made_or_removed",
            "nfs::paths_out_of_the_export_cannot_be_mounted",
            "nfs::arguments_cut_off_anywhere_are_garbage",
            "nfs::lists_of_too_many_entries_or_cut_off_are_garbage",
        ],
    ),
    attack(
        "ours",
        Both,
        "says what is nearly right, thousands of times",
        "no panic, and service for others",
        &[
            "random::mutated_handshakes_harm_nobody",
            "random::mutated_segments_harm_nobody",
            "random::mutated_headers_harm_nobody",
            "random::mutated_nfs_calls_harm_nobody",
            "random::mutated_replies_harm_no_client",
        ],
    ),
];
