//! Calls through two gateways: TCP to RPC-over-RDMA, and back.
//!
//! ```text
//! clients --TCP-- gateway in front --RPC-over-RDMA-- gateway behind --TCP-- server
//! ```
//!
//! Every part of that is under faults, and any of the three may be restarted. The server calls its
//! clients back over the same connections. Checkers stand at each connection, and at the callers and
//! the services of both directions.

mod callbacks;
mod client;
mod messages;
mod program;
mod session;
mod stations;

use crate::actors::Leaks;
use crate::dice::Dice;
use crate::echo::{Echo, How, Mix, Shape};
use crate::faults::Sizes;
use crate::files::{User, exports, programs};
use crate::scenario::Load;
use crate::stage::{Stage, count};
use callbacks::Callbacks;
use client::TcpClient;
use gateway::MAX_REPLY;
use messages::{ECHO, Said};
use oncrpc::{Transport, TransportError};
use program::EchoProgram;
use rpcrdma_watch::Watched;
use stations::{MakeService, Stations};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;

/// Bytes of replies that a gateway has room for, drawn once for a run. With tiny limits a region has
/// less than [`MAX_REPLY`].
const ROOM: &[usize] = &[20_000, 300_000, MAX_REPLY];
const TINY_ROOM: &[usize] = &[20_000, 300_000];

/// Plays a scenario; leaks are checked later, when all tasks have ended.
pub(crate) async fn play(stage: &Arc<Stage>, load: Load, mut dice: Dice) -> Leaks {
    let scenario = stage.scenario;
    let echo = Arc::new(Echo::default());
    let parties =
        ["the gateway in front", "the gateway behind"].map(|name| stage.watch.party(name));
    let callbacks = scenario.backward.map(|backward| {
        let [front, behind] = &parties;
        Callbacks::new(stage, (front, behind), backward)
    });
    let service: MakeService = match load {
        Load::Calls(_) => {
            let (echo, callbacks) = (Arc::clone(&echo), callbacks.clone());
            Box::new(move || {
                let (echo, callbacks) = (Arc::clone(&echo), callbacks.clone());
                Arc::new(EchoProgram {
                    number: ECHO,
                    echo,
                    callbacks,
                })
            })
        }
        Load::Files(_) => {
            let exports = exports();
            Box::new(move || Arc::new(programs(&exports)))
        }
        Load::Nfs4 { .. } => unreachable!("it has no network"),
    };
    // NFS is to have room for its largest reply.
    let room = match load {
        Load::Calls(_) => dice.of(match scenario.sizes {
            Sizes::Usual => ROOM,
            Sizes::Tiny => TINY_ROOM,
        }),
        Load::Files(_) | Load::Nfs4 { .. } => MAX_REPLY,
    };
    let backchannels = { callbacks.as_ref() }.map(|callbacks| callbacks.backchannels.clone());
    let server = (service, backchannels.unwrap_or_default());
    let stations = Stations::new(stage, &mut dice, parties, server, room).await;
    let xids = Arc::new(AtomicU32::new(1));
    let log = Log::default();
    let mut clients = Vec::new();
    let mut tasks = JoinSet::new();
    for number in 0..dice.within(scenario.clients.0, scenario.clients.1) {
        let timeout = Duration::from_millis(dice.of(scenario.timeouts));
        let service = { callbacks.as_ref() }.and_then(|all| all.client(number, &mut dice));
        let tcp = TcpClient::new(
            &stations.wires,
            (address(number), stations::FRONT),
            timeout,
            &xids,
            service.map(|service| (number, service)),
            dice.split(),
        );
        let sent = tcp.clone();
        let party = &stations.front.party;
        let client = party.transport_to_gateway(tcp.clone(), move |xid| sent.sent(xid));
        for task in 0..dice.within(scenario.tasks.0, scenario.tasks.1) {
            match load {
                Load::Calls(mix) => {
                    let caller = Caller {
                        stage: Arc::clone(stage),
                        client: client.clone(),
                        callbacks: callbacks.clone(),
                        echo: Arc::clone(&echo),
                        log: Arc::clone(&log),
                        number,
                        room,
                        mix,
                        dice: dice.split(),
                    };
                    tasks.spawn(caller.run());
                }
                Load::Files(files) => {
                    let name = format!("dir-{number}-{task}");
                    let user = User::new(stage, &client, name, files.data, dice.split());
                    tasks.spawn(user.run());
                }
                Load::Nfs4 { .. } => unreachable!("it has no network"),
            }
        }
        clients.push(tcp);
    }
    let mut others = dice.split();
    tokio::join!(
        biased;
        async { while tasks.join_next().await.is_some() {} },
        disturb(stage, &stations, &mut others)
    );
    if let Some(callbacks) = &callbacks {
        callbacks.settle().await;
    }
    for client in &clients {
        client.close().await;
    }
    stations.end().await;
    check_executions(stage, &echo, &clients, &log);
    drop(clients);
    if let Some(callbacks) = &callbacks {
        callbacks.settle().await;
        callbacks.check();
    }
    Box::new(move |stage| stations.check(stage))
}

