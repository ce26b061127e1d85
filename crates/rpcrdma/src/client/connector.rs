//! Connection setup of a client.

use super::shared::ConnectionInfo;
use crate::config::{ClientConfig, MAX_CONNECTIONS, REMEMBER_VERSION_ONE};
use crate::driver::budget::Budget;
use crate::driver::clock;
use crate::driver::close_reason::CloseReason;
use crate::driver::endpoint::{Endpoint, Turn};
use crate::driver::failed::FailedCalls;
use crate::driver::invalidation::Terms;
use crate::driver::liveness::null_call;
use crate::driver::owner::{Connection, ConnectionOwner, Event};
use crate::driver::receives::{for_parts, share};
use crate::driver::xids;
use buffer::Pool;
use oncrpc::xdr::Payload;
use oncrpc::{
    Answer, Caller, Chain, ConnectionId, PeerGroup, Programs, ReceivedCall, Reply, ReplyBound,
    Service,
};
use rpcrdma_proto::limits::RECEIVE_SLACK;
use rpcrdma_proto::v2::Dialect;
use rpcrdma_proto::v2::characteristics::BackwardSupport;
use rpcrdma_proto::{
    Characteristics, Config, PrivateData, Receives, Registration, Registrations, Role, Version,
    Versions, Violation, Xids,
};
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tracing::{debug, warn};
use verbs::{
    Connected, Limits, ProtocolMismatch, Provider, QpOptions, Reason, SetupError,
    SharedReceiveQueue,
};

/// Bytes of returned buffers that a client keeps for reuse.
const KEEP: usize = 16 << 20;

/// Calls of the server accepted at a time by a client without a service, which answers
/// PROG_UNAVAIL: the one call that the server may send before it was granted credits (RFC 8166
/// §3.3.3).
const UNSERVED: u32 = 1;

/// Connection setup of one client.
pub(crate) struct Connector {
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) to: SocketAddr,
    pub(crate) config: ClientConfig,
    pub(crate) pool: Pool,
    /// XID source of all its connections.
    pub(crate) xids: Xids,
    /// Until when the client assumes that the server lacks version two.
    version_one_until: Mutex<Option<Instant>>,
    /// Whether the server turned out to lack version one: version two is then offered, announced or
    /// not.
    lacks_version_one: AtomicBool,
    /// Answers calls of the server.
    service: Arc<dyn Service>,
    /// Set when the provider was caught not invalidating what it reported as invalidated.
    invalidation_broken: AtomicBool,
    /// Set once remote invalidation was verified.
    invalidation_tested: AtomicBool,
}

impl Connector {
    pub(crate) fn new(provider: Arc<dyn Provider>, to: SocketAddr, config: ClientConfig) -> Self {
        let service: Arc<dyn Service> = match &config.callbacks {
            Some(callbacks) => Arc::new(Guarded(Arc::clone(&callbacks.0))),
            None => Arc::new(Programs::new()),
        };
        Self {
            provider,
            to,
            pool: config.pool.clone().unwrap_or_else(|| Pool::new(KEEP)),
            xids: xids::random(),
            version_one_until: Mutex::new(None),
            lacks_version_one: AtomicBool::new(false),
            service,
            invalidation_broken: AtomicBool::new(false),
            invalidation_tested: AtomicBool::new(!config.test_remote_invalidation),
            config,
        }
    }

    /// Returns the number of connections of the client.
    pub(crate) fn conns(&self) -> usize {
        self.config.connections.clamp(1, MAX_CONNECTIONS)
    }

    /// Service for calls of the server.
    pub(crate) fn service(&self) -> Arc<dyn Service> {
        Arc::clone(&self.service)
    }

    /// Whether to keep a connection without calls of this client, because the server may call.
    pub(crate) fn keeps_connections(&self) -> bool {
        self.config.callbacks.is_some()
    }

    /// Turns remote invalidation off from the next connection on: the provider does not do what it
    /// reports.
    pub(crate) fn distrust_invalidation(&self) {
        if !self.invalidation_broken.swap(true, Relaxed) {
            warn!(to = %self.to, "the provider does not do remote invalidation as it says: it is not used any more");
        }
    }

