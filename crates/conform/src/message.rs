//! RPC-over-RDMA messages of a peer: every field, checked for nothing but that it is there.
//!
//! The codec of `rpcrdma-proto` judges what it reads, and has limits of its own. Here a message is only taken apart, so
//! that a case can say which field breaks which rule.

use crate::header::procedure;
use crate::rpc;
use std::fmt;

/// A segment: handle, length and offset (RFC 8166 §3.4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) handle: u32,
    pub(crate) length: u32,
    pub(crate) offset: u64,
}

impl Segment {
    /// In words, as on the wire.
    pub(crate) fn words(self) -> [u32; 4] {
        let [high, low] = [self.offset >> 32, self.offset & 0xffff_ffff];
        let word = |half: u64| u32::try_from(half).expect("it is half of 64 bits");
        [self.handle, self.length, word(high), word(low)]
    }

    /// The part of it that begins so many octets further on, of this length.
    pub(crate) fn part(self, at: u32, length: u32) -> Self {
        Self {
            length,
            offset: self.offset.wrapping_add(at.into()),
            ..self
        }
    }
}

/// Segments of a chunk.
pub(crate) type Chunk = Vec<Segment>;

/// Octets of a chunk.
pub(crate) fn chunk_len(chunk: &[Segment]) -> u64 {
    chunk.iter().map(|segment| u64::from(segment.length)).sum()
}

/// A message, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) xid: u32,
    pub(crate) version: u32,
    pub(crate) credits: u32,
    pub(crate) body: Body,
    /// Octets behind the transport header.
    pub(crate) payload: Vec<u8>,
    /// Octets of the whole message.
    pub(crate) len: usize,
}

/// The part of a header that depends on `rdma_proc`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// RDMA_MSG or RDMA_NOMSG.
    Chunks(Lists),
    /// RDMA_ERROR: `rdma_err`, and the words behind it.
    Error { code: u32, rest: Vec<u32> },
    /// (Version two) RDMA2_OPTIONAL.
    Optional {
        direction: u32,
        operation: u32,
        info: Vec<u8>,
    },
    /// Another value of `rdma_proc`.
    Other(u32),
}

/// Chunk lists (RFC 8166 §4.3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lists {
    /// RDMA_NOMSG instead of RDMA_MSG.
    pub(crate) nomsg: bool,
    /// (Version two) The direction word.
    pub(crate) direction: Option<u32>,
    /// Segments of the Read list, with their Positions.
    pub(crate) reads: Vec<(u32, Segment)>,
    pub(crate) writes: Vec<Chunk>,
    pub(crate) reply: Option<Chunk>,
}

/// Octets that are read word by word.
pub(crate) struct Words<'a>(pub(crate) &'a [u8]);

impl Words<'_> {
    pub(crate) fn next(&mut self, what: &str) -> Result<u32, String> {
        match self.0.split_first_chunk() {
            Some((word, rest)) => {
                self.0 = rest;
                Ok(u32::from_be_bytes(*word))
            }
            None => Err(format!("the message ends before {what}")),
        }
    }

    fn segment(&mut self) -> Result<Segment, String> {
        let what = "the end of a segment";
        let [handle, length] = [self.next(what)?, self.next(what)?];
        let offset = u64::from(self.next(what)?) << 32 | u64::from(self.next(what)?);
        Ok(Segment {
            handle,
            length,
            offset,
        })
    }

    /// An item of optional data follows (RFC 4506 §4.19).
    pub(crate) fn follows(&mut self, what: &str) -> Result<bool, String> {
        match self.next(what)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(format!("{other:#x} is neither 0 nor 1 in {what}")),
        }
    }

    pub(crate) fn chunk(&mut self) -> Result<Chunk, String> {
        let count = self.next("the number of segments of a chunk")?;
        // A count from the peer allocates nothing: each segment is read first.
        (0..count).map(|_| self.segment()).collect()
    }

    /// Opaque data of variable length, with its roundup (RFC 4506 §4.10).
    pub(crate) fn opaque(&mut self, what: &str) -> Result<&[u8], String> {
        let length = self.next(what)? as usize;
        let (data, _) =
            (self.0.split_at_checked(length)).ok_or(format!("{what} ends too early"))?;
        self.0 = &self.0[length.next_multiple_of(4).min(self.0.len())..];
        Ok(data)
    }
}

