//! A file read over NFS, by URL.
//!
//!     cargo run -p rpcrdma --features nfs --example read_file -- nfs://HOST[:PORT]/EXPORT/PATH >FILE
//!
//! writes the file to standard output. Without a URL it reads a file of 3 MiB from a server of its own, and
//! compares each byte.

use rpcrdma::nfs::client::{Export, Mount, NfsUrl, current_user};
use rpcrdma::nfs::proto::SetAttributes;
use rpcrdma::nfs::server::{ExportOptions, Exports, HandleKey, MemFs, Mount3, Nfs3};
use rpcrdma::{Client, ClientConfig, Gather, Iwarp, Pool, Programs, Server, ServerConfig};
use std::error::Error;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

#[tokio::main]
async fn main() -> Result<()> {
    match std::env::args().nth(1) {
        Some(url) => {
            let url: NfsUrl = url.parse()?;
            let mut addresses = tokio::net::lookup_host((&*url.host, url.port)).await?;
            let address = addresses.next().ok_or("the host has no address")?;
            let mut out = io::stdout().lock();
            let write = |pieces: Gather| pieces.iter().try_for_each(|piece| out.write_all(piece));
            let bytes = read(address, &url.path, write).await?;
            eprintln!("{bytes} bytes");
            Ok(())
        }
        None => own_server().await,
    }
}

/// Reads a file and hands its data over in order, as it comes; returns how much it was.
async fn read(
    server: SocketAddr,
    path: &[u8],
    mut take: impl FnMut(Gather) -> io::Result<()>,
) -> Result<u64> {
    let client = Client::connect(Arc::new(Iwarp::default()), server, ClientConfig::default());
    let client = client.await?;
    // Which part of the path is the export, the server knows.
    let mount = Mount::new(client.clone(), current_user());
    let (mounted, rest) = mount.mount_above(path).await?;
    let export = Export::open(client.clone(), current_user(), mounted.handle).await?;
    let mut stream = export.read(&rest).await?;
    let mut bytes = 0;
    while let Some(pieces) = stream.next().await? {
        bytes += pieces.iter().map(|piece| piece.len() as u64).sum::<u64>();
        take(pieces)?;
    }
    client.close().await;
    Ok(bytes)
}

/// Reads from a server in this process.
async fn own_server() -> Result<()> {
    let exports = Exports::new(HandleKey::random()?);
    let files = Arc::new(MemFs::new(16 << 20));
    let exports = exports.with("/data", files, ExportOptions::default())?;
    let programs = Programs::new()
        .with(Nfs3::new(exports.clone(), Pool::new(16 << 20)))
        .with(Mount3::new(exports));
    let provider = Arc::new(Iwarp::default());
    let at = (Ipv4Addr::LOCALHOST, 0).into();
    let server = Server::bind(
        provider.clone(),
        at,
        Arc::new(programs),
        ServerConfig::default(),
    );
    let server = server.await?;

    let written: Vec<u8> = (0..3u32 << 20).map(|at| at.to_le_bytes()[1]).collect();
    let client = Client::connect(provider, server.local_addr(), ClientConfig::default()).await?;
    let export = Export::mount(client.clone(), current_user(), "/data").await?;
    let plain = SetAttributes::default();
    export.write_all("file", written.clone(), plain).await?;
    client.close().await;

    let mut found = Vec::new();
    let bytes = read(server.local_addr(), b"/data/file", |pieces| {
        pieces
            .iter()
            .for_each(|piece| found.extend_from_slice(piece));
        Ok(())
    });
    println!("read {} bytes", bytes.await?);
    assert!(found == written, "what was read is what was written");
    server.shutdown().await;
    Ok(())
}
