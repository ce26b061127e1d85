//! Wire formats of version one: the transport header, and the private data of connection setup.
//!
//! Each format has a view that reads whatever is there, for decoders, and a parsed type that holds
//! only valid values.

pub(crate) mod codec;
pub mod direction;
pub mod header;
pub mod private_data;
pub mod threshold;
