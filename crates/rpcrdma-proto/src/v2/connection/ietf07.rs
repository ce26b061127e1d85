//! The parts of ietf-07 beyond calls and replies: properties, which each end sends once, messages in
//! several parts, and messages that carry nothing but credits.

use super::{Connection, Phase, unused_xid};
use crate::agreed::{Agreed, OurCalls, Sizes};
use crate::codec::{Body, Header, Invalid, PeerError, Refused, Rejection};
use crate::invalidation::design::Design;
use crate::invalidation::rule::{Accepts, Rule};
use crate::limits::{FIRST_MESSAGE, MAX_CONTINUED, MAX_SEGMENTS_PER_CHUNK};
use crate::owner::Owner;
use crate::plan::Chunks;
use crate::role::Role;
use crate::v2::characteristics::BackwardSupport;
use crate::v2::codec::codec;
use crate::v2::config::Config;
use crate::v2::dialect::Dialect;
use crate::v2::header::WordLayout;
use crate::v2::ietf07::{
    Properties, PropertySet, RdmaError, ReverseSupport, emit_grant, emit_properties, header_type,
};
use crate::v2::versions::Versions;
use crate::version::Version;
use crate::wire::direction::{CALL, Direction, REPLY, prefix};
use crate::wire::header::HeaderView;
use crate::wire::threshold::InlineThreshold;
use crate::work::Purpose;
use buffer::{Buffer, Gather, Pool};
use tracing::debug;
use verbs::{Invalidated, Limits, WorkRequest};

/// State of a connection beyond that of its roles.
#[derive(Debug)]
pub(super) struct Exchange {
    own: Properties,
    /// Whether this end takes part in remote invalidation.
    invalidates: bool,
    /// XID of the message with the own properties, once it was made.
    said: Option<u32>,
    /// Properties of the peer: the defaults, until it has said the last.
    peer: Properties,
    /// Properties that it has announced, until it has announced the last.
    saying: Properties,
    heard: Heard,
    /// The RPC message of which not all parts have come.
    arriving: Option<Arriving>,
    /// RPC messages that are refused, and whose parts are discarded up to the last (§7.1.4): the one
    /// that came between, and the one that it interrupted.
    refused: [Option<(Direction, u32)>; 2],
}

/// How much the peer has said of its properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Nothing,
    /// There is more to come (§6.3.3).
    Some,
    All,
}

/// An RPC message of which some parts are here.
#[derive(Debug)]
struct Arriving {
    direction: Direction,
    xid: u32,
    /// The Payload stream so far: copied together, because the roles take one buffer.
    stream: Buffer,
    /// Bytes that are still to come.
    remaining: usize,
}

/// A message does not continue the one before (§7.1.4).
struct NoContinuation;

impl Exchange {
    /// That of a new connection.
    pub(super) fn new(config: &Config, limits: &Limits) -> Self {
        let word = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        let said = &config.characteristics;
        let largest = said.largest_sent.max(config.largest_receive());
        let max_chunk = config.max_chunk.min(limits.max_region);
        let own = Properties {
            max_send: word(largest.bytes()),
            receive_buffer: word(config.receive_size()),
            max_segment_size: word(max_chunk),
            max_segments: word(MAX_SEGMENTS_PER_CHUNK),
            reverse: match (said.backward, config.backward_credits) {
                (_, 0) | (BackwardSupport::None, _) => ReverseSupport::None,
                // Chunks of a call have to be read.
                (BackwardSupport::General, _) if limits.outstanding_reads > 0 => {
                    ReverseSupport::General
                }
                (BackwardSupport::Inline | BackwardSupport::General, _) => {
                    ReverseSupport::Continued
                }
            },
            host_auth: None,
        };
        // §6.5 has nothing to agree on, so each end does what it is configured for: a Requester names no
        // handle, or a Responder takes none along.
        let invalidates = config.own.remote_invalidation
            || said.remote_invalidation_by_version
            || !said.designs.is_empty();
        Self {
            own,
            invalidates,
            said: None,
            peer: Properties::default(),
            saying: Properties::default(),
            heard: Heard::Nothing,
            arriving: None,
            refused: [None; 2],
        }
    }

