//! Calls of the C library and the kernel that have no safe wrapper elsewhere: with the provider for
//! hardware the one place where `unsafe` is allowed. Each block says why it is sound.

mod heap;
mod sampling;

pub use heap::return_free_memory;
pub use sampling::{Sample, Sampling, memory_functions};
