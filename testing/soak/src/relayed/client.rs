//! A client over TCP that connects again, as NFS clients do, and may take callbacks.

use super::session;
use crate::dice::Dice;
use crate::wires::Wires;
use buffer::Buffer;
use gateway::MAX_RECORD;
use oncrpc::xdr::{Payload, Reader};
use oncrpc::{ReplyBound, Service, Transport, TransportError};
use oncrpc_tcp::ClientConfig;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Longest pause before another attempt, in milliseconds.
const PAUSE: usize = 1000;

/// A client with one connection at a time. A call that is in flight when that ends is sent again over
/// the next one, with its XID, until its time is up. Clones share the connection.
#[derive(Clone)]
pub(crate) struct TcpClient {
    shared: Arc<Shared>,
}

struct Shared {
    wires: Wires,
    from: SocketAddr,
    to: SocketAddr,
    timeout: Duration,
    /// XIDs, which no two clients of a run share: behind the gateways they have one address.
    xids: Arc<AtomicU32>,
    /// The number of the client and its service, if it takes callbacks.
    callbacks: Option<(usize, Arc<dyn Service>)>,
    /// The connection that was made last. Its lock is held while the next one is made.
    present: tokio::sync::Mutex<Option<Arc<oncrpc_tcp::Client>>>,
    state: Mutex<State>,
}

struct State {
    dice: Dice,
    /// How often a call was sent, by its XID.
    sent: HashMap<u32, u32>,
}

impl TcpClient {
    pub(crate) fn new(
        wires: &Wires,
        (from, to): (SocketAddr, SocketAddr),
        timeout: Duration,
        xids: &Arc<AtomicU32>,
        callbacks: Option<(usize, Arc<dyn Service>)>,
        dice: Dice,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                wires: wires.clone(),
                from,
                to,
                timeout,
                xids: Arc::clone(xids),
                callbacks,
                present: tokio::sync::Mutex::default(),
                state: Mutex::new(State {
                    dice,
                    sent: HashMap::new(),
                }),
            }),
        }
    }

    /// How often the call with this XID was sent.
    pub(crate) fn sent(&self, xid: u32) -> u32 {
        self.shared.lock().sent.get(&xid).copied().unwrap_or(0)
    }

    /// Closes the connection.
    pub(crate) async fn close(&self) {
        *self.shared.present.lock().await = None;
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pause(&self) -> Duration {
        self.lock().dice.milliseconds(PAUSE)
    }

    /// A connection other than that which is over.
    async fn connection(&self, over: Option<&Arc<oncrpc_tcp::Client>>) -> Arc<oncrpc_tcp::Client> {
        let mut present = self.present.lock().await;
        if let Some(client) = &*present
            && !over.is_some_and(|over| Arc::ptr_eq(client, over))
        {
            return Arc::clone(client);
        }
        loop {
            if let Ok(stream) = self.wires.connect(self.from, self.to).await {
                let config = ClientConfig::new(self.timeout).with_max_record(MAX_RECORD);
                let config = match &self.callbacks {
                    Some((_, callbacks)) => config.with_callbacks(Arc::clone(callbacks)),
                    None => config,
                };
                let client = Arc::new(oncrpc_tcp::Client::over_with(stream, &config));
                if self.declare(&client).await {
                    return Arc::clone(present.insert(client));
                }
            }
            tokio::time::sleep(self.pause()).await;
        }
    }

    /// Says on a new connection that the client takes callbacks, if it does. Returns whether the
    /// server has taken that.
    async fn declare(&self, client: &oncrpc_tcp::Client) -> bool {
        let Some((number, _)) = self.callbacks else {
            return true;
        };
        let xid = self.xids.fetch_add(1, Relaxed);
        let creates = self.lock().dice.coin();
        let declaration = session::declaration(xid, number, creates);
        let reply = client.call(declaration, ReplyBound::default()).await;
        reply.is_ok_and(|reply| session::is_taken(&reply, xid))
    }

    async fn exchange(&self, xid: u32, call: &[u8]) -> Result<Payload, TransportError> {
        let mut over = None;
        loop {
            let client = self.connection(over.as_ref()).await;
            *self.lock().sent.entry(xid).or_default() += 1;
            let message = Payload::new(Buffer::from(call.to_vec()), 0);
            match client.call(message, ReplyBound::default()).await {
                Err(TransportError::Disconnected(_)) => {}
                done => return done,
            }
            over = Some(client);
            tokio::time::sleep(self.pause()).await;
        }
    }
}

impl Transport for TcpClient {
    fn next_xid(&self) -> u32 {
        self.shared.xids.fetch_add(1, Relaxed)
    }

    async fn call(&self, call: Payload, _: ReplyBound) -> Result<Payload, TransportError> {
        let mut bytes = Vec::with_capacity(call.stream_len());
        call.visit_stream(0, |part| bytes.extend_from_slice(part));
        let xid = Reader::from(&call).u32().unwrap_or(0);
        let shared = &self.shared;
        let until = Instant::now() + shared.timeout;
        let exchanged = tokio::time::timeout_at(until, shared.exchange(xid, &bytes)).await;
        exchanged.unwrap_or(Err(TransportError::TimedOut(shared.timeout)))
    }
}
