//! RPC server over TCP.

use crate::record::{self, Decoder};
use buffer::Buffer;
use oncrpc::admission::{Admission, Admitted, ConnectionLimits};
use oncrpc::warnings::{Suppressed, WARNING_PERIOD, Warnings};
use oncrpc::xdr::Payload;
use oncrpc::{
    Answer, Caller, Chain, ConnectionId, Connections, LocalUserError, LocalUsers, Origin,
    PeerGroup, Reply, Respond, Service,
};
use socket2::{SockRef, TcpKeepalive};
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Limits and timeouts of a [`Server`].
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest number of connections at a time. A further one evicts the [least
    /// useful](oncrpc::admission) connection that waits for its client, or is closed at once if
    /// there is none.
    pub connections: usize,
    /// Largest number of connections from one address at a time. An IPv6 /64 counts as one address,
    /// and so does a [user of this machine](PeerGroup).
    pub connections_of_address: usize,
    /// Largest size of a call in bytes.
    pub record: usize,
    /// Largest number of calls of one connection in service at a time. Further ones wait in the
    /// socket.
    pub calls: usize,
    /// How long a connection may be silent.
    pub idle: Duration,
    /// How long a client may take to send one call, from its first byte to its last. Needed beside
    /// `idle`, because a client that sends byte by byte is never silent.
    pub receive: Duration,
    /// How long a client may take to accept a reply.
    pub write: Duration,
}

impl Default for Limits {
    /// Enough for MOUNT and the like.
    fn default() -> Self {
        Self {
            connections: 128,
            connections_of_address: 64,
            record: 64 << 10,
            calls: 16,
            idle: Duration::from_secs(300),
            receive: Duration::from_secs(30),
            write: Duration::from_secs(30),
        }
    }
}

/// Interval of checks whether evicted connections have ended.
const LEAVING_PAUSE: Duration = Duration::from_millis(5);

/// Pause after a failed accept, for instance when no file descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a connection may be silent before TCP sends a keepalive probe.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);

/// Interval of keepalive probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// Number of unanswered keepalive probes after which the connection is closed.
const KEEPALIVE_PROBES: u32 = 3;

/// Serves one [`Service`] to TCP clients.
pub struct Server {
    listener: TcpListener,
    service: Arc<dyn Service>,
    limits: Limits,
    admit: Box<dyn Fn(IpAddr) -> bool + Send + Sync>,
    local_users: Option<Arc<dyn LocalUsers>>,
    connections: Option<Connections>,
}

impl Server {
    /// Creates a server that admits every client.
    pub fn new(listener: TcpListener, service: Arc<dyn Service>, limits: Limits) -> Self {
        Self {
            listener,
            service,
            limits,
            admit: Box::new(|_| true),
            local_users: None,
            connections: None,
        }
    }

    /// Restricts the server to addresses that `admit` accepts. Connections from others are closed
    /// at once.
    #[must_use]
    pub fn admit(mut self, admit: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        self.admit = Box::new(admit);
        self
    }

    /// Identifies clients on this machine with `users`: each then speaks for itself only.
    #[must_use]
    pub fn local_users(mut self, users: Option<Arc<dyn LocalUsers>>) -> Self {
        self.local_users = users;
        self
    }

    /// Registers its connections, so that the service can close them.
    #[must_use]
    pub fn connections(mut self, connections: Connections) -> Self {
        self.connections = Some(connections);
        self
    }

