//! Characteristics of this end: announced values, and changes still to announce.

use super::config::{Config, is_builtin};
use super::event::Event;
use super::sizes::{CANNOT_TELL, ReceiveSizes};
use crate::invalidation::design::Design;
use crate::limits::FIRST_MESSAGE;
use crate::role::Role;
use crate::v2::characteristics::{
    BackwardSupport, Characteristic, DesignBits, InvalidationDesigns, MayChange, ReceiveBufferSize,
    ReceiveSize, Registry, SpecError, XcharId, XcharSpec, XcharVal,
};
use crate::v2::operations::{
    InitXch, Operation, Outcome, ReqXch, RespXch, Supported, UpdXch, code,
};
use std::collections::VecDeque;

/// Characteristics of this end.
#[derive(Clone, Debug)]
pub(super) struct Own {
    supported: Supported,
    registry: Registry,
    pub(super) sizes: ReceiveSizes,
    max_send_size: ReceiveSize,
    backward: BackwardSupport,
    /// Whether a remote invalidation design may be announced too.
    may_choose: bool,
    /// Last announced values, or the initial ones.
    said: InitXch,
    /// Values that the peer has acknowledged.
    heard: XcharSpec,
    /// Registered characteristics with a pending request of the peer.
    asked: Vec<XcharId>,
    /// Updates to send for registered characteristics, one each.
    changed: VecDeque<UpdXch>,
}

/// Why the peer cannot be notified of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TellError {
    /// This end does not support ROPT_UPDXCH.
    #[error("this end does not support ROPT_UPDXCH (xcharext §4)")]
    Unsupported,
    /// The characteristic has no configured value, or changes in another way.
    #[error("characteristic {0} is not registered with a value")]
    NotRegistered(XcharId),
    /// The value is invalid.
    #[error(transparent)]
    Value(#[from] SpecError),
    /// The characteristic may not change to this value, or only on request of the peer.
    #[error("characteristic {0} does not change like this")]
    Fixed(XcharId),
    /// The peer has not requested a change.
    #[error("no request for characteristic {0} is pending")]
    NotAsked(XcharId),
    /// No further notification is possible.
    #[error("{CANNOT_TELL}")]
    NotTold,
    /// With this value, the characteristics would no longer fit a message.
    #[error("characteristics would take {0} bytes of a message of {FIRST_MESSAGE}")]
    TooLong(usize),
}

impl Own {
    pub(super) fn new(config: Config, said: InitXch) -> Self {
        Self {
            supported: config.supported,
            registry: config.registry,
            sizes: ReceiveSizes::new(config.receive_size, config.max_receive_size),
            max_send_size: config.max_send_size,
            backward: config.backward,
            may_choose: config.role == Role::Server && !config.designs.is_empty(),
            heard: said.start.clone(),
            said,
            asked: Vec::new(),
            changed: VecDeque::new(),
        }
    }

    pub(super) fn registry(&self) -> &Registry {
        &self.registry
    }

    pub(super) fn backward(&self) -> BackwardSupport {
        self.backward
    }

    /// Returns the announced values, or the initial ones.
    pub(super) fn said(&self) -> &XcharSpec {
        &self.said.start
    }

    /// Returns the size of the largest message ever sent, in bytes.
    pub(super) fn largest_sent(&self) -> ReceiveSize {
        self.max_send_size.max(self.sizes.most())
    }

    /// Returns the INITXCH of this end.
    pub(super) fn initial(&self) -> InitXch {
        self.said.clone()
    }

    /// Returns the length of the longest possible INITXCH, with this value if it is announced. For
    /// a change that the peer has not acknowledged, both values count, because either may apply.
    pub(super) fn initial_len(&self, told: Option<&XcharVal>) -> usize {
        let mut longest = self.initial();
        if self.may_choose {
            longest = longest.with::<InvalidationDesigns>(&DesignBits::default());
        }
        let changed = self.changed.iter().map(|update| &update.now);
        let others = self.heard.values().iter().chain(changed).chain(told);
        for value in others {
            let said = longest.start.position(value.which);
            let said = said.map(|at| &longest.start.values()[at]);
            if said.is_none_or(|said| said.data.len() < value.data.len()) {
                longest.start.put(value.clone());
            }
        }
        Operation::InitXch(longest).emitted_len()
    }

    /// Whether changes can be announced.
    pub(super) fn updates(&self) -> bool {
        self.supported.takes(code::UPDXCH)
    }

    /// Sets the design that a server has chosen.
    pub(super) fn say_design(&mut self, design: Design) {
        let said = std::mem::take(&mut self.said);
        self.said = said.with::<InvalidationDesigns>(&DesignBits::answer(design));
        self.heard.clone_from(&self.said.start);
    }

    fn is_fixed(&self, id: XcharId) -> bool {
        let at = self.said.start.position(id);
        at.is_none_or(|at| self.said.nochg.contains(at))
    }

    /// Returns the current value of a characteristic, if it has one.
    fn now(&self, id: XcharId) -> Option<&XcharVal> {
        let at = self.said.start.position(id)?;
        Some(&self.said.start.values()[at])
    }

    pub(super) fn handle_request(
        &mut self,
        request: &ReqXch,
        events: &mut VecDeque<Event>,
    ) -> RespXch {
        let values = request.want.values().iter();
        values.map(|value| self.request(value, events)).collect()
    }

