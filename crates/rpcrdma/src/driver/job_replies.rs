//! Replies of jobs on their way to the task of their connection.

use super::owner::CallId;
use oncrpc::Reply;
use rpc_serving::jobs::ReplyTo;
use std::task::{Context, Poll};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

/// Result of a job; no reply if it panicked.
pub(crate) type Done = (CallId, Option<Reply>);

/// A call that a job answers.
pub(crate) struct JobCall {
    id: CallId,
    done: UnboundedSender<Done>,
}

/// Replies of the jobs of one connection.
#[derive(Default)]
pub(crate) struct JobReplies {
    /// Created with the first job, because it takes kilobytes and most connections have no jobs.
    channel: Option<(UnboundedSender<Done>, UnboundedReceiver<Done>)>,
    counts: JobCounts,
}

/// Job counters of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JobCounts {
    /// Jobs begun so far.
    pub(crate) begun: u64,
    /// Jobs without a reply yet.
    pub(crate) in_flight: usize,
}

impl ReplyTo for JobCall {
    fn reply(self, reply: Option<Reply>) {
        // The connection may have ended.
        let _ = self.done.send((self.id, reply));
    }
}

impl JobReplies {
    pub(crate) fn counts(&self) -> JobCounts {
        self.counts
    }

    /// Counts a job that is about to begin.
    pub(crate) fn begin(&mut self, id: CallId) -> JobCall {
        let (done, _) = self.channel.get_or_insert_with(mpsc::unbounded_channel);
        self.counts.begun += 1;
        self.counts.in_flight += 1;
        JobCall {
            id,
            done: done.clone(),
        }
    }

    /// Takes the result of a job, if there is one.
    pub(crate) fn take(&mut self) -> Option<Done> {
        let (_, results) = self.channel.as_mut()?;
        let done = results.try_recv().ok()?;
        self.counts.in_flight -= 1;
        Some(done)
    }

    /// Waits for the result of a job.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Done> {
        let Some((_, results)) = self.channel.as_mut() else {
            return Poll::Pending;
        };
        // It has a sender of its own, so that it does not end.
        let Poll::Ready(Some(done)) = results.poll_recv(cx) else {
            return Poll::Pending;
        };
        self.counts.in_flight -= 1;
        Poll::Ready(done)
    }
}
