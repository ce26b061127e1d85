//! Taking in connections.

use super::guests::Place;
use super::serve::Serving;
use super::stop::Stop;
use super::worker::Worker;
use super::{Settings, State, Tally, terms};
use crate::ServerConfig;
use crate::client::first_xid;
use crate::owner::{Connection, Driver};
use crate::receives::share;
use crate::spin::Activity;
use crate::wire::Wire;
use buffer::Pool;
use rpcrdma_proto::limits::{MAX_CREDITS, RECEIVE_SLACK};
use rpcrdma_proto::v2::Dialect;
use rpcrdma_proto::v2::characteristics::BackwardSupport;
use rpcrdma_proto::{
    Characteristics, Config, InlineThreshold, PrivateData, Receives, Registrations, Role, Version,
    Xids,
};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{
    AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::oneshot;
use tracing::{debug, warn};
use verbs::{Incoming, Listener, QpOptions, SetupError};

/// How long to wait when the system gives no connection, such as for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Takes in connections and hands them to the workers.
pub(super) struct Acceptor {
    pub(super) settings: Arc<Settings>,
    pub(super) state: Arc<State>,
    pub(super) workers: Weak<Vec<Worker>>,
    pub(super) stop: Stop,
}

impl Acceptor {
    /// Listens, says where, and takes in connections until the server stops or is gone.
    pub(super) async fn run(
        mut self,
        on: SocketAddr,
        listening: oneshot::Sender<Result<SocketAddr, SetupError>>,
    ) {
        let mut listener = match self.settings.provider.listen(on).await {
            Ok(listener) => listener,
            Err(error) => {
                // Without a receiver nobody wants to know.
                let _ = listening.send(Err(error));
                return;
            }
        };
        self.state.listening.store(true, SeqCst);
        if listening.send(Ok(listener.local_addr())).is_ok() {
            self.accept(listener.as_mut()).await;
        }
        drop(listener);
        self.state.listening.store(false, SeqCst);
        self.state.changed.notify_waiters();
    }

    async fn accept(&mut self, listener: &mut dyn Listener) {
        loop {
            let stop = self.stop.clone();
            let incoming = tokio::select! {
                biased;
                // First, as there may be a connection, or none to be had, each time.
                () = stop.wait() => return,
                incoming = listener.accept() => incoming,
            };
            match incoming {
                Ok(incoming) => self.hand_over(incoming),
                Err(error) => {
                    warn!(%error, "no connection can be taken in");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn hand_over(&self, incoming: Box<dyn Incoming>) {
        let peer = incoming.peer_addr();
        let place = match self.settings.guests.enter(peer.ip()) {
            Ok(place) => place,
            Err(why) => {
                self.state.stats().refused += 1;
                warn!(%peer, "refused: {why}");
                return;
            }
        };
        let Some(workers) = self.workers.upgrade() else {
            return;
        };
        let worker = Worker::least_loaded(&workers);
        let arrival = Arrival {
            settings: Arc::clone(&self.settings),
            state: Arc::clone(&self.state),
            pool: worker.pool.clone(),
            activity: worker.activity.clone(),
            stop: self.stop.clone(),
            tally: Tally::new(Arc::clone(&self.state)),
            place,
            _load: Load::new(Arc::clone(&worker.load)),
        };
        worker.spawn(arrival.run(incoming));
    }
}

/// One connection of the load of a worker.
struct Load(Arc<AtomicUsize>);

impl Load {
    fn new(load: Arc<AtomicUsize>) -> Self {
        load.fetch_add(1, Relaxed);
        Self(load)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// A connection from its arrival on.
struct Arrival {
    settings: Arc<Settings>,
    state: Arc<State>,
    pool: Pool,
    activity: Activity,
    stop: Stop,
    tally: Tally,
    place: Place,
    _load: Load,
}

impl Arrival {
    async fn run(mut self, incoming: Box<dyn Incoming>) {
        let peer = incoming.peer_addr();
        // The timeouts of its steps have to be enough, but a provider is not trusted with ours.
        let timeout = self.settings.config.setup_timeout * 2;
        let stop = self.stop.clone();
        let setup = self.set_up(incoming);
        let wire = tokio::select! {
            biased;
            result = tokio::time::timeout(timeout, setup) => match result {
                Ok(Ok(wire)) => wire,
                Ok(Err(error)) => return self.refused(peer, &error),
                Err(_) => {
                    return self.refused(peer, &SetupError::TimedOut("a connection", timeout));
                }
            },
            () = stop.wait() => {
                debug!(%peer, "refused: the server stops");
                self.state.stats().refused += 1;
                return;
            }
        };
        self.state.stats().accepted += 1;
        debug!(%peer, thresholds = ?wire.connection.thresholds(), "accepted: {}", wire.qp.describe());
        let Self {
            settings,
            activity,
            tally,
            stop,
            // It is free again when the connection is gone.
            place: _place,
            ..
        } = self;
        Serving::new(wire, settings, activity, tally, stop)
            .run()
            .await;
    }

    fn refused(&self, peer: SocketAddr, error: &SetupError) {
        self.state.stats().refused += 1;
        warn!(%peer, %error, "no connection was made");
    }

    async fn set_up(&mut self, mut incoming: Box<dyn Incoming>) -> Result<Wire, SetupError> {
        let limits = self.settings.provider.limits();
        let credits = self.credits(limits.receives);
        let settings = &self.settings.config;
        let request = incoming.request(settings.setup_timeout).await?;
        let terms = terms(settings, &limits);
        let own = PrivateData {
            send: settings.send_size,
            receive: settings.receive_size,
            remote_invalidation: terms.announces(),
        };
        let (credits, backward_credits) = credits?;
        let config = Config {
            role: Role::Server,
            // The provider may say something else than when the server began.
            versions: terms.versions(settings.versions)?,
            dialect: Dialect::default(),
            xids: Xids::starting_at(first_xid()),
            own,
            characteristics: Characteristics {
                // Each end sends as much as it receives (xcharext §3.1).
                raise_to: settings.send_size,
                largest_sent: settings.max_send_size,
                backward: BackwardSupport::General,
                remote_invalidation_by_version: terms.by_version(),
                designs: terms.designs(),
                ..Characteristics::default()
            },
            credits,
            backward_credits,
            reserve_credit: false,
            max_chunk: settings.max_chunk,
            max_segment: 0,
            registrations: Registrations::OF_CALLS,
            persistent: None,
            receives: Receives::Posted,
            pool: self.pool.clone(),
        };
        let options = QpOptions {
            receives: config.posted_receives(),
            receive_size: config.receive_size(),
            setup_timeout: settings.setup_timeout,
            ..QpOptions::default()
        };
        let private_data = own.with_user_octets(&settings.private_data, limits.private_data.accept);
        // RFC 8166 §3.3.2: Receives are posted before the client can know that it may send.
        let receives = config.initial_receives();
        let qp = incoming.accept(&options, &private_data, receives).await?;
        let owner = Driver::new(self.place.failed.clone());
        let peer = PrivateData::find(&request);
        let connection = Connection::new(&config, owner, peer, qp.limits());
        let account = self.settings.budget.account();
        Ok(Wire::new(qp, connection, account))
    }

    /// Credits for calls of a new client, and for those to it, as far as there is room, and memory,
    /// for their Receives.
    fn credits(&mut self, room: usize) -> Result<(u32, u32), SetupError> {
        let config = &self.settings.config;
        let backward = match &config.backchannels {
            Some(_) => config.backward_credits.clamp(1, MAX_CREDITS),
            None => 0,
        };
        let forward = config.credits.clamp(1, MAX_CREDITS);
        let wanted = (forward + backward) as usize + RECEIVE_SLACK;
        let size = largest_receive(config).octets();
        let taken = self.place.take_receives(wanted.min(room), size);
        let none = || io::Error::from(io::ErrorKind::OutOfMemory).into();
        share(taken, forward, backward).ok_or_else(none)
    }
}

/// The largest Receive that is ever posted for a client.
fn largest_receive(config: &ServerConfig) -> InlineThreshold {
    let size = config.versions.receive_size(config.receive_size);
    match config.versions.speak(Version::Two) {
        true => size.max(config.send_size),
        false => size,
    }
}
