//! MPA negotiation without I/O: frames in, frames out (RFC 5044 §7.1.2, RFC 6581 §9).

use super::frame::{Enhanced, Frame, Kind, NOT_NEGOTIATED, Revision, Rtr};
use crate::terminate::Cause;

/// ORD towards a peer that did not negotiate it. RFC 5044 is silent; any RNIC serves one.
pub const REV1_ORD: u16 = 1;

/// Largest IRD or ORD to agree to.
pub const MAX_DEPTH: u16 = 256;

/// Offer of one end in negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Whether to request CRCs. They are used if either end requests them.
    pub crc: bool,
    /// Read Requests of the peer to serve at a time, at most [`MAX_DEPTH`].
    pub ird: u16,
    /// Read Requests of this end to have outstanding, at most [`MAX_DEPTH`].
    pub ord: u16,
    /// As initiator: use the peer-to-peer model, with a zero-length message before anything else.
    pub peer_to_peer: bool,
}

/// The result of negotiation, as seen from this end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// MPA revision.
    pub revision: Revision,
    /// Whether IRD and ORD were negotiated.
    pub enhanced: bool,
    /// Whether CRCs are computed and checked, in both directions.
    pub crc: bool,
    /// Whether this end inserts markers.
    pub markers: bool,
    /// Read Requests of the peer that this end serves at a time (IRD).
    pub ird: u16,
    /// Read Requests that this end may have outstanding (ORD).
    pub ord: u16,
    /// The RTR message that the initiator sends first.
    pub rtr: Option<RtrMessage>,
}

/// The RTR message, by which the initiator declares that it is ready (RFC 6581 §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RtrMessage {
    /// A zero-length RDMA Write.
    Write,
    /// A zero-length RDMA Read.
    Read,
}

/// Why an initiator ends connection setup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The responder rejected the connection, with this private data.
    Rejected(Vec<u8>),
    /// The Reply does not match the Request: the connection is closed.
    Invalid(&'static str),
    /// The demands of the responder cannot be met: a Terminate reports this error.
    Terminate(Cause),
}

/// The initiator, from the Request to the Reply.
#[derive(Clone, Copy, Debug)]
pub struct Initiator {
    offer: Offer,
    revision: Revision,
}

impl Initiator {
    /// Creates an initiator of revision 2 with enhanced data.
    pub fn new(offer: Offer) -> Self {
        Self {
            offer,
            revision: Revision::Two,
        }
    }

    /// Creates an initiator of revision 1, after a responder closed without a Reply (RFC 6581 §10).
    pub fn revision_one(offer: Offer) -> Self {
        Self {
            offer,
            revision: Revision::One,
        }
    }

    /// Returns the frame to send.
    pub fn request(&self, private_data: &[u8]) -> Frame {
        Frame {
            kind: Kind::Request,
            markers: false,
            crc: self.offer.crc,
            reject: false,
            revision: self.revision,
            enhanced: (self.revision == Revision::Two).then_some(Enhanced {
                peer_to_peer: self.offer.peer_to_peer.then_some(RTR_SUPPORTED),
                ird: self.offer.ird,
                ord: self.offer.ord,
            }),
            private_data: private_data.to_vec(),
        }
    }

    /// Evaluates the Reply.
    ///
    /// # Errors
    ///
    /// Why the setup fails.
    pub fn reply(&self, reply: &Frame) -> Result<Agreed, Refusal> {
        if reply.reject {
            return Err(Refusal::Rejected(reply.private_data.clone()));
        }
        if reply.revision != self.revision {
            return Err(Refusal::Invalid(
                "the MPA reply has another revision than the request",
            ));
        }
        let mut agreed = Agreed {
            revision: self.revision,
            enhanced: reply.enhanced.is_some(),
            crc: self.offer.crc || reply.crc,
            markers: reply.markers,
            ird: self.offer.ird,
            ord: self.offer.ord.min(REV1_ORD),
            rtr: None,
        };
        match (self.revision, reply.enhanced) {
            (Revision::One, _) => Ok(agreed),
            // RFC 6581 §10: an enhanced request is answered enhanced.
            (Revision::Two, None) => Err(Refusal::Invalid(
                "the MPA reply to an enhanced request is not enhanced",
            )),
            (Revision::Two, Some(theirs)) => {
                (agreed.ird, agreed.ord) = self.depths(theirs)?;
                agreed.rtr = self.rtr(theirs)?;
                Ok(agreed)
            }
        }
    }

