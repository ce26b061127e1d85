//! Client and server over software iWARP on loopback.

use crate::echo::{self, Echo, Shared, exchange};
use crate::run;
use crate::stage::{Noting, anywhere};
use crate::test_server::TestServer;
use oncrpc::{LocalUserError, LocalUsers, Origin};
use rpcrdma::{Client, ClientConfig, ConnectError, ServerConfig};
use rpcrdma_watch::Watched;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use verbs::SetupError;
use verbs_iwarp::{Config, CrcMode, Iwarp};

fn iwarp(crc: CrcMode) -> Arc<Iwarp> {
    Arc::new(Iwarp::new(Config::default().with_crc(crc)))
}

fn service() -> Arc<Shared> {
    Arc::new(Shared(Arc::new(Echo::default())))
}

async fn server(config: ServerConfig) -> TestServer {
    TestServer::bind(iwarp(CrcMode::Off), anywhere(), service(), config).await
}

async fn client(server: &TestServer, crc: CrcMode, config: ClientConfig) -> Watched<Client> {
    let client = server.client(iwarp(crc), config).await;
    client.expect("it connects")
}

#[test]
fn calls_of_every_shape_are_answered_with_and_without_crc() {
    run(async {
        let server = server(ServerConfig::default()).await;
        for crc in [CrcMode::Off, CrcMode::On, CrcMode::Strict] {
            let client = client(&server, crc, ClientConfig::default()).await;
            for &(args, results) in echo::SHAPES {
                exchange(&client, args, results).await;
            }
            client.close().await;
        }
        let stats = server.shutdown().await;
        assert_eq!(stats.accepted, 3);
        assert_eq!(stats.counters.calls_received, 3 * echo::SHAPES.len() as u64);
    });
}

#[test]
fn those_who_speak_something_else_or_nothing_hold_up_nobody() {
    run(async {
        let limit = Duration::from_secs(20);
        let config = ServerConfig::default().with_setup_timeout(limit);
        // On this runtime, whose clock is that of the test.
        let server = server(config.with_workers(0)).await;
        let on = server.local_addr();
        let mut silent = TcpStream::connect(on).await.expect("it listens");
        let mut other = TcpStream::connect(on).await.expect("it listens");
        let garbage = b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n";
        other.write_all(garbage).await.expect("it takes bytes");
        let client = client(&server, CrcMode::On, ClientConfig::default()).await;
        exchange(&client, &[], &[]).await;
        tokio::time::pause();
        tokio::time::advance(limit).await;
        tokio::time::resume();
        // Both are dropped, which is an end of the stream or a reset.
        let mut rest = Vec::new();
        let _ = other.read_to_end(&mut rest).await;
        let _ = silent.read_to_end(&mut rest).await;
        exchange(&client, &[100_000], &[]).await;
        let stats = server.shutdown().await;
        assert_eq!((stats.accepted, stats.refused), (1, 2));
    });
}

/// Takes each client for this user of this machine, or refuses it.
#[derive(Debug)]
struct Everybody {
    uid: Option<u32>,
    asked: AtomicUsize,
}

impl LocalUsers for Everybody {
    fn find(&self, socket: BorrowedFd<'_>, peer: SocketAddr) -> Result<Origin, LocalUserError> {
        let socket = std::net::TcpStream::from(socket.try_clone_to_owned().unwrap());
        assert_eq!(socket.peer_addr().unwrap(), peer);
        assert_eq!(peer.ip(), anywhere().ip());
        self.asked.fetch_add(1, SeqCst);
        self.uid.ok_or(LocalUserError::Gone).map(Origin::User)
    }
}

fn identified_as(uid: Option<u32>) -> (Arc<Everybody>, ServerConfig) {
    let asked = AtomicUsize::new(0);
    let users = Arc::new(Everybody { uid, asked });
    let config =
        ServerConfig::default().with_local_users(Arc::clone(&users) as Arc<dyn LocalUsers>);
    (users, config)
}

#[test]
fn user_behind_a_connection_is_found_once_and_known_to_the_service() {
    run(async {
        let (users, config) = identified_as(Some(7));
        let service = Noting::new();
        let provider = iwarp(CrcMode::Off);
        let server = TestServer::bind(provider, anywhere(), service.clone(), config).await;
        let client = client(&server, CrcMode::On, ClientConfig::default()).await;
        exchange(&client, &[], &[]).await;
        exchange(&client, &[100_000], &[]).await;
        assert_eq!(service.local_uids(), [Some(7); 2]);
        assert_eq!(users.asked.load(SeqCst), 1);
        client.close().await;
        server.shutdown().await;
    });
}

#[test]
fn connection_from_this_machine_whose_user_is_not_found_is_refused() {
    run(async {
        let (users, config) = identified_as(None);
        let server = server(config).await;
        let refused = server.client(iwarp(CrcMode::On), ClientConfig::default());
        assert!(matches!(
            refused.await.err(),
            Some(ConnectError {
                source: SetupError::Rejected(_),
                ..
            })
        ));
        assert_eq!(users.asked.load(SeqCst), 1);
        let stats = server.shutdown().await;
        assert_eq!((stats.accepted, stats.refused), (0, 1));
    });
}
