//! Memory for chunks that does not do for all: who waits, for how long, and what is granted
//! meanwhile. In virtual time.

use crate::echo::{self, call, check, exchange};
use crate::stage::{Stage, sim};
use crate::{run_in_each_version_in_virtual_time, run_in_virtual_time};
use oncrpc::xdr;
use oncrpc::{Transport, TransportError};
use rpcrdma::{Client, ClientConfig, InlineThreshold, ServerConfig};
use rpcrdma_watch::Watched;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use verbs::Provider;
use verbs_sim::{EndOptions, Fabric, Outstanding};

const SECOND: Duration = Duration::from_secs(1);

fn once() -> ClientConfig {
    ClientConfig::default()
        .with_reconnect(false)
        .with_call_timeout(1000 * SECOND)
}

#[test]
fn client_whose_calls_wait_for_memory_is_granted_less_until_none_does() {
    run_in_each_version_in_virtual_time(async || {
        let (fabric, provider) = sim();
        let config = ServerConfig::default()
            .with_credits(64)
            // One connection has a quarter of it: one call below at a time.
            .with_chunk_memory(400_000);
        let stage = Stage::new(provider, config).await;
        let client = stage.client(once()).await;
        exchange(&client, &[], &[]).await;
        assert_eq!(client.depth(), 64);
        let mut calls = JoinSet::new();
        for i in 0..200 {
            let client = client.clone();
            calls.spawn(async move { exchange(&client, &[60_000 + i], &[]).await });
        }
        let mut least = client.depth();
        while let Some(done) = calls.join_next().await {
            done.expect("answered");
            least = least.min(client.depth());
        }
        assert_eq!(least, 8);
        let mut calls = 0;
        while client.depth() < 64 {
            exchange(&client, &[], &[]).await;
            calls += 1;
            assert!(calls < 20, "{} credits", client.depth());
        }
        client.close().await;
        let stats = stage.server.shutdown().await;
        assert!(stats.counters.memory_waits > 0);
        assert_eq!(fabric.outstanding(), Outstanding::default());
    });
}

/// A server that has little memory and sends one Read after the other, to clients each of whose
/// messages takes ten seconds.
struct Slow {
    stage: Stage,
    fabric: Fabric,
}

impl Slow {
    async fn new() -> Self {
        let fabric = Fabric::new(29);
        let start = Instant::now();
        let keeping = fabric.keep_time(move || start.elapsed(), tokio::time::sleep);
        tokio::spawn(keeping);
        let mut of_server = EndOptions::default();
        of_server.limits.outstanding_reads = 1;
        let config = ServerConfig::default().with_chunk_memory(400_000);
        let provider = Arc::new(fabric.provider(of_server));
        Self {
            stage: Stage::new(provider, config).await,
            fabric,
        }
    }

    /// A slow client at an address of its own that has all its credits.
    async fn client(&self, address: u8) -> Watched<Client> {
        let mut slow = EndOptions {
            address: [10, 0, 0, address].into(),
            ..EndOptions::default()
        };
        slow.faults.latency = 10 * SECOND..=10 * SECOND;
        let slow: Arc<dyn Provider> = Arc::new(self.fabric.provider(slow));
        let config = once().with_send_size(InlineThreshold::MIN);
        let client = self.stage.server.client(slow, config);
        let client = client.await.expect("it connects");
        exchange(&client, &[], &[]).await;
        client
    }
}

/// Calls with seven small chunks and a large one to hand over: nearly a quarter of the memory for
/// eighty seconds.
fn calls(client: &Watched<Client>) -> JoinSet<Result<xdr::Payload, TransportError>> {
    let mut calls = JoinSet::new();
    for size in [1100, 1100, 1100, 1100, 1100, 1100, 1100, 88_000] {
        let client = client.clone();
        calls.spawn(async move {
            let call = call(client.next_xid(), echo::NOW, &[size], &[]);
            client.call(call, echo::bound(&[])).await
        });
    }
    calls
}

#[test]
fn slow_client_takes_its_time_while_nobody_waits_for_memory() {
    run_in_virtual_time(async {
        let world = Slow::new().await;
        let mut calls = calls(&world.client(1).await);
        let start = Instant::now();
        while let Some(done) = calls.join_next().await {
            check(&done.expect("it ends").expect("answered"), &[]);
        }
        assert!(start.elapsed() > 80 * SECOND);
        world.stage.server.shutdown().await;
    });
}

#[test]
fn slow_clients_do_not_keep_memory_from_others() {
    run_in_virtual_time(async {
        let world = Slow::new().await;
        let mut slow = Vec::new();
        for address in 1..=4 {
            slow.push(world.client(address).await);
        }
        let slow: Vec<_> = slow.iter().map(calls).collect();
        let honest = world.stage.client(once()).await;
        tokio::time::sleep(11 * SECOND).await;
        assert!(world.stage.server.stats().chunk_memory > 370_000);
        let start = Instant::now();
        exchange(&honest, &[90_000], &[]).await;
        let took = start.elapsed();
        assert!(took < 2 * SECOND, "{took:?}");
        // Not all of them have to go for that.
        let mut lost = 0;
        for mut calls in slow {
            while let Some(done) = calls.join_next().await {
                match done.expect("it ends") {
                    Ok(reply) => check(&reply, &[]),
                    Err(error) => {
                        assert!(matches!(error, TransportError::Disconnected(_)), "{error}");
                        lost += 1;
                    }
                }
            }
        }
        assert!(lost > 0);
        world.stage.server.shutdown().await;
    });
}
