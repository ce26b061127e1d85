//! Limits for every number that a peer can send.

/// Largest number of segments of one Write or Reply chunk. Linux sends up to 16; a list of 4 KiB
/// pages for 1 MiB has 256.
pub const MAX_SEGMENTS_PER_CHUNK: usize = 256;

/// Largest number of segments of the whole Read list.
pub const MAX_READ_SEGMENTS: usize = 256;

/// Largest number of Read chunks of one call. Each is one argument, or the call itself.
pub const MAX_READ_CHUNKS: usize = 16;

/// Largest number of Write chunks of one call. Each is for one result.
pub const MAX_WRITE_CHUNKS: usize = 16;

/// Largest number of credits to request or grant; Linux has the same limit.
pub const MAX_CREDITS: u32 = 16384;

/// Receives posted beyond the credits, for messages that are neither call nor reply.
pub const RECEIVE_SLACK: usize = 4;

/// Largest number of calls in service for a peer, as a multiple of the credits it was granted. A
/// Requester that gives up a call may already send the next; one that exceeds this does not keep to
/// its credits (RFC 8166 §3.3.1).
pub const CREDIT_TOLERANCE: usize = 2;

/// (Version two) Largest number of handles for remote invalidation in one call (reminv §4.5). A
/// Responder invalidates one of them.
pub const MAX_INVALIDATE_HANDLES: usize = 16;

/// Largest number of comparisons of a call's segments with those of the other calls in service,
/// which find out whether a handle is shared (RFC 8797 §4.1). With more, its reply invalidates
/// nothing.
pub const MAX_SHARED_COMPARISONS: usize = 32_768;

/// (Version two) Largest number of segments offered by all calls in service with which a reply may
/// invalidate a handle of another call (reminv §4.6). With more, only handles of its own call are
/// considered.
pub const MAX_SPARE_SEGMENTS: usize = 1024;

/// (Version two) Largest number of handles of one call that replies to other calls invalidate
/// (reminv §4.6).
pub const MAX_SPARED: usize = 8;

/// (Version two) Largest number of handles of other calls that are considered for one reply (reminv
/// §4.6).
pub const MAX_SPARE_CANDIDATES: usize = 8;

/// (Version two) Largest number of characteristics in one message (xcharext §2.1). The first
/// message of a connection, of at most 1024 bytes, cannot hold more.
pub const MAX_CHARACTERISTICS: usize = 128;

/// (Version two) Largest value of one characteristic in bytes (xcharext §2.1). No Send is longer,
/// so a value that is complete in its message is never too long.
pub const MAX_CHARACTERISTIC_LEN: u32 = 262_144;

/// (Version two, ietf-07) Largest number of transport properties in one message (ietf-07 §5.1). A
/// message of the default size, 4096 bytes, cannot hold more.
pub const MAX_PROPERTIES: usize = 512;

/// (Version two, ietf-07) Largest Host Authentication Message of one message in bytes (ietf-07
/// §5.2.6), which has the default size at most.
pub const MAX_HOST_AUTH: u32 = 4096;

/// (Version two) Largest first message of a connection in bytes, which a peer of either version can
/// receive (cel-01 §5). No control message is longer.
pub const FIRST_MESSAGE: usize = 1024;

/// (Version two) Largest number of control messages that an end has outstanding, answers not
/// counted.
pub const MAX_CONTROL_MESSAGES: usize = 2;

/// (ietf-07) Largest RPC message that is sent, or accepted, in several parts, in bytes of its Payload
/// stream (ietf-07 §6.6.2). The draft has no limit, and no property to announce one. What is longer
/// goes in a chunk.
pub const MAX_CONTINUED: usize = 65_536;

/// (ietf-07) Calls of a peer that are with the service at a time, or whose replies wait to be posted: each
/// reply may have [`MAX_CONTINUED`] bytes that no chunk of the peer has memory for.
pub const MAX_CALLS_IN_SERVICE: usize = 64;

/// (ietf-07) Least part of a message in several, in bytes of its Payload stream: each begins with a word
/// (ietf-07 §6.3.6, §6.3.7).
pub const LEAST_PART: usize = 4;

/// (ietf-07) Receives posted beyond the credits for parts of replies, while any call may be sent.
/// The peer learns of those posted again before it has used up half.
pub const PART_RECEIVES: u32 = 8;

/// (Version two) Receives posted beyond the credits for control messages: for those of the peer,
/// and for as many answers to this end's.
pub const CONTROL_RECEIVES: usize = 4;
