//! RPC server over TCP.

use crate::dispatch::Dispatch;
use crate::driver::{Driver, TimeLimits};
use crate::input::Input;
use crate::memory::Memory;
use crate::monitor::ServerMonitor;
use crate::record::Decoder;
use crate::shared::{Job, Shared};
use crate::source::{Accepted, IncomingStream, Sockets, Source};
use buffer::Pool;
use oncrpc::{
    Caller, Chain, Connections, LocalUserError, LocalUsers, OpenConnection, Origin, PeerGroup,
    Service,
};
use rpc_serving::admission::{Admission, ConnectionLimits};
use rpc_serving::backchannels::{Backchannels, OpenBackchannel};
use rpc_serving::ends::{End, Stop};
use rpc_serving::intake::Intake;
use rpc_serving::jobs::{Jobs, MAX_BLOCKING};
use rpc_serving::turns::EventLoop;
use rpc_serving::warning_log::WarningLog;
use rpc_serving::workers::{Worker, Workers};
use std::error::Error;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Limits and timeouts of a [`Server`].
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest number of connections at a time. A further one evicts the [least
    /// useful](rpc_serving::admission) connection that waits for its client, or is closed at once if
    /// there is none.
    pub connections: usize,
    /// Largest number of connections from one address at a time. An IPv6 /64 counts as one address,
    /// and so does a [user of this machine](PeerGroup).
    pub connections_of_address: usize,
    /// Largest size of a call in bytes.
    pub record: usize,
    /// Largest number of calls of one connection in service at a time, without those that [hang](rpc_serving::jobs).
    /// Further ones wait in the socket.
    pub calls: usize,
    /// Bytes for calls above 64 KiB of all connections, from their receipt to their replies; at
    /// least one of the [largest size](Self::record). An address may hold as much as it leaves free.
    /// Further calls wait in the sockets.
    pub memory: usize,
    /// How long a connection may be silent.
    pub idle: Duration,
    /// How long a client may take to send one call, from its first byte to its last. Needed beside
    /// `idle`, because a client that sends byte by byte is never silent.
    pub receive: Duration,
    /// How long a client may take to accept what waits for it, or 1 MiB of that.
    pub write: Duration,
    /// How long calls in service may hold memory for which calls of others have waited as long. Then a
    /// connection of the address that holds most is closed. `None` is without such a limit.
    pub unanswered: Option<Duration>,
    /// How long a call to a client may take ([`Backchannels`]).
    pub backward: Duration,
    /// How long calls in service may take when the server stops. After that their connections are
    /// dropped.
    pub drain: Duration,
    /// Whether a client that has ended its direction still gets the replies to its calls. Otherwise the
    /// end of its direction is that of its connection.
    pub half_close: bool,
    /// Whether an idle connection gives way to any new one when the server is full, also to one of an
    /// address that has [many](rpc_serving::admission): right where clients make one call and leave.
    pub idle_gives_way: bool,
    /// Advice to an administrator in the log when there are too many connections, as which setting allows more.
    pub connections_hint: Option<&'static str>,
}

impl Default for Limits {
    /// Enough for MOUNT and the like.
    fn default() -> Self {
        Self {
            connections: 128,
            connections_of_address: 64,
            record: 64 << 10,
            calls: 16,
            memory: 64 << 20,
            idle: Duration::from_secs(300),
            receive: Duration::from_secs(30),
            write: Duration::from_secs(30),
            unanswered: None,
            backward: Duration::from_secs(10),
            drain: Duration::from_secs(10),
            half_close: true,
            idle_gives_way: true,
            connections_hint: None,
        }
    }
}

impl Limits {
    /// The limits on connections.
    pub fn of_connections(&self) -> ConnectionLimits {
        let limits = ConnectionLimits::new(self.connections, self.connections_of_address)
            .with_hint(self.connections_hint);
        match self.idle_gives_way {
            true => limits.with_idle_giving_way(),
            false => limits,
        }
    }
}

/// Serves one [`Service`] to TCP clients.
pub struct Server {
    source: Source,
    accepting: Accepting,
}

/// Settings of accepted connections.
struct Accepting {
    service: Arc<dyn Service>,
    limits: Limits,
    admit: Box<dyn Fn(IpAddr) -> bool + Send + Sync>,
    local_users: Option<Arc<dyn LocalUsers>>,
    pool: Option<Pool>,
    memory: Memory,
    admission: Admission,
    /// Turns of connections on the runtime of the server itself.
    event_loop: EventLoop,
    /// Other event loops for the connections, if there are some.
    workers: Option<Workers>,
    jobs: Jobs<Job>,
    registries: Registries,
    monitor: ServerMonitor,
    /// Tells connections that the server stops.
    stop: Stop,
    log: Arc<WarningLog>,
}

