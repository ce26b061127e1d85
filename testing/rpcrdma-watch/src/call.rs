//! Messages as the rules see them: calls and replies.

use buffer::gather_len;
use bytes::Bytes;
use rpcrdma_proto::header::{Body, Header, Lists};
use rpcrdma_proto::v2::Dialect;
use rpcrdma_proto::v2::characteristics::Registry;
use rpcrdma_proto::v2::header::{self as two, WordLayout};
use rpcrdma_proto::v2::ietf07;
use rpcrdma_proto::v2::ietf07::PropertySet;
use rpcrdma_proto::v2::operations::{Operation, Supported};
use rpcrdma_proto::{Direction, Version, version_of};
use std::fmt;
use verbs::Handle;

/// `msg_type` of a reply (RFC 5531 §9).
const REPLY: u32 = 1;

/// A message, as far as the rules look at it.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) version: Version,
    /// The dialect, where that is version two.
    pub(super) dialect: Dialect,
    pub(super) xid: u32,
    pub(super) credits: u32,
    pub(super) kind: Kind,
    /// Handles that may be invalidated, where there is a word for it (reminv §4.4, §4.5).
    pub(super) named: Vec<Handle>,
    pub(super) len: usize,
}

#[derive(Debug)]
pub(super) enum Kind {
    Call(Lists),
    Reply(Lists),
    Error,
    /// Message of an end of version two beside calls; none if that is no valid operation.
    Control(Direction, Option<Operation>),
    /// A part of a call or reply, after which so many bytes are to come, and its own bytes.
    Part(Direction, usize, usize),
    /// Properties that an end of ietf-07 announces.
    Properties(PropertySet),
    /// Nothing but credits.
    Grant,
    /// No header that we know.
    Other,
}

impl Message {
    /// The message in these bytes, and those that follow by reference, where version two has these
    /// words for remote invalidation.
    pub(super) fn parse(bytes: &[u8], rest: &[Bytes], words: WordLayout, dialect: Dialect) -> Self {
        let len = bytes.len() + gather_len(rest);
        if version_of(bytes) == Some(Version::Two.number()) {
            return match is_later(bytes, len) || dialect == Dialect::Ietf07 {
                true => Self::parse_later(bytes, len),
                false => Self::parse_two(bytes, len, words),
            };
        }
        let Ok((header, stream)) = Header::parse(bytes) else {
            return Self::other(Version::One, len);
        };
        let (xid, credits) = (header.xid, header.credits);
        let kind = match header.body {
            Body::Msg(lists) => {
                let stream = bytes[stream..].iter().chain(rest.iter().flatten());
                let direction: Vec<u8> = stream.skip(4).take(4).copied().collect();
                match direction == REPLY.to_be_bytes() {
                    true => Kind::Reply(lists),
                    false => Kind::Call(lists),
                }
            }
            // RFC 8167 §4.2: only a call has its stream in a Position-Zero chunk.
            Body::NoMsg(lists) => match lists.reads.first() {
                Some(_) => Kind::Call(lists),
                None => Kind::Reply(lists),
            },
            Body::Error(_) => Kind::Error,
            Body::Done => Kind::Other,
        };
        Self {
            version: Version::One,
            dialect: Dialect::Cel01,
            xid,
            credits,
            kind,
            named: Vec::new(),
            len,
        }
    }

    /// In version two the header says which way it goes.
    fn parse_two(bytes: &[u8], len: usize, words: WordLayout) -> Self {
        let version = Version::Two;
        let Ok((header, stream)) = two::Header::parse(bytes, words) else {
            return Self::other(version, len);
        };
        let mut named = Vec::new();
        let kind = match header.body {
            two::Body::Msg(chunks) | two::Body::NoMsg(chunks) => {
                named.extend_from_slice(chunks.invalidate.handles());
                match chunks.direction {
                    Direction::Call => Kind::Call(chunks.lists),
                    Direction::Reply => Kind::Reply(chunks.lists),
                }
            }
            two::Body::Error(_) => Kind::Error,
            two::Body::Optional(optional) => {
                let (all, known) = (Supported::All, Registry::standard());
                let operation = Operation::parse(&optional, &bytes[stream..], all, &known);
                let operation = operation.ok().map(|(operation, _)| operation);
                Kind::Control(optional.direction, operation)
            }
        };
        Self {
            version,
            dialect: Dialect::Cel01,
            xid: header.xid,
            credits: header.credits,
            kind,
            named,
            len,
        }
    }

    /// In ietf-07 the type of the header does.
    fn parse_later(bytes: &[u8], len: usize) -> Self {
        let Ok((header, stream)) = ietf07::Header::parse(bytes) else {
            return Self::other(Version::Two, len);
        };
        let mut named = Vec::new();
        let kind = match header.body {
            ietf07::Body::Call {
                invalidate, lists, ..
            } => {
                named.extend(invalidate);
                Kind::Call(lists)
            }
            ietf07::Body::Reply { lists, .. } => Kind::Reply(lists),
            ietf07::Body::Error(_) => Kind::Error,
            ietf07::Body::Grant => Kind::Grant,
            ietf07::Body::Properties { set, .. } => Kind::Properties(set),
            ietf07::Body::Part {
                direction,
                remaining,
            } => Kind::Part(direction, remaining as usize, len - stream),
        };
        Self {
            version: Version::Two,
            dialect: Dialect::Ietf07,
            xid: header.xid,
            credits: header.credits,
            kind,
            named,
            len,
        }
    }

    fn other(version: Version, len: usize) -> Self {
        Self {
            version,
            dialect: Dialect::Cel01,
            xid: 0,
            credits: 0,
            kind: Kind::Other,
            named: Vec::new(),
            len,
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            xid, credits, len, ..
        } = self;
        let (what, lists) = match &self.kind {
            Kind::Call(lists) => ("call", lists),
            Kind::Reply(lists) => ("reply", lists),
            Kind::Error => return write!(f, "error {xid:#010x} of {len}, credits {credits}"),
            Kind::Control(direction, operation) => {
                return write!(f, "{direction:?} {xid:#010x} of {len}: {operation:?}");
            }
            Kind::Part(direction, remaining, _) => {
                return write!(
                    f,
                    "part of {direction:?} {xid:#010x} of {len}, {remaining} left"
                );
            }
            Kind::Properties(set) => return write!(f, "{set:?} of {len}, credits {credits}"),
            Kind::Grant => return write!(f, "credits {credits}"),
            Kind::Other => return write!(f, "message of {len}"),
        };
        write!(f, "{what} {xid:#010x} of {len}, credits {credits}")?;
        for chunk in &lists.reads {
            write!(f, ", read {} at {}", chunk.len(), chunk.position)?;
        }
        for chunk in &lists.writes {
            write!(f, ", write {}", chunk.len())?;
        }
        if let Some(chunk) = &lists.reply {
            write!(f, ", reply chunk {}", chunk.len())?;
        }
        Ok(())
    }
}

/// Whether a message of version two has a header type that cel-01 does not have.
fn is_later(bytes: &[u8], len: usize) -> bool {
    use ietf07::header_type::{CONNPROP_MIDDLE, GRANT, REPLY_INLINE};
    let htype = bytes.get(12..16).and_then(|word| word.try_into().ok());
    htype.map(u32::from_be_bytes).is_some_and(|htype| {
        (CONNPROP_MIDDLE..=REPLY_INLINE).contains(&htype)
            || (htype == GRANT && len == ietf07::GRANT_LEN)
    })
}
