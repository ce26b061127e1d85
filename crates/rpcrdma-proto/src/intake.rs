//! What comes in on a connection, and for whom it is.

use crate::connection::{Connection, Role};
use crate::direction::Direction;
use crate::header::{Body, Disposition, Header, HeaderError, HeaderView, RdmaError};
use crate::layout::{Layout, Owed, Rejection};
use crate::link::Violation;
use crate::message::{self, REPLY};
use crate::negotiation::Phase;
use crate::owner::Owner;
use crate::requester::refuse_invalidation;
use crate::responder::{NewCall, stream_of_call};
use crate::v2::header::{self as two, ChunkLists, Invalidate, WordLayout};
use crate::version::{Refusal, Version};
use buffer::Buffer;
use oncrpc::TransportError;
use tracing::debug;
use verbs::Invalidated;

impl<O: Owner> Connection<O> {
    /// A message has come, with the handle that the peer took along.
    pub(crate) fn take_message(&mut self, message: Buffer, invalidated: Option<Invalidated>) {
        match self.phase {
            Phase::Settled => self.take_spoken(message, invalidated),
            Phase::Listening => self.take_first(message, invalidated),
            Phase::Offered { xid } => self.take_answer(xid, &message, invalidated),
        }
        if let Some(session) = self.session.as_deref_mut() {
            session.handle_heard();
        }
    }

    /// A message in the version of this connection, or so it should be.
    fn take_spoken(&mut self, message: Buffer, invalidated: Option<Invalidated>) {
        match self.link.layout {
            Layout::One => self.take_one(message, invalidated),
            Layout::Two(words) => self.take_two(words, message, invalidated),
        }
    }

    /// The first valid header that is not one of a reply says what the client speaks (cel-01 §5.1,
    /// §5.3).
    fn take_first(&mut self, message: Buffer, invalidated: Option<Invalidated>) {
        let version = HeaderView::new(&message).map_or(0, HeaderView::version);
        self.link.layout = self.versions.layout(version);
        let valid = match self.link.layout {
            Layout::One => Header::parse(&message)
                .is_ok_and(|(header, _)| matches!(header.body, Body::Msg(_) | Body::NoMsg(_))),
            Layout::Two(words) => two::Header::parse(&message, words)
                .is_ok_and(|(header, _)| header.direction() == Direction::Call),
        };
        if valid {
            let version = match self.link.layout {
                Layout::One => Version::One,
                Layout::Two(_) => Version::Two,
            };
            self.settle(version);
        }
        self.take_spoken(message, invalidated);
    }

    /// From now on `version` is spoken.
    pub(crate) fn settle(&mut self, version: Version) {
        debug!(?version, "settled (cel-01 §5)");
        self.phase = Phase::Settled;
        self.requester.set_settled(true);
        match version {
            Version::One => {
                self.link.layout = Layout::One;
                self.session = None;
            }
            Version::Two => self.begin_session(),
        }
    }

    /// Something has come for a client that awaits the answer to its offer, `xid`.
    fn take_answer(&mut self, offer: u32, message: &Buffer, invalidated: Option<Invalidated>) {
        refuse_invalidation(&mut self.link, invalidated);
        match Answer::of(offer, message) {
            Answer::None => return self.link.counters.discarded += 1,
            Answer::Optional {
                credits,
                optional,
                stream,
            } => self.take_optional(offer, credits, &optional, &message[stream..]),
            Answer::Error(error) => {
                self.take_control_error(offer, error);
            }
            Answer::Unreadable => self.take_unreadable_reply(offer),
            Answer::Versions { low, high } => {
                let one = Version::One;
                if self.versions.speak(one) && (low..=high).contains(&one.number()) {
                    // On this very connection (cel-01 §5.2).
                    self.settle(one);
                } else {
                    self.link.fail(Violation::NoCommonVersion { low, high });
                }
                return;
            }
            Answer::Nonsense => return self.link.fail(Violation::OfferNotUnderstood),
        }
        if !self.is_exchanging() {
            self.settle(Version::Two);
        }
    }