    /// Returns the size of this end's Receives that it announces, in bytes.
    pub(super) fn receive_size(&self) -> usize {
        self.own.receive_buffer as usize
    }

    /// Returns the properties of the peer, once it has said them.
    pub(super) fn peer(&self) -> Option<&Properties> {
        (self.heard == Heard::All).then_some(&self.peer)
    }

    /// Takes properties of the peer. Each message adds some; they count when all are said.
    fn take_properties(&mut self, last: bool, set: PropertySet) -> Result<(), NoContinuation> {
        if self.heard == Heard::All || self.arriving.is_some() {
            return Err(NoContinuation);
        }
        self.saying.apply(set);
        self.heard = Heard::Some;
        if last {
            self.heard = Heard::All;
            self.peer = std::mem::take(&mut self.saying);
        }
        Ok(())
    }

    /// Takes a part that is not the last. What the draft leaves open of parts is decided for the
    /// strictest reading: none is empty, and what remains is what comes.
    fn take_part(
        &mut self,
        (direction, xid): (Direction, u32),
        part: &[u8],
        remaining: usize,
        pool: &Pool,
    ) -> Result<(), NoContinuation> {
        if self.heard == Heard::Some || part.is_empty() || remaining == 0 {
            return Err(NoContinuation);
        }
        match &mut self.arriving {
            None => {
                let len = part.len().saturating_add(remaining);
                if len > MAX_CONTINUED {
                    return Err(NoContinuation);
                }
                let mut stream = pool.take(len);
                stream.extend_from_slice(part);
                self.arriving = Some(Arriving {
                    direction,
                    xid,
                    stream,
                    remaining,
                });
            }
            Some(arriving) => {
                let follows = (arriving.direction, arriving.xid) == (direction, xid)
                    && part.len().saturating_add(remaining) == arriving.remaining;
                if !follows {
                    return Err(NoContinuation);
                }
                arriving.stream.extend_from_slice(part);
                arriving.remaining = remaining;
            }
        }
        Ok(())
    }

    /// Takes the last part of an RPC message, or a whole one: returns the stream that was put
    /// together, or `None` for a whole message.
    fn take_last(
        &mut self,
        (direction, xid): (Direction, u32),
        part: &[u8],
        is_long: bool,
    ) -> Result<Option<Buffer>, NoContinuation> {
        if self.heard == Heard::Some {
            return Err(NoContinuation);
        }
        let Some(mut arriving) = self.arriving.take() else {
            return Ok(None);
        };
        let follows = (arriving.direction, arriving.xid) == (direction, xid)
            && !is_long
            && part.len() == arriving.remaining;
        if !follows {
            self.arriving = Some(arriving);
            return Err(NoContinuation);
        }
        arriving.stream.extend_from_slice(part);
        Ok(Some(arriving.stream))
    }

    /// Handles a message that could not be read: it may have been the last of several.
    fn handle_unreadable(&mut self, message: &[u8]) {
        let Some(view) = HeaderView::new(message) else {
            return;
        };
        match view.procedure() {
            header_type::CONNPROP_MIDDLE | header_type::CONNPROP_FINAL => {
                // None of it counts, nor what was said before (§7.2.2).
                if self.heard == Heard::Some {
                    self.heard = Heard::Nothing;
                }
                self.saying = Properties::default();
            }
            _ => {
                self.arriving.take_if(|arriving| arriving.xid == view.xid());
            }
        }
    }

    /// Whether further parts of an RPC message are discarded.
    fn discards_parts_of(&self, message: (Direction, u32)) -> bool {
        self.refused.contains(&Some(message))
    }

