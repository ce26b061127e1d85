//! Codec of the transport header, one per version and layout.
//!
//! The roles do not depend on the version: they receive a [`Header`] and send a [`Contents`]. The
//! chunk lists are the same in all versions; the codec handles the words around them.

use crate::v2::ietf07;
use crate::v2::ietf07::PropertySet;
use crate::wire::direction::Direction;
use crate::wire::header::{Lists, Malformation};
use buffer::Buffer;
use std::fmt::Debug;
use std::ops::Deref;
use verbs::Handle;

/// Codec of the headers of a connection.
pub(crate) trait Codec: Debug + Sync {
    /// Returns the `rdma_vers` of this codec.
    fn version(&self) -> u32;

    /// Returns the bytes of a header without chunks, for messages of this direction.
    fn plain_len(&self, direction: Direction) -> usize;

    /// Parses the header of a received message.
    fn parse(&self, message: &[u8]) -> Result<Header, Invalid>;

    /// Parses the header of a received message if it is one of an inline RPC message without chunks, as [`plain`](Self::plain)
    /// encodes it. `None` says nothing of a message: [`parse`](Self::parse) does.
    fn parse_plain(&self, _message: &[u8]) -> Option<PlainHeader> {
        None
    }

    /// Encodes the header of an inline message without chunks.
    fn plain(&self, direction: Direction, xid: u32, credits: u32) -> Plain;

    /// Appends the header of an RPC message.
    fn emit(&self, out: &mut Buffer, xid: u32, credits: u32, contents: &Contents<'_>);

    /// Appends an error for a message with this XID and version, which is echoed (RFC 8166 §4.5).
    fn emit_error(&self, out: &mut Buffer, error: Refused);

    /// Returns the value that names no handle to invalidate.
    fn nothing_to_invalidate(&self) -> Invalidate;

    /// Appends the header of a part of an RPC message, after which so many bytes remain to be sent.
    ///
    /// # Panics
    ///
    /// If the version has no parts.
    fn emit_part(&self, _: &mut Buffer, _: Direction, _xid: u32, _remaining: u32) {
        unreachable!("without parts every message is one Send")
    }
}

/// The valid header of a received message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) xid: u32,
    /// Credits requested by a call or granted by a reply; unvalidated, so zero is possible.
    pub(crate) credits: u32,
    /// Offset of the Payload stream in the message.
    pub(crate) stream: usize,
    pub(crate) body: Body,
}

/// The header of an inline RPC message without chunks, and with no handle to invalidate: all that there is of nearly every
/// small one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlainHeader {
    pub(crate) xid: u32,
    /// As in [`Header`].
    pub(crate) credits: u32,
    /// Offset of the Payload stream in the message.
    pub(crate) stream: usize,
    /// Direction, if the message tells.
    pub(crate) direction: Option<Direction>,
}

/// Content of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// An RPC message follows the header, or is in a chunk.
    Rpc(Rpc),
    /// The peer did not process a message of this end.
    Error(PeerError),
    /// RDMA_DONE, which is discarded (RFC 8166 §4.6.2).
    Done,
    /// An operation beyond RPC, for neither role.
    Control(Control),
    /// A part of an RPC message, after which so many bytes remain (ietf-07 §6.3.6).
    Part {
        direction: Direction,
        remaining: usize,
    },
    /// Transport properties of the peer, the last of them or not (ietf-07 §6.3.3, §6.3.4).
    Properties { last: bool, set: Box<PropertySet> },
    /// Credits, and nothing else (ietf-07 §6.3.2).
    Grant,
}

/// The header of an RPC message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rpc {
    /// Whether the Payload stream is in a chunk.
    pub(crate) long: bool,
    /// Direction, if the message tells.
    pub(crate) direction: Option<Direction>,
    /// Handles that may be invalidated, if the layout has them.
    pub(crate) invalidate: Invalidate,
    pub(crate) lists: Lists,
}

/// An operation beyond RPC: in version two `rpcrdma2_optional` (cel-01 §3.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    /// Direction of the message.
    pub direction: Direction,
    /// Number of the operation.
    pub operation: u32,
    /// Information of the operation. A copy, because such messages are rare and the Receive is
    /// needed again.
    pub info: Vec<u8>,
}

/// Why the peer did not process a message of this end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeerError {
    pub(crate) cause: Rejection,
    /// Description for people.
    pub(crate) why: &'static str,
}

/// Why a message is not processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// ERR_VERS: the sender supports these versions, both inclusive.
    Versions { low: u32, high: u32 },
    /// ERR_CHUNK, and in version two RDMA2_ERR_BAD_HEADER.
    Header,
    /// RDMA2_ERR_INVAL_OPTION.
    Operation,
    /// The chunks of a call have this defect: ERR_CHUNK, and in later versions an error of its own.
    Chunks(Malformation),
    /// The reply has so many bytes, and fits neither inline nor the Reply chunk.
    ReplyTooLong { len: usize },
    /// A result has so many bytes, and does not fit the Write chunk of this index.
    ResultTooLong { chunk: usize, len: usize },
    /// Another error of ietf-07 (§7).
    Ietf07(ietf07::RdmaError),
}

/// A message of the peer that is answered with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// XID to echo.
    pub(crate) xid: u32,
    pub(crate) version: u32,
    /// Credits that the message requests, or that the error grants.
    pub(crate) credits: u32,
    pub(crate) rejection: Rejection,
}

/// A message that has no valid header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Invalid {
    /// The message is discarded without an answer.
    Nothing,
    /// The message is a reply. It is discarded without an answer.
    Reply { xid: u32 },
    /// The message has another version.
    OtherVersion,
    /// The message is malformed. If it is a call, it is answered with an error.
    Malformed {
        refused: Refused,
        /// Whether the message claims to be a call.
        is_call: bool,
    },
}

/// Content of the header of an RPC message to send, apart from XID and credits.
pub(crate) struct Contents<'a> {
    /// Whether the Payload stream is in a chunk.
    pub(crate) long: bool,
    pub(crate) direction: Direction,
    /// Handles that the peer may invalidate, if the layout has them.
    pub(crate) invalidate: Invalidate,
    pub(crate) lists: &'a Lists,
}

/// Handles for remote invalidation in a header, if its layout has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Invalidate {
    /// The layout has no handles.
    #[default]
    Unsaid,
    /// The one handle that may be invalidated, if any; on the wire zero stands for none.
    One(Option<Handle>),
    /// The handles of which one may be invalidated, at most
    /// [`MAX_INVALIDATE_HANDLES`](crate::limits::MAX_INVALIDATE_HANDLES); none if empty.
    Several(Vec<Handle>),
}

impl Invalidate {
    /// Returns the named handles.
    pub fn handles(&self) -> &[Handle] {
        match self {
            Self::Unsaid => &[],
            Self::One(handle) => handle.as_slice(),
            Self::Several(handles) => handles,
        }
    }
}

/// Bytes of the longest header without chunks.
const MAX_PLAIN: usize = 36;

/// An encoded header without chunks, as most messages have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plain {
    bytes: [u8; MAX_PLAIN],
    len: usize,
}

impl Plain {
    pub(crate) fn new(header: &[u8]) -> Self {
        let mut bytes = [0; MAX_PLAIN];
        bytes[..header.len()].copy_from_slice(header);
        Self {
            bytes,
            len: header.len(),
        }
    }
}

impl Deref for Plain {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}
