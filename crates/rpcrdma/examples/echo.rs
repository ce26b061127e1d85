//! An RPC program with an argument and a result by reference: the RDMA binding of an upper layer
//! (RFC 8166 §6) in one file.
//!
//!     cargo run -p rpcrdma --example echo
//!
//! ECHO has one procedure: `opaque ECHO(opaque)`. Both are DDP-eligible: when they do not fit a Send, the
//! server reads the argument with RDMA Read from a Read chunk and writes the result with RDMA Write into a
//! Write chunk. The example counts these operations for a small call and for a large one.

use rpcrdma::xdr::{Gather, Reader, Writer};
use rpcrdma::{
    Answer, Bytes, Call, Client, ClientConfig, Credential, Iwarp, Procedure, Program, Programs,
    Reply, ReplyBound, Server, ServerConfig, Transport, read_reply, write_call,
};
use std::error::Error;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::sync::Arc;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A number of the range that is for users (RFC 5531 §8.3).
const ECHO: Procedure = Procedure {
    prog: 0x2000_0001,
    vers: 1,
    proc: 1,
};

/// Bytes of the largest argument: what a server accepts is bounded before it takes memory for it.
const MAX_DATA: u32 = 4 << 20;

/// Bytes of a reply without its item: RPC header with a verifier, and the length word of the result.
const FIXED: usize = rpcrdma::oncrpc::MAX_REPLY_HEADER + 4;

/// The binding: how large a reply is, and which of its results are DDP-eligible (RFC 8166 §6).
fn reply_bound(bytes: usize) -> ReplyBound {
    ReplyBound::new(FIXED).with_result(bytes)
}

struct Echo;

impl Program for Echo {
    fn number(&self) -> u32 {
        ECHO.prog
    }

    fn versions(&self) -> RangeInclusive<u32> {
        ECHO.vers..=ECHO.vers
    }

    fn call(&self, call: Call) -> Answer {
        let reply = match call.proc {
            0 => call.void(),
            1 => match call.decode(|r| Ok(r.item(MAX_DATA)?.into_gather())) {
                Ok(data) => {
                    let mut w = call.success(Default::default());
                    // The same memory goes out again: nothing is copied.
                    w.item(data);
                    Reply::Message(w.finish())
                }
                Err(error) => call.unreadable(error),
            },
            _ => call.proc_unavail(),
        };
        Answer::Now(reply)
    }

    /// With this the server takes no more memory for the reply than the call can draw: as many bytes as
    /// its argument has, which is the first word of the arguments.
    fn reply_bound(&self, procedure: Procedure, args: &mut Reader<'_>) -> Option<ReplyBound> {
        match procedure.proc {
            1 => Some(reply_bound(args.length(MAX_DATA).ok()?)),
            _ => Some(ReplyBound::new(FIXED)),
        }
    }
}

/// Calls ECHO and returns what came back.
async fn echo(client: &Client, data: Bytes) -> Result<Vec<u8>> {
    let bound = reply_bound(data.len());
    let (mut w, xid) = (Writer::default(), client.next_xid());
    write_call(&mut w, xid, ECHO, &Credential::None);
    w.item(Gather::from_elem(data, 1));
    let reply = client.call(w.finish(), bound).await?;
    let mut results = read_reply(&reply, xid)?;
    let echoed = results.item(MAX_DATA)?.to_vec();
    results.finish()?;
    Ok(echoed)
}

#[tokio::main]
async fn main() -> Result<()> {
    let provider = Arc::new(Iwarp::default());
    let service = Arc::new(Programs::new().with(Echo));
    let at = (Ipv4Addr::LOCALHOST, 0).into();
    let server = Server::bind(provider.clone(), at, service, ServerConfig::default()).await?;
    let client = Client::connect(provider, server.local_addr(), ClientConfig::default()).await?;

    for (bytes, chunks) in [(100, 0), (1 << 20, 1)] {
        let before = client.counters();
        let data: Bytes = (0..bytes).map(|at: usize| at.to_le_bytes()[0]).collect();
        assert_eq!(echo(&client, data.clone()).await?, data);
        let after = client.counters();
        let reads = after.read_chunks_offered - before.read_chunks_offered;
        let writes = after.write_chunks_offered - before.write_chunks_offered;
        println!("{bytes:>8} bytes: {reads} Read chunk(s), {writes} Write chunk(s)");
        assert_eq!((reads, writes), (chunks, chunks));
    }

    client.close().await;
    server.shutdown().await;
    Ok(())
}
