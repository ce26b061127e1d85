//! Connections that do nothing.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use nfs_client::{Nfs3, current_user};
use serde_json::json;

use crate::connection::Connection;

/// Opens the connections one after the other, calls NULL once on each, says so, and keeps them until
/// standard input ends.
///
/// # Errors
///
/// A connection cannot be made, or its call fails.
pub(crate) async fn run(nfs: SocketAddr, connections: usize) -> Result<()> {
    let mut open = Vec::with_capacity(connections);
    for number in 0..connections {
        let server = Nfs3::new(Connection::open(nfs, None).await?, current_user());
        { server.null().await }.with_context(|| format!("NULL on connection {number}"))?;
        open.push(server);
    }
    println!("{}", json!({ "what": "idle", "value": open.len() }));
    tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()))
        .await??;
    Ok(())
}
