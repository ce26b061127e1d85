//! Client and server over the simulated fabric, each with its own threads and runtime.

use crate::echo::{self, Echo, ask, assert_disconnected, call, check, exchange, on_its_way};
use crate::test_server::TestServer;
use crate::{run, run_in_each_version};
use oncrpc::Transport;
use rpcrdma::{Client, ClientConfig, ServerConfig, Spin};
use rpcrdma_watch::Watched;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use verbs::{Provider, QpOptions};
use verbs_sim::{EndOptions, Fabric, SimProvider};

struct World {
    fabric: Fabric,
    provider: Arc<SimProvider>,
    service: Arc<Echo>,
    server: TestServer,
}

impl World {
    async fn new(config: ServerConfig) -> Self {
        let fabric = Fabric::new(11);
        let provider = Arc::new(fabric.provider(EndOptions::default()));
        let service = Arc::new(Echo::default());
        let server = TestServer::bind(
            Arc::clone(&provider) as Arc<dyn Provider>,
            anywhere(),
            Arc::new(echo::Shared(Arc::clone(&service))),
            config,
        )
        .await;
        Self {
            fabric,
            provider,
            service,
            server,
        }
    }

    async fn client(&self, config: ClientConfig) -> Watched<Client> {
        let provider = Arc::clone(&self.provider) as Arc<dyn Provider>;
        let client = self.server.client(provider, config).await;
        client.expect("it connects")
    }
}

fn anywhere() -> SocketAddr {
    "127.0.0.1:0".parse().expect("an address")
}

fn server_config() -> ServerConfig {
    ServerConfig::default().with_workers(2)
}

#[test]
fn calls_of_every_shape_are_answered() {
    run_in_each_version(async || {
        let world = World::new(server_config()).await;
        let client = world.client(ClientConfig::default()).await;
        for &(args, results) in echo::SHAPES {
            exchange(&client, args, results).await;
        }
        let counters = client.counters();
        assert!(counters.read_chunks_offered > 0 && counters.write_chunks_offered > 0);
        assert!(counters.reply_chunks_offered > 0 && counters.remote_invalidations > 0);
        client.close().await;
        let stats = world.server.shutdown().await;
        assert_eq!((stats.connections, stats.accepted), (0, 1));
        assert_eq!(stats.counters.calls_received, echo::SHAPES.len() as u64);
    });
}

#[test]
fn each_spin_policy_works() {
    run_in_each_version(async || {
        for spin in [Spin::Park, Spin::Adaptive, Spin::Always] {
            let world = World::new(server_config().with_spin(spin)).await;
            let client = world.client(ClientConfig::default().with_spin(spin)).await;
            for _ in 0..20 {
                exchange(&client, &[], &[]).await;
            }
            client.close().await;
            world.server.shutdown().await;
        }
    });
}

#[test]
fn more_calls_than_credits_from_several_clients_are_all_answered() {
    run_in_each_version(async || {
        let world = World::new(
            server_config()
                .with_credits(3)
                // Two chunks of those below at a time.
                .with_chunk_memory(150_000),
        )
        .await;
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let client = world.client(ClientConfig::default()).await;
            for i in 0..15 {
                let client = client.clone();
                tasks.spawn(async move {
                    exchange(&client, &[60_000 + i], &[70_000 + i]).await;
                });
            }
        }
        while let Some(done) = tasks.join_next().await {
            done.expect("answered");
        }
        let stats = world.server.shutdown().await;
        assert_eq!(stats.counters.calls_received, 60);
        assert!(stats.counters.memory_waits > 0);
    });
}

#[test]
fn slow_call_does_not_hold_up_others() {
    run_in_each_version(async || {
        let world = World::new(server_config()).await;
        let client = world.client(ClientConfig::default()).await;
        exchange(&client, &[], &[]).await;
        let xid = client.next_xid();
        let mut slow =
            std::pin::pin!(client.call(call(xid, echo::BLOCKING, &[], &[]), echo::bound(&[])));
        let mut later = {
            let xid = client.next_xid();
            Box::pin(client.call(call(xid, echo::LATER, &[], &[]), echo::bound(&[])))
        };
        tokio::select! {
            biased;
            _ = &mut slow => panic!("it waits for its gate"),
            _ = &mut later => panic!("it waits for its gate"),
            () = exchange(&client, &[], &[]) => {}
        }
        world.service.open();
        check(&slow.await.expect("answered"), &[]);
        check(&later.await.expect("answered"), &[]);
        world.server.shutdown().await;
    });
}

