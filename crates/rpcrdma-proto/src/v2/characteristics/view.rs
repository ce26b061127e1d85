//! Views of sets and subsets: every field as received, without validation.

use oncrpc::xdr;
use oncrpc::xdr::Reader;

/// View of an `xcharval`, which may be incomplete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XcharValView<'a> {
    /// `xchv_which`.
    pub which: u32,
    /// The length of `xchv_data` on the wire, if it is there.
    pub len: Option<u32>,
    /// The bytes that are present.
    pub data: &'a [u8],
}

/// View of an `xcharspec`. Its size is bounded by the bytes it is read from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpecView<'a> {
    /// The count on the wire, if present.
    pub count: Option<u32>,
    /// The values that are present; ids may occur twice.
    pub values: Vec<XcharValView<'a>>,
}

/// View of an `xcharsubset`. Its size is bounded by the bytes it is read from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubsetView {
    /// The count on the wire, if present.
    pub count: Option<u32>,
    /// The words that are present.
    pub words: Vec<u32>,
}

impl<'a> XcharValView<'a> {
    pub(crate) fn read(&mut self, r: &mut Reader<'a>) -> Result<(), xdr::Error> {
        self.which = r.u32()?;
        let mut after = r.clone();
        let len = *self.len.insert(after.u32()?);
        let there = after.remaining().min(len as usize);
        self.data = &after.rest()[..there];
        r.opaque(u32::MAX).map(drop)
    }
}

impl<'a> SpecView<'a> {
    pub(crate) fn read(&mut self, r: &mut Reader<'a>) -> Result<(), xdr::Error> {
        let count = *self.count.insert(r.u32()?);
        for _ in 0..count {
            // What is not even begun is not there.
            r.clone().u32()?;
            self.values.push(XcharValView::default());
            let last = self.values.last_mut().expect("one was just pushed");
            last.read(r)?;
        }
        Ok(())
    }
}

impl SubsetView {
    pub(crate) fn read(&mut self, r: &mut Reader<'_>) -> Result<(), xdr::Error> {
        let count = *self.count.insert(r.u32()?);
        for _ in 0..count {
            self.words.push(r.u32()?);
        }
        Ok(())
    }
}
