//! XDR (RFC 4506) for RPC messages whose large items are held by reference beside the stream.
//!
//! [`Payload`] is an RPC message ready to send or just received: the octets of the stream, and the
//! by-reference items that belong at known places in it. [`Writer`] builds one, [`Reader`] takes
//! one apart. A reader checks every length against the limit of its type before it allocates
//! anything.
//!
//! Which item may move by reference is decided by the upper-layer binding, which calls
//! [`Writer::item`] and [`Reader::item`].

mod payload;
mod reader;
mod writer;

pub use buffer::{Gather, gather_len};
pub use payload::{Item, Parts, Payload};
pub use reader::{Opaque, Place, Reader};
pub use writer::Writer;

/// Why a value could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The stream ended inside a value.
    #[error("the stream ends {missing} bytes early")]
    Short {
        /// Octets missing at the end.
        missing: usize,
    },
    /// A length exceeds the limit of its type.
    #[error("a length of {len} exceeds the limit of {limit}")]
    TooLong {
        /// Length in the stream.
        len: u32,
        /// Largest length of this value.
        limit: u32,
    },
    /// A value is not in its enumeration, or a Boolean is neither 0 nor 1.
    #[error("{value} is not a value of {of}")]
    NotInEnum {
        /// Value in the stream.
        value: u32,
        /// The XDR name of the type.
        of: &'static str,
    },
    /// Fill octets are not zero (RFC 4506 §4.9-§4.11 require zeroes).
    #[error("padding is not zero")]
    Padding,
    /// A string that must be UTF-8 is not, or holds a NUL.
    #[error("not a valid string")]
    NotText,
    /// A by-reference item is in a place where none is eligible (RFC 8166 §6.1).
    #[error("a by-reference item stands where none is eligible")]
    Ineligible,
    /// A by-reference item is longer or shorter than the stream says (RFC 8166 §4.5.2).
    #[error("a by-reference item of {item} bytes where the stream says {len}")]
    ItemLength {
        /// Octets of the item.
        item: usize,
        /// Length in the stream.
        len: usize,
    },
    /// A result is in the stream though there was a chunk for it (RFC 8166 §6.1).
    #[error("a result is in the stream though a chunk was offered for it")]
    NotReduced,
    /// Octets follow the end of the message.
    #[error("{len} bytes follow the end of the message")]
    Trailing {
        /// Number of octets.
        len: usize,
    },
}

/// Octets of padding behind `len` octets of data: XDR units are four octets (RFC 4506 §3).
pub const fn pad(len: usize) -> usize {
    len.wrapping_neg() & 3
}

/// `len` rounded up to a whole number of XDR units.
pub const fn padded(len: usize) -> usize {
    len + pad(len)
}

#[cfg(test)]
mod tests;
