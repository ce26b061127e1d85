//! The gateways and the server, each of which may be restarted.

use crate::actors::{KEEP, client_config, server_config};
use crate::dice::Dice;
use crate::scenario::Scenario;
use crate::stage::{Stage, count};
use crate::wires::Wires;
use buffer::Pool;
use gateway::{
    Connect, Gateway, GatewayConfig, GatewayMonitor, Listen, MAX_RECORD, Upstream, tcp_limits,
};
use oncrpc::Service;
use oncrpc_tcp::{Backchannels, Limits, Stream};
use rpcrdma_watch::Party;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use verbs::{BoxFuture, Provider};

/// Address to which clients connect.
pub(super) const FRONT: SocketAddr = at(1);

/// Address of the server.
const SERVER: SocketAddr = at(2);

/// Address from which the gateway behind connects.
const BEHIND: SocketAddr = at(3);

/// An address of this machine, to which the files are exported.
const fn at(last: u8) -> SocketAddr {
    SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, last), 2049))
}

/// Attempts of a gateway to listen on the address of the last one, which may not be released yet.
const BINDS: u32 = 1000;

/// Makes the service of each server.
pub(super) type MakeService = Box<dyn Fn() -> Arc<dyn Service> + Send + Sync>;

/// The gateways, the server, and what is between them.
pub(super) struct Stations {
    stage: Arc<Stage>,
    pub(super) wires: Wires,
    pub(super) front: Station,
    pub(super) behind: Station,
    server: Mutex<Option<Server>>,
    service: MakeService,
    /// Connections over which the server calls its clients.
    backchannels: Backchannels,
    /// Address at which the gateway behind listens.
    behind_at: SocketAddr,
    /// Bytes of replies that gateways have room for.
    room: usize,
}

/// A gateway, with what is left of those before it.
pub(super) struct Station {
    pub(super) party: Party,
    provider: Arc<dyn Provider>,
    present: Mutex<Option<Gateway>>,
    monitors: Mutex<Vec<GatewayMonitor>>,
    pools: Mutex<Vec<Pool>>,
}

/// A running server.
struct Server {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Station {
    fn new(stage: &Stage, party: Party, dice: &mut Dice) -> Self {
        Self {
            provider: party.provider(stage.net.provider(dice)),
            party,
            present: Mutex::default(),
            monitors: Mutex::default(),
            pools: Mutex::default(),
        }
    }

    fn put(&self, gateway: Gateway) {
        lock(&self.monitors).push(gateway.monitor());
        *lock(&self.present) = Some(gateway);
    }

    /// Ends the gateway, in order or at once.
    async fn end(&self, in_order: bool) {
        let present = lock(&self.present).take();
        match present {
            Some(gateway) if in_order => drop(gateway.shutdown().await),
            gateway => drop(gateway),
        }
    }

    fn check(&self, stage: &Stage) {
        self.party.check_gone();
        for monitor in &*lock(&self.monitors) {
            let (pairs, out) = (monitor.stats().relays, monitor.memory().out);
            if pairs > 0 || out > 0 {
                stage.watch.finding(format_args!(
                    "a gateway is left with {pairs} pairs and {out} bytes of records"
                ));
            }
        }
        let out: usize = lock(&self.pools).iter().map(|pool| pool.stats().out).sum();
        if out > 0 {
            stage
                .watch
                .finding(format_args!("a gateway has lost {out} bytes of buffers"));
        }
    }
}

impl Stations {
    pub(super) async fn new(
        stage: &Arc<Stage>,
        dice: &mut Dice,
        [front, behind]: [Party; 2],
        (service, backchannels): (MakeService, Backchannels),
        room: usize,
    ) -> Self {
        let scenario = &stage.scenario;
        let wires = Wires::new(
            stage.watch.clone(),
            scenario.faults,
            scenario.sizes,
            dice.split(),
        );
        let mut stations = Self {
            stage: Arc::clone(stage),
            wires,
            front: Station::new(stage, front, dice),
            behind: Station::new(stage, behind, dice),
            server: Mutex::default(),
            service,
            backchannels,
            behind_at: stage.net.listen_at(),
            room,
        };
        stations.start_server(dice);
        stations.start_behind(dice).await;
        let listens = lock(&stations.behind.present)
            .as_ref()
            .map(Gateway::local_addr);
        if let Some(listens) = listens {
            stations.behind_at = listens;
        }
        stations.start_front(dice).await;
        stations
    }

