//! How long things may take, in virtual time.

use crate::echo::{self, ask, call, check, exchange};
use crate::stage::{Noting, Stage, answering, anywhere, sim};
use crate::{run_in_each_version_in_virtual_time, run_in_virtual_time};
use oncrpc::{Transport, TransportError};
use rpcrdma::{ClientConfig, HealthCheck, HealthChecks, ServerConfig};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use verbs::{
    BoxFuture, Connected, Incoming, Limits, Listener, Provider, QpOptions, SetupError, WorkRequest,
};
use verbs_sim::{EndOptions, Fabric, Side, Way};

const SECOND: Duration = Duration::from_secs(1);

/// A provider that does not notice dead peers by itself.
fn deaf() -> (Fabric, Arc<dyn Provider>) {
    let fabric = Fabric::new(3);
    let mut end = EndOptions::default();
    end.limits.keepalive = false;
    let provider = Arc::new(fabric.provider(end));
    (fabric, provider)
}

fn patient() -> ServerConfig {
    ServerConfig::default().with_idle_timeout(None)
}

#[test]
fn calls_go_on_beside_those_that_are_stuck_in_the_kernel() {
    run_in_each_version_in_virtual_time(async || {
        let stage = Stage::new(sim().1, patient()).await;
        let client = stage.client(ClientConfig::default()).await;
        exchange(&client, &[], &[]).await;
        let mut stuck = tokio::task::JoinSet::new();
        for _ in 0..70 {
            let client = client.clone();
            stuck.spawn(async move { check(&ask(&client, echo::BLOCKING).await.unwrap(), &[]) });
        }
        // As many as one connection may have, and one address.
        stage.service.echo.wait_for_blocked(64).await;
        tokio::time::advance(6 * SECOND).await;
        exchange(&client, &[], &[]).await;
        stage.service.echo.wait_for_blocked(70).await;
        stage.service.echo.open();
        while let Some(answered) = stuck.join_next().await {
            answered.expect("answered");
        }
        stage.server.shutdown().await;
    });
}

#[test]
fn call_may_take_as_long_as_it_was_given() {
    run_in_each_version_in_virtual_time(async || {
        let stage = Stage::new(sim().1, patient()).await;
        let client = stage.client(ClientConfig::default()).await;
        exchange(&client, &[], &[]).await;
        let ask = |limit, what| {
            let call = call(client.next_xid(), what, &[], &[]);
            let client = client.party().transport(client.within(limit));
            async move { client.call(call, echo::bound(&[])).await }
        };
        let start = Instant::now();
        let short = ask(2 * SECOND, echo::NOTHING).await;
        assert_eq!(short.err(), Some(TransportError::TimedOut(2 * SECOND)));
        assert_eq!(start.elapsed().as_secs(), 2);
        // The default is a minute.
        let long = ask(600 * SECOND, echo::LATER);
        let opened = async {
            tokio::time::sleep(500 * SECOND).await;
            stage.service.echo.open();
        };
        let (long, ()) = tokio::join!(long, opened);
        check(&long.expect("answered"), &[]);
        // It was not closed for the call that took so long, but for the one that nobody waited for.
        let stats = stage.server.shutdown().await;
        assert!(stats.accepted <= 2, "{}", stats.accepted);
    });
}

#[test]
fn call_without_a_server_ends_in_time_and_says_why() {
    run_in_each_version_in_virtual_time(async || {
        let stage = Stage::new(sim().1, patient()).await;
        let client = stage.client(ClientConfig::default()).await;
        exchange(&client, &[], &[]).await;
        stage.server.shutdown().await;
        // Within the time of the client, and within one of its own.
        for limit in [ClientConfig::default().call_timeout, 5 * SECOND] {
            let start = Instant::now();
            match ask(&client.within(limit), echo::NOW).await {
                Err(TransportError::Unreachable(why)) => {
                    assert!(why.to_string().contains("cannot connect"), "{why}")
                }
                other => panic!("{other:?}"),
            }
            let took = start.elapsed();
            assert!((limit..limit + SECOND).contains(&took), "{took:?}");
        }
    });
}

#[test]
fn call_without_a_reply_ends_in_time() {
    run_in_each_version_in_virtual_time(async || {
        let stage = Stage::new(sim().1, patient()).await;
        let limit = 5 * SECOND;
        let config = ClientConfig::default().with_call_timeout(limit);
        let client = stage.client(config).await;
        let start = Instant::now();
        let answer = ask(&client, echo::NOTHING).await;
        assert_eq!(answer.err(), Some(TransportError::TimedOut(limit)));
        let took = start.elapsed();
        assert!((limit..limit + SECOND).contains(&took), "{took:?}");
        exchange(&client, &[], &[]).await;
        stage.server.shutdown().await;
    });
}

