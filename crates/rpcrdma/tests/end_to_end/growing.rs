//! Grants of a server whose connections post Receives of their own: they begin small and grow with use.

use crate::echo::{self, Echo, call, check, exchange};
use crate::stage::anywhere;
use crate::test_server::TestServer;
use crate::{before_calls, run_in_each_version, run_in_each_version_in_virtual_time};
use buffer::Pool;
use oncrpc::Transport;
use proptest::prelude::*;
use rpcrdma::{Client, ClientConfig, ServerConfig, Spin};
use rpcrdma_watch::Watched;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use verbs::Provider;
use verbs_sim::{EndOptions, Fabric, Outstanding};

/// Credits that a new client has.
const FIRST: usize = 8;

/// Receives beside those for calls.
const SLACK: usize = 4;

/// Bytes that the server counts for a Receive: what it comes to have in version two.
const RECEIVE: usize = 8192;

/// One end of a provider on which each connection posts its Receives, at this address.
fn end(address: u8, latency: Duration) -> EndOptions {
    let mut end = EndOptions {
        address: [10, 0, 0, address].into(),
        ..EndOptions::default()
    };
    end.limits.shared_receives = false;
    end.limits.holds_peer_back = false;
    end.faults.latency = latency..=latency;
    end
}

/// A server, and a fabric with time of its own.
struct Scene {
    fabric: Fabric,
    server: TestServer,
    echo: Arc<Echo>,
    pool: Pool,
    latency: Duration,
    keeper: tokio::task::JoinHandle<()>,
}

impl Scene {
    async fn new(seed: u64, latency: Duration, config: ServerConfig) -> Self {
        let fabric = Fabric::new(seed);
        let start = Instant::now();
        let keeping = fabric.keep_time(move || start.elapsed(), tokio::time::sleep);
        let keeper = tokio::spawn(async move {
            keeping.await;
        });
        let (echo, pool) = (Arc::new(Echo::default()), Pool::new(64 << 20));
        let config = config
            .with_workers(0)
            .with_spin(Spin::Park)
            .with_pool(pool.clone());
        let provider: Arc<dyn Provider> = Arc::new(fabric.provider(end(1, latency)));
        let service = Arc::new(echo::Shared(Arc::clone(&echo)));
        Self {
            server: TestServer::bind(provider, anywhere(), service, config).await,
            fabric,
            echo,
            pool,
            latency,
            keeper,
        }
    }

    /// A client at this address, that does not connect again.
    async fn client(&self, address: u8) -> Watched<Client> {
        let config = ClientConfig::default()
            .with_reconnect(false)
            .with_spin(Spin::Park);
        let provider = Arc::new(self.fabric.provider(end(address, self.latency)));
        let client = self.server.client(provider, config).await;
        client.expect("it connects")
    }

    /// Nothing was lost, and nothing is left.
    async fn end(self, clients: Vec<Watched<Client>>) {
        let connections = clients.len() as u64;
        for client in clients {
            client.close().await;
        }
        let stats = self.server.shutdown().await;
        assert_eq!((stats.accepted, stats.refused), (connections, 0));
        assert_eq!(self.fabric.outstanding(), Outstanding::default());
        self.keeper.abort();
    }
}

/// So many calls at a time until as many are answered as there were to be.
async fn calls(client: &Watched<Client>, at_a_time: usize, all: usize) {
    let mut calls = JoinSet::new();
    for _ in 0..all {
        if calls.len() >= at_a_time {
            let done: Result<(), _> = calls.join_next().await.expect("there are some");
            done.expect("answered");
        }
        let client = client.clone();
        calls.spawn(async move { exchange(&client, &[], &[]).await });
    }
    while let Some(done) = calls.join_next().await {
        done.expect("answered");
    }
}

#[test]
fn client_that_uses_its_credits_has_all_of_them_soon() {
    run_in_each_version_in_virtual_time(async || {
        let latency = Duration::from_millis(5);
        let scene = Scene::new(1, latency, ServerConfig::default()).await;
        let client = scene.client(2).await;
        exchange(&client, &[], &[]).await;
        assert_eq!(client.depth(), FIRST);
        // Each doubling takes as many calls as there were credits.
        calls(&client, 128, 300).await;
        assert_eq!(client.depth(), 128);
        scene.end(vec![client]).await;
    });
}

