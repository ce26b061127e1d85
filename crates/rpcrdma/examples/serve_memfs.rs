//! An NFS server for a file system in memory.
//!
//!     cargo run -p rpcrdma --features nfs --example serve_memfs -- 127.0.0.1:20049
//!
//! serves an export `/scratch` of 64 MiB at this address until Ctrl-C. Without an address it serves on a
//! free port of this machine, writes and reads a file there as a client, and ends.

use rpcrdma::nfs::SocketOwners;
use rpcrdma::nfs::client::{Export, current_user};
use rpcrdma::nfs::proto::SetAttributes;
use rpcrdma::nfs::server::{ExportOptions, Exports, HandleKey, MemFs, Mount3, Nfs3, NfsAcl3};
use rpcrdma::{Client, ClientConfig, Iwarp, Pool, Programs, Server, ServerConfig};
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Bytes that the file system holds.
const SIZE: u64 = 64 << 20;

/// Bytes of buffers for replies that are kept for use again.
const KEEP: usize = 16 << 20;

#[tokio::main]
async fn main() -> Result<()> {
    let address: Option<SocketAddr> = std::env::args().nth(1).map(|at| at.parse()).transpose()?;
    let server = serve(address.unwrap_or((Ipv4Addr::LOCALHOST, 0).into())).await?;
    println!("serving nfs://{}/scratch", server.local_addr());
    match address {
        Some(_) => tokio::signal::ctrl_c().await?,
        None => check(server.local_addr()).await?,
    }
    let done = server.shutdown().await;
    println!("answered {} calls", done.counters.calls_received);
    Ok(())
}

async fn serve(address: SocketAddr) -> Result<Server> {
    // By default this machine may mount an export, and nobody else. File handles are valid as long as the
    // key is the same.
    let files = Arc::new(MemFs::new(SIZE));
    let exports = Exports::new(HandleKey::random()?);
    let exports = exports.with("/scratch", files, ExportOptions::default())?;
    let nfs = Nfs3::new(exports.clone(), Pool::new(KEEP));
    let programs = Programs::new()
        .with(NfsAcl3::new(&nfs))
        .with(nfs)
        .with(Mount3::new(exports));
    // AUTH_SYS is a claim: whoever is on this machine is held to be who the kernel says it is.
    let config = ServerConfig::default().with_local_users(Arc::new(SocketOwners::new()));
    let provider = Arc::new(Iwarp::default());
    Ok(Server::bind(provider, address, Arc::new(programs), config).await?)
}

/// Writes a file and reads it back.
async fn check(server: SocketAddr) -> Result<()> {
    let client = Client::connect(Arc::new(Iwarp::default()), server, ClientConfig::default());
    let client = client.await?;
    let export = Export::mount(client.clone(), current_user(), "/scratch").await?;
    let text = "kept in memory\n";
    export
        .write_all("note", text, SetAttributes::default())
        .await?;
    assert_eq!(export.read_all("note", 1024).await?, text.as_bytes());
    client.close().await;
    Ok(())
}
