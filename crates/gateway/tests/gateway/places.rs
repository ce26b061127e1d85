//! An RDMA server that takes few connections of a gateway, whose TCP clients are of several addresses.

use crate::made_up::*;
use crate::stage::*;
use gateway::{ConnectRdma, Gateway, GatewayConfig, Listen, Upstream, tcp_limits};
use oncrpc::Cause;
use oncrpc_tcp::IncomingStream;
use rpcrdma::{Client, ClientConfig, Iwarp, Server, SetupError, Versions};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;
use verbs::BoxFuture;

/// Connections that the server takes of one address.
const PLACES: usize = 4;

/// Connects as often as there are places, and is refused after that, whoever leaves.
struct Places {
    left: AtomicUsize,
    refused: AtomicUsize,
    iwarp: Arc<Iwarp>,
}

impl ConnectRdma for Places {
    fn connect(
        &self,
        to: SocketAddr,
        config: ClientConfig,
    ) -> BoxFuture<'_, Result<Client, Cause>> {
        let less = |left: usize| left.checked_sub(1);
        let is_left = self.left.fetch_update(SeqCst, SeqCst, less).is_ok();
        self.refused.fetch_add(usize::from(!is_left), SeqCst);
        Box::pin(async move {
            match is_left {
                true => Ok(Client::connect(Arc::clone(&self.iwarp) as _, to, config).await?),
                false => Err(SetupError::Rejected(Vec::new()).into()),
            }
        })
    }
}

/// A gateway in front of a server with few places.
struct Crowded {
    service: Arc<MadeUp>,
    _server: Server,
    _gateway: Gateway,
    to_gateway: mpsc::Sender<IncomingStream>,
}

impl Crowded {
    async fn start(connect_window: Duration) -> Self {
        let config = GatewayConfig::default().with_connect_window(connect_window);
        let upstream = |addr| rdma_upstream(addr, Versions::One);
        Self::start_with(config, upstream).await
    }

    async fn start_with(
        config: GatewayConfig,
        upstream: impl FnOnce(SocketAddr) -> Upstream,
    ) -> Self {
        let service = Arc::<MadeUp>::default();
        let of_server = server_config().with_max_connections_per_address(PLACES);
        let server = Server::bind(iwarp(), anywhere(), Arc::clone(&service) as _, of_server).await;
        let server = server.expect("it listens");
        let (to_gateway, streams) = mpsc::channel(1);
        let listen = Listen::Streams {
            streams,
            addr: anywhere(),
            limits: tcp_limits(),
        };
        let gateway = Gateway::bind(listen, upstream(server.local_addr()), config).await;
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

/// Connections of 192.0.2.1 that have given way to so many of another address, each of which is refused all the
/// time.
async fn given_way_in_vain(to: usize) -> usize {
    let config = GatewayConfig::default()
        .with_connect_window(LIMIT)
        .with_retry_first(Duration::from_millis(1))
        .with_retry_most(Duration::from_millis(1));
    let places = Arc::new(Places {
        left: AtomicUsize::new(PLACES),
        refused: AtomicUsize::new(0),
        iwarp: iwarp(),
    });
    let connect = Arc::clone(&places) as _;
    let crowded = Crowded::start_with(config, |addr| Upstream::Rdma {
        connect,
        addrs: vec![addr],
        config: Box::new(client_config().with_versions(Versions::One)),
    })
    .await;
    let mut many = Vec::new();
    for _ in 0..PLACES {
        let mut client = crowded.client(1).await;
        assert!(is_served(&mut client).await);
        many.push(client);
    }
    let mut others = Vec::new();
    for xid in 1.. {
        let mut other = crowded.client(2).await;
        let call = record_of(&call_of(xid, ECHO, b""));
        other.write_all(&call).await.expect("it is sent");
        others.push(other);
        // Each is refused before the next one comes, and they all are often.
        let refused = 8 * others.len();
        until(|| places.refused.load(SeqCst) >= refused).await;
        if others.len() == to {
            break;
        }
    }
    let mut gave_way = 0;
    for client in &mut many {
        gave_way += usize::from(!is_served(client).await);
    }
    gave_way
}

#[tokio::test]
async fn one_connection_gives_way_to_another_however_often_that_is_refused() {
    assert_eq!(given_way_in_vain(1).await, 1);
}

#[tokio::test]
async fn connections_that_wait_for_a_place_leave_their_address_no_more_than_the_other_has() {
    assert_eq!(given_way_in_vain(PLACES).await, PLACES / 2);
}

#[tokio::test]
async fn client_whose_place_another_has_taken_is_given_one_once_more() {
    let pause = Duration::from_millis(300);
    let config = GatewayConfig::default()
        .with_connect_window(LIMIT)
        .with_retry_first(pause)
        .with_retry_most(pause);
    let upstream = |addr| rdma_upstream(addr, Versions::One);
    let crowded = Crowded::start_with(config, upstream).await;
    let mut many = Vec::new();
    for _ in 0..PLACES {
        let mut client = crowded.client(1).await;
        assert!(is_served(&mut client).await);
        many.push(client);
    }
    let mut late = crowded.client(2).await;
    let call = record_of(&call_of(7, ECHO, b"on"));
    late.write_all(&call).await.expect("it is sent");
    // The one that has been idle for longest gives way, and another client is there before this one comes again.
    let closed = within_limit(many[0].read(&mut [0])).await;
    assert_eq!(closed.expect("it is closed"), 0);
    let mut other = crowded.client(3).await;
    assert!(is_served(&mut other).await);
    let mut reply = [0; 4 + 24 + 8];
    let read = within_limit(late.read_exact(&mut reply)).await;
    read.expect("it is answered");
    assert!(is_served(&mut other).await, "it stays");
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
