//! Calls of a server to its clients (RFC 8167).

use crate::echo::{self, ask, assert_disconnected, call, check, exchange};
use crate::stage::{Noting, Stage, answering, providers, sim};
use crate::{run, run_in_each_version, run_in_each_version_in_virtual_time, run_in_virtual_time};
use oncrpc::xdr;
use oncrpc::xdr::Payload;
use oncrpc::{
    Answer, Caller, Credential, MAX_REPLY_HEADER, Procedure, ReplyBound, RpcError, Service,
    Transport, TransportError, read_reply, write_call,
};
use rpcrdma::{Client, ClientConfig, ServerConfig};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use verbs::ProtocolError;
use verbs_sim::{EndOptions, Fabric, Outstanding, Side};

#[test]
fn server_calls_its_client_on_the_connection_of_its_calls() {
    run_in_each_version(async || {
        for provider in providers() {
            let stage = Stage::new(provider, ServerConfig::default()).await;
            let callbacks = Noting::new();
            let client = stage.client(answering(&callbacks)).await;
            exchange(&client, &[], &[]).await;
            let back = stage.back();
            for size in [0, 1, 100, 3000] {
                exchange(&back, &[size], &[size]).await;
                exchange(&client, &[size], &[size]).await;
            }
            assert_eq!(callbacks.calls(), 4);
            client.close().await;
            let stats = stage.server.shutdown().await;
            assert_eq!((stats.accepted, stats.counters.calls_sent), (1, 4));
            assert!(stage.backchannels.is_empty());
        }
    });
}

#[test]
fn both_directions_are_busy_at_once() {
    run_in_each_version(async || {
        for provider in providers() {
            let config = ServerConfig::default()
                .with_credits(5)
                .with_backward_credits(4);
            let stage = Stage::new(provider, config).await;
            let config = answering(&Noting::new()).with_backward_credits(3);
            let client = stage.client(config).await;
            exchange(&client, &[], &[]).await;
            let back = stage.back();
            let mut calls = JoinSet::new();
            for i in 0..50 {
                let (client, back) = (client.clone(), back.clone());
                calls.spawn(async move { exchange(&client, &[i * 1000], &[i * 999]).await });
                calls.spawn(async move { exchange(&back, &[i * 10], &[i * 11]).await });
            }
            while let Some(done) = calls.join_next().await {
                done.expect("answered");
            }
            assert_eq!(back.depth(), 3);
            client.close().await;
            assert_eq!(stage.server.shutdown().await.accepted, 1);
        }
    });
}

/// A provider with so few Receives, and what uses it, at both ends.
async fn with_receives(receives: usize) -> (Fabric, Stage) {
    let fabric = Fabric::new(18);
    let mut end = EndOptions::default();
    end.limits.receives = receives;
    let provider = Arc::new(fabric.provider(end));
    (fabric, Stage::new(provider, ServerConfig::default()).await)
}

#[test]
fn few_receives_are_few_credits_in_both_directions() {
    run_in_each_version(async || {
        for receives in [6, 7, 13, 100] {
            let (fabric, stage) = with_receives(receives).await;
            let client = stage.client(answering(&Noting::new())).await;
            exchange(&client, &[], &[]).await;
            let back = stage.back();
            let mut calls = JoinSet::new();
            for i in 0..30 {
                let (client, back) = (client.clone(), back.clone());
                calls.spawn(async move { exchange(&client, &[i * 100], &[i * 999]).await });
                calls.spawn(async move { exchange(&back, &[i * 10], &[i * 11]).await });
            }
            while let Some(done) = calls.join_next().await {
                done.expect("answered");
            }
            assert!(client.depth() + back.depth() < receives, "{receives}");
            client.close().await;
            assert_eq!(stage.server.shutdown().await.accepted, 1);
            assert_eq!(fabric.outstanding(), Outstanding::default());
        }
    });
}

#[test]
fn too_few_receives_for_a_call_are_no_connection() {
    run(async {
        let (_fabric, stage) = with_receives(5).await;
        let to = stage.server.local_addr();
        let connecting = Client::connect(stage.provider, to, ClientConfig::default());
        let Err(error) = connecting.await else {
            panic!("nothing could be called");
        };
        assert!(
            error.source.to_string().contains("too few Receives"),
            "{error}"
        );
        stage.server.shutdown().await;
    });
}

