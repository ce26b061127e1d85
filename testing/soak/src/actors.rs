//! Actors of a run: a server that may be restarted, and its clients.

use crate::back::{MayCall, backchannels};
use crate::dice::Dice;
use crate::faults::Sizes;
use crate::scenario::Scenario;
use crate::stage::{Stage, count};
use crate::varying::VaryingInvalidation;
use buffer::Pool;
use oncrpc::Service;
use rpcrdma::{
    Backchannels, CallbackService, Client, ClientConfig, Design, HealthCheck, HealthChecks,
    InlineThreshold, PersistentArguments, Server, ServerConfig, Spin,
};
use rpcrdma_watch::{Party, Watched};
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::Instant;
use verbs::Provider;

/// Bytes of buffers that a server keeps for reuse.
pub(crate) const KEEP: usize = 4 << 20;

/// Attempts of a restarted server to listen on the address of the last one, which may not be
/// released yet.
const BINDS: u32 = 1000;

/// Attempts of a client to connect for the first time.
const CONNECTS: u32 = 200;

/// A server that can be restarted.
pub(crate) struct TestServer {
    stage: Arc<Stage>,
    party: Party,
    provider: Arc<dyn Provider>,
    service: Box<dyn Fn() -> Arc<dyn Service> + Send + Sync>,
    present: Mutex<Option<Server>>,
    pools: Mutex<Vec<Pool>>,
    /// Connections over which clients can be called.
    backchannels: Option<Backchannels>,
    /// The address that clients connect to.
    pub(crate) reached_at: SocketAddr,
    listens_at: SocketAddr,
}

/// Inline thresholds, credits and remote invalidation of one end.
struct Terms {
    send: InlineThreshold,
    receive: InlineThreshold,
    credits: u32,
    remote_invalidation: Vec<Design>,
}

impl Terms {
    fn draw(scenario: &Scenario, dice: &mut Dice) -> Self {
        let size = |dice: &mut Dice| InlineThreshold::at_most(dice.of(scenario.inline));
        Self {
            send: size(dice),
            receive: size(dice),
            credits: dice.of(scenario.credits),
            remote_invalidation: invalidation(scenario, dice),
        }
    }
}

/// Draws designs for remote invalidation, in any order.
fn invalidation(scenario: &Scenario, dice: &mut Dice) -> Vec<Design> {
    let mut designs = vec![Design::PerConnection; (!dice.once_in(4)).into()];
    designs.extend(scenario.by_version.then_some(Design::PerVersion));
    for &design in scenario.designs {
        if !dice.once_in(4) {
            let at = dice.within(0, designs.len());
            designs.insert(at, design);
        }
    }
    designs
}

/// Persistently registered memory for one client in three, where there are designs that allow it.
fn persistent(scenario: &Scenario, dice: &mut Dice) -> Option<PersistentArguments> {
    let has = !scenario.designs.is_empty() && dice.once_in(3);
    has.then(|| PersistentArguments {
        regions: dice.of(&[1, 2, 8, 40]),
        bytes: dice.of(&[500, 5000, 100_000]),
    })
}

/// Health checks with short intervals, where the scenario has them.
fn health(scenario: &Scenario, dice: &mut Dice, usual: HealthCheck) -> HealthCheck {
    if !scenario.health {
        return usual;
    }
    usual
        .with_checks(HealthChecks::On)
        .with_after(Duration::from_secs(dice.of(&[1, 5, 15])))
        .with_within(Duration::from_secs(dice.of(&[1, 5])))
}

/// Configuration of a server of this scenario.
pub(crate) fn server_config(scenario: &Scenario, dice: &mut Dice, pool: Pool) -> ServerConfig {
    let terms = Terms::draw(scenario, dice);
    let usual = ServerConfig::default();
    let tiny = scenario.sizes == Sizes::Tiny;
    usual
        .clone()
        .with_versions(dice.of(scenario.versions.1))
        .with_dialect(scenario.dialect)
        .with_max_send_size(InlineThreshold::at_most(dice.of(scenario.inline)))
        .with_credits(terms.credits)
        .with_send_size(terms.send)
        .with_receive_size(terms.receive)
        .with_remote_invalidation(terms.remote_invalidation)
        .with_workers(0)
        .with_spin(Spin::Park)
        .with_pool(pool)
        .with_setup_timeout(Duration::from_secs(4))
        .with_pull_timeout(Duration::from_secs(30))
        // Little enough that calls wait for each other.
        .with_chunk_memory(match scenario.memory {
            [] if tiny => dice.of(&[300_000, 2_000_000]),
            [] => usual.chunk_memory,
            several => dice.of(several),
        })
        .with_drain_timeout(Duration::from_secs(3))
        .with_idle_timeout(Some(Duration::from_secs(dice.of(&[3, 60, 360]))))
        .with_max_connections(match scenario.max_connections {
            0 => usual.max_connections,
            several => several,
        })
        .with_backward_credits(match scenario.backward {
            Some(_) => dice.of(&[1, 2, 5, 16]),
            None => usual.backward_credits,
        })
        .with_backward_timeout(match scenario.backward {
            Some(_) => Duration::from_millis(dice.of(scenario.timeouts)),
            None => usual.backward_timeout,
        })
        .with_health(health(scenario, dice, usual.health))
}

