//! Statistics of a server about its connections.

use crate::echo::{BLOCKING, bound, call, check, exchange};
use crate::run_in_each_version;
use crate::stage::{Stage, sim};
use oncrpc::Transport;
use rpcrdma::{ClientConfig, ConnectionState, ServerConfig};

async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::task::yield_now().await;
    }
}

#[test]
fn server_tells_what_each_connection_does() {
    run_in_each_version(async || {
        let (_, provider) = sim();
        let stage = Stage::new(provider, ServerConfig::default()).await;
        let monitor = stage.server.monitor();
        assert_eq!(monitor.connections(), []);
        let client = stage.client(ClientConfig::default()).await;
        exchange(&client, &[100_000], &[60_000]).await;
        let xid = client.next_xid();
        let blocked = client.call(call(xid, BLOCKING, &[], &[10]), bound(&[10]));
        let seen = async {
            stage.service.echo.wait_for_blocked(1).await;
            // It is told within a tenth of a second.
            until(|| monitor.connections()[0].jobs_in_flight == 1).await;
            let now = monitor.connections().remove(0);
            assert_eq!(
                (now.state, now.credits_in_use, now.jobs),
                (ConnectionState::Active, 1, 1)
            );
            assert_eq!(now.id, Some(stage.service.last()));
            assert!(now.version.is_some());
            assert!(now.credits_granted > 1);
            assert_eq!(stage.service.last_credits(), now.credits_granted);
            let counters = now.counters;
            assert_eq!((counters.calls_received, counters.replies_sent), (2, 1));
            assert_eq!(
                (counters.read_chunks_pulled, counters.read_bytes_pulled),
                (1, 100_000)
            );
            assert_eq!(
                (counters.write_chunks_filled, counters.write_bytes_posted),
                (1, 60_000)
            );
            // Two calls and a reply, of which the data is no part.
            assert!((60..4096).contains(&counters.inline_bytes_received));
            assert!((20..4096).contains(&counters.inline_bytes_sent));
            stage.service.echo.open();
            until(|| monitor.connections()[0].state == ConnectionState::Idle).await;
        };
        let (reply, ()) = tokio::join!(blocked, seen);
        check(&reply.expect("answered"), &[10]);
        // The client registered memory for an argument and a result, and nothing is left of it.
        let counters = client.counters();
        let invalidated = counters.local_invalidations + counters.remote_invalidations;
        assert_eq!((counters.registrations, invalidated), (2, 2));
        client.close().await;
        until(|| monitor.connections().is_empty()).await;
        let stats = stage.server.shutdown().await;
        assert_eq!((stats.jobs, stats.counters.calls_received), (1, 2));
    });
}
