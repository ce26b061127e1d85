//! Views of a header: every field as received, without validation.

use super::{ErrorView, ListsView, WordLayout, procedure};
use oncrpc::xdr;
use oncrpc::xdr::Reader;

/// View of the rest of a header after the four fixed words, by procedure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyView<'a> {
    /// Body of an RDMA2_MSG or RDMA2_NOMSG.
    Chunks(ChunkListsView),
    /// Body of an RDMA2_ERROR.
    Error(ErrorView),
    /// Body of an RDMA2_OPTIONAL.
    Optional(OptionalView<'a>),
    /// The procedure is unknown.
    Unknown,
}

/// View of the chunk lists with the words before them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChunkListsView {
    /// `rdma_direction`, if present.
    pub direction: Option<u32>,
    /// The word for remote invalidation, if the layout has one.
    pub invalidate: InvalidateView,
    /// The three lists. Their `len` covers everything after the fixed words, and their `error` is
    /// where any of it became unreadable.
    pub lists: ListsView,
}

/// View of the word for remote invalidation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InvalidateView {
    /// The count on the wire, in the layout that has one.
    pub count: Option<u32>,
    /// The handles that are present, zero included.
    pub handles: Vec<u32>,
}

/// View of the body of an RDMA2_OPTIONAL, which may be incomplete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OptionalView<'a> {
    /// `rdma_optdir`.
    pub direction: Option<u32>,
    /// `rdma_opttype`.
    pub operation: Option<u32>,
    /// The length of `rdma_optinfo` on the wire.
    pub info_len: Option<u32>,
    /// The octets of `rdma_optinfo` that are present.
    pub info: &'a [u8],
    /// Octets after `rdma_optinfo` and its padding.
    pub rest: &'a [u8],
    /// The place at which the body became unreadable, if it did.
    pub error: Option<xdr::Error>,
}

impl<'a> BodyView<'a> {
    /// Reads what follows the fixed words of a message of version two, whose chunk lists have this
    /// layout.
    pub fn new(proc: u32, layout: WordLayout, body: &'a [u8]) -> Self {
        match proc {
            procedure::MSG | procedure::NOMSG => Self::Chunks(ChunkListsView::new(layout, body)),
            procedure::ERROR => Self::Error(ErrorView::new(body)),
            procedure::OPTIONAL => Self::Optional(OptionalView::new(body)),
            _ => Self::Unknown,
        }
    }
}

impl ChunkListsView {
    /// Reads the lists from what follows the fixed words of an RDMA2_MSG or RDMA2_NOMSG.
    pub fn new(layout: WordLayout, body: &[u8]) -> Self {
        let mut chunks = Self::default();
        let mut r = Reader::new(body);
        chunks.lists.error = chunks.read(layout, &mut r).err();
        chunks.lists.len = body.len() - r.remaining();
        chunks
    }

    fn read(&mut self, layout: WordLayout, r: &mut Reader<'_>) -> Result<(), xdr::Error> {
        self.direction = Some(r.u32()?);
        let handles = match layout {
            WordLayout::None => 0,
            WordLayout::One => 1,
            WordLayout::Several => *self.invalidate.count.insert(r.u32()?),
        };
        for _ in 0..handles {
            self.invalidate.handles.push(r.u32()?);
        }
        self.lists.read(r)
    }
}

impl<'a> OptionalView<'a> {
    /// Reads what follows the fixed words of an RDMA2_OPTIONAL.
    pub fn new(body: &'a [u8]) -> Self {
        let mut optional = Self::default();
        let mut r = Reader::new(body);
        optional.error = optional.read(&mut r).err();
        optional.rest = r.rest();
        optional
    }

    fn read(&mut self, r: &mut Reader<'a>) -> Result<(), xdr::Error> {
        self.direction = Some(r.u32()?);
        self.operation = Some(r.u32()?);
        let mut after = r.clone();
        let len = *self.info_len.insert(after.u32()?);
        let there = after.remaining().min(len as usize);
        self.info = &after.rest()[..there];
        r.opaque(u32::MAX).map(drop)
    }
}
