//! One connection to a peer of whom nothing is taken for granted: one message at a time goes out, and
//! what comes back is handed on as it is.

use oncrpc::xdr;
use oncrpc::{Credential, Procedure};
use rpcrdma_proto::header::{self, Lists, WriteChunk, procedure};
use rpcrdma_proto::v2::header::Direction;
use rpcrdma_proto::v2::ietf07::{PropertySet, emit_properties};
use rpcrdma_proto::v2::operations::Operation;
use rpcrdma_proto::v2::{Dialect, Foreign};
use std::future::poll_fn;
use std::hash::{BuildHasher, RandomState};
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::time::timeout;
use verbs::{
    Buffer, CloseReason, Completion, Gather, Handle, Memory, QueuePair, RemoteAddress, Segment,
    WorkRequest, WrId,
};

/// Receives that are always posted. One is for the answer; the others are for a peer that says more
/// than it was asked.
const RECEIVES: usize = 8;

/// Messages that a peer of ietf-07 may send before it hears of more; Receives are left for those that carry
/// credits only.
const WINDOW: u32 = 6;

/// Bytes of the memory that is offered for a reply.
const ROOM: u32 = 1024;

/// A connection on which questions are asked, one after the other.
pub(super) struct Conversation {
    qp: Box<dyn QueuePair>,
    receive_size: usize,
    /// How long each answer may take.
    limit: Duration,
    /// Asked for with each call.
    credits: u32,
    xid: u32,
    /// The XID of what was said without a wait for an answer.
    told: Option<u32>,
    /// Answer to that.
    refusal: Option<Buffer>,
    /// Messages that came and answered nothing.
    pub(super) strays: u64,
    /// Whether version two is spoken, of which there are several drafts.
    two: bool,
    /// Sign that the peer uses another draft.
    foreign: Option<Foreign>,
    /// Whether each message is awaited, and not only the answer to the last.
    all: bool,
}

/// Message that came back.
pub(super) struct Heard {
    pub(super) xid: u32,
    /// From the transport header on.
    pub(super) message: Buffer,
    pub(super) took: Duration,
    /// The handle of ours that came back with it.
    invalidated: Option<Handle>,
}

/// Why no reply arrived.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoAnswer {
    #[error("no answer came within {}", printing::units::duration(*.0))]
    TimedOut(Duration),
    #[error("no answer came")]
    Closed(#[source] CloseReason),
    #[error("no answer came, but {0}")]
    OtherDraft(Foreign),
}

/// The Receives to post in making such a connection.
pub(super) fn receives(receive_size: usize) -> Vec<WorkRequest> {
    (0..RECEIVES).map(|_| receive(receive_size)).collect()
}

fn receive(size: usize) -> WorkRequest {
    WorkRequest::Receive {
        wr: WrId(0),
        buffer: Buffer::with_capacity(size),
    }
}

impl Conversation {
    /// Over a connection that was made with the Receives of [`receives`].
    pub(super) fn new(
        qp: Box<dyn QueuePair>,
        receive_size: usize,
        credits: u32,
        limit: Duration,
    ) -> Self {
        let seed = RandomState::new().hash_one(0).to_be_bytes();
        Self {
            qp,
            receive_size,
            limit,
            credits,
            // No server remembers this one from an earlier run.
            xid: u32::from_be_bytes([seed[0], seed[1], seed[2], seed[3]]),
            told: None,
            refusal: None,
            strays: 0,
            two: false,
            foreign: None,
            all: false,
        }
    }

    /// Calls a procedure whose arguments are these words.
    pub(super) async fn call(
        &mut self,
        target: Procedure,
        arguments: &[u32],
    ) -> Result<Heard, NoAnswer> {
        self.call_with(&Lists::default(), target, arguments).await
    }

    /// Calls a procedure without arguments, with memory for the reply. Says whether the peer took
    /// that memory away from itself with its answer (Send with Invalidate); none where no memory can
    /// be offered.
    pub(super) async fn call_with_reply_chunk(
        &mut self,
        target: Procedure,
    ) -> Result<Option<bool>, NoAnswer> {
        let memory = Memory::Sink(Buffer::with_capacity(ROOM as usize));
        let Ok(RemoteAddress { handle, offset }) = self.qp.register(memory) else {
            return Ok(None);
        };
        let segment = Segment {
            handle,
            length: ROOM,
            offset,
        };
        let lists = Lists {
            reply: Some(WriteChunk {
                segments: [segment].into_iter().collect(),
            }),
            ..Lists::default()
        };
        let heard = self.call_with(&lists, target, &[]).await?;
        Ok(Some(heard.invalidated == Some(handle)))
    }

    async fn call_with(
        &mut self,
        lists: &Lists,
        target: Procedure,
        arguments: &[u32],
    ) -> Result<Heard, NoAnswer> {
        let write = |w: &mut xdr::Writer, xid| {
            oncrpc::write_call(w, xid, target, &Credential::None);
            arguments.iter().for_each(|word| w.u32(*word));
        };
        self.call_message(lists, write).await
    }

    /// Sends the call that `write` writes with this XID.
    pub(super) async fn call_written(
        &mut self,
        write: impl FnOnce(&mut xdr::Writer, u32),
    ) -> Result<Heard, NoAnswer> {
        self.call_message(&Lists::default(), write).await
    }

    async fn call_message(
        &mut self,
        lists: &Lists,
        write: impl FnOnce(&mut xdr::Writer, u32),
    ) -> Result<Heard, NoAnswer> {
        let xid = self.next_xid();
        let mut message = Buffer::default();
        header::emit(&mut message, procedure::MSG, xid, self.credits, lists);
        let mut w = xdr::Writer::default();
        write(&mut w, xid);
        w.finish().copy_stream_into(&mut message);
        self.ask(message).await
    }