    /// Returns the kinds of memory that the client exposes.
    fn registrations(&self) -> Registrations {
        match self.config.persistent_arguments {
            Some(_) => Registrations::OF_CALLS.with(Registration::Persistent),
            None => Registrations::OF_CALLS,
        }
    }

    /// Returns the remote invalidation terms of the next connection.
    fn terms(&self) -> Terms {
        let wanted = &self.config.remote_invalidation;
        match self.invalidation_broken.load(Relaxed) {
            true => Terms::without(wanted),
            false => Terms::new(wanted, self.registrations(), &self.provider.limits()),
        }
    }

    /// Makes a new connection, to which nothing of an earlier one carries over.
    pub(crate) async fn connect(&self) -> Result<(Endpoint, ConnectionInfo), SetupError> {
        let (mut endpoint, info) = self.connect_once().await?;
        if self.invalidation_tested.load(Relaxed) || info.remote_invalidation.is_none() {
            return Ok((endpoint, info));
        }
        let tested = self.test_invalidation(&mut endpoint).await;
        self.invalidation_tested.store(true, Relaxed);
        match tested {
            Ok(()) => Ok((endpoint, info)),
            Err(over) => {
                // Whatever it was: a test with this outcome is no reason to trust the provider.
                debug!(to = %self.to, over = %Chain(&over), "the test of remote invalidation failed");
                self.distrust_invalidation();
                endpoint.close().await;
                self.connect_once().await
            }
        }
    }

    /// Makes a connection and settles its version.
    async fn connect_once(&self) -> Result<(Endpoint, ConnectionInfo), SetupError> {
        // The provider may say something else by the time that it connects.
        let terms = self.terms();
        let versions = self.versions(terms.versions(self.config.versions)?);
        match self.connect_speaking(versions, &terms).await {
            Ok(made) => Ok(made),
            Err(Failure::Version(over))
                if versions == Versions::Auto && may_speak_version_one(&over) =>
            {
                // cel-01 §5.2: then the server is taken to speak version one.
                warn!(to = %self.to, over = %Chain(&over), "the offer of version two failed: version one from now on");
                self.remember_version_one();
                let made = self.connect_speaking(Versions::One, &terms).await;
                made.map_err(|failure| failure.into_error())
            }
            Err(failure) => Err(failure.into_error()),
        }
    }

    /// Returns which of these versions the next connection offers.
    fn versions(&self, versions: Versions) -> Versions {
        let until = *self.version_one_until();
        match versions {
            Versions::Auto if until.is_some_and(|until| clock::now() < until) => Versions::One,
            versions => versions,
        }
    }

    /// Offers version two from now on, because the server turned out to lack version one.
    pub(crate) fn forget_version_one(&self) {
        *self.version_one_until() = None;
        self.lacks_version_one.store(true, Relaxed);
    }

    /// Returns which of these versions are used with a server that has this private data. Other
    /// drafts use the number of version two for other messages, and a server of one may take the
    /// offer for something else: it is made only to a server that announces the same draft.
    fn versions_with(&self, versions: Versions, private_data: &[u8]) -> Versions {
        let announced = Dialect::announced(private_data) == Some(self.config.dialect);
        match versions {
            Versions::Auto if !announced && !self.lacks_version_one.load(Relaxed) => Versions::One,
            versions => versions,
        }
    }

    fn remember_version_one(&self) {
        *self.version_one_until() = Some(clock::now() + REMEMBER_VERSION_ONE);
    }

    fn version_one_until(&self) -> MutexGuard<'_, Option<Instant>> {
        let until = &self.version_one_until;
        until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connect_speaking(
        &self,
        versions: Versions,
        terms: &Terms,
    ) -> Result<(Endpoint, ConnectionInfo), Failure> {
        let (mut endpoint, private_data) = self.establish(versions, terms).await?;
        if self.config.versions == Versions::Auto {
            endpoint.connection.assume_version_one();
        }
        let offered = self.versions_with(versions, &private_data) == Versions::Auto;
        let settled = tokio::time::timeout(self.config.version_timeout, endpoint.settle());
        let over = match settled.await {
            Ok(Ok(version)) => {
                if offered && version == Version::One {
                    self.remember_version_one();
                }
                let info = info(&endpoint, version, private_data);
                let properties = endpoint.connection.peer_properties();
                debug!(peer = %info.peer, ?version, thresholds = ?info.thresholds, ?properties, "connected: {}", info.description);
                return Ok((endpoint, info));
            }
            Ok(Err(over)) => self.with_drafts(over, &private_data),
            Err(_) => CloseReason::NoVersion(self.config.version_timeout),
        };
        if !matches!(over, CloseReason::Closed(_)) {
            endpoint.close().await;
        }
        Err(Failure::Version(over))
    }

