//! What a message is to the rules: a call or the answer to one.

use buffer::gather_len;
use bytes::Bytes;
use rpcrdma_proto::header::{Body, Header, Lists};
use std::fmt;

/// `msg_type` of a reply (RFC 5531 §9).
const REPLY: u32 = 1;

/// A message, as far as the rules look at it.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) xid: u32,
    pub(super) credits: u32,
    pub(super) kind: Kind,
    len: usize,
}

#[derive(Debug)]
pub(super) enum Kind {
    Call(Lists),
    Reply(Lists),
    Error,
    /// No header that we know.
    Other,
}

impl Message {
    /// The message in these octets, and those that follow by reference.
    pub(super) fn parse(octets: &[u8], rest: &[Bytes]) -> Self {
        let len = octets.len() + gather_len(rest);
        let Ok((header, stream)) = Header::parse(octets) else {
            return Self {
                xid: 0,
                credits: 0,
                kind: Kind::Other,
                len,
            };
        };
        let (xid, credits) = (header.xid, header.credits);
        let kind = match header.body {
            Body::Msg(lists) => {
                let stream = octets[stream..].iter().chain(rest.iter().flatten());
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
            xid,
            credits,
            kind,
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
