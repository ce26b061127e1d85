//! MPA, DDP and RDMAP over a plain TCP socket, with every octet under control.
//!
//! This shares no code with `iwarp-proto`: a mistake made there is not made here once more. It is slow and sends
//! whatever it is told, so it is of use against peers only.

mod crc;
mod ddp;
mod mpa;
mod peer;

pub use ddp::{Segment, opcode};
pub use mpa::{ANNOUNCEMENT, Header, Request, private_data};
pub(crate) use mpa::{DEPTH, FLAG_A, FLAG_B};
pub use peer::{Cause, Heard, Peer, Trouble, frame, is_end};
