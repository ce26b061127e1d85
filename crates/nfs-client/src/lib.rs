//! Files over NFS version 3, on any [`Transport`](oncrpc::Transport).
//!
//! [`Nfs3`] makes single calls, one method for each procedure. [`Mount`] asks for the root of an
//! export. [`Export`] has files and directories by path: it resolves names and symbolic links, lists
//! and walks directories, reads and writes with several calls in flight, and removes trees.
//!
//! Everything that waits can be cancelled by dropping its future; a stream that was interrupted
//! goes on where it was. Data is handed over as [`Bytes`](bytes::Bytes), never copied here.

mod credentials;
mod directory;
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
mod upload;
mod url;
mod walk;
mod window;
mod write;

pub use credentials::current_user;
pub use directory::{DirEntry, Directory};
pub use error::{Error, Fault};
pub use export::Export;
pub use mount::{ExportedDir, Mount};
pub use nfs3::{Created, Nfs3, ReadAt, WriteAt};
pub use node::Node;
pub use read::ReadStream;
pub use rpc::{Reply, Rpc};
pub use show::printable;
pub use tuning::Tuning;
pub use upload::{Upload, temporary_name};
pub use url::{NfsUrl, UrlError, host_and_port};
pub use walk::{Walk, WalkEntry};
pub use write::WriteStream;
