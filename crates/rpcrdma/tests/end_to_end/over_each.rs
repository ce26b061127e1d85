//! Behaviour that has to be the same over every provider, hardware among them.

use crate::echo::{self, exchange};
use crate::stage::{Stage, providers};
use crate::{run, run_in_each_version};
use rpcrdma::{Client, ClientConfig, ConnectError, InlineThreshold, ServerConfig};
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use verbs::{Invalidation, SetupError};

#[test]
fn calls_of_every_shape_lose_one_handle_to_their_reply() {
    run_in_each_version(async || {
        for provider in providers() {
            let invalidates = provider.limits().remote_invalidation == Invalidation::Region;
            let stage = Stage::new(provider, ServerConfig::default()).await;
            let client = stage.client(ClientConfig::default()).await;
            for &(args, results) in echo::SHAPES {
                exchange(&client, args, results).await;
            }
            let counters = client.counters();
            assert!(counters.read_chunks_offered > 0 && counters.write_chunks_offered > 0);
            assert_eq!(counters.remote_invalidations > 0, invalidates);
            client.close().await;
            let stats = stage.server.shutdown().await;
            assert_eq!((stats.connections, stats.accepted), (0, 1));
            assert_eq!(stats.counters.calls_received, echo::SHAPES.len() as u64);
            assert_eq!(
                stats.counters.invalidations_sent,
                counters.remote_invalidations
            );
        }
    });
}

#[test]
fn inline_sizes_of_the_two_ends_may_differ() {
    run(async {
        for provider in providers() {
            for (ours, theirs) in [(1024, 8192), (8192, 1024), (65536, 65536)] {
                let (ours, theirs) = (
                    InlineThreshold::at_most(ours),
                    InlineThreshold::at_most(theirs),
                );
                let config = ServerConfig::default()
                    .with_send_size(theirs)
                    .with_receive_size(theirs);
                let stage = Stage::new(Arc::clone(&provider), config).await;
                let config = ClientConfig::default()
                    .with_send_size(ours)
                    .with_receive_size(ours)
                    .with_credits(4);
                let client = stage.client(config).await;
                let info = client.connection().expect("connected");
                assert_eq!(info.thresholds.send, ours.min(theirs));
                for &(args, results) in echo::SHAPES {
                    exchange(&client, args, results).await;
                }
                client.close().await;
                stage.server.shutdown().await;
            }
        }
    });
}

#[test]
fn several_clients_move_bulk_data_at_once() {
    run(async {
        for provider in providers() {
            let stage = Stage::new(provider, ServerConfig::default()).await;
            let mut tasks = JoinSet::new();
            for _ in 0..4 {
                let client = stage.client(ClientConfig::default()).await;
                for i in 0..8 {
                    let client = client.clone();
                    tasks.spawn(async move {
                        exchange(&client, &[300_000 + i], &[400_000 + i]).await;
                    });
                }
            }
            while let Some(done) = tasks.join_next().await {
                done.expect("answered");
            }
            assert_eq!(stage.server.shutdown().await.counters.calls_received, 32);
        }
    });
}

#[test]
fn client_outlives_a_restart_of_the_server() {
    run_in_each_version(async || {
        for provider in providers() {
            let mut stage = Stage::new(provider, ServerConfig::default()).await;
            let config = ClientConfig::default().with_reconnect_first(Duration::from_millis(1));
            let client = stage.client(config).await;
            exchange(&client, &[], &[]).await;
            stage.begin_anew(ServerConfig::default()).await;
            exchange(&client, &[100_000], &[100_000]).await;
            client.close().await;
            assert_eq!(stage.server.shutdown().await.accepted, 1);
        }
    });
}

#[test]
fn client_is_told_that_nobody_listens() {
    run(async {
        for provider in providers() {
            let stage = Stage::new(Arc::clone(&provider), ServerConfig::default()).await;
            let gone = stage.server.local_addr();
            stage.server.shutdown().await;
            let refused = Client::connect(provider, gone, ClientConfig::default()).await;
            let Some(ConnectError {
                source: SetupError::Io(error),
                ..
            }) = refused.err()
            else {
                panic!("nobody is there");
            };
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        }
    });
}
