//! A queue pair that counts its operations.

use rpcrdma_proto::header::Header;
use rpcrdma_proto::v2::header::{Header as HeaderTwo, VERSION as TWO, WordLayout};
use std::ops::{AddAssign, SubAssign};
use verbs::{
    Completion, Memory, PostError, QueuePair, RegisterError, RemoteAddress, WorkRequest,
    WrapQueuePair,
};

/// Requests to one end, or to both.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Work posted, Receives and invalidations of its own included.
    pub(crate) posted: u64,
    /// Regions registered: on an RNIC each is a work request too.
    pub(crate) registrations: u64,
    /// Completions that the host has to wait for: of Receives, Reads and invalidations.
    pub(crate) completions: u64,
    /// Invalidations of its own.
    pub(crate) local_invalidations: u64,
    /// Sends with Invalidate.
    pub(crate) sends_with_invalidate: u64,
    /// Bytes of transport header in its Sends.
    pub(crate) header_bytes: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.posted += other.posted;
        self.registrations += other.registrations;
        self.completions += other.completions;
        self.local_invalidations += other.local_invalidations;
        self.sends_with_invalidate += other.sends_with_invalidate;
        self.header_bytes += other.header_bytes;
    }
}

impl SubAssign for Counts {
    fn sub_assign(&mut self, other: Self) {
        self.posted -= other.posted;
        self.registrations -= other.registrations;
        self.completions -= other.completions;
        self.local_invalidations -= other.local_invalidations;
        self.sends_with_invalidate -= other.sends_with_invalidate;
        self.header_bytes -= other.header_bytes;
    }
}

/// Counts, and passes on.
pub(crate) struct Counted<Q> {
    pub(crate) inner: Q,
    /// How headers are laid out on this connection.
    words: WordLayout,
    pub(crate) counts: Counts,
}

impl<Q> Counted<Q> {
    pub(crate) fn new(inner: Q, words: WordLayout) -> Self {
        Self {
            inner,
            words,
            counts: Counts::default(),
        }
    }

    /// Bytes of the transport header of a message.
    fn header_len(&self, message: &[u8]) -> usize {
        let version = message.get(4..8).map(|word| word == TWO.to_be_bytes());
        let stream = match version {
            Some(true) => HeaderTwo::parse(message, self.words).map(|(_, at)| at).ok(),
            Some(false) | None => Header::parse(message).map(|(_, at)| at).ok(),
        };
        stream.unwrap_or(message.len())
    }
}

impl<Q: QueuePair> WrapQueuePair for Counted<Q> {
    type Inner = Q;

    fn inner(&self) -> &Q {
        &self.inner
    }

    fn inner_mut(&mut self) -> &mut Q {
        &mut self.inner
    }

    fn wrap_post(&mut self, work: WorkRequest) -> Result<(), PostError> {
        let mut counts = Counts {
            posted: 1,
            ..Counts::default()
        };
        match &work {
            WorkRequest::Send {
                buffer, invalidate, ..
            } => {
                counts.header_bytes = self.header_len(buffer) as u64;
                counts.sends_with_invalidate = u64::from(invalidate.is_some());
            }
            WorkRequest::Invalidate { .. } => counts.local_invalidations = 1,
            WorkRequest::Receive { .. } | WorkRequest::Write { .. } | WorkRequest::Read { .. } => {}
        }
        self.inner.post(work)?;
        self.counts += counts;
        Ok(())
    }

    fn wrap_register(&mut self, memory: Memory) -> Result<RemoteAddress, RegisterError> {
        let at = self.inner.register(memory)?;
        self.counts.registrations += 1;
        Ok(at)
    }

    fn wrap_poll_cq(&mut self) -> Option<Completion> {
        let completion = self.inner.poll_cq()?;
        self.counts.completions += u64::from(match completion {
            Completion::Send { .. } | Completion::Write { .. } => false,
            Completion::Receive { .. }
            | Completion::Read { .. }
            | Completion::Invalidate { .. }
            | Completion::Failed { .. } => true,
        });
        Some(completion)
    }
}
