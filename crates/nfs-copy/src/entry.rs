//! Files, directories and symbolic links as a copy knows them, on either side.

use super::links::FileKey;
use nfs_client::Node;
use nfs_proto::{Attributes, FileType, NfsTime};
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

/// Permissions of a file that comes from a stream, before the umask.
const STREAM_MODE: u32 = 0o666;

/// A time, in seconds since 1970 and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Time {
    pub(crate) seconds: i64,
    pub(crate) nanoseconds: u32,
}

/// Attributes, as far as a copy looks at them: the same for local files and those of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct About {
    pub(crate) kind: FileType,
    /// Permission bits, and set-user-ID, set-group-ID and sticky.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Bytes of data.
    pub(crate) size: u64,
    /// Number in its file system: inode number or fileid.
    pub(crate) id: u64,
    /// Number of its file system.
    pub(crate) fs: u64,
    /// Names that it has.
    pub(crate) links: u32,
    pub(crate) atime: Time,
    pub(crate) mtime: Time,
    pub(crate) ctime: Time,
}

/// Something that is there, on either side.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// A local path, or one in an export.
    pub(crate) path: Vec<u8>,
    pub(crate) about: About,
    /// Its handle and all attributes, on a server.
    pub(crate) node: Option<Node>,
}

impl Time {
    /// Nanoseconds since 1970.
    pub(crate) fn nanos(self) -> i128 {
        i128::from(self.seconds) * 1_000_000_000 + i128::from(self.nanoseconds)
    }

    /// The time as NFS version 3 has it, if it has: from 1970 to 2106.
    pub(crate) fn for_nfs(self) -> Option<NfsTime> {
        Some(NfsTime {
            seconds: self.seconds.try_into().ok()?,
            nanoseconds: self.nanoseconds,
        })
    }
}

impl From<NfsTime> for Time {
    fn from(time: NfsTime) -> Self {
        Self {
            seconds: time.seconds.into(),
            // A server can say any number.
            nanoseconds: time.nanoseconds.min(999_999_999),
        }
    }
}

impl About {
    pub(crate) fn is_directory(&self) -> bool {
        self.kind == FileType::Directory
    }

    /// The file, whatever its name is, on one of several servers.
    pub(crate) fn file_key(&self, server: usize) -> FileKey {
        FileKey {
            server,
            fs: self.fs,
            id: self.id,
        }
    }

    /// Whether it is a device, a FIFO or a socket: what is written to it does not stay there.
    pub(crate) fn is_special(&self) -> bool {
        match self.kind {
            FileType::Regular | FileType::Directory | FileType::Symlink => false,
            FileType::Block | FileType::Character | FileType::Socket | FileType::Fifo => true,
        }
    }

    /// Whether both are one object, of which one side is this machine and the other one a server: numbers
    /// of file systems differ then, but no two objects with one number change at the same nanosecond.
    pub(crate) fn is_same_object(&self, other: &Self) -> bool {
        let of = |about: &Self| (about.id, about.kind, about.ctime, about.mtime, about.size);
        of(self) == of(other)
    }
}

impl From<&Metadata> for About {
    fn from(about: &Metadata) -> Self {
        let time = |seconds, nanoseconds: i64| Time {
            seconds,
            nanoseconds: nanoseconds.try_into().unwrap_or(0),
        };
        Self {
            kind: kind(about.file_type()),
            mode: about.mode() & 0o7777,
            uid: about.uid(),
            gid: about.gid(),
            size: about.len(),
            id: about.ino(),
            fs: about.dev(),
            links: u32::try_from(about.nlink()).unwrap_or(u32::MAX),
            atime: time(about.atime(), about.atime_nsec()),
            mtime: time(about.mtime(), about.mtime_nsec()),
            ctime: time(about.ctime(), about.ctime_nsec()),
        }
    }
}