#[test]
fn only_so_many_calls_of_one_connection_are_answered_beside_others() {
    run_in_each_version(async || {
        let world = World::new(server_config()).await;
        let client = world.client(ClientConfig::default()).await;
        exchange(&client, &[], &[]).await;
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..100 {
            let client = client.clone();
            calls.spawn(async move {
                let call = call(client.next_xid(), echo::BLOCKING, &[], &[10]);
                let reply = client.call(call, echo::bound(&[10])).await;
                check(&reply.expect("answered"), &[10]);
            });
        }
        while world.server.stats().counters.calls_received < 101 {
            tokio::task::yield_now().await;
        }
        world.service.wait_for_blocked(64).await;
        assert_eq!(world.service.blocked(), 64);
        // Another connection has its own.
        let other = world.client(ClientConfig::default()).await;
        exchange(&other, &[], &[]).await;
        world.service.open();
        while let Some(done) = calls.join_next().await {
            done.expect("answered");
        }
        assert_eq!(world.service.blocked(), 100);
        world.server.shutdown().await;
    });
}

#[test]
fn panicking_service_costs_one_connection_and_no_other() {
    run_in_each_version(async || {
        let world = World::new(server_config()).await;
        let good = world.client(ClientConfig::default()).await;
        let bad = world
            .client(ClientConfig::default().with_reconnect(false))
            .await;
        let answer = ask(&bad, echo::PANIC).await;
        assert_disconnected(&answer);
        exchange(&good, &[], &[]).await;
        world.server.shutdown().await;
    });
}

#[test]
fn calls_that_gave_their_threads_back_hold_up_no_others() {
    const MANY: u32 = 100;
    run_in_each_version(async || {
        let world = World::new(server_config()).await;
        let client = world.client(ClientConfig::default()).await;
        exchange(&client, &[], &[]).await;
        let mut deferred = tokio::task::JoinSet::new();
        for _ in 0..MANY {
            let client = client.clone();
            deferred.spawn(async move { ask(&client, echo::DEFERRED).await });
        }
        // More than have threads.
        world.service.wait_for_blocked(MANY).await;
        exchange(&client, &[], &[]).await;
        assert_eq!(deferred.len(), MANY as usize);
        world.service.open();
        while let Some(answered) = deferred.join_next().await {
            echo::check(&answered.unwrap().unwrap(), &[]);
        }
        world.server.shutdown().await;
    });
}

#[test]
fn reply_that_nobody_sends_any_more_costs_the_connection() {
    run_in_each_version(async || {
        let world = World::new(server_config()).await;
        let config = ClientConfig::default().with_reconnect(false);
        let client = world.client(config).await;
        assert_disconnected(&ask(&client, echo::FORGOTTEN).await);
        world.server.shutdown().await;
    });
}

#[test]
fn cancelled_call_leaves_the_connection_usable() {
    run_in_each_version(async || {
        let world = World::new(server_config()).await;
        let client = world.client(ClientConfig::default()).await;
        exchange(&client, &[], &[]).await;
        {
            let call = client.call(
                call(client.next_xid(), echo::BLOCKING, &[], &[90_000]),
                echo::bound(&[90_000]),
            );
            let mut call = std::pin::pin!(call);
            on_its_way(call.as_mut(), &client).await;
        }
        world.service.open();
        exchange(&client, &[50_000], &[50_000]).await;
        client.close().await;
        assert_eq!(client.counters().cancelled, 1);
        world.server.shutdown().await;
    });
}

#[test]
fn shutdown_lets_calls_finish() {
    run_in_each_version(async || {
        let world = World::new(server_config()).await;
        let client = world.client(ClientConfig::default()).await;
        exchange(&client, &[], &[]).await;
        let call = ask(&client, echo::BLOCKING);
        let mut call = std::pin::pin!(call);
        on_its_way(call.as_mut(), &client).await;
        let service = Arc::clone(&world.service);
        let shutdown = tokio::spawn(world.server.shutdown());
        tokio::task::yield_now().await;
        service.open();
        check(&call.await.expect("answered"), &[]);
        shutdown.await.expect("it stops");
    });
}

#[test]
fn lost_connection_is_made_again_and_calls_are_sent_again() {
    run_in_each_version(async || {
        let world = World::new(server_config()).await;
        let client = world.client(ClientConfig::default()).await;
        exchange(&client, &[], &[]).await;
        let mut calls = tokio::task::JoinSet::new();
        for i in 0..5 {
            let client = client.clone();
            calls.spawn(async move {
                let xid = client.next_xid();
                let call = call(xid, echo::BLOCKING, &[60_000 + i], &[60_000 + i]);
                let reply = client.call(call, echo::bound(&[60_000 + i])).await;
                check(&reply.expect("answered in the end"), &[60_000 + i]);
            });
        }
        assert_eq!(client.reconnects(), 0);
        world.service.wait_for_blocked(5).await;
        for connection in world.fabric.connections() {
            world.fabric.cut(connection);
        }
        world.service.wait_for_blocked(6).await;
        world.service.open();
        while let Some(done) = calls.join_next().await {
            done.expect("answered");
        }
        assert!(client.connection().is_some());
        assert_eq!(client.reconnects(), 1);
        world.server.shutdown().await;
    });
}

