//! Connections on which the server calls its clients: they keep calls until the clients answer, do not, or end.

use super::wire;
use oncrpc::xdr::Payload;
use oncrpc::{Caller, ReplyBound, TransportError};
use rpc_serving::backchannels::{Backchannels, BackwardCall, BackwardConnection, OpenBackchannel};
use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

type Reply = Result<Payload, TransportError>;

/// A place for the reply, and who waits for it.
type Place = Arc<Mutex<(Option<Reply>, Option<Waker>)>>;

/// The connections on which clients can be called.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pub(super) registry: Backchannels,
    open: HashMap<u64, (OpenBackchannel, Arc<Line>)>,
}

/// A connection.
#[derive(Debug)]
struct Line {
    caller: Caller,
    calls: Mutex<Vec<Call>>,
}

/// A call that is not answered.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) bytes: Vec<u8>,
    place: Place,
}

impl BackwardConnection for Line {
    fn caller(&self) -> &Caller {
        &self.caller
    }

    fn set_ready(&self) {}

    fn next_xid(&self) -> u32 {
        wire::XID
    }

    fn call(&self, call: Payload, _: ReplyBound) -> BackwardCall<'_> {
        let place = Place::default();
        let bytes = wire::flat(&call).to_vec();
        let call = Call {
            bytes,
            place: Arc::clone(&place),
        };
        lock(&self.calls).push(call);
        Box::pin(poll_fn(move |cx| {
            let mut place = lock(&place);
            match place.0.take() {
                Some(reply) => Poll::Ready(reply),
                None => {
                    place.1 = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        }))
    }

    fn depth(&self) -> usize {
        1
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Call {
    pub(super) fn answer(self, reply: Reply) {
        let waker = {
            let mut place = lock(&self.place);
            place.0 = Some(reply);
            place.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Lines {
    pub(super) fn connect(&mut self, caller: &Caller) {
        let line = Arc::new(Line {
            caller: *caller,
            calls: Mutex::default(),
        });
        let open = self.registry.open(Arc::clone(&line) as _);
        self.open.insert(caller.connection.number(), (open, line));
    }

    /// Ends a connection with the calls on it.
    pub(super) fn disconnect(&mut self, caller: &Caller) {
        if let Some((open, line)) = self.open.remove(&caller.connection.number()) {
            drop(open);
            for call in std::mem::take(&mut *lock(&line.calls)) {
                let cause = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
                call.answer(Err(TransportError::Disconnected(cause.into())));
            }
        }
    }

    /// Takes a call on a connection.
    pub(super) fn take(&self, caller: &Caller) -> Option<Call> {
        let (_, line) = self.open.get(&caller.connection.number())?;
        lock(&line.calls).pop()
    }
}
