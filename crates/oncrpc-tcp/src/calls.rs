//! Calls of this end that wait for a reply.

use crate::connection_end::ConnectionEnd;
use oncrpc::xdr::Payload;
use oncrpc::{Cause, TransportError};
use rpc_serving::ends::End;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{
    AtomicU32, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, oneshot};

/// Calls that wait for a reply, by XID, or why the connection has ended.
///
/// They are in order, so that they end in the same order in each run of the same events.
#[derive(Debug)]
pub(crate) struct Calls {
    state: Mutex<Result<BTreeMap<u32, Waiting>, Cause>>,
    xid: AtomicU32,
    in_flight: AtomicUsize,
    /// Number of calls that were given up without a reply, so that one may still come.
    abandoned: AtomicUsize,
    ended: Notify,
}

/// A call that waits for its reply.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// Receiver of the reply.
    pub(crate) reply: oneshot::Sender<Result<Payload, TransportError>>,
    /// Bytes of the largest reply that its caller can take.
    pub(crate) max_reply: usize,
}

/// Entry of a call among those that wait. Dropping it cancels the call.
pub(crate) struct Registered<'a> {
    calls: &'a Calls,
    xid: u32,
    /// No other call was in flight.
    pub(crate) alone: bool,
}

impl Calls {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(Ok(BTreeMap::new())),
            // The first XID differs from run to run, so that a peer's memory of an earlier one
            // cannot answer this one's calls.
            xid: AtomicU32::new(seed()),
            in_flight: AtomicUsize::new(0),
            abandoned: AtomicUsize::new(0),
            ended: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Result<BTreeMap<u32, Waiting>, Cause>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An XID that is not in flight.
    pub(crate) fn next_xid(&self) -> u32 {
        loop {
            let xid = self.xid.fetch_add(1, Relaxed);
            match &*self.lock() {
                Ok(calls) if calls.contains_key(&xid) => {}
                Ok(_) | Err(_) => return xid,
            }
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Acquire)
    }

    pub(crate) fn register(
        &self,
        xid: u32,
        call: Waiting,
    ) -> Result<Registered<'_>, TransportError> {
        match &mut *self.lock() {
            Ok(calls) => match calls.entry(xid) {
                Entry::Occupied(_) => Err(TransportError::XidInUse(xid)),
                Entry::Vacant(place) => {
                    place.insert(call);
                    Ok(Registered {
                        calls: self,
                        xid,
                        alone: self.in_flight.fetch_add(1, AcqRel) == 0,
                    })
                }
            },
            Err(why) => Err(TransportError::Disconnected(why.clone())),
        }
    }

    /// Whether a large reply of so many bytes is to be received. If its call cannot take it, the call ends. No
    /// reply to a call that was given up, or to none, is received.
    pub(crate) fn wants_large(&self, xid: u32, len: usize) -> bool {
        let mut state = self.lock();
        let Ok(calls) = &mut *state else {
            return false;
        };
        let Entry::Occupied(call) = calls.entry(xid) else {
            let less = |count: usize| count.checked_sub(1);
            let _ = self.abandoned.fetch_update(AcqRel, Acquire, less);
            return false;
        };
        let limit = call.get().max_reply;
        if len <= limit {
            return true;
        }
        let call = call.remove();
        drop(state);
        self.in_flight.fetch_sub(1, AcqRel);
        let _ = call
            .reply
            .send(Err(TransportError::TooLarge { len, limit }));
        false
    }

    /// Passes a reply to its call. Returns false if no call can have caused it.
    pub(crate) fn deliver(&self, xid: u32, reply: Payload) -> bool {
        let call = match &mut *self.lock() {
            Ok(calls) => calls.remove(&xid),
            Err(_) => return true,
        };
        match call {
            Some(call) => {
                self.in_flight.fetch_sub(1, AcqRel);
                // If the call was cancelled meanwhile, the reply is dropped.
                let _ = call.reply.send(Ok(reply));
                true
            }
            None => {
                let less = |count: usize| count.checked_sub(1);
                self.abandoned.fetch_update(AcqRel, Acquire, less).is_ok()
            }
        }
    }

    /// Fails all waiting calls, and all later ones, with a reason. The first reason is kept.
    pub(crate) fn close(&self, why: ConnectionEnd) {
        let mut state = self.lock();
        let waiting = match &mut *state {
            Ok(calls) => std::mem::take(calls),
            Err(_) => return,
        };
        *state = Err(why.into());
        drop(state);
        drop(waiting);
        self.ended.notify_waiters();
    }

    /// Why the connection has ended, if it has.
    pub(crate) fn end(&self) -> Option<Cause> {
        self.lock().as_ref().err().cloned()
    }

    /// Waits for the end of the connection.
    pub(crate) async fn ended(&self) -> Cause {
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            ended.as_mut().enable();
            if let Some(why) = self.end() {
                return why;
            }
            ended.await;
        }
    }

    /// The error of a call that got no reply.
    pub(crate) fn why(&self) -> TransportError {
        let why = self.end();
        TransportError::Disconnected(why.unwrap_or_else(|| ConnectionEnd::from(End::Closed).into()))
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "any 32 bits of the hash do"
)]
fn seed() -> u32 {
    RandomState::new().hash_one(0) as u32
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        if let Ok(calls) = &mut *self.calls.lock()
            && calls.remove(&self.xid).is_some()
        {
            self.calls.in_flight.fetch_sub(1, AcqRel);
            self.calls.abandoned.fetch_add(1, AcqRel);
        }
    }
}
