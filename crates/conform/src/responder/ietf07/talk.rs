//! A connection of ietf-07: credits of both ends, and answers in one message or in several.

use crate::bed::{Bed, accepted};
use crate::ietf07::{Body, Message, describe, error, grant, htype, message, properties, property};
use crate::link::{Heard, Link};
use crate::message::{Chunk, Segment, chunk_len};
use crate::verdict::{Tested, ensure, fail, skip};
use crate::words;
use std::time::Duration;

/// Messages that the Responder may send beyond those that came.
const WINDOW: u32 = 64;

/// Octets of the largest messages that are sent and taken without properties (§4.2.2).
pub(super) const DEFAULT_SIZE: usize = 4096;

/// Most octets of a reply in parts that are put together.
const MAX_REPLY: usize = 1 << 20;

/// Most messages that are let pass before an answer.
const MAX_ASIDE: usize = 1000;

/// Longest wait for what must not come.
const QUIET: Duration = Duration::from_millis(150);

/// One end of a connection.
pub(super) struct Talk {
    pub(super) link: Link,
    /// Messages that were sent and that came.
    sent: u32,
    received: u32,
    /// `rdma_credit` of the last message that came.
    credits: u32,
    /// Properties that the Responder has sent, and whether those were the last.
    pub(super) said: Vec<(u32, Vec<u8>)>,
    pub(super) said_all: bool,
    /// Octets of the longest message with properties.
    pub(super) longest_said: usize,
    /// Messages with nothing but credits.
    pub(super) grants: u32,
    /// Whether the Responder may send beyond what was sent to it.
    pub(super) granting: bool,
}

/// The answer to a message.
pub(super) struct Answer {
    pub(super) message: Message,
    pub(super) invalidated: Option<u32>,
}

/// A whole reply, with the parts that it came in.
pub(super) struct Reply {
    pub(super) xid: u32,
    pub(super) stream: Vec<u8>,
    pub(super) writes: Vec<Chunk>,
    /// The Reply chunk, if the stream was in it.
    pub(super) chunk: Option<Chunk>,
    /// Octets of the stream, and `rdma_remaining`, in each part but the last.
    pub(super) parts: Vec<(usize, u32)>,
    /// Octets of its longest message.
    pub(super) longest: usize,
    pub(super) invalidated: Option<u32>,
}

impl Reply {
    /// The `accept_stat` of the RPC reply.
    pub(super) fn accepted(&self) -> Tested<u32> {
        accepted(&self.stream, self.xid)
    }
}

impl Talk {
    pub(super) fn over(link: Link) -> Self {
        Self {
            link: link.described_by(describe),
            sent: 0,
            received: 0,
            // §4.2.1.
            credits: 1,
            said: Vec::new(),
            said_all: false,
            longest_said: 0,
            grants: 0,
            granting: true,
        }
    }

    /// Messages that may be sent. A credit word that is behind what was sent is none.
    pub(super) fn may_send(&self) -> u32 {
        let left = self.credits.wrapping_sub(self.sent);
        if left < 1 << 31 { left } else { 0 }
    }

    /// Sends a message when there is a credit for it, with the credits of this end in it.
    pub(super) fn send(&mut self, message: &[u32]) -> Tested {
        self.send_octets(&words(message))
    }

    /// The same of octets, which may be too few for credits.
    pub(super) fn send_octets(&mut self, message: &[u8]) -> Tested {
        let mut aside = 0;
        while self.may_send() == 0 {
            let (message, _) = self.next()?;
            ensure(is_own_affair(&message), || {
                format!("a message that nobody asked for: {message}")
            })?;
            aside += 1;
            ensure(aside < MAX_ASIDE, || {
                "grants come without an end".to_owned()
            })?;
        }
        self.force(message)
    }

    /// The same without looking whether there is a credit.
    pub(super) fn force(&mut self, message: &[u8]) -> Tested {
        let mut message = message.to_vec();
        let credits = match self.granting {
            true => self.received.wrapping_add(WINDOW),
            false => self.received.wrapping_sub(1),
        };
        if let Some(word) = message.get_mut(8..12) {
            word.copy_from_slice(&credits.to_be_bytes());
        }
        self.sent = self.sent.wrapping_add(1);
        self.link.send(&message)
    }

    /// The next message, which there must be.
    pub(super) fn next(&mut self) -> Tested<(Message, Option<u32>)> {
        let (bytes, invalidated) = self.link.message()?;
        Ok((self.take(&bytes)?, invalidated))
    }

