//! An NFS server, gateways in front of it, and clients.

use gateway::{Gateway, GatewayConfig, Listen, Upstream, tcp_limits};
use nfs_client::{Export, current_user};
use nfs_server::{ExportOptions, Exports, HandleKey, MemFs, Mount3, Nfs3};
use oncrpc::xdr::Payload;
use oncrpc::{Programs, ReplyBound, Service, Transport, TransportError};
use oncrpc_tcp::Backchannels;
use rpcrdma::{Client, ClientConfig, Iwarp, Pool, Server, ServerConfig, Spin, Versions};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpSocket;
use tokio::task::AbortHandle;

/// Time limit of calls of clients: longer than any test.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A free port of this machine.
pub(crate) fn anywhere() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// NFS and MOUNT for an empty file system in memory.
pub(crate) fn nfs() -> Arc<dyn Service> {
    let exports = Exports::new(HandleKey::random().expect("the system has randomness"));
    let files = Arc::new(MemFs::new(64 << 20));
    let exports = exports.with("/data", files, ExportOptions::default());
    let exports = exports.expect("one export");
    let nfs = Nfs3::new(exports.clone(), Pool::new(16 << 20));
    Arc::new(Programs::new().with(nfs).with(Mount3::new(exports)))
}

/// A server over TCP. It ends when it is dropped.
pub(crate) struct TcpServer {
    pub(crate) addr: SocketAddr,
    running: AbortOnDrop,
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl TcpServer {
    /// Ends the server and its connections at once.
    pub(crate) fn abort(self) {
        drop(self.running);
    }
}

/// Listens over TCP with a service.
pub(crate) fn serve_tcp(service: Arc<dyn Service>) -> TcpServer {
    serve_tcp_calling(service, anywhere(), Backchannels::default())
}

/// Listens over TCP on an address, and calls clients.
pub(crate) fn serve_tcp_calling(
    service: Arc<dyn Service>,
    on: SocketAddr,
    backchannels: Backchannels,
) -> TcpServer {
    let listener = TcpListener::bind(on).expect("it listens");
    listener.set_nonblocking(true).expect("it can be set");
    let listener = tokio::net::TcpListener::from_std(listener).expect("it listens");
    serve_tcp_at(listener, service, backchannels)
}

/// An address where nobody listens as long as this is there, and which nobody else gets.
pub(crate) fn reserved() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(anywhere()).expect("a free port");
    let addr = socket.local_addr().expect("it is bound");
    (socket, addr)
}

/// Serves where this listens.
pub(crate) fn serve_tcp_at(
    listener: tokio::net::TcpListener,
    service: Arc<dyn Service>,
    backchannels: Backchannels,
) -> TcpServer {
    let addr = listener.local_addr().expect("it listens");
    let server = oncrpc_tcp::Server::new(listener, service, tcp_limits());
    let server = server.backchannels(backchannels);
    let running = tokio::spawn(server.run(std::future::pending()));
    let running = AbortOnDrop(running.abort_handle());
    TcpServer { addr, running }
}

/// Listens over software iWARP with a service.
pub(crate) async fn serve_rdma(service: Arc<dyn Service>, versions: Versions) -> Server {
    let config = server_config().with_versions(versions);
    let server = Server::bind(iwarp(), anywhere(), service, config).await;
    server.expect("it listens")
}

pub(crate) fn iwarp() -> Arc<Iwarp> {
    Arc::new(Iwarp::default())
}

pub(crate) fn server_config() -> ServerConfig {
    ServerConfig::default()
        .with_workers(1_usize)
        .with_spin(Spin::Park)
}

pub(crate) fn client_config() -> ClientConfig {
    ClientConfig::default().with_spin(Spin::Park)
}

/// A gateway with an RDMA side for clients.
pub(crate) async fn from_rdma(upstream: Upstream) -> Gateway {
    let listen = Listen::rdma(iwarp(), anywhere(), server_config());
    let gateway = Gateway::bind(listen, upstream, GatewayConfig::default()).await;
    gateway.expect("it listens")
}

/// A gateway with a TCP side for clients.
pub(crate) async fn from_tcp(upstream: Upstream) -> Gateway {
    let listener = TcpListener::bind(anywhere()).expect("it listens");
    let gateway = Gateway::bind(Listen::tcp(listener), upstream, GatewayConfig::default()).await;
    gateway.expect("it listens")
}

/// An upstream over software iWARP that speaks this.
pub(crate) fn rdma_upstream(addr: SocketAddr, versions: Versions) -> Upstream {
    Upstream::rdma(iwarp(), addr, client_config().with_versions(versions))
}

pub(crate) async fn rdma_client(addr: SocketAddr) -> Client {
    let client = Client::connect(iwarp(), addr, client_config()).await;
    client.expect("it connects")
}

/// A client over TCP, as it is passed around.
#[derive(Clone)]
pub(crate) struct TcpClient(Arc<oncrpc_tcp::Client>);

impl Transport for TcpClient {
    fn next_xid(&self) -> u32 {
        self.0.next_xid()
    }

    fn call(
        &self,
        call: Payload,
        bound: ReplyBound,
    ) -> impl Future<Output = Result<Payload, TransportError>> + Send {
        self.0.call(call, bound)
    }
}

pub(crate) async fn tcp_client(addr: SocketAddr) -> TcpClient {
    let client = oncrpc_tcp::Client::connect(addr, LIMIT).await;
    TcpClient(Arc::new(client.expect("it connects")))
}

pub(crate) async fn mount<T: Transport + Send + Sync + Clone>(transport: T) -> Export<T> {
    let export = Export::mount(transport, current_user(), "/data").await;
    export.expect("it is exported")
}
