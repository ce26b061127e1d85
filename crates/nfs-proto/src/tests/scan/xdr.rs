//! XDR by hand: messages of NFS version 4.

/// A message, or a part of one.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Xdr(pub(super) Vec<u8>);

impl Xdr {
    pub(super) fn word(mut self, word: u32) -> Self {
        self.0.extend(word.to_be_bytes());
        self
    }

    pub(super) fn words(self, words: &[u32]) -> Self {
        words.iter().fold(self, |xdr, &word| xdr.word(word))
    }

    /// A length or a number of elements.
    pub(super) fn count(self, count: usize) -> Self {
        self.word(u32::try_from(count).unwrap())
    }

    /// A hyper.
    pub(super) fn long(mut self, value: u64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    /// Fixed-length opaque data.
    pub(super) fn fixed(mut self, len: usize) -> Self {
        self.0.extend(std::iter::repeat_n(0xee, len));
        self
    }

    /// Variable-length opaque data or a string.
    pub(super) fn opaque(self, bytes: &[u8]) -> Self {
        let mut xdr = self.count(bytes.len());
        xdr.0.extend(bytes);
        xdr.0.resize(xdr.0.len().next_multiple_of(4), 0);
        xdr
    }

    pub(super) fn then(mut self, next: &Self) -> Self {
        self.0.extend(&next.0);
        self
    }

    pub(super) fn stateid(self) -> Self {
        self.word(1).fixed(12)
    }

    pub(super) fn bitmap(self, words: &[u32]) -> Self {
        self.count(words.len()).words(words)
    }

    pub(super) fn fattr(self) -> Self {
        self.bitmap(&[0, 2]).opaque(&[0; 4])
    }
}

pub(super) fn xdr() -> Xdr {
    Xdr::default()
}

/// COMPOUND4args with AUTH_NONE and the tag "tag", of these operations.
pub(super) fn call(minor_version: u32, operations: &[Xdr]) -> Vec<u8> {
    let header = xdr().words(&[9, 0, 2, 100_003, 4, 1, 0, 0, 0, 0]);
    let args = header.opaque(b"tag").word(minor_version);
    let args = args.count(operations.len());
    operations.iter().fold(args, |xdr, next| xdr.then(next)).0
}

/// Bytes of a call before its first operation.
pub(super) const CALL: usize = 40 + 8 + 8;

/// COMPOUND4res, accepted, of these results.
pub(super) fn reply(results: &[Xdr]) -> Vec<u8> {
    let header = xdr().words(&[9, 1, 0, 0, 0, 0, 0]);
    let res = header.opaque(b"tag").count(results.len());
    results.iter().fold(res, |xdr, next| xdr.then(next)).0
}

/// Bytes of a reply before its first result.
pub(super) const REPLY: usize = 28 + 8 + 4;

/// PUTFH of a handle of four bytes: 12 bytes.
pub(super) fn putfh() -> Xdr {
    xdr().word(22).opaque(b"file")
}

/// SEQUENCE: 36 bytes.
pub(super) fn sequence() -> Xdr {
    xdr().word(53).fixed(16).words(&[1, 0, 0, 0])
}

/// READ: 32 bytes.
pub(super) fn read(count: u32) -> Xdr {
    xdr().word(25).stateid().long(0).word(count)
}

/// WRITE, with 36 bytes before the data.
pub(super) fn write(data: &[u8]) -> Xdr {
    xdr().word(38).stateid().long(0).word(2).opaque(data)
}

/// GETATTR: 16 bytes.
pub(super) fn getattr(bits: [u32; 2]) -> Xdr {
    xdr().word(9).bitmap(&bits)
}

/// Result of READ, with 16 bytes before the data.
pub(super) fn read_data(data: &[u8]) -> Xdr {
    xdr().words(&[25, 0, 1]).opaque(data)
}

/// Result that is only a number and a status: 8 bytes.
pub(super) fn status(operation: u32, status: u32) -> Xdr {
    xdr().words(&[operation, status])
}
