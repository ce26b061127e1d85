//! When a call that has memory could go on.

use super::{Lease, ReplyMemory};
use oncrpc::ConnectionId;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

/// Notes that a call could go on, and wakes its task.
struct Note {
    memory: ReplyMemory,
    connection: ConnectionId,
    number: u64,
    task: Waker,
}

impl Lease {
    /// Waits for the reply that the memory is for.
    ///
    /// The connection of a client polls this only while it has room. A call that was woken and is not
    /// polled waits for its client.
    pub(crate) async fn until_answered<F: Future>(&self, reply: F) -> F::Output {
        let mut reply = pin!(reply);
        // The waker of the last poll, and what wakes it.
        let mut last: Option<(Waker, Waker)> = None;
        let polled = poll_fn(|cx| {
            self.memory.set_woken(self.connection, self.number, false);
            let noting = match last.take() {
                Some((task, noting)) if task.will_wake(cx.waker()) => noting,
                _ => self.noting(cx.waker()),
            };
            let polled = reply.as_mut().poll(&mut Context::from_waker(&noting));
            last = Some((cx.waker().clone(), noting));
            polled
        });
        polled.await
    }

    fn noting(&self, task: &Waker) -> Waker {
        Waker::from(Arc::new(Note {
            memory: self.memory.clone(),
            connection: self.connection,
            number: self.number,
            task: task.clone(),
        }))
    }
}

impl Wake for Note {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.memory.set_woken(self.connection, self.number, true);
        self.task.wake_by_ref();
    }
}
