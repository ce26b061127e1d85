//! Which way a message goes. Both directions share a connection (RFC 8167).

use crate::connection::Role;
use crate::header::{Body, Header};
use crate::message::{self, CALL, REPLY};

/// Which way a message goes, as seen by whoever receives it.
///
/// In version one the RPC message says it, in version two the header (cel-01 §3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// It is for our Responder.
    Call,
    /// It is for our Requester.
    Reply,
}

impl Direction {
    /// From its word on the wire, `msg_type` (RFC 5531 §9).
    pub fn from_word(word: u32) -> Option<Self> {
        match word {
            CALL => Some(Self::Call),
            REPLY => Some(Self::Reply),
            _ => None,
        }
    }

    /// Its word on the wire.
    pub fn word(self) -> u32 {
        match self {
            Self::Call => CALL,
            Self::Reply => REPLY,
        }
    }

    /// The direction of a message that begins with a valid header, `stream` being what follows.
    ///
    /// The RPC message says it (RFC 8167 §4.1), or else its chunks do: only a call has a
    /// Position-Zero Read chunk. Where neither does, it depends on what this end mostly gets: a
    /// client replies, a server calls. `awaited` is whether we have a call with this XID.
    pub(crate) fn of(
        role: Role,
        header: &Header,
        stream: &[u8],
        awaited: impl Fn() -> bool,
    ) -> Self {
        let usual = match role {
            Role::Client => Self::Reply,
            Role::Server => Self::Call,
        };
        match &header.body {
            Body::Msg(_) => match message::prefix(stream) {
                Some((_, CALL)) => Self::Call,
                Some((_, REPLY)) => Self::Reply,
                Some(_) | None => usual,
            },
            Body::NoMsg(lists) => match lists.reads.first() {
                Some(chunk) if chunk.position == 0 => Self::Call,
                // It is no valid call. If it is none at all, it must not draw an error.
                Some(_) | None if awaited() => Self::Reply,
                Some(_) | None => usual,
            },
            // RFC 8166 §4.2.4: only a Responder sends errors.
            Body::Done | Body::Error(_) => Self::Reply,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::{Lists, RdmaError, ReadChunk, Segments, WriteChunk};

    fn header(body: Body) -> Header {
        Header {
            xid: 5,
            credits: 1,
            body,
        }
    }

    fn stream(direction: u32) -> Vec<u8> {
        [5, direction].map(u32::to_be_bytes).concat()
    }

    #[test]
    fn rpc_message_says_its_direction_at_both_ends() {
        let msg = header(Body::Msg(Lists::default()));
        for role in [Role::Client, Role::Server] {
            let of = |octets: &[u8]| Direction::of(role, &msg, octets, || false);
            assert_eq!(of(&stream(CALL)), Direction::Call);
            assert_eq!(of(&stream(REPLY)), Direction::Reply);
        }
    }

    #[test]
    fn what_says_nothing_is_what_this_end_mostly_gets() {
        let msg = header(Body::Msg(Lists::default()));
        for octets in [&stream(2)[..], &[0, 0, 0, 5], &[]] {
            let of = |role| Direction::of(role, &msg, octets, || false);
            assert_eq!(of(Role::Client), Direction::Reply);
            assert_eq!(of(Role::Server), Direction::Call);
        }
    }

    #[test]
    fn long_message_says_its_direction_by_its_chunks() {
        let read_at = |position| Lists {
            reads: vec![ReadChunk {
                position,
                segments: Segments::new(),
            }],
            ..Lists::default()
        };
        let reply = Lists {
            reply: Some(WriteChunk::default()),
            ..Lists::default()
        };
        let of = |role, lists: &Lists, awaited| {
            let header = header(Body::NoMsg(lists.clone()));
            Direction::of(role, &header, &[], || awaited)
        };
        for role in [Role::Client, Role::Server] {
            for awaited in [true, false] {
                assert_eq!(of(role, &read_at(0), awaited), Direction::Call);
            }
            assert_eq!(of(role, &reply, true), Direction::Reply);
        }
        assert_eq!(of(Role::Client, &reply, false), Direction::Reply);
        assert_eq!(of(Role::Server, &reply, false), Direction::Call);
        assert_eq!(of(Role::Server, &read_at(4), false), Direction::Call);
    }

    #[test]
    fn error_is_always_for_the_one_who_called() {
        let error = header(Body::Error(RdmaError::Chunk));
        for role in [Role::Client, Role::Server] {
            let of = Direction::of(role, &error, &[], || false);
            assert_eq!(of, Direction::Reply);
        }
    }
}