    /// Names the drafts of both ends where that is why there is no common version.
    fn with_drafts(&self, over: CloseReason, private_data: &[u8]) -> CloseReason {
        let own = self.config.dialect;
        match (over, Dialect::announced(private_data)) {
            (CloseReason::Violation(Violation::NoCommonVersion { .. }), Some(of_server))
                if of_server != own =>
            {
                CloseReason::OtherDraft { of_server, own }
            }
            (over, _) => over,
        }
    }

    /// Makes a connection, and returns it with the server's private data. The version is not
    /// settled yet if there is a choice.
    async fn establish(
        &self,
        versions: Versions,
        terms: &Terms,
    ) -> Result<(Endpoint, Vec<u8>), SetupError> {
        let limits = self.provider.limits();
        let own = PrivateData {
            send: self.config.send_size,
            receive: self.config.receive_size,
            remote_invalidation: terms.announces(),
        };
        let backward = match &self.config.callbacks {
            Some(_) => self.config.backward_credits.max(1),
            None => UNSERVED,
        };
        let too_few = || io::Error::other("the provider has room for too few Receives");
        let parts = for_parts(self.config.dialect, versions);
        let receives = limits.receives.saturating_sub(parts);
        let (credits, backward_credits) =
            share(receives, self.config.credits, backward).ok_or_else(too_few)?;
        let mut config = Config {
            role: Role::Client,
            versions,
            dialect: self.config.dialect,
            xids: self.xids.clone(),
            own,
            characteristics: Characteristics {
                largest: self.config.max_receive_size,
                // Each end sends as much as it receives (xcharext §3.1).
                raise_to: self.config.send_size,
                backward: match &self.config.callbacks {
                    Some(_) => BackwardSupport::General,
                    None => BackwardSupport::None,
                },
                remote_invalidation_by_version: terms.by_version(),
                designs: terms.designs(),
                registry: self.config.characteristics.registry.clone(),
                registered: self.config.characteristics.values.clone(),
                ..Characteristics::default()
            },
            credits,
            first_grant: 0,
            backward_credits,
            reserve_credit: self.config.health.is_done(&limits),
            max_chunk: self.config.max_chunk,
            max_segment: self.config.max_segment,
            registrations: self.registrations(),
            persistent: self.config.persistent_arguments,
            one_region: self.config.one_region,
            receives: Receives::Posted,
            pool: self.pool.clone(),
        };
        let shared = self.shared_receives(&limits, &config);
        if let Some(shared) = &shared {
            let size = shared.block_size();
            config.receives = Receives::Shared { size };
        }
        let options = QpOptions::default()
            .with_receives(match &shared {
                Some(shared) => shared.blocks(),
                None => config.posted_receives(),
            })
            .with_receive_size(config.receive_size())
            .with_shared_receives(shared)
            .with_setup_timeout(self.config.setup_timeout);
        let user = &self.config.private_data;
        let private_data = own.with_user_bytes(user, limits.private_data.request);
        let receives = config.initial_receives();
        let Connected { qp, private_data } = self
            .provider
            .connect(self.to, &options, &private_data, receives)
            .await?;
        let peer = PrivateData::find(&private_data);
        config.versions = self.versions_with(versions, &private_data);
        let owner = ConnectionOwner::new(FailedCalls::new());
        let connection = Connection::new(&config, owner, peer, qp.limits());
        let budget = Budget::new(self.config.chunk_memory);
        let account = budget.account(PeerGroup::of(qp.peer_addr().ip()));
        Ok((
            Endpoint::new(qp, connection, self.service(), account),
            private_data,
        ))
    }

