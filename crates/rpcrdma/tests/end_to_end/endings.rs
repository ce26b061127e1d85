//! How connections end, what their users hear of it, and what the next one is like.

use crate::echo::{self, Peer, call, check, exchange};
use crate::stage::{Stage, sim, sim_with_posted_receives};
use crate::{run, run_in_each_version};
use oncrpc::{Transport, TransportError};
use rpcrdma::{Client, ClientConfig, Design, InlineThreshold, ServerConfig};
use rpcrdma_watch::Watched;
use std::time::Duration;
use tokio::task::JoinSet;
use verbs::{ProtocolError, QpOptions};
use verbs_sim::{Fabric, Outstanding, Side};

fn once() -> ClientConfig {
    ClientConfig::default().with_reconnect(false)
}

fn quick() -> ClientConfig {
    ClientConfig::default().with_reconnect_first(Duration::from_millis(1))
}

/// Makes so many calls that are not answered, ends the connection when `begun` of them are with the
/// server, and gives what all of them hear.
async fn heard(
    config: ServerConfig,
    (many, begun): (usize, usize),
    end: impl FnOnce(&Fabric),
) -> Vec<TransportError> {
    let (fabric, provider) = sim();
    let stage = Stage::new(provider, config).await;
    let client = stage.client(once()).await;
    exchange(&client, &[], &[]).await;
    let mut calls = JoinSet::new();
    for _ in 0..many {
        let client = client.clone();
        calls.spawn(async move {
            let call = call(client.next_xid(), echo::LATER, &[30_000], &[30_000]);
            client.call(call, echo::bound(&[30_000])).await
        });
    }
    while stage.service.calls() < 1 + begun {
        tokio::task::yield_now().await;
    }
    end(&fabric);
    let mut heard = Vec::new();
    while let Some(ended) = calls.join_next().await {
        heard.push(ended.expect("it ends").expect_err("nothing is answered"));
    }
    client.close().await;
    stage.server.shutdown().await;
    assert_eq!(fabric.outstanding(), Outstanding::default());
    heard
}

#[test]
fn everybody_hears_why_when_a_connection_is_cut_with_every_credit_used() {
    run_in_each_version(async || {
        let config = ServerConfig::default().with_credits(8);
        let cut = |fabric: &Fabric| fabric.cut(fabric.connections()[0]);
        let heard = heard(config, (30, 8), cut).await;
        assert_eq!(heard.len(), 30);
        for error in heard {
            let TransportError::Disconnected(cause) = error else {
                panic!("{error}");
            };
            assert!(cause.to_string().contains("connection lost"), "{cause}");
        }
    });
}

#[test]
fn everybody_hears_of_the_rule_that_was_broken() {
    run_in_each_version(async || {
        let end = |fabric: &Fabric| {
            fabric.terminate(
                fabric.connections()[0],
                Side::Left,
                ProtocolError::MemoryAccess,
            );
        };
        let heard = heard(ServerConfig::default(), (5, 5), end).await;
        for error in heard {
            let TransportError::Disconnected(cause) = error else {
                panic!("{error}");
            };
            assert!(
                cause.to_string().contains("an invalid access to memory"),
                "{cause}"
            );
        }
    });
}

/// Configuration of a server.
fn sized(bytes: usize, remote_invalidation: bool) -> ServerConfig {
    ServerConfig::default()
        .with_send_size(InlineThreshold::at_most(bytes))
        .with_receive_size(InlineThreshold::at_most(bytes))
        .with_remote_invalidation(vec![Design::PerConnection; remote_invalidation.into()])
        .with_drain_timeout(Duration::from_millis(1))
}

/// Makes calls of 3000 bytes both ways, which one server after the other fails to answer until the
/// last; each is planned for the server that it goes to.
async fn calls_across(servers: &[(usize, bool)]) -> Watched<Client> {
    let (bytes, invalidation) = servers[0];
    let mut stage = Stage::new(sim().1, sized(bytes, invalidation)).await;
    let client = stage.client(quick()).await;
    let mut calls = JoinSet::new();
    for i in 0..5 {
        let client = client.clone();
        calls.spawn(async move {
            let (args, results) = ([3000 + i, 10], [3000 - i]);
            let call = call(client.next_xid(), echo::BLOCKING, &args, &results);
            let reply = client.call(call, echo::bound(&results)).await;
            check(&reply.expect("answered in the end"), &results);
        });
    }
    for &(bytes, invalidation) in &servers[1..] {
        // The one that may be sent before there is a reply (RFC 8166 §3.3.3).
        stage.service.echo.wait_for_blocked(1).await;
        let info = client.connection().expect("connected");
        let echo = stage.service.echo.clone();
        stage.begin_anew(sized(bytes, invalidation)).await;
        // The threads of the last one may end; nobody hears their answers.
        echo.open();
        stage.service.echo.wait_for_blocked(1).await;
        let next = client.connection().expect("connected");
        assert_ne!(info.thresholds, next.thresholds);
        assert_eq!(next.thresholds.send.bytes(), bytes.min(4096));
        let peer = next.peer_private_data.expect("it says something");
        assert_eq!(peer.remote_invalidation, invalidation);
    }
    stage.service.echo.open();
    while let Some(done) = calls.join_next().await {
        done.expect("answered");
    }
    client.close().await;
    stage.server.shutdown().await;
    client
}