    /// Takes in a message of the Responder.
    fn take(&mut self, bytes: &[u8]) -> Tested<Message> {
        self.received = self.received.wrapping_add(1);
        let message = match Message::parse(bytes) {
            Ok(message) => message,
            Err(why) => return fail(format!("it sends what is no message: {why}")),
        };
        self.credits = message.credits;
        match &message.body {
            Body::Grant => self.grants += 1,
            Body::Properties { last, values } => {
                ensure(!self.said_all, || {
                    format!("properties come after the last ones (§6.3.4): {message}")
                })?;
                self.said.extend(values.iter().cloned());
                self.said_all = *last;
                self.longest_said = self.longest_said.max(message.len);
            }
            _ => {}
        }
        Ok(message)
    }

    /// The next message that is not about the Responder itself.
    pub(super) fn hear(&mut self) -> Tested<Answer> {
        for _ in 0..MAX_ASIDE {
            let (message, invalidated) = self.next()?;
            if !is_own_affair(&message) {
                return Ok(Answer {
                    message,
                    invalidated,
                });
            }
            ensure(invalidated.is_none(), || {
                "a message without a reply invalidates a handle (§6.5)".to_owned()
            })?;
        }
        fail("grants and properties come without an end")
    }

    /// Nothing comes but what is about the Responder itself.
    pub(super) fn stays_silent(&mut self) -> Tested {
        for _ in 0..MAX_ASIDE {
            match self.link.hear_within(QUIET) {
                Heard::Silence => return Ok(()),
                Heard::End(why) => return fail(format!("the connection ended: {why}")),
                Heard::Message { bytes, .. } => {
                    let message = self.take(&bytes)?;
                    ensure(is_own_affair(&message), || {
                        format!("it is answered: {message}")
                    })?;
                }
            }
        }
        fail("grants and properties come without an end")
    }

    /// Sends a message, and returns what answers it, which must have its XID.
    pub(super) fn ask(&mut self, message: &[u32]) -> Tested<Answer> {
        self.send(message)?;
        let answer = self.hear()?;
        let found = answer.message.xid;
        ensure(found == message[0], || {
            format!("a message with XID {found:#010x} that nobody asked for")
        })?;
        Ok(answer)
    }

    /// Sends a message, which must draw RDMA2_ERROR with one of these codes. Returns what is behind the code.
    pub(super) fn refused(&mut self, message: &[u32], expected: &[u32]) -> Tested<Vec<u32>> {
        let answer = self.ask(message)?;
        is_error(&answer, expected)
    }

    /// The reply to a call that was sent, whole.
    pub(super) fn reply(&mut self, xid: u32, chunk: Option<Segment>) -> Tested<Reply> {
        let mut reply = Reply {
            xid,
            stream: Vec::new(),
            writes: Vec::new(),
            chunk: None,
            parts: Vec::new(),
            longest: 0,
            invalidated: None,
        };
        loop {
            let Answer {
                message,
                invalidated,
            } = self.hear()?;
            let found = message.xid;
            ensure(found == xid, || {
                format!("a message with XID {found:#010x} comes, and not a part of the reply")
            })?;
            reply.longest = reply.longest.max(message.len);
            ensure(reply.invalidated.is_none(), || {
                "a part of a reply that is not its last invalidates a handle".to_owned()
            })?;
            reply.invalidated = invalidated;
            match message.body {
                Body::Part { remaining } => {
                    reply.parts.push((message.payload.len(), remaining));
                    reply.stream.extend(&message.payload);
                    ensure(reply.stream.len() <= MAX_REPLY, || {
                        "the parts of a reply have no end".to_owned()
                    })?;
                }
                Body::Reply {
                    external: false,
                    writes,
                    ..
                } => {
                    reply.writes = writes;
                    reply.stream.extend(&message.payload);
                    return Ok(reply);
                }
                Body::Reply {
                    external: true,
                    writes,
                    reply: returned,
                } => {
                    ensure(reply.parts.is_empty(), || {
                        "a reply in its Reply chunk follows parts of it (§6.3.9)".to_owned()
                    })?;
                    let (Some(returned), Some(sink)) = (returned, chunk) else {
                        return fail("RDMA2_REPLY_EXTERNAL without a Reply chunk (§6.3.8)");
                    };
                    let (memory, _) = self.link.take(sink)?;
                    let length = usize::try_from(chunk_len(&returned)).unwrap_or(usize::MAX);
                    let Some(stream) = memory.get(..length) else {
                        return fail(format!(
                            "{length} octets in {} of a Reply chunk",
                            memory.len()
                        ));
                    };
                    reply.writes = writes;
                    reply.stream = stream.to_vec();
                    reply.chunk = Some(returned);
                    return Ok(reply);
                }
                _ => return fail(format!("not a reply, but {message}")),
            }
        }
    }

    /// Sends a call, and returns the whole reply.
    pub(super) fn call(&mut self, message: &[u32]) -> Tested<Reply> {
        self.send(message)?;
        self.reply(message[0], None)
    }

