//! The codec of version one.

use super::direction::{Direction, prefix};
use super::header::{self, Body, Disposition, Lists, RdmaError, procedure};
use crate::codec::{
    self, Codec, Contents, Invalid, Invalidate, PeerError, Plain, PlainHeader, Refused, Rejection,
};
use buffer::Buffer;

/// Version one (RFC 8166 §4).
#[derive(Clone, Copy, Debug)]
pub(crate) struct VersionOne;

impl Codec for VersionOne {
    fn version(&self) -> u32 {
        header::VERSION
    }

    fn plain_len(&self, _: Direction) -> usize {
        header::MIN_LEN
    }

    fn parse(&self, message: &[u8]) -> Result<codec::Header, Invalid> {
        let (header, stream) = header::Header::parse(message).map_err(invalid)?;
        let body = match header.body {
            Body::Msg(lists) => rpc(false, told(&message[stream..]), lists),
            Body::NoMsg(lists) => {
                // RFC 8166 §3.5.3: only a call has a Position-Zero Read chunk.
                let is_call = lists.reads.iter().any(|chunk| chunk.position == 0);
                rpc(true, is_call.then_some(Direction::Call), lists)
            }
            Body::Done => codec::Body::Done,
            Body::Error(error) => codec::Body::Error(refusal(error)),
        };
        Ok(codec::Header {
            xid: header.xid,
            credits: header.credits,
            stream,
            body,
        })
    }

    #[inline]
    fn parse_plain(&self, message: &[u8]) -> Option<PlainHeader> {
        let (xid, credits) = header::parse_plain(message)?;
        let stream = header::MIN_LEN;
        Some(PlainHeader {
            xid,
            credits,
            stream,
            direction: told(&message[stream..]),
        })
    }

    fn plain(&self, _: Direction, xid: u32, credits: u32) -> Plain {
        Plain::new(&header::plain(xid, credits))
    }

    fn emit(&self, out: &mut Buffer, xid: u32, credits: u32, contents: &Contents<'_>) {
        let proc = match contents.long {
            true => procedure::NOMSG,
            false => procedure::MSG,
        };
        header::emit(out, proc, xid, credits, contents.lists);
    }

    fn emit_error(&self, out: &mut Buffer, error: Refused) {
        let Refused {
            xid,
            version,
            credits,
            rejection,
        } = error;
        let error = match rejection {
            Rejection::Versions { low, high } => RdmaError::Version { low, high },
            Rejection::Header
            | Rejection::Chunks(_)
            | Rejection::ReplyTooLong { .. }
            | Rejection::ResultTooLong { .. } => RdmaError::Chunk,
            Rejection::Operation | Rejection::Ietf07(_) => {
                unreachable!("they are of version two")
            }
        };
        header::emit_error(out, xid, version, credits, error);
    }

    fn nothing_to_invalidate(&self) -> Invalidate {
        Invalidate::Unsaid
    }
}

fn rpc(long: bool, direction: Option<Direction>, lists: Lists) -> codec::Body {
    codec::Body::Rpc(codec::Rpc {
        long,
        direction,
        invalidate: Invalidate::Unsaid,
        lists,
    })
}

/// RFC 8167 §4.1: the RPC message says which way it goes.
fn told(stream: &[u8]) -> Option<Direction> {
    let (_, word) = prefix(stream)?;
    Direction::from_word(word)
}

fn refusal(error: RdmaError) -> PeerError {
    match error {
        RdmaError::Version { low, high } => PeerError {
            cause: Rejection::Versions { low, high },
            why: "it does not support version 1 of RPC-over-RDMA (ERR_VERS)",
        },
        RdmaError::Chunk => PeerError {
            cause: Rejection::Header,
            why: "it could not process the chunks, or the reply did not fit (ERR_CHUNK)",
        },
    }
}

fn invalid(error: header::HeaderError) -> Invalid {
    match error.disposition() {
        Disposition::Discard => Invalid::Nothing,
        Disposition::ErrVers { .. } => Invalid::OtherVersion,
        Disposition::ErrChunk { xid, credits } => Invalid::Malformed {
            refused: Refused {
                xid,
                version: header::VERSION,
                credits,
                rejection: Rejection::Header,
            },
            is_call: false,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::direction::{CALL, REPLY};
    use proptest::prelude::*;

    /// Bytes that are often a plain header with a stream, and often one in which little differs.
    fn nearly_plain() -> impl Strategy<Value = Vec<u8>> {
        let ends = (
            any::<u32>(),
            any::<u32>(),
            prop_oneof![Just(CALL), Just(REPLY), any::<u32>()],
        );
        let changes = prop::collection::vec((0..40_usize, any::<u8>()), 0..3);
        (ends, changes, 0..48_usize).prop_map(|((xid, credits, word), changes, len)| {
            let mut bytes = header::plain(xid, credits).to_vec();
            bytes.extend([xid, word, 2].map(u32::to_be_bytes).concat());
            for (at, byte) in changes {
                bytes[at] = byte;
            }
            bytes.truncate(len);
            bytes
        })
    }

    proptest! {
        #[test]
        fn plain_header_is_one_that_the_parser_of_all_finds_without_chunks(
            message in prop_oneof![nearly_plain(), prop::collection::vec(any::<u8>(), 0..64)],
        ) {
            let plain = |header: codec::Header| match header.body {
                codec::Body::Rpc(rpc) if !rpc.long && rpc.lists == Lists::default() => {
                    assert_eq!(rpc.invalidate, Invalidate::Unsaid);
                    Some(PlainHeader {
                        xid: header.xid,
                        credits: header.credits,
                        stream: header.stream,
                        direction: rpc.direction,
                    })
                }
                _ => None,
            };
            let expected = VersionOne.parse(&message).ok().and_then(plain);
            prop_assert_eq!(VersionOne.parse_plain(&message), expected);
        }
    }
}
