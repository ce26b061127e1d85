//! Calls to clients that calls of these trigger.

use oncrpc::{Answer, Reply};
use std::future::Future;
use std::sync::{Mutex, PoisonError};
use tokio::task::JoinSet;

/// The triggered calls of a run that no call of a client waits for.
#[derive(Default)]
pub(crate) struct Triggered(Mutex<JoinSet<()>>);

impl Triggered {
    /// Makes calls, and answers the one that triggered them: after they have ended if it is
    /// `nested`, at once otherwise.
    pub(crate) fn answer<C>(&self, calls: Vec<C>, nested: bool, answer: Answer) -> Answer
    where
        C: Future<Output = ()> + Send + 'static,
    {
        if nested {
            return Answer::Later(Box::pin(async move {
                let mut running: JoinSet<()> = calls.into_iter().collect();
                while running.join_next().await.is_some() {}
                match answer {
                    Answer::Now(reply) => reply,
                    Answer::Later(reply) => reply.await,
                    Answer::Blocking(_) | Answer::Deferred(_) => Reply::Nothing,
                }
            }));
        }
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for call in calls {
            running.spawn(call);
        }
        while running.try_join_next().is_some() {}
        answer
    }

    /// Waits until no call is in flight that nobody waits for.
    pub(crate) async fn settle(&self) {
        loop {
            let mut running = {
                let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                std::mem::take(&mut *running)
            };
            if running.is_empty() {
                return;
            }
            while running.join_next().await.is_some() {}
        }
    }
}
