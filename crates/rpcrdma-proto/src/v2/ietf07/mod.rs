//! Wire format of draft-ietf-nfsv4-rpcrdma-version-two-07 ("ietf-07"), the second dialect of version
//! two: the transport header (§6), its errors (§7) and its transport properties (§5).
//!
//! Its octets are not those of cel-01 ([`header`](super::header)), though `rdma_vers` is 2 in both:
//! the header type tells whether a message is a call or a reply, a Call chunk has a list of its own,
//! and a message can be a part of an RPC message. Chunks, their lists and their limits are those of
//! version one.
//!
//! [`Header::parse`] accepts only valid values; an invalid header becomes a [`HeaderError`], which
//! tells how to answer it. [`BodyView`] reads whatever is there, for decoders. Encoders write each
//! type of message; what they write can be parsed again.
//!
//! Credits, the order of parts, and which properties are in force are the matter of a connection:
//! nothing here has a state.
//!
//! ```
//! use rpcrdma_proto::v2::ietf07::{Body, Header, PropertySet, emit_properties};
//!
//! let set = PropertySet {
//!     receive_buffer: Some(8192),
//!     ..PropertySet::default()
//! };
//! let mut message = buffer::Buffer::default();
//! emit_properties(&mut message, 0, 32, true, &set);
//! let (header, _) = Header::parse(&message).expect("valid");
//! assert_eq!(header.body, Body::Properties { last: true, set });
//! ```

mod emit;
mod error;
mod malformation;
mod parse;
mod properties;
#[cfg(test)]
mod tests;
mod view;

pub use emit::{
    GRANT_LEN, PART_LEN, call_len, emit_call, emit_error, emit_grant, emit_part, emit_properties,
    emit_reply, plain_call, plain_reply, properties_len, reply_len,
};
pub use error::{RdmaError, error_code};
pub use malformation::Malformation;
pub use parse::{Disposition, HeaderError};
pub use properties::{Properties, PropertySet, ReverseSupport, property};
pub use view::{BodyView, PropertiesView, RpcView};

use crate::wire::direction::Direction;
use crate::wire::header::Lists;
use buffer::Buffer;
use verbs::Handle;

/// `rdma_vers` of this header.
pub const VERSION: u32 = 2;

/// Values of `rdma_htype` (§6.1).
pub mod header_type {
    /// RDMA2_ERROR: a message was not processed.
    pub const ERROR: u32 = 4;
    /// RDMA2_GRANT: credits, and nothing else.
    pub const GRANT: u32 = 5;
    /// RDMA2_CONNPROP_MIDDLE: transport properties, to be continued.
    pub const CONNPROP_MIDDLE: u32 = 6;
    /// RDMA2_CONNPROP_FINAL: the last transport properties.
    pub const CONNPROP_FINAL: u32 = 7;
    /// RDMA2_CALL_EXTERNAL: a call whose Payload stream is in its Call chunk.
    pub const CALL_EXTERNAL: u32 = 8;
    /// RDMA2_CALL_MIDDLE: a part of a call, to be continued.
    pub const CALL_MIDDLE: u32 = 9;
    /// RDMA2_CALL_INLINE: a call, or the last part of one.
    pub const CALL_INLINE: u32 = 10;
    /// RDMA2_REPLY_EXTERNAL: a reply whose Payload stream is in the Reply chunk.
    pub const REPLY_EXTERNAL: u32 = 11;
    /// RDMA2_REPLY_MIDDLE: a part of a reply, to be continued.
    pub const REPLY_MIDDLE: u32 = 12;
    /// RDMA2_REPLY_INLINE: a reply, or the last part of one.
    pub const REPLY_INLINE: u32 = 13;
}

/// A valid transport header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// XID of the RPC message or of the refused message; zero for an RDMA2_GRANT, whatever the
    /// message has (§6.3.2).
    pub xid: u32,
    /// `rdma_credit`: the number of the last message that the peer accepts, counted from the first
    /// one of the connection, modulo 2^32 (§4.2.1).
    pub credits: u32,
    /// The rest of the header, by header type.
    pub body: Body,
}

/// Content of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// RDMA2_ERROR: the peer did not process a message with this XID.
    Error(RdmaError),
    /// RDMA2_GRANT: nothing but credits.
    Grant,
    /// RDMA2_CONNPROP_MIDDLE or RDMA2_CONNPROP_FINAL: transport properties of the peer.
    Properties {
        /// Whether the message is an RDMA2_CONNPROP_FINAL.
        last: bool,
        /// The properties that are known here.
        set: PropertySet,
    },
    /// RDMA2_CALL_INLINE or RDMA2_CALL_EXTERNAL.
    Call {
        /// Whether the Payload stream is in the Call chunk, which is then the first of the Read
        /// chunks and the only one at Position zero. Otherwise the stream, or its last part,
        /// follows the header.
        external: bool,
        /// The handle that the reply may invalidate (§6.5). It need not be one of the lists.
        invalidate: Option<Handle>,
        /// Chunks for the whole call, in ascending order of Position.
        lists: Lists,
    },
    /// RDMA2_REPLY_INLINE or RDMA2_REPLY_EXTERNAL.
    Reply {
        /// Whether the Payload stream is in the Reply chunk. Otherwise the stream, or its last
        /// part, follows the header, and there is no Reply chunk.
        external: bool,
        /// Chunks with the lengths that were written. The Read list is empty.
        lists: Lists,
    },
    /// RDMA2_CALL_MIDDLE or RDMA2_REPLY_MIDDLE: the next part of a Payload stream follows the
    /// header.
    Part {
        /// Direction of the RPC message.
        direction: Direction,
        /// Octets of the stream that later messages have (§6.3.6).
        remaining: u32,
    },
}

impl Header {
    /// Returns the direction of the RPC message, or `None` for a message of the control plane
    /// (§6.5), which carries none.
    pub fn direction(&self) -> Option<Direction> {
        match &self.body {
            Body::Call { .. } => Some(Direction::Call),
            Body::Reply { .. } => Some(Direction::Reply),
            Body::Part { direction, .. } => Some(*direction),
            Body::Error(_) | Body::Grant | Body::Properties { .. } => None,
        }
    }

    /// Appends the header. An RDMA2_ERROR has version two; for one about a message of another
    /// version there is [`emit_error`].
    ///
    /// # Panics
    ///
    /// Those of [`emit_call`], [`emit_reply`] and [`emit_properties`].
    pub fn emit(&self, out: &mut Buffer) {
        let (xid, credits) = (self.xid, self.credits);
        match &self.body {
            Body::Error(error) => emit_error(out, xid, VERSION, credits, *error),
            Body::Grant => emit_grant(out, credits),
            Body::Properties { last, set } => emit_properties(out, xid, credits, *last, set),
            Body::Call {
                external,
                invalidate,
                lists,
            } => emit_call(out, xid, credits, *external, *invalidate, lists),
            Body::Reply { external, lists } => emit_reply(out, xid, credits, *external, lists),
            Body::Part {
                direction,
                remaining,
            } => emit_part(out, xid, credits, *direction, *remaining),
        }
    }
}
