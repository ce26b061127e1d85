//! Limits that a session of NFS version 4.1 or later states for its connection (RFC 8881 §18.34, §18.36), and
//! the cuts that a gateway makes in them.

use nfs_proto::scan::{
    CONN_RDMA, Channel, ChannelAttributes, Edit, ScannedCall, SessionOperation, USE_NON_PNFS,
    USE_PNFS_MDS, Word,
};
use nfs_proto::{NFS_PROGRAM, NFS_V4};
use rpc_serving::backchannels::MessageSizes;
use smallvec::SmallVec;

/// Largest messages of one direction, in bytes of the RPC message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) call: usize,
    pub(crate) reply: usize,
}

impl Sizes {
    /// The same for calls and replies.
    pub(crate) fn both(bytes: usize) -> Self {
        Self {
            call: bytes,
            reply: bytes,
        }
    }

    /// The smaller of each size.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            call: self.call.min(other.call),
            reply: self.reply.min(other.reply),
        }
    }
}

impl From<MessageSizes> for Sizes {
    fn from(sizes: MessageSizes) -> Self {
        Self {
            call: sizes.call,
            reply: sizes.reply,
        }
    }
}

/// Whether a call says that its client takes calls of the server on its connection.
pub(crate) fn declares_ready(call: &ScannedCall) -> bool {
    call.sessions().any(SessionOperation::has_callbacks)
}

/// Whether a call may say so unseen, because RPCSEC_GSS protects it. What makes or ends a security context is not clear
/// either, but a call of NULL (RFC 2203 §5.2.2).
pub(crate) fn may_declare_ready(call: &ScannedCall) -> bool {
    /// COMPOUND (RFC 7530 §15.2).
    const COMPOUND: u32 = 1;
    let procedure = (call.program, call.version, call.procedure);
    !call.clear && procedure == (NFS_PROGRAM, NFS_V4, COMPOUND)
}

/// Whether a call creates a session, or binds its connection to one.
pub(crate) fn is_of_session(call: &ScannedCall) -> bool {
    call.sessions().next().is_some()
}

/// Whether the reply to a call may say that its server supports pNFS: it has an EXCHANGE_ID.
pub(crate) fn may_offer_pnfs(call: &ScannedCall) -> bool {
    /// EXCHANGE_ID (RFC 8881 §18.35).
    const EXCHANGE_ID: u8 = 42;
    call.operations.contains(&EXCHANGE_ID)
}

/// Makes a metadata server of pNFS one without it, in the flags of each EXCHANGE_ID. One of the flags
/// has to be there (RFC 8881 §13.1), and Linux refuses both together.
pub(crate) fn without_pnfs(flags: &[Word]) -> SmallVec<[Edit; 3]> {
    let offered = flags.iter().filter(|flags| flags.value & USE_PNFS_MDS != 0);
    offered
        .map(|flags| flags.replace(flags.value & !USE_PNFS_MDS | USE_NON_PNFS))
        .collect()
}

/// Cuts the attributes of the channels in each CREATE_SESSION to what the transports carry. Takes out
/// that the connection is to go on in RDMA mode, there and in BIND_CONN_TO_SESSION: a server that
/// agreed would change the framing of a connection on which the gateway does not (RFC 8881 §18.36.3).
/// `back` is `None` where no transport of the relay limits callbacks.
pub(crate) fn cuts(call: &ScannedCall, fore: Sizes, back: Option<Sizes>) -> SmallVec<[Edit; 3]> {
    let mut edits = SmallVec::new();
    for session in call.sessions() {
        let create = match session {
            SessionOperation::Create(create) => create,
            SessionOperation::Bind(bind) => {
                if bind.rdma_mode.value != 0 {
                    edits.push(bind.rdma_mode.replace(0));
                }
                continue;
            }
        };
        let flags = create.flags.value;
        if flags & CONN_RDMA != 0 {
            edits.push(create.flags.replace(flags & !CONN_RDMA));
        }
        edits.extend(cut(&create.fore, Some(fore)));
        edits.extend(cut(&create.back, back));
    }
    edits
}

fn cut(channel: &Channel, to: Option<Sizes>) -> Option<Edit> {
    let before = channel.attributes;
    let mut after = ChannelAttributes {
        // Neither side steps up to RDMA within a connection (RFC 8881 §2.10.3.2), so that the number
        // of outstanding RDMA Reads is not the client's to offer.
        rdma_ird: None,
        ..before
    };
    if let Some(Sizes { call, reply }) = to {
        let most = |value: u32, limit: usize| value.min(u32::try_from(limit).unwrap_or(u32::MAX));
        after.max_request_size = most(before.max_request_size, call);
        after.max_response_size = most(before.max_response_size, reply);
        after.max_response_size_cached = most(before.max_response_size_cached, reply);
    }
    (after != before).then(|| channel.replace(after))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ATTRIBUTES: ChannelAttributes = ChannelAttributes {
        header_pad_size: 0,
        max_request_size: 5000,
        max_response_size: 6000,
        max_response_size_cached: 7000,
        max_operations: 8,
        max_requests: 9,
        rdma_ird: None,
    };

    fn channel(attributes: ChannelAttributes) -> Channel {
        Channel {
            offset: 100,
            attributes,
        }
    }

    #[test]
    fn channel_within_the_limits_is_not_touched() {
        let sizes = Sizes {
            call: 5000,
            reply: 7000,
        };
        assert_eq!(cut(&channel(ATTRIBUTES), Some(sizes)), None);
        assert_eq!(cut(&channel(ATTRIBUTES), None), None);
    }

    #[test]
    fn channel_is_cut_to_each_limit_and_loses_its_read_depth() {
        let sizes = Sizes {
            call: 4068,
            reply: 4000,
        };
        let before = channel(ChannelAttributes {
            rdma_ird: Some(16),
            ..ATTRIBUTES
        });
        let edit = cut(&before, Some(sizes)).expect("it is cut");
        let expected = ChannelAttributes {
            max_request_size: 4068,
            max_response_size: 4000,
            max_response_size_cached: 4000,
            ..ATTRIBUTES
        };
        assert_eq!(edit, before.replace(expected));
    }
}