    /// Whether a whole message is the last of what was refused, and not a new one with its XID.
    fn is_refused(&mut self, message: (Direction, u32), stream: &[u8]) -> bool {
        if !self.discards_parts_of(message) || self.arriving.is_some() {
            return false;
        }
        for refused in &mut self.refused {
            refused.take_if(|refused| *refused == message);
        }
        let (direction, xid) = message;
        prefix(stream) != Some((xid, direction.word()))
    }

    /// Ends what was not continued, and what came between: the parts of both are discarded up to the
    /// last. Returns the RPC message that is given up for another.
    fn end_arriving(
        &mut self,
        refused: (Direction, u32),
        was_last: bool,
    ) -> Option<(Direction, u32)> {
        let open = self.arriving.take();
        let open = open.map(|arriving| (arriving.direction, arriving.xid));
        let other = open.filter(|open| *open != refused);
        self.refused = [other, (!was_last).then_some(refused)];
        other
    }
}

impl<O: Owner> Connection<O> {
    /// Sends the own properties: the first message of either end, and all of them in one.
    pub(super) fn say_properties(&mut self) {
        let Some(exchange) = self.exchange.as_deref_mut() else {
            return;
        };
        let xid = unused_xid(&self.xids, &self.core.requester);
        exchange.said = Some(xid);
        let Properties {
            max_send,
            receive_buffer,
            max_segment_size,
            max_segments,
            reverse,
            ..
        } = exchange.own;
        let set = PropertySet {
            max_send: Some(max_send),
            receive_buffer: Some(receive_buffer),
            max_segment_size: Some(max_segment_size),
            max_segments: Some(max_segments),
            // §5.2.5: a server has no support to announce.
            reverse: (self.core.role() == Role::Client).then_some(reverse),
            host_auth: None,
        };
        let shared = &mut self.core.shared;
        let mut buffer = shared.pool.take(FIRST_MESSAGE);
        emit_properties(&mut buffer, xid, 0, true, &set);
        shared.counters.control_sent += 1;
        shared.posts.push(send(Purpose::Control, buffer));
        if let Phase::Offered { xid: offer } = &mut self.phase {
            *offer = xid;
        }
    }

    /// Returns a message that carries nothing but credits, if one is due. It goes before the
    /// messages that wait, because the peer may wait for it.
    pub(super) fn poll_grant(&mut self) -> Option<WorkRequest> {
        if self.phase != Phase::Settled {
            return None;
        }
        let window = self.core.poll_grant()?;
        let shared = &mut self.core.shared;
        let mut buffer = shared.pool.take(FIRST_MESSAGE);
        emit_grant(&mut buffer, 0);
        let messages = shared.flow.messages().expect("one was due");
        messages.stamp_grant(&mut buffer, window);
        shared.counters.control_sent += 1;
        Some(send(Purpose::Grant, buffer))
    }

