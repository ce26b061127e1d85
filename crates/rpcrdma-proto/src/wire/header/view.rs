//! Views of a header: every field as received, without validation.

use super::chunk::parse_segment;
use oncrpc::xdr;
use oncrpc::xdr::Reader;
use verbs::Segment;

/// View of the four fixed words, which all versions share (RFC 8166 §4.2).
#[derive(Clone, Copy, Debug)]
pub struct HeaderView<'a>(&'a [u8; HeaderView::FIXED_LEN]);

impl<'a> HeaderView<'a> {
    /// Octets of the fixed words.
    pub const FIXED_LEN: usize = 16;

    /// Creates a view of the first sixteen octets, if present.
    pub fn new(message: &'a [u8]) -> Option<Self> {
        message.first_chunk().map(Self)
    }

    fn word(self, index: usize) -> u32 {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&self.0[index * 4..][..4]);
        u32::from_be_bytes(bytes)
    }

    /// `rdma_xid`.
    pub fn xid(self) -> u32 {
        self.word(0)
    }

    /// `rdma_vers`.
    pub fn version(self) -> u32 {
        self.word(1)
    }

    /// `rdma_credit`.
    pub fn credits(self) -> u32 {
        self.word(2)
    }

    /// `rdma_proc`.
    pub fn procedure(self) -> u32 {
        self.word(3)
    }
}

/// View of the three chunk lists, as received. Its size is bounded by the octets it is read from:
/// each segment takes sixteen of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListsView {
    /// The Read list: each segment with its Position.
    pub reads: Vec<(u32, Segment)>,
    /// The Write list.
    pub writes: Vec<ChunkView>,
    /// The Reply chunk.
    pub reply: Option<ChunkView>,
    /// Octets of the lists after the fixed words.
    pub len: usize,
    /// The place at which the lists became unreadable, if they did.
    pub error: Option<xdr::Error>,
}

/// View of one Write or Reply chunk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChunkView {
    /// The count on the wire.
    pub count: u32,
    /// The segments that are present.
    pub segments: Vec<Segment>,
}

impl ListsView {
    /// Reads the lists from what follows the fixed words of an RDMA_MSG or RDMA_NOMSG.
    pub fn new(body: &[u8]) -> Self {
        let mut lists = Self::default();
        let mut r = Reader::new(body);
        lists.error = lists.read(&mut r).err();
        lists.len = body.len() - r.remaining();
        lists
    }

    /// Reads what is there; what was read before an error stays.
    pub(crate) fn read(&mut self, r: &mut Reader<'_>) -> Result<(), xdr::Error> {
        self.read_reads(r)?;
        self.read_writes(r)?;
        self.read_reply(r)
    }

    /// Reads a Read list, behind what was read before.
    pub(crate) fn read_reads(&mut self, r: &mut Reader<'_>) -> Result<(), xdr::Error> {
        while r.u32()? != 0 {
            self.reads.push((r.u32()?, parse_segment(r)?));
        }
        Ok(())
    }

    /// Reads a Write list.
    pub(crate) fn read_writes(&mut self, r: &mut Reader<'_>) -> Result<(), xdr::Error> {
        while r.u32()? != 0 {
            self.writes.push(ChunkView::default());
            let last = self.writes.last_mut().expect("one was just pushed");
            last.read(r)?;
        }
        Ok(())
    }

    /// Reads a Reply chunk, if there is one.
    pub(crate) fn read_reply(&mut self, r: &mut Reader<'_>) -> Result<(), xdr::Error> {
        if r.u32()? != 0 {
            self.reply.insert(ChunkView::default()).read(r)?;
        }
        Ok(())
    }
}

impl ChunkView {
    fn read(&mut self, r: &mut Reader<'_>) -> Result<(), xdr::Error> {
        self.count = r.u32()?;
        for _ in 0..self.count {
            self.segments.push(parse_segment(r)?);
        }
        Ok(())
    }
}

/// View of the body of an RDMA2_ERROR of version two, which may be incomplete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorView {
    /// `rdma_err`.
    pub code: Option<u32>,
    /// `rdma_vers_low`, or the word in its place.
    pub low: Option<u32>,
    /// `rdma_vers_high`, or the word in its place.
    pub high: Option<u32>,
}

impl ErrorView {
    /// Reads what follows the fixed words of an RDMA2_ERROR.
    pub fn new(body: &[u8]) -> Self {
        let mut r = Reader::new(body);
        Self {
            code: r.u32().ok(),
            low: r.u32().ok(),
            high: r.u32().ok(),
        }
    }
}