/// Registries of open connections, for the service.
#[derive(Default)]
struct Registries {
    /// On these it may call clients.
    backchannels: Option<Backchannels>,
    /// These it may close.
    connections: Option<Connections>,
}

impl Registries {
    /// Adds a connection. It is removed when the entries are dropped.
    fn add(&self, shared: &Arc<Shared>) -> (Option<OpenConnection>, Option<OpenBackchannel>) {
        let open = self.connections.as_ref().map(|connections| {
            let counted = Arc::clone(shared);
            let open = shared.ends.register(connections, &shared.caller);
            open.counting_accepted(move || counted.output.sent())
        });
        let backchannels = self.backchannels.as_ref();
        let backchannel = backchannels.map(|all| all.open(Arc::clone(shared) as _));
        (open, backchannel)
    }
}

impl Server {
    /// Creates a server that admits every client.
    pub fn new(listener: TcpListener, service: Arc<dyn Service>, limits: Limits) -> Self {
        Self::listening(vec![listener], service, limits)
    }

    /// Creates a server of several listening sockets that admits every client. The limits are those of all together.
    ///
    /// # Panics
    ///
    /// If there is no socket.
    pub fn listening(
        listeners: Vec<TcpListener>,
        service: Arc<dyn Service>,
        limits: Limits,
    ) -> Self {
        Self::from(Source::Sockets(Sockets::new(listeners)), service, limits)
    }

    /// Creates a server for streams that something else accepts. It has no address of its own.
    pub fn over(
        streams: mpsc::Receiver<IncomingStream>,
        service: Arc<dyn Service>,
        limits: Limits,
    ) -> Self {
        Self::from(Source::Streams(streams), service, limits)
    }

    fn from(source: Source, service: Arc<dyn Service>, limits: Limits) -> Self {
        let admission = Admission::new(limits.of_connections());
        let accepting = Accepting {
            service,
            limits,
            admit: Box::new(|_| true),
            local_users: None,
            pool: None,
            memory: Memory::new(limits.memory.max(limits.record)),
            admission,
            event_loop: EventLoop::default(),
            workers: None,
            jobs: Jobs::new(MAX_BLOCKING),
            registries: Registries::default(),
            monitor: ServerMonitor::default(),
            stop: Stop::default(),
            log: Arc::default(),
        };
        Self { source, accepting }
    }

    /// Restricts the server to addresses that `admit` accepts. Connections from others are closed
    /// at once.
    #[must_use]
    pub fn admit(mut self, admit: impl Fn(IpAddr) -> bool + Send + Sync + 'static) -> Self {
        self.accepting.admit = Box::new(admit);
        self
    }

    /// Identifies clients on this machine with `users`: each then speaks for itself only.
    #[must_use]
    pub fn local_users(mut self, users: Option<Arc<dyn LocalUsers>>) -> Self {
        self.accepting.local_users = users;
        self
    }

    /// Registers its connections, so that the service can close them.
    #[must_use]
    pub fn connections(mut self, connections: Connections) -> Self {
        self.accepting.registries.connections = Some(connections);
        self
    }

    /// Registers its connections, so that the service can call clients.
    #[must_use]
    pub fn backchannels(mut self, backchannels: Backchannels) -> Self {
        self.accepting.registries.backchannels = Some(backchannels);
        self
    }

    /// Admits connections by `admission`, whose limits may change, instead of by its own
    /// [limits](Limits::of_connections).
    #[must_use]
    pub fn admission(mut self, admission: Admission) -> Self {
        self.accepting.admission = admission;
        self
    }

    /// Logs warnings about its clients by `log`, which may name the server and limit warnings of others with it.
    #[must_use]
    pub fn log(mut self, log: Arc<WarningLog>) -> Self {
        self.accepting.log = log;
        self
    }

    /// Takes the memory of large calls from a pool; without one it is allocated call by call.
    #[must_use]
    pub fn pool(mut self, pool: Pool) -> Self {
        self.accepting.pool = Some(pool);
        self
    }

    /// Serves the connections on these event loops, each on the one with the fewest, instead of on the runtime that it runs
    /// on.
    #[must_use]
    pub fn workers(mut self, workers: Workers) -> Self {
        self.accepting.workers = Some(workers);
        self
    }

    /// Returns a monitor, which others can read statistics from.
    pub fn monitor(&self) -> ServerMonitor {
        self.accepting.monitor.clone()
    }

