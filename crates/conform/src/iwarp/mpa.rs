//! MPA Request Frames, valid and invalid, and the replies to them (RFC 5044 §7.1, RFC 6581).

/// Flag of a frame: the receiver of who sends it needs markers.
const MARKERS: u8 = 0x80;

/// Flag of a frame: CRCs are wanted.
const CRC: u8 = 0x40;

/// Flag of a frame: it begins with IRD and ORD.
const ENHANCED: u8 = 0x10;

/// Control flags in the word of IRD: peer-to-peer, and a Send as RTR message (RFC 6581 §9).
pub(crate) const FLAG_A: u16 = 0x8000;
pub(crate) const FLAG_B: u16 = 0x4000;

/// Control flags in the word of ORD: a Write and a Read as RTR message.
const FLAG_C: u16 = 0x8000;
const FLAG_D: u16 = 0x4000;

/// The bits of IRD and ORD.
pub(crate) const DEPTH: u16 = 0x3fff;

/// An MPA Request Frame. By default a good one; every field can be changed.
#[derive(Clone, Debug)]
pub struct Request {
    /// The first sixteen bytes.
    pub key: [u8; 16],
    /// M, C, R, S and reserved bits.
    pub flags: u8,
    /// Revision.
    pub revision: u8,
    /// PD_Length; that of the data, unless it is to be wrong.
    pub length: Option<u16>,
    /// Everything that follows.
    pub data: Vec<u8>,
}

impl Default for Request {
    /// Revision 2, CRCs, IRD and ORD of 8, and the private data of a client that has set R.
    fn default() -> Self {
        let mut data = vec![0, 8, 0, 8];
        data.extend(private_data(true));
        Self {
            key: *b"MPA ID Req Frame",
            flags: CRC | ENHANCED,
            revision: 2,
            length: None,
            data,
        }
    }
}

impl Request {
    /// As [`Default`], with other private data behind IRD and ORD.
    pub fn with_private_data(private_data: &[u8]) -> Self {
        let mut request = Self::default();
        request.data.truncate(4);
        request.data.extend_from_slice(private_data);
        request
    }

    /// As [`Default`], from an end whose receiver needs markers.
    pub fn with_markers() -> Self {
        let request = Self::default();
        Self {
            flags: request.flags | MARKERS,
            ..request
        }
    }

    pub(super) fn asks_for_markers(&self) -> bool {
        self.flags & MARKERS != 0
    }

    pub(super) fn asks_for_crc(&self) -> bool {
        self.flags & CRC != 0
    }

    /// Its bytes.
    ///
    /// # Panics
    ///
    /// If there is more data than the length field can say, and no length is given.
    pub fn emit(&self) -> Vec<u8> {
        let length = self.length.unwrap_or_else(|| {
            u16::try_from(self.data.len()).expect("data of a frame is short, or a length is given")
        });
        let mut bytes = self.key.to_vec();
        bytes.extend([self.flags, self.revision]);
        bytes.extend(length.to_be_bytes());
        bytes.extend_from_slice(&self.data);
        bytes
    }
}

/// CM Private Data of RFC 8797 with inline sizes of 4096 bytes.
pub fn private_data(remote_invalidation: bool) -> [u8; 8] {
    [0xf6, 0xab, 0x0e, 0x18, 1, remote_invalidation.into(), 3, 3]
}

/// Private data that announces version two as cel-01 has it (`docs/design/version-two.md`).
pub const ANNOUNCEMENT: [u8; 8] = *b"rpc2ce01";

/// The header of a frame: every field, checked for nothing but its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header([u8; Self::LEN]);

impl Header {
    /// Bytes before the private data.
    pub const LEN: usize = 20;

    /// Of a request; `None` if it has another key.
    pub fn of_request(bytes: [u8; Self::LEN]) -> Option<Self> {
        (bytes[..16] == *b"MPA ID Req Frame").then_some(Self(bytes))
    }

    /// Of a reply; `None` if it has another key.
    pub fn of_reply(bytes: [u8; Self::LEN]) -> Option<Self> {
        (bytes[..16] == *b"MPA ID Rep Frame").then_some(Self(bytes))
    }

    /// A reply that accepts this request, with this IRD, ORD of 8 and this private data.
    ///
    /// # Panics
    ///
    /// If the private data is longer than a length can say.
    pub fn accepting(self, ird: u8, private_data: &[u8]) -> Vec<u8> {
        self.accepting_with([u16::from(ird), 8], private_data)
    }

    /// A reply that accepts this request of an end with these words of IRD and ORD as RFC 6581 §9 has it: an ORD within the
    /// IRD of the request, an IRD for its ORD, and where control flag A is set, that and one of the RTR messages offered.
    ///
    /// # Panics
    ///
    /// As [`accepting`](Self::accepting).
    pub(crate) fn accepting_depths(self, depths: Option<[u16; 2]>, private_data: &[u8]) -> Vec<u8> {
        let [ird, ord] = depths.unwrap_or_default();
        let rtr = match (ird & FLAG_A != 0, ord & FLAG_C != 0, ird & FLAG_B != 0) {
            (false, ..) => [0, 0],
            (true, true, _) => [FLAG_A, FLAG_C],
            (true, false, true) => [FLAG_A | FLAG_B, 0],
            (true, false, false) => [FLAG_A, ord & FLAG_D],
        };
        self.accepting_with([ord & DEPTH | rtr[0], ird & DEPTH | rtr[1]], private_data)
    }

    fn accepting_with(self, [ird, ord]: [u16; 2], private_data: &[u8]) -> Vec<u8> {
        let mut bytes = b"MPA ID Rep Frame".to_vec();
        let mut data = Vec::new();
        if self.enhanced() {
            data.extend(ird.to_be_bytes());
            data.extend(ord.to_be_bytes());
        }
        data.extend_from_slice(private_data);
        bytes.extend([CRC | self.0[16] & ENHANCED, self.0[17]]);
        bytes.extend(
            u16::try_from(data.len())
                .expect("it is short")
                .to_be_bytes(),
        );
        bytes.extend(data);
        bytes
    }

    /// M, C, R, S and the reserved bits.
    pub fn flags(self) -> u8 {
        self.0[16]
    }

    /// Revision.
    pub fn revision(self) -> u8 {
        self.0[17]
    }

    /// Whether the frame rejects.
    pub fn rejected(self) -> bool {
        self.0[16] & 0x20 != 0
    }

    /// Whether CRCs are wanted.
    pub fn crc(self) -> bool {
        self.0[16] & CRC != 0
    }

    /// Whether the frame begins with IRD and ORD.
    pub fn enhanced(self) -> bool {
        self.0[16] & ENHANCED != 0
    }

    /// PD_Length.
    pub fn data_len(self) -> usize {
        usize::from(u16::from_be_bytes([self.0[18], self.0[19]]))
    }
}
