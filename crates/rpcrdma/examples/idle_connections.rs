//! Memory of a server for the Receives of connections that are idle, and of busy ones.
//!
//!     cargo run -p rpcrdma --example idle_connections
//!
//! The provider is a simulation in which each connection posts its own Receives, as over RDMA devices. The figures are
//! bytes that connections have taken from the server's pool; nothing is timed.

use rpcrdma::oncrpc::xdr::{Payload, Reader, Writer};
use rpcrdma::oncrpc::{Answer, Caller, Reply, ReplyBound, Service, Transport};
use rpcrdma::{Buffer, Client, ClientConfig, Pool, Server, ServerConfig};
use std::error::Error;
use std::sync::Arc;
use verbs_sim::{EndOptions, Fabric};

/// Connections that are counted.
const CONNECTIONS: usize = 20;

/// Calls at a time of a busy client, and how many times.
const AT_A_TIME: usize = 128;
const ROUNDS: usize = 4;

/// Answers each call with two words.
struct Short;

impl Service for Short {
    fn call(&self, call: Payload, _: &Caller) -> Answer {
        match Reader::from(&call).u32() {
            Ok(xid) => Answer::Now(Reply::Message(words(xid, 1))),
            Err(_) => Answer::Now(Reply::Nothing),
        }
    }
}

/// A call or a reply, which have an XID and a direction in common.
fn words(xid: u32, direction: u32) -> Payload {
    let mut message = Writer::new(Buffer::with_capacity(8));
    message.u32(xid);
    message.u32(direction);
    message.finish()
}

async fn call(client: &Client) {
    let message = words(client.next_xid(), 0);
    let bound = ReplyBound {
        fixed: 8,
        ..ReplyBound::default()
    };
    let replied = client.call(message, bound).await;
    replied.expect("the server answers");
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut end = EndOptions::default();
    end.limits.shared_receives = false;
    end.limits.holds_peer_back = false;
    let provider = Arc::new(Fabric::new(1).provider(end));
    let pool = Pool::new(64 << 20);
    let config = ServerConfig::default()
        .with_workers(0)
        .with_max_connections_per_address(CONNECTIONS)
        .with_pool(pool.clone());
    let on = "127.0.0.1:0".parse()?;
    let server = Server::bind(provider.clone(), on, Arc::new(Short), config).await?;
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        let config = ClientConfig::default();
        let client = Client::connect(provider.clone(), server.local_addr(), config).await?;
        call(&client).await;
        clients.push(client);
    }
    let say = |what: &str| {
        let each = pool.stats().out / CONNECTIONS;
        println!("{what}: {each} bytes a connection");
    };
    say("after one call");
    for client in &clients {
        for _ in 0..ROUNDS {
            let calls = (0..AT_A_TIME).map(|_| {
                let client = client.clone();
                tokio::spawn(async move { call(&client).await })
            });
            for done in calls.collect::<Vec<_>>() {
                done.await?;
            }
        }
    }
    say("after many calls at a time");
    for client in clients {
        client.close().await;
    }
    server.shutdown().await;
    Ok(())
}