#[test]
fn calls_are_planned_anew_for_a_server_that_takes_less_and_then_more() {
    run(async {
        let client = calls_across(&[(4096, true), (1024, false)]).await;
        let counters = client.counters();
        assert!(
            counters.read_chunks_offered > 0,
            "they did not fit the second time"
        );
        assert_eq!(counters.remote_invalidations, 0);
        let client = calls_across(&[(1024, false), (4096, true)]).await;
        let counters = client.counters();
        assert_eq!((counters.calls_sent, counters.replies_received), (1 + 5, 5));
    });
}

#[test]
fn remote_invalidation_is_agreed_on_anew_with_each_connection() {
    run(async {
        let client = calls_across(&[(4096, false), (1024, true)]).await;
        assert!(client.counters().remote_invalidations > 0);
    });
}

#[test]
fn call_whose_chunks_broke_a_connection_is_refused_on_the_next() {
    run(async {
        let (fabric, provider) = sim();
        let mut stage = Stage::new(provider, ServerConfig::default()).await;
        stage.server.has_lawless_peer();
        let on = stage.server.local_addr();
        let connect = async || {
            let receives = echo::receives(8);
            let options = QpOptions::default();
            let peer = stage.provider.connect(on, &options, b"", receives).await;
            Peer::new(peer.expect("it listens").qp)
        };
        // A Position-Zero Read chunk with memory that does not exist.
        let call = |handle| [9, 1, 8, 1, 1, 0, handle, 100, 0, 0, 0, 0, 0];
        let mut peer = connect().await;
        peer.send(&call(0x0bad_0bad));
        while stage.server.stats().counters.calls_condemned == 0 {
            peer.progress();
            tokio::task::yield_now().await;
        }
        drop(peer);
        let mut peer = connect().await;
        peer.send(&call(0x1bad_1bad));
        assert_eq!(peer.receive().await[..5], [9, 1, 8, 4, 2]);
        // Another client can use that XID as it likes, and the same with another call.
        peer.send(&[9, 1, 8, 0, 0, 0, 0, 9, 0, echo::NOW, 0, 0]);
        assert_eq!(peer.receive().await[..2], [9, 1]);
        drop(peer);
        stage.server.shutdown().await;
        assert_eq!(fabric.connections(), []);
    });
}

#[test]
fn connections_for_which_there_is_no_memory_are_refused() {
    run(async {
        let config = ServerConfig::default()
            // What a Receive comes to have in version two (xcharext §3.1).
            .with_receive_memory(200 * 8192);
        let stage = Stage::new(sim_with_posted_receives(), config).await;
        let mut clients = Vec::new();
        loop {
            let Ok(client) = stage.connect(once()).await else {
                break;
            };
            exchange(&client, &[], &[]).await;
            assert_eq!(client.depth(), 8);
            clients.push(client);
        }
        // Each begins with 8 for calls, 16 for replies of the client, and 4.
        assert_eq!(clients.len(), 200 / 28);
        assert_eq!(stage.server.stats().refused, 1);
        clients.pop().expect("there are several").close().await;
        while stage.server.stats().connections == clients.len() + 1 {
            tokio::task::yield_now().await;
        }
        exchange(&stage.client(once()).await, &[], &[]).await;
        stage.server.shutdown().await;
    });
}

#[test]
fn one_address_has_only_so_many_connections() {
    run(async {
        let config = ServerConfig::default().with_max_connections_per_address(2);
        let stage = Stage::new(sim().1, config).await;
        let first = stage.client(once()).await;
        let second = stage.client(once()).await;
        assert!(stage.connect(once()).await.is_err());
        exchange(&first, &[], &[]).await;
        exchange(&second, &[], &[]).await;
        assert_eq!(stage.server.shutdown().await.refused, 1);
    });
}
