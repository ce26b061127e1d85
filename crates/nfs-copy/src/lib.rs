//! Copies of trees between the local file system and servers of NFS version 3.
//!
//! [`put`] copies to a server, [`get`] from servers, and [`cp`] from servers to a server. A copy is planned first, and if
//! source and destination do not go together, nothing is changed. Then many files are in flight at a time. A file gets its
//! name when it is complete; hard links and holes are kept, as are modes and times if [`Options`] say so, and a large file
//! that was cut off can be continued.
//!
//! Servers are reached over RDMA, TCP or any other transport: a [`Connection`] holds it.
//!
//! A copy tells by [`Events`] how far it is and which files failed, ends early by [`Stop`], and returns [`Ended`]. It prints
//! nothing.
//!
//! # Example
//!
//! The sources of this crate, copied to a server in the same process:
//!
//! ```
//! use nfs_client::{Export, current_user};
//! use nfs_copy::{Connection, Control, Error, Events, Options, Place, ServerTarget, Source, Stop, put};
//! use oncrpc::Chain;
//! # use nfs_server::{ExportOptions, Exports, HandleKey, MemFs, Mount3, Nfs3};
//! # use rpcrdma::{Client, ClientConfig, Programs, Server, ServerConfig};
//! use std::sync::Arc;
//! # use verbs_iwarp::Iwarp;
//!
//! /// Shows errors, and nothing else.
//! struct Errors;
//!
//! impl Events for Errors {
//!     fn failed(&self, error: Error) {
//!         eprintln!("{}", Chain(&error));
//!     }
//! }
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
//! # let client = Client::connect(iwarp, server.local_addr(), ClientConfig::default()).await?;
//! let connection = Connection::new(client);
//! let export = Arc::new(Export::mount(connection, current_user(), "/data").await?);
//! let place = Place {
//!     export: Arc::clone(&export),
//!     path: b"sources".to_vec(),
//!     url: "nfs://server/data/sources".parse()?,
//! };
//! let options = Options {
//!     recursive: true,
//!     ..Options::default()
//! };
//! let control = Control {
//!     events: Arc::new(Errors),
//!     stop: Stop::new(),
//! };
//! let target = ServerTarget::new(&place, 1).await?;
//! let ended = put(options, control, vec![Source::Path("src".into())], target).await;
//! ended.result?;
//! assert_eq!(ended.failed, 0);
//! assert!(export.stat("sources/lib.rs").await?.attributes.size > 0);
//! # Ok(()) })
//! # }
//! ```

mod access_lists;
mod attributes;
mod connection;
mod copy;
mod cp;
mod decide;
mod delete;
#[cfg(doc)]
pub mod design;
mod directory;
mod directory_completion;
mod directory_stack;
mod entry;
mod error;
mod events;
mod exclude;
mod file_error;
mod get;
mod links;
mod listing;
mod made_names;
mod options;
mod partial;
mod place;
mod plan;
mod put;
mod replaced_attributes;
mod resume;
mod root;
mod server_walk;
mod show;
mod sparse;
mod stop;
mod tree;
mod unfinished;
mod unkept;
mod upload;
mod walk;

pub use connection::Connection;
pub use copy::{Control, Ended};
pub use cp::cp;
pub use decide::{Conflict, Skip};
pub use error::{Changed, Error, Result};
pub use events::{Event, Events};
pub use exclude::{Exclude, PatternError};
pub use file_error::FileError;
pub use get::{Destination, get};
pub use made_names::Collision;
pub use options::Options;
pub use place::{Follow, Of, Place, Places, export_path};
pub use put::{Source, Stream, put};
pub use root::{LocalTarget, ServerTarget};
pub use server_walk::{ServerWalk, Visit};
pub use show::file_type;
pub use sparse::Sparse;
pub use stop::Stop;
pub use unkept::Unkept;
