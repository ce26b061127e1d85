//! Accepting connections.

use super::addresses::Address;
use super::grants::FIRST_GRANT;
use super::kept::Kept;
use super::receive_memory::{self, ReceiveLease};
use super::serve::Serving;
use super::settings::{Listened, Settings, terms};
use super::stats::{State, Tally};
use super::worker::Worker;
use crate::ServerConfig;
use crate::driver::endpoint::Endpoint;
use crate::driver::owner::{Connection, ConnectionOwner};
use crate::driver::receives::{for_parts, share};
use crate::driver::spin::{Activity, begin_turn};
use crate::driver::xids;
use buffer::Pool;
use oncrpc::{Chain, LocalUserError, Origin, PeerGroup};
use rpc_serving::admission::Admitted;
use rpc_serving::ends::{End, Ends, Stop};
use rpc_serving::intake::Intake;
use rpc_serving::turns::Turns;
use rpc_serving::workers::Load;
use rpcrdma_proto::limits::{CREDIT_TOLERANCE, MAX_CREDITS, RECEIVE_SLACK};
use rpcrdma_proto::v2::characteristics::BackwardSupport;
use rpcrdma_proto::{
    Characteristics, Config, InlineThreshold, PrivateData, Receives, Registrations, Role, Version,
};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Weak};
use tokio::sync::oneshot;
use tracing::{debug, warn};
use verbs::{Incoming, Limits, Listener, ProtocolMismatch, QpOptions, SetupError};

/// Takes in connections of one listener and hands them to the workers.
pub(super) struct Acceptor {
    pub(super) settings: Arc<Settings>,
    pub(super) on: Arc<Listened>,
    pub(super) state: Arc<State>,
    pub(super) workers: Weak<Vec<Worker>>,
    pub(super) stop: Stop,
}

impl Acceptor {
    /// Listens, says where, and takes in connections until the server stops or is gone.
    pub(super) async fn run(
        self,
        addr: SocketAddr,
        listening: oneshot::Sender<Result<SocketAddr, SetupError>>,
    ) {
        // In `serve` the provider is wrapped in one that refuses addresses first (`daemon::guard`).
        let mut listener = match self.on.provider.listen(addr).await {
            Ok(listener) => listener,
            Err(error) => {
                // Without a receiver nobody wants to know.
                let _ = listening.send(Err(error));
                return;
            }
        };
        self.state.listening.fetch_add(1, SeqCst);
        if listening.send(Ok(listener.local_addr())).is_ok() {
            self.accept(listener.as_mut()).await;
        }
        self.settings.log.summarise_all();
        drop(listener);
        self.state.listening.fetch_sub(1, SeqCst);
        self.state.changed.notify_waiters();
    }

    async fn accept(&self, listener: &mut dyn Listener) {
        let Settings { admission, log, .. } = &*self.settings;
        let mut intake = Intake::new(admission, log, &self.stop);
        while let Some(incoming) = intake.next(async { listener.accept().await }).await {
            match incoming {
                Ok(incoming) => self.hand_over(incoming, listener.local_addr()),
                Err(error) => {
                    // Whoever connects is not known.
                    log.warn_of(PeerGroup::THIS_MACHINE, |listen| {
                        warn!(listen, error = %Chain(&error), "no connection can be taken in");
                    });
                    intake.pause().await;
                }
            }
        }
    }