#[test]
fn two_calls_of_both_directions_may_have_the_same_xid() {
    run_in_each_version(async || {
        for provider in providers() {
            let stage = Stage::new(provider, ServerConfig::default()).await;
            let callbacks = Noting::new();
            let client = stage.client(answering(&callbacks)).await;
            exchange(&client, &[], &[]).await;
            let back = stage.back();
            let one =
                |what, results: &[usize]| (call(77, what, &[], results), echo::bound(results));
            let (forth, bound) = one(echo::LATER, &[11]);
            let mut forth = std::pin::pin!(client.call(forth, bound));
            let (hither, bound) = one(echo::LATER, &[12]);
            let mut hither = std::pin::pin!(back.call(hither, bound));
            tokio::select! {
                biased;
                _ = &mut forth => panic!("it waits"),
                _ = &mut hither => panic!("it waits"),
                () = async {
                    while callbacks.calls() < 1 || stage.service.calls() < 2 {
                        tokio::task::yield_now().await;
                    }
                } => {}
            }
            callbacks.echo.open();
            stage.service.echo.open();
            check(&hither.await.expect("answered"), &[12]);
            check(&forth.await.expect("answered"), &[11]);
            stage.server.shutdown().await;
        }
    });
}

fn rpc_call(xid: u32) -> (xdr::Payload, ReplyBound) {
    let mut w = xdr::Writer::default();
    let target = Procedure {
        prog: 0x4000_0000,
        vers: 1,
        proc: 0,
    };
    write_call(&mut w, xid, target, &Credential::None);
    let bound = ReplyBound {
        fixed: MAX_REPLY_HEADER,
        ..ReplyBound::default()
    };
    (w.finish(), bound)
}

#[test]
fn client_without_a_service_says_that_it_has_no_such_program() {
    run(async {
        for provider in providers() {
            let stage = Stage::new(provider, ServerConfig::default()).await;
            let client = stage.client(ClientConfig::default()).await;
            exchange(&client, &[], &[]).await;
            let back = stage.back();
            for _ in 0..3 {
                let xid = back.next_xid();
                let (call, bound) = rpc_call(xid);
                let reply = back.call(call, bound).await.expect("answered");
                assert_eq!(read_reply(&reply, xid).err(), Some(RpcError::ProgUnavail));
            }
            exchange(&client, &[], &[]).await;
            assert_eq!(stage.server.shutdown().await.accepted, 1);
        }
    });
}

#[test]
fn what_does_not_fit_a_send_is_not_sent_and_harms_nobody() {
    run(async {
        let stage = Stage::new(sim().1, ServerConfig::default()).await;
        let client = stage.client(answering(&Noting::new())).await;
        exchange(&client, &[], &[]).await;
        let back = stage.back();
        for (args, results) in [(&[9000][..], &[][..]), (&[], &[9000])] {
            let call = call(back.next_xid(), echo::NOW, args, results);
            let answer = back.call(call, echo::bound(results)).await;
            assert!(
                matches!(answer, Err(TransportError::TooLarge { .. })),
                "{answer:?}"
            );
        }
        exchange(&back, &[], &[]).await;
        stage.server.shutdown().await;
    });
}

#[test]
fn client_is_called_while_all_of_its_own_calls_are_stuck() {
    run_in_each_version(async || {
        for provider in providers() {
            let stage = Stage::new(provider, ServerConfig::default()).await;
            let client = stage.client(answering(&Noting::new())).await;
            exchange(&client, &[], &[]).await;
            let back = stage.back();
            let mut stuck = JoinSet::new();
            // More than are answered beside others, and than there are credits.
            for _ in 0..150 {
                let client = client.clone();
                stuck.spawn(async move {
                    let reply = ask(&client, echo::BLOCKING).await;
                    check(&reply.expect("answered"), &[]);
                });
            }
            stage.service.echo.wait_for_blocked(64).await;
            while stage.server.stats().counters.calls_received < 128 {
                tokio::task::yield_now().await;
            }
            for _ in 0..20 {
                exchange(&back, &[10], &[10]).await;
            }
            stage.service.echo.open();
            while let Some(done) = stuck.join_next().await {
                done.expect("answered");
            }
            stage.server.shutdown().await;
        }
    });
}

