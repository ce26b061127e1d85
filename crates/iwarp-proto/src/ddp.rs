//! DDP headers (RFC 5041 §4).

use crate::be;

/// The supported version of DDP (RFC 5041 §4.1).
pub const VERSION: u8 = 1;

/// Octets of the header of a tagged segment (RFC 5041 §4.2).
pub const TAGGED_LEN: usize = 14;

/// Octets of the header of an untagged segment (RFC 5041 §4.3).
pub const UNTAGGED_LEN: usize = 18;

/// Octets of the longer of the two headers.
pub const MAX_HEADER_LEN: usize = UNTAGGED_LEN;

/// The control octet, which determines the header (RFC 5041 §4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control(pub u8);

impl Control {
    const TAGGED: u8 = 0x80;
    const LAST: u8 = 0x40;

    /// Creates the control octet of a segment to send.
    pub fn new(tagged: bool, last: bool) -> Self {
        let tagged = if tagged { Self::TAGGED } else { 0 };
        let last = if last { Self::LAST } else { 0 };
        Self(tagged | last | VERSION)
    }

    /// T: the segment is tagged, with an STag and an offset.
    pub fn tagged(self) -> bool {
        self.0 & Self::TAGGED != 0
    }

    /// L: the segment is the last of its message.
    pub fn last(self) -> bool {
        self.0 & Self::LAST != 0
    }

    /// DV: the version.
    pub fn version(self) -> u8 {
        self.0 & 0x03
    }

    /// Octets of the whole header.
    pub fn header_len(self) -> usize {
        if self.tagged() {
            TAGGED_LEN
        } else {
            UNTAGGED_LEN
        }
    }
}

/// View of a tagged header; nothing is validated.
#[derive(Clone, Copy)]
pub struct TaggedView<'a>(&'a [u8; TAGGED_LEN]);

impl<'a> TaggedView<'a> {
    /// Views the first octets of a segment, if there are enough.
    pub fn new(segment: &'a [u8]) -> Option<Self> {
        segment.first_chunk().map(Self)
    }

    /// The control octet.
    pub fn control(self) -> Control {
        Control(self.0[0])
    }

    /// The octet that belongs to RDMAP.
    pub fn rsvd_ulp(self) -> u8 {
        self.0[1]
    }

    /// STag of the region.
    pub fn stag(self) -> u32 {
        be::u32_at(self.0, 2)
    }

    /// TO: offset in the region at which the payload begins.
    pub fn offset(self) -> u64 {
        be::u64_at(self.0, 6)
    }
}

/// View of an untagged header; nothing is validated.
#[derive(Clone, Copy)]
pub struct UntaggedView<'a>(&'a [u8; UNTAGGED_LEN]);

impl<'a> UntaggedView<'a> {
    /// Views the first octets of a segment, if there are enough.
    pub fn new(segment: &'a [u8]) -> Option<Self> {
        segment.first_chunk().map(Self)
    }

    /// The control octet.
    pub fn control(self) -> Control {
        Control(self.0[0])
    }

    /// The first of the octets that belong to RDMAP.
    pub fn rsvd_ulp(self) -> u8 {
        self.0[1]
    }

    /// The other four octets that belong to RDMAP: the STag to invalidate, or nothing.
    pub fn rsvd_ulp_word(self) -> u32 {
        be::u32_at(self.0, 2)
    }

    /// QN: the queue number.
    pub fn queue(self) -> u32 {
        be::u32_at(self.0, 6)
    }

    /// MSN: number of the message in its queue, counted from 1.
    pub fn sequence(self) -> u32 {
        be::u32_at(self.0, 10)
    }

    /// MO: offset in the message at which the payload begins.
    pub fn offset(self) -> u32 {
        be::u32_at(self.0, 14)
    }
}

/// A DDP header, tagged or untagged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// Header of a segment for memory that the peer named (RFC 5041 §4.2).
    Tagged {
        /// The control octet.
        control: Control,
        /// The octet that belongs to RDMAP.
        rsvd_ulp: u8,
        /// STag of the region.
        stag: u32,
        /// Offset in the region (TO).
        offset: u64,
    },
    /// Header of a segment for the next buffer of a queue (RFC 5041 §4.3).
    Untagged {
        /// The control octet.
        control: Control,
        /// The first of the octets that belong to RDMAP.
        rsvd_ulp: u8,
        /// The other four octets that belong to RDMAP.
        rsvd_ulp_word: u32,
        /// QN: the queue number.
        queue: u32,
        /// MSN: the message sequence number.
        sequence: u32,
        /// MO: the message offset.
        offset: u32,
    },
}