impl Message {
    /// Takes a message apart.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let mut words = Words(bytes);
        let xid = words.next("rdma_xid")?;
        let version = words.next("rdma_vers")?;
        let credits = words.next("rdma_credit")?;
        let body = match words.next("rdma_proc")? {
            proc @ (procedure::MSG | procedure::NOMSG) => {
                Body::Chunks(Self::lists(&mut words, proc, version)?)
            }
            procedure::ERROR => {
                let code = words.next("rdma_err")?;
                let (rest, _) = words.0.as_chunks();
                let rest = rest.iter().copied().map(u32::from_be_bytes).collect();
                words.0 = &[];
                Body::Error { code, rest }
            }
            procedure::OPTIONAL if version == 2 => {
                let direction = words.next("the direction")?;
                let operation = words.next("rdma_opttype")?;
                let len = words.next("the length of rdma_optinfo")? as usize;
                let info = words.0.get(..len).ok_or("rdma_optinfo ends too early")?;
                words.0 = &words.0[len.next_multiple_of(4).min(words.0.len())..];
                Body::Optional {
                    direction,
                    operation,
                    info: info.to_vec(),
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

    fn lists(words: &mut Words<'_>, proc: u32, version: u32) -> Result<Lists, String> {
        let mut lists = Lists {
            nomsg: proc == procedure::NOMSG,
            ..Lists::default()
        };
        if version == 2 {
            lists.direction = Some(words.next("the direction")?);
        }
        while words.follows("the Read list")? {
            let position = words.next("a Position")?;
            lists.reads.push((position, words.segment()?));
        }
        while words.follows("the Write list")? {
            lists.writes.push(words.chunk()?);
        }
        if words.follows("the Reply chunk")? {
            lists.reply = Some(words.chunk()?);
        }
        Ok(lists)
    }

    /// The chunk lists, if it has them.
    pub(crate) fn lists_of(&self) -> Option<&Lists> {
        match &self.body {
            Body::Chunks(lists) => Some(lists),
            Body::Error { .. } | Body::Optional { .. } | Body::Other(_) => None,
        }
    }

    /// `rdma_err`, if it is an error.
    pub(crate) fn error(&self) -> Option<u32> {
        match self.body {
            Body::Error { code, .. } => Some(code),
            Body::Chunks(_) | Body::Optional { .. } | Body::Other(_) => None,
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match &self.body {
            Body::Chunks(lists) if lists.nomsg => "RDMA_NOMSG",
            Body::Chunks(_) => "RDMA_MSG",
            Body::Error { code: 1, .. } => "RDMA_ERROR ERR_VERS",
            Body::Error { code: 2, .. } => match self.version {
                2 => "RDMA2_ERROR BAD_HEADER",
                _ => "RDMA_ERROR ERR_CHUNK",
            },
            Body::Error { code: 3, .. } => "RDMA2_ERROR INVAL_OPTION",
            Body::Error { .. } => "RDMA_ERROR of an unknown kind",
            Body::Optional { operation, .. } => match operation {
                1 => "RDMA2_OPTIONAL INITXCH",
                2 => "RDMA2_OPTIONAL REQXCH",
                3 => "RDMA2_OPTIONAL RESPXCH",
                4 => "RDMA2_OPTIONAL UPDXCH",
                _ => "RDMA2_OPTIONAL of an unknown kind",
            },
            Body::Other(2) => "RDMA_MSGP",
            Body::Other(3) => "RDMA_DONE",
            Body::Other(_) => "unknown rdma_proc",
        };
        let (xid, version, credits) = (self.xid, self.version, self.credits);
        write!(
            f,
            "{name}, XID {xid:#010x}, version {version}, credits {credits}"
        )?;
        if let Some(lists) = self.lists_of() {
            let [reads, writes] = [lists.reads.len(), lists.writes.len()];
            if reads > 0 {
                write!(f, ", {reads} read segments")?;
            }
            if writes > 0 {
                write!(f, ", {writes} Write chunks")?;
            }
            if lists.reply.is_some() {
                write!(f, ", a Reply chunk")?;
            }
        }
        if let Body::Error { rest, .. } = &self.body
            && let [low, high] = rest[..]
        {
            write!(f, ", versions {low} to {high}")?;
        }
        if !self.payload.is_empty() {
            write!(f, "; {}", rpc::describe(&self.payload))?;
        }
        Ok(())
    }
}

/// A message in words, whatever it is.
pub(crate) fn describe(bytes: &[u8]) -> String {
    match Message::parse(bytes) {
        Ok(message) => message.to_string(),
        Err(why) => format!("{} octets that are no message: {why}", bytes.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words;

    #[test]
    fn every_field_is_read() {
        let message = [
            7, 1, 32, 0, 1, 44, 9, 8, 1, 2, 0, 1, 1, 5, 6, 0, 3, 0, 1, 0, 77,
        ];
        let parsed = Message::parse(&words(&message)).unwrap();
        let lists = parsed.lists_of().unwrap();
        let segment = Segment {
            handle: 9,
            length: 8,
            offset: 1 << 32 | 2,
        };
        assert_eq!(lists.reads, [(44, segment)]);
        assert_eq!(segment.words(), [9, 8, 1, 2]);
        assert_eq!(lists.writes[0][0].handle, 5);
        assert_eq!(lists.reply, Some(Vec::new()));
        assert_eq!(parsed.payload, words(&[77]));
    }

    #[test]
    fn message_that_ends_early_is_none() {
        let count = words(&[7, 1, 32, 0, 0, 1, u32::MAX]);
        assert!(Message::parse(&count).is_err());
        for len in 0..28 {
            assert!(Message::parse(&words(&[7, 1, 32, 0, 0, 0, 0])[..len]).is_err());
        }
        assert!(Message::parse(&words(&[7, 1, 32, 0, 2, 0, 0])).is_err());
    }
}
