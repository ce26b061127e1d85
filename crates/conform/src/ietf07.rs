//! Messages of draft-ietf-nfsv4-rpcrdma-version-two-07 ("ietf-07") in words: how they are made, and every field of those
//! that come, checked for nothing but that it is there.

use crate::message::{Chunk, Segment, Words};
use crate::rpc;
use std::fmt;

/// Octets behind the private data of a Responder that has ietf-07 (`docs/design/version-two.md`).
pub const ANNOUNCEMENT: [u8; 8] = *b"rpc2ie07";

/// `rdma_htype` (§6.1).
pub mod htype {
    /// RDMA2_ERROR.
    pub const ERROR: u32 = 4;
    /// RDMA2_GRANT.
    pub const GRANT: u32 = 5;
    /// RDMA2_CONNPROP_MIDDLE.
    pub const CONNPROP_MIDDLE: u32 = 6;
    /// RDMA2_CONNPROP_FINAL.
    pub const CONNPROP_FINAL: u32 = 7;
    /// RDMA2_CALL_EXTERNAL.
    pub const CALL_EXTERNAL: u32 = 8;
    /// RDMA2_CALL_MIDDLE.
    pub const CALL_MIDDLE: u32 = 9;
    /// RDMA2_CALL_INLINE.
    pub const CALL_INLINE: u32 = 10;
    /// RDMA2_REPLY_EXTERNAL.
    pub const REPLY_EXTERNAL: u32 = 11;
    /// RDMA2_REPLY_MIDDLE.
    pub const REPLY_MIDDLE: u32 = 12;
    /// RDMA2_REPLY_INLINE.
    pub const REPLY_INLINE: u32 = 13;
}

/// `rdma_err` (§7, §8.4).
pub mod error {
    /// RDMA2_ERR_VERS.
    pub const VERS: u32 = 1;
    /// RDMA2_ERR_BAD_XDR.
    pub const BAD_XDR: u32 = 2;
    /// RDMA2_ERR_BAD_PROPVAL.
    pub const BAD_PROPVAL: u32 = 3;
    /// RDMA2_ERR_INVAL_HTYPE.
    pub const INVAL_HTYPE: u32 = 4;
    /// RDMA2_ERR_INVAL_CONT.
    pub const INVAL_CONT: u32 = 5;
    /// RDMA2_ERR_READ_CHUNKS.
    pub const READ_CHUNKS: u32 = 6;
    /// RDMA2_ERR_WRITE_CHUNKS.
    pub const WRITE_CHUNKS: u32 = 7;
    /// RDMA2_ERR_SEGMENTS.
    pub const SEGMENTS: u32 = 8;
    /// RDMA2_ERR_WRITE_RESOURCE.
    pub const WRITE_RESOURCE: u32 = 9;
    /// RDMA2_ERR_REPLY_RESOURCE.
    pub const REPLY_RESOURCE: u32 = 10;
    /// RDMA2_ERR_VERS_MISMATCH.
    pub const VERS_MISMATCH: u32 = 11;
    /// RDMA2_ERR_SYSTEM.
    pub const SYSTEM: u32 = 100;

    /// The name of an error without its beginning, or nothing for a number that is none.
    pub fn name(code: u32) -> &'static str {
        match code {
            VERS => "VERS",
            BAD_XDR => "BAD_XDR",
            BAD_PROPVAL => "BAD_PROPVAL",
            INVAL_HTYPE => "INVAL_HTYPE",
            INVAL_CONT => "INVAL_CONT",
            READ_CHUNKS => "READ_CHUNKS",
            WRITE_CHUNKS => "WRITE_CHUNKS",
            SEGMENTS => "SEGMENTS",
            WRITE_RESOURCE => "WRITE_RESOURCE",
            REPLY_RESOURCE => "REPLY_RESOURCE",
            VERS_MISMATCH => "VERS_MISMATCH",
            SYSTEM => "SYSTEM",
            _ => "",
        }
    }
}

/// `rdma_which` (§5.2).
pub mod property {
    /// Maximum Send Size.
    pub const SBSIZ: u32 = 1;
    /// Receive Buffer Size.
    pub const RBSIZ: u32 = 2;
    /// Maximum Segment Size.
    pub const RSSIZ: u32 = 3;
    /// Maximum Segment Count.
    pub const RCSIZ: u32 = 4;
    /// Reverse-Direction Support.
    pub const BRS: u32 = 5;
}

