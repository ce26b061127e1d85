//! An RDMA server that takes few connections of a gateway, whose TCP clients are of several addresses.

use crate::made_up::*;
use crate::stage::*;
use gateway::{Gateway, GatewayConfig, Listen, tcp_limits};
use oncrpc_tcp::IncomingStream;
use rpcrdma::{Server, Versions};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;

/// Connections that the server takes of one address.
const PLACES: usize = 4;

/// A gateway in front of a server with few places.
struct Crowded {
    service: Arc<MadeUp>,
    _server: Server,
    _gateway: Gateway,
    to_gateway: mpsc::Sender<IncomingStream>,
}

impl Crowded {
    async fn start(connect_window: Duration) -> Self {
        let service = Arc::<MadeUp>::default();
        let config = server_config().with_max_connections_per_address(PLACES);
        let server = Server::bind(iwarp(), anywhere(), Arc::clone(&service) as _, config).await;
        let server = server.expect("it listens");
        let (to_gateway, streams) = mpsc::channel(1);
        let listen = Listen::Streams {
            streams,
            addr: anywhere(),
            limits: tcp_limits(),
        };
        let config = GatewayConfig::default().with_connect_window(connect_window);
        let upstream = rdma_upstream(server.local_addr(), Versions::One);
        let gateway = Gateway::bind(listen, upstream, config).await;
        Self {
            service,
            _server: server,
            _gateway: gateway.expect("it listens"),
            to_gateway,
        }
    }

    /// Connects as a client at 192.0.2.`host`.
    async fn client(&self, host: u8) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(4096);
        let stream = IncomingStream::new(theirs, ([192, 0, 2, host], 700).into());
        self.to_gateway.send(stream).await.expect("it listens");
        ours
    }
}

/// Makes a call. Returns whether it is answered; otherwise the connection is closed.
async fn is_served(client: &mut DuplexStream) -> bool {
    let call = record_of(&call_of(7, ECHO, b"on"));
    let mut reply = [0; 4 + 24 + 8];
    let exchange = async {
        client.write_all(&call).await.is_ok() && client.read_exact(&mut reply).await.is_ok()
    };
    within_limit(exchange).await
}

#[tokio::test]
async fn idle_connections_of_the_address_with_most_give_way_to_other_clients() {
    let crowded = Crowded::start(LIMIT).await;
    let mut many = Vec::new();
    for _ in 0..PLACES {
        let mut client = crowded.client(1).await;
        assert!(is_served(&mut client).await);
        many.push(client);
    }
    // The first has been used last.
    assert!(is_served(&mut many[0]).await);
    let mut others = Vec::new();
    for host in 2..4 {
        let mut other = crowded.client(host).await;
        assert!(is_served(&mut other).await, "client {host}");
        others.push(other);
    }
    for (number, client) in many.iter_mut().enumerate() {
        let gave_way = (1..3).contains(&number);
        assert_eq!(is_served(client).await, !gave_way, "connection {number}");
    }
    for other in &mut others {
        assert!(is_served(other).await, "it stays");
    }
}

#[tokio::test]
async fn connection_in_use_gives_way_to_no_other_client() {
    let crowded = Crowded::start(Duration::from_millis(300)).await;
    let mut many = Vec::new();
    for number in 1..=PLACES {
        let mut client = crowded.client(1).await;
        let xid = u32::try_from(number).expect("few");
        let call = record_of(&call_of(xid, HELD, b""));
        client.write_all(&call).await.expect("it is sent");
        crowded.service.until_called(number).await;
        many.push(client);
    }
    let mut other = crowded.client(2).await;
    assert!(!is_served(&mut other).await, "there is no place");
    for (number, client) in (1..).zip(&mut many) {
        crowded.service.release(number);
        let mut reply = [0; 4 + 24 + 4 + 8];
        let read = within_limit(client.read_exact(&mut reply)).await;
        read.expect("it is answered");
    }
}