    /// A NULL call is answered on this connection.
    pub(super) fn goes_on(&mut self, bed: &Bed) -> Tested {
        let xid = bed.xid();
        let reply = self.call(&null(bed, xid, 0, &[0; 3]))?;
        reply.accepted().map(drop)
    }

    /// Waits until the peer has answered somehow, or ended the connection, or nothing comes for a while.
    pub(super) fn settles(&mut self, bed: &Bed) {
        let mut limit = bed.patience.min(Duration::from_secs(1));
        for _ in 0..MAX_ASIDE {
            match self.link.hear_within(limit) {
                // A message that is wrong is for other cases to judge.
                Heard::Message { bytes, .. } => drop(self.take(&bytes)),
                Heard::Silence | Heard::End(_) => return,
            }
            limit = QUIET;
        }
    }
}

/// An RDMA2_ERROR with one of these codes; anything else fails. Returns what is behind the code.
pub(super) fn is_error(answer: &Answer, expected: &[u32]) -> Tested<Vec<u32>> {
    match &answer.message.body {
        Body::Error { code, rest } if expected.contains(code) => {
            ensure(answer.invalidated.is_none(), || {
                "an RDMA2_ERROR invalidates a handle (§6.5)".to_owned()
            })?;
            Ok(rest.clone())
        }
        _ => {
            let names = expected.iter().map(|code| error::name(*code));
            let names = names.collect::<Vec<_>>().join(" or RDMA2_ERR_");
            let came = &answer.message;
            fail(format!("RDMA2_ERR_{names} is due, and this came: {came}"))
        }
    }
}

/// Whether a Responder says something of itself, unasked.
fn is_own_affair(message: &Message) -> bool {
    matches!(message.body, Body::Grant | Body::Properties { .. })
}

/// A NULL call with this handle to invalidate and these lists.
pub(super) fn null(bed: &Bed, xid: u32, handle: u32, lists: &[u32]) -> Vec<u32> {
    crate::ietf07::call(xid, handle, lists, &bed.null(xid))
}

/// Properties of a Requester: sizes of its messages.
pub(super) fn sizes(bytes: u32) -> Vec<u32> {
    properties(&[(property::SBSIZ, bytes), (property::RBSIZ, bytes)])
}

impl Bed {
    /// A connection of ietf-07, if the peer has that, on which both ends have said what they are.
    pub(super) fn ietf07(&self) -> Tested<Talk> {
        self.ietf07_saying(&sizes(4096))
    }

    /// The same of a Requester with these properties.
    pub(super) fn ietf07_saying(&self, set: &[u32]) -> Tested<Talk> {
        let mut talk = self.ietf07_first(&message(self.xid(), htype::CONNPROP_FINAL, set))?;
        for _ in 0..MAX_ASIDE {
            if talk.said_all && talk.may_send() > 0 {
                return Ok(talk);
            }
            let (message, _) = talk.next()?;
            ensure(is_own_affair(&message), || {
                format!("properties draw {message}")
            })?;
        }
        fail("RDMA2_CONNPROP_MIDDLE comes without an end")
    }

    /// A connection whose first message is this one, if the peer has ietf-07.
    pub(super) fn ietf07_first(&self, message: &[u32]) -> Tested<Talk> {
        if let Err(why) = self.ietf07.get_or_init(|| self.has_ietf07()) {
            return skip(why);
        }
        let mut talk = Talk::over(self.connect()?);
        talk.send(message)?;
        Ok(talk)
    }

    /// Asks with the first message that ietf-07 has, which executes nothing.
    fn has_ietf07(&self) -> Result<(), String> {
        let mut talk = Talk::over(self.connect().map_err(|stop| stop.why())?);
        let first = message(self.xid(), htype::CONNPROP_FINAL, &sizes(4096));
        let answered = talk.send(&first).and_then(|()| talk.next());
        match answered {
            Ok((message, _)) if is_own_affair(&message) && message.version == 2 => Ok(()),
            Ok((message, _)) => Err(format!("the peer does not speak ietf-07: {message}")),
            Err(stop) => Err(format!("the peer does not speak ietf-07: {}", stop.why())),
        }
    }

    /// A message whose answer the text leaves open, on a connection of its own. The caller looks afterwards whether the
    /// peer is alive.
    pub(super) fn survives_ietf07(&self, messages: &[Vec<u32>]) -> Tested {
        let mut talk = self.ietf07()?;
        for message in messages {
            // A peer that has ended the connection has had enough.
            if talk.send(message).is_err() {
                return Ok(());
            }
        }
        talk.settles(self);
        Ok(())
    }
}

/// An RDMA2_GRANT, which lets the Responder go on.
pub(super) fn let_go_on(talk: &mut Talk) -> Tested {
    talk.granting = true;
    talk.send(&grant())
}