    fn start_server(&self, dice: &mut Dice) {
        let streams = self.wires.listen(SERVER);
        // It answers what comes over RPC-over-RDMA to the gateway before it.
        let service = self.behind.party.service((self.service)());
        let server = oncrpc_tcp::Server::over(streams, service, limits(&self.stage.scenario, dice));
        let server = server.backchannels(self.backchannels.clone());
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(server.run(async move { drop(stopped.await) }));
        *lock(&self.server) = Some(Server { stop, task });
    }

    async fn end_server(&self, in_order: bool) {
        let Some(Server { stop, task }) = lock(&self.server).take() else {
            return;
        };
        match in_order {
            // The send fails only if it has ended.
            true => drop(stop.send(())),
            false => task.abort(),
        }
        // An error is that it was aborted.
        let _ = task.await;
    }

    async fn start_front(&self, dice: &mut Dice) {
        let listen = Listen::Streams {
            streams: self.wires.listen(FRONT),
            addr: FRONT,
            limits: limits(&self.stage.scenario, dice),
        };
        let config = client_config(&self.stage.scenario, dice);
        let upstream = Upstream::rdma(Arc::clone(&self.front.provider), self.behind_at, config);
        match Gateway::bind(listen, upstream, self.config(dice)).await {
            Ok(gateway) => self.front.put(gateway),
            Err(error) => self.stage.watch.finding(error),
        }
    }

    async fn start_behind(&self, dice: &mut Dice) {
        let pool = Pool::new(KEEP);
        lock(&self.behind.pools).push(pool.clone());
        let server = server_config(&self.stage.scenario, dice, pool);
        let config = self.config(dice);
        for _ in 0..BINDS {
            let provider = Arc::clone(&self.behind.provider);
            let listen = Listen::rdma(provider, self.behind_at, server.clone());
            let upstream = Upstream::Streams {
                connect: Arc::new(Wire(self.wires.clone())),
                addrs: vec![SERVER],
            };
            if let Ok(gateway) = Gateway::bind(listen, upstream, config.clone()).await {
                return self.behind.put(gateway);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.stage
            .watch
            .finding("a new gateway cannot listen where the last one did");
    }

    fn config(&self, dice: &mut Dice) -> GatewayConfig {
        let scenario = &self.stage.scenario;
        let timeout = Duration::from_millis(dice.of(scenario.timeouts));
        GatewayConfig::default()
            .with_workers(0_usize)
            .with_max_reply(self.room)
            .with_call_timeout(timeout)
            .with_connect_timeout(Duration::from_secs(dice.of(&[2, 10])))
            .with_connect_window(Duration::from_secs(dice.of(&[1, 5, 30])))
            .with_retry_first(Duration::from_millis(dice.of(&[1, 100])))
            .with_retry_most(Duration::from_secs(dice.of(&[1, 5])))
    }

    /// Ends one of the three, and starts another in its place after some time.
    pub(super) async fn restart(&self, dice: &mut Dice) {
        count(&self.stage.counts.restarts);
        let (which, in_order) = (dice.below(3), dice.coin());
        match which {
            0 => self.front.end(in_order).await,
            1 => self.behind.end(in_order).await,
            _ => self.end_server(in_order).await,
        }
        self.stage.pause(dice, 3000).await;
        match which {
            0 => self.start_front(dice).await,
            1 => self.start_behind(dice).await,
            _ => self.start_server(dice),
        }
    }

    /// Ends all three.
    pub(super) async fn end(&self) {
        self.front.end(true).await;
        self.behind.end(true).await;
        self.end_server(true).await;
    }

    /// Checks for leaks once all tasks have ended.
    pub(super) fn check(self, stage: &Stage) {
        drop(self.service);
        self.front.check(stage);
        self.behind.check(stage);
        let (connections, open) = self.wires.connections();
        stage.counts.connections.fetch_add(connections, Relaxed);
        if open > 0 {
            stage
                .watch
                .finding(format_args!("{open} TCP connections are left"));
        }
    }
}

/// Limits of a TCP side, from what is just enough to the usual.
fn limits(scenario: &Scenario, dice: &mut Dice) -> Limits {
    Limits {
        // A call that is answered after a callback holds its place meanwhile. With fewer places than
        // a client has calls, all may be held, and the replies to the callbacks come behind calls
        // that nobody takes off the stream.
        calls: dice.of(match scenario.backward {
            Some(_) => &[16, 128][..],
            None => &[1, 2, 16, 128],
        }),
        memory: dice.of(&[MAX_RECORD, 64 << 20]),
        idle: Duration::from_secs(dice.of(&[3, 60, 360])),
        ..tcp_limits()
    }
}

/// Connects the gateway behind to the server.
struct Wire(Wires);

impl Connect for Wire {
    fn connect(&self, to: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Stream>>> {
        Box::pin(self.0.connect(BEHIND, to))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
