//! Echo calls of several tasks of several clients.

use crate::actors::{TestClient, TestServer, disturb};
use crate::back::{Answering, Back, MayCall};
use crate::dice::Dice;
use crate::echo::{Echo, Mix, Shape};
use crate::judge::judge;
use crate::stage::{Stage, count};
use oncrpc::{Service, Transport};
use rpcrdma::Client;
use rpcrdma_watch::Watched;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinSet;

/// A call that a client made.
struct Made {
    id: u64,
    xid: u32,
    client: usize,
}

type Log = Arc<Mutex<Vec<Made>>>;

/// Plays a scenario of echo calls; leaks are checked later, when all tasks have ended.
pub(crate) async fn play(
    stage: &Arc<Stage>,
    mix: Mix,
    mut dice: Dice,
) -> (TestServer, Vec<TestClient>) {
    let echo = Arc::new(Echo::default());
    let party = stage.watch.party("server");
    let scenario = stage.scenario;
    let backward = scenario.backward;
    let back: MayCall = backward.map(|backward| Back::new(stage, party.clone(), backward));
    let service = {
        let (echo, back) = (Arc::clone(&echo), back.clone());
        move || -> Arc<dyn Service> {
            let (echo, back) = (Arc::clone(&echo), back.clone());
            Arc::new(Answering { echo, back })
        }
    };
    let server = TestServer::new(stage, &mut dice, party, Box::new(service), &back).await;
    let log = Log::default();
    let mut clients = Vec::new();
    let mut tasks = JoinSet::new();
    for number in 0..dice.within(scenario.clients.0, scenario.clients.1) {
        let client = TestClient::new(stage, &mut dice, number, server.reached_at, &back).await;
        let Some(client) = client else {
            continue;
        };
        for _ in 0..dice.within(scenario.tasks.0, scenario.tasks.1) {
            let caller = Caller {
                stage: Arc::clone(stage),
                client: client.user(scenario.users, &mut dice),
                back: back.clone(),
                number,
                echo: Arc::clone(&echo),
                log: Arc::clone(&log),
                mix,
                dice: dice.split(),
            };
            tasks.spawn(caller.run());
        }
        clients.push(client);
    }
    let mut others = dice.split();
    tokio::join!(
        async { while tasks.join_next().await.is_some() {} },
        disturb(stage, &server, &mut others)
    );
    if let Some(back) = &back {
        back.settle().await;
    }
    for client in &clients {
        client.end().await;
    }
    server.end().await;
    check_executions(stage, &echo, &clients, &log);
    if let Some(back) = &back {
        back.settle().await;
        back.check();
    }
    (server, clients)
}

/// Checks that no call was executed more often than it was sent.
fn check_executions(stage: &Stage, echo: &Echo, clients: &[TestClient], log: &Log) {
    let log = log.lock().unwrap_or_else(PoisonError::into_inner);
    for Made { id, xid, client } in &*log {
        let Some(client) = clients.get(*client) else {
            continue;
        };
        let (sent, executed) = (client.watched.party().sent(*xid), echo.executed(*id));
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

/// One task that calls.
struct Caller {
    stage: Arc<Stage>,
    client: Watched<Client>,
    number: usize,
    back: MayCall,
    echo: Arc<Echo>,
    log: Log,
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
        if let Some(back) = &self.back {
            back.announce(id, self.number, &mut self.dice);
        }
        let call = self.client.call(shape.call(xid, id), shape.bound());
        let reply = if self.dice.once_in(self.stage.scenario.cancel) {
            let limit = self.dice.milliseconds(300) / self.stage.pace;
            match tokio::time::timeout(limit, call).await {
                Ok(reply) => reply,
                Err(_) => return count(&counts.cancelled),
            }
        } else {
            call.await
        };
        match judge(&self.stage, &self.echo, &shape, xid, id, reply) {
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
}