    /// Sends an operation of version two and waits for what it draws.
    pub(super) async fn operate(&mut self, operation: &Operation) -> Result<Heard, NoAnswer> {
        self.two = true;
        let message = self.operation(operation);
        self.ask(message).await
    }

    /// Sends an operation of version two that is answered only if it is refused.
    pub(super) fn tell(&mut self, operation: &Operation) {
        let message = self.operation(operation);
        self.told = Some(self.xid);
        self.send(message);
    }

    /// Says what we are, as ietf-07 has it. Each message that comes from then on is awaited.
    pub(super) fn introduce(&mut self, set: &PropertySet) {
        self.all = true;
        let xid = self.next_xid();
        let mut message = Buffer::default();
        emit_properties(&mut message, xid, WINDOW, true, set);
        self.send(message);
    }

    /// The next message, whatever it is.
    pub(super) async fn next_message(&mut self) -> Result<Buffer, NoAnswer> {
        let limit = self.limit;
        match timeout(limit, self.hear()).await {
            Ok(heard) => heard.map(|(message, _)| message),
            Err(_) => Err(NoAnswer::TimedOut(limit)),
        }
    }

    /// Answer to the operation that was sent, if there was one.
    pub(super) fn refusal(&mut self) -> Option<Buffer> {
        self.refusal.take()
    }

    fn operation(&mut self, operation: &Operation) -> Buffer {
        let xid = self.next_xid();
        let mut message = Buffer::default();
        operation.emit(&mut message, xid, self.credits, Direction::Call);
        message
    }

    /// Ends the connection in good order; the provider bounds how long that takes.
    pub(super) async fn close(mut self) {
        self.qp.close();
        let end = poll_fn(|cx| {
            let moved = self.qp.progress();
            while self.qp.poll_cq().is_some() {}
            if self.qp.closed().is_some() {
                return Poll::Ready(());
            }
            if moved || self.qp.poll_ready(cx).is_ready() {
                cx.waker().wake_by_ref();
            }
            Poll::Pending
        });
        // Whether the peer closes too in time, or not, it was told.
        let _ = timeout(self.limit, end).await;
    }

    fn next_xid(&mut self) -> u32 {
        self.xid = self.xid.wrapping_add(1);
        self.xid
    }

    /// Sends a message and waits for one with the same XID.
    async fn ask(&mut self, message: Buffer) -> Result<Heard, NoAnswer> {
        let limit = self.limit;
        let begin = Instant::now();
        self.send(message);
        match timeout(limit, self.hear()).await {
            Ok(Ok((message, invalidated))) => Ok(Heard {
                xid: self.xid,
                message,
                took: begin.elapsed(),
                invalidated,
            }),
            Ok(Err(no_answer)) => Err(no_answer),
            Err(_) => Err(NoAnswer::TimedOut(limit)),
        }
    }

    fn send(&mut self, message: Buffer) {
        self.post(WorkRequest::Send {
            wr: WrId(0),
            buffer: message,
            rest: Gather::new(),
            invalidate: None,
        });
    }

    fn post(&mut self, work: WorkRequest) {
        // There is: one or two Sends at a time, and a Receive only in the place of another.
        self.qp.post(work).expect("there is room for one more");
    }

    /// Waits for a message with the last XID.
    async fn hear(&mut self) -> Result<(Buffer, Option<Handle>), NoAnswer> {
        poll_fn(|cx| {
            let moved = self.qp.progress();
            while let Some(completion) = self.qp.poll_cq() {
                if let Some(answer) = self.handle_completion(completion) {
                    return Poll::Ready(Ok(answer));
                }
            }
            if let Some(foreign) = self.foreign {
                return Poll::Ready(Err(NoAnswer::OtherDraft(foreign)));
            }
            if let Some(reason) = self.qp.closed() {
                return Poll::Ready(Err(NoAnswer::Closed(reason.clone())));
            }
            // A peer that goes on talking does not keep the time from passing.
            if moved || self.qp.poll_ready(cx).is_ready() {
                cx.waker().wake_by_ref();
            }
            Poll::Pending
        })
        .await
    }

    fn handle_completion(&mut self, completion: Completion) -> Option<(Buffer, Option<Handle>)> {
        match completion {
            Completion::Receive {
                buffer,
                invalidated,
                ..
            } => {
                self.post(receive(self.receive_size));
                if self.all {
                    return Some((buffer, invalidated.map(|ours| ours.handle)));
                }
                if buffer.first_chunk() == Some(&self.xid.to_be_bytes()) {
                    return Some((buffer, invalidated.map(|ours| ours.handle)));
                }
                let xid = buffer.first_chunk().copied().map(u32::from_be_bytes);
                if xid.is_some() && xid == self.told {
                    self.refusal = Some(buffer);
                } else {
                    self.strays += 1;
                    let foreign = Foreign::in_message(Dialect::Cel01, &buffer);
                    let of_header = |foreign: &Foreign| matches!(foreign, Foreign::HeaderType(_));
                    self.foreign = foreign.filter(|foreign| self.two && of_header(foreign));
                }
                None
            }
            // What failed has ended the connection, which says why.
            Completion::Send { .. }
            | Completion::Write { .. }
            | Completion::Read { .. }
            | Completion::Invalidate { .. }
            | Completion::Failed { .. } => None,
        }
    }
}