    /// Makes a queue of Receives for one connection, if they are to be without memory until a message
    /// arrives: one for each call and each reply, and as many again for replies that the application
    /// still holds.
    fn shared_receives(&self, limits: &Limits, config: &Config) -> Option<SharedReceiveQueue> {
        let possible = limits.shared_receives && limits.holds_peer_back;
        (self.config.receives_on_arrival && possible).then(|| {
            let blocks = 2 * config.credits as usize + config.backward_credits as usize;
            let size = config.largest_receive().bytes();
            let parts = for_parts(config.dialect, config.versions);
            SharedReceiveQueue::new(blocks + parts + RECEIVE_SLACK, size)
        })
    }

    /// Verifies remote invalidation: has the server invalidate a scratch region, and checks that
    /// the provider reports it. The call does nothing, and its reply is discarded.
    async fn test_invalidation(&self, endpoint: &mut Endpoint) -> Result<(), CloseReason> {
        let limit = self.config.setup_timeout;
        let test = async {
            let request = null_call(self.xids.next(), self.config.health.program);
            let request = request.with_reply_chunk();
            let called = endpoint
                .connection
                .call(clock::now(), request, endpoint.qp.as_mut());
            if called.is_err() {
                return Err(endpoint.over().unwrap_or(CloseReason::Impossible));
            }
            loop {
                let moved = endpoint.turn() != Turn::Nothing;
                while let Some(event) = endpoint.connection.poll_event() {
                    match event {
                        // Its memory is back: what was to be told was told.
                        Event::Reply { .. } => return Ok(()),
                        Event::Call { id, .. } => endpoint.connection.reply(id, Reply::Nothing),
                    }
                }
                if let Some(over) = endpoint.over() {
                    return Err(over);
                }
                endpoint.pause(moved).await;
            }
        };
        match tokio::time::timeout(limit, test).await {
            Ok(tested) => tested,
            Err(_) => Err(CloseReason::CallTimedOut(limit)),
        }
    }
}

/// A failed connection to a server. Its source is the reason.
#[derive(Debug, thiserror::Error)]
#[error("cannot connect to {to}")]
#[non_exhaustive]
pub struct ConnectError {
    /// Address of the server.
    pub to: SocketAddr,
    /// The reason.
    pub source: SetupError,
}

/// Why a connection attempt failed.
enum Failure {
    Setup(SetupError),
    /// The connection was set up, but ended before the version was settled.
    Version(CloseReason),
}

impl From<SetupError> for Failure {
    fn from(error: SetupError) -> Self {
        Self::Setup(error)
    }
}

impl Failure {
    fn into_error(self) -> SetupError {
        match self {
            Self::Setup(error) => error,
            Self::Version(over) => SetupError::NotOurProtocol(
                Reason::new(ProtocolMismatch::NoCommonVersion).with_detail(over),
            ),
        }
    }
}

/// Whether the server may support only version one: its connection was lost, it did not answer in
/// time, or its answer was not one of version two, or left the layout of its messages open. Other
/// failures tell nothing about versions.
fn may_speak_version_one(over: &CloseReason) -> bool {
    match over {
        CloseReason::Closed(_) | CloseReason::NoVersion(_) => true,
        CloseReason::Violation(violation) => matches!(
            violation,
            Violation::OfferNotUnderstood | Violation::OtherDialect(..) | Violation::UnclearDesign
        ),
        CloseReason::Impossible
        | CloseReason::OtherDraft { .. }
        | CloseReason::ServiceFailed
        | CloseReason::Idle(_)
        | CloseReason::Unused(_)
        | CloseReason::Silent(_)
        | CloseReason::Mute(_)
        | CloseReason::PullTimedOut(_)
        | CloseReason::NoCredits(_)
        | CloseReason::Oversized { .. }
        | CloseReason::TooSlow
        | CloseReason::GaveWay
        | CloseReason::CallTimedOut(_)
        | CloseReason::NoBackwardCredit
        | CloseReason::Evicted
        | CloseReason::ByService
        | CloseReason::Asked
        | CloseReason::TaskEnded => false,
    }
}

