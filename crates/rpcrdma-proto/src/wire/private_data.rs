//! CM Private Data, which both ends exchange in connection setup (RFC 8797).
//!
//! Nothing carries over: each connection exchanges its own private data, and the values may change
//! from one to the next (RFC 8797 §4).

use super::threshold::{InlineThreshold, Thresholds};

/// The Format Identifier of RPC-over-RDMA version one.
pub const FORMAT_IDENTIFIER: u32 = 0xf6ab_0e18;

/// Version of the format, which has only one (RFC 8797 §4).
pub const VERSION: u8 = 1;

/// The bit of the flags that says that remote invalidation is supported.
const FLAG_R: u8 = 0x01;

/// Formats known by their identifier: the registry "RDMA-CM Private Data Identifiers" (RFC 8797 §8).
pub const FORMATS: &[Format] = &[Format {
    identifier: FORMAT_IDENTIFIER,
    length: PrivateData::LEN,
    description: "RPC-over-RDMA version 1 CM Private Data",
}];

/// One entry of the registry of private data formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// The first four octets.
    pub identifier: u32,
    /// Length in octets.
    pub length: usize,
    /// The registered name.
    pub description: &'static str,
}

/// View of CM Private Data: every field as received, without validation (RFC 8797 §4).
#[derive(Clone, Copy, Debug)]
pub struct PrivateDataView<'a>(&'a [u8; PrivateData::LEN]);

impl<'a> PrivateDataView<'a> {
    /// Creates a view of the first eight octets, if present.
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        bytes.first_chunk().map(Self)
    }

    /// The Format Identifier.
    pub fn identifier(self) -> u32 {
        u32::from_be_bytes([self.0[0], self.0[1], self.0[2], self.0[3]])
    }

    /// The version of the format.
    pub fn version(self) -> u8 {
        self.0[4]
    }

    /// The seven reserved bits, shifted down by one.
    pub fn reserved(self) -> u8 {
        self.0[5] >> 1
    }

    /// The R bit.
    pub fn remote_invalidation(self) -> bool {
        self.0[5] & FLAG_R != 0
    }

    /// The size code of the largest Send.
    pub fn send_code(self) -> u8 {
        self.0[6]
    }

    /// The size code of the largest Receive.
    pub fn receive_code(self) -> u8 {
        self.0[7]
    }
}

/// Private data of one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrivateData {
    /// Largest Send.
    pub send: InlineThreshold,
    /// Largest Receive.
    pub receive: InlineThreshold,
    /// Whether each exposed STag may be invalidated remotely (R).
    pub remote_invalidation: bool,
}

impl PrivateData {
    /// Octets on the wire.
    pub const LEN: usize = 8;

    /// Private data assumed for a peer that sends none (RFC 8797 §5.1).
    pub const ABSENT: Self = Self {
        send: InlineThreshold::MIN,
        receive: InlineThreshold::MIN,
        remote_invalidation: false,
    };

    /// Parses a view if identifier and version match. Reserved bits are ignored (RFC 8797 §4).
    pub fn parse(view: PrivateDataView<'_>) -> Option<Self> {
        if view.identifier() != FORMAT_IDENTIFIER || view.version() != VERSION {
            return None;
        }
        Some(Self {
            send: InlineThreshold::from_code(view.send_code()),
            receive: InlineThreshold::from_code(view.receive_code()),
            remote_invalidation: view.remote_invalidation(),
        })
    }

    /// Like [`parse`](Self::parse), but requires reserved bits to be zero, as a draft of RFC 8797
    /// did. For a decoder that reports oddities.
    pub fn parse_strict(view: PrivateDataView<'_>) -> Option<Self> {
        Self::parse(view).filter(|_| view.reserved() == 0)
    }

    /// Searches the private data of a peer at every octet offset (RFC 8797 §5.2).
    ///
    /// An identifier that is followed by an unknown format does not match, and the search goes on.
    pub fn find(received: &[u8]) -> Option<Self> {
        Self::locate(received).map(|(_, found)| found)
    }

    /// Like [`find`](Self::find), with the number of octets before the match.
    pub fn locate(received: &[u8]) -> Option<(usize, Self)> {
        let mut places = received.windows(Self::LEN).enumerate();
        places.find_map(|(offset, bytes)| {
            let found = PrivateDataView::new(bytes).and_then(Self::parse);
            found.map(|found| (offset, found))
        })
    }

    /// Encodes the private data.
    pub fn emit(self) -> [u8; Self::LEN] {
        let [a, b, c, d] = FORMAT_IDENTIFIER.to_be_bytes();
        let flags = if self.remote_invalidation { FLAG_R } else { 0 };
        [
            a,
            b,
            c,
            d,
            VERSION,
            flags,
            self.send.code(),
            self.receive.code(),
        ]
    }

