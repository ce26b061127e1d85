//! Turns on the CPU, between addresses.

use crate::echo::{self, ask, check};
use crate::run;
use crate::stage::{Stage, sim};
use rpcrdma::{ClientConfig, ServerConfig, Spin};
use std::net::IpAddr;
use std::sync::Arc;
use tokio::task::JoinSet;
use verbs_sim::EndOptions;

/// Connections of the busy address, and calls in flight on each.
const BUSY: usize = 32;
const DEPTH: usize = 16;

#[test]
fn address_with_many_busy_connections_leaves_another_its_turns() {
    run(async {
        let (fabric, provider) = sim();
        let mut stage = Stage::new(provider, ServerConfig::default()).await;
        let mut busy = JoinSet::new();
        for _ in 0..BUSY {
            let client = stage.client(ClientConfig::default()).await;
            for _ in 0..DEPTH {
                let client = client.clone();
                busy.spawn(async move { while ask(&client, echo::NOW).await.is_ok() {} });
            }
        }
        let end = EndOptions {
            address: IpAddr::from([127, 0, 0, 2]),
            ..EndOptions::default()
        };
        let config = ClientConfig::default().with_spin(Spin::Park);
        let other = stage.server.client(Arc::new(fabric.provider(end)), config);
        let other = other.await.expect("it connects");
        let mut before = Vec::new();
        for _ in 0..9 {
            let calls = stage.service.calls();
            check(&ask(&other, echo::NOW).await.expect("answered"), &[]);
            before.push(stage.service.calls() - calls);
        }
        before.sort_unstable();
        // All BUSY * DEPTH without turns.
        assert!(before[4] < BUSY * DEPTH / 4, "{before:?}");
        busy.shutdown().await;
        stage.server.has_lawless_peer();
    });
}
