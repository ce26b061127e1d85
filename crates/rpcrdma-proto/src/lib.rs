//! RPC-over-RDMA without I/O.

mod counters;
mod inline;
pub mod private_data;

pub use counters::Counters;
pub use inline::{InlineSize, Thresholds};
pub use private_data::PrivateData;
