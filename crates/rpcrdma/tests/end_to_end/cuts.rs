//! A connection that is lost after each message that it carries, in either direction: every call
//! is answered all the same, over the next one.

use crate::echo::{self, Echo, SHAPES, exchange};
use crate::stage::anywhere;
use crate::test_server::TestServer;
use crate::{SPOKEN, run_in_each_version};
use rpcrdma::{ClientConfig, ServerConfig, Spin, Versions};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use verbs::Provider;
use verbs_sim::{Cut, EndOptions, Fabric, Outstanding};

/// Which end's messages stop arriving.
#[derive(Clone, Copy, Debug)]
enum Mute {
    Client,
    Server,
}

fn cut_after(cut: Cut) -> Vec<EndOptions> {
    let mut options = EndOptions::default();
    options.faults.cut = Some(cut);
    vec![options]
}

/// Makes a call of every shape, at the same time, over a first connection that is cut and others
/// that are not. Says whether it came to that.
async fn survives(mute: Mute, cut: Cut) -> bool {
    let fabric = Fabric::new(5);
    let provider = |muted: bool| -> Arc<dyn Provider> {
        let first = if muted { cut_after(cut) } else { Vec::new() };
        Arc::new(fabric.scripted_provider(first, EndOptions::default()))
    };
    let (of_client, of_server) = match mute {
        Mute::Client => (provider(true), provider(false)),
        Mute::Server => (provider(false), provider(true)),
    };
    let service = Arc::new(echo::Shared(Arc::new(Echo::default())));
    let config = ServerConfig::default()
        .with_workers(1)
        .with_spin(Spin::Park);
    let server = TestServer::bind(of_server, anywhere(), service, config).await;
    let config = ClientConfig::default()
        // Who loses a connection with the offer of version two goes on in version one.
        .with_versions(match SPOKEN.get() {
            Versions::One => Versions::One,
            Versions::Auto | Versions::Two => Versions::Auto,
        })
        .with_reconnect_first(Duration::from_millis(1))
        .with_spin(Spin::Park);
    let client = server.client(of_client, config).await;
    let client = client.expect("it connects");
    let mut calls = JoinSet::new();
    let large = |(args, _): &&(&[usize], &[usize])| args.contains(&(1 << 20));
    for (args, results) in SHAPES.iter().filter(|shape| !large(shape)) {
        let client = client.clone();
        calls.spawn(async move { exchange(&client, args, results).await });
    }
    while let Some(done) = calls.join_next().await {
        done.unwrap_or_else(|failed| panic!("{mute:?} cut after {cut:?}: {failed}"));
    }
    client.close().await;
    let stats = server.shutdown().await;
    assert_eq!(client.memory().out, 0);
    assert_eq!(fabric.connections(), []);
    assert_eq!(fabric.outstanding(), Outstanding::default());
    stats.accepted > 1
}

fn cut_everywhere(mute: Mute, cut: impl Fn(u64) -> Cut) {
    run_in_each_version(async || {
        let mut cuts = 0;
        while survives(mute, cut(cuts)).await {
            cuts += 1;
        }
        // It takes some messages to make these calls: what was tried was no empty promise.
        assert!(cuts > 10, "{cuts} cuts");
    });
}

#[test]
fn calls_survive_a_cut_after_each_message_of_the_client() {
    cut_everywhere(Mute::Client, Cut::Messages);
}

#[test]
fn calls_survive_a_cut_after_each_message_of_the_server() {
    cut_everywhere(Mute::Server, Cut::Messages);
}

#[test]
fn calls_survive_a_cut_within_messages_of_either_end() {
    let odd = |number| Cut::Bytes(number * 8_009);
    cut_everywhere(Mute::Client, odd);
    cut_everywhere(Mute::Server, odd);
}
