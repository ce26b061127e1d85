//! MPA Request and Reply Frames (RFC 5044 §7.1.1, RFC 6581 §6 and §9).

use crate::be;

/// Octets of the fixed part of a frame.
const HEADER_LEN: usize = 20;

/// Octets of the key that begins a frame.
const KEY_LEN: usize = 16;

/// Octets of the Enhanced word at the beginning of the private data (RFC 6581 §9).
const ENHANCED_LEN: usize = 4;

/// Largest private data, the Enhanced word included (RFC 5044 §7.1.1).
pub const MAX_PRIVATE_DATA: usize = 512;

/// Value of IRD or ORD for "not negotiated" (RFC 6581 §9.1). Also the mask of the field.
pub const NOT_NEGOTIATED: u16 = 0x3fff;

const MARKERS: u8 = 0x80;
const CRC: u8 = 0x40;
const REJECT: u8 = 0x20;
const ENHANCED: u8 = 0x10;

/// Kind of an MPA frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// MPA Request, from the initiator.
    Request,
    /// MPA Reply, from the responder.
    Reply,
}

impl Kind {
    /// Returns the octets that begin such a frame.
    pub fn key(self) -> &'static [u8; KEY_LEN] {
        match self {
            Self::Request => b"MPA ID Req Frame",
            Self::Reply => b"MPA ID Rep Frame",
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Request => Self::Reply,
            Self::Reply => Self::Request,
        }
    }
}

/// Revision of MPA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Revision {
    /// RFC 5044.
    One = 1,
    /// RFC 6581.
    Two = 2,
}

/// View of the fixed part of a frame: every field as received, without validation.
#[derive(Clone, Copy)]
pub struct HeaderView<'a>(&'a [u8; HEADER_LEN]);

impl<'a> HeaderView<'a> {
    /// Octets of the fixed part.
    pub const LEN: usize = HEADER_LEN;

    /// Views the first octets of a frame, if there are enough.
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        bytes.first_chunk().map(Self)
    }

    /// The key.
    pub fn key(self) -> &'a [u8] {
        &self.0[..KEY_LEN]
    }

    /// M: the sender requires markers in what it receives.
    pub fn markers(self) -> bool {
        self.0[16] & MARKERS != 0
    }

    /// C: the sender wants CRCs.
    pub fn crc(self) -> bool {
        self.0[16] & CRC != 0
    }

    /// R: the connection is rejected. Without meaning in a Request.
    pub fn reject(self) -> bool {
        self.0[16] & REJECT != 0
    }

    /// S: the private data begins with the Enhanced word.
    pub fn enhanced(self) -> bool {
        self.0[16] & ENHANCED != 0
    }

    /// Rev: the revision.
    pub fn revision(self) -> u8 {
        self.0[17]
    }

    /// PD_Length: octets that follow.
    pub fn private_data_len(self) -> u16 {
        be::u16_at(self.0, 18)
    }
}

/// The Enhanced word (RFC 6581 §9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enhanced {
    /// A, and with it B, C and D: the peer-to-peer model, and the RTR messages that are possible.
    pub peer_to_peer: Option<Rtr>,
    /// Read Requests that the sender serves at a time.
    pub ird: u16,
    /// Read Requests that the sender wants to have outstanding.
    pub ord: u16,
}

/// Ready-to-receive indications that are possible (RFC 6581 §9.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rtr {
    /// B: a zero-length Send.
    pub send: bool,
    /// C: a zero-length RDMA Write.
    pub write: bool,
    /// D: a zero-length RDMA Read.
    pub read: bool,
}

impl Enhanced {
    /// Parses the enhanced data.
    pub fn parse(bytes: &[u8; ENHANCED_LEN]) -> Self {
        let (high, low) = (be::u16_at(bytes, 0), be::u16_at(bytes, 2));
        // RFC 6581 §9.2: without A the others mean nothing.
        let peer_to_peer = (high & 0x8000 != 0).then_some(Rtr {
            send: high & 0x4000 != 0,
            write: low & 0x8000 != 0,
            read: low & 0x4000 != 0,
        });
        Self {
            peer_to_peer,
            ird: high & NOT_NEGOTIATED,
            ord: low & NOT_NEGOTIATED,
        }
    }

