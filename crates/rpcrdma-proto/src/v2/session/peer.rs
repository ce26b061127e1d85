//! Characteristics of the peer: announced values, and requests to change them.

use super::event::{Event, Settled};
use crate::limits::FIRST_MESSAGE;
use crate::v2::characteristics::{
    BackwardRequestSupport, BackwardSupport, Characteristic, Descriptor, InvalidationDesigns,
    ReceiveBufferSize, ReceiveSize, Registry, SpecError, XcharId, XcharSpec, XcharVal,
};
use crate::v2::operations::{InitXch, Operation, Outcome, ReqXch, RespXch, UpdXch, Update};
use std::collections::VecDeque;

/// Characteristics of the peer.
#[derive(Clone, Debug, Default)]
pub(super) struct Peer {
    /// Values of known characteristics, without the remote invalidation designs, which have their
    /// own rule.
    values: XcharSpec,
    /// Of these, the ones announced as unchanging.
    fixed: Vec<XcharId>,
    /// Whether its INITXCH has arrived.
    said: bool,
    /// Whether that named any characteristic, known or not.
    names_any: bool,
    /// Whether it has refused a REQXCH or an UPDXCH.
    no_requests: bool,
    no_updates: bool,
    /// Backward direction support shown by its backward calls, if any.
    shown: Option<BackwardSupport>,
    /// Requests to it, at most one for each characteristic.
    wanted: Vec<Wanted>,
}

/// A requested value.
#[derive(Clone, Debug)]
struct Wanted {
    value: XcharVal,
    /// The value at the time of the request.
    before: XcharVal,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The request waits to be sent.
    Queued,
    /// The request is in a REQXCH without an answer yet.
    Sent,
    /// The request was answered as pending.
    Pending,
}

/// Why a change cannot be requested of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// This end does not support the answers.
    #[error("this end does not support ROPT_RESPXCH and ROPT_UPDXCH (xcharext §4)")]
    Unsupported,
    /// The peer has not sent an INITXCH, or has refused a request.
    #[error("the peer takes no requests")]
    PeerTakesNone,
    /// The id is not registered.
    #[error("characteristic {0} is not known here")]
    Unknown(XcharId),
    /// The request has two values for one characteristic.
    #[error("characteristic {0} is asked for twice")]
    Twice(XcharId),
    /// The value is invalid.
    #[error(transparent)]
    Value(#[from] SpecError),
    /// The peer has announced that the characteristic does not change.
    #[error("characteristic {0} of the peer does not change on this connection (xcharext §4.1)")]
    Fixed(XcharId),
    /// An earlier request is still pending.
    #[error("a request for characteristic {0} is pending")]
    Pending(XcharId),
    /// The request is too large for a message.
    #[error("a request of {0} bytes, of {FIRST_MESSAGE} at most")]
    TooLong(usize),
}

impl Peer {
    /// Values that are known of it.
    pub(super) fn values(&self) -> &XcharSpec {
        &self.values
    }

    pub(super) fn has_said(&self) -> bool {
        self.said
    }

    pub(super) fn names_any(&self) -> bool {
        self.names_any
    }

    pub(super) fn takes_updates(&self) -> bool {
        self.said && !self.no_updates
    }

    pub(super) fn refuses_updates(&self) -> bool {
        self.no_updates
    }

    /// Bytes that its Receives hold.
    pub(super) fn receive_size(&self) -> ReceiveSize {
        let said = self.values.get::<ReceiveBufferSize>();
        said.unwrap_or(ReceiveSize::DEFAULT)
    }

    /// The same, but a lower size that it was asked for (xcharext §3.1).
    pub(super) fn awaited_receive_size(&self) -> ReceiveSize {
        let size = self.receive_size();
        let mut wanted = self.wanted.iter();
        let wanted = wanted.find_map(|wanted| wanted.value.read::<ReceiveBufferSize>().ok()?);
        wanted.map_or(size, |wanted| size.min(wanted))
    }

    /// Support that its requests in the backward direction have shown, if there were any.
    pub(super) fn shown_backward(&self) -> Option<BackwardSupport> {
        self.shown
    }

    pub(super) fn handle_backward_call(&mut self, chunks: bool) {
        let level = if chunks {
            BackwardSupport::General
        } else {
            BackwardSupport::Inline
        };
        self.shown = self.shown.max(Some(level));
    }

    pub(super) fn handle_initial(&mut self, init: &InitXch, registry: &Registry) {
        self.said = true;
        self.names_any = !init.start.is_empty();
        for (at, value) in init.start.values().iter().enumerate() {
            if !is_taken(value.which, registry) {
                continue;
            }
            self.values.put(value.clone());
            if init.nochg.contains(at) {
                self.fixed.push(value.which);
            }
        }
    }

    /// Handles an update, and returns its meaning, if it has one.
    pub(super) fn handle_update(
        &mut self,
        update: UpdXch,
        registry: &Registry,
        events: &mut VecDeque<Event>,
    ) -> Option<Update> {
        // It announces characteristics, even if it has named none in the first message.
        self.names_any = true;
        let id = update.now.which;
        let pending = self
            .wanted
            .iter()
            .position(|wanted| wanted.value.which == id && wanted.state == State::Pending);
        let known = registry.get(id).filter(|_| is_taken(id, registry))?;
        let withdraws = known.withdraws(&self.value_or_default(known).data, &update.now.data);
        let withdraws = withdraws.unwrap_or(false);
        // One that never changes does not either where its owner has left it out of `nochg`, unless
        // this end asked for it. What is withdrawn must not be relied on in any case (xcharext
        // §3.2, §4.4).
        let never = self.fixed.contains(&id) || (known.is_fixed() && pending.is_none());
        if never && !withdraws {
            return None;
        }
        if withdraws && id == BackwardRequestSupport::ID {
            self.shown = None;
        }
        let meaning = update.meaning(pending.is_some());
        if let (Update::Final, Some(at)) = (meaning, pending) {
            let Wanted { value, before, .. } = self.wanted.remove(at);
            let outcome = if update.now == value {
                Settled::Done
            } else if update.now == before {
                Settled::Rejected
            } else {
                Settled::Partly(update.now.clone())
            };
            let wanted = value;
            events.push_back(Event::Settled { wanted, outcome });
        }
        self.change(update.now, events);
        Some(meaning)
    }

