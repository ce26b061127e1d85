//! Version two: draft-cel-nfsv4-rpcrdma-version-two-01 ("cel-01"), with the characteristics of
//! draft-dnoveck-nfsv4-rpcrdma-xcharext-02 ("xcharext") in its RDMA2_OPTIONAL, and the words for
//! remote invalidation of draft-cel-nfsv4-reminv-design-03 ("reminv") where both ends agree on them.
//!
//! [`header`] is the transport header. It takes an RDMA2_OPTIONAL for what cel-01 says it is: a
//! number and opaque bytes. [`operations`] are those of xcharext, and [`characteristics`] is what
//! they carry. Each has a view that reads what is there, for decoders, and parsed types that hold
//! only what is valid; what is not becomes an error that says what is owed. [`session`] is what the
//! two ends of a connection make of them.
//!
//! What was decided where the texts are silent is in `docs/design/version-two.md`.

mod answer;
pub mod characteristics;
mod codec;
pub(crate) mod config;
pub(crate) mod connection;
mod dialect;
pub mod header;
pub mod operations;
pub mod session;
pub(crate) mod versions;

pub use dialect::{Dialect, UnknownDialect};
