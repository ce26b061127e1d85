//! Ranges of files: reserved space, holes, and where they are (RFC 7862 §15.1, §15.4, §15.11).

/// Change of the space of a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// It is reserved: no later write to the range fails for want of space. A file that ends before the range becomes longer.
    Space,
    /// It is given back: the range reads as zeroes. The size of the file stays.
    Nothing,
}

/// Content to look for in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Data.
    Data,
    /// A hole. There is one behind the end of each file.
    Hole,
}

/// The place of content that was looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sought {
    /// Its offset; the size of the file if there is none, and for the hole behind the end.
    pub offset: u64,
    /// Whether nothing of the file is behind that.
    pub eof: bool,
}

impl Sought {
    /// Returns the place of content at an offset of a file of this size, or the end of the file if there is none.
    pub fn of(found: Option<u64>, size: u64) -> Self {
        let offset = found.unwrap_or(size).min(size);
        Self {
            offset,
            eof: offset == size,
        }
    }
}