    /// The address on which it listens.
    ///
    /// # Errors
    ///
    /// If the system cannot tell.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` is ready, then finishes the calls in service and returns.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let limits =
            ConnectionLimits::new(self.limits.connections, self.limits.connections_of_address);
        let admission = Admission::new(limits.with_idle_giving_way());
        let log = Arc::new(Log::default());
        let (stopping, stopped) = watch::channel(false);
        let mut connections = JoinSet::new();
        tokio::pin!(stop);
        loop {
            let accepted = tokio::select! {
                () = &mut stop => break,
                Some(_) = connections.join_next(), if !connections.is_empty() => continue,
                () = log.summary_is_due() => {
                    log.summarise(Instant::now());
                    continue;
                }
                () = tokio::time::sleep(LEAVING_PAUSE), if admission.is_crowded() => continue,
                accepted = self.listener.accept(), if !admission.is_crowded() => accepted,
            };
            let (stream, addr) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            if !(self.admit)(addr.ip()) {
                if log.may_warn(PeerGroup::of(addr.ip())) {
                    tracing::warn!(%addr, "refused a connection from an address that is not allowed");
                }
                continue;
            }
            let caller = match self.origin(&stream, addr) {
                Ok(origin) => Caller::new(addr).from(origin),
                Err(error) => {
                    if log.may_warn(error.group()) {
                        tracing::warn!(%addr, error = %Chain(&error), "refused a connection");
                    }
                    continue;
                }
            };
            let (evict, evicted) = oneshot::channel();
            // The send fails only if the connection has already ended.
            let evict = || {
                let _ = evict.send(());
            };
            let admitted = match admission.admit(caller.group, evict) {
                Ok(admitted) => admitted,
                Err(why) => {
                    if log.may_warn(caller.group) {
                        tracing::warn!(%addr, "refused a connection: {why}");
                    }
                    continue;
                }
            };
            let connection = Connection {
                service: Arc::clone(&self.service),
                caller,
                limits: self.limits,
                running: JoinSet::new(),
                calls: 0,
                admitted,
                log: Arc::clone(&log),
            };
            let stopped = stopped.clone();
            let (close, closed) = oneshot::channel();
            let open = self.connections.as_ref().map(|connections| {
                connections.add(caller.connection, || {
                    // The send fails only if the connection has already ended.
                    let _ = close.send(());
                })
            });
            let ending = Ending {
                service: Arc::clone(&self.service),
                connection: caller.connection,
            };
            connections.spawn(async move {
                let ended = tokio::select! {
                    biased;
                    ended = connection.serve(stream, stopped) => ended,
                    Ok(()) = evicted => Err(io::Error::other(Evicted)),
                    Ok(()) = closed => Err(io::Error::other(ByService)),
                };
                tracing::debug!(%addr, ?ended, "connection ended");
                drop(open);
                drop(ending);
            });
        }
        drop(self.listener);
        // Logs the summaries that are still due.
        log.summarise(Instant::now() + WARNING_PERIOD);
        // The send fails only if all connections have ended.
        let _ = stopping.send(true);
        while connections.join_next().await.is_some() {}
    }

    /// Returns the origin of a client, if the server distinguishes local users.
    fn origin(&self, stream: &TcpStream, peer: SocketAddr) -> Result<Origin, LocalUserError> {
        match &self.local_users {
            Some(users) => {
                let local = stream.local_addr().map_err(LocalUserError::Unavailable)?;
                users.find(local, peer)
            }
            None => Ok(Origin::Remote),
        }
    }
}

/// Why an evicted connection ended.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("evicted for a connection from an address with fewer connections")]
struct Evicted;

/// Why a connection ended that the service has closed.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("closed by the service")]
struct ByService;

/// Tells the service that a connection has ended, when it is dropped: also after a panic of the
/// service.
struct Ending {
    service: Arc<dyn Service>,
    connection: ConnectionId,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.service.connection_ended(self.connection);
    }
}

/// Warnings of a server, limited per peer.
#[derive(Default)]
struct Log {
    warnings: Warnings,
    /// Signalled when a warning was suppressed, so that a summary is due.
    suppressed: Notify,
}

impl Log {
    fn may_warn(&self, peer: PeerGroup) -> bool {
        let allowed = self.warnings.allows(peer, Instant::now().into_std());
        if !allowed {
            self.suppressed.notify_one();
        }
        allowed
    }

    async fn summary_is_due(&self) {
        loop {
            if let Some(due) = self.warnings.next_summary() {
                return tokio::time::sleep_until(due.into()).await;
            }
            self.suppressed.notified().await;
        }
    }

    /// Logs how many warnings were not logged in periods that are over by `now`.
    fn summarise(&self, now: Instant) {
        for Suppressed { peer, count } in self.warnings.summary(now.into_std()) {
            match peer {
                Some(peer) => tracing::warn!(%peer, count, "further warnings about this peer"),
                None => tracing::warn!(count, "further warnings about many peers"),
            }
        }
    }
}

/// State of the task of a connection.
struct Connection {
    service: Arc<dyn Service>,
    caller: Caller,
    limits: Limits,
    running: JoinSet<Reply>,
    /// Number of complete calls received.
    calls: u64,
    admitted: Admitted,
    log: Arc<Log>,
}

/// Received bytes that are not decoded yet.
struct Input {
    bytes: Box<[u8]>,
    at: usize,
    end: usize,
}

