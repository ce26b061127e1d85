//! What version one has on the wire: the transport header and the private data of connection setup.
//!
//! Each format is here twice: a view that reads what is there, for decoders, and a parsed type that
//! holds only what is valid.

pub(crate) mod codec;
pub mod direction;
pub mod header;
pub mod private_data;
pub mod threshold;
