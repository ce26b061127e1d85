//! A client, as it knows itself.

use super::Request;
use super::site::is_later;
use super::targets::Targets;
use super::wire::{Got, Op, Outcome, PARTS};
use nfs_proto::v4::lock::LockType;
use nfs_proto::v4::{ClientId, SessionId, StateId, Status};
use oncrpc::Caller;
use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

/// A client's machine.
pub(super) struct Machine {
    pub(super) name: String,
    pub(super) instance: u8,
    pub(super) callers: Vec<Caller>,
    pub(super) live: Option<Live>,
    pub(super) held: Vec<Held>,
    pub(super) plan: VecDeque<Plan>,
    pub(super) silent_until: Instant,
}

/// A session, as its client knows it.
pub(super) struct Live {
    pub(super) client: ClientId,
    pub(super) session: SessionId,
    pub(super) epoch: u32,
    pub(super) is_complete: bool,
    pub(super) slots: Vec<Slot>,
    pub(super) targets: Targets,
}

impl Live {
    /// Takes the slots in the reply to a request.
    pub(super) fn take_slots(&mut self, request: &Request, slots: (u32, u32)) {
        let used = self.slots.iter().rposition(|slot| slot.request.is_some());
        let used = used.and_then(|slot| u32::try_from(slot).ok());
        let used = used.unwrap_or(0).max(request.at.slot);
        if let Some(kept) = self.targets.result(request.generation, used, slots) {
            for slot in self.slots.iter_mut().skip(kept) {
                // The server took it back: when it comes again, the client does not know how far it was.
                (slot.sequence, slot.was_freed) = (0, true);
            }
            let all = kept.max(self.slots.len());
            self.slots.resize_with(all, Slot::default);
        }
    }
}

#[derive(Default)]
pub(super) struct Slot {
    pub(super) sequence: u32,
    pub(super) was_freed: bool,
    pub(super) request: Option<Request>,
}

/// An open, as its client knows it.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) owner: u8,
    pub(super) handle: Vec<u8>,
    pub(super) state: StateId,
    pub(super) access: u32,
    pub(super) deny: u32,
    pub(super) locks: BTreeMap<u8, Locked>,
    pub(super) epoch: u32,
}

/// Locks of an owner in an open.
#[derive(Clone, Debug)]
pub(super) struct Locked {
    pub(super) state: StateId,
    pub(super) parts: [Option<bool>; PARTS],
}

/// A step on the way back after a restart.
#[derive(Clone, Debug)]
pub(super) enum Plan {
    Open(u8, Vec<u8>),
    Lock(u8, Vec<u8>, u8, (usize, usize), bool),
    Complete,
}

impl Machine {
    pub(super) fn new(name: String, now: Instant) -> Self {
        Self {
            name,
            instance: 1,
            callers: Vec::new(),
            live: None,
            held: Vec::new(),
            plan: VecDeque::new(),
            silent_until: now,
        }
    }

    /// Steps to have again what it had.
    pub(super) fn way_back(&self) -> VecDeque<Plan> {
        let mut plan = VecDeque::new();
        for held in &self.held {
            plan.push_back(Plan::Open(held.owner, held.handle.clone()));
            for (&locker, locked) in &held.locks {
                let mut part = 0;
                while part < PARTS {
                    let first = part;
                    while part < PARTS && locked.parts[part] == locked.parts[first] {
                        part += 1;
                    }
                    if let Some(exclusive) = locked.parts[first] {
                        plan.push_back(Plan::Lock(
                            held.owner,
                            held.handle.clone(),
                            locker,
                            (first, part - 1),
                            exclusive,
                        ));
                    }
                }
            }
        }
        plan.push_back(Plan::Complete);
        plan
    }

    fn held(&mut self, owner: u8, handle: &[u8]) -> Option<&mut Held> {
        let mut held = self.held.iter_mut();
        held.find(|held| held.owner == owner && held.handle == handle)
    }

    pub(super) fn follow(&mut self, plan: &Plan, epoch: u32) -> Option<Op> {
        match plan {
            Plan::Complete => Some(Op::Complete),
            Plan::Open(owner, handle) => {
                let held = self.held(*owner, handle)?;
                Some(Op::OpenHandle {
                    owner: *owner,
                    handle: handle.clone(),
                    access: held.access,
                    deny: held.deny,
                    reclaims: true,
                })
            }
            Plan::Lock(owner, handle, locker, range, exclusive) => {
                let held = self.held(*owner, handle)?;
                if held.epoch != epoch {
                    return None;
                }
                let locked = held.locks.get(locker)?;
                Some(Op::Lock {
                    handle: handle.clone(),
                    open: held.state,
                    known: (locked.state != StateId::default()).then_some(locked.state),
                    locker: *locker,
                    range: *range,
                    kind: match exclusive {
                        true => LockType::Write,
                        false => LockType::Read,
                    },
                    reclaims: true,
                })
            }
        }
    }