impl Connection {
    async fn serve(
        mut self,
        stream: TcpStream,
        mut stopped: watch::Receiver<bool>,
    ) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let keepalive = TcpKeepalive::new()
            .with_time(KEEPALIVE_AFTER)
            .with_interval(KEEPALIVE_INTERVAL)
            .with_retries(KEEPALIVE_PROBES);
        SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
        let (mut from_client, mut to_client) = stream.into_split();
        let mut decoder = Decoder::new(self.limits.record);
        let mut input = Input {
            bytes: vec![0; super::READ_SIZE].into(),
            at: 0,
            end: 0,
        };
        let mut draining = *stopped.borrow();
        // Number of calls before an incomplete one, and the deadline for its rest.
        let mut begun: Option<(u64, Instant)> = None;
        loop {
            self.answer_all(&mut decoder, &mut input, &mut to_client)
                .await?;
            if !self.admitted.set_in_use(!self.running.is_empty()) {
                return Err(io::Error::other(Evicted));
            }
            if draining && self.running.is_empty() {
                return Ok(());
            }
            // Reads more only after all received bytes are decoded, which needs room for a call.
            let room = !draining && input.at == input.end;
            let until = match begun {
                _ if !room || decoder.is_between_records() => None,
                Some((calls, until)) if calls == self.calls => Some(until),
                Some(_) | None => Some(Instant::now() + self.limits.receive),
            };
            begun = until.map(|until| (self.calls, until));
            tokio::select! {
                Some(reply) = self.running.join_next(), if !self.running.is_empty() => {
                    // After a panic, which its hook has reported, the call stays unanswered.
                    if let Ok(reply) = reply {
                        self.send(reply, &mut to_client).await?;
                    }
                }
                more = input.read(&mut from_client), if room => {
                    if !more? {
                        return self.finish(&mut to_client).await;
                    }
                }
                _ = stopped.changed(), if !draining => draining = true,
                () = tokio::time::sleep(self.limits.idle), if self.running.is_empty() => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                () = reached(until), if until.is_some() => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
        }
    }

    /// Serves received calls, up to the limit of calls at a time.
    async fn answer_all(
        &mut self,
        decoder: &mut Decoder,
        input: &mut Input,
        to_client: &mut OwnedWriteHalf,
    ) -> io::Result<()> {
        while self.running.len() < self.limits.calls {
            let mut rest = &input.bytes[input.at..input.end];
            let decoded = decoder.decode(&mut rest);
            input.at = input.end - rest.len();
            let call = match decoded {
                Ok(Some(call)) => {
                    if self.calls == 0 {
                        self.admitted.set_up();
                    }
                    self.calls += 1;
                    if !self.admitted.set_in_use(true) {
                        return Err(io::Error::other(Evicted));
                    }
                    call
                }
                Ok(None) => return Ok(()),
                Err(error) => {
                    if self.log.may_warn(self.caller.group) {
                        tracing::warn!(addr = %self.caller.addr, %error, "RFC 5531 §11: bad record");
                    }
                    return Err(io::Error::new(io::ErrorKind::InvalidData, error));
                }
            };
            self.answer(call, to_client).await?;
        }
        Ok(())
    }

    async fn answer(&mut self, call: Payload, to_client: &mut OwnedWriteHalf) -> io::Result<()> {
        match self.service.call(call, &self.caller) {
            Answer::Now(reply) => self.send(reply, to_client).await?,
            Answer::Blocking(work) => {
                self.running.spawn_blocking(work);
            }
            Answer::Deferred(work) => {
                let (done, reply) = oneshot::channel();
                let respond = Respond::new(move |reply| drop(done.send(reply)));
                tokio::task::spawn_blocking(move || work(respond));
                let reply = async { reply.await.ok().flatten().unwrap_or(Reply::Nothing) };
                self.running.spawn(reply);
            }
            Answer::Later(work) => {
                self.running.spawn(work);
            }
        }
        Ok(())
    }

    /// Answers the calls in service after the client has closed its direction.
    async fn finish(mut self, to_client: &mut OwnedWriteHalf) -> io::Result<()> {
        while let Some(reply) = self.running.join_next().await {
            if let Ok(reply) = reply {
                self.send(reply, to_client).await?;
            }
        }
        Ok(())
    }

    /// Sends a reply. While the client does not read it, the connection can be evicted.
    async fn send(&mut self, reply: Reply, to_client: &mut OwnedWriteHalf) -> io::Result<()> {
        let message = match reply {
            Reply::Message(message) => message,
            // Calls over TCP have no by-reference items, so that no item can be ineligible.
            Reply::Nothing | Reply::Ineligible => return Ok(()),
        };
        let mut record = Buffer::default();
        record::encode(&message, &mut record);
        let sent = match to_client.try_write(&record) {
            Ok(sent) => sent,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error),
        };
        if sent == record.len() {
            return Ok(());
        }
        if !self.admitted.set_in_use(false) {
            return Err(io::Error::other(Evicted));
        }
        let rest = to_client.write_all(&record[sent..]);
        tokio::time::timeout(self.limits.write, rest).await??;
        match self.admitted.set_in_use(true) {
            true => Ok(()),
            false => Err(io::Error::other(Evicted)),
        }
    }
}

/// Waits for a point in time, or for ever.
async fn reached(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}

impl Input {
    /// Reads more bytes after all are decoded; returns false at the end of the stream.
    async fn read(&mut self, from_client: &mut OwnedReadHalf) -> io::Result<bool> {
        let len = from_client.read(&mut self.bytes).await?;
        self.at = 0;
        self.end = len;
        Ok(len > 0)
    }
}
