//! Connections that are set up and never bring a reply, and servers that are slow with their first,
//! in virtual time.

use crate::echo::{self, Echo, call, check, exchange};
use crate::stage::anywhere;
use crate::test_server::TestServer;
use crate::{before_calls, run_in_each_version_in_virtual_time, run_in_virtual_time};
use oncrpc::xdr::{Payload, Reader};
use oncrpc::{Answer, Caller, Reply, Service, Transport, TransportError};
use rpcrdma::{Client, ClientConfig, ServerConfig, Spin};
use rpcrdma_watch::Watched;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use verbs_sim::{EndOptions, Fabric, Outstanding, Stall, Way};

const SECOND: Duration = Duration::from_secs(1);

/// An echo that takes its time, and notes the XIDs of its calls.
struct Slow {
    takes: Duration,
    xids: Mutex<Vec<u32>>,
    echo: echo::Shared,
}

impl Service for Slow {
    fn call(&self, call: Payload, caller: &Caller) -> Answer {
        let xid = Reader::from(&call).u32().expect("an XID");
        self.xids.lock().expect("no panic holds it").push(xid);
        let takes = self.takes;
        match self.echo.call(call, caller) {
            Answer::Now(reply @ Reply::Message(_)) => Answer::Later(Box::pin(async move {
                tokio::time::sleep(takes).await;
                reply
            })),
            other => other,
        }
    }
}

/// A server whose replies are not heard over the first connections, or any.
struct Scene {
    fabric: Fabric,
    service: Arc<Slow>,
    server: TestServer,
}

impl Scene {
    /// `silent` says of how many connections; none: of all.
    async fn new(silent: Option<usize>, takes: Duration) -> Self {
        let mut mute = EndOptions::default();
        mute.faults.stalls.push(Stall {
            after: 2 * before_calls() + 1,
            way: Way::Out,
            lasting: Duration::MAX,
        });
        let fabric = Fabric::new(29);
        let first = vec![mute.clone(); silent.unwrap_or(0)];
        let last = silent.map_or(mute, |_| EndOptions::default());
        let provider = Arc::new(fabric.scripted_provider(first, last));
        let service = Arc::new(Slow {
            takes,
            xids: Mutex::default(),
            echo: echo::Shared(Arc::new(Echo::default())),
        });
        let config = ServerConfig::default()
            .with_workers(0)
            .with_idle_timeout(None)
            .with_drain_timeout(SECOND)
            .with_spin(Spin::Park);
        let shared = Arc::clone(&service) as Arc<dyn Service>;
        let server = TestServer::bind(provider, anywhere(), shared, config).await;
        Self {
            fabric,
            service,
            server,
        }
    }

    async fn client(&self, config: ClientConfig) -> Watched<Client> {
        let provider = Arc::new(self.fabric.provider(EndOptions::default()));
        let config = config.with_spin(Spin::Park);
        let client = self.server.client(provider, config).await;
        client.expect("it connects")
    }

    /// Ends all; how many connections there were.
    async fn end(self, client: Watched<Client>) -> u64 {
        client.close().await;
        let stats = self.server.shutdown().await;
        assert_eq!(self.fabric.outstanding(), Outstanding::default());
        stats.accepted
    }
}

/// How many seconds this takes.
async fn seconds(what: impl Future<Output = ()>) -> u64 {
    let start = Instant::now();
    what.await;
    start.elapsed().as_secs()
}

fn calls(client: &Watched<Client>, many: usize) -> JoinSet<()> {
    let mut calls = JoinSet::new();
    for i in 0..many {
        let client = client.clone();
        calls.spawn(async move { exchange(&client, &[i], &[i]).await });
    }
    calls
}

/// Calls on each of so many connections, and some that wait.
async fn spread(client: &Watched<Client>, connections: usize) -> JoinSet<()> {
    let mut all = calls(client, 1);
    while client.connections().len() < connections {
        tokio::task::yield_now().await;
    }
    let mut rest = calls(client, 3 * connections);
    all.spawn(async move {
        while rest
            .join_next()
            .await
            .transpose()
            .expect("answered")
            .is_some()
        {}
    });
    all
}

async fn all_answered(mut calls: JoinSet<()>) {
    while let Some(done) = calls.join_next().await {
        done.expect("answered");
    }
}

async fn ask(transport: &impl Transport, what: u32) -> Result<Payload, TransportError> {
    let call = call(transport.next_xid(), what, &[], &[]);
    transport.call(call, echo::bound(&[])).await
}

#[test]
fn call_of_a_connection_that_stays_silent_goes_over_the_next_with_the_same_xid() {
    run_in_each_version_in_virtual_time(async || {
        let scene = Scene::new(Some(1), Duration::ZERO).await;
        let client = scene.client(ClientConfig::default()).await;
        let took = seconds(exchange(&client, &[], &[60_000])).await;
        assert!((15..18).contains(&took), "{took} s");
        {
            let xids = scene.service.xids.lock().expect("no panic holds it");
            assert_eq!((xids.len(), xids[0]), (2, xids[1]));
        }
        assert_eq!(seconds(exchange(&client, &[10], &[10])).await, 0);
        assert_eq!(scene.end(client).await, 2);
    });
}

#[test]
fn server_is_unresponsive_while_it_leaves_calls_unanswered_and_until_it_answers() {
    run_in_each_version_in_virtual_time(async || {
        let scene = Scene::new(Some(1), Duration::ZERO).await;
        let client = scene.client(ClientConfig::default()).await;
        // Nobody calls.
        let idle = tokio::time::timeout(100 * SECOND, client.unresponsive(5 * SECOND));
        assert!(idle.await.is_err());
        let pending = calls(&client, 1);
        let took = seconds(client.unresponsive(5 * SECOND)).await;
        assert!((5..7).contains(&took), "{took} s");
        let took = seconds(client.responsive()).await;
        assert!((8..13).contains(&took), "{took} s");
        all_answered(pending).await;
        scene.end(client).await;
    });
}