    /// The announced value of a characteristic, or the default.
    fn value_or_default(&self, known: &Descriptor) -> XcharVal {
        match self.values.position(known.id()) {
            Some(at) => self.values.values()[at].clone(),
            None => known.default_value(),
        }
    }

    fn change(&mut self, value: XcharVal, events: &mut VecDeque<Event>) {
        let changed = Event::PeerChanged(value.which);
        self.values.put(value);
        // Once is enough, for whoever has not looked yet.
        if !events.contains(&changed) {
            events.push_back(changed);
        }
    }

    /// Asks for all of these or for none.
    pub(super) fn request(
        &mut self,
        want: Vec<XcharVal>,
        registry: &Registry,
    ) -> Result<(), RequestError> {
        if !self.said || self.no_requests {
            return Err(RequestError::PeerTakesNone);
        }
        for (at, value) in want.iter().enumerate() {
            let id = value.which;
            if !is_taken(id, registry) {
                return Err(RequestError::Unknown(id));
            }
            if want[..at].iter().any(|other| other.which == id) {
                return Err(RequestError::Twice(id));
            }
            if self.fixed.contains(&id) {
                return Err(RequestError::Fixed(id));
            }
            if self.wanted.iter().any(|wanted| wanted.value.which == id) {
                return Err(RequestError::Pending(id));
            }
            registry.check_value(value, &mut Default::default())?;
            let len = request_len(std::slice::from_ref(value));
            if len > FIRST_MESSAGE {
                return Err(RequestError::TooLong(len));
            }
        }
        for value in want {
            let id = value.which;
            let known = registry.get(id);
            let before =
                self.value_or_default(known.expect("only what is registered is asked for"));
            let state = State::Queued;
            self.wanted.push(Wanted {
                value,
                before,
                state,
            });
        }
        Ok(())
    }

    /// As much of what is to be asked for as fits a message. It counts as sent.
    pub(super) fn poll_request(&mut self) -> XcharSpec {
        let mut want = XcharSpec::default();
        for wanted in &mut self.wanted {
            if wanted.state != State::Queued {
                continue;
            }
            let mut more = want.clone();
            more.put(wanted.value.clone());
            if request_len(more.values()) > FIRST_MESSAGE {
                break;
            }
            want = more;
            wanted.state = State::Sent;
        }
        want
    }

    pub(super) fn handle_response(
        &mut self,
        ids: &[XcharId],
        response: RespXch,
        events: &mut VecDeque<Event>,
    ) {
        for (at, &id) in ids.iter().enumerate() {
            match response.outcome(at) {
                Some(Outcome::Done) => {
                    if let Some(value) = self.settle(id, Settled::Done, events) {
                        self.change(value, events);
                    }
                }
                Some(Outcome::Rejected) => {
                    self.settle(id, Settled::Rejected, events);
                }
                // Of what it says nothing of, or several things, nothing is certain.
                Some(Outcome::Pending) | None => self.set_pending(id),
            }
        }
    }

    /// A request was answered with an error.
    pub(super) fn handle_refused(
        &mut self,
        ids: &[XcharId],
        unsupported: bool,
        events: &mut VecDeque<Event>,
    ) {
        self.no_requests |= unsupported;
        for &id in ids {
            self.settle(id, Settled::Rejected, events);
        }
        if self.no_requests {
            for Wanted { value: wanted, .. } in std::mem::take(&mut self.wanted) {
                let outcome = Settled::Rejected;
                events.push_back(Event::Settled { wanted, outcome });
            }
        }
    }

    pub(super) fn handle_update_refused(&mut self, unsupported: bool) {
        self.no_updates |= unsupported;
    }

    /// A request was answered, nobody knows how.
    pub(super) fn handle_unknown_outcome(&mut self, ids: &[XcharId]) {
        ids.iter().for_each(|&id| self.set_pending(id));
    }

    fn set_pending(&mut self, id: XcharId) {
        let mut wanted = self.wanted.iter_mut();
        if let Some(wanted) = wanted.find(|wanted| wanted.value.which == id) {
            wanted.state = State::Pending;
        }
    }

    /// Ends a request; also what was asked for.
    fn settle(
        &mut self,
        id: XcharId,
        outcome: Settled,
        events: &mut VecDeque<Event>,
    ) -> Option<XcharVal> {
        let mut all = self.wanted.iter();
        let at = all.position(|wanted| wanted.value.which == id)?;
        let wanted = self.wanted.remove(at).value;
        let value = wanted.clone();
        events.push_back(Event::Settled { wanted, outcome });
        Some(value)
    }

    pub(super) fn unsettled(&self) -> impl Iterator<Item = &XcharVal> {
        self.wanted.iter().map(|wanted| &wanted.value)
    }
}

/// Whether a value is one that we understand, and use after the first message.
fn is_taken(id: XcharId, registry: &Registry) -> bool {
    id != InvalidationDesigns::ID && registry.get(id).is_some()
}

fn request_len(values: &[XcharVal]) -> usize {
    let mut want = XcharSpec::default();
    values.iter().for_each(|value| want.put(value.clone()));
    Operation::ReqXch(ReqXch { want }).emitted_len()
}
