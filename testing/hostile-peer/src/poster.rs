//! A client that posts work requests by itself, over any provider.

use crate::{Target, as_words};
use buffer::{Buffer, Gather};
use bytes::Bytes;
use smallvec::smallvec;
use std::time::Duration;
use tokio::runtime::Runtime;
use verbs::{
    Completion, Handle, Memory, QpOptions, QueuePair, RemoteAddress, Segment, SetupError,
    WorkRequest, WrId,
};

/// Timeout for what should arrive at once, so that a test fails instead of hanging.
const PATIENCE: Duration = Duration::from_secs(60);

/// Receives that are posted at first.
const RECEIVES: usize = 32;

/// Bytes of each: as many as a server of ours sends inline.
const RECEIVE_SIZE: usize = 4096;

/// One end of a connection, all of whose work requests are the test's.
pub struct Poster {
    qp: Box<dyn QueuePair>,
    /// The private data of the server's reply.
    pub private_data: Vec<u8>,
    runtime: Runtime,
}

/// Outcome of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// A message.
    Message(Vec<u8>),
    /// The end of the connection.
    End,
}

impl Poster {
    /// Connects with this private data.
    ///
    /// # Errors
    ///
    /// The server refuses, or the provider does not connect.
    pub fn connect(to: &Target, private_data: &[u8]) -> Result<Self, SetupError> {
        Self::with_receives(to, private_data, RECEIVES)
    }

    /// Connects, and posts so many Receives.
    ///
    /// # Errors
    ///
    /// The server refuses, or the provider does not connect.
    ///
    /// # Panics
    ///
    /// If there is no runtime; all methods here panic if the server does not do what it should.
    pub fn with_receives(
        to: &Target,
        private_data: &[u8],
        receives: usize,
    ) -> Result<Self, SetupError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let options = QpOptions::default()
            .with_receives(RECEIVES)
            .with_receive_size(RECEIVE_SIZE)
            .with_setup_timeout(PATIENCE);
        let receive = |_| WorkRequest::Receive {
            wr: WrId(0),
            buffer: Buffer::with_capacity(RECEIVE_SIZE),
        };
        let receives = (0..receives).map(receive).collect();
        let connecting = to
            .provider()
            .connect(to.addr(), &options, private_data, receives);
        let connected = runtime.block_on(connecting)?;
        Ok(Self {
            qp: connected.qp,
            private_data: connected.private_data,
            runtime,
        })
    }

    /// Registers bytes that the server may read.
    pub fn source(&mut self, bytes: &[u8]) -> RemoteAddress {
        let memory = Memory::Source(Gather::from_iter([Bytes::copy_from_slice(bytes)]));
        self.qp.register(memory).expect("there is room")
    }

    /// Registers so many bytes that the server may write.
    pub fn sink(&mut self, length: usize) -> RemoteAddress {
        let memory = Memory::Sink(Buffer::with_capacity(length));
        self.qp.register(memory).expect("there is room")
    }

    /// Sends a message.
    pub fn send(&mut self, message: &[u8]) {
        self.send_and_take(message, None);
    }

    /// Sends a message that invalidates a handle of the server.
    pub fn send_and_invalidate(&mut self, message: &[u8], handle: Handle) {
        self.send_and_take(message, Some(handle));
    }

    fn send_and_take(&mut self, message: &[u8], invalidate: Option<Handle>) {
        self.post(WorkRequest::Send {
            wr: WrId(1),
            buffer: Buffer::from(message.to_vec()),
            rest: Gather::new(),
            invalidate: invalidate.map(Into::into),
        });
    }

    /// Reads memory of the server.
    pub fn read(&mut self, from: Segment) {
        self.post(WorkRequest::Read {
            wr: WrId(2),
            sink: Buffer::with_capacity(from.length as usize),
            from: smallvec![from],
        });
    }

    /// Writes to memory of the server.
    pub fn write(&mut self, to: RemoteAddress, bytes: &[u8]) {
        self.post(WorkRequest::Write {
            wr: WrId(3),
            source: Gather::from_iter([Bytes::copy_from_slice(bytes)]),
            to,
        });
    }

    /// Posts work. While the queue is full, what has completed is taken out of it.
    fn post(&mut self, mut work: WorkRequest) {
        let (qp, runtime) = (&mut self.qp, &self.runtime);
        let posting = async {
            loop {
                match qp.post(work) {
                    Ok(()) => break,
                    Err(full) => work = full.into_work(),
                }
                if !qp.progress() {
                    std::future::poll_fn(|cx| qp.poll_ready(cx)).await;
                }
                while let Some(completion) = qp.poll_cq() {
                    // A message that nobody waits for makes room for the next.
                    if let Completion::Receive { buffer, .. } = completion {
                        post_again(&mut **qp, buffer);
                    }
                }
            }
            qp.progress();
        };
        runtime.block_on(async {
            let posted = tokio::time::timeout(PATIENCE, posting).await;
            posted.expect("work is done in time");
        });
    }

    /// The next message of the server, or the end of the connection.
    pub fn hear(&mut self) -> Told {
        let (qp, runtime) = (&mut self.qp, &self.runtime);
        let hearing = async {
            loop {
                let moved = qp.progress();
                while let Some(completion) = qp.poll_cq() {
                    if let Completion::Receive { buffer, .. } = completion {
                        let message = buffer.to_vec();
                        post_again(&mut **qp, buffer);
                        return Told::Message(message);
                    }
                }
                if qp.closed().is_some() {
                    return Told::End;
                }
                if !moved {
                    std::future::poll_fn(|cx| qp.poll_ready(cx)).await;
                }
            }
        };
        runtime.block_on(async {
            let heard = tokio::time::timeout(PATIENCE, hearing).await;
            heard.expect("the server answers or ends the connection in time")
        })
    }

    /// The next message, which there must be, in words.
    #[track_caller]
    pub fn answer(&mut self) -> Vec<u32> {
        match self.hear() {
            Told::Message(bytes) => as_words(&bytes),
            Told::End => panic!(
                "the connection ended instead of an answer: {:?}",
                self.qp.closed()
            ),
        }
    }
}

/// Posts a Receive again. On a connection that has ended it is of no use, and harms nobody.
fn post_again(qp: &mut dyn QueuePair, mut buffer: Buffer) {
    buffer.clear();
    let wr = WrId(0);
    let posted = qp.post(WorkRequest::Receive { wr, buffer });
    posted.expect("one was taken out");
}
