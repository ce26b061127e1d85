//! A wrapper that checks the rules of a queue pair.

use super::call::Kind;
use super::party::Party;
use super::rules::{Outcome, Part, Role, Rules};
use super::shared::lock;
use std::sync::{Arc, Mutex};
use std::task::Waker;
use verbs::{
    Access, CloseReason, Completion, Handle, Memory, NotPersistent, Parts, PostError, QpOptions,
    QueuePair, RegisterError, RemoteAddress, WorkRequest, WrapQueuePair,
};

/// Turns of one queue pair after which it counts as livelocked: no run has a tenth of them.
const MAX_TURNS: u64 = 20_000_000;

impl Party {
    /// The end of a connection that this party has made, watched; `agreed` says whether both ends may
    /// invalidate each other's handles. Receives are still to be posted.
    pub fn connected<Q: QueuePair>(&self, qp: Q, agreed: bool) -> WatchedQp<Q> {
        WatchedQp::new(self, Box::new(qp), Role::Client, 0, agreed)
    }

    /// The same of one that it has accepted.
    pub fn accepted<Q: QueuePair>(&self, qp: Q, agreed: bool) -> WatchedQp<Q> {
        WatchedQp::new(self, Box::new(qp), Role::Server, 0, agreed)
    }
}

/// A queue pair, watched.
pub struct WatchedQp<Q: QueuePair + ?Sized> {
    party: Party,
    number: u64,
    rules: Arc<Mutex<Rules>>,
    turns: u64,
    inner: Box<Q>,
}

impl<Q: QueuePair + ?Sized> WatchedQp<Q> {
    /// A queue pair on which so many Receives are posted, and on which handles may or may not be
    /// invalidated by the peer.
    pub(super) fn new(
        party: &Party,
        inner: Box<Q>,
        role: Role,
        receives: usize,
        agreed: bool,
    ) -> Self {
        let mut state = lock(&party.state);
        let number = state.connections;
        state.connections += 1;
        let name = format!("{}, connection {number} ({})", party.name, inner.describe());
        let rules = Arc::new(Mutex::new(Rules::new(
            name,
            Arc::clone(&party.shared),
            role,
            receives,
            agreed,
        )));
        state.live.insert(number, Arc::clone(&rules));
        drop(state);
        Self {
            party: party.clone(),
            number,
            rules,
            turns: 0,
            inner,
        }
    }

    /// With a shared receive queue, if it was made with one.
    pub(super) fn with_options(self, options: &QpOptions) -> Self {
        if options.shared_receives.is_some() {
            lock(&self.rules).shares(self.inner.limits().receives);
        }
        self
    }

    /// The wrapped queue pair.
    pub fn inner(&self) -> &Q {
        &self.inner
    }

    /// The party that owns it.
    pub fn party(&self) -> &Party {
        &self.party
    }

    fn note(&self, line: impl FnOnce() -> String) {
        let number = self.number;
        self.party.note(|| format!("({number}) {}", line()));
    }
}

impl<Q: QueuePair + ?Sized> WrapQueuePair for WatchedQp<Q> {
    type Inner = Q;

    fn inner(&self) -> &Q {
        &self.inner
    }

    fn inner_mut(&mut self) -> &mut Q {
        &mut self.inner
    }

    fn wrap_post(&mut self, work: WorkRequest) -> Result<(), PostError> {
        let mut rules = lock(&self.rules);
        let outcome = rules.judge(&work);
        self.inner.post(work)?;
        if let Outcome::Message(message, _) = &outcome {
            self.note(|| format!("sends {message}"));
            if let Some(xid) = outcome.call() {
                *lock(&self.party.state).sent.entry(xid).or_default() += 1;
            }
        }
        // On a connection that is over it is taken, and goes nowhere.
        rules.posted(outcome, self.inner.closed().is_some());
        Ok(())
    }

    fn wrap_register(&mut self, memory: Memory) -> Result<RemoteAddress, RegisterError> {
        let stays = matches!(memory, Memory::Persistent(..));
        let parts: Vec<(u64, usize, bool)> = match &memory {
            Memory::Source(_) | Memory::Persistent(Access::Read, _) => {
                vec![(0, memory.len(), true)]
            }
            Memory::Sink(_) | Memory::Persistent(Access::Write, _) => {
                vec![(0, memory.len(), false)]
            }
            Memory::Parts(parts) => {
                let numbered = parts.iter().enumerate();
                let source = |part: &verbs::Part| matches!(part, verbs::Part::Source(_));
                numbered
                    .map(|(i, part)| (Parts::offset_of(i), part.len(), source(part)))
                    .collect()
            }
        };
        let at = self.inner.register(memory)?;
        let parts = parts.into_iter().map(|(offset, len, source)| Part {
            base: at.offset + offset,
            len: len as u64,
            source,
        });
        lock(&self.rules).registered(at.handle, parts.collect(), stays);
        Ok(at)
    }

    fn wrap_copy_in(
        &mut self,
        handle: Handle,
        offset: usize,
        bytes: &[u8],
    ) -> Result<(), NotPersistent> {
        lock(&self.rules).changed(handle);
        self.inner.copy_in(handle, offset, bytes)
    }

    fn wrap_poll_cq(&mut self) -> Option<Completion> {
        let Some(completion) = self.inner.poll_cq() else {
            if self.inner.closed().is_some() {
                lock(&self.rules).over();
            }
            return None;
        };
        let message = lock(&self.rules).completed(&completion);
        if let Some(message) = message {
            self.note(|| format!("receives {message}"));
            if let Kind::Call(_) = message.kind {
                self.party.called(message.xid);
            }
        }
        Some(completion)
    }

    fn wrap_progress(&mut self) -> bool {
        self.turns += 1;
        if self.turns == MAX_TURNS {
            let shared = &self.party.shared;
            shared.finding(format_args!("{} goes in circles", lock(&self.rules)));
            panic!("a queue pair that goes in circles");
        }
        self.inner.progress()
    }

    fn wrap_closed(&self) -> Option<&CloseReason> {
        let closed = self.inner.closed();
        if closed.is_some() {
            lock(&self.rules).closed();
        }
        closed
    }
}

impl<Q: QueuePair + ?Sized> Drop for WatchedQp<Q> {
    fn drop(&mut self) {
        let mut state = lock(&self.party.state);
        state.live.remove(&self.number);
        let rules = lock(&self.rules);
        let unanswered = rules.unanswered();
        for xid in rules.undelivered() {
            *state.to_deliver.entry(xid).or_default() += 1;
        }
        drop(rules);
        let wakers = match state.live.is_empty() {
            true => std::mem::take(&mut state.wakers),
            false => Vec::new(),
        };
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        self.note(|| {
            let why = self.inner.closed().map(ToString::to_string);
            let why = why.unwrap_or_else(|| "it is dropped".to_owned());
            format!("ends with {unanswered} calls without a reply: {why}")
        });
    }
}
