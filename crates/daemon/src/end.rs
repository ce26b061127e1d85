//! The request to end a running service, heeded between the steps of its work.

use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::task::Poll;

/// A request to end. Once it has come it stays.
pub(crate) struct End<'a> {
    request: Pin<Box<dyn Future<Output = ()> + 'a>>,
    has_come: bool,
}

impl<'a> End<'a> {
    /// The request that is made when this future ends.
    pub(crate) fn at(request: impl Future<Output = ()> + 'a) -> Self {
        Self {
            request: Box::pin(request),
            has_come: false,
        }
    }

    /// A request that never comes.
    pub(crate) fn never() -> Self {
        Self::at(pending())
    }

    /// Waits for the request.
    pub(crate) async fn come(&mut self) {
        if !self.has_come {
            self.request.as_mut().await;
            self.has_come = true;
        }
    }

    /// Whether it has come.
    pub(crate) async fn has_come(&mut self) -> bool {
        if !self.has_come {
            let request = &mut self.request;
            self.has_come =
                poll_fn(|context| Poll::Ready(request.as_mut().poll(context).is_ready())).await;
        }
        self.has_come
    }

    /// Does work that can be left undone: `None` if the request comes first.
    pub(crate) async fn before<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.come() => None,
            done = work => Some(done),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::ready;

    #[tokio::test]
    async fn request_that_has_come_stays_and_goes_before_work() {
        let mut end = End::at(ready(()));
        assert_eq!(end.before(ready(1)).await, None);
        assert!(end.has_come().await);
        end.come().await;
        let mut end = End::never();
        assert!(!end.has_come().await);
        assert_eq!(end.before(ready(1)).await, Some(1));
    }
}