    /// Passes a message to a role, unless it is for none.
    pub(super) fn route_ietf07(
        &mut self,
        header: Result<Header, Invalid>,
        message: Buffer,
        invalidated: Option<Invalidated>,
    ) {
        self.take_credits(&message);
        let shared = &mut self.core.shared;
        let Some(exchange) = self.exchange.as_deref_mut() else {
            return;
        };
        let header = match header {
            Ok(header) => header,
            Err(Invalid::Reply { xid }) => {
                exchange.handle_unreadable(&message);
                shared.refuse_invalidation(invalidated);
                shared.counters.discarded += 1;
                return self.fail_call(xid, "its reply could not be read");
            }
            invalid => {
                exchange.handle_unreadable(&message);
                return self.core.route(invalid, message, invalidated);
            }
        };
        let (xid, stream) = (header.xid, header.stream);
        let (direction, taken, was_last) = match header.body {
            Body::Grant => {
                shared.counters.control_received += 1;
                return shared.refuse_invalidation(invalidated);
            }
            Body::Error(_) if exchange.said == Some(xid) && !self.core.requester.awaits(xid) => {
                debug!("the peer did not take the properties (ietf-07 §7.2.2)");
                shared.counters.control_received += 1;
                return shared.refuse_invalidation(invalidated);
            }
            Body::Properties { last, set } => {
                shared.counters.control_received += 1;
                let taken = exchange.take_properties(last, *set);
                if taken.is_ok() {
                    shared.refuse_invalidation(invalidated);
                    return self.agree_ietf07();
                }
                (Direction::Call, taken, true)
            }
            Body::Part {
                direction,
                remaining,
            } => {
                if exchange.discards_parts_of((direction, xid)) {
                    shared.counters.discarded += 1;
                    return shared.refuse_invalidation(invalidated);
                }
                let part = &message[stream..];
                let taken = exchange.take_part((direction, xid), part, remaining, &shared.pool);
                if taken.is_ok() {
                    shared.counters.parts_received += 1;
                    return shared.refuse_invalidation(invalidated);
                }
                (direction, taken, false)
            }
            Body::Rpc(ref rpc) => {
                let direction = rpc.direction.unwrap_or(Direction::Call);
                if exchange.is_refused((direction, xid), &message[stream..]) {
                    shared.counters.discarded += 1;
                    return shared.refuse_invalidation(invalidated);
                }
                let (long, part) = (rpc.long, &message[stream..]);
                match exchange.take_last((direction, xid), part, long) {
                    Ok(whole) => {
                        let (stream, message) = match whole {
                            Some(whole) => {
                                shared.counters.parts_received += 1;
                                (0, whole)
                            }
                            None => (stream, message),
                        };
                        let header = Header { stream, ..header };
                        return self.route_whole(header, (direction, long), message, invalidated);
                    }
                    Err(error) => (direction, Err(error), true),
                }
            }
            Body::Error(_) | Body::Control(_) | Body::Done => {
                return self.core.route(Ok(header), message, invalidated);
            }
        };
        if let Err(NoContinuation) = taken {
            shared.refuse_invalidation(invalidated);
            let given_up = exchange.end_arriving((direction, xid), was_last);
            debug!(
                xid,
                "a message that does not continue the one before (ietf-07 §7.1.4)"
            );
            for (direction, xid) in std::iter::once((direction, xid)).chain(given_up) {
                match direction {
                    Direction::Call => self.refuse_call(xid, RdmaError::InvalCont),
                    Direction::Reply => {
                        self.fail_call(xid, "the parts of its reply do not follow each other");
                    }
                }
            }
        }
    }

    /// Passes a whole RPC message to its role.
    fn route_whole(
        &mut self,
        header: Header,
        (direction, long): (Direction, bool),
        message: Buffer,
        invalidated: Option<Invalidated>,
    ) {
        let said = prefix(&message[header.stream..]);
        let other = match direction {
            Direction::Call => REPLY,
            Direction::Reply => CALL,
        };
        // The header type says the direction, as the RPC message does (§6.1).
        if !long && said.is_some_and(|(_, word)| word == other) {
            self.core.shared.refuse_invalidation(invalidated);
            return match direction {
                Direction::Call => self.refuse_call(header.xid, RdmaError::BadXdr),
                Direction::Reply => self.fail_call(header.xid, "its reply is a call"),
            };
        }
        self.core.route(Ok(header), message, invalidated);
    }

    /// Answers a message that is not processed with an error.
    fn refuse_call(&mut self, xid: u32, error: RdmaError) {
        let refused = Refused {
            xid,
            version: Version::Two.number(),
            credits: 0,
            rejection: Rejection::Ietf07(error),
        };
        let is_call = true;
        let invalid = Invalid::Malformed { refused, is_call };
        self.core.route(Err(invalid), Buffer::default(), None);
    }

