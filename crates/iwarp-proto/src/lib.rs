//! iWARP without I/O: MPA, DDP and RDMAP as state machines.
//!
//! Octets come in and go out through closures that receive slices, so that a socket can fill and
//! drain registered memory directly; nothing here opens a socket, reads a clock or draws a random
//! number. The vocabulary of work and completions is that of the `verbs` crate.
//!
//! * [`mpa`]: the exchange that sets up a connection (RFC 5044 §7, RFC 6581);
//! * [`fpdu`]: how messages are cut and framed (RFC 5044 §4);
//! * [`ddp`], [`rdmap`], [`terminate`]: headers (RFC 5041, RFC 5040);
//! * [`Endpoint`]: one end of an established connection.

mod be;
pub mod crc;
pub mod ddp;
mod endpoint;
pub mod fpdu;
mod markers;
pub mod mpa;
pub mod rdmap;
mod stag;
pub mod terminate;

pub use endpoint::{
    Counters, Endpoint, EndpointConfig, FPDUS_PER_TURN, MAX_MESSAGE, MAX_REGION, MAX_REGIONS,
    MAX_SENDS, Role,
};
