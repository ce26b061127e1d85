//! Memory of replies that clients do not read, whichever way they go.

use crate::made_up::*;
use crate::stage::*;
use gateway::{Gateway, GatewayConfig, Listen};
use hostile_peer::{Peer, as_words, words};
use rpcrdma::Versions;
use std::cell::Cell;
use std::net::{SocketAddr, TcpListener};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

const RDMA: Over = Over::Rdma(Versions::One);

/// Memory of the gateway for replies.
const MEMORY: usize = 16 << 20;

/// Clients, calls of each, and bytes of each result: eight times that memory.
const CLIENTS: usize = 8;
const CALLS: u32 = 16;
const RESULT: u32 = (1 << 20) - (8 << 10);

/// A client that makes its calls and reads nothing. It is connected as long as this is there.
enum Unread {
    Tcp { _stream: TcpStream },
    Rdma { _peer: Box<Peer> },
}

impl Unread {
    async fn calls(over: Over, to: SocketAddr) -> Self {
        let calls = (0..CALLS).map(|xid| call_of_words(xid, GROW, &[RESULT]));
        match over {
            Over::Tcp => {
                let stream = TcpStream::connect(to).await;
                let mut stream = stream.expect("it connects");
                for call in calls {
                    let call = record_of(&call);
                    stream.write_all(&call).await.expect("it is sent");
                }
                Self::Tcp { _stream: stream }
            }
            Over::Rdma(_) => {
                let calls: Vec<_> = calls.map(|call| as_words(call.head())).collect();
                let peer = tokio::task::spawn_blocking(move || {
                    let mut peer = Peer::connect(to);
                    for call in calls {
                        // It has room for the reply in a Reply chunk (RFC 8166 §4.3.3).
                        let chunk = [call[0], 1, 32, 0, 0, 0, 1, 1, 7, 2 * RESULT, 0, 0];
                        peer.send(&words(&[&chunk, &call[..]].concat()));
                    }
                    peer
                });
                let peer = peer.await.expect("no panic");
                Self::Rdma {
                    _peer: Box::new(peer),
                }
            }
        }
    }
}

/// Checks the memory of a gateway whose clients read nothing, until it closes the connection of one of them so that
/// others go on: by then there is no more for replies.
async fn unread_replies_are_within_the_budget(down: Over, up: Over) {
    let upper = Upper::new(up).await;
    let listen = match down {
        Over::Tcp => Listen::tcp(TcpListener::bind(anywhere()).expect("it listens")),
        Over::Rdma(_) => Listen::rdma(iwarp(), anywhere(), server_config()),
    };
    let config = GatewayConfig::default().with_reply_memory(MEMORY);
    let gateway = Gateway::bind(listen, upper.upstream(), config).await;
    let gateway = gateway.expect("it listens");
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(Unread::calls(down, gateway.local_addr()).await);
    }
    let most = Cell::new(0);
    let monitor = gateway.monitor();
    until(|| {
        most.set(monitor.memory().out.max(most.get()));
        // A record of a little more than a power of two is in a buffer of the next, whose rest is not touched.
        assert!(most.get() <= 2 * MEMORY, "{} bytes are held", most.get());
        gateway.stats().clients_stalled > 0
    })
    .await;
    assert!(most.get() >= MEMORY / 4, "replies are held: {}", most.get());
}

#[tokio::test]
async fn unread_replies_of_a_tcp_server_to_rdma_clients_are_within_the_budget() {
    unread_replies_are_within_the_budget(RDMA, Over::Tcp).await;
}

#[tokio::test]
async fn unread_replies_of_an_rdma_server_to_tcp_clients_are_within_the_budget() {
    unread_replies_are_within_the_budget(Over::Tcp, RDMA).await;
}

#[tokio::test]
async fn unread_replies_of_an_rdma_server_to_rdma_clients_are_within_the_budget() {
    unread_replies_are_within_the_budget(RDMA, RDMA).await;
}

#[tokio::test]
async fn unread_replies_of_a_tcp_server_to_tcp_clients_are_within_the_budget() {
    unread_replies_are_within_the_budget(Over::Tcp, Over::Tcp).await;
}
