//! NFS version 3 (RFC 1813), MOUNT version 3 (its Appendix I) and NFSACL version 3, with their RDMA
//! binding (RFC 8267).
//!
//! Every type implements [`Wire`]: its XDR encoding, read with limits and written in the order of
//! the RFC. Arguments are in [`args`], [`mount`] and [`acl`], results in [`results`]; [`Arguments`]
//! connects both and bounds the size of a reply. Arguments and results borrow from their message,
//! so that reading a call allocates nothing.
//!
//! Only [`Data`] and [`Path`] are DDP-eligible items (RFC 8267 §4). [`scan`] finds such items in
//! messages of versions 2, 3, 4.0, 4.1 and 4.2 that pass by. Versions 4.1 and 4.2 are in [`v4`]. This crate does no
//! I/O.
//!
//! # Example
//!
//! A READ in XDR, and the room that its reply needs (RFC 8267 §4):
//!
//! ```
//! use nfs_proto::{Arguments, FileHandle, Wire, args};
//! use oncrpc::xdr::{Reader, Writer};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let file = FileHandle::new(b"a handle").ok_or("a handle has 1 to 64 bytes")?;
//! let read = args::Read { file, offset: 0, count: 65_536 };
//! let mut w = Writer::default();
//! read.write(&mut w);
//! let payload = w.finish();
//! assert_eq!(args::Read::parse(&mut Reader::from(&payload))?, read);
//!
//! // The data is DDP-eligible: it may go into a Write chunk of this size.
//! assert_eq!(read.reply_bound().results[..], [65_536]);
//! # Ok(())
//! # }
//! ```

#[macro_use]
mod macros;

pub mod acl;
pub mod args;
mod attributes;
mod binding;
mod data;
mod directory;
mod handle;
pub mod limits;
pub mod mount;
mod name;
mod null;
mod program;
pub mod results;
mod scalars;
mod status;
pub mod v4;
mod wire;

pub use attributes::{
    Attributes, Device, FileType, NfsTime, SetAttributes, SetTime, WccAttributes, WccData,
};
pub use binding::{Arguments, acl_reply_bound, reply_bound, scan};
pub use data::{Data, Path};
pub use directory::{DirectoryLimits, DirectoryWriter};
pub use handle::FileHandle;
pub use name::{Filename, Name};
pub use null::NullOnly;
pub use program::{
    AclProcedure, MOUNT_PORT, MOUNT_PROGRAM, MOUNT_V3, MountProcedure, NFS_PORT, NFS_PROGRAM,
    NFS_RDMA_PORT, NFS_V2, NFS_V3, NFS_V4, NFSACL_PROGRAM, NFSACL_V3, Procedure,
};
pub use scalars::{
    Access, Cookie, CookieVerifier, CreateVerifier, FileId, FsProperties, Stable, WriteVerifier,
};
pub use status::{Failed, Status};
pub use wire::{Bytes, List, Wire};

#[cfg(test)]
mod tests;
