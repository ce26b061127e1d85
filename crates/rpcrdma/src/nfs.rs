//! NFS version 3 (RFC 1813) with MOUNT and NFSACL: the client, the server, and what a server needs beside
//! them. This module is there with the feature `nfs`.
//!
//! Files are served by programs of a [`Server`](crate::Server), and read over a
//! [`Client`](crate::Client):
//!
//! ```
//! use rpcrdma::nfs::client::{Export, current_user};
//! use rpcrdma::nfs::proto::SetAttributes;
//! use rpcrdma::nfs::server::{ExportOptions, Exports, HandleKey, MemFs, Mount3, Nfs3};
//! use rpcrdma::{Client, ClientConfig, Iwarp, Pool, Programs, Server, ServerConfig};
//! use std::sync::Arc;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! // A file system of 16 MiB in memory, as the export /scratch.
//! let files = Arc::new(MemFs::new(16 << 20));
//! let exports = Exports::new(HandleKey::random()?)
//!     .with("/scratch", files, ExportOptions::default())?;
//! let programs = Programs::new()
//!     .with(Nfs3::new(exports.clone(), Pool::new(16 << 20)))
//!     .with(Mount3::new(exports));
//! let iwarp = Arc::new(Iwarp::default());
//! let any = "127.0.0.1:0".parse()?;
//! let server = Server::bind(iwarp.clone(), any, Arc::new(programs), ServerConfig::default()).await?;
//!
//! let client = Client::connect(iwarp, server.local_addr(), ClientConfig::default()).await?;
//! let export = Export::mount(client, current_user(), "/scratch").await?;
//! export.make_dir("notes", SetAttributes::default()).await?;
//! let names = export.entries("/").await?;
//! assert_eq!(names[0].name, b"notes");
//! # Ok(()) })
//! # }
//! ```

pub use nfs_client as client;
pub use nfs_proto as proto;
pub use nfs_server as server;

/// RPC over TCP sockets, for MOUNT and rpcbind: Linux asks for both before it mounts.
pub use oncrpc_tcp as tcp;

pub use socket_owner::{LocalAddresses, SocketOwners};
