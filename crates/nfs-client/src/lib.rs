//! Files over NFS version 3, on any [`Transport`](oncrpc::Transport).
//!
//! [`Nfs3`] makes single calls, one method for each procedure. [`Mount`] asks for the root of an
//! export. [`Export`] has files and directories by path: it resolves names and symbolic links, lists
//! and walks directories, reads and writes with several calls in flight, and removes trees.
//!
//! Everything that waits can be cancelled by dropping its future; a stream that was interrupted
//! goes on where it was. Data is handed over as [`Bytes`](bytes::Bytes), never copied here.
//!
//! # Example
//!
//! A file on a server in the same process, over RPC-over-RDMA:
//!
//! ```
//! use nfs_client::{Export, current_user};
//! use nfs_proto::SetAttributes;
//! use nfs_server::{ExportOptions, Exports, HandleKey, MemFs, Mount3, Nfs3};
//! use rpcrdma::{Client, ClientConfig, Programs, Server, ServerConfig};
//! use std::sync::Arc;
//! use verbs_iwarp::Iwarp;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! # let exports = Exports::new(HandleKey::random()?);
//! # let exports = exports.with("/data", Arc::new(MemFs::new(1 << 20)), ExportOptions::default())?;
//! # let nfs = Nfs3::new(exports.clone(), buffer::Pool::new(1 << 20));
//! # let programs = Arc::new(Programs::new().with(nfs).with(Mount3::new(exports)));
//! # let (iwarp, any) = (Arc::new(Iwarp::default()), "127.0.0.1:0".parse()?);
//! # let server = Server::bind(iwarp.clone(), any, programs, ServerConfig::default()).await?;
//! let client = Client::connect(iwarp, server.local_addr(), ClientConfig::default()).await?;
//! let export = Export::mount(client, current_user(), "/data").await?;
//!
//! // The file gets its name when it is complete and on stable storage.
//! export.write_all("greeting", "hello", SetAttributes::default()).await?;
//! assert_eq!(export.stat("greeting").await?.attributes.size, 5);
//!
//! let mut stream = export.read("greeting").await?;
//! while let Some(pieces) = stream.next().await? {
//!     assert_eq!(pieces.concat(), b"hello");
//! }
//! # Ok(()) })
//! # }
//! ```

mod again;
mod credentials;
mod directory;
mod endpoint;
mod error;
mod export;
mod in_order;
mod mount;
mod nfs3;
mod node;
mod path;
mod read;
mod remove;
mod resolve;
mod rpc;
mod show;
mod tuning;
mod twice;
mod upload;
mod url;
mod walk;
mod window;
mod write;

pub use again::Again;
pub use credentials::current_user;
pub use directory::{DirEntry, Directory};
pub use endpoint::{Endpoint, LookupError, NO_ADDRESS};
pub use error::{Error, Fault};
pub use export::Export;
pub use mount::{ExportedDir, Mount};
pub use nfs3::{Created, Nfs3, ReadAt, WriteAt};
pub use node::Node;
pub use read::ReadStream;
pub use remove::Removal;
pub use rpc::{Reply, Rpc};
pub use show::printable;
pub use tuning::Tuning;
pub use upload::{Resume, Upload, is_temporary_name, temporary_name};
pub use url::{NfsUrl, UrlError, host_and_port, ipv6_host};
pub use walk::{Walk, WalkEntry};
pub use write::WriteStream;
