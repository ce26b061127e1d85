//! The NFS version 4 program, minor versions 1 and 2 (RFC 8881, RFC 7862).

mod acl;
mod attributes;
mod callbacks;
mod owners;
mod records;
mod state;

pub use state::{Nfs4Settings, Nfs4State, Nfs4StateError};
