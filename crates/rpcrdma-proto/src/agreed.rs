//! Parameters that both ends of a connection have agreed on.

use crate::codec::Codec;
use crate::invalidation::design::Design;
use crate::invalidation::rule::{Accepts, Rule};
use crate::plan::Chunks;
use crate::role::Role;
use crate::version::Version;
use crate::wire::codec::VersionOne;
use crate::wire::direction::Direction;
use crate::wire::private_data::PrivateData;

/// Agreed parameters: all that the roles know of the version and the peer.
///
/// In version one, private data determines the value once. In version two the session replaces it
/// whenever it agrees on something else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agreed {
    /// Codec of headers.
    pub(crate) codec: &'static dyn Codec,
    /// Lowest and highest version of this end on this connection.
    pub(crate) versions: (Version, Version),
    /// Another version that this end supports, whose messages are refused as those of another
    /// version than the connection's (ietf-07 §7.1.2).
    pub(crate) mismatch: Option<Version>,
    pub(crate) sizes: Sizes,
    pub(crate) our_calls: OurCalls,
    /// Whether calls of the peer may have chunks.
    pub(crate) peer_chunks: Chunks,
    /// Rule for the handles of the peer that replies of this end invalidate.
    pub(crate) rule: Rule,
    /// Handles of this end that replies of the peer may invalidate.
    pub(crate) accepts: Accepts,
    /// Whether the peer announced that its handles may be invalidated, as a peer that invalidates
    /// this end's does in general.
    pub(crate) peer_announces: bool,
}

/// Message sizes, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Largest message to send.
    pub(crate) send: usize,
    /// Largest reply to send to a call that fits no other way.
    pub(crate) last_resort: usize,
    /// Largest message that this end would ever send, to a peer that receives as much.
    pub(crate) largest_sent: usize,
    /// Largest reply for which a call of this end needs no Reply chunk.
    pub(crate) reply: usize,
    /// Size of Receives posted from now on.
    pub(crate) receive: usize,
    /// Largest reply to send in several parts; 0 if every message is one.
    pub(crate) continued: usize,
    /// Largest call, and largest reply to a call of this end, in several parts.
    pub(crate) continued_calls: usize,
    /// Largest number of segments in a call that the peer accepts.
    pub(crate) peer_segments: usize,
    /// Largest segment that the peer accepts.
    pub(crate) peer_segment: usize,
}

/// Whether and how calls of this end are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OurCalls {
    /// The version is not settled yet, so no call can be planned.
    Unsettled,
    /// The peer accepts no calls, for this reason.
    Never(&'static str),
    /// Calls are sent, with or without chunks.
    Sent(Chunks),
}

impl Agreed {
    /// Returns the parameters by private data (RFC 8797 §4), for an end with Receives of this size.
    pub(crate) fn version_one(
        role: Role,
        own: PrivateData,
        peer: PrivateData,
        receive: usize,
    ) -> Self {
        let thresholds = own.thresholds(peer);
        let send = thresholds.send.bytes();
        // RFC 8167 §5.3: version one does without chunks in the backward direction.
        let (ours, of_peer) = match role {
            Role::Client => (Chunks::Allowed, Chunks::Refused),
            Role::Server => (Chunks::Refused, Chunks::Allowed),
        };
        Self {
            codec: &VersionOne,
            versions: (Version::One, Version::One),
            mismatch: None,
            sizes: Sizes {
                send,
                last_resort: send,
                largest_sent: send,
                reply: thresholds.receive.bytes(),
                receive,
                continued: 0,
                continued_calls: 0,
                peer_segments: usize::MAX,
                peer_segment: usize::MAX,
            },
            our_calls: OurCalls::Sent(ours),
            peer_chunks: of_peer,
            // RFC 8797 §4.1: if both have set R.
            rule: match own.remote_invalidation && peer.remote_invalidation {
                true => Rule::By(Design::PerConnection),
                false => Rule::Never,
            },
            accepts: Accepts::of(None, own.remote_invalidation),
            peer_announces: peer.remote_invalidation,
        }
    }

    /// Whether plans of calls are the same as under `other`.
    pub(crate) fn plans_as(&self, other: &Self) -> bool {
        let terms = |agreed: &Self| {
            let Sizes {
                send,
                reply,
                continued_calls,
                peer_segments,
                peer_segment,
                ..
            } = agreed.sizes;
            let plain = agreed.codec.plain_len(Direction::Call);
            let segments = (peer_segments, peer_segment);
            (
                plain,
                send,
                reply,
                continued_calls,
                segments,
                agreed.our_calls,
            )
        };
        terms(self) == terms(other)
    }
}
