//! Content of a [`FileId`] of a local file system.
//!
//! Its first byte is the kind, of which there are two. Numbers are big-endian.

use crate::fs::FileId;
use siphasher::sip::SipHasher24;
use syscalls::FileHandle;

/// First byte of an id that holds a handle of the kernel.
const KERNEL: u8 = 1;

/// First byte of an id by which a file is found with the table.
const TABLE: u8 = 2;

/// Makes an id from a kernel handle; `None` if the handle is too long.
pub(super) fn of_kernel(handle: &FileHandle) -> Option<FileId> {
    let kind = u8::try_from(handle.kind()).ok()?;
    let mut bytes = [0; FileId::MAX];
    let len = 2 + handle.as_bytes().len();
    [bytes[0], bytes[1]] = [KERNEL, kind];
    bytes.get_mut(2..len)?.copy_from_slice(handle.as_bytes());
    FileId::new(&bytes[..len])
}

/// Returns the kernel handle in an id, if there is one.
pub(super) fn to_kernel(file: FileId) -> Option<FileHandle> {
    match file.as_bytes() {
        [KERNEL, kind, handle @ ..] if !handle.is_empty() => {
            FileHandle::new((*kind).into(), handle)
        }
        _ => None,
    }
}

/// Derives the key of a file among the open files from its id with a kernel handle. Two files may
/// have the same key, so the id has to be compared.
pub(super) fn key_of_kernel(file: FileId) -> u64 {
    SipHasher24::new().hash(file.as_bytes())
}

/// Id of a file that is found with the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableId {
    pub(super) ino: u64,
    /// Hash of the birth time, to distinguish files that had the same inode number.
    pub(super) birth: u64,
    /// Inode of the directory in which it was first seen.
    pub(super) home: u64,
}

impl TableId {
    /// Length in bytes.
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
    fn handle_of_the_kernel_comes_back_if_it_fits() {
        for len in [1, 8, 38] {
            let handle = FileHandle::new(0x81, &vec![7; len]).unwrap();
            let file = of_kernel(&handle).unwrap();
            assert_eq!(to_kernel(file), Some(handle));
            assert_eq!(TableId::parse(file), None);
        }
        assert_eq!(of_kernel(&FileHandle::new(1, &[7; 39]).unwrap()), None);
        assert_eq!(of_kernel(&FileHandle::new(256, &[7; 8]).unwrap()), None);
        assert_eq!(to_kernel(FileId::new(&[1, 1]).unwrap()), None);
        assert_eq!(to_kernel(FileId::new(&[3, 1, 7]).unwrap()), None);
    }

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
