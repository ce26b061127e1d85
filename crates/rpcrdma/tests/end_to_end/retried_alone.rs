//! Calls that break connections, and those that are on their way with them (RFC 8166 §4.5.3), in
//! virtual time.

use crate::echo::{self, assert_disconnected, call, check, exchange};
use crate::stage::Stage;
use crate::{before_calls, run_in_each_version_in_virtual_time};
use oncrpc::xdr;
use oncrpc::{Transport, TransportError};
use rpcrdma::{Client, ClientConfig, ServerConfig};
use rpcrdma_watch::Watched;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use verbs::Provider;
use verbs_sim::{Cut, EndOptions, Fabric, Outstanding};

const SECOND: Duration = Duration::from_secs(1);

/// A provider whose connections are cut after so many replies of this end, one after the other, and
/// then no more.
fn cut_after(messages: &[u64]) -> (Fabric, Arc<dyn Provider>) {
    let fabric = Fabric::new(23);
    let first = messages.iter().map(|&messages| {
        let mut end = EndOptions::default();
        end.faults.cut = Some(Cut::Messages(before_calls() + messages));
        end
    });
    let provider = fabric.scripted_provider(first.collect(), EndOptions::default());
    (fabric, Arc::new(provider))
}

fn quick() -> ClientConfig {
    ClientConfig::default()
        .with_reconnect_first(Duration::from_millis(1))
        .with_reconnect_most(Duration::from_millis(10))
}

/// Calls with large arguments, all at the same time.
fn innocent(client: &Watched<Client>, many: usize) -> JoinSet<()> {
    let mut calls = JoinSet::new();
    for i in 0..many {
        let client = client.clone();
        calls.spawn(async move { exchange(&client, &[60_000 + i], &[100 + i]).await });
    }
    calls
}

async fn broken(client: &Watched<Client>) -> Result<xdr::Payload, TransportError> {
    let call = call(client.next_xid(), echo::PANIC, &[60_000], &[]);
    client.call(call, echo::bound(&[])).await
}

async fn all_answered(mut calls: JoinSet<()>) {
    while let Some(done) = calls.join_next().await {
        done.expect("answered");
    }
}

async fn innocent_calls_survive(cuts: &[u64]) {
    let (fabric, provider) = cut_after(cuts);
    let stage = Stage::new(Arc::clone(&provider), ServerConfig::default()).await;
    // Only the server's connections are cut.
    let of_client = Arc::new(fabric.provider(EndOptions::default()));
    let client = stage.server.client(of_client, quick()).await;
    let client = client.expect("it connects");
    exchange(&client, &[], &[]).await;
    all_answered(innocent(&client, 16)).await;
    client.close().await;
    let stats = stage.server.shutdown().await;
    assert_eq!(stats.accepted, 1 + cuts.len() as u64);
    assert_eq!(fabric.outstanding(), Outstanding::default());
}

#[test]
fn innocent_calls_survive_ten_cuts() {
    run_in_each_version_in_virtual_time(async || {
        // Nothing goes over most of them, and over some one call.
        innocent_calls_survive(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0]).await;
        innocent_calls_survive(&[3, 1, 1, 1, 1, 1, 1, 1, 1, 1]).await;
        innocent_calls_survive(&[4, 0, 1, 2, 0, 2, 1, 2, 0, 1]).await;
    });
}

#[test]
fn call_that_breaks_connections_fails_when_it_was_alone_and_the_others_are_answered() {
    run_in_each_version_in_virtual_time(async || {
        let (fabric, provider) = cut_after(&[]);
        let stage = Stage::new(provider, ServerConfig::default()).await;
        let client = stage.client(quick()).await;
        exchange(&client, &[], &[]).await;
        let before = innocent(&client, 8);
        let guilty = tokio::spawn({
            let client = client.clone();
            async move { broken(&client).await }
        });
        tokio::task::yield_now().await;
        let after = innocent(&client, 8);
        let failed = guilty.await.expect("it ends");
        assert_disconnected(&failed);
        all_answered(before).await;
        all_answered(after).await;
        // Two that it shared at most, and three that it had for itself, be it by chance.
        let accepted = stage.server.stats().accepted;
        assert!((3..=6).contains(&accepted), "{accepted} connections");
        client.close().await;
        stage.server.shutdown().await;
        assert_eq!(fabric.outstanding(), Outstanding::default());
    });
}

/// Calls one after the other without a gap, until told to end; how many.
async fn busy(client: Watched<Client>, mut until: tokio::sync::oneshot::Receiver<()>) -> u32 {
    let mut calls = 0;
    while until.try_recv().is_err() {
        exchange(&client, &[], &[]).await;
        calls += 1;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    calls
}

#[test]
fn call_retried_alone_is_answered_though_others_never_end() {
    run_in_each_version_in_virtual_time(async || {
        let (fabric, provider) = cut_after(&[1, 0]);
        let stage = Stage::new(provider, ServerConfig::default()).await;
        let of_client = Arc::new(fabric.provider(EndOptions::default()));
        let client = stage.server.client(of_client, quick()).await;
        let client = client.expect("it connects");
        exchange(&client, &[], &[]).await;
        // The one call that was on its way both times.
        let unlucky = innocent(&client, 1);
        tokio::task::yield_now().await;
        // Some that are answered, so that there is more than one credit, and one that is not, so that
        // something is on its way all the time.
        let others = innocent(&client, 3);
        tokio::task::yield_now().await;
        let stuck = tokio::spawn({
            let client = client.clone();
            let call = call(client.next_xid(), echo::LATER, &[], &[50]);
            async move { client.call(call, echo::bound(&[50])).await }
        });
        while stage.server.stats().accepted < 3 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let (end, ended) = tokio::sync::oneshot::channel();
        let busy = tokio::spawn(busy(client.clone(), ended));
        let start = Instant::now();
        all_answered(unlucky).await;
        assert!(start.elapsed() < 5 * SECOND, "{:?}", start.elapsed());
        all_answered(others).await;
        end.send(()).expect("it goes on");
        assert!(busy.await.expect("answered") > 10);
        stage.service.echo.open();
        let reply = stuck.await.expect("it ends");
        check(&reply.expect("answered"), &[50]);
        client.close().await;
        stage.server.shutdown().await;
    });
}