    fn hand_over(&self, incoming: Box<dyn Incoming>, listener: SocketAddr) {
        let peer = incoming.peer_addr();
        let log = &self.settings.log;
        let origin = match origin(&self.settings.config, &*incoming) {
            Ok(origin) => origin,
            Err(error) => {
                self.state.stats().refused += 1;
                return match error.is_for_the_log() {
                    true => log.warn_of(error.group(), |listen| {
                        warn!(listen, %peer, error = %Chain(&error), "connection setup failed");
                    }),
                    false => debug!(%peer, %error, "gone before it was taken in"),
                };
            }
        };
        let group = origin.group(peer.ip());
        let ends = self.stop.join();
        let requests = ends.requests().clone();
        let evict = move || requests.ask(End::Evicted);
        let admitted = match self.settings.admission.admit(group, evict) {
            Ok(admitted) => admitted,
            Err(why) => {
                self.state.stats().refused += 1;
                // The connection that is dropped here is refused on the wire.
                return log.warn_of(group, |listen| {
                    let why = self.settings.admission.explain(why);
                    warn!(listen, %peer, "refused: {why}");
                });
            }
        };
        let Some(workers) = self.workers.upgrade() else {
            return;
        };
        let worker = Worker::least_loaded(&workers);
        let receives = self.on.receives.as_ref();
        let arrival = Arrival {
            settings: Arc::clone(&self.settings),
            on: Arc::clone(&self.on),
            state: Arc::clone(&self.state),
            pool: worker.pool.clone(),
            activity: worker.activity.clone(),
            turns: worker.shared.turns().join(group),
            tally: Tally::new(Arc::clone(&self.state), peer, listener),
            address: self.settings.addresses.connected(group, receives),
            origin,
            admitted,
            load: worker.shared.carry(),
        };
        // In memory of its own, which is free again once the connection is established.
        let established = Box::pin(arrival.establish(incoming, ends));
        worker.spawn(async {
            if let Some(serving) = established.await {
                serving.run().await;
            }
        });
    }
}

/// A connection from its arrival until it is established.
struct Arrival {
    settings: Arc<Settings>,
    on: Arc<Listened>,
    state: Arc<State>,
    pool: Pool,
    activity: Activity,
    /// The turns of the connection, for its setup too.
    turns: Turns,
    tally: Tally,
    address: Address,
    origin: Origin,
    admitted: Admitted,
    load: Load,
}

impl Arrival {
    async fn establish(
        mut self,
        incoming: Box<dyn Incoming>,
        mut ends: Ends,
    ) -> Option<Box<Serving>> {
        let peer = incoming.peer_addr();
        // The timeouts of its steps have to be enough, but a provider is not trusted with ours.
        let timeout = self.settings.config.setup_timeout * 2;
        let setup = self.set_up(incoming);
        let (endpoint, receive_memory) = tokio::select! {
            biased;
            result = tokio::time::timeout(timeout, setup) => match result {
                Ok(Ok(set_up)) => set_up,
                Ok(Err(error)) => {
                    self.setup_failed(peer, &error);
                    return None;
                }
                Err(_) => {
                    self.setup_failed(peer, &SetupError::TimedOut("a connection", timeout));
                    return None;
                }
            },
            end = ends.asked() => {
                match end {
                    End::Evicted => {
                        debug!(%peer, "evicted during setup");
                        self.state.stats().evicted += 1;
                    }
                    _ => {
                        debug!(%peer, "refused: the server stops");
                        self.state.stats().refused += 1;
                    }
                }
                return None;
            }
        };
        self.state.stats().accepted += 1;
        debug!(%peer, thresholds = ?endpoint.connection.thresholds(), "accepted: {}", endpoint.qp.describe());
        let Self {
            settings,
            activity,
            turns,
            tally,
            admitted,
            address,
            load,
            ..
        } = self;
        let kept = Kept {
            address,
            receive_memory,
            turns: Some(turns),
            _load: load,
        };
        let kept = Some(kept);
        Some(Serving::new(
            endpoint, settings, activity, tally, ends, admitted, kept,
        ))
    }

    fn setup_failed(&self, peer: SocketAddr, error: &SetupError) {
        self.state.stats().refused += 1;
        if is_without_a_word(error) {
            return debug!(%peer, %error, "gone before it was set up");
        }
        self.settings.log.warn_of(self.admitted.group(), |listen| {
            warn!(listen, %peer, error = %Chain(error), "connection setup failed");
        });
    }

