//! RDMA hardware, through libibverbs and librdmacm of rdma-core.
//!
//! The libraries are loaded when they are first needed, so that a program builds and runs without them. Where they are
//! missing, the error says in one line which packages have them.
//!
//! # Example
//!
//! The devices of this machine:
//!
//! ```
//! match verbs_ibv::devices() {
//!     Ok(devices) => {
//!         for device in devices {
//!             match device.attributes {
//!                 Ok(found) => println!("{}: windows: {}", device.name, found.windows),
//!                 Err(error) => println!("{}: {error}", device.name),
//!             }
//!         }
//!     }
//!     Err(error) => println!("{error}"),
//! }
//! ```

mod context;
mod devices;
mod error;
mod library;
mod sys;

pub use devices::{
    Attributes, Device, DeviceLimits, Gid, GidKind, Guid, LinkLayer, NodeType, Port, PortState,
    Transport, Windows, devices,
};
pub use error::OpenError;