/// The address of a client.
fn address(number: usize) -> SocketAddr {
    let last = u8::try_from(number).expect("few clients");
    (Ipv4Addr::new(127, 0, 1, last), 700).into()
}

/// A call that a client made.
struct Made {
    id: u64,
    xid: u32,
    client: usize,
}

type Log = Arc<Mutex<Vec<Made>>>;

/// Checks that no call was executed more often than its client sent it.
fn check_executions(stage: &Stage, echo: &Echo, clients: &[TcpClient], log: &Log) {
    let log = log.lock().unwrap_or_else(PoisonError::into_inner);
    for Made { id, xid, client } in &*log {
        let (sent, executed) = (clients[*client].sent(*xid), echo.executed(*id));
        if executed > sent {
            stage.watch.finding(format_args!(
                "call {xid:#010x} was sent {sent} times and executed {executed} times"
            ));
        }
    }
    for wrong in echo.wrong() {
        stage.watch.finding(wrong);
    }
}

/// Restarts gateways and server, and disturbs connections, while calls are made.
async fn disturb(stage: &Stage, stations: &Stations, dice: &mut Dice) {
    let scenario = &stage.scenario;
    let mut restarts = dice.within(scenario.restarts.0, scenario.restarts.1);
    let mut disturbances = dice.within(scenario.disturbances.0, scenario.disturbances.1);
    while restarts + disturbances > 0 {
        stage.pause(dice, 1500).await;
        if dice.below(restarts + disturbances) < restarts {
            restarts -= 1;
            stations.restart(dice).await;
        } else {
            disturbances -= 1;
            match dice.once_in(3) {
                true => stage.net.disturb(dice),
                false => stations.wires.disturb(dice),
            }
        }
    }
}

/// One task that calls.
struct Caller {
    stage: Arc<Stage>,
    client: Watched<TcpClient>,
    callbacks: Option<Arc<Callbacks>>,
    echo: Arc<Echo>,
    log: Log,
    number: usize,
    /// Bytes of replies that the gateways have room for.
    room: usize,
    mix: Mix,
    dice: Dice,
}

impl Caller {
    async fn run(mut self) {
        let scenario = self.stage.scenario;
        for _ in 0..self.dice.within(scenario.calls.0, scenario.calls.1) {
            let (one_in, most) = scenario.pauses;
            if self.dice.once_in(one_in) {
                self.stage.pause(&mut self.dice, most).await;
            }
            self.call().await;
        }
    }

    async fn call(&mut self) {
        let counts = &self.stage.counts;
        count(&counts.calls);
        let shape = Shape::draw(&mut self.dice, &self.mix);
        let (id, xid) = (self.dice.any(), self.client.next_xid());
        { self.log.lock().unwrap_or_else(PoisonError::into_inner) }.push(Made {
            id,
            xid,
            client: self.number,
        });
        if let Some(callbacks) = &self.callbacks {
            callbacks.announce(id, self.number, &mut self.dice);
        }
        let message = messages::call(ECHO, &shape, xid, id);
        let call = self.client.call(message, shape.bound());
        let reply = if self.dice.once_in(self.stage.scenario.cancel) {
            let limit = self.dice.milliseconds(300) / self.stage.pace;
            match tokio::time::timeout(limit, call).await {
                Ok(reply) => reply,
                Err(_) => return count(&counts.cancelled),
            }
        } else {
            call.await
        };
        match self.judge(&shape, xid, id, reply) {
            Ok(true) => count(&counts.answered),
            Ok(false) => {}
            Err(wrong) => {
                let number = self.number;
                self.stage.watch.finding(format_args!(
                    "call {xid:#010x} of client {number}, {shape}: {wrong}"
                ));
            }
        }
    }

    /// Whether a call has its reply; the error describes an outcome that is not allowed.
    fn judge(
        &self,
        shape: &Shape,
        xid: u32,
        id: u64,
        reply: Result<oncrpc::xdr::Payload, TransportError>,
    ) -> Result<bool, String> {
        let scenario = &self.stage.scenario;
        match reply {
            Ok(reply) => match messages::check(shape, xid, id, &reply)? {
                Said::Done if shape.answer == How::Never => Err("a reply that nobody gave".into()),
                Said::Done if self.echo.executed(id) == 0 => {
                    Err("a reply, but nobody executed it".into())
                }
                Said::Done => Ok(true),
                // It may have fitted inline.
                Said::SystemErr if messages::reply_len(shape) > self.room => Ok(true),
                // A server does not try a call again whose chunks cost it a connection (RFC 8166
                // §4.5.3).
                Said::SystemErr if scenario.faults.failures > 0 => Ok(false),
                said @ (Said::SystemErr | Said::ProgUnavail) => Err(format!("{said:?}")),
            },
            Err(
                TransportError::TimedOut(_)
                | TransportError::Disconnected(_)
                | TransportError::Unreachable(_),
            ) if !scenario.must_succeed => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }
}