    fn take_one(&mut self, message: Buffer, invalidated: Option<Invalidated>) {
        let link = &mut self.link;
        let (header, stream) = match Header::parse(&message) {
            Ok(parsed) => parsed,
            Err(error) => {
                refuse_invalidation(link, invalidated);
                let owed = self.owed_one(error, &message);
                return self.refuse(owed);
            }
        };
        if header.body == Body::Done {
            // RFC 8166 §4.6.2.
            refuse_invalidation(link, invalidated);
            link.counters.discarded += 1;
            return;
        }
        let awaited = || self.requester.awaits(header.xid);
        match Direction::of(self.role, &header, &message[stream..], awaited) {
            Direction::Reply => {
                let requester = &mut self.requester;
                requester.handle_reply(link, header, message, stream, invalidated);
            }
            Direction::Call => {
                refuse_invalidation(link, invalidated);
                self.take_call(header, Invalidate::Unsaid, message, stream);
            }
        }
    }

    fn take_two(&mut self, words: WordLayout, message: Buffer, invalidated: Option<Invalidated>) {
        let link = &mut self.link;
        let (header, stream) = match two::Header::parse(&message, words) {
            Ok(parsed) => parsed,
            Err(error) => {
                refuse_invalidation(link, invalidated);
                if let two::HeaderError::Malformed {
                    xid,
                    direction: Some(Direction::Reply),
                    ..
                } = error
                {
                    self.take_unreadable_reply(xid);
                }
                let owed = self.owed_two(error, &message);
                return self.refuse(owed);
            }
        };
        let two::Header { xid, credits, body } = header;
        let (direction, named, body) = match body {
            two::Body::Msg(chunks) => {
                let ChunkLists {
                    direction,
                    invalidate,
                    lists,
                } = chunks;
                (direction, invalidate, Body::Msg(lists))
            }
            two::Body::NoMsg(chunks) => {
                let ChunkLists {
                    direction,
                    invalidate,
                    lists,
                } = chunks;
                (direction, invalidate, Body::NoMsg(lists))
            }
            two::Body::Error(error) => {
                if self.take_control_error(xid, error) {
                    return refuse_invalidation(&mut self.link, invalidated);
                }
                let error = TransportError::Refused(why(error));
                let requester = &mut self.requester;
                requester.handle_refused(&mut self.link, xid, error, invalidated);
                // It may have been the last that the session waits for.
                return self.note_message(Direction::Reply, false);
            }
            two::Body::Optional(optional) => {
                refuse_invalidation(link, invalidated);
                return self.take_optional(xid, credits, &optional, &message[stream..]);
            }
        };
        let chunks = matches!(&body, Body::Msg(lists) | Body::NoMsg(lists) if !lists.is_empty());
        let header = Header { xid, credits, body };
        match direction {
            Direction::Reply => {
                let requester = &mut self.requester;
                requester.handle_reply(link, header, message, stream, invalidated);
            }
            Direction::Call => {
                refuse_invalidation(link, invalidated);
                // cel-01 §4.2.2: the word is the same as in the RPC message.
                let said = message::prefix(&message[stream..]);
                if matches!(header.body, Body::Msg(_)) && matches!(said, Some((_, REPLY))) {
                    debug!(xid, "a reply that says it is a call (cel-01 §4.2.2)");
                    return self.refuse(Owed::Error {
                        xid,
                        version: Version::Two.number(),
                        credits,
                        rejection: Rejection::Header,
                    });
                }
                self.take_call(header, named, message, stream);
            }
        }
        self.note_message(direction, chunks);
    }

    fn take_call(&mut self, header: Header, named: Invalidate, message: Buffer, stream: usize) {
        match (stream_of_call(&header, stream), header.body) {
            (Some(at), Body::Msg(lists) | Body::NoMsg(lists)) if self.responder.takes_calls() => {
                let call = NewCall {
                    xid: header.xid,
                    asked: header.credits,
                    lists,
                    named,
                    message,
                    at,
                };
                self.responder.handle_call(&mut self.link, call);
            }
            // Nobody here has said that calls are taken (RFC 8167 §6).
            _ => self.link.counters.discarded += 1,
        }
    }

    fn refuse(&mut self, owed: Owed) {
        self.responder.handle_invalid(&mut self.link, owed);
    }

    /// What the peer is owed for an invalid header. RFC 8166 §4.5: a Requester discards a reply,
    /// and a client has mostly replies. An error for a reply would be taken for the end of some
    /// call, so a server discards what may be a reply to a call of its own.
    fn owed_one(&self, error: HeaderError, message: &[u8]) -> Owed {
        match error.disposition() {
            Disposition::Discard => Owed::Nothing,
            Disposition::ErrVers { .. } => self.owed_for_version(message),
            Disposition::ErrChunk { xid, .. } if self.may_be_reply(xid) => Owed::Nothing,
            Disposition::ErrChunk { xid, credits } => Owed::Error {
                xid,
                version: Version::One.number(),
                credits,
                rejection: Rejection::Header,
            },
        }
    }