    /// Ends a call of this end whose reply is not valid. Nobody is answered: the XID is one of this
    /// end.
    fn fail_call(&mut self, xid: u32, why: &'static str) {
        let error = PeerError {
            cause: Rejection::Header,
            why,
        };
        let (requester, shared) = (&mut self.core.requester, &mut self.core.shared);
        if requester.awaits(xid) {
            requester.handle_refused(shared, xid, error, None);
        }
    }

    /// Takes the credits in a message of the peer, which may be the only thing in it that is valid: they
    /// are in the prefix, which has one form for all header types (§4.2.1). In another version the word
    /// has another meaning (§4.3).
    pub(super) fn take_credits(&mut self, message: &[u8]) {
        let view = HeaderView::new(message).filter(|view| view.version() == Version::Two.number());
        if let (Some(view), Some(messages)) = (view, self.core.shared.flow.messages()) {
            messages.handle_credits(view.credits());
        }
    }

    /// Applies what both ends have said of themselves.
    pub(super) fn agree_ietf07(&mut self) {
        if let Some(exchange) = self.exchange.as_deref() {
            let agreed = self.agreed_ietf07(exchange);
            self.core.agree(agreed);
        }
    }

    fn agreed_ietf07(&self, exchange: &Exchange) -> Agreed {
        let Exchange { own, peer, .. } = exchange;
        let bytes = |own: u32, peer: u32| {
            // §4.2.2 has no least size; that of version one is the least that is of any use.
            (own.min(peer) as usize).max(InlineThreshold::MIN.bytes())
        };
        let (our_calls, peer_chunks, calls_in_parts) = match self.core.role() {
            Role::Client => {
                let peer_chunks = match own.reverse {
                    ReverseSupport::General => Chunks::Allowed,
                    ReverseSupport::None | ReverseSupport::Simple | ReverseSupport::Continued => {
                        Chunks::Refused
                    }
                };
                (OurCalls::Sent(Chunks::Allowed), peer_chunks, true)
            }
            Role::Server => match peer.reverse {
                ReverseSupport::None => {
                    let why = "the peer takes no calls (RDMA2_RVRSDIR_NONE, ietf-07 §5.2.5)";
                    (OurCalls::Never(why), Chunks::Allowed, false)
                }
                ReverseSupport::Simple => (OurCalls::Sent(Chunks::Refused), Chunks::Allowed, false),
                ReverseSupport::Continued => {
                    (OurCalls::Sent(Chunks::Refused), Chunks::Allowed, true)
                }
                ReverseSupport::General => (OurCalls::Sent(Chunks::Allowed), Chunks::Allowed, true),
            },
        };
        let send = bytes(own.max_send, peer.receive_buffer);
        Agreed {
            codec: codec(Dialect::Ietf07, WordLayout::None),
            versions: (Version::Two, Version::Two),
            mismatch: (self.versions == Versions::Auto).then_some(Version::One),
            sizes: Sizes {
                send,
                last_resort: send,
                largest_sent: own.max_send as usize,
                reply: bytes(own.receive_buffer, peer.max_send),
                receive: own.receive_buffer as usize,
                continued: MAX_CONTINUED,
                continued_calls: if calls_in_parts { MAX_CONTINUED } else { 0 },
                peer_segments: peer.max_segments as usize,
                peer_segment: (peer.max_segment_size as usize).max(1),
            },
            our_calls,
            peer_chunks,
            // §6.5: the call names the handle.
            rule: match exchange.invalidates {
                true => Rule::By(Design::PerCall),
                false => Rule::Never,
            },
            accepts: match exchange.invalidates {
                true => Accepts::OfCall,
                false => Accepts::Nothing,
            },
            peer_announces: true,
        }
    }
}

fn send(purpose: Purpose, buffer: Buffer) -> WorkRequest {
    WorkRequest::Send {
        wr: purpose.wr(),
        buffer,
        rest: Gather::new(),
        invalidate: None,
    }
}