#[test]
fn slow_server_is_responsive_if_each_answer_comes_in_time() {
    run_in_each_version_in_virtual_time(async || {
        let scene = Scene::new(Some(0), 4 * SECOND).await;
        let client = scene.client(ClientConfig::default()).await;
        let in_turn = async {
            for _ in 0..20 {
                exchange(&client, &[], &[]).await;
            }
        };
        tokio::select! {
            biased;
            () = client.unresponsive(5 * SECOND) => panic!("it answers"),
            () = in_turn => {}
        }
        scene.end(client).await;
    });
}

#[test]
fn connection_without_a_call_is_not_silent() {
    run_in_each_version_in_virtual_time(async || {
        let scene = Scene::new(Some(0), Duration::ZERO).await;
        let config = ClientConfig::default().with_first_reply_timeout(Duration::ZERO);
        let client = scene.client(config).await;
        tokio::time::sleep(200 * SECOND).await;
        assert!(client.connection().is_some());
        assert_eq!(scene.end(client).await, 1);
    });
}

#[test]
fn slow_server_is_served_in_the_end_and_has_its_time_from_then_on() {
    run_in_each_version_in_virtual_time(async || {
        let scene = Scene::new(Some(0), 20 * SECOND).await;
        let client = scene.client(ClientConfig::default()).await;
        let took = seconds(exchange(&client, &[], &[])).await;
        assert!((35..39).contains(&took), "{took} s");
        let took = seconds(exchange(&client, &[], &[])).await;
        assert_eq!(took, 20);
        // Idle, it disconnects, and the next connection is a new one.
        tokio::time::sleep(400 * SECOND).await;
        let took = seconds(exchange(&client, &[], &[])).await;
        assert!((35..39).contains(&took), "{took} s");
        assert_eq!(scene.end(client).await, 4);
    });
}

#[test]
fn call_that_no_connection_answers_ends_with_its_own_time() {
    run_in_each_version_in_virtual_time(async || {
        for (limit, connections) in [(2, 1), (60, 3), (600, 6)] {
            let scene = Scene::new(None, Duration::ZERO).await;
            let client = scene.client(ClientConfig::default()).await;
            let start = Instant::now();
            let limit = limit * SECOND;
            let answer = ask(&client.within(limit), echo::NOW).await;
            assert_eq!(answer.err(), Some(TransportError::TimedOut(limit)));
            let late = start.elapsed().saturating_sub(limit);
            assert!(late < 3 * SECOND, "{late:?} late");
            assert_eq!(scene.end(client).await, connections);
        }
    });
}

#[test]
fn silence_is_not_held_against_a_call() {
    run_in_each_version_in_virtual_time(async || {
        let scene = Scene::new(Some(5), Duration::ZERO).await;
        let client = scene.client(ClientConfig::default()).await;
        let answer = ask(&client.within(1000 * SECOND), echo::NOW).await;
        check(&answer.expect("answered"), &[]);
        assert_eq!(scene.end(client).await, 6);
    });
}

#[test]
fn call_that_has_no_answer_does_not_keep_others_from_theirs() {
    run_in_virtual_time(async {
        let scene = Scene::new(Some(0), Duration::ZERO).await;
        let client = scene.client(ClientConfig::default()).await;
        let stuck = tokio::spawn({
            let client = client.clone();
            async move { ask(&client, echo::NOTHING).await }
        });
        tokio::task::yield_now().await;
        let took = seconds(all_answered(calls(&client, 200))).await;
        assert!((15..18).contains(&took), "{took} s");
        let answer = stuck.await.expect("it ends");
        let limit = ClientConfig::default().call_timeout;
        assert_eq!(answer.err(), Some(TransportError::TimedOut(limit)));
        assert_eq!(scene.end(client).await, 2);
    });
}

#[test]
fn several_connections_to_a_slow_server_are_not_all_given_up() {
    run_in_virtual_time(async {
        let scene = Scene::new(Some(0), 20 * SECOND).await;
        let config = ClientConfig::default().with_connections(4);
        let client = scene.client(config).await;
        let took = seconds(all_answered(spread(&client, 4).await)).await;
        // The one whose connection was given up waits until another has more credits.
        assert!((40..42).contains(&took), "{took} s");
        assert_eq!(scene.end(client).await, 5);
    });
}

#[test]
fn calls_of_silent_connections_go_over_another_that_is_up() {
    run_in_each_version_in_virtual_time(async || {
        let scene = Scene::new(Some(2), Duration::ZERO).await;
        let config = ClientConfig::default().with_connections(3);
        let client = scene.client(config).await;
        let took = seconds(all_answered(spread(&client, 3).await)).await;
        // The time begins when the last byte was seen to move, at a look once a second.
        assert!((15..19).contains(&took), "{took} s");
        scene.end(client).await;
    });
}

#[test]
fn only_connection_there_will_be_is_not_given_up_for_its_silence() {
    run_in_each_version_in_virtual_time(async || {
        let scene = Scene::new(Some(0), 50 * SECOND).await;
        let config = ClientConfig::default().with_reconnect(false);
        let client = scene.client(config).await;
        assert_eq!(seconds(exchange(&client, &[], &[])).await, 50);
        assert_eq!(scene.end(client).await, 1);
    });
}
