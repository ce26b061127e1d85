//! Several connections of one client, and several users.

use crate::echo::{self, assert_disconnected, call, check, exchange};
use crate::run_in_each_version;
use crate::stage::{Stage, providers, sim};
use oncrpc::xdr;
use oncrpc::{Transport, TransportError};
use rpcrdma::{Client, ClientConfig, ServerConfig};
use rpcrdma_watch::Watched;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;
use tokio::task::JoinSet;
use verbs_sim::Outstanding;

fn several(connections: usize) -> ClientConfig {
    ClientConfig::default()
        .with_connections(connections)
        .with_reconnect_first(Duration::from_millis(1))
}

/// Calls that wait until the service lets them go on.
fn stuck(client: &Watched<Client>, many: usize) -> JoinSet<Result<xdr::Payload, TransportError>> {
    let mut calls = JoinSet::new();
    for _ in 0..many {
        let client = client.clone();
        calls.spawn(async move {
            let call = call(client.next_xid(), echo::BLOCKING, &[60_000], &[60_000]);
            client.call(call, echo::bound(&[60_000])).await
        });
    }
    calls
}

async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::task::yield_now().await;
    }
}

#[test]
fn calls_are_spread_over_the_connections_of_a_client() {
    run_in_each_version(async || {
        for provider in providers() {
            let stage = Stage::new(provider, ServerConfig::default()).await;
            let client = stage.client(several(4)).await;
            assert_eq!(client.connections().len(), 1);
            // Once there is something to do there are all of them.
            let mut calls = stuck(&client, 1);
            until(|| client.connections().len() == 4).await;
            assert!(client.depth() >= 4, "each has a credit");
            calls.spawn({
                let client = client.clone();
                let call = call(client.next_xid(), echo::BLOCKING, &[], &[60_000]);
                async move { client.call(call, echo::bound(&[60_000])).await }
            });
            let more = stuck(&client, 10);
            // Each has a turn at the server, but not at once.
            until(|| stage.service.connections() == 4).await;
            stage.service.echo.open();
            for mut calls in [calls, more] {
                while let Some(done) = calls.join_next().await {
                    check(&done.expect("it ends").expect("answered"), &[60_000]);
                }
            }
            assert_eq!(client.counters().calls_sent, 12);
            client.close().await;
            assert!(client.connections().is_empty());
            let stats = stage.server.shutdown().await;
            assert_eq!((stats.accepted, stats.counters.calls_received), (4, 12));
        }
    });
}

#[test]
fn calls_of_a_lost_connection_go_over_another_and_the_rest_do_not_notice() {
    run_in_each_version(async || {
        let (fabric, provider) = sim();
        let stage = Stage::new(provider, ServerConfig::default()).await;
        let client = stage.client(several(3)).await;
        exchange(&client, &[], &[]).await;
        let first = stuck(&client, 1);
        until(|| client.connections().len() == 3).await;
        let rest = stuck(&client, 8);
        stage.service.echo.wait_for_blocked(3).await;
        fabric.cut(fabric.connections()[1]);
        until(|| stage.server.stats().accepted == 4).await;
        stage.service.echo.open();
        for mut calls in [first, rest] {
            while let Some(done) = calls.join_next().await {
                check(&done.expect("it ends").expect("answered"), &[60_000]);
            }
        }
        client.close().await;
        stage.server.shutdown().await;
        assert_eq!(fabric.outstanding(), Outstanding::default());
    });
}

#[test]
fn calls_fail_when_the_last_connection_is_lost_for_good_and_not_before() {
    run_in_each_version(async || {
        let (fabric, provider) = sim();
        let stage = Stage::new(provider, ServerConfig::default()).await;
        let config = several(2).with_reconnect(false);
        let client = stage.client(config).await;
        let first = stuck(&client, 1);
        until(|| client.connections().len() == 2).await;
        // The second connection has more than one credit from its first reply on.
        exchange(&client, &[], &[]).await;
        let second = stuck(&client, 1);
        stage.service.echo.wait_for_blocked(2).await;
        assert_eq!(client.connections_ended(), 0);
        fabric.cut(fabric.connections()[0]);
        // The call of the one has come again, over the other.
        stage.service.echo.wait_for_blocked(3).await;
        assert_eq!((client.connections_ended(), client.reconnects()), (1, 0));
        assert_eq!(client.connections().len(), 1);
        fabric.cut(fabric.connections()[0]);
        for mut calls in [first, second] {
            while let Some(ended) = calls.join_next().await {
                let ended = ended.expect("it ends");
                assert_disconnected(&ended);
            }
        }
        stage.service.echo.open();
        assert_eq!(stage.server.shutdown().await.accepted, 2);
    });
}

#[test]
fn server_that_takes_fewer_connections_answers_all_calls() {
    run_in_each_version(async || {
        let config = ServerConfig::default().with_max_connections(2);
        let stage = Stage::new(sim().1, config).await;
        let client = stage.client(several(4)).await;
        let mut calls = JoinSet::new();
        for i in 0..100 {
            let client = client.clone();
            calls.spawn(async move { exchange(&client, &[i], &[i]).await });
        }
        while let Some(done) = calls.join_next().await {
            done.expect("answered");
        }
        client.close().await;
        let stats = stage.server.shutdown().await;
        assert_eq!(stats.counters.calls_received, 100);
    });
}

#[test]
fn user_with_many_calls_does_not_hold_up_another() {
    run_in_each_version(async || {
        let config = ServerConfig::default().with_credits(1);
        let stage = Stage::new(sim().1, config).await;
        let client = stage.client(ClientConfig::default()).await;
        exchange(&client, &[], &[]).await;
        let other = client.party().transport(client.new_user());
        let done = Arc::new(AtomicU32::new(0));
        let mut calls = JoinSet::new();
        let gate = call(client.next_xid(), echo::BLOCKING, &[], &[]);
        let caller = client.clone();
        calls.spawn(async move {
            let reply = caller.call(gate, echo::bound(&[])).await;
            check(&reply.expect("answered"), &[]);
        });
        stage.service.echo.wait_for_blocked(1).await;
        for _ in 0..1000 {
            let (client, done) = (client.clone(), Arc::clone(&done));
            calls.spawn(async move {
                exchange(&client, &[], &[]).await;
                done.fetch_add(1, SeqCst);
            });
        }
        // All of them wait by now.
        tokio::task::yield_now().await;
        let one = tokio::spawn({
            let done = Arc::clone(&done);
            async move {
                exchange(&other, &[], &[]).await;
                done.load(SeqCst)
            }
        });
        tokio::task::yield_now().await;
        stage.service.echo.open();
        let before = one.await.expect("answered");
        assert!(before < 10, "{before} calls of the other user came first");
        while let Some(done) = calls.join_next().await {
            done.expect("answered");
        }
        stage.server.shutdown().await;
    });
}