    /// Negotiates IRD and ORD (RFC 6581 §9.1).
    fn depths(&self, theirs: Enhanced) -> Result<(u16, u16), Refusal> {
        let ird = match theirs.ord {
            NOT_NEGOTIATED => self.offer.ird,
            ord if ord <= MAX_DEPTH => self.offer.ird.max(ord),
            _ => return Err(Refusal::Terminate(Cause::MPA_IRD)),
        };
        let ord = match theirs.ird {
            NOT_NEGOTIATED => self.offer.ord,
            ird => self.offer.ord.min(ird),
        };
        Ok((ird, ord))
    }

    /// Chooses the RTR message (RFC 6581 §9.2).
    fn rtr(&self, theirs: Enhanced) -> Result<Option<RtrMessage>, Refusal> {
        match (self.offer.peer_to_peer, theirs.peer_to_peer) {
            (false, _) => Ok(None),
            (true, Some(rtr)) if rtr.write => Ok(Some(RtrMessage::Write)),
            (true, Some(rtr)) if rtr.read => Ok(Some(RtrMessage::Read)),
            (true, _) => Err(Refusal::Terminate(Cause::MPA_RTR)),
        }
    }
}

/// A zero-length Send would take a Receive of our user, so it is not offered.
const RTR_SUPPORTED: Rtr = Rtr {
    send: false,
    write: true,
    read: true,
};

/// The responder, before the Request.
#[derive(Clone, Copy, Debug)]
pub struct Responder;

impl Responder {
    /// Takes a parsed Request. Any valid one can be answered.
    pub fn request(self, request: Frame) -> Requested {
        Requested { request }
    }
}

/// The responder, between the Request and its Reply.
#[derive(Clone, Debug)]
pub struct Requested {
    request: Frame,
}

impl Requested {
    /// The initiator's private data.
    pub fn private_data(&self) -> &[u8] {
        &self.request.private_data
    }

    /// Returns the octets of private data that fit the Reply.
    pub fn capacity(&self) -> usize {
        Frame::capacity(self.request.enhanced.is_some())
    }

    /// Returns the accepting Reply, and the agreed parameters.
    pub fn accept(&self, offer: Offer, private_data: &[u8]) -> (Frame, Agreed) {
        let (enhanced, ird, ord) = match self.request.enhanced {
            None => (None, offer.ird, offer.ord.min(REV1_ORD)),
            Some(theirs) => {
                let (word, ird, ord) = Self::answer(offer, theirs);
                (Some(word), ird, ord)
            }
        };
        let agreed = Agreed {
            revision: self.request.revision,
            enhanced: enhanced.is_some(),
            crc: offer.crc || self.request.crc,
            markers: self.request.markers,
            ird,
            ord,
            rtr: None,
        };
        let mut reply = self.reply(agreed.crc, private_data);
        reply.enhanced = enhanced;
        (reply, agreed)
    }

    /// Returns the rejecting Reply. It answers model and depths as any Reply does, without effect.
    pub fn reject(&self, private_data: &[u8]) -> Frame {
        let nothing = Offer {
            crc: self.request.crc,
            ird: 0,
            ord: 0,
            peer_to_peer: false,
        };
        Frame {
            reject: true,
            enhanced: self
                .request
                .enhanced
                .map(|theirs| Self::answer(nothing, theirs).0),
            ..self.reply(self.request.crc, private_data)
        }
    }

    /// Makes a Reply in the revision and the form of the Request (RFC 6581 §10).
    fn reply(&self, crc: bool, private_data: &[u8]) -> Frame {
        Frame {
            kind: Kind::Reply,
            markers: false,
            crc,
            reject: false,
            revision: self.request.revision,
            enhanced: None,
            private_data: private_data.to_vec(),
        }
    }

