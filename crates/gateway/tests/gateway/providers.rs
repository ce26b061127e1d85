//! Several providers and listeners of one gateway.

use crate::made_up::*;
use crate::stage::*;
use gateway::{ConnectRdma, Upstream};
use oncrpc::{Cause, Programs};
use rpcrdma::{Client, ClientConfig, Versions};
use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use verbs::BoxFuture;

const RDMA: Over = Over::Rdma(Versions::One);

async fn client(to: SocketAddr) -> Lower {
    let client = Lower::new(RDMA, to, Arc::new(Programs::new())).await;
    let reply = client.call(call_of(1, ECHO, b"x"), 100).await;
    assert_eq!(results(&reply.expect("it is answered"), 1), b"x");
    client
}

#[tokio::test]
async fn clients_of_each_listener_have_upstream_connections_of_their_own() {
    let upper = Upper::new(RDMA).await;
    let gateway = upper.behind(RDMA).await;
    let also = gateway.listen_also(iwarp(), anywhere()).await;
    let also = also.expect("it listens");
    assert_ne!(also, gateway.local_addr());
    let _clients = [client(gateway.local_addr()).await, client(also).await];
    assert_eq!(gateway.stats().upstream_connections, 2);
    let monitor = gateway.monitor();
    let clients: HashSet<_> = monitor.connections().iter().map(|now| now.id).collect();
    let seen = monitor.upstream_connections();
    let served: HashSet<_> = seen.iter().map(|now| Some(now.client)).collect();
    assert_eq!((clients.len(), clients), (2, served));
    assert!(seen.iter().all(|now| now.device.is_none()), "{seen:?}");
}

#[tokio::test]
async fn gateway_for_tcp_clients_listens_over_no_provider() {
    let upper = Upper::new(RDMA).await;
    let gateway = upper.behind(Over::Tcp).await;
    assert!(gateway.listen_also(iwarp(), anywhere()).await.is_err());
    let client = Lower::new(Over::Tcp, gateway.local_addr(), Arc::new(Programs::new())).await;
    let reply = client.call(call_of(1, ECHO, b"x"), 100).await;
    assert!(reply.is_ok(), "it goes on");
}

/// Connects to a server at each second attempt.
struct EachSecond {
    to: SocketAddr,
    asked: AtomicUsize,
}

impl ConnectRdma for EachSecond {
    fn connect(&self, _: SocketAddr, config: ClientConfig) -> BoxFuture<'_, Result<Client, Cause>> {
        Box::pin(async move {
            match self.asked.fetch_add(1, Relaxed) % 2 {
                0 => Err(io::Error::from(io::ErrorKind::ConnectionRefused).into()),
                _ => Ok(Client::connect(iwarp(), self.to, config).await?),
            }
        })
    }
}

#[tokio::test]
async fn each_upstream_connection_is_made_anew_as_the_configuration_says() {
    let upper = Upper::new(RDMA).await;
    let connect = Arc::new(EachSecond {
        to: upper.addr,
        asked: AtomicUsize::new(0),
    });
    let gateway = from_rdma(Upstream::Rdma {
        connect: Arc::clone(&connect) as Arc<dyn ConnectRdma>,
        addrs: vec!["192.0.2.1:20049".parse().expect("it is an address")],
        config: Box::new(client_config()),
    })
    .await;
    let _clients = [
        client(gateway.local_addr()).await,
        client(gateway.local_addr()).await,
    ];
    assert_eq!(connect.asked.load(Relaxed), 4);
    let stats = gateway.stats();
    let (made, failed) = (stats.upstream_connections, stats.upstream_attempts_failed);
    assert_eq!((made, failed), (2, 2));
}
