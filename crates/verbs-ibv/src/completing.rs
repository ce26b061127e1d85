//! From completions of the device to those of work that was posted.

use crate::ending::{self, CompletionStatus};
use crate::posting::RECEIVE;
use crate::queue_pair::IbvQp;
use crate::sys::{
    IBV_WC_LOC_LEN_ERR, IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_QP_OP_ERR, IBV_WC_SUCCESS, IBV_WC_WITH_INV,
    IBV_WC_WR_FLUSH_ERR, ibv_wc,
};
use crate::work::{Posted, What};
use libc::c_uint;
use verbs::{CloseReason, Completion, Handle, Invalidated, ProtocolError, WorkError, WrId};

/// Flag of a message that invalidated a handle, in the kernel's numbers.
const SOFT_ROCE_WITH_INV: c_uint = 1 << 2;

impl Posted {
    pub(crate) fn is_read(&self) -> bool {
        matches!(self.what, What::Read(_))
    }
}

impl IbvQp {
    /// Handles a completion of the device.
    pub(crate) fn handle_completion(&mut self, completion: &ibv_wc) {
        if completion.wr_id & RECEIVE != 0 {
            self.io.work.receive_completions += 1;
            self.handle_receive(completion);
        } else {
            self.io.work.completions += 1;
            self.handle_send(completion);
        }
    }

    fn handle_receive(&mut self, completion: &ibv_wc) {
        // Receives complete in order; anything else is no Receive of this queue pair.
        if completion.wr_id & !RECEIVE != self.first_receive || self.posted_receives == 0 {
            tracing::warn!(
                number = completion.wr_id,
                "unexpected completion of a Receive"
            );
            return;
        }
        let Some(receive) = self.receives.pop_front() else {
            return;
        };
        self.first_receive += 1;
        self.posted_receives -= 1;
        let (wr, mut buffer) = (receive.wr, receive.buffer);
        drop(receive.region);
        match completion.status {
            IBV_WC_SUCCESS => {}
            IBV_WC_WR_FLUSH_ERR => {
                self.fail(wr, WorkError::Flushed);
                self.stopped_by_device();
                return;
            }
            status => {
                let status = match status {
                    // What software RoCE says of a message that is too long.
                    IBV_WC_LOC_QP_OP_ERR if self.is_soft_roce => IBV_WC_LOC_LEN_ERR,
                    status => status,
                };
                let (error, reason) = ending::of_receive(self.status(status));
                self.fail(wr, error);
                self.end(reason);
                return;
            }
        }
        let length = completion.byte_len as usize;
        if length > buffer.capacity() {
            self.fail(wr, WorkError::TooLong);
            self.end(CloseReason::PeerError(ProtocolError::TooLong.into()));
            return;
        }
        buffer.set_len(length);
        // Software RoCE passes the flag of the kernel on, which has another value.
        let with_invalidate = match self.is_soft_roce {
            true => SOFT_ROCE_WITH_INV | IBV_WC_WITH_INV,
            false => IBV_WC_WITH_INV,
        };
        let invalidated = if completion.wc_flags & with_invalidate == 0 {
            None
        } else {
            let handle = Handle(completion.invalidated_rkey);
            match self.invalidated_by_peer(handle) {
                Some(invalidated) => {
                    self.io.work.remote_invalidations += 1;
                    Some(invalidated)
                }
                None => {
                    self.fail(wr, WorkError::Flushed);
                    self.end(CloseReason::PeerError(ProtocolError::Invalidation.into()));
                    return;
                }
            }
        };
        self.complete(Completion::Receive {
            wr,
            buffer,
            invalidated,
        });
    }

    /// Takes back memory whose window the peer has closed; nothing, if it had no business to.
    fn invalidated_by_peer(&mut self, handle: Handle) -> Option<Invalidated> {
        let exposed = self.exposed.get(&handle.0)?;
        if exposed.is_persistent() || exposed.ending {
            return None;
        }
        self.take_back(handle)
    }

    /// Memory that the peer has no access to any more, with its window free for another.
    fn take_back(&mut self, handle: Handle) -> Option<Invalidated> {
        let (memory, window) = self.exposed.remove(&handle.0)?.into_parts();
        if let Some(window) = window {
            self.windows.give_back(window);
        }
        Some(Invalidated::new(handle, memory))
    }

    fn handle_send(&mut self, completion: &ibv_wc) {
        let mut done = self.sends.complete(completion.wr_id);
        let Some(last) = done.pop() else {
            tracing::warn!(number = completion.wr_id, "unexpected completion");
            return;
        };
        for posted in done {
            self.finish(&posted.what, Ok(()));
        }
        match completion.status {
            IBV_WC_SUCCESS => self.finish(&last.what, Ok(())),
            IBV_WC_WR_FLUSH_ERR => {
                self.finish(&last.what, Err(WorkError::Flushed));
                self.stopped_by_device();
            }
            status => {
                let (error, reason) = ending::of_send(self.status(status));
                let error = match last.what {
                    What::Invalidate(..) => WorkError::NoSuchHandle,
                    _ => error,
                };
                if status == IBV_WC_LOC_PROT_ERR {
                    tracing::warn!(what = ?last.what, "the device refused memory of this end");
                }
                self.finish(&last.what, Err(error));
                self.end(reason);
            }
        }
    }

    fn status(&mut self, status: i32) -> CompletionStatus {
        let text = self.hardware().map(|hardware| hardware.status_text(status));
        let text = text.unwrap_or_default();
        CompletionStatus { status, text }
    }

    /// Completes what a work request of the device was for.
    pub(crate) fn finish(&mut self, what: &What, result: Result<(), WorkError>) {
        match (*what, result) {
            (What::Nothing, _) => {}
            (What::Send(wr), Ok(())) => {
                self.accepted -= 1;
                self.complete(Completion::Send { wr });
            }
            (What::Write(wr), Ok(())) => {
                self.accepted -= 1;
                self.complete(Completion::Write { wr });
            }
            (What::Read(read), result) => {
                self.outstanding_reads -= 1;
                self.finish_read_part(read, result.err());
            }
            (What::Invalidate(wr, handle), Ok(())) => match self.take_back(handle) {
                Some(invalidated) => {
                    self.accepted -= 1;
                    self.complete(Completion::Invalidate { wr, invalidated });
                }
                None => self.finish_failed(wr, WorkError::NoSuchHandle),
            },
            (What::Send(wr) | What::Write(wr) | What::Invalidate(wr, _), Err(error)) => {
                self.finish_failed(wr, error);
            }
        }
    }

    /// Fails work other than a Receive.
    pub(crate) fn finish_failed(&mut self, wr: WrId, error: WorkError) {
        self.accepted -= 1;
        self.fail(wr, error);
    }

    /// One part of a Read is over; with the last one, so is the Read.
    pub(crate) fn finish_read_part(&mut self, number: usize, error: Option<WorkError>) {
        let Some(read) = self.reads.get_mut(number) else {
            return;
        };
        read.left -= 1;
        read.failed = read.failed.or(error);
        if read.left > 0 {
            return;
        }
        let read = self.reads.remove(number);
        let (wr, mut sink) = (read.wr, read.sink);
        drop(read.region);
        match read.failed {
            Some(error) => self.finish_failed(wr, error),
            None => {
                sink.set_len(read.length);
                self.accepted -= 1;
                self.complete(Completion::Read { wr, sink });
            }
        }
    }
}
