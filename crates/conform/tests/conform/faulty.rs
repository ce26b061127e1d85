//! A provider whose messages, memory and private data are changed on their way.

use buffer::{Buffer, Gather};
use bytes::Bytes;
use rpcrdma::Iwarp;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;
use verbs::{
    BoxFuture, Completion, Connected, Handle, Incoming, Limits, Listener, PostError, QpOptions,
    QueuePair, RemoteAddress, SetupError, WorkRequest, WrId, WrapProvider, WrapQueuePair,
};

/// Changes to what one end does. Each is `None` where nothing is changed.
#[derive(Clone, Copy, Default)]
pub(crate) struct Faults {
    /// To a message that it sends, in words.
    pub(crate) sent: Option<fn(&mut Vec<u32>)>,
    /// To a message that it receives.
    pub(crate) received: Option<fn(&mut Vec<u8>)>,
    /// To the handle that it invalidates.
    pub(crate) invalidated: Option<fn(u32) -> u32>,
    /// To data that it writes.
    pub(crate) written: Option<fn(&mut Vec<u8>)>,
    /// To its private data.
    pub(crate) said: Option<fn(&mut Vec<u8>)>,
    /// To the private data that it is told.
    pub(crate) told: Option<fn(&mut Vec<u8>)>,
    /// It writes to the first Write chunk of each reply before it sends that.
    pub(crate) scribbles: bool,
}

impl Faults {
    pub(crate) fn sending(sent: fn(&mut Vec<u32>)) -> Self {
        Self {
            sent: Some(sent),
            ..Self::default()
        }
    }

    pub(crate) fn receiving(received: fn(&mut Vec<u8>)) -> Self {
        Self {
            received: Some(received),
            ..Self::default()
        }
    }
}

/// The number of a Write that the server knows nothing of.
const SCRIBBLE: WrId = WrId(u64::MAX);

/// Memory that the first segment of the first Write chunk names, in a message of version one without a Read list.
fn first_write_chunk(message: &[u32]) -> Option<RemoteAddress> {
    match *message {
        [_, 1, _, 0, 0, 1, count, handle, _, high, low, ..] if count > 0 => Some(RemoteAddress {
            handle: Handle(handle),
            offset: u64::from(high) << 32 | u64::from(low),
        }),
        _ => None,
    }
}

/// Software iWARP with such faults.
pub(crate) struct Faulty {
    inner: Iwarp,
    faults: Faults,
}

impl Faulty {
    pub(crate) fn with(faults: Faults) -> Arc<Self> {
        let inner = Iwarp::default();
        Arc::new(Self { inner, faults })
    }
}

fn changed(bytes: &[u8], change: Option<fn(&mut Vec<u8>)>) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if let Some(change) = change {
        change(&mut bytes);
    }
    bytes
}

impl WrapProvider for Faulty {
    type Inner = Iwarp;

    fn inner(&self) -> &Iwarp {
        &self.inner
    }

    fn wrap_limits(&self) -> Limits {
        // Each message in a Receive of its own, so that it can be changed.
        Limits {
            shared_receives: false,
            ..verbs::Provider::limits(&self.inner)
        }
    }

    fn wrap_connect<'a>(
        &'a self,
        to: SocketAddr,
        options: &'a QpOptions,
        private_data: &'a [u8],
        receives: Vec<WorkRequest>,
    ) -> BoxFuture<'a, Result<Connected, SetupError>> {
        Box::pin(async move {
            let said = changed(private_data, self.faults.said);
            let connecting = verbs::Provider::connect(&self.inner, to, options, &said, receives);
            let connected = connecting.await?;
            Ok(Connected {
                qp: Box::new(Qp(connected.qp, self.faults)),
                private_data: changed(&connected.private_data, self.faults.told),
            })
        })
    }

    fn wrap_listen<'a>(
        &'a self,
        on: SocketAddr,
    ) -> BoxFuture<'a, Result<Box<dyn Listener>, SetupError>> {
        Box::pin(async move {
            let inner = verbs::Provider::listen(&self.inner, on).await?;
            Ok(Box::new(Listening(inner, self.faults)) as Box<dyn Listener>)
        })
    }
}

