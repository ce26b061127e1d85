//! NFS versions 4.2, 4.1 (RFC 7862, RFC 8881) and 3 (RFC 1813), MOUNT version 3 and NFSACL version 3 over a [`FileSystem`] trait.
//!
//! [`Nfs4`], [`Nfs3`], [`Mount3`] and [`NfsAcl3`] are RPC programs, for any transport. All four use
//! [`Exports`], the list of exported file systems with their names and rules. A file system
//! implements [`FileSystem`]: [`LocalFs`] is a directory of this machine, [`MemFs`] is in memory.
//!
//! File handles are sealed with a [`HandleKey`]: a handle that this server did not issue is
//! rejected before it reaches a file system.
//!
//! # Example
//!
//! A call that is answered in memory. The crates `rpcrdma` and `oncrpc-tcp` have servers that carry calls:
//!
//! ```
//! use nfs_server::{ExportOptions, Exports, HandleKey, MemFs, Mount3, Nfs3};
//! use oncrpc::xdr::Writer;
//! use oncrpc::{Answer, Caller, Credential, Procedure, Programs, Reply, Service, read_reply, write_call};
//! use std::sync::Arc;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let exports = Exports::new(HandleKey::random()?);
//! let exports = exports.with("/scratch", Arc::new(MemFs::new(1 << 20)), ExportOptions::default())?;
//! let service = Programs::new()
//!     .with(Nfs3::new(exports.clone(), buffer::Pool::new(1 << 20)))
//!     .with(Mount3::new(exports));
//!
//! // MOUNTPROC3_EXPORT: the list of exports.
//! let mut w = Writer::default();
//! write_call(&mut w, 1, Procedure { prog: 100_005, vers: 3, proc: 5 }, &Credential::None);
//! let caller = Caller::new("127.0.0.1:700".parse()?);
//! let reply = match service.call(w.finish(), &caller) {
//!     Answer::Now(Reply::Message(reply)) => reply,
//!     Answer::Blocking(job) => match job() {
//!         Reply::Message(reply) => reply,
//!         _ => panic!("MOUNT answers each call"),
//!     },
//!     _ => panic!("MOUNT waits for nothing else"),
//! };
//! let mut results = read_reply(&reply, 1)?;
//! assert!(results.bool()?, "there is an export");
//! assert_eq!(results.opaque(1024)?, b"/scratch");
//! # Ok(())
//! # }
//! ```

mod access_list;
#[cfg(test)]
mod captured_log;
mod client_options;
#[cfg(doc)]
pub mod design;
mod export_metrics;
mod exports;
pub mod fs;
mod handle;
mod in_flight;
mod localfs;
mod memfs;
mod metrics;
mod mount3;
mod nfs3;
mod nfs4;
mod permission;
mod recent;
mod state_dir;
mod user_groups;

pub use access_list::{AccessList, Network, NetworkError};
pub use client_options::{ANONYMOUS, Anonymous, ClientOptions, ClientRule, ExportOptions, Squash};
pub use export_metrics::{ExportStats, MAX_COUNTED_EXPORTS, OperationClass};
pub use exports::{ExportError, Exports, ExportsBefore};
pub use fs::FileSystem;
pub use handle::{HandleKey, KeyError};
pub use localfs::{Changes, Handles, INLINE_WRITE, LocalFs, LocalFsOptions, OpenError};
pub use memfs::MemFs;
pub use metrics::{
    ErrorClass, LATENCY_BUCKETS, LatencyHistogram, ProcedureStats, ProgramStats, SAMPLED,
};
pub use mount3::Mount3;
pub use nfs3::{DuplicateRequestStats, MAX_READ, MAX_WRITE, Nfs3, NfsAcl3};
pub use nfs4::{
    ClientStage, ClientView, HeldState, HeldStates, LockKind, Nfs4, Nfs4Limits, Nfs4Settings,
    Nfs4State, Nfs4StateError, Nfs4Status, Nfs4Upkeep, StateKind, Usage, owner_name,
};
pub use state_dir::{default_state_dir, exports_state};
pub use user_groups::{SystemUsers, UserDatabase, UserEntry, UserGroups};
