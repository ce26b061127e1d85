//! Runs several futures concurrently and returns their results in the order of their start.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

/// A future that is in flight.
type Running<'a, R> = Pin<Box<dyn Future<Output = R> + Send + 'a>>;

/// Futures in flight, oldest first. All of them are driven whenever the oldest is waited for.
pub(crate) struct InOrder<'a, R> {
    slots: VecDeque<Slot<'a, R>>,
}

enum Slot<'a, R> {
    Running(Running<'a, R>),
    Done(R),
}

impl<'a, R> InOrder<'a, R> {
    pub(crate) fn new() -> Self {
        Self {
            slots: VecDeque::new(),
        }
    }

    /// Futures that have not been handed out, done or not.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Adds a future; it begins with the next [`next`](Self::next) or [`next_done`](Self::next_done).
    pub(crate) fn push(&mut self, future: impl Future<Output = R> + Send + 'a) {
        self.slots.push_back(Slot::Running(Box::pin(future)));
    }

    /// Drops all of them.
    pub(crate) fn clear(&mut self) {
        self.slots.clear();
    }

    /// The result of the oldest, or nothing if there is none. Nothing is lost if this is dropped.
    pub(crate) async fn next(&mut self) -> Option<R> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The result of the oldest, if it is done; all of them get on as far as they can.
    pub(crate) async fn next_done(&mut self) -> Option<R> {
        poll_fn(|cx| match self.poll_next(cx) {
            Poll::Ready(result) => Poll::Ready(result),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<R>> {
        for slot in &mut self.slots {
            if let Slot::Running(future) = slot
                && let Poll::Ready(result) = future.as_mut().poll(cx)
            {
                *slot = Slot::Done(result);
            }
        }
        match self.slots.pop_front() {
            None => Poll::Ready(None),
            Some(Slot::Done(result)) => Poll::Ready(Some(result)),
            Some(running @ Slot::Running(_)) => {
                self.slots.push_front(running);
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn results_come_in_the_order_in_which_the_futures_began() {
        let mut queue = InOrder::new();
        let mut senders = Vec::new();
        for _ in 0..3 {
            let (sender, receiver) = oneshot::channel::<u32>();
            senders.push(sender);
            queue.push(async move { receiver.await.unwrap() });
        }
        for (number, sender) in senders.into_iter().enumerate().rev() {
            sender.send(u32::try_from(number).unwrap()).unwrap();
        }
        for number in 0..3 {
            assert_eq!(queue.next().await, Some(number));
        }
        assert_eq!(queue.next().await, None);
    }

    #[tokio::test]
    async fn cancelled_waiting_loses_no_result() {
        let mut queue = InOrder::new();
        let (sender, receiver) = oneshot::channel::<u32>();
        queue.push(async move { receiver.await.unwrap() });
        queue.push(async { 2 });
        tokio::select! {
            biased;
            _ = queue.next() => panic!("the oldest is not done"),
            () = std::future::ready(()) => {}
        }
        sender.send(1).unwrap();
        assert_eq!(queue.next().await, Some(1));
        assert_eq!(queue.next().await, Some(2));
    }
}