    /// The address on which it listens, the first of several.
    ///
    /// # Errors
    ///
    /// If the system cannot tell.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.source.local_addr()
    }

    /// Serves until `stop` is ready, then finishes the calls in service, within the [time
    /// limit](Limits::drain), and returns.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Self {
            mut source,
            accepting,
        } = self;
        let Accepting { admission, log, .. } = &accepting;
        let mut connections = JoinSet::new();
        let mut intake = Intake::new(admission, log, &accepting.stop);
        tokio::pin!(stop);
        loop {
            let accepted = tokio::select! {
                // In a fixed order, so that a run in virtual time can be repeated.
                biased;
                () = &mut stop => break,
                Some(_) = connections.join_next(), if !connections.is_empty() => continue,
                accepted = intake.next(source.accept()) => accepted,
            };
            match accepted {
                Some(Ok(stream)) => {
                    let workers = accepting.workers.as_ref();
                    let worker = workers.map(Workers::least_loaded);
                    match (accepting.take_in(stream, worker), worker) {
                        (Some(driver), Some(worker)) => {
                            connections.spawn_on(driver, worker.runtime());
                        }
                        (Some(driver), None) => {
                            connections.spawn(driver);
                        }
                        (None, _) => accepting.monitor.refused(),
                    }
                }
                Some(Err(error)) => {
                    // Whoever connects is not known.
                    log.warn_of(PeerGroup::THIS_MACHINE, |listen| {
                        tracing::warn!(listen, %error, "cannot accept a connection");
                    });
                    intake.pause().await;
                }
                None => break,
            }
        }
        drop(source);
        log.summarise_all();
        accepting.stop.set();
        let drained = async { while connections.join_next().await.is_some() {} };
        let in_time = tokio::time::timeout(accepting.limits.drain, drained).await;
        if in_time.is_err() {
            let left = connections.len();
            let listen = log.listener();
            tracing::warn!(listen, connections = left, "closed with calls in service");
            connections.shutdown().await;
        }
    }
}

impl Accepting {
    /// Makes the task of a connection, for this event loop if there are several, or logs why it is refused.
    fn take_in(&self, stream: Accepted, on: Option<&Worker>) -> Option<Driver> {
        let (log, addr) = (&self.log, stream.peer());
        if !(self.admit)(addr.ip()) {
            log.warn_of(PeerGroup::of(addr.ip()), |listen| {
                tracing::warn!(listen, peer = %addr, "refused a connection: the address is not allowed");
            });
            return None;
        }
        let refused = |group, error: &dyn Error| {
            log.warn_of(group, |listen| {
                tracing::warn!(listen, peer = %addr, error = %Chain(error), "refused a connection");
            });
        };
        let caller = match self.origin(&stream, addr) {
            Ok(origin) => Caller::new(addr).from(origin),
            Err(error) => {
                match error.is_for_the_log() {
                    true => refused(error.group(), &error),
                    false => tracing::debug!(peer = %addr, %error, "gone before it was taken in"),
                }
                return None;
            }
        };
        let opened = self.open(stream, caller, on);
        opened
            .inspect_err(|error| refused(caller.group, &**error))
            .ok()
    }

    /// Admits a connection, and makes its task.
    fn open(
        &self,
        stream: Accepted,
        caller: Caller,
        on: Option<&Worker>,
    ) -> Result<Driver, Box<dyn Error>> {
        let listener = stream.listener();
        let stream = match on {
            Some(worker) => stream.moved_to(worker.runtime())?,
            None => stream,
        };
        let (input, output) = stream.into_halves()?;
        let of_output = Some(self.memory.output(caller.group));
        let ends = self.stop.join();
        let shared = Shared::new(output, caller, self.limits.backward, of_output, &ends);
        let shared = Arc::new(shared);
        let requests = shared.ends.clone();
        let evict = move || requests.ask(End::Evicted);
        let admitted = self.admission.admit(caller.group, evict);
        let admitted = admitted.map_err(|why| self.admission.explain(why))?;
        let decoder = Decoder::new(self.limits.record).with_pool(self.pool.clone());
        let dispatch = Dispatch::new(
            Arc::clone(&shared),
            Arc::clone(&self.service),
            &self.jobs,
            self.limits.calls,
            Some(admitted),
            Arc::clone(&self.log),
        );
        let limits = TimeLimits {
            idle: Some(self.limits.idle),
            receive: Some(self.limits.receive),
            unanswered: self.limits.unanswered,
            write: Some(self.limits.write),
        };
        let account = self.memory.account(caller.group);
        let input = Input::new(input, decoder, Some(account));
        let watched = self.monitor.taken_in(&shared, listener);
        let open = (self.registries.add(&shared), watched);
        let carried = on.map(Worker::carry);
        let driver = Driver::new(
            shared,
            input,
            dispatch,
            limits,
            ends,
            self.limits.half_close,
            move || drop((open, carried)),
        );
        let turns = on.map_or(&self.event_loop, Worker::turns);
        Ok(driver.with_turns(turns.join(caller.group)))
    }

    /// Returns the origin of a client, if the server distinguishes local users.
    fn origin(&self, stream: &Accepted, peer: SocketAddr) -> Result<Origin, LocalUserError> {
        match &self.local_users {
            Some(users) => {
                let socket = stream.socket().map_err(LocalUserError::Unavailable)?;
                users.find(socket, peer)
            }
            None => Ok(Origin::Remote),
        }
    }
}