#[test]
fn cancelled_call_without_a_reply_does_not_keep_the_only_credit_for_ever() {
    run_in_each_version_in_virtual_time(async || {
        let stage = Stage::new(sim().1, patient().with_credits(1)).await;
        let config = ClientConfig::default().with_call_timeout(5 * SECOND);
        let client = stage.client(config).await;
        let cancelled = tokio::time::timeout(SECOND, ask(&client, echo::NOTHING)).await;
        assert!(cancelled.is_err(), "it has no reply");
        assert_eq!(stage.service.calls(), 1);
        // This one may be caught in the queue of the connection that has to end.
        let _ = ask(&client, echo::NOW).await;
        exchange(&client, &[], &[]).await;
        assert_eq!(stage.server.shutdown().await.accepted, 2);
    });
}

#[test]
fn connection_that_brought_nothing_is_not_made_again_at_once() {
    run_in_each_version_in_virtual_time(async || {
        let stage = Stage::new(sim().1, patient()).await;
        let first = 4 * SECOND;
        let config = ClientConfig::default().with_reconnect_first(first);
        let client = stage.client(config.with_reconnect_most(60 * SECOND)).await;
        let start = Instant::now();
        let answer = ask(&client, echo::PANIC).await;
        assert!(answer.is_err());
        // Before the second connection, and twice as long before the third.
        let took = start.elapsed();
        assert!(took >= 3 * first, "{took:?}");
        assert_eq!(stage.server.shutdown().await.accepted, 3);
    });
}

#[test]
fn server_closes_an_idle_connection_and_the_next_call_makes_another() {
    run_in_each_version_in_virtual_time(async || {
        let config = ServerConfig::default().with_idle_timeout(Some(50 * SECOND));
        let stage = Stage::new(sim().1, config).await;
        let client = stage.client(ClientConfig::default()).await;
        exchange(&client, &[], &[]).await;
        tokio::time::sleep(40 * SECOND).await;
        assert_eq!(stage.server.stats().connections, 1);
        tokio::time::sleep(20 * SECOND).await;
        assert_eq!(stage.server.stats().connections, 0);
        exchange(&client, &[], &[]).await;
        assert_eq!(stage.server.shutdown().await.accepted, 2);
    });
}

#[test]
fn idle_client_disconnects_and_is_back_with_its_next_call() {
    run_in_each_version_in_virtual_time(async || {
        let stage = Stage::new(sim().1, patient()).await;
        let client = stage.client(ClientConfig::default()).await;
        exchange(&client, &[], &[]).await;
        tokio::time::sleep(290 * SECOND).await;
        assert!(client.connection().is_some());
        tokio::time::sleep(20 * SECOND).await;
        assert!(client.connection().is_none());
        assert_eq!(stage.server.stats().connections, 0);
        let start = Instant::now();
        exchange(&client, &[10], &[10]).await;
        assert!(
            start.elapsed() < SECOND,
            "it does not wait before it connects"
        );
        assert_eq!(stage.server.shutdown().await.accepted, 2);
    });
}

#[test]
fn client_with_a_slow_call_is_not_idle() {
    run_in_each_version_in_virtual_time(async || {
        let stage = Stage::new(sim().1, patient()).await;
        let config = ClientConfig::default().with_call_timeout(10_000 * SECOND);
        let client = stage.client(config).await;
        exchange(&client, &[], &[]).await;
        let slow = call(client.next_xid(), echo::LATER, &[], &[]);
        let opened = async {
            tokio::time::sleep(1000 * SECOND).await;
            stage.service.echo.open();
        };
        let (slow, ()) = tokio::join!(client.call(slow, echo::bound(&[])), opened);
        check(&slow.expect("answered"), &[]);
        assert_eq!(stage.server.shutdown().await.accepted, 1);
    });
}

#[test]
fn dead_server_is_noticed_by_a_health_check_and_the_call_is_sent_again() {
    run_in_each_version_in_virtual_time(async || {
        let (fabric, provider) = deaf();
        let stage = Stage::new(provider, patient()).await;
        let config = ClientConfig::default().with_call_timeout(1000 * SECOND);
        let client = stage.client(config).await;
        exchange(&client, &[], &[]).await;
        fabric.stall(
            fabric.connections()[0],
            Side::Right,
            Way::Both,
            Duration::MAX,
        );
        let start = Instant::now();
        exchange(&client, &[10], &[10]).await;
        let took = start.elapsed();
        assert!((30..34).contains(&took.as_secs()), "{took:?}");
        assert_eq!(stage.server.stats().accepted, 2);
        client.close().await;
    });
}

#[test]
fn slow_server_answers_health_checks_while_every_other_credit_is_used() {
    run_in_each_version_in_virtual_time(async || {
        let (_fabric, provider) = deaf();
        let config = patient().with_credits(4);
        let stage = Stage::new(provider, config).await;
        let config = ClientConfig::default().with_call_timeout(1000 * SECOND);
        let client = stage.client(config).await;
        exchange(&client, &[], &[]).await;
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..10 {
            let client = client.clone();
            calls.spawn(async move { ask(&client, echo::LATER).await });
        }
        tokio::time::sleep(300 * SECOND).await;
        let asked = client.counters().replies_received - 1;
        assert!((15..=20).contains(&asked), "asked {asked} times");
        assert_eq!(stage.service.calls(), 1 + 3, "one credit is kept back");
        while let Some(done) = {
            stage.service.echo.open();
            tokio::time::sleep(SECOND).await;
            calls.try_join_next()
        } {
            check(&done.expect("it ends").expect("answered"), &[]);
        }
        assert_eq!(stage.server.shutdown().await.accepted, 1);
    });
}