/// Configuration of a client of this scenario.
pub(crate) fn client_config(scenario: &Scenario, dice: &mut Dice) -> ClientConfig {
    let terms = Terms::draw(scenario, dice);
    let usual = ClientConfig::default();
    let call_timeout = Duration::from_millis(dice.of(scenario.timeouts));
    let mut config = usual
        .clone()
        .with_connections(match scenario.connections {
            (1, 1) => 1,
            (least, most) => dice.within(least, most),
        })
        .with_backward_credits(match scenario.backward {
            Some(_) => dice.of(&[1, 2, 5, 16]),
            None => usual.backward_credits,
        })
        .with_idle_timeout(match scenario.idle {
            [] => usual.idle_timeout,
            several => Some(Duration::from_secs(dice.of(several))),
        })
        .with_health(health(scenario, dice, usual.health))
        .with_versions(dice.of(scenario.versions.0))
        .with_dialect(scenario.dialect)
        .with_max_receive_size(InlineThreshold::at_most(dice.of(scenario.inline)))
        .with_version_timeout(Duration::from_secs(2))
        .with_credits(terms.credits)
        .with_send_size(terms.send)
        .with_receive_size(terms.receive)
        .with_remote_invalidation(terms.remote_invalidation);
    config.persistent_arguments = persistent(scenario, dice);
    // Handles of such a call are not spared for others, which is all that some scenarios are for.
    config.one_region = scenario.designs.len() > 1 && dice.once_in(3);
    config
        .with_max_segment(dice.of(scenario.segments))
        .with_call_timeout(call_timeout)
        .with_first_reply_timeout(call_timeout / dice.of(&[1, 4, 20]))
        .with_setup_timeout(Duration::from_secs(2))
        .with_reconnect_first(Duration::from_millis(dice.of(&[1, 20, 100])))
        .with_reconnect_most(Duration::from_secs(1))
        .with_spin(Spin::Park)
}

impl TestServer {
    /// Binds and serves.
    pub(crate) async fn new(
        stage: &Arc<Stage>,
        dice: &mut Dice,
        party: Party,
        service: Box<dyn Fn() -> Arc<dyn Service> + Send + Sync>,
        back: &MayCall,
    ) -> Self {
        let provider = party.provider(stage.net.provider(dice));
        let service = {
            let party = party.clone();
            Box::new(move || party.service(service()))
        };
        let pool = Pool::new(KEEP);
        let backchannels = backchannels(back);
        let mut config = server_config(&stage.scenario, dice, pool.clone());
        config.backchannels = backchannels.clone();
        let at = stage.net.listen_at();
        let server = Server::bind(Arc::clone(&provider), at, service(), config).await;
        let server = server.expect("a server that was never there can listen");
        let listens_at = server.local_addr();
        Self {
            stage: Arc::clone(stage),
            party,
            provider,
            service,
            present: Mutex::new(Some(server)),
            pools: Mutex::new(vec![pool]),
            backchannels,
            reached_at: stage.net.reached_at(listens_at).await,
            listens_at,
        }
    }

    fn take(&self) -> Option<Server> {
        let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        present.take()
    }

