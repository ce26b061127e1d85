//! One server that listens over several providers.

use crate::echo::{self, Echo, exchange};
use crate::run;
use crate::stage::{anywhere, sim};
use crate::test_server::TestServer;
use rpcrdma::{ClientConfig, ServerConfig};
use std::sync::Arc;
use verbs::{Provider, SetupError};
use verbs_iwarp::Iwarp;
use verbs_sim::Outstanding;

#[test]
fn connections_over_all_providers_share_service_limits_statistics_and_end() {
    run(async {
        let (fabric, simulated) = sim();
        let software: Arc<dyn Provider> = Arc::new(Iwarp::default());
        let echo = Arc::new(Echo::default());
        let config = ServerConfig::default()
            .with_workers(2)
            .with_max_connections(2)
            .with_max_connections_per_address(2);
        let service = Arc::new(echo::Shared(echo));
        let server = TestServer::bind(Arc::clone(&software), anywhere(), service, config).await;
        server.listen_also(Arc::clone(&simulated)).await;
        let client = async |provider: &Arc<dyn Provider>| {
            let config = ClientConfig::default().with_reconnect(false);
            server.client(Arc::clone(provider), config).await
        };
        let over_tcp = client(&software).await.expect("it connects");
        let over_fabric = client(&simulated).await.expect("it connects");
        for client in [&over_tcp, &over_fabric] {
            for &(args, results) in echo::SHAPES {
                exchange(client, args, results).await;
            }
        }
        assert_eq!(server.monitor().connections().len(), 2);
        // All places are taken, by whichever way.
        for provider in [&software, &simulated] {
            let refused = client(provider).await.map(|_| ());
            let refused = refused.map_err(|error| error.source);
            assert!(
                !matches!(refused, Ok(()) | Err(SetupError::TimedOut(..))),
                "{refused:?}"
            );
        }
        let stats = server.shutdown().await;
        assert_eq!((stats.accepted, stats.refused), (2, 2));
        assert_eq!(fabric.outstanding(), Outstanding::default());
    });
}

#[test]
fn server_goes_on_where_it_cannot_listen_also() {
    run(async {
        let software: Arc<dyn Provider> = Arc::new(Iwarp::default());
        let service = Arc::new(echo::Shared(Arc::default()));
        let config = ServerConfig::default();
        let server = TestServer::bind(Arc::clone(&software), anywhere(), service, config).await;
        let twice = server.listen_also_fails(Arc::clone(&software)).await;
        assert!(matches!(twice, SetupError::Io(_)), "{twice:?}");
        let client = server.client(software, ClientConfig::default()).await;
        exchange(&client.expect("it connects"), &[100], &[100]).await;
        server.shutdown().await;
    });
}