fn info(endpoint: &Endpoint, version: Version, private_data: Vec<u8>) -> ConnectionInfo {
    let Endpoint { qp, connection, .. } = endpoint;
    ConnectionInfo {
        peer: qp.peer_addr(),
        description: qp.describe(),
        device: qp.device().map(str::to_owned),
        version,
        thresholds: connection.thresholds(),
        max_chunk: connection.max_chunk(),
        remote_invalidation: connection.design(),
        peer_private_data: PrivateData::find(&private_data),
        raw_private_data: private_data,
        credits: connection.credits(),
        peer_characteristics: connection
            .session()
            .map(|session| session.peer_values().clone())
            .unwrap_or_default(),
    }
}

/// A wrapper that turns a panic of the service into the end of the connection. Otherwise the task
/// that owns the connection would end, and with it all calls of the client.
struct Guarded(Arc<dyn Service>);

impl Guarded {
    /// Asks the service; a panic is the answer by default.
    fn ask<T: Default>(&self, ask: impl FnOnce(&dyn Service) -> T) -> T {
        catch_unwind(AssertUnwindSafe(|| ask(&*self.0))).unwrap_or_default()
    }
}

impl Service for Guarded {
    fn call(&self, call: Payload, caller: &Caller) -> Answer {
        let called = AssertUnwindSafe(|| self.0.call(call, caller));
        catch_unwind(called).unwrap_or_else(|panic| {
            // As if it had happened beside others, where it ends the connection.
            Answer::Later(Box::pin(async move { resume_unwind(panic) }))
        })
    }

    fn reply_bound(&self, call: ReceivedCall<'_>) -> Option<ReplyBound> {
        self.ask(|service| service.reply_bound(call))
    }

    fn keeps_calls(&self) -> bool {
        self.ask(|service| service.keeps_calls())
    }

    // Behind both, the connection is over in any case.

    fn closed_in_order(&self, caller: &Caller) {
        self.ask(|service| service.closed_in_order(caller));
    }

    fn connection_ended(&self, connection: ConnectionId) {
        self.ask(|service| service.connection_ended(connection));
    }
}

/// Whether a connection ended because the assumption that the server supports version one was
/// wrong.
pub(crate) fn shows_version_two(over: &CloseReason) -> bool {
    matches!(
        over,
        CloseReason::Violation(Violation::NoCommonVersion { .. })
    )
}

/// Whether a connection ended because the provider does not do remote invalidation as it reports.
pub(crate) fn shows_broken_invalidation(over: &CloseReason) -> bool {
    matches!(over, CloseReason::Violation(Violation::LostHandle))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    /// A service that has no default of the trait, and may panic.
    #[derive(Default)]
    struct Odd {
        panics: bool,
        ended: AtomicUsize,
    }

    impl Odd {
        fn end(&self) {
            self.ended.fetch_add(1, Relaxed);
            assert!(!self.panics);
        }
    }

    impl Service for Odd {
        fn call(&self, _: Payload, _: &Caller) -> Answer {
            assert!(!self.panics);
            Answer::Now(Reply::Nothing)
        }

        fn reply_bound(&self, _: ReceivedCall<'_>) -> Option<ReplyBound> {
            assert!(!self.panics);
            Some(ReplyBound::default())
        }

        fn keeps_calls(&self) -> bool {
            assert!(!self.panics);
            true
        }

        fn closed_in_order(&self, _: &Caller) {
            self.end();
        }

        fn connection_ended(&self, _: ConnectionId) {
            self.end();
        }
    }

    #[test]
    fn guarded_service_is_asked_everything_and_ends_the_connection_when_it_panics() {
        for panics in [false, true] {
            let odd = Arc::new(Odd {
                panics,
                ..Odd::default()
            });
            let guarded = Guarded(Arc::clone(&odd) as Arc<dyn Service>);
            let bound = guarded.reply_bound(ReceivedCall::default());
            assert_eq!((bound.is_none(), guarded.keeps_calls()), (panics, !panics));
            let caller = Caller::new(SocketAddr::from(([127, 0, 0, 1], 700)));
            let answer = guarded.call(Payload::default(), &caller);
            assert_eq!(matches!(answer, Answer::Later(_)), panics);
            guarded.closed_in_order(&caller);
            guarded.connection_ended(caller.connection);
            assert_eq!(odd.ended.load(Relaxed), 2);
        }
    }
}
