//! Parameters that both ends of a connection have agreed on.

use crate::codec::Codec;
use crate::invalidation::design::Design;
use crate::invalidation::rule::{Accepts, Rule};
use crate::plan::Chunks;
use crate::role::Role;
use crate::version::Version;
use crate::wire::codec::VersionOne;
use crate::wire::private_data::PrivateData;

/// What both ends have agreed on: all that the roles know of the version, and of each other.
///
/// For version one private data makes it, once. Version two replaces it whenever its session comes to
/// something else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agreed {
    /// How headers are laid out.
    pub(crate) codec: &'static dyn Codec,
    /// The lowest and the highest version that this end speaks on this connection.
    pub(crate) versions: (Version, Version),
    pub(crate) sizes: Sizes,
    pub(crate) our_calls: OurCalls,
    /// Whether calls of the peer may have chunks.
    pub(crate) peer_chunks: Chunks,
    /// Which handles of the peer go with our replies.
    pub(crate) rule: Rule,
    /// Which handles of ours may come with the peer's replies.
    pub(crate) accepts: Accepts,
    /// Whether the peer said itself that its handles may go, as one that takes ours does in general.
    pub(crate) peer_announces: bool,
}

/// How large messages may be, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// The largest message that we send.
    pub(crate) send: usize,
    /// The largest reply that we send to a call if there is no other way.
    pub(crate) last_resort: usize,
    /// The largest message that we would ever send, to a peer that receives as much.
    pub(crate) largest_sent: usize,
    /// The largest reply for which a call of ours needs no Reply chunk.
    pub(crate) reply: usize,
    /// Each Receive that is posted from now on.
    pub(crate) receive: usize,
}

/// Whether and how calls of ours go.
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
    /// What private data says (RFC 8797 §4) about an end with Receives of so many bytes.
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
            sizes: Sizes {
                send,
                last_resort: send,
                largest_sent: send,
                reply: thresholds.receive.bytes(),
                receive,
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

    /// Whether calls are planned for this as for `other`.
    pub(crate) fn plans_as(&self, other: &Self) -> bool {
        let terms = |agreed: &Self| {
            let Sizes { send, reply, .. } = agreed.sizes;
            (agreed.codec.plain_len(), send, reply, agreed.our_calls)
        };
        terms(self) == terms(other)
    }
}
