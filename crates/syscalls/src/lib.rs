//! Safe wrappers of calls of the C library and the kernel that have none elsewhere. Only this crate
//! and the provider for hardware may use `unsafe`; each block states why it is sound.
//!
//! # Example
//!
//! ```
//! use rustix::fs::Access;
//! use std::fs::File;
//!
//! # fn main() -> std::io::Result<()> {
//! let root = File::open("/")?;
//! match syscalls::check_access(&root, Access::READ_OK) {
//!     Ok(()) => println!("this thread may list /"),
//!     // Before Linux 5.8.
//!     Err(rustix::io::Errno::NOSYS) => println!("the kernel does not tell"),
//!     Err(error) => return Err(error.into()),
//! }
//! # Ok(())
//! # }
//! ```

#[cfg(target_os = "linux")]
mod access;
#[cfg(target_os = "linux")]
mod clone_range;
#[cfg(target_os = "linux")]
mod file_handle;
mod heap;
#[cfg(target_os = "linux")]
mod identity;
mod sampling;
#[cfg(target_os = "linux")]
mod standard_streams;
mod unacknowledged;
#[cfg(target_os = "linux")]
mod write_error;

#[cfg(target_os = "linux")]
pub use access::check_access;
#[cfg(target_os = "linux")]
pub use clone_range::clone_range;
#[cfg(target_os = "linux")]
pub use file_handle::FileHandle;
pub use heap::return_free_memory;
#[cfg(target_os = "linux")]
pub use identity::{ActingAs, FsUser, MAX_GROUPS};
pub use sampling::{Sample, Sampling, memory_functions};
#[cfg(target_os = "linux")]
pub use standard_streams::{StandardStream, was_closed};
pub use unacknowledged::unacknowledged;
#[cfg(target_os = "linux")]
pub use write_error::write_error;
