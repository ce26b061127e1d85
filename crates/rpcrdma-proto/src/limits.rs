//! Every number that a peer may name has its limit here.

/// Segments of one Write or Reply chunk. Linux sends up to 16; a list of 4 KiB pages for 1 MiB has 256.
pub const MAX_SEGMENTS_PER_CHUNK: usize = 256;

/// Segments of the whole Read list.
pub const MAX_READ_SEGMENTS: usize = 256;

/// Read chunks of one call: each is one argument, or the call itself.
pub const MAX_READ_CHUNKS: usize = 16;

/// Write chunks of one call: each is for one result.
pub const MAX_WRITE_CHUNKS: usize = 16;

/// Credits that are asked for or granted at most; Linux has the same limit.
pub const MAX_CREDITS: u32 = 16384;

/// Receives posted beyond the credits, for what is not a call or a reply.
pub const RECEIVE_SLACK: usize = 4;

/// Calls that a peer may have with us at a time, as a multiple of the credits it was granted. A
/// requester that gives up a call may already send the next; one that goes beyond this is not
/// keeping to its credits at all (RFC 8166 §3.3.1).
pub const CREDIT_TOLERANCE: usize = 2;

/// (Version two) Handles that one call may name for remote invalidation (reminv §4.5). A responder
/// invalidates one of them.
pub const MAX_INVALIDATE_HANDLES: usize = 16;

/// (Version two) Segments that the calls in service offer, for a reply to take along a handle of
/// another call than its own (reminv §4.6). If they offer more, none is looked for.
pub const MAX_SPARE_SEGMENTS: usize = 1024;

/// (Version two) Handles of one call that go with replies to others (reminv §4.6).
pub const MAX_SPARED: usize = 8;

/// (Version two) Handles of other calls that are looked at for one reply (reminv §4.6).
pub const MAX_SPARE_CANDIDATES: usize = 8;

/// (Version two) Characteristics in one message (xcharext §2.1). Those of the first message of a
/// connection, which has at most 1024 bytes, cannot be more.
pub const MAX_CHARACTERISTICS: usize = 128;

/// (Version two) Bytes of the value of one characteristic (xcharext §2.1). No Send has more, so
/// that what is in a message as a whole is never too long.
pub const MAX_CHARACTERISTIC_LEN: u32 = 262_144;

/// (Version two) Bytes of the first message of a connection, which a peer of either version can take
/// in (cel-01 §5). No message about characteristics has more.
pub const FIRST_MESSAGE: usize = 1024;

/// (Version two) Messages about characteristics that an end has outstanding, answers aside.
pub const MAX_CONTROL_MESSAGES: usize = 2;

/// (Version two) Receives posted beyond the credits for messages about characteristics: for those
/// that a peer has outstanding, and for as many answers to ours.
pub const CONTROL_RECEIVES: usize = 4;
