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
//!
//! # Example
//!
//! Connection setup of both ends, without a socket between them (RFC 6581):
//!
//! ```
//! use iwarp_proto::mpa::{FrameReader, Initiator, Kind, Offer, Responder};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let offer = Offer { crc: true, ird: 16, ord: 16, peer_to_peer: false };
//! let initiator = Initiator::new(offer);
//! let sent = initiator.request(b"of the initiator").emit();
//!
//! // A reader says how much it wants next, so that nothing behind the frame is taken from a socket.
//! let mut reader = FrameReader::new(Kind::Request);
//! let mut rest = &sent[..];
//! let request = loop {
//!     let (some, behind) = rest.split_at(reader.wanted());
//!     rest = behind;
//!     if let Some(request) = reader.take(some)? {
//!         break request;
//!     }
//! };
//! let requested = Responder.request(request);
//! assert_eq!(requested.private_data(), b"of the initiator");
//!
//! let fewer = Offer { ord: 4, ..offer };
//! let (reply, theirs) = requested.accept(fewer, b"of the responder");
//! let ours = initiator.reply(&reply).map_err(|refused| format!("{refused:?}"))?;
//! assert!(ours.crc && theirs.crc);
//! assert_eq!(theirs.ord, 4);
//! # Ok(())
//! # }
//! ```

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
    Counters, Endpoint, EndpointConfig, FPDUS_PER_TURN, MAX_INVALIDATIONS, MAX_MESSAGE, MAX_PARTS,
    MAX_REGION, MAX_REGIONS, MAX_SENDS, Role,
};