#[test]
fn call_that_loses_every_connection_fails() {
    run_in_each_version(async || {
        let world = World::new(server_config()).await;
        let client = world
            .client(ClientConfig::default().with_reconnect_first(Duration::from_millis(1)))
            .await;
        let answer = ask(&client, echo::PANIC).await;
        assert_disconnected(&answer);
        assert_eq!(world.server.stats().accepted, 3);
        exchange(&client, &[], &[]).await;
        world.server.shutdown().await;
    });
}

#[test]
fn closed_client_fails_its_calls_and_later_ones() {
    run_in_each_version(async || {
        let world = World::new(server_config()).await;
        let client = world.client(ClientConfig::default()).await;
        exchange(&client, &[], &[]).await;
        let call_1 = ask(&client, echo::NOTHING);
        let mut call_1 = std::pin::pin!(call_1);
        on_its_way(call_1.as_mut(), &client).await;
        client.close().await;
        let answer = call_1.await;
        assert_disconnected(&answer);
        let answer = ask(&client, echo::NOW).await;
        assert_disconnected(&answer);
        world.server.shutdown().await;
    });
}

#[test]
fn silent_peers_hold_up_nobody_and_are_dropped() {
    run(async {
        let world = World::new(server_config().with_setup_timeout(Duration::from_secs(10))).await;
        let on = world.server.local_addr();
        let mute: Vec<_> = (0..20)
            .map(|_| world.provider.connect_mute(on).expect("it listens"))
            .collect();
        let client = world.client(ClientConfig::default()).await;
        exchange(&client, &[], &[]).await;
        assert_eq!(world.server.stats().connections, 21);
        // A worker may begin to wait for a peer later than it counts the connection.
        while world.server.stats().refused < 20 {
            if let Some(event) = world.fabric.next_event() {
                world.fabric.advance_to(event);
            }
            tokio::task::yield_now().await;
        }
        exchange(&client, &[], &[]).await;
        drop(mute);
        world.server.shutdown().await;
    });
}

#[test]
fn shutdown_does_not_wait_for_silent_peers() {
    run(async {
        let world = World::new(server_config()).await;
        let on = world.server.local_addr();
        let _mute = world.provider.connect_mute(on).expect("it listens");
        while world.server.stats().connections == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(world.server.shutdown().await.refused, 1);
    });
}

#[test]
fn one_connection_too_many_is_refused() {
    run_in_each_version(async || {
        let world = World::new(server_config().with_max_connections(1)).await;
        let client = world.client(ClientConfig::default()).await;
        let provider = Arc::clone(&world.provider) as Arc<dyn Provider>;
        let second = world.server.client(provider, ClientConfig::default());
        assert!(second.await.is_err());
        assert_eq!(world.server.stats().refused, 1);
        exchange(&client, &[], &[]).await;
        world.server.shutdown().await;
    });
}

#[test]
fn private_data_of_the_user_arrives_behind_ours() {
    run(async {
        let world = World::new(server_config().with_private_data(b"hello".to_vec())).await;
        let client = world.client(ClientConfig::default()).await;
        let info = client.connection().expect("connected");
        assert_eq!(&info.raw_private_data[8..], b"rpc2ce01hello");
        assert_eq!(info.thresholds.send.bytes(), 4096);
        world.server.shutdown().await;
    });
}

#[test]
fn garbage_draws_errors_and_harms_nobody() {
    run(async {
        let mut world = World::new(server_config()).await;
        world.server.has_lawless_peer();
        let client = world.client(ClientConfig::default()).await;
        let on = world.server.local_addr();
        let peer = world
            .provider
            .connect(on, &QpOptions::default(), b"not ours", echo::receives(8))
            .await
            .expect("private data of others is no reason to refuse");
        let mut peer = echo::Peer::new(peer.qp);
        // A runt, an RDMA_DONE and an error draw nothing; a newer version and a bad list do.
        peer.send(&[1, 2, 3]);
        peer.send(&[1, 1, 8, 3, 0, 0, 0]);
        peer.send(&[1, 1, 8, 4, 2]);
        peer.send(&[1, 3, 8, 0, 0, 0, 0]);
        assert_eq!(peer.receive().await, [1, 3, 8, 4, 1, 1, 2]);
        peer.send(&[3, 1, 8, 0, 7, 0, 0]);
        assert_eq!(peer.receive().await, [3, 1, 8, 4, 2]);
        peer.send(&[4, 1, 8, 2, 0, 0, 0]);
        assert_eq!(peer.receive().await, [4, 1, 8, 4, 2]);
        exchange(&client, &[], &[]).await;
        drop(peer);
        world.server.shutdown().await;
    });
}