    async fn set_up(
        &mut self,
        mut incoming: Box<dyn Incoming>,
    ) -> Result<(Endpoint, Option<ReceiveLease>), SetupError> {
        let settings = &self.settings.config;
        let request = incoming.request(settings.setup_timeout).await?;
        begin_turn(&mut self.turns).await;
        let limits = incoming.limits();
        let limits = limits.unwrap_or_else(|| self.on.provider.limits());
        self.admitted.set_up();
        let Credits {
            forward: credits,
            first: first_grant,
            backward: backward_credits,
            receive_memory,
        } = self.credits(&limits)?;
        let terms = terms(settings, &limits);
        let own = PrivateData {
            send: settings.send_size,
            receive: settings.receive_size,
            remote_invalidation: terms.announces(),
        };
        let config = Config {
            role: Role::Server,
            // The provider may say something else than when the server began.
            versions: terms.versions(settings.versions)?,
            dialect: settings.dialect,
            xids: xids::random(),
            own,
            characteristics: Characteristics {
                // Each end sends as much as it receives (xcharext §3.1).
                raise_to: settings.send_size,
                largest_sent: settings.max_send_size,
                backward: BackwardSupport::General,
                remote_invalidation_by_version: terms.by_version(),
                designs: terms.designs(),
                registry: settings.characteristics.registry.clone(),
                registered: settings.characteristics.values.clone(),
                ..Characteristics::default()
            },
            credits,
            first_grant,
            backward_credits,
            reserve_credit: false,
            max_chunk: settings.max_chunk,
            max_segment: 0,
            registrations: Registrations::OF_CALLS,
            persistent: None,
            one_region: false,
            receives: match &self.address.shared.receives {
                Some(shared) => Receives::Shared {
                    size: shared.block_size(),
                },
                None => Receives::Posted,
            },
            pool: self.pool.clone(),
        };
        let options = QpOptions::default()
            .with_receives(match self.address.shared.receives {
                // A peer that has more calls here than it may is to be seen, and not only held back
                // (RFC 5041 §8.3.2).
                Some(_) => most_blocks(&config, credits, backward_credits),
                None => config.posted_receives(),
            })
            .with_receive_size(config.receive_size())
            .with_shared_receives(self.address.shared.receives.clone())
            .with_setup_timeout(settings.setup_timeout);
        let mut behind = Vec::new();
        if config.versions.speak(Version::Two) {
            behind.extend_from_slice(&config.dialect.announcement());
        }
        behind.extend_from_slice(&settings.private_data);
        let private_data = own.with_user_bytes(&behind, limits.private_data.accept);
        // RFC 8166 §3.3.2: Receives are posted before the client can know that it may send.
        let receives = config.initial_receives();
        let qp = incoming.accept(&options, &private_data, receives).await?;
        let owner = ConnectionOwner::new(self.address.shared.failed_calls.clone());
        let peer = PrivateData::find(&request);
        let connection = Connection::new(&config, owner, peer, qp.limits());
        let account = self.settings.budget.account(self.admitted.group());
        let service = Arc::clone(&self.settings.service);
        let mut endpoint = Endpoint::new(qp, connection, service, account);
        endpoint.caller = endpoint.caller.from(self.origin);
        Ok((endpoint, receive_memory))
    }

    /// Credits for calls of a new client, and for those to it.
    ///
    /// There are as many as Receives, and memory for these (RFC 8166 §3.3.1), but where a provider
    /// holds back a peer whose messages find no Receive: there a client that uses all its credits
    /// while many others do waits, and loses nothing. Where a connection posts its own Receives, it
    /// begins with few.
    fn credits(&self, limits: &Limits) -> Result<Credits, SetupError> {
        let config = &self.settings.config;
        let (forward, backward) = wanted_credits(config);
        let parts = for_parts(config.dialect, config.versions);
        let most = (receives_for(forward, backward) + parts).min(limits.receives);
        let fitting = |receives: usize, forward, backward| {
            let shared = share(receives.saturating_sub(parts), forward, backward);
            shared.ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))
        };
        let (forward, backward) = fitting(most, forward, backward)?;
        if needs_no_memory(limits) {
            return Ok(Credits {
                forward,
                first: 0,
                backward,
                receive_memory: None,
            });
        }
        let first = match self.address.shared.receives {
            Some(_) => forward,
            None => forward.min(FIRST_GRANT),
        };
        let wanted = (receives_for(first, backward) + parts).min(most);
        let size = largest_receive(config).bytes();
        let group = self.admitted.group();
        let lease = self.settings.receive_memory.take(group, wanted, size);
        let (first, backward) = fitting(lease.receives(), first, backward)?;
        Ok(Credits {
            forward: match self.address.shared.receives {
                Some(_) => first,
                None => forward,
            },
            first,
            backward,
            receive_memory: Some(lease),
        })
    }
}

