//! The end of a connection, and how its outstanding work completes.

use super::message::Message;
use super::phase::Phase;
use super::{Endpoint, Role};
use crate::ddp::Header;
use crate::terminate::{Cause, Terminate, TerminatedSegment};
use verbs::{CloseReason, Completion, Loss, WorkError, WrId};

impl Endpoint {
    /// Closes the connection in an orderly way: posted work is still sent, nothing more is received.
    pub fn close(&mut self) {
        if !matches!(self.phase, Phase::Open) {
            return;
        }
        self.flush_receives(WorkError::Flushed);
        self.flush_reads(None);
        self.tx.drop_read_requests();
        self.phase = Phase::Ending {
            reason: CloseReason::Local,
        };
    }

    /// Whether everything was sent, so that the stream can be closed in the direction of the peer.
    pub fn wants_shutdown(&self) -> bool {
        matches!(self.phase, Phase::Ending { .. }) && !self.has_output()
    }

    /// Whether the connection is closing and not closed yet.
    pub fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Ending { .. })
    }

    /// Ends a closing connection without waiting for the peer any longer.
    pub fn give_up(&mut self) {
        if let Phase::Ending { reason } = &self.phase {
            let reason = reason.clone();
            self.over(reason);
        }
    }

    /// Handles the loss of the stream.
    pub fn lost(&mut self, reason: CloseReason) {
        match &self.phase {
            Phase::Open => self.over(reason),
            Phase::Ending { .. } => self.give_up(),
            Phase::Closed(_) => {}
        }
    }

    /// Handles the end of the peer's half of the stream.
    pub(super) fn end_of_stream(&mut self) {
        self.lost(if self.rx.is_between_fpdus() {
            CloseReason::Peer
        } else {
            CloseReason::Lost(Loss::Truncated.into())
        });
    }

    pub(super) fn over(&mut self, reason: CloseReason) {
        self.flush(WorkError::Flushed);
        self.phase = Phase::Closed(reason);
    }

    /// Ends the connection because the peer broke a rule, and sends a Terminate where that is allowed.
    pub(super) fn violation(&mut self, cause: Cause, segment: Option<TerminatedSegment>) {
        // The Receive of a message that is too long fails with that error, all other work as
        // flushed.
        let is_send = segment
            .as_ref()
            .is_some_and(|segment| matches!(segment.header, Header::Untagged { queue: 0, .. }));
        self.flush(if is_send && cause == Cause::DDP_TOO_LONG {
            WorkError::TooLong
        } else {
            WorkError::Flushed
        });
        self.terminate(cause, segment, CloseReason::PeerError(cause.into()));
    }

    /// Ends the connection because of a local error (RFC 5040 §7.1, case 1).
    pub(super) fn catastrophe(&mut self) {
        self.flush(WorkError::Flushed);
        self.terminate(Cause::RDMA_CATASTROPHIC, None, CloseReason::Local);
    }

    fn terminate(&mut self, cause: Cause, segment: Option<TerminatedSegment>, reason: CloseReason) {
        // RFC 5044 §7.1.2 rule 4: a responder that has not validated an FPDU posts none.
        if self.heard || self.config.role == Role::Initiator {
            tracing::debug!(%cause, "terminate");
            let terminate = Terminate { cause, segment };
            self.tx.push(Message::terminate(&terminate.emit()));
            self.phase = Phase::Ending { reason };
        } else {
            self.phase = Phase::Closed(reason);
        }
    }

    /// Ends the connection with a Terminate, because this end cannot accept what was negotiated
    /// (RFC 6581 §9.1 and §9.2).
    pub fn refuse(&mut self, cause: Cause) {
        if matches!(self.phase, Phase::Open) {
            self.violation(cause, None);
        }
    }

    /// Handles a Terminate of the peer.
    pub(super) fn terminated(&mut self, bytes: &[u8]) {
        let terminate = Terminate::parse(bytes).expect("admitted as long enough");
        let protection = terminate.cause.layer == 0 && terminate.cause.etype == 1;
        let refused = terminate
            .read_request()
            .filter(|_| protection)
            .map(|request| request.sink_stag);
        self.flush_reads(refused);
        self.over(CloseReason::Terminated(terminate.cause.into()));
    }

    /// Fails everything that is posted; the first Receive with its own error.
    fn flush(&mut self, first_receive: WorkError) {
        self.flush_receives(first_receive);
        let Self { tx, cq, .. } = self;
        let before = cq.len();
        cq.extend(tx.abandon().map(flushed));
        self.outstanding -= self.cq.len() - before;
        self.flush_reads(None);
        for wr in self.places.table.abandon_drains() {
            self.fail(wr, WorkError::Flushed);
        }
    }

    fn flush_receives(&mut self, first: WorkError) {
        if let Some(share) = &self.places.share {
            share.stop_waiting();
            // The block of an incomplete message was not posted by the user and has no completion.
            self.places.receives.clear();
        }
        let mut error = first;
        for receive in self.places.receives.drain(..) {
            self.cq.push_back(Completion::Failed {
                wr: receive.wr,
                error,
            });
            error = WorkError::Flushed;
        }
    }

    /// Fails the Reads; the one whose sink has this STag because the peer refused it.
    fn flush_reads(&mut self, refused: Option<u32>) {
        let before = self.cq.len();
        self.cq
            .extend(self.places.reads.drain(refused).map(|(wr, refused)| {
                let error = if refused {
                    WorkError::RemoteAccess
                } else {
                    WorkError::Flushed
                };
                Completion::Failed { wr, error }
            }));
        self.outstanding -= self.cq.len() - before;
    }
}

fn flushed(wr: WrId) -> Completion {
    Completion::Failed {
        wr,
        error: WorkError::Flushed,
    }
}
