//! RDMA hardware, through libibverbs and librdmacm of rdma-core.
//!
//! [`Ibv`] is a [`verbs::Provider`] for InfiniBand, RoCE and iWARP devices, and for the kernel's software ones, `rxe` and
//! `siw`. The libraries are loaded when they are first needed, so that a program builds and runs without them. Where
//! they are missing, the error says in one line which packages have them.
//!
//! Memory of pools is registered with the device when it is first used, and locked in memory from then on: the limit of
//! locked memory (`ulimit -l`) has to allow for it. A child process of fork(2) must not use registered memory; with
//! Linux 5.12 or later, the parent is not affected by it. On-demand paging is not used. Each connection posts its own
//! Receives: shared receive queues are not used ([`Limits::shared_receives`](verbs::Limits::shared_receives) is false).
//!
//! The kernel's software devices are for tests. `rxe` (Linux 6.1) does not check which connection a memory window
//! belongs to when a peer invalidates it, and the machine stops when a peer invalidates one that is not in use. `siw`
//! lets a peer read whatever is registered for its connection, answers a connection request with the IRD of the request,
//! and sends wrong bytes in short Read Responses whose source crosses the end of a page: Reads over iWARP are divided
//! there.
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

mod adapter;
mod address;
mod cm;
mod completing;
mod connect;
mod context;
#[cfg(doc)]
pub mod design;
mod device_events;
mod devices;
mod ending;
mod error;
mod exposing;
#[cfg(test)]
mod fake;
mod hardware;
mod library;
mod listen;
mod memory;
mod port_mapper;
mod posting;
mod provider;
mod queue_pair;
mod send_queue;
mod shared;
mod shortage;
mod sys;
mod watch;
mod windows;
mod work;

pub use devices::{
    Attributes, Device, DeviceLimits, Gid, GidKind, Guid, LinkLayer, NodeType, Port, PortState,
    Transport, Windows, devices,
};
pub use ending::CompletionStatus;
pub use error::OpenError;
pub use provider::Ibv;
pub use shared::Config;