    /// The same in version two, whose headers say their direction. Where that cannot be read, it is
    /// as in version one.
    fn owed_two(&self, error: two::HeaderError, message: &[u8]) -> Owed {
        let unclear = error.direction().is_none();
        let (xid, credits, rejection) = match error.disposition() {
            two::Disposition::Discard => return Owed::Nothing,
            two::Disposition::ErrVers { .. } => return self.owed_for_version(message),
            two::Disposition::BadHeader { xid, credits } => (xid, credits, Rejection::Header),
            two::Disposition::InvalOption { xid, credits } => (xid, credits, Rejection::Operation),
        };
        if unclear && self.may_be_reply(xid) {
            return Owed::Nothing;
        }
        Owed::Error {
            xid,
            version: Version::Two.number(),
            credits,
            rejection,
        }
    }

    fn may_be_reply(&self, xid: u32) -> bool {
        self.role == Role::Client || self.requester.awaits(xid)
    }

    /// What is owed for a message of another version: what this end speaks, which is one version
    /// once that is settled.
    fn owed_for_version(&self, message: &[u8]) -> Owed {
        let Some(refusal) = Refusal::of(message, self.role, || false) else {
            return Owed::Nothing;
        };
        // Whatever it says of its direction, the peer may take an error for the end of its call.
        if self.requester.awaits(refusal.xid) {
            return Owed::Nothing;
        }
        let settled = self.version().map(|version| (version, version));
        let (low, high) = settled.unwrap_or(self.versions.range());
        Owed::Error {
            xid: refusal.xid,
            version: refusal.version,
            credits: refusal.credits,
            rejection: Rejection::Versions { low, high },
        }
    }
}

/// What is said to the offer of version two.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    /// This is no answer to it.
    None,
    /// An operation, so version two is spoken.
    Optional {
        credits: u32,
        optional: two::Optional,
        stream: usize,
    },
    /// An error of version two that does not say that this is not spoken.
    Error(two::RdmaError),
    /// A reply of version two that cannot be read.
    Unreadable,
    /// ERR_VERS: the peer speaks these.
    Versions { low: u32, high: u32 },
    /// An error of version one that does not say that this is spoken.
    Nonsense,
}

impl Answer {
    /// Of a message to whoever sent `offer`.
    fn of(offer: u32, message: &[u8]) -> Self {
        if HeaderView::new(message).is_none_or(|view| view.xid() != offer) {
            return Self::None;
        }
        match two::Header::parse(message, WordLayout::None) {
            Ok((header, stream)) => match header.body {
                two::Body::Error(two::RdmaError::Version { low, high }) => {
                    Self::Versions { low, high }
                }
                two::Body::Error(error) => Self::Error(error),
                two::Body::Optional(optional) if optional.direction == Direction::Reply => {
                    Self::Optional {
                        credits: header.credits,
                        optional,
                        stream,
                    }
                }
                two::Body::Msg(_) | two::Body::NoMsg(_) | two::Body::Optional(_) => Self::None,
            },
            Err(two::HeaderError::Malformed {
                direction: Some(Direction::Reply),
                ..
            }) => Self::Unreadable,
            // RFC 8166 §4.5.1 has the version echoed, but a peer that knows one version may say that.
            Err(_) => match Header::parse(message).map(|(header, _)| header.body) {
                Ok(Body::Error(RdmaError::Version { low, high })) => Self::Versions { low, high },
                Ok(Body::Error(RdmaError::Chunk)) => Self::Nonsense,
                Ok(Body::Msg(_) | Body::NoMsg(_) | Body::Done) | Err(_) => Self::None,
            },
        }
    }
}

/// An RDMA2_ERROR for a call, in words.
fn why(error: two::RdmaError) -> &'static str {
    match error {
        two::RdmaError::Version { .. } => {
            "it does not support version 2 of RPC-over-RDMA (RDMA2_ERR_VERS)"
        }
        two::RdmaError::BadHeader => {
            "it could not process the chunks, or the reply did not fit (RDMA2_ERR_BAD_HEADER)"
        }
        two::RdmaError::InvalOption => {
            "it took a call for an operation that it does not know (RDMA2_ERR_INVAL_OPTION)"
        }
    }
}
