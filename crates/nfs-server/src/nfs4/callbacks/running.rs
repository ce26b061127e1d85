//! Calls to clients that are being made, as one future.

use super::delivery::Delivery;
use nfs_proto::v4::ClientId;
use oncrpc::PeerGroup;
use rpc_serving::shares::{Bound, Shares};
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Calls that are being made, to all clients.
pub(super) const MAX_CALLS: usize = 256;

/// Calls that are being made.
pub(super) struct Running {
    delivery: Arc<Delivery>,
    calls: HashMap<u64, Call>,
    next: u64,
    woken: Arc<Woken>,
    /// Calls of each address.
    shares: Shares,
}

struct Call {
    future: Pin<Box<dyn Future<Output = ()> + Send>>,
    waker: Waker,
    client: ClientId,
    address: PeerGroup,
}

/// Numbers of calls that can go on.
#[derive(Default)]
struct Woken(Mutex<WokenCalls>);

#[derive(Default)]
struct WokenCalls {
    calls: Vec<u64>,
    task: Option<Waker>,
}

/// Waker of one call.
struct CallWaker {
    woken: Arc<Woken>,
    call: u64,
}

impl Wake for CallWaker {
    fn wake(self: Arc<Self>) {
        let mut woken = self.woken.lock();
        woken.calls.push(self.call);
        let task = woken.task.take();
        drop(woken);
        if let Some(task) = task {
            task.wake();
        }
    }
}

impl Woken {
    fn lock(&self) -> MutexGuard<'_, WokenCalls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the calls that can go on. Without any, the task is woken once there are some.
    fn take(&self, task: &Waker) -> Vec<u64> {
        let mut woken = self.lock();
        if woken.calls.is_empty() {
            woken.task = Some(task.clone());
        }
        std::mem::take(&mut woken.calls)
    }
}

impl Running {
    pub(super) fn new(delivery: Arc<Delivery>) -> Self {
        Self {
            delivery,
            calls: HashMap::new(),
            next: 0,
            woken: Arc::default(),
            shares: Shares::new(MAX_CALLS, Bound::WhatItLeaves),
        }
    }

    /// Goes on with all calls that can, and begins others. It is ready when the state has no owner.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.delivery.shared.register(cx.waker()) {
            return Poll::Ready(());
        }
        loop {
            let mut woken = self.woken.take(cx.waker());
            let has_woken = !woken.is_empty();
            woken.sort_unstable();
            woken.dedup();
            for call in woken {
                self.go_on(call);
            }
            if !self.begin() && !has_woken {
                return Poll::Pending;
            }
        }
    }

    fn go_on(&mut self, number: u64) {
        let Some(call) = self.calls.get_mut(&number) else {
            return;
        };
        let mut cx = Context::from_waker(&call.waker);
        if call.future.as_mut().poll(&mut cx).is_pending() {
            return;
        }
        let Call {
            client, address, ..
        } = self.calls.remove(&number).expect("it was found");
        self.shares.give_back(address, 1);
        self.done(client);
    }

    fn done(&self, client: ClientId) {
        (self.delivery.shared).with(|locked| locked.calls().done(client));
    }

    /// Begins calls for which there is room. Returns whether it has begun any.
    fn begin(&mut self) -> bool {
        let before = self.next;
        let shared = &self.delivery.shared;
        loop {
            let has_room = self.shares.left() > 0;
            let taken = shared.with(|locked| match has_room {
                true => locked.calls().take(),
                false => {
                    locked.calls().is_full();
                    None
                }
            });
            let Some((client, callback)) = taken else {
                return self.next != before;
            };
            let Some(address) = self.delivery.address(client) else {
                // It cannot be called, and asks again for what it wants.
                self.done(client);
                continue;
            };
            if !self.shares.take(address, 1) {
                shared.with(|locked| locked.calls().park(client, callback, address));
                continue;
            }
            let delivery = Arc::clone(&self.delivery);
            let call = self.next;
            self.next += 1;
            let woken = Arc::clone(&self.woken);
            let future = Box::pin(async move { delivery.call(client, callback).await });
            self.calls.insert(
                call,
                Call {
                    future,
                    waker: Arc::new(CallWaker { woken, call }).into(),
                    client,
                    address,
                },
            );
            self.woken.lock().calls.push(call);
        }
    }
}
