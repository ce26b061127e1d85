//! Places of items in the stream of a message.

use oncrpc::xdr::padded;
use smallvec::SmallVec;

/// Place of a DDP-eligible item in the XDR stream of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemPlace {
    /// Bytes of the message before the item; its length word is the last of them. This is the XDR
    /// Position of a Read chunk (RFC 8166 §3.4.4).
    pub offset: usize,
    /// Bytes of the item, without padding.
    pub length: usize,
}

/// Places in the order of the stream.
pub type ItemPlaces = SmallVec<[ItemPlace; 1]>;

impl ItemPlace {
    /// Returns the bytes of XDR padding after the item.
    pub fn padding(self) -> usize {
        padded(self.length) - self.length
    }

    /// Returns the offset of what follows the item and its padding.
    pub fn end(self) -> usize {
        self.offset + padded(self.length)
    }
}