    /// Returns the Enhanced word of the Reply, and IRD and ORD of this end (RFC 6581 §9.1, §9.2).
    fn answer(offer: Offer, theirs: Enhanced) -> (Enhanced, u16, u16) {
        let ord = match theirs.ird {
            NOT_NEGOTIATED => offer.ord,
            ird => offer.ord.min(ird),
        };
        // A zero-length Read as RTR message needs one Read Request.
        let ird = match theirs.peer_to_peer {
            Some(rtr) if rtr.read => offer.ird.max(1),
            _ => offer.ird,
        };
        let echo = |theirs: u16, ours: u16| {
            if theirs == NOT_NEGOTIATED {
                NOT_NEGOTIATED
            } else {
                ours
            }
        };
        let word = Enhanced {
            peer_to_peer: theirs.peer_to_peer.map(|_| RTR_SUPPORTED),
            ird: echo(theirs.ord, ird),
            ord: echo(theirs.ird, ord),
        };
        (word, ird, ord)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(ird: u16, ord: u16) -> Offer {
        Offer {
            crc: true,
            ird,
            ord,
            peer_to_peer: false,
        }
    }

    fn agree(initiator: Initiator, responder: Offer) -> (Result<Agreed, Refusal>, Agreed) {
        let requested = Responder.request(initiator.request(b"hello"));
        assert_eq!(requested.private_data(), b"hello");
        let (reply, agreed) = requested.accept(responder, b"welcome");
        assert_eq!(reply.private_data, b"welcome");
        (initiator.reply(&reply), agreed)
    }

    #[test]
    fn ord_of_each_end_is_limited_to_the_ird_of_the_other() {
        let (initiator, responder) = agree(Initiator::new(offer(4, 100)), offer(32, 16));
        let initiator = initiator.unwrap();
        assert_eq!((initiator.ird, initiator.ord), (4, 32));
        assert_eq!((responder.ird, responder.ord), (32, 4));
        assert!(initiator.enhanced && initiator.crc && !initiator.markers);
    }

    #[test]
    fn revision_one_reads_one_at_a_time() {
        let (initiator, responder) = agree(Initiator::revision_one(offer(8, 8)), offer(8, 8));
        let initiator = initiator.unwrap();
        assert_eq!((initiator.ird, initiator.ord), (8, REV1_ORD));
        assert_eq!((responder.ird, responder.ord), (8, REV1_ORD));
        assert!(!responder.enhanced);
        assert_eq!(responder.revision, Revision::One);
    }

    #[test]
    fn crc_is_used_when_either_wants_it() {
        for (ours, theirs) in [(false, false), (false, true), (true, false), (true, true)] {
            let wants = |crc| Offer { crc, ..offer(1, 1) };
            let (initiator, responder) = agree(Initiator::new(wants(ours)), wants(theirs));
            assert_eq!(initiator.unwrap().crc, ours || theirs);
            assert_eq!(responder.crc, ours || theirs);
        }
    }

    #[test]
    fn depths_that_are_not_negotiated_are_echoed_and_change_nothing() {
        let mut request = Initiator::new(offer(1, 1)).request(b"");
        let word = request.enhanced.as_mut().unwrap();
        (word.ird, word.ord) = (NOT_NEGOTIATED, NOT_NEGOTIATED);
        let (reply, agreed) = Responder.request(request).accept(offer(20, 30), b"");
        assert_eq!((agreed.ird, agreed.ord), (20, 30));
        let word = reply.enhanced.unwrap();
        assert_eq!((word.ird, word.ord), (NOT_NEGOTIATED, NOT_NEGOTIATED));
        let initiator = Initiator::new(offer(5, 6)).reply(&reply).unwrap();
        assert_eq!((initiator.ird, initiator.ord), (5, 6));
    }

    fn reply_with(change: impl FnOnce(&mut Frame)) -> Result<Agreed, Refusal> {
        let initiator = Initiator::new(offer(4, 4));
        let requested = Responder.request(initiator.request(b""));
        let (mut reply, _) = requested.accept(offer(4, 4), b"");
        change(&mut reply);
        initiator.reply(&reply)
    }

    #[test]
    fn reply_that_reads_more_than_possible_is_terminated() {
        let with_ord = |ord| reply_with(move |reply| reply.enhanced.as_mut().unwrap().ord = ord);
        assert_eq!(with_ord(MAX_DEPTH).unwrap().ird, MAX_DEPTH);
        assert_eq!(
            with_ord(MAX_DEPTH + 1),
            Err(Refusal::Terminate(Cause::MPA_IRD))
        );
    }

    #[test]
    fn reply_must_fit_the_request() {
        assert!(matches!(
            reply_with(|reply| reply.enhanced = None),
            Err(Refusal::Invalid(_))
        ));
        assert!(matches!(
            reply_with(|reply| {
                reply.revision = Revision::One;
                reply.enhanced = None;
            }),
            Err(Refusal::Invalid(_))
        ));
    }

    #[test]
    fn rejection_carries_the_responders_private_data() {
        let initiator = Initiator::new(offer(4, 4));
        let reply = Responder.request(initiator.request(b"")).reject(b"no");
        assert_eq!(
            initiator.reply(&reply),
            Err(Refusal::Rejected(b"no".to_vec()))
        );
        let initiator = Initiator::revision_one(offer(1, 1));
        let reply = Responder.request(initiator.request(b"")).reject(b"");
        assert_eq!((reply.revision, reply.enhanced), (Revision::One, None));
        assert_eq!(initiator.reply(&reply), Err(Refusal::Rejected(Vec::new())));
    }

    #[test]
    fn rejection_answers_model_and_depths_too() {
        let mut request = Initiator::new(Offer {
            peer_to_peer: true,
            ..offer(4, 4)
        })
        .request(b"");
        let word = request.enhanced.as_mut().unwrap();
        (word.ird, word.ord) = (NOT_NEGOTIATED, NOT_NEGOTIATED);
        let word = Responder.request(request).reject(b"").enhanced.unwrap();
        assert_eq!(word.peer_to_peer, Some(RTR_SUPPORTED));
        assert_eq!((word.ird, word.ord), (NOT_NEGOTIATED, NOT_NEGOTIATED));
        let request = Initiator::new(offer(4, 4)).request(b"");
        let word = Responder.request(request).reject(b"").enhanced.unwrap();
        assert_eq!(word.peer_to_peer, None);
        assert_eq!((word.ird, word.ord), (0, 0));
    }

    #[test]
    fn reply_is_in_the_form_of_the_request_and_asks_for_no_markers() {
        let enhanced = Initiator::new(offer(2, 2)).request(b"");
        let without_s = Frame {
            enhanced: None,
            ..enhanced.clone()
        };
        let revision_one = Initiator::revision_one(offer(2, 2)).request(b"");
        for request in [enhanced, without_s, revision_one] {
            let form = (request.revision, request.enhanced.is_some());
            let requested = Responder.request(request);
            for reply in [requested.accept(offer(2, 2), b"").0, requested.reject(b"")] {
                assert_eq!((reply.revision, reply.enhanced.is_some()), form);
                assert!(!reply.markers);
            }
        }
    }

    #[test]
    fn initiator_without_the_peer_to_peer_model_announces_and_keeps_that() {
        let initiator = Initiator::new(offer(1, 1));
        let request = initiator.request(b"");
        assert_eq!(request.enhanced.unwrap().peer_to_peer, None);
        assert!(!request.markers);
        let agreed = reply_with(|reply| {
            reply.enhanced.as_mut().unwrap().peer_to_peer = Some(RTR_SUPPORTED);
        });
        assert_eq!(agreed.unwrap().rtr, None);
    }

    #[test]
    fn peer_that_does_not_answer_the_peer_to_peer_model_is_terminated() {
        let initiator = Initiator::new(Offer {
            peer_to_peer: true,
            ..offer(1, 1)
        });
        let request = initiator.request(b"");
        assert_eq!(request.enhanced.unwrap().peer_to_peer, Some(RTR_SUPPORTED));
        let (mut reply, _) = Responder.request(request).accept(offer(1, 1), b"");
        reply.enhanced.as_mut().unwrap().peer_to_peer = None;
        assert_eq!(
            initiator.reply(&reply),
            Err(Refusal::Terminate(Cause::MPA_RTR))
        );
    }

    #[test]
    fn markers_are_inserted_when_the_peer_asks() {
        assert!(reply_with(|reply| reply.markers = true).unwrap().markers);
        let mut request = Initiator::new(offer(1, 1)).request(b"");
        request.markers = true;
        let (_, agreed) = Responder.request(request).accept(offer(1, 1), b"");
        assert!(agreed.markers);
    }

    #[test]
    fn peer_to_peer_model_agrees_on_an_rtr_message_that_both_support() {
        let initiator = Initiator::new(Offer {
            peer_to_peer: true,
            ..offer(4, 0)
        });
        let (agreed, responder) = agree(initiator, offer(0, 4));
        assert_eq!(agreed.unwrap().rtr, Some(RtrMessage::Write));
        assert_eq!(responder.ird, 1, "a zero-length Read must find a place");
        let (mut reply, _) = Responder
            .request(initiator.request(b""))
            .accept(offer(1, 1), b"");
        reply.enhanced.as_mut().unwrap().peer_to_peer = Some(Rtr {
            send: true,
            ..Rtr::default()
        });
        assert_eq!(
            initiator.reply(&reply),
            Err(Refusal::Terminate(Cause::MPA_RTR))
        );
    }

    #[test]
    fn client_server_model_is_kept() {
        let (agreed, _) = agree(Initiator::new(offer(1, 1)), offer(1, 1));
        assert_eq!(agreed.unwrap().rtr, None);
    }
}