    /// Learns from a reply. Returns a state id that is gone.
    pub(super) fn learn(&mut self, op: &Op, epoch: u32, what: &Outcome) -> Option<StateId> {
        let is_put_off = is_later(what.status);
        match op {
            Op::Complete if matches!(what.status, Ok(()) | Err(Status::CompleteAlready)) => {
                if let Some(live) = &mut self.live {
                    live.is_complete = true;
                }
                self.plan.clear();
                // What was not reclaimed is lost.
                self.held.retain(|held| held.epoch == epoch);
            }
            Op::Open {
                owner,
                access,
                deny,
                ..
            }
            | Op::OpenHandle {
                owner,
                access,
                deny,
                ..
            } => {
                let reclaims = matches!(op, Op::OpenHandle { reclaims: true, .. });
                if let (Ok(()), Got::Opened(state, handle)) = (what.status, &what.got) {
                    self.opened((*owner, *access, *deny), *state, handle, epoch);
                } else if let (Op::OpenHandle { handle, .. }, true, false) =
                    (op, reclaims, is_put_off)
                {
                    let lost = |held: &Held| held.owner == *owner && held.handle == *handle;
                    self.held.retain(|held| !lost(held) || held.epoch == epoch);
                }
                if reclaims && !is_put_off {
                    self.plan.pop_front();
                }
            }
            Op::Close { state, .. } if what.status.is_ok() => {
                self.held.retain(|held| held.state.other != state.other);
                return Some(*state);
            }
            Op::Downgrade {
                state,
                access,
                deny,
                ..
            } => {
                if let (Ok(()), Got::State(new)) = (what.status, &what.got) {
                    let mut held = self.held.iter_mut();
                    let held = held.find(|held| held.state.other == state.other)?;
                    held.state = newest(held.state, *new);
                    (held.access, held.deny) = (*access, *deny);
                }
            }
            Op::Lock {
                handle,
                open,
                locker,
                range,
                kind,
                reclaims,
                ..
            } => {
                if *reclaims && !is_put_off {
                    self.plan.pop_front();
                }
                let mut held = self.held.iter_mut();
                let held =
                    held.find(|held| held.handle == *handle && held.state.other == open.other)?;
                if let (Ok(()), Got::State(state)) = (what.status, &what.got) {
                    let locked = held.locks.entry(*locker).or_insert(Locked {
                        state: *state,
                        parts: [None; PARTS],
                    });
                    locked.state = newest(locked.state, *state);
                    let exclusive = matches!(kind, LockType::Write | LockType::WriteWait);
                    locked.parts[range.0..=range.1].fill(Some(exclusive));
                } else if *reclaims
                    && !is_put_off
                    && let Some(locked) = held.locks.get_mut(locker)
                {
                    locked.parts[range.0..=range.1].fill(None);
                }
            }
            Op::Unlock { state, range, .. } => {
                if let (Ok(()), Got::State(new)) = (what.status, &what.got) {
                    let mut all = self
                        .held
                        .iter_mut()
                        .flat_map(|held| held.locks.values_mut());
                    let locked = all.find(|locked| locked.state.other == state.other)?;
                    locked.state = newest(locked.state, *new);
                    locked.parts[range.0..=range.1].fill(None);
                }
            }
            _ => {}
        }
        None
    }

    fn opened(
        &mut self,
        (owner, access, deny): (u8, u32, u32),
        state: StateId,
        handle: &[u8],
        epoch: u32,
    ) {
        match self.held(owner, handle) {
            Some(held) if held.state.other == state.other => {
                held.state = newest(held.state, state);
                held.access |= access;
                held.deny |= deny;
            }
            Some(held) => {
                // It is open again: its locks have new states.
                (held.state, held.epoch) = (state, epoch);
                for locked in held.locks.values_mut() {
                    locked.state = StateId::default();
                }
            }
            None => self.held.push(Held {
                owner,
                handle: handle.to_vec(),
                state,
                access,
                deny,
                locks: BTreeMap::new(),
                epoch,
            }),
        }
    }
}

/// The newer of two ids of one state; replies may come in any order.
fn newest(one: StateId, other: StateId) -> StateId {
    match one.other == other.other && one.seqid > other.seqid {
        true => one,
        false => other,
    }
}
