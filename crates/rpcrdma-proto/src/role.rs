//! The role of an end, and the direction of messages.

use crate::codec::Rpc;
use crate::wire::direction::Direction;

/// Role of an end of a connection. It decides how to take a message that does not tell whether it
/// is a call or a reply (RFC 8167 §4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The end that connected, and calls.
    Client,
    /// The end that accepted, and answers.
    Server,
}

impl Role {
    /// Returns the direction of a message with this header.
    ///
    /// Mostly the message tells (RFC 8167 §4.1). If not, the usual traffic decides: a client
    /// receives replies, a server calls. A long message without a Position-Zero Read chunk is not a
    /// valid call, so if this end waits for a reply with its XID, it must not be answered with an
    /// error.
    pub(crate) fn direction_of(self, rpc: &Rpc, awaited: impl Fn() -> bool) -> Direction {
        match rpc.direction {
            None if rpc.long && awaited() => Direction::Reply,
            told => self.direction_of_inline(told),
        }
    }

    /// Returns the direction of a message that is in its Send, and may tell.
    pub(crate) fn direction_of_inline(self, told: Option<Direction>) -> Direction {
        told.unwrap_or(match self {
            Self::Client => Direction::Reply,
            Self::Server => Direction::Call,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Body, Codec};
    use crate::wire::codec::VersionOne;
    use crate::wire::direction::{CALL, REPLY};
    use crate::wire::header::{Lists, ReadChunk, Segments, WriteChunk, emit, procedure};
    use buffer::Buffer;
    use verbs::{Handle, Segment};

    fn of(role: Role, proc: u32, lists: &Lists, stream: &[u8], awaited: bool) -> Direction {
        let mut message = Buffer::default();
        emit(&mut message, proc, 5, 1, lists);
        message.extend_from_slice(stream);
        let header = VersionOne.parse(&message).expect("a valid header");
        let Body::Rpc(rpc) = header.body else {
            panic!("an RPC message");
        };
        role.direction_of(&rpc, || awaited)
    }

    fn stream(direction: u32) -> Vec<u8> {
        [5, direction].map(u32::to_be_bytes).concat()
    }

    #[test]
    fn rpc_message_says_its_direction_at_both_ends() {
        for role in [Role::Client, Role::Server] {
            let of = |stream: &[u8]| of(role, procedure::MSG, &Lists::default(), stream, false);
            assert_eq!(of(&stream(CALL)), Direction::Call);
            assert_eq!(of(&stream(REPLY)), Direction::Reply);
        }
    }

    #[test]
    fn what_says_nothing_is_what_this_end_mostly_gets() {
        for bytes in [&stream(2)[..], &[0, 0, 0, 5], &[]] {
            let of = |role| of(role, procedure::MSG, &Lists::default(), bytes, true);
            assert_eq!(of(Role::Client), Direction::Reply);
            assert_eq!(of(Role::Server), Direction::Call);
        }
    }

    #[test]
    fn long_message_says_its_direction_by_its_chunks() {
        let segment = Segment {
            handle: Handle(1),
            length: 4,
            offset: 0,
        };
        let read_at = |positions: &[u32]| Lists {
            reads: positions
                .iter()
                .map(|&position| ReadChunk {
                    position,
                    segments: Segments::from_elem(segment, 1),
                })
                .collect(),
            ..Lists::default()
        };
        let reply = Lists {
            reply: Some(WriteChunk::default()),
            ..Lists::default()
        };
        let of = |role, lists: &Lists, awaited| of(role, procedure::NOMSG, lists, &[], awaited);
        for role in [Role::Client, Role::Server] {
            for awaited in [true, false] {
                assert_eq!(of(role, &read_at(&[0]), awaited), Direction::Call);
                assert_eq!(of(role, &read_at(&[4, 0]), awaited), Direction::Call);
            }
            assert_eq!(of(role, &reply, true), Direction::Reply);
        }
        assert_eq!(of(Role::Client, &reply, false), Direction::Reply);
        assert_eq!(of(Role::Server, &reply, false), Direction::Call);
        assert_eq!(of(Role::Server, &read_at(&[4]), false), Direction::Call);
    }
}
