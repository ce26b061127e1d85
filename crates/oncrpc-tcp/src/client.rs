//! RPC client over a byte stream.

use crate::record::{self, Decoder, RecordError};
use buffer::Buffer;
use oncrpc::xdr::{Payload, Reader};
use oncrpc::{Cause, ReplyBound, Transport, TransportError};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

/// Most bytes of a reply: above the largest NFS READ in use, with room for its header.
const MAX_REPLY: usize = (4 << 20) + 4096;

/// Calls that wait to be written before further ones wait to be accepted.
const QUEUE: usize = 32;

/// One connection to a server, over which any number of calls are in flight at once.
///
/// It does not reconnect: once the connection has ended, every call fails with
/// [`TransportError::Disconnected`].
#[derive(Debug)]
pub struct Client {
    calls: mpsc::Sender<Buffer>,
    waiting: Arc<Waiting>,
    xid: AtomicU32,
    deadline: Duration,
    tasks: [AbortHandle; 2],
}

/// A failed connection to a server. Its source is the error of the system.
#[derive(Debug, thiserror::Error)]
#[error("cannot connect to {what}")]
pub struct ConnectError {
    what: String,
    source: io::Error,
}

impl ConnectError {
    /// `what` is the address of the server, or the path of its socket.
    pub(crate) fn new(what: String, source: io::Error) -> Self {
        Self { what, source }
    }
}

/// Why a connection is over.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionEnd {
    /// The server closed it.
    #[error("the server closed it")]
    ByServer,
    /// The client was dropped.
    #[error("the connection is closed")]
    Closed,
    /// The system reported an error.
    #[error(transparent)]
    Io(io::Error),
    /// The server broke the record marks (RFC 5531 §11).
    #[error(transparent)]
    Record(RecordError),
}

/// Calls that wait for a reply, or why the connection has ended.
#[derive(Debug)]
struct Waiting(Mutex<Result<HashMap<u32, oneshot::Sender<Payload>>, Cause>>);

impl Client {
    /// Connects to a TCP server. `deadline` is the time limit for connecting and for each call.
    ///
    /// # Errors
    ///
    /// [`TransportError::Unreachable`] if nobody answers at that address.
    pub async fn connect(addr: SocketAddr, deadline: Duration) -> Result<Self, TransportError> {
        let unreachable = |source| {
            let error = ConnectError::new(addr.to_string(), source);
            TransportError::Unreachable(error.into())
        };
        let stream = tokio::time::timeout(deadline, TcpStream::connect(addr))
            .await
            .map_err(|_| unreachable(io::ErrorKind::TimedOut.into()))?
            .map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        Ok(Self::over(stream, deadline))
    }

    /// Makes a client over a connected stream, such as a Unix socket. `deadline` is the time limit
    /// of each call.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn over<S>(stream: S, deadline: Duration) -> Self
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (from_server, to_server) = tokio::io::split(stream);
        let (calls, queue) = mpsc::channel(QUEUE);
        let waiting = Arc::new(Waiting(Mutex::new(Ok(HashMap::new()))));
        let reader = tokio::spawn(read(from_server, Arc::clone(&waiting)));
        let writer = tokio::spawn(write(to_server, queue, Arc::clone(&waiting)));
        Self {
            calls,
            waiting,
            // The first XID differs from run to run, so that a server's memory of an earlier
            // one cannot answer this one's calls.
            xid: AtomicU32::new(seed()),
            deadline,
            tasks: [reader.abort_handle(), writer.abort_handle()],
        }
    }

    async fn exchange(&self, call: Payload) -> Result<Payload, TransportError> {
        let xid = Reader::from(&call)
            .u32()
            .expect("a call message begins with its XID");
        let (reply, answer) = oneshot::channel();
        let _registered = self.waiting.register(xid, reply)?;
        let mut record = Buffer::default();
        record::encode(&call, &mut record);
        drop(call);
        if self.calls.send(record).await.is_err() {
            return Err(self.waiting.why());
        }
        answer.await.map_err(|_| self.waiting.why())
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "any 32 bits of the hash do"
)]
fn seed() -> u32 {
    RandomState::new().hash_one(0) as u32
}

impl Transport for Client {
    fn next_xid(&self) -> u32 {
        loop {
            let xid = self.xid.fetch_add(1, Relaxed);
            match &*self.waiting.lock() {
                Ok(calls) if calls.contains_key(&xid) => {}
                Ok(_) | Err(_) => return xid,
            }
        }
    }

    async fn call(&self, call: Payload, _: ReplyBound) -> Result<Payload, TransportError> {
        tokio::time::timeout(self.deadline, self.exchange(call))
            .await
            .unwrap_or(Err(TransportError::TimedOut(self.deadline)))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Entry of a call among those that wait. Dropping it cancels the call.
struct Registered<'a> {
    waiting: &'a Waiting,
    xid: u32,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        if let Ok(calls) = &mut *self.waiting.lock() {
            calls.remove(&self.xid);
        }
    }
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Result<HashMap<u32, oneshot::Sender<Payload>>, Cause>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn register(
        &self,
        xid: u32,
        reply: oneshot::Sender<Payload>,
    ) -> Result<Registered<'_>, TransportError> {
        match &mut *self.lock() {
            Ok(calls) => match calls.entry(xid) {
                Entry::Occupied(_) => Err(TransportError::XidInUse(xid)),
                Entry::Vacant(place) => {
                    place.insert(reply);
                    Ok(Registered { waiting: self, xid })
                }
            },
            Err(why) => Err(TransportError::Disconnected(why.clone())),
        }
    }

    fn deliver(&self, reply: Payload) {
        let Ok(xid) = Reader::from(&reply).u32() else {
            return;
        };
        if let Ok(calls) = &mut *self.lock()
            && let Some(call) = calls.remove(&xid)
        {
            // If the call was cancelled meanwhile, the reply is dropped.
            let _ = call.send(reply);
        }
    }

    /// Fails all waiting calls, and all later ones, with a reason. The first reason is kept.
    fn close(&self, why: ConnectionEnd) {
        let mut state = self.lock();
        if state.is_ok() {
            *state = Err(why.into());
        }
    }

    fn why(&self) -> TransportError {
        TransportError::Disconnected(match &*self.lock() {
            Ok(_) => ConnectionEnd::Closed.into(),
            Err(why) => why.clone(),
        })
    }
}

async fn read(mut stream: impl AsyncRead + Unpin, waiting: Arc<Waiting>) {
    let mut decoder = Decoder::new(MAX_REPLY);
    let mut bytes = vec![0; super::READ_SIZE];
    let why = loop {
        let mut input = match stream.read(&mut bytes).await {
            Ok(0) => break ConnectionEnd::ByServer,
            Ok(len) => &bytes[..len],
            Err(error) => break ConnectionEnd::Io(error),
        };
        let end = loop {
            match decoder.decode(&mut input) {
                Ok(Some(reply)) => waiting.deliver(reply),
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        if let Some(error) = end {
            break ConnectionEnd::Record(error);
        }
    };
    waiting.close(why);
}

async fn write(
    mut stream: impl AsyncWrite + Unpin,
    mut calls: mpsc::Receiver<Buffer>,
    waiting: Arc<Waiting>,
) {
    while let Some(record) = calls.recv().await {
        let written: io::Result<()> = stream.write_all(&record).await;
        if let Err(error) = written {
            waiting.close(ConnectionEnd::Io(error));
            return;
        }
    }
}