impl Header {
    /// Reads the header that begins a segment, if it is complete. Nothing is validated.
    pub fn read(segment: &[u8]) -> Option<Self> {
        if Control(*segment.first()?).tagged() {
            let view = TaggedView::new(segment)?;
            Some(Self::Tagged {
                control: view.control(),
                rsvd_ulp: view.rsvd_ulp(),
                stag: view.stag(),
                offset: view.offset(),
            })
        } else {
            let view = UntaggedView::new(segment)?;
            Some(Self::Untagged {
                control: view.control(),
                rsvd_ulp: view.rsvd_ulp(),
                rsvd_ulp_word: view.rsvd_ulp_word(),
                queue: view.queue(),
                sequence: view.sequence(),
                offset: view.offset(),
            })
        }
    }

    /// Appends the header to `out`.
    pub fn emit(self, out: &mut Vec<u8>) {
        let mut header = [0; MAX_HEADER_LEN];
        let len = self.write(&mut header);
        out.extend_from_slice(&header[..len]);
    }

    /// Writes the header to the beginning of `out`, and returns its length.
    ///
    /// # Panics
    ///
    /// If `out` is shorter than [`wire_len`](Self::wire_len).
    pub fn write(self, out: &mut [u8]) -> usize {
        match self {
            Self::Tagged {
                control,
                rsvd_ulp,
                stag,
                offset,
            } => {
                out[0] = control.0;
                out[1] = rsvd_ulp;
                out[2..6].copy_from_slice(&stag.to_be_bytes());
                out[6..14].copy_from_slice(&offset.to_be_bytes());
            }
            Self::Untagged {
                control,
                rsvd_ulp,
                rsvd_ulp_word,
                queue,
                sequence,
                offset,
            } => {
                out[0] = control.0;
                out[1] = rsvd_ulp;
                out[2..6].copy_from_slice(&rsvd_ulp_word.to_be_bytes());
                out[6..10].copy_from_slice(&queue.to_be_bytes());
                out[10..14].copy_from_slice(&sequence.to_be_bytes());
                out[14..18].copy_from_slice(&offset.to_be_bytes());
            }
        }
        self.wire_len()
    }

    /// The control octet.
    pub fn control(self) -> Control {
        match self {
            Self::Tagged { control, .. } | Self::Untagged { control, .. } => control,
        }
    }

    /// The octet that carries RDMAP's control field.
    pub fn rsvd_ulp(self) -> u8 {
        match self {
            Self::Tagged { rsvd_ulp, .. } | Self::Untagged { rsvd_ulp, .. } => rsvd_ulp,
        }
    }

    /// Length of the header in octets.
    pub fn wire_len(self) -> usize {
        self.control().header_len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tagged_header_vector() {
        let wire = [
            0xc1, 0x40, 0x12, 0x34, 0x56, 0x78, 0, 0, 0, 1, 0, 0, 0x10, 0x04,
        ];
        let header = Header::read(&wire).unwrap();
        assert_eq!(
            header,
            Header::Tagged {
                control: Control::new(true, true),
                rsvd_ulp: 0x40,
                stag: 0x1234_5678,
                offset: 0x1_0000_1004,
            }
        );
        let mut out = Vec::new();
        header.emit(&mut out);
        assert_eq!(out, wire);
    }

    #[test]
    fn untagged_header_vector() {
        // The header of RFC 5044 figure 5: a Send, queue 0, first message.
        let wire = [0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
        let header = Header::read(&wire).unwrap();
        assert_eq!(
            header,
            Header::Untagged {
                control: Control::new(false, true),
                rsvd_ulp: 0x43,
                rsvd_ulp_word: 0,
                queue: 0,
                sequence: 1,
                offset: 0,
            }
        );
        let mut out = Vec::new();
        header.emit(&mut out);
        assert_eq!(out, wire);
    }

    #[test]
    fn short_header_is_none() {
        assert_eq!(Header::read(&[]), None);
        assert_eq!(Header::read(&[0x81; TAGGED_LEN - 1]), None);
        assert_eq!(Header::read(&[0x01; UNTAGGED_LEN - 1]), None);
    }
}