/// The type of a local file.
fn kind(of: std::fs::FileType) -> FileType {
    match () {
        () if of.is_dir() => FileType::Directory,
        () if of.is_symlink() => FileType::Symlink,
        () if of.is_fifo() => FileType::Fifo,
        () if of.is_socket() => FileType::Socket,
        () if of.is_block_device() => FileType::Block,
        () if of.is_char_device() => FileType::Character,
        () => FileType::Regular,
    }
}

impl From<&Attributes> for About {
    fn from(about: &Attributes) -> Self {
        Self {
            kind: about.file_type,
            mode: about.mode & 0o7777,
            uid: about.uid,
            gid: about.gid,
            size: about.size,
            id: about.file_id.0,
            fs: about.fsid,
            links: about.links,
            atime: about.atime.into(),
            mtime: about.mtime.into(),
            ctime: about.ctime.into(),
        }
    }
}

impl Entry {
    pub(crate) fn local(path: Vec<u8>, about: &Metadata) -> Self {
        Self {
            path,
            about: about.into(),
            node: None,
        }
    }

    /// A stream: a FIFO, as far as a copy looks at it, that anybody could read.
    pub(crate) fn stream(path: &[u8]) -> Self {
        let about = About {
            kind: FileType::Fifo,
            mode: STREAM_MODE,
            uid: 0,
            gid: 0,
            size: 0,
            id: 0,
            fs: 0,
            links: 1,
            atime: Time::default(),
            mtime: Time::default(),
            ctime: Time::default(),
        };
        Self {
            path: path.to_vec(),
            about,
            node: None,
        }
    }

    pub(crate) fn remote(path: Vec<u8>, node: Node) -> Self {
        Self {
            path,
            about: (&node.attributes).into(),
            node: Some(node),
        }
    }
}

/// `dir/name`; of an empty path, the name.
pub(crate) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    match dir {
        [] => name.to_vec(),
        [.., b'/'] => [dir, name].concat(),
        _ => [dir, b"/", name].concat(),
    }
}

/// The path of the directory that a path's last name is in, and that name.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let end = path.iter().rposition(|byte| *byte != b'/');
    let path = &path[..end.map_or(0, |last| last + 1)];
    match path.iter().rposition(|byte| *byte == b'/') {
        // Of `/name`, the slash is the directory.
        Some(slash) => (&path[..slash.max(1)], &path[slash + 1..]),
        None => (b"", path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_joined_and_split() {
        for (dir, name, path) in [("", "a", "a"), ("/", "a", "/a"), ("d/e", "a", "d/e/a")] {
            assert_eq!(join(dir.as_bytes(), name.as_bytes()), path.as_bytes());
            assert_eq!(split(path.as_bytes()), (dir.as_bytes(), name.as_bytes()));
        }
        assert_eq!(split(b"d/a//"), (&b"d"[..], &b"a"[..]));
        assert_eq!(split(b"/"), (&b""[..], &b""[..]));
    }

    #[test]
    fn local_files_are_known_with_times_to_the_nanosecond() {
        let dir = tempfile::tempdir().unwrap();
        let about = About::from(&dir.path().metadata().unwrap());
        assert_eq!(about.kind, FileType::Directory);
        let nanos = dir.path().metadata().unwrap().modified().unwrap();
        let nanos = nanos.duration_since(std::time::UNIX_EPOCH).unwrap();
        assert_eq!(
            about.mtime.nanos(),
            i128::try_from(nanos.as_nanos()).unwrap()
        );
        let null = About::from(&std::fs::metadata("/dev/null").unwrap());
        assert_eq!((null.kind, null.is_special()), (FileType::Character, true));
    }

    #[test]
    fn times_before_1970_are_not_for_nfs() {
        let at = |seconds| {
            Time {
                seconds,
                nanoseconds: 5,
            }
            .for_nfs()
        };
        assert!(at(-1).is_none() && at(1 << 32).is_none());
        assert_eq!(
            Time::from(at(7).unwrap()),
            Time {
                seconds: 7,
                nanoseconds: 5
            }
        );
    }
}