    /// Stops the server, and starts another one after some time.
    pub(crate) async fn restart(&self, dice: &mut Dice) {
        count(&self.stage.counts.restarts);
        match self.take() {
            Some(server) if dice.coin() => self.stop(server).await,
            server => drop(server),
        }
        self.stage.pause(dice, 3000).await;
        let pool = Pool::new(KEEP);
        let pools = &self.pools;
        { pools.lock().unwrap_or_else(PoisonError::into_inner) }.push(pool.clone());
        let mut config = server_config(&self.stage.scenario, dice, pool);
        config.backchannels = self.backchannels.clone();
        for _ in 0..BINDS {
            let (provider, config) = (Arc::clone(&self.provider), config.clone());
            let bound = Server::bind(provider, self.listens_at, (self.service)(), config);
            if let Ok(server) = bound.await {
                let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
                *present = Some(server);
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.stage
            .watch
            .finding("a new server cannot listen where the last one did");
    }

    async fn stop(&self, server: Server) {
        let stats = server.shutdown().await;
        let scenario = &self.stage.scenario;
        // A call that is answered later keeps its memory until then, though its connection is over.
        let answered = scenario.must_succeed && scenario.cancel == 0 && scenario.restarts.1 == 0;
        if stats.connections > 0 || answered && stats.chunk_memory > 0 {
            let (connections, bytes) = (stats.connections, stats.chunk_memory);
            self.stage.watch.finding(format_args!(
                "a server that has stopped has {connections} connections and {bytes} bytes"
            ));
        }
    }

    /// Stops the server for good.
    pub(crate) async fn end(&self) {
        if let Some(server) = self.take() {
            self.stop(server).await;
        }
    }

    /// Checks for leaks once all tasks have ended and the service is gone.
    pub(crate) fn check(self) {
        let Self {
            stage,
            party,
            service,
            pools,
            backchannels,
            ..
        } = self;
        drop(service);
        party.check_gone();
        let left = backchannels.map_or(0, |open| open.len());
        if left > 0 {
            stage.watch.finding(format_args!(
                "{left} connections to call clients over are left"
            ));
        }
        let pools = pools.into_inner().unwrap_or_else(PoisonError::into_inner);
        let out: usize = pools.iter().map(|pool| pool.stats().out).sum();
        if out > 0 {
            stage
                .watch
                .finding(format_args!("the server has lost {out} bytes of buffers"));
        }
    }
}

/// A client whose calls are watched.
pub(crate) struct TestClient {
    pub(crate) watched: Watched<Client>,
    party: Party,
}

impl TestClient {
    /// Connects; `None` if that does not succeed in a long time.
    pub(crate) async fn new(
        stage: &Arc<Stage>,
        dice: &mut Dice,
        number: usize,
        to: SocketAddr,
        back: &MayCall,
    ) -> Option<Self> {
        let party = stage.watch.party(format_args!("client {number}"));
        let scenario = &stage.scenario;
        let mut provider = stage.net.provider(dice);
        if scenario.varying_invalidation {
            provider = Arc::new(VaryingInvalidation::new(provider, dice.split()));
        }
        let provider = party.provider(provider);
        let mut config = client_config(scenario, dice);
        config.callbacks = back
            .as_ref()
            .and_then(|back| back.client(number, dice))
            .map(|service| CallbackService(party.service(service)));
        for _ in 0..CONNECTS {
            let made = Client::connect(Arc::clone(&provider), to, config.clone()).await;
            if let Ok(client) = made {
                return Some(Self {
                    watched: party.transport(client),
                    party,
                });
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        stage
            .watch
            .finding(format_args!("client {number} makes no connection"));
        None
    }

    /// A handle for one more task, which may have a queue of its own.
    pub(crate) fn user(&self, one_in: u32, dice: &mut Dice) -> Watched<Client> {
        match dice.once_in(one_in) {
            true => self.party.transport(self.watched.new_user()),
            false => self.watched.clone(),
        }
    }

    /// Closes its connection.
    pub(crate) async fn end(&self) {
        self.watched.close().await;
    }

    /// Checks for leaks once all tasks have ended.
    pub(crate) fn check(self, stage: &Stage) {
        let connections = self.party.tally().connections;
        let counters = self.watched.counters();
        let counts = &stage.counts;
        counts.connections.fetch_add(connections, Relaxed);
        { &counts.invalidated }.fetch_add(counters.remote_invalidations, Relaxed);
        let between = counters.remote_invalidations_inter_call;
        counts.invalidated_between.fetch_add(between, Relaxed);
        self.party.check_gone();
        let out = self.watched.memory().out;
        if out > 0 {
            stage
                .watch
                .finding(format_args!("a client has lost {out} bytes of buffers"));
        }
    }
}

/// Restarts the server and disturbs connections while calls are made.
pub(crate) async fn disturb(stage: &Stage, server: &TestServer, dice: &mut Dice) {
    let scenario = &stage.scenario;
    let mut restarts = dice.within(scenario.restarts.0, scenario.restarts.1);
    let mut disturbances = dice.within(scenario.disturbances.0, scenario.disturbances.1);
    while restarts + disturbances > 0 {
        stage.pause(dice, 1500).await;
        if dice.below(restarts + disturbances) < restarts {
            restarts -= 1;
            server.restart(dice).await;
        } else {
            disturbances -= 1;
            stage.net.disturb(dice);
        }
    }
}

/// Checks for leaks once all tasks have ended.
pub(crate) type Leaks = Box<dyn FnOnce(&Stage)>;

/// The checks of a server and its clients.
pub(crate) fn leaks(server: TestServer, clients: Vec<TestClient>) -> Leaks {
    Box::new(move |stage| {
        server.check();
        for client in clients {
            client.check(stage);
        }
    })
}

/// Checks for leaks after a run; `others` tasks may stay alive.
pub(crate) async fn gone(stage: &Stage, others: usize, limit: Duration, leaks: Leaks) {
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let until = Instant::now() + limit;
    while tasks() > others && Instant::now() < until {
        tokio::time::sleep(limit / 200).await;
    }
    let left = tasks() - others;
    if left > 0 {
        stage.watch.finding(format_args!("{left} tasks are left"));
    }
    leaks(stage);
}
