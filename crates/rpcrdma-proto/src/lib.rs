//! RPC-over-RDMA without I/O.

mod counters;
pub mod header;
mod inline;
pub mod limits;
pub mod private_data;

pub use counters::Counters;
pub use inline::{InlineSize, Thresholds};
pub use private_data::PrivateData;
