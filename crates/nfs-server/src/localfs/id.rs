//! Content of a [`FileId`] of a local file system.
//!
//! Its first byte is the kind, of which there are two. Numbers are big-endian.

use crate::fs::FileId;
use siphasher::sip::SipHasher24;
use std::hash::Hasher;
use syscalls::FileHandle;

/// Properties that identify a file of an export beside its place in it, where the kernel has no
/// handles for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IdentifiedBy {
    /// Its inode number and birth time.
    Birth,
    /// Its inode number alone.
    Number,
    /// The path at which it was first seen, and its inode number, which it may share with other
    /// files that exist at the same time.
    PathAndNumber,
    /// The path at which it was first seen: its inode number may also change.
    Path,
}

impl IdentifiedBy {
    /// Whether the number of a file, among those of its export, is derived from its path.
    pub(super) fn path(self) -> bool {
        matches!(self, Self::PathAndNumber | Self::Path)
    }
}

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

/// Kinds of the handles of btrfs (`FILEID_BTRFS_*` in `linux/exportfs.h`): of a file alone, and
/// with its parent, which may be in another subvolume.
const OF_BTRFS: std::ops::RangeInclusive<u8> = 0x4d..=0x4f;

/// Returns the number of the subvolume (`root_objectid`) in a handle of btrfs.
pub(super) fn subvolume(file: FileId) -> Option<u64> {
    match file.as_bytes() {
        [KERNEL, kind, handle @ ..] if OF_BTRFS.contains(kind) => {
            let (_ino, rest) = handle.split_first_chunk::<8>()?;
            let (subvolume, _generation) = rest.split_first_chunk()?;
            Some(u64::from_ne_bytes(*subvolume))
        }
        _ => None,
    }
}

/// Returns the key of a file among the open files.
pub(super) fn key_of(file: FileId) -> u64 {
    match TableId::parse(file) {
        Some(id) => id.number,
        None => key_of_kernel(file),
    }
}

/// Derives the key of a file among the open files from its id with a kernel handle. Two files may
/// have the same key, so the id has to be compared.
pub(super) fn key_of_kernel(file: FileId) -> u64 {
    SipHasher24::new().hash(file.as_bytes())
}

/// Derives the number of a file from its path: the number of the directory and the name under
/// which it was first seen. Files with one such path have different `salt`s: all but the last were
/// moved since.
pub(super) fn number_of_path(parent: u64, name: &[u8], birth: u64, salt: u64) -> u64 {
    let mut hasher = SipHasher24::new();
    for word in [parent, birth, salt] {
        hasher.write_u64(word);
    }
    hasher.write(name);
    hasher.finish()
}

/// Derives the key of a name in a directory. It is among the numbers of files, and none of them.
pub(super) fn key_of_name(parent: u64, name: &[u8]) -> u64 {
    // No file has this birth.
    number_of_path(parent, name, 0, u64::MAX)
}

/// Id of a file that is found with the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableId {
    /// Number that identifies the file within the export; see
    /// [`Node::number`](super::node::Node::number).
    pub(super) number: u64,
    /// Distinguishes files that had the same number; see [`Stat::birth`](super::sys::Stat::birth).
    pub(super) birth: u64,
    /// Number of the directory in which it was first seen.
    pub(super) home: u64,
}

impl TableId {
    /// Length in bytes.
    const LEN: usize = 1 + 3 * 8;

    pub(super) fn parse(file: FileId) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = file.as_bytes().try_into().ok()?;
        let (&kind, words) = bytes.split_first()?;
        let (words, _) = words.as_chunks::<8>();
        let &[number, birth, home] = words else {
            return None;
        };
        (kind == TABLE).then(|| Self {
            number: u64::from_be_bytes(number),
            birth: u64::from_be_bytes(birth),
            home: u64::from_be_bytes(home),
        })
    }
}

impl From<TableId> for FileId {
    fn from(id: TableId) -> Self {
        let mut bytes = [TABLE; TableId::LEN];
        let (places, _) = bytes[1..].as_chunks_mut::<8>();
        for (place, word) in places.iter_mut().zip([id.number, id.birth, id.home]) {
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
            number: 1,
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