#[test]
fn calls_to_a_client_end_with_its_connection_and_say_why() {
    run_in_each_version(async || {
        let (fabric, provider) = sim();
        let stage = Stage::new(provider, ServerConfig::default()).await;
        let callbacks = Noting::new();
        let client = stage.client(answering(&callbacks)).await;
        exchange(&client, &[], &[]).await;
        let back = stage.back();
        // With its reply come more credits.
        exchange(&back, &[], &[]).await;
        let connection = back.connection();
        let mut calls = JoinSet::new();
        for _ in 0..30 {
            let back = back.clone();
            calls.spawn(async move { ask(&back, echo::LATER).await });
        }
        while callbacks.calls() < 1 + 16 {
            tokio::task::yield_now().await;
        }
        fabric.cut(fabric.connections()[0]);
        while let Some(ended) = calls.join_next().await {
            match ended.expect("it ends") {
                Err(TransportError::Disconnected(why)) => {
                    assert!(why.to_string().contains("lost"), "{why}")
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(stage.backchannels.get(connection).is_none());
        let late = ask(&back, echo::NOW).await;
        assert_disconnected(&late);
        // The client is back without a call of its own (RFC 8167 §5.4), on another connection.
        while stage.backchannels.is_empty() {
            tokio::task::yield_now().await;
        }
        exchange(&client, &[], &[]).await;
        exchange(&stage.back(), &[], &[]).await;
        assert_ne!(stage.back().connection(), connection);
        client.close().await;
        assert_eq!(stage.server.shutdown().await.accepted, 2);
        assert_eq!(fabric.outstanding(), Outstanding::default());
    });
}

#[test]
fn call_that_a_client_does_not_answer_ends_in_time_and_costs_no_connection() {
    run_in_each_version_in_virtual_time(async || {
        let stage = Stage::new(sim().1, ServerConfig::default()).await;
        let client = stage.client(answering(&Noting::new())).await;
        exchange(&client, &[], &[]).await;
        let back = stage.back();
        // A reply grants more credits than one.
        exchange(&back, &[], &[]).await;
        let start = Instant::now();
        let answer = ask(&back, echo::NOTHING).await;
        let limit = ServerConfig::default().backward_timeout;
        assert_eq!(answer.err(), Some(TransportError::TimedOut(limit)));
        assert!(start.elapsed() < limit + Duration::from_secs(3));
        tokio::time::sleep(5 * limit).await;
        exchange(&client, &[], &[]).await;
        let stats = stage.server.shutdown().await;
        assert_eq!((stats.accepted, stats.unanswered), (1, 0));
    });
}

#[test]
fn client_that_leaves_every_call_unanswered_loses_its_connection() {
    run_in_each_version_in_virtual_time(async || {
        let config = ServerConfig::default().with_backward_credits(4);
        let limit = config.backward_timeout;
        let stage = Stage::new(sim().1, config).await;
        let client = stage.client(answering(&Noting::new())).await;
        exchange(&client, &[], &[]).await;
        let back = stage.back();
        exchange(&back, &[], &[]).await;
        let mut calls = JoinSet::new();
        for _ in 0..4 {
            let back = back.clone();
            calls.spawn(async move { ask(&back, echo::NOTHING).await });
        }
        while let Some(answer) = calls.join_next().await {
            let error = answer.expect("no panic").err();
            assert_eq!(error, Some(TransportError::TimedOut(limit)));
        }
        // No credit is left for this one.
        assert_disconnected(&ask(&back, echo::NOTHING).await);
        assert_eq!(stage.server.stats().unanswered, 1);
        // The client comes back, and can be called again.
        exchange(&client, &[], &[]).await;
        exchange(&stage.back(), &[], &[]).await;
        assert_eq!(stage.server.shutdown().await.accepted, 2);
    });
}

#[test]
fn callers_of_a_client_hear_of_the_rule_that_was_broken() {
    run_in_each_version_in_virtual_time(async || {
        let (fabric, provider) = sim();
        let stage = Stage::new(provider, ServerConfig::default()).await;
        let callbacks = Noting::new();
        let client = stage.client(answering(&callbacks)).await;
        exchange(&client, &[], &[]).await;
        let back = stage.back();
        let mut call = std::pin::pin!(ask(&back, echo::LATER));
        tokio::select! {
            biased;
            _ = &mut call => panic!("it waits"),
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
        fabric.terminate(
            fabric.connections()[0],
            Side::Right,
            ProtocolError::MemoryAccess,
        );
        match call.await {
            Err(TransportError::Disconnected(why)) => {
                assert!(
                    why.to_string().contains("an invalid access to memory"),
                    "{why}"
                )
            }
            other => panic!("{other:?}"),
        }
        stage.server.shutdown().await;
    });
}

#[test]
fn client_can_be_called_after_it_was_idle_for_a_day() {
    run_in_virtual_time(async {
        let stage = Stage::new(sim().1, ServerConfig::default()).await;
        let client = stage.client(answering(&Noting::new())).await;
        exchange(&client, &[], &[]).await;
        let back = stage.back();
        tokio::time::sleep(Duration::from_secs(86_400)).await;
        exchange(&back, &[10], &[10]).await;
        exchange(&client, &[10], &[10]).await;
        assert_eq!(stage.server.shutdown().await.accepted, 1);
    });
}

#[test]
fn client_of_which_nobody_says_that_it_is_ready_comes_back_once_and_then_with_its_next_call() {
    run_in_virtual_time(async {
        let stage = Stage::new(sim().1, ServerConfig::default()).await;
        let client = stage.client(answering(&Noting::new())).await;
        exchange(&client, &[], &[]).await;
        tokio::time::sleep(Duration::from_secs(500)).await;
        assert_eq!(stage.server.stats().connections, 1, "it is back");
        tokio::time::sleep(Duration::from_secs(86_400)).await;
        assert!(client.connection().is_none());
        exchange(&client, &[10], &[10]).await;
        exchange(&stage.back(), &[10], &[10]).await;
        assert_eq!(stage.server.shutdown().await.accepted, 3);
    });
}

#[test]
fn shutdown_waits_for_the_replies_of_clients() {
    run_in_each_version(async || {
        let stage = Stage::new(sim().1, ServerConfig::default()).await;
        let callbacks = Noting::new();
        let client = stage.client(answering(&callbacks)).await;
        exchange(&client, &[], &[]).await;
        let back = stage.back();
        let called = tokio::spawn(async move { ask(&back, echo::LATER).await });
        while callbacks.calls() < 1 {
            tokio::task::yield_now().await;
        }
        let echo = Arc::clone(&callbacks.echo);
        let shutdown = tokio::spawn(stage.server.shutdown());
        tokio::task::yield_now().await;
        echo.open();
        check(&called.await.expect("it ends").expect("answered"), &[]);
        shutdown.await.expect("it stops");
    });
}

/// A service that does not survive its first call, and echoes the others.
struct Stumbles {
    called: AtomicBool,
    rest: Arc<Noting>,
}

impl Service for Stumbles {
    fn call(&self, call: Payload, caller: &Caller) -> Answer {
        assert!(self.called.swap(true, SeqCst), "the first one");
        self.rest.call(call, caller)
    }
}

#[test]
fn panic_of_a_clients_service_costs_a_connection_and_not_the_client() {
    run_in_each_version(async || {
        let stage = Stage::new(sim().1, ServerConfig::default()).await;
        let service = Arc::new(Stumbles {
            called: AtomicBool::new(false),
            rest: Noting::new(),
        });
        let config = ClientConfig::default()
            .with_callbacks(service)
            .with_reconnect_first(Duration::from_millis(1));
        let client = stage.client(config).await;
        exchange(&client, &[], &[]).await;
        let back = stage.back();
        let failed = ask(&back, echo::NOW).await;
        assert_disconnected(&failed);
        exchange(&client, &[], &[]).await;
        exchange(&stage.back(), &[10], &[10]).await;
        client.close().await;
        assert_eq!(stage.server.shutdown().await.accepted, 2);
    });
}

/// A callback that panics costs a connection, and no call of the client. When the panic is seen depends on
/// a thread, so this is tried often.
#[test]
fn replies_are_not_lost_when_a_callback_panics() {
    crate::run_in_virtual_time(async {
        for round in 0..60_u32 {
            let stage = Stage::new(sim().1, ServerConfig::default()).await;
            let callbacks = Noting::new();
            let client = stage.client(answering(&callbacks)).await;
            exchange(&client, &[], &[]).await;
            let back = stage.back();
            let mut asking = tokio::task::JoinSet::new();
            for _ in 0..8 {
                let client = client.clone();
                asking.spawn(async move {
                    for _ in 0..50 {
                        ask(&client, echo::NOW).await?;
                    }
                    Ok::<_, oncrpc::TransportError>(())
                });
            }
            for _ in 0..round % 20 {
                tokio::task::yield_now().await;
            }
            let _ = ask(&back, echo::PANIC).await;
            while let Some(done) = asking.join_next().await {
                let done = done.expect("no panic");
                assert_eq!(done, Ok(()), "round {round}");
            }
            client.close().await;
        }
    });
}