struct Listening(Box<dyn Listener>, Faults);

impl Listener for Listening {
    fn local_addr(&self) -> SocketAddr {
        self.0.local_addr()
    }

    fn accept(&mut self) -> BoxFuture<'_, Result<Box<dyn Incoming>, SetupError>> {
        Box::pin(async move {
            let inner = self.0.accept().await?;
            Ok(Box::new(Arriving(inner, self.1)) as Box<dyn Incoming>)
        })
    }
}

struct Arriving(Box<dyn Incoming>, Faults);

impl Incoming for Arriving {
    fn peer_addr(&self) -> SocketAddr {
        self.0.peer_addr()
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.0.socket()
    }

    fn request<'a>(&'a mut self, timeout: Duration) -> BoxFuture<'a, Result<Vec<u8>, SetupError>> {
        Box::pin(async move {
            let data = self.0.request(timeout).await?;
            Ok(changed(&data, self.1.told))
        })
    }

    fn accept<'a>(
        self: Box<Self>,
        options: &'a QpOptions,
        private_data: &'a [u8],
        receives: Vec<WorkRequest>,
    ) -> BoxFuture<'a, Result<Box<dyn QueuePair>, SetupError>>
    where
        Self: 'a,
    {
        Box::pin(async move {
            let said = changed(private_data, self.1.said);
            let qp = self.0.accept(options, &said, receives).await?;
            Ok(Box::new(Qp(qp, self.1)) as Box<dyn QueuePair>)
        })
    }

    fn reject<'a>(self: Box<Self>, private_data: &'a [u8]) -> BoxFuture<'a, ()>
    where
        Self: 'a,
    {
        self.0.reject(private_data)
    }
}

struct Qp(Box<dyn QueuePair>, Faults);

impl WrapQueuePair for Qp {
    type Inner = dyn QueuePair;

    fn inner(&self) -> &Self::Inner {
        &*self.0
    }

    fn inner_mut(&mut self) -> &mut Self::Inner {
        &mut *self.0
    }

    fn wrap_post(&mut self, work: WorkRequest) -> Result<(), PostError> {
        let work = match work {
            WorkRequest::Send {
                wr,
                buffer,
                rest,
                invalidate,
            } => {
                let whole = [&buffer[..], &rest.concat()].concat();
                let mut words = conform::as_words(&whole);
                if let Some(change) = self.1.sent {
                    change(&mut words);
                }
                if let Some(to) = first_write_chunk(&words).filter(|_| self.1.scribbles) {
                    let source = Gather::from_iter([Bytes::from_static(b"scribble")]);
                    let wr = SCRIBBLE;
                    self.0.post(WorkRequest::Write { wr, source, to })?;
                }
                let handle =
                    |Handle(handle)| Handle(self.1.invalidated.map_or(handle, |f| f(handle)));
                WorkRequest::Send {
                    wr,
                    buffer: Buffer::from(conform::words(&words)),
                    rest: Gather::new(),
                    invalidate: invalidate.map(|handles| handle(handles.first()).into()),
                }
            }
            WorkRequest::Write { wr, source, to } => {
                let data = changed(&source.concat(), self.1.written);
                WorkRequest::Write {
                    wr,
                    source: Gather::from_iter([Bytes::from(data)]),
                    to,
                }
            }
            other => other,
        };
        self.0.post(work)
    }

    fn wrap_poll_cq(&mut self) -> Option<Completion> {
        let mut completion = self.0.poll_cq();
        while let Some(Completion::Write { wr: SCRIBBLE, .. }) = &completion {
            completion = self.0.poll_cq();
        }
        if let Some(Completion::Receive { buffer, .. }) = &mut completion
            && let Some(change) = self.1.received
        {
            let mut bytes = buffer.to_vec();
            change(&mut bytes);
            buffer.clear();
            buffer.extend_from_slice(&bytes);
        }
        completion
    }
}
