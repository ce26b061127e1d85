//! Memory for chunks that does not do for all, in virtual time.

use crate::echo::exchange;
use crate::run_in_virtual_time;
use crate::stage::{Stage, sim};
use oncrpc::Transport;
use rpcrdma::{ClientConfig, ServerConfig};
use std::time::Duration;
use tokio::task::JoinSet;
use verbs_sim::Outstanding;

const SECOND: Duration = Duration::from_secs(1);

fn once() -> ClientConfig {
    ClientConfig {
        reconnect: false,
        call_timeout: 1000 * SECOND,
        ..ClientConfig::default()
    }
}

#[test]
fn client_whose_calls_wait_for_memory_is_granted_less_until_none_does() {
    run_in_virtual_time(async {
        let (fabric, provider) = sim();
        let config = ServerConfig {
            credits: 64,
            // One connection has a quarter of it: one call below at a time.
            chunk_memory: 400_000,
            ..ServerConfig::default()
        };
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
