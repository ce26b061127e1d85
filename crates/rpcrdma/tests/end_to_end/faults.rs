//! Delay, narrow windows, small limits and posts that are refused, mixed by a seed: every call is
//! answered all the same, and nothing is left behind.

use crate::echo::{self, Echo, SHAPES, exchange};
use crate::run_in_each_version;
use crate::stage::anywhere;
use crate::test_server::TestServer;
use rpcrdma::{ClientConfig, ServerConfig, Spin};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use verbs::{Invalidation, Provider};
use verbs_sim::{EndOptions, Fabric, Outstanding};

/// Choices from a seed, one after the other.
struct Choices(u64);

impl Choices {
    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        let at = usize::try_from(self.0 % of.len() as u64).expect("a small number");
        self.0 = (self.0 / of.len() as u64)
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407)
            >> 7;
        of[at]
    }

    fn end(&mut self) -> EndOptions {
        let mut end = EndOptions {
            window: self.one_of(&[1, 2000, 100_000, usize::MAX]),
            ..EndOptions::default()
        };
        end.limits.sends = self.one_of(&[4, 16, 1024]);
        end.limits.outstanding_reads = self.one_of(&[1, 2, 32]);
        end.limits.inbound_reads = self.one_of(&[1, 3, 32]);
        end.limits.regions = self.one_of(&[1000, 1100]);
        end.limits.remote_invalidation = self.one_of(&[Invalidation::Region, Invalidation::None]);
        end.faults.refuse_post = self.one_of(&[None, NonZeroU64::new(2), NonZeroU64::new(5)]);
        let most = Duration::from_micros(self.one_of(&[0, 50, 400]));
        end.faults.latency = Duration::ZERO..=most;
        end
    }
}

async fn calls_under_faults(seed: u64) {
    let mut choices = Choices(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let fabric = Fabric::new(seed);
    let start = Instant::now();
    let keeping = fabric.keep_time(move || start.elapsed(), tokio::time::sleep);
    let keeper = tokio::spawn(async move {
        keeping.await;
    });
    let of_client: Arc<dyn Provider> = Arc::new(fabric.provider(choices.end()));
    let of_server: Arc<dyn Provider> = Arc::new(fabric.provider(choices.end()));
    let service = Arc::new(echo::Shared(Arc::new(Echo::default())));
    let config = ServerConfig::default()
        .with_workers(1)
        .with_credits(choices.one_of(&[1, 3, 128]))
        .with_spin(Spin::Park);
    let server = TestServer::bind(of_server, anywhere(), service, config).await;
    let mut calls = JoinSet::new();
    let mut clients = Vec::new();
    for _ in 0..2 {
        let config = ClientConfig::default()
            .with_credits(choices.one_of(&[1, 4, 128]))
            .with_reconnect(false)
            .with_spin(Spin::Park);
        let client = server.client(Arc::clone(&of_client), config).await;
        clients.push(client.expect("it connects"));
    }
    let large = |(args, _): &&(&[usize], &[usize])| args.contains(&(1 << 20));
    for (args, results) in SHAPES.iter().filter(|shape| !large(shape)) {
        for client in &clients {
            let client = client.clone();
            calls.spawn(async move { exchange(&client, args, results).await });
        }
    }
    while let Some(done) = calls.join_next().await {
        done.unwrap_or_else(|failed| panic!("seed {seed}: {failed}"));
    }
    for client in clients {
        client.close().await;
        assert_eq!(client.memory().out, 0, "seed {seed}: memory is lost");
    }
    let stats = server.shutdown().await;
    assert_eq!(stats.accepted, 2, "seed {seed}: no connection was lost");
    assert_eq!(fabric.outstanding(), Outstanding::default());
    keeper.abort();
}

#[test]
fn calls_are_answered_under_any_faults() {
    run_in_each_version(async || {
        for seed in 0..40 {
            let limit = Duration::from_secs(10);
            let done = tokio::time::timeout(limit, calls_under_faults(seed)).await;
            done.unwrap_or_else(|_| panic!("seed {seed} hangs"));
        }
    });
}
