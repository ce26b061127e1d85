//! Version two: draft-cel-nfsv4-rpcrdma-version-two-01 ("cel-01"), with the characteristics of
//! draft-dnoveck-nfsv4-rpcrdma-xcharext-02 ("xcharext") in its RDMA2_OPTIONAL, and the words for
//! remote invalidation of draft-cel-nfsv4-reminv-design-03 ("reminv") where both ends agree on them.
//!
//! [`header`] is the transport header. To it an RDMA2_OPTIONAL is a number and opaque bytes, as in
//! cel-01. [`operations`] are those of xcharext, and [`characteristics`] is what they carry. Each
//! format has a view that reads whatever is there, for decoders, and parsed types that hold only
//! valid values; an invalid one becomes an error that tells how to answer it. [`session`] is the
//! protocol of both ends about characteristics.
//!
//! [`ietf07`] is the wire format of another dialect, draft-ietf-nfsv4-rpcrdma-version-two-07.
//!
//! Decisions where the drafts are silent are in `docs/design/version-two.md`.

mod answer;
pub mod characteristics;
mod codec;
pub(crate) mod config;
pub(crate) mod connection;
mod dialect;
pub mod header;
pub mod ietf07;
pub mod operations;
pub mod session;
pub(crate) mod versions;

pub use dialect::{Dialect, Foreign, UnknownDialect};