    fn emit(self) -> [u8; ENHANCED_LEN] {
        let mut high = self.ird & NOT_NEGOTIATED;
        let mut low = self.ord & NOT_NEGOTIATED;
        if let Some(rtr) = self.peer_to_peer {
            high |= 0x8000 | (u16::from(rtr.send) << 14);
            low |= (u16::from(rtr.write) << 15) | (u16::from(rtr.read) << 14);
        }
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        [a, b, c, d]
    }
}

/// A valid frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Kind of the frame.
    pub kind: Kind,
    /// M: the sender requires markers in what it receives.
    pub markers: bool,
    /// C: the sender wants CRCs.
    pub crc: bool,
    /// R: the connection is rejected. Never set in a Request.
    pub reject: bool,
    /// Rev: the revision.
    pub revision: Revision,
    /// The Enhanced word, if there is one.
    pub enhanced: Option<Enhanced>,
    /// The private data of the user, without the Enhanced word.
    pub private_data: Vec<u8>,
}

impl Frame {
    /// Returns the octets of private data that fit a frame.
    pub fn capacity(enhanced: bool) -> usize {
        MAX_PRIVATE_DATA - if enhanced { ENHANCED_LEN } else { 0 }
    }

    /// Encodes the frame.
    ///
    /// # Panics
    ///
    /// If the private data is longer than [`capacity`](Self::capacity).
    pub fn emit(&self) -> Vec<u8> {
        assert!(
            self.private_data.len() <= Self::capacity(self.enhanced.is_some()),
            "private data fits its frame"
        );
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        let enhanced = self.enhanced.map(Enhanced::emit);
        let enhanced = enhanced.as_ref().map_or(&[][..], |word| word);
        let length = u16::try_from(enhanced.len() + self.private_data.len())
            .expect("private data is at most 512 bytes");
        let mut out = Vec::with_capacity(HEADER_LEN + usize::from(length));
        out.extend_from_slice(self.kind.key());
        out.push(
            flag(self.markers, MARKERS)
                | flag(self.crc, CRC)
                | flag(self.reject, REJECT)
                | flag(self.enhanced.is_some(), ENHANCED),
        );
        out.push(self.revision as u8);
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(enhanced);
        out.extend_from_slice(&self.private_data);
        out
    }

    /// Parses a frame from a fixed part that [`check`] accepted and its complete private data.
    fn parse(kind: Kind, header: HeaderView<'_>, data: &[u8]) -> Result<Self, FrameError> {
        let revision = check(kind, header)?;
        // RFC 6581 §6: S means something from revision 2 on; before, the bit is reserved.
        let enhanced = header.enhanced() && revision == Revision::Two;
        let (enhanced, private_data) = match data.split_first_chunk() {
            Some((word, rest)) if enhanced => (Some(Enhanced::parse(word)), rest),
            None if enhanced => return Err(FrameError::NoEnhancedWord),
            _ => (None, data),
        };
        Ok(Self {
            kind,
            markers: header.markers(),
            crc: header.crc(),
            // RFC 5044 §7.1.1: not checked in a Request.
            reject: kind == Kind::Reply && header.reject(),
            revision,
            enhanced,
            private_data: private_data.to_vec(),
        })
    }
}

/// Checks the fixed part of a frame.
fn check(kind: Kind, header: HeaderView<'_>) -> Result<Revision, FrameError> {
    check_key(kind, header.key())?;
    let revision = match header.revision() {
        1 => Revision::One,
        2 => Revision::Two,
        other => return Err(FrameError::Revision(other)),
    };
    if usize::from(header.private_data_len()) > MAX_PRIVATE_DATA {
        return Err(FrameError::PrivateDataTooLong(header.private_data_len()));
    }
    Ok(revision)
}

/// Checks the beginning of a key; fails at the first wrong octet.
fn check_key(kind: Kind, begun: &[u8]) -> Result<(), FrameError> {
    let begun = &begun[..begun.len().min(KEY_LEN)];
    if kind.key().starts_with(begun) {
        return Ok(());
    }
    if kind.other().key().starts_with(begun) {
        return Err(FrameError::SameRole);
    }
    let mut first = [0; 4];
    let shown = begun.len().min(first.len());
    first[..shown].copy_from_slice(&begun[..shown]);
    Err(FrameError::NotMpa(first))
}