/// Credits of a new connection.
struct Credits {
    /// The most that there may be for calls of the client.
    forward: u32,
    /// Those that it is granted at first; 0 for all.
    first: u32,
    /// For calls to the client.
    backward: u32,
    /// Memory of the Receives that it begins with, if there is to be some.
    receive_memory: Option<ReceiveLease>,
}

/// Whether a peer connected and closed, as health checks do: nothing is wrong then.
fn is_without_a_word(error: &SetupError) -> bool {
    matches!(error, SetupError::NotOurProtocol(reason) if reason.kind() == ProtocolMismatch::NoMessage)
}

/// Origin of a client, as far as the configuration asks for it.
fn origin(config: &ServerConfig, incoming: &dyn Incoming) -> Result<Origin, LocalUserError> {
    match (&config.local_users, incoming.socket()) {
        (Some(users), Some(socket)) => users.find(socket, incoming.peer_addr()),
        (None, _) | (_, None) => Ok(Origin::Remote),
    }
}

/// Credits for calls of a client, and for those to it, where nothing is short.
fn wanted_credits(config: &ServerConfig) -> (u32, u32) {
    let backward = match &config.backchannels {
        Some(_) => config.backward_credits.clamp(1, MAX_CREDITS),
        None => 0,
    };
    (config.credits.clamp(1, MAX_CREDITS), backward)
}

/// Receives for so many calls of a client, and replies to as many of ours.
fn receives_for(forward: u32, backward: u32) -> usize {
    (forward + backward) as usize + RECEIVE_SLACK
}

/// Blocks of the shared receive queue that the messages of one client may hold.
fn most_blocks(config: &Config, forward: u32, backward: u32) -> usize {
    let parts = for_parts(config.dialect, config.versions);
    CREDIT_TOLERANCE * forward as usize + backward as usize + parts + RECEIVE_SLACK
}

/// Whether credits are granted that no Receive backs.
fn needs_no_memory(limits: &Limits) -> bool {
    limits.shared_receives && limits.holds_peer_back
}

impl ServerConfig {
    /// Returns how many connections [`receive_memory`](Self::receive_memory) allows over a provider
    /// with these limits, at most [`max_connections`](Self::max_connections), so that each can begin
    /// with a few credits, and as much memory is left for more of them.
    pub fn connections_with_memory(&self, limits: &Limits) -> usize {
        if needs_no_memory(limits) {
            return self.max_connections;
        }
        let (forward, backward) = wanted_credits(self);
        let first = receives_for(forward.min(FIRST_GRANT), backward);
        let first = first + for_parts(self.dialect, self.versions);
        let size = largest_receive(self).bytes();
        receive_memory::connections(self.receive_memory, first, size).min(self.max_connections)
    }
}

/// The largest Receive of a client.
pub(super) fn largest_receive(config: &ServerConfig) -> InlineThreshold {
    let size = config.versions.receive_size(config.receive_size);
    match config.versions.speak(Version::Two) {
        true => size.max(config.send_size),
        false => size,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_that_closes_without_a_word_is_no_warning() {
        let closed = |kind: ProtocolMismatch| SetupError::NotOurProtocol(kind.into());
        assert!(is_without_a_word(&closed(ProtocolMismatch::NoMessage)));
        assert!(!is_without_a_word(&closed(ProtocolMismatch::Truncated)));
        assert!(!is_without_a_word(&closed(ProtocolMismatch::OtherProtocol)));
    }

    #[test]
    fn memory_for_receives_may_be_for_fewer_connections_than_may_be() {
        let config = ServerConfig::default();
        let mut posted = verbs_sim::EndOptions::default().limits;
        posted.shared_receives = false;
        let with = |max_connections, receive_memory| {
            let config = config
                .clone()
                .with_max_connections(max_connections)
                .with_receive_memory(receive_memory);
            config.connections_with_memory(&posted)
        };
        assert_eq!(with(100, 512 << 20), 100);
        assert_eq!(with(100, 0), 0);
        // Each begins with 12 of 8 KiB, in half of the memory.
        assert_eq!(with(10_000, 512 << 20), (256 << 20) / (12 * 8192));
        assert!(with(10_000, 1 << 40) == 10_000);
    }
}