#[test]
fn client_that_makes_few_calls_keeps_few_credits() {
    run_in_each_version_in_virtual_time(async || {
        let scene = Scene::new(1, Duration::ZERO, ServerConfig::default()).await;
        let client = scene.client(2).await;
        for _ in 0..300 {
            exchange(&client, &[], &[]).await;
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        assert_eq!(client.depth(), FIRST);
        scene.end(vec![client]).await;
    });
}

#[test]
fn calls_that_take_long_get_more_credits_too() {
    run_in_each_version_in_virtual_time(async || {
        let scene = Scene::new(1, Duration::ZERO, ServerConfig::default()).await;
        let client = scene.client(2).await;
        exchange(&client, &[], &[]).await;
        let mut waiting = JoinSet::new();
        for _ in 0..16 {
            let client = client.clone();
            waiting.spawn(async move {
                let call = call(client.next_xid(), echo::LATER, &[], &[]);
                let reply = client.call(call, echo::bound(&[])).await;
                check(&reply.expect("answered"), &[]);
            });
        }
        // All credits are in use, for longer than it takes to call that many.
        tokio::time::sleep(Duration::from_secs(3)).await;
        while !waiting.is_empty() {
            scene.echo.open();
            tokio::time::sleep(Duration::from_millis(1)).await;
            while let Some(done) = waiting.try_join_next() {
                done.expect("answered");
            }
        }
        exchange(&client, &[], &[]).await;
        assert!(client.depth() > FIRST, "{}", client.depth());
        scene.end(vec![client]).await;
    });
}

#[test]
fn idle_connection_has_receives_for_its_first_credits_only() {
    run_in_each_version_in_virtual_time(async || {
        const CLIENTS: u8 = 20;
        let scene = Scene::new(1, Duration::ZERO, ServerConfig::default()).await;
        let mut clients = Vec::new();
        for number in 0..CLIENTS {
            let client = scene.client(number + 2).await;
            exchange(&client, &[], &[]).await;
            clients.push(client);
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        let most = usize::from(CLIENTS) * (FIRST + SLACK) * RECEIVE;
        let out = scene.pool.stats().out;
        assert!((1..=most).contains(&out), "{out} bytes of {most}");
        scene.end(clients).await;
    });
}

#[test]
fn addresses_share_the_memory_for_more_credits() {
    run_in_each_version_in_virtual_time(async || {
        // Half of it, for 96 Receives, is there to grow into.
        let config = ServerConfig::default().with_receive_memory(192 * RECEIVE);
        let scene = Scene::new(1, Duration::from_millis(1), config).await;
        let early = scene.client(2).await;
        calls(&early, 128, 1000).await;
        assert_eq!(early.depth(), FIRST + 96 / 2);
        let late = scene.client(3).await;
        for _ in 0..20 {
            let (early, late) = (&early, &late);
            tokio::join!(calls(early, 128, 200), calls(late, 128, 200));
        }
        let depths = (early.depth(), late.depth());
        // A third each, or what halving makes of it, and of two halvings.
        assert!(depths.1 == FIRST + 96 / 3, "{depths:?}");
        assert!(depths.0 <= FIRST + 96 / 2, "{depths:?}");
        let third = scene.client(4).await;
        for _ in 0..20 {
            let (early, late, third) = (&early, &late, &third);
            tokio::join!(
                calls(early, 128, 200),
                calls(late, 128, 200),
                calls(third, 128, 200)
            );
        }
        let depths = [early.depth(), late.depth(), third.depth()];
        let all: usize = depths.iter().map(|depth| depth - FIRST).sum();
        assert!(all <= 96, "{depths:?}");
        assert!(depths[2] >= FIRST + 96 / 4, "{depths:?}");
        assert!(depths.iter().all(|&depth| depth >= FIRST), "{depths:?}");
        scene.end(vec![early, late, third]).await;
    });
}

#[test]
fn connections_begin_with_few_credits_and_are_refused_without_memory() {
    run_in_each_version(async || {
        let config = ServerConfig::default().with_receive_memory(40 * RECEIVE);
        let scene = Scene::new(1, Duration::ZERO, config).await;
        let mut clients = Vec::new();
        let mut granted = Vec::new();
        for number in 0..3 {
            let client = scene.client(number + 2).await;
            exchange(&client, &[], &[]).await;
            granted.push(client.depth());
            clients.push(client);
        }
        // 12 each; what is left is for the slack only.
        assert_eq!(granted, [FIRST; 3]);
        let config = ClientConfig::default().with_reconnect(false);
        let provider = Arc::new(scene.fabric.provider(end(9, Duration::ZERO)));
        assert!(scene.server.client(provider, config).await.is_err());
        assert_eq!(scene.server.stats().refused, 1);
        clients.pop().expect("there are several").close().await;
        while scene.server.stats().connections > clients.len() {
            tokio::task::yield_now().await;
        }
        exchange(&scene.client(9).await, &[], &[]).await;
        drop(clients);
        scene.server.shutdown().await;
        scene.keeper.abort();
    });
}

/// Load of one client: bursts of so many calls at a time, with pauses between.
#[derive(Clone, Debug)]
struct Bursts {
    address: u8,
    bursts: Vec<(usize, usize, u64)>,
}

fn bursts() -> impl Strategy<Value = Bursts> {
    let burst = (1..130_usize, 1..150_usize, 0..2000_u64);
    (2..5_u8, prop::collection::vec(burst, 1..4))
        .prop_map(|(address, bursts)| Bursts { address, bursts })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10, ..ProptestConfig::default() })]

    /// A message without a Receive ends a connection here. Whatever clients do that keep to their grants, while these
    /// grow and shrink with the memory that others need, no connection ends.
    #[test]
    fn client_that_keeps_to_its_grant_never_finds_no_receive(
        seed in any::<u64>(),
        clients in prop::collection::vec(bursts(), 1..5),
        receives in 48..400_usize,
        credits in 1..200_u32,
        latency in 0..3000_u64,
    ) {
        run_in_each_version_in_virtual_time(async || {
            let config = ServerConfig::default()
                .with_credits(credits)
                .with_receive_memory((receives + 4 * (FIRST + SLACK)) * RECEIVE);
            let scene = Scene::new(seed, Duration::from_micros(latency), config).await;
            let mut running = JoinSet::new();
            for Bursts { address, bursts } in clients.clone() {
                let client = scene.client(address).await;
                running.spawn(async move {
                    for (at_a_time, all, pause) in bursts {
                        calls(&client, at_a_time, all).await;
                        tokio::time::sleep(Duration::from_millis(pause)).await;
                    }
                    client
                });
            }
            let mut left = Vec::new();
            while let Some(client) = running.join_next().await {
                left.push(client.expect("all calls are answered"));
            }
            let made: usize = clients.iter().flat_map(|of| &of.bursts).map(|burst| burst.1).sum();
            // Connections publish their totals ten times a second.
            tokio::time::sleep(Duration::from_millis(200)).await;
            let received = scene.server.stats().counters.calls_received;
            let others = before_calls() * left.len() as u64;
            assert!(received >= made as u64 && received <= made as u64 + others);
            scene.end(left).await;
        });
    }
}