    fn request(&mut self, wanted: &XcharVal, events: &mut VecDeque<Event>) -> Outcome {
        let id = wanted.which;
        // What was never said, known or not, is nothing that we could change; and the design for
        // remote invalidation is not named after the first message.
        let Some(now) = self.now(id).filter(|_| id != InvalidationDesigns::ID) else {
            return Outcome::Rejected;
        };
        if id != ReceiveBufferSize::ID && *now == *wanted && !self.asked.contains(&id) {
            return Outcome::Done;
        }
        if let Ok(Some(size)) = wanted.read::<ReceiveBufferSize>() {
            let updates = self.updates() && !self.is_fixed(id);
            return self.sizes.request(size, updates);
        }
        let may_change = self.may_change(now, wanted);
        let open = !self.is_fixed(id) && !is_builtin(id) && !self.asked.contains(&id);
        if !open || !self.updates() || may_change == MayChange::Never {
            return Outcome::Rejected;
        }
        self.asked.push(id);
        events.push_back(Event::Wanted(wanted.clone()));
        Outcome::Pending
    }

    fn may_change(&self, now: &XcharVal, to: &XcharVal) -> MayChange {
        let known = self.registry.get(to.which);
        known
            .and_then(|known| known.may_change(&now.data, &to.data).ok())
            .unwrap_or(MayChange::Never)
    }

    /// Returns the number of changes to announce.
    pub(super) fn untold(&self) -> usize {
        self.changed.len() + usize::from(self.sizes.is_changing())
    }

    /// Whether a change of this characteristic is to be announced.
    pub(super) fn is_untold(&self, id: XcharId) -> bool {
        self.changed.iter().any(|update| update.now.which == id)
    }

    /// Sets a value, regardless of requests of the peer, if it can be announced.
    pub(super) fn tell(&mut self, value: XcharVal, can_tell: bool) -> Result<(), TellError> {
        let asked = self.asked.contains(&value.which);
        match self.change_to(&value)? {
            MayChange::Unasked => {}
            MayChange::OnRequest if asked => {}
            MayChange::OnRequest | MayChange::Never => return Err(TellError::Fixed(value.which)),
        }
        self.update(value, false, can_tell)
    }

    /// Settles a request of the peer with a value, if it can be announced.
    pub(super) fn settle(&mut self, value: XcharVal, can_tell: bool) -> Result<(), TellError> {
        let id = value.which;
        let may_change = self.change_to(&value)?;
        if !self.asked.contains(&id) {
            return Err(TellError::NotAsked(id));
        }
        if may_change == MayChange::Never && self.now(id) != Some(&value) {
            return Err(TellError::Fixed(id));
        }
        self.update(value, true, can_tell)
    }

    fn change_to(&self, value: &XcharVal) -> Result<MayChange, TellError> {
        let id = value.which;
        if !self.updates() {
            return Err(TellError::Unsupported);
        }
        match self.now(id) {
            Some(now) if !is_builtin(id) => {
                self.registry.check_value(value, &mut Default::default())?;
                if self.is_fixed(id) {
                    return Err(TellError::Fixed(id));
                }
                Ok(self.may_change(now, value))
            }
            Some(_) | None => Err(TellError::NotRegistered(id)),
        }
    }

    fn update(&mut self, now: XcharVal, pendclr: bool, can_tell: bool) -> Result<(), TellError> {
        if !can_tell {
            return Err(TellError::NotTold);
        }
        // Of that an UPDXCH is a part.
        let len = self.initial_len(Some(&now));
        if len > FIRST_MESSAGE {
            return Err(TellError::TooLong(len));
        }
        let update = UpdXch { now, pendclr };
        let id = update.now.which;
        match self.changed.iter_mut().find(|known| known.now.which == id) {
            Some(known) => {
                known.now = update.now;
                known.pendclr |= pendclr;
            }
            None => self.changed.push_back(update),
        }
        Ok(())
    }

    /// Whether there is an update to send.
    pub(super) fn has_update(&self) -> bool {
        self.updates() && (self.size_update().is_some() || !self.changed.is_empty())
    }

    /// Returns the next update of the Receive size. Each step is announced, but only the last one
    /// if few can be.
    fn size_update(&self) -> Option<(ReceiveSize, bool)> {
        let few = !self.supported.requests();
        self.sizes
            .update()
            .filter(|_| !(few && self.sizes.raising()))
    }

    /// Returns the next update, and counts it as sent.
    pub(super) fn poll_update(&mut self) -> Option<UpdXch> {
        let update = match self.size_update() {
            Some((size, pendclr)) => {
                self.sizes.handle_told(size);
                let now = XcharVal::of::<ReceiveBufferSize>(&size);
                UpdXch { now, pendclr }
            }
            None => self.changed.pop_front()?,
        };
        let id = update.now.which;
        if update.pendclr {
            self.asked.retain(|&asked| asked != id);
        }
        self.said.start.put(update.now.clone());
        Some(update)
    }

    /// Records that the peer has acknowledged all updates.
    pub(super) fn handle_heard(&mut self) {
        self.sizes.handle_heard();
        self.heard.clone_from(&self.said.start);
    }

    /// Records that the peer ignored the updates.
    pub(super) fn handle_ignored(&mut self) {
        self.said.start.clone_from(&self.heard);
        let size = self.sizes.handle_ignored();
        self.said.start.set::<ReceiveBufferSize>(&size);
    }
}