/// A message with this behind `rdma_htype`. The credits are for who sends it to fill in.
pub fn message(xid: u32, htype: u32, rest: &[u32]) -> Vec<u32> {
    [&[xid, 2, 0, htype], rest].concat()
}

/// An RDMA2_GRANT.
pub fn grant() -> Vec<u32> {
    message(0, htype::GRANT, &[])
}

/// A set of properties of one word each (§5.1).
///
/// # Panics
///
/// If they are more than a count can say.
pub fn properties(values: &[(u32, u32)]) -> Vec<u32> {
    let mut set = vec![u32::try_from(values.len()).expect("test data is short")];
    for (which, value) in values {
        set.extend([*which, 4, *value]);
    }
    set
}

/// A call in one message: the handle that its reply may invalidate, the lists of chunks, and the RPC message.
pub fn call(xid: u32, handle: u32, lists: &[u32], stream: &[u32]) -> Vec<u32> {
    let rest = [&[handle], lists, stream].concat();
    message(xid, htype::CALL_INLINE, &rest)
}

/// Any part of a call but the last.
pub fn part(xid: u32, remaining: u32, stream: &[u32]) -> Vec<u32> {
    let rest = [&[remaining], stream].concat();
    message(xid, htype::CALL_MIDDLE, &rest)
}

/// A message, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) xid: u32,
    pub(crate) version: u32,
    /// `rdma_credit`.
    pub(crate) credits: u32,
    pub(crate) body: Body,
    /// Octets behind the transport header.
    pub(crate) payload: Vec<u8>,
    /// Octets of the whole message.
    pub(crate) len: usize,
}

/// The part of a header that depends on `rdma_htype`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// An error, with the words behind its code.
    Error {
        code: u32,
        rest: Vec<u32>,
    },
    Grant,
    /// Properties in their order: what each is of, and its octets.
    Properties {
        last: bool,
        values: Vec<(u32, Vec<u8>)>,
    },
    /// A part of a reply that is not its last.
    Part {
        remaining: u32,
    },
    /// A reply in its Reply chunk, or (the last part of) one behind the header.
    Reply {
        external: bool,
        writes: Vec<Chunk>,
        reply: Option<Chunk>,
    },
    /// A call, or a header type that there is not.
    Other(u32),
}

impl Message {
    /// Takes a message apart.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let mut words = Words(bytes);
        let xid = words.next("rdma_xid")?;
        let version = words.next("rdma_vers")?;
        let credits = words.next("rdma_credit")?;
        let body = match words.next("rdma_htype")? {
            htype::ERROR => {
                let code = words.next("rdma_err")?;
                let (rest, _) = words.0.as_chunks();
                let rest = rest.iter().copied().map(u32::from_be_bytes).collect();
                words.0 = &[];
                Body::Error { code, rest }
            }
            htype::GRANT => Body::Grant,
            which @ (htype::CONNPROP_MIDDLE | htype::CONNPROP_FINAL) => Body::Properties {
                last: which == htype::CONNPROP_FINAL,
                values: Self::properties(&mut words)?,
            },
            htype::REPLY_MIDDLE => Body::Part {
                remaining: words.next("rdma_remaining")?,
            },
            which @ (htype::REPLY_EXTERNAL | htype::REPLY_INLINE) => {
                let external = which == htype::REPLY_EXTERNAL;
                let mut writes = Vec::new();
                while words.follows("the Write list")? {
                    writes.push(words.chunk()?);
                }
                let reply = match external && words.follows("the Reply chunk")? {
                    true => Some(words.chunk()?),
                    false => None,
                };
                Body::Reply {
                    external,
                    writes,
                    reply,
                }
            }
            other => Body::Other(other),
        };
        Ok(Self {
            xid,
            version,
            credits,
            body,
            payload: words.0.to_vec(),
            len: bytes.len(),
        })
    }

    fn properties(words: &mut Words<'_>) -> Result<Vec<(u32, Vec<u8>)>, String> {
        let count = words.next("the number of properties")?;
        // A count from the peer allocates nothing: each property is read first.
        let one = |_| {
            let which = words.next("rdma_which")?;
            Ok((which, words.opaque("rdma_data")?.to_vec()))
        };
        (0..count).map(one).collect()
    }

    /// `rdma_err`, if it is an error.
    pub(crate) fn error(&self) -> Option<u32> {
        match self.body {
            Body::Error { code, .. } => Some(code),
            _ => None,
        }
    }
}

