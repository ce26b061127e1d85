//! What a [`FileId`] of a local file system holds.
//!
//! Its first byte says which of two kinds it is. Numbers are big-endian.

use crate::fs::FileId;

/// First byte of an id by which a file is found with the table.
const TABLE: u8 = 2;

/// A file that is found with the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableId {
    pub(super) ino: u64,
    /// Tells the file from others that had the same inode number.
    pub(super) birth: u64,
    /// Inode of the directory in which it was first seen.
    pub(super) home: u64,
}

impl TableId {
    /// Bytes of such an id.
    const LEN: usize = 1 + 3 * 8;

    pub(super) fn parse(file: FileId) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = file.as_bytes().try_into().ok()?;
        let (&kind, words) = bytes.split_first()?;
        let (words, _) = words.as_chunks::<8>();
        let &[ino, birth, home] = words else {
            return None;
        };
        (kind == TABLE).then(|| Self {
            ino: u64::from_be_bytes(ino),
            birth: u64::from_be_bytes(birth),
            home: u64::from_be_bytes(home),
        })
    }
}

impl From<TableId> for FileId {
    fn from(id: TableId) -> Self {
        let mut bytes = [TABLE; TableId::LEN];
        let (places, _) = bytes[1..].as_chunks_mut::<8>();
        for (place, word) in places.iter_mut().zip([id.ino, id.birth, id.home]) {
            *place = word.to_be_bytes();
        }
        FileId::new(&bytes).expect("25 bytes are few enough")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_of_the_table_comes_back() {
        let id = TableId {
            ino: 1,
            birth: u64::MAX,
            home: 3,
        };
        let file = FileId::from(id);
        assert_eq!(TableId::parse(file), Some(id));
        let mut bytes = file.as_bytes().to_vec();
        bytes[0] = 1;
        assert_eq!(TableId::parse(FileId::new(&bytes).unwrap()), None);
        assert_eq!(TableId::parse(FileId::new(&bytes[..24]).unwrap()), None);
    }
}
