//! Observed connection setup with peers of all kinds.

use iwarp_proto::mpa::{Frame, HeaderView, Kind, Revision};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use verbs::{Connected, QpOptions, SetupError};
use verbs_iwarp::{Iwarp, Startup};

/// How long each peer is waited for; nobody here needs as long to answer.
const PATIENCE: Duration = Duration::from_secs(5);

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

/// Looks at a peer that says this on each connection, and closes it.
async fn observe(says: &[u8]) -> (Startup, Result<Connected, SetupError>) {
    let listener = TcpListener::bind(LOOPBACK).await.unwrap();
    let to = listener.local_addr().unwrap();
    let peer = async {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(says).await.unwrap();
            stream.shutdown().await.unwrap();
            // A socket that is dropped with bytes unread takes back its last words.
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
    };
    let options = QpOptions::default().with_setup_timeout(PATIENCE);
    let provider = Iwarp::default();
    tokio::select! {
        seen = provider.connect_observed(to, &options, b"hello", Vec::new()) => seen,
        () = peer => unreachable!("the peer goes on"),
    }
}

/// A Reply of a revision that nobody knows.
const REVISION_THREE: &[u8] = b"MPA ID Rep Frame\xd0\x03\x00\x04\x00\x05\x00\x06";

#[test]
fn bytes_of_other_protocols_are_kept_in_the_exchange() {
    run(async {
        let (startup, connected) = observe(b"SSH-2.0-of some kind\r\n").await;
        assert!(connected.is_err() && startup.agreed.is_none());
        assert_eq!(startup.exchanges.len(), 1);
        assert_eq!(startup.exchanges[0].received, b"SSH-2.0-of some kind");
    });
}

#[test]
fn reply_that_is_not_understood_can_still_be_looked_at() {
    run(async {
        let (startup, connected) = observe(REVISION_THREE).await;
        assert!(connected.is_err() && startup.agreed.is_none());
        let header = HeaderView::new(&startup.exchanges[0].received).unwrap();
        assert_eq!(header.key(), Kind::Reply.key());
        assert_eq!((header.revision(), header.private_data_len()), (3, 4));
        assert!(header.markers() && header.crc() && header.enhanced() && !header.reject());
    });
}

#[test]
fn responder_that_only_closes_is_seen_to_do_so_with_both_revisions() {
    run(async {
        let (startup, connected) = observe(b"").await;
        assert!(connected.is_err());
        let tried = startup.exchanges.iter().map(|e| e.request.revision);
        assert_eq!(tried.collect::<Vec<_>>(), [Revision::Two, Revision::One]);
        assert!(startup.exchanges.iter().all(|e| e.received.is_empty()));
    });
}

#[test]
fn refused_connection_has_no_exchange() {
    run(async {
        let gone = TcpListener::bind(LOOPBACK).await.unwrap();
        let to = gone.local_addr().unwrap();
        drop(gone);
        let provider = Iwarp::default();
        let options = QpOptions::default();
        let seen = provider.connect_observed(to, &options, b"", Vec::new());
        let (startup, connected) = seen.await;
        assert!(matches!(connected, Err(SetupError::Io(_))));
        assert!(startup.exchanges.is_empty());
    });
}

#[test]
fn agreement_and_the_whole_reply_are_reported() {
    run(async {
        let reply = Frame {
            kind: Kind::Reply,
            markers: false,
            crc: false,
            reject: false,
            revision: Revision::Two,
            enhanced: Some(iwarp_proto::mpa::Enhanced {
                peer_to_peer: None,
                ird: 7,
                ord: 9,
            }),
            private_data: b"welcome".to_vec(),
        };
        let bytes = reply.emit();
        let (startup, connected) = observe(&bytes).await;
        assert_eq!(connected.unwrap().private_data, b"welcome");
        assert_eq!(startup.exchanges[0].received, bytes);
        assert_eq!(startup.exchanges[0].request.private_data, b"hello");
        let agreed = startup.agreed.unwrap();
        assert_eq!((agreed.ird, agreed.ord, agreed.crc), (32, 7, true));
    });
}
