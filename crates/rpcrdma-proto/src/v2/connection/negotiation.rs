//! Version negotiation: the offer of a client and its answer, and the first call to a server (cel-01 §5).

use super::{Connection, Phase};
use crate::agreed::{Agreed, OurCalls};
use crate::codec::{Body, Header, Invalid, Refused, Rejection};
use crate::event::Violation;
use crate::owner::Owner;
use crate::role::Role;
use crate::v2::answer::Answer;
use crate::v2::codec::codec;
use crate::v2::dialect::Foreign;
use crate::v2::header::WordLayout;
use crate::v2::operations::{InitXch, Operation};
use crate::v2::session::{Message, Opening};
use crate::version::{Version, version_of};
use crate::wire::codec::VersionOne;
use crate::wire::direction::Direction;
use crate::wire::header::HeaderView;
use tracing::debug;

impl<O: Owner> Connection<O> {
    /// Returns to version negotiation: no call is sent before the version is settled.
    pub(super) fn unsettle(&mut self, phase: Phase) {
        self.phase = phase;
        self.core.agree(Agreed {
            versions: self.versions.range(),
            our_calls: OurCalls::Unsettled,
            ..self.one
        });
    }

    /// Settles the version.
    pub(super) fn settle(&mut self, version: Version) {
        debug!(?version, "settled (cel-01 §5)");
        self.phase = Phase::Settled;
        match version {
            Version::One => {
                self.session = None;
                self.exchange = None;
                self.core.shared.flow.count_messages(false);
                // Nothing of this end but calls is left that needs an XID.
                self.core.requester.reserve_xids(std::iter::empty());
                self.core.agree(self.one);
            }
            Version::Two if self.exchange.is_some() => {
                if self.core.role() == Role::Server {
                    self.say_properties();
                }
                self.agree_ietf07();
            }
            Version::Two => {
                let to = self.raise_to;
                self.with_session(|session| {
                    if to.bytes() > session.receive_size() {
                        // If the peer could not be told, it stays as it is.
                        let _ = session.raise_receive_size(to.into());
                    }
                });
            }
        }
    }

    /// Sends the offer, the only message of a client before the version is settled (cel-01 §5).
    pub(super) fn offer(&mut self) {
        self.unsettle(Phase::Offered { xid: 0 });
        if self.exchange.is_some() {
            return self.say_properties();
        }
        let posted = match self.poll_control() {
            Some(offer) => offer,
            // It supports no operation, and so says nothing by this one.
            None => self.control(Message::Optional {
                xid: self.next_xid(),
                optional: Operation::InitXch(InitXch::default()).to_optional(Direction::Call),
            }),
        };
        self.core.handle_refused(posted);
    }

    /// Parses a message to a server before the version is settled: the version is that of the first
    /// valid call, whatever it calls (cel-01 §5.1, §5.3).
    pub(super) fn listen(&mut self, message: &[u8]) -> Result<Header, Invalid> {
        let two = version_of(message) == Some(Version::Two.number());
        let is_of_two = two || !self.versions.speak(Version::One);
        self.core.shared.agreed.codec = match is_of_two && self.versions.speak(Version::Two) {
            true => codec(self.dialect, WordLayout::None),
            false => &VersionOne,
        };
        let foreign = Foreign::in_message(self.dialect, message);
        let is_foreign = matches!(foreign, Some(Foreign::HeaderType(_)));
        if is_foreign && self.versions.speak(Version::One) {
            return Err(self.refuse_dialect(message));
        }
        if self.exchange.is_some() {
            // An error for a message that decides nothing takes a credit, too.
            self.take_credits(message);
        }
        let header = self.core.receive(message);
        let is_call = header.as_ref().is_ok_and(|header| match &header.body {
            Body::Rpc(rpc) => self.core.role().direction_of(rpc, || false) == Direction::Call,
            Body::Control(control) => control.direction == Direction::Call,
            Body::Part { .. } | Body::Properties { .. } | Body::Grant => true,
            Body::Error(_) | Body::Done => false,
        });
        if is_call {
            self.settle(if two { Version::Two } else { Version::One });
        }
        header
    }

    /// Handles the first message of a client that uses another draft of version two. It is answered
    /// as if this end lacked version two: any other error would mean something else to the client.
    fn refuse_dialect(&mut self, message: &[u8]) -> Invalid {
        self.core.shared.flow.handle_message();
        let Some(view) = HeaderView::new(message) else {
            return Invalid::Nothing;
        };
        let header_type = view.procedure();
        let dialect = self.dialect.name();
        debug!(header_type, dialect, "of another draft of version two");
        let one = Version::One.number();
        Invalid::Malformed {
            refused: Refused {
                xid: view.xid(),
                version: view.version(),
                credits: view.credits(),
                rejection: Rejection::Versions {
                    low: one,
                    high: one,
                },
            },
            is_call: true,
        }
    }

    /// Handles a message to a client that waits for the answer to its offer with XID `offer`. Returns
    /// whether the message is one for the connection, now that it has its version.
    pub(super) fn take_answer(&mut self, offer: u32, message: &[u8]) -> bool {
        match Answer::of(self.dialect, offer, message) {
            Answer::None => {
                self.core.shared.counters.discarded += 1;
                return false;
            }
            Answer::Spoken => {
                self.settle(Version::Two);
                return true;
            }
            Answer::Introduction {
                xid,
                credits,
                control,
                stream,
            } => {
                debug!(xid, "an INITXCH that does not answer ours (xcharext §4.1)");
                self.take_control(xid, credits, &control, &message[stream..]);
            }
            Answer::Operation {
                credits,
                control,
                stream,
            } => self.take_control(offer, credits, &control, &message[stream..]),
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
                    let violation = Violation::NoCommonVersion { low, high };
                    self.core.shared.fail(violation);
                }
                return false;
            }
            Answer::Foreign(foreign) => {
                let violation = Violation::OtherDialect(self.dialect, foreign);
                self.core.shared.fail(violation);
                return false;
            }
            Answer::Nonsense => {
                let violation = Violation::OfferNotUnderstood;
                self.core.shared.fail(violation);
                return false;
            }
        }
        let session = self.session.as_deref();
        if session.is_some_and(|session| session.opening() != Opening::Exchanging) {
            self.settle(Version::Two);
        }
        false
    }

    /// Returns the peer's versions if they refute the assumption of version one: the peer refuses a
    /// call in version one and supports only others, version two among them.
    pub(super) fn assumption_refuted(
        &self,
        header: &Result<Header, Invalid>,
    ) -> Option<(u32, u32)> {
        let Ok(Header {
            xid,
            body: Body::Error(error),
            ..
        }) = header
        else {
            return None;
        };
        match error.cause {
            Rejection::Versions { low, high } => {
                let has = |version: Version| (low..=high).contains(&version.number());
                let refuted = has(Version::Two) && !has(Version::One);
                let awaited = self.core.requester.awaits(*xid);
                (self.one_is_assumed && refuted && awaited).then_some((low, high))
            }
            _ => None,
        }
    }
}