/// Why octets are not a valid frame. The connection is closed without an answer (RFC 5044 §7.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The key is not that of MPA; the first octets are kept for diagnosis.
    #[error("the peer does not speak MPA (first bytes {0:02x?})")]
    NotMpa([u8; 4]),
    /// Both ends initiate, or both respond (RFC 5044 §7.1.2 rule 8).
    #[error("both ends have the same role in MPA")]
    SameRole,
    /// The revision of MPA is not supported.
    #[error("MPA revision {0} is not supported")]
    Revision(u8),
    /// The private data is longer than allowed.
    #[error("{0} bytes of MPA private data exceed the limit of 512")]
    PrivateDataTooLong(u16),
    /// The frame has the Enhanced flag and is too short for the word.
    #[error("an enhanced MPA frame without IRD and ORD")]
    NoEnhancedWord,
}

/// Reads one frame from a stream, and no octet behind it.
#[derive(Debug)]
pub struct FrameReader {
    kind: Kind,
    bytes: Vec<u8>,
}

impl FrameReader {
    /// Creates a reader for a frame of this kind.
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            bytes: Vec::new(),
        }
    }

    /// Returns the largest number of octets to read next; never 0 before the frame is complete.
    pub fn wanted(&self) -> usize {
        match HeaderView::new(&self.bytes) {
            None => HEADER_LEN - self.bytes.len(),
            Some(header) => HEADER_LEN + usize::from(header.private_data_len()) - self.bytes.len(),
        }
    }

    /// Whether nothing has arrived yet.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns all octets received so far, valid or not.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Adds octets, at most as many as [`wanted`](Self::wanted), and returns the frame when it
    /// is complete.
    ///
    /// # Errors
    ///
    /// As soon as the octets cannot become a valid frame. An invalid length allocates nothing.
    ///
    /// # Panics
    ///
    /// If there are more octets than wanted.
    pub fn take(&mut self, bytes: &[u8]) -> Result<Option<Frame>, FrameError> {
        assert!(
            bytes.len() <= self.wanted(),
            "a frame reader is given what it wants"
        );
        self.bytes.extend_from_slice(bytes);
        check_key(self.kind, &self.bytes)?;
        let Some(header) = HeaderView::new(&self.bytes) else {
            return Ok(None);
        };
        check(self.kind, header)?;
        let data = &self.bytes[HEADER_LEN..];
        if data.len() < usize::from(header.private_data_len()) {
            return Ok(None);
        }
        Frame::parse(self.kind, header, data).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Request of a Linux client.
    const LINUX_REQUEST: &[u8] =
        b"MPA ID Req Frame\x10\x02\x00\x0c\x00\x80\x00\x00\xf6\xab\x0e\x18\x01\x01\x03\x03";

    fn read(kind: Kind, mut bytes: &[u8], piece: usize) -> Result<Option<Frame>, FrameError> {
        let mut reader = FrameReader::new(kind);
        while !bytes.is_empty() {
            let len = piece.min(reader.wanted()).min(bytes.len());
            let (now, later) = bytes.split_at(len);
            if let Some(frame) = reader.take(now)? {
                assert!(later.is_empty(), "bytes behind the frame are left alone");
                return Ok(Some(frame));
            }
            bytes = later;
        }
        Ok(None)
    }

    #[test]
    fn request_of_linux() {
        let frame = read(Kind::Request, LINUX_REQUEST, 1000).unwrap().unwrap();
        assert_eq!(
            frame,
            Frame {
                kind: Kind::Request,
                markers: false,
                crc: false,
                reject: false,
                revision: Revision::Two,
                enhanced: Some(Enhanced {
                    peer_to_peer: None,
                    ird: 128,
                    ord: 0
                }),
                private_data: b"\xf6\xab\x0e\x18\x01\x01\x03\x03".to_vec(),
            }
        );
        assert_eq!(frame.emit(), LINUX_REQUEST);
    }

    #[test]
    fn flags_have_their_bits_and_reserved_bits_are_ignored() {
        let frame = Frame {
            kind: Kind::Reply,
            markers: true,
            crc: true,
            reject: true,
            revision: Revision::One,
            enhanced: None,
            private_data: Vec::new(),
        };
        let mut bytes = frame.emit();
        assert_eq!(bytes[16], 0xe0);
        bytes[16] |= 0x1f;
        assert_eq!(read(Kind::Reply, &bytes, 1000), Ok(Some(frame.clone())));
        // A rejection in a Request is none.
        bytes[..KEY_LEN].copy_from_slice(Kind::Request.key());
        let request = Frame {
            kind: Kind::Request,
            reject: false,
            ..frame
        };
        assert_eq!(read(Kind::Request, &bytes, 1000), Ok(Some(request)));
    }

    #[test]
    fn record_mark_of_plain_rpc_is_recognised_at_once() {
        assert_eq!(
            read(Kind::Request, &[0x80, 0, 0, 0x28], 1000),
            Err(FrameError::NotMpa([0x80, 0, 0, 0x28]))
        );
        assert_eq!(
            read(Kind::Request, b"GET ", 1),
            Err(FrameError::NotMpa(*b"G\0\0\0"))
        );
    }

    #[test]
    fn two_initiators_are_told_apart_from_garbage() {
        assert_eq!(
            read(Kind::Reply, LINUX_REQUEST, 1000),
            Err(FrameError::SameRole)
        );
    }

    #[track_caller]
    fn check_header(flags: u8, revision: u8, length: u16, expected: Result<(), FrameError>) {
        let mut bytes = LINUX_REQUEST[..HEADER_LEN].to_vec();
        bytes[16] = flags;
        bytes[17] = revision;
        bytes[18..].copy_from_slice(&length.to_be_bytes());
        bytes.resize(HEADER_LEN + usize::from(length.min(512)), 0);
        assert_eq!(read(Kind::Request, &bytes, 1000).map(|_| ()), expected);
    }

    #[test]
    fn limits_of_the_fixed_part() {
        check_header(0, 1, 512, Ok(()));
        check_header(0, 1, 513, Err(FrameError::PrivateDataTooLong(513)));
        check_header(
            0,
            2,
            u16::MAX,
            Err(FrameError::PrivateDataTooLong(u16::MAX)),
        );
        check_header(0, 0, 0, Err(FrameError::Revision(0)));
        check_header(0, 3, 0, Err(FrameError::Revision(3)));
        check_header(ENHANCED, 2, 4, Ok(()));
        check_header(ENHANCED, 2, 3, Err(FrameError::NoEnhancedWord));
        check_header(ENHANCED, 1, 3, Ok(()));
    }

    #[test]
    fn rtr_flags_without_the_peer_to_peer_model_are_ignored() {
        let word = [0x40, 0x01, 0xc0, 0x02];
        assert_eq!(
            Enhanced::parse(&word),
            Enhanced {
                peer_to_peer: None,
                ird: 1,
                ord: 2
            }
        );
        let word = [0xc0, 0x01, 0x80, 0x02];
        assert_eq!(
            Enhanced::parse(&word).peer_to_peer,
            Some(Rtr {
                send: true,
                write: true,
                read: false
            })
        );
    }

    prop_compose! {
        fn frames()(
            request: bool,
            flags: [bool; 4],
            two: bool,
            enhanced: bool,
            ird in 0..=NOT_NEGOTIATED,
            ord in 0..=NOT_NEGOTIATED,
            rtr in proptest::option::of(any::<[bool; 3]>()),
            private_data in proptest::collection::vec(any::<u8>(), 0..508),
        ) -> Frame {
            Frame {
                kind: if request { Kind::Request } else { Kind::Reply },
                markers: flags[0],
                crc: flags[1],
                reject: flags[2] && !request,
                revision: if two { Revision::Two } else { Revision::One },
                enhanced: (two && enhanced).then_some(Enhanced {
                    peer_to_peer: rtr.map(|[send, write, read]| Rtr { send, write, read }),
                    ird,
                    ord,
                }),
                private_data,
            }
        }
    }

    proptest! {
        #[test]
        fn frames_are_parsed_however_the_stream_is_cut(frame in frames(), piece in 1_usize..600) {
            prop_assert_eq!(read(frame.kind, &frame.emit(), piece), Ok(Some(frame)));
        }

        #[test]
        fn garbage_is_refused_or_waited_for(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut reader = FrameReader::new(Kind::Request);
            let len = bytes.len().min(reader.wanted());
            prop_assert!(!matches!(reader.take(&bytes[..len]), Ok(Some(_))));
        }
    }
}