    /// Returns what to send in a message of connection setup with room for `capacity` octets: this
    /// private data at offset 0, where Linux looks for it, and then as many octets of `user` as
    /// fit.
    ///
    /// If there is no room for this private data, it is left out as a whole (RFC 8797 §4), and the
    /// room is for `user`.
    pub fn with_user_bytes(self, user: &[u8], capacity: usize) -> Vec<u8> {
        let mut all = Vec::with_capacity(capacity.min(Self::LEN + user.len()));
        if capacity >= Self::LEN {
            all.extend_from_slice(&self.emit());
        }
        let room = capacity - all.len();
        all.extend_from_slice(&user[..user.len().min(room)]);
        all
    }

    /// Returns the inline thresholds between this end and a peer (RFC 8797 §4.2).
    pub fn thresholds(self, peer: Self) -> Thresholds {
        Thresholds {
            send: self.send.min(peer.receive),
            receive: self.receive.min(peer.send),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINUX_CLIENT: [u8; 8] = [0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 3];

    fn linux_client() -> PrivateData {
        PrivateData {
            send: InlineThreshold::DEFAULT,
            receive: InlineThreshold::DEFAULT,
            remote_invalidation: true,
        }
    }

    #[test]
    fn what_linux_sends_is_understood_and_made() {
        assert_eq!(PrivateData::find(&LINUX_CLIENT), Some(linux_client()));
        assert_eq!(linux_client().emit(), LINUX_CLIENT);
    }

    #[test]
    fn it_is_found_at_every_offset() {
        for offset in 0..40 {
            let mut bytes = vec![0xf6; offset];
            bytes.extend_from_slice(&LINUX_CLIENT);
            bytes.resize(64, 0);
            assert_eq!(PrivateData::locate(&bytes), Some((offset, linux_client())));
        }
    }

    #[test]
    fn an_invalid_match_does_not_end_the_search() {
        let mut bytes = LINUX_CLIENT.to_vec();
        bytes[4] = 2;
        bytes.extend_from_slice(&LINUX_CLIENT);
        assert_eq!(PrivateData::find(&bytes), Some(linux_client()));
    }

    #[test]
    fn truncated_foreign_or_newer_data_is_as_good_as_none() {
        let check = |bytes: &[u8]| assert_eq!(PrivateData::find(bytes), None);
        check(&[]);
        check(&LINUX_CLIENT[..7]);
        check(&LINUX_CLIENT[1..]);
        check(&[0; 512]);
        check(&[0xf6, 0xab, 0x0e, 0x18, 0, 1, 3, 3]);
        check(&[0xf6, 0xab, 0x0e, 0x18, 2, 1, 3, 3]);
    }

    #[test]
    fn reserved_bits_are_ignored_unless_asked_about() {
        let mut bytes = LINUX_CLIENT;
        bytes[5] = 0xff;
        let view = PrivateDataView::new(&bytes).expect("eight bytes");
        assert_eq!(PrivateData::parse(view), Some(linux_client()));
        assert_eq!(PrivateData::parse_strict(view), None);
    }

    #[test]
    fn user_bytes_follow_and_are_cut_to_the_room() {
        let check = |capacity, expected: &[u8]| {
            let sent = linux_client().with_user_bytes(b"mine", capacity);
            assert_eq!(sent, expected, "{capacity}");
        };
        check(56, b"\xf6\xab\x0e\x18\x01\x01\x03\x03mine");
        check(10, b"\xf6\xab\x0e\x18\x01\x01\x03\x03mi");
        check(8, b"\xf6\xab\x0e\x18\x01\x01\x03\x03");
        check(7, b"mine");
        check(0, b"");
    }

    #[test]
    fn each_direction_has_the_smaller_of_its_two_sizes() {
        let us = PrivateData {
            send: InlineThreshold::at_most(8192),
            receive: InlineThreshold::at_most(2048),
            remote_invalidation: true,
        };
        let thresholds = us.thresholds(linux_client());
        assert_eq!(thresholds.send.bytes(), 4096);
        assert_eq!(thresholds.receive.bytes(), 2048);
        let lopsided = |send, receive| {
            let thresholds = us.thresholds(PrivateData {
                send: InlineThreshold::at_most(send),
                receive: InlineThreshold::at_most(receive),
                remote_invalidation: true,
            });
            [thresholds.send.bytes(), thresholds.receive.bytes()]
        };
        assert_eq!(lopsided(1024, 65_536), [8192, 1024]);
        assert_eq!(lopsided(65_536, 1024), [1024, 2048]);
        let thresholds = us.thresholds(PrivateData::ABSENT);
        assert_eq!(thresholds.send.bytes(), 1024);
        assert_eq!(thresholds.receive.bytes(), 1024);
    }
}