/// The value of a property that is a number.
pub(crate) fn number(values: &[(u32, Vec<u8>)], which: u32) -> Option<u32> {
    let (_, value) = values.iter().find(|(id, _)| *id == which)?;
    value.first_chunk().copied().map(u32::from_be_bytes)
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.body {
            Body::Error { code, rest } => {
                write!(f, "RDMA2_ERROR {code} {} {rest:?}", error::name(*code))?;
            }
            Body::Grant => write!(f, "RDMA2_GRANT")?,
            Body::Properties { last, values } => {
                let name = if *last { "FINAL" } else { "MIDDLE" };
                write!(f, "RDMA2_CONNPROP_{name} of {} properties: ", values.len())?;
                for (which, value) in values.iter().take(8) {
                    write!(f, "{which}={value:02x?} ")?;
                }
            }
            Body::Part { remaining } => write!(f, "RDMA2_REPLY_MIDDLE, {remaining} remain")?,
            Body::Reply {
                external, writes, ..
            } => {
                let name = if *external { "EXTERNAL" } else { "INLINE" };
                write!(f, "RDMA2_REPLY_{name}, {} Write chunks", writes.len())?;
            }
            Body::Other(htype::CALL_EXTERNAL) => write!(f, "RDMA2_CALL_EXTERNAL")?,
            Body::Other(htype::CALL_MIDDLE) => write!(f, "RDMA2_CALL_MIDDLE")?,
            Body::Other(htype::CALL_INLINE) => write!(f, "RDMA2_CALL_INLINE")?,
            Body::Other(other) => write!(f, "unknown rdma_htype {other}")?,
        }
        let (xid, version, credits) = (self.xid, self.version, self.credits);
        write!(f, ", XID {xid:#010x}, version {version}, credits {credits}")?;
        match &self.body {
            Body::Part { .. } => write!(f, "; {} octets", self.payload.len()),
            Body::Reply { .. } => write!(f, "; {}", rpc::describe(&self.payload)),
            _ => Ok(()),
        }
    }
}

/// A message in words, whatever it is.
pub(crate) fn describe(bytes: &[u8]) -> String {
    match Message::parse(bytes) {
        Ok(message) => message.to_string(),
        Err(why) => format!("{} octets that are no message: {why}", bytes.len()),
    }
}

/// Segments of a list of data items, an empty Write list, and no Reply chunk; before them, for an external call, the Call
/// chunk.
pub(crate) fn external_lists(call: &[(u32, Segment)], reads: &[(u32, Segment)]) -> Vec<u32> {
    let mut lists = Vec::new();
    for list in [call, reads] {
        for (position, segment) in list {
            lists.extend([1, *position]);
            lists.extend(segment.words());
        }
        lists.push(0);
    }
    lists.extend([0, 0]);
    lists
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words;

    #[test]
    fn every_field_is_read() {
        let reply = message(7, htype::REPLY_EXTERNAL, &[1, 1, 5, 6, 0, 3, 0, 1, 0]);
        let parsed = Message::parse(&words(&reply)).unwrap();
        let chunk = vec![Segment {
            handle: 5,
            length: 6,
            offset: 3,
        }];
        let expected = Body::Reply {
            external: true,
            writes: vec![chunk],
            reply: Some(Vec::new()),
        };
        assert_eq!(parsed.body, expected);
        let said = message(7, htype::CONNPROP_FINAL, &properties(&[(2, 4096), (9, 1)]));
        let Body::Properties { last: true, values } = Message::parse(&words(&said)).unwrap().body
        else {
            panic!("they are properties");
        };
        assert_eq!(number(&values, property::RBSIZ), Some(4096));
        assert_eq!(number(&values, property::SBSIZ), None);
    }

    #[test]
    fn message_that_ends_early_is_none() {
        for rest in [
            &[htype::ERROR][..],
            &[htype::CONNPROP_FINAL, u32::MAX, 1],
            &[htype::CONNPROP_MIDDLE, 1, 2, 400, 0],
            &[htype::REPLY_INLINE, 1, u32::MAX, 0],
            &[htype::REPLY_MIDDLE],
        ] {
            let message = [&[7, 2, 32], rest].concat();
            assert!(Message::parse(&words(&message)).is_err(), "{rest:?}");
        }
    }
}