#[test]
fn dead_client_that_was_ready_for_calls_is_noticed() {
    run_in_each_version_in_virtual_time(async || {
        let (fabric, provider) = deaf();
        let stage = Stage::new(provider, ServerConfig::default()).await;
        let config = answering(&Noting::new())
            .with_reconnect(false)
            .with_health(HealthCheck::default().with_checks(HealthChecks::Off));
        let client = stage.client(config).await;
        exchange(&client, &[], &[]).await;
        let back = stage.back();
        // As long as it answers, it stays.
        tokio::time::sleep(1000 * SECOND).await;
        assert_eq!(stage.server.stats().connections, 1);
        fabric.stall(
            fabric.connections()[0],
            Side::Left,
            Way::Both,
            Duration::MAX,
        );
        tokio::time::sleep(60 * SECOND).await;
        let answer = ask(&back, echo::NOW).await;
        match answer {
            Err(TransportError::Disconnected(why)) => {
                assert!(why.to_string().contains("liveness probe"), "{why}")
            }
            other => panic!("{other:?}"),
        }
    });
}

/// A provider whose listeners give no connection, such as for want of descriptors.
struct Exhausted(SocketAddr);

impl Provider for Exhausted {
    fn limits(&self) -> Limits {
        EndOptions::default().limits
    }

    fn connect<'a>(
        &'a self,
        _: SocketAddr,
        _: &'a QpOptions,
        _: &'a [u8],
        _: Vec<WorkRequest>,
    ) -> BoxFuture<'a, Result<Connected, SetupError>> {
        Box::pin(async { Err(io::Error::from(io::ErrorKind::Unsupported).into()) })
    }

    fn listen<'a>(
        &'a self,
        on: SocketAddr,
    ) -> BoxFuture<'a, Result<Box<dyn Listener>, SetupError>> {
        Box::pin(async move { Ok(Box::new(Self(on)) as Box<dyn Listener>) })
    }
}

impl Listener for Exhausted {
    fn local_addr(&self) -> SocketAddr {
        self.0
    }

    fn accept(&mut self) -> BoxFuture<'_, Result<Box<dyn Incoming>, SetupError>> {
        Box::pin(async { Err(io::Error::other("no descriptor is left").into()) })
    }
}

#[test]
fn server_that_gets_no_connections_from_the_system_can_be_shut_down() {
    run_in_virtual_time(async {
        let provider = Arc::new(Exhausted(anywhere()));
        let stage = Stage::new(provider, ServerConfig::default()).await;
        tokio::time::sleep(SECOND).await;
        let stopping = tokio::time::timeout(SECOND, stage.server.shutdown());
        stopping.await.expect("it ends");
    });
}

#[test]
fn cancelled_call_with_a_long_time_does_not_end_the_connection() {
    run_in_virtual_time(async {
        let stage = Stage::new(sim().1, patient()).await;
        let client = stage.client(ClientConfig::default()).await;
        exchange(&client, &[], &[]).await;
        let mut long = Box::pin({
            let call = call(client.next_xid(), echo::LATER, &[], &[]);
            let client = client.party().transport(client.within(600 * SECOND));
            async move { client.call(call, echo::bound(&[])).await }
        });
        assert!(tokio::time::timeout(90 * SECOND, &mut long).await.is_err());
        // The default is a minute: this call has had five seconds of its own.
        let other = tokio::spawn({
            let client = client.clone();
            async move { ask(&client, echo::LATER).await }
        });
        tokio::time::sleep(5 * SECOND).await;
        drop(long);
        tokio::time::sleep(5 * SECOND).await;
        stage.service.echo.open();
        tokio::time::sleep(SECOND).await;
        stage.service.echo.open();
        check(&other.await.expect("it ends").expect("answered"), &[]);
        let calls = stage.service.calls();
        let accepted = stage.server.shutdown().await.accepted;
        assert_eq!(
            (accepted, calls),
            (1, 3),
            "connections, and calls that the service had"
        );
    });
}

#[test]
fn call_that_was_not_sent_when_the_client_was_closed_is_not_executed() {
    run_in_virtual_time(async {
        let stage = Stage::new(sim().1, patient()).await;
        let client = stage.client(ClientConfig::default()).await;
        exchange(&client, &[], &[]).await;
        // Let the owner of the connection park.
        tokio::time::sleep(SECOND).await;
        let mut late = Box::pin(ask(&client, echo::NOW));
        tokio::select! {
            biased;
            _ = &mut late => panic!("it is queued"),
            () = std::future::ready(()) => {}
        }
        client.close().await;
        let ended = late.await;
        tokio::time::sleep(SECOND).await;
        let calls = stage.service.calls();
        assert!(
            ended.is_ok() || calls == 1,
            "{ended:?}, and yet the service had {calls} calls"
        );
    });
}
