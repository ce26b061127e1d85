//! Files that cases read and write, in a directory of their own.

use nfs_client::{Error, Export};
use nfs_proto::{FileHandle, SetAttributes};
use oncrpc::Transport;

/// Name of the directory, in the one that the user names.
const DIRECTORY: &str = "rpcrdma-conform";

/// Octets of the file that is read.
pub(crate) const FILE_SIZE: usize = 256 << 10;

/// Text of the symbolic link.
pub(crate) const LINK_TEXT: &str = "a/target/of/odd/length";

/// Files that are there while cases run.
#[derive(Clone, Debug)]
pub struct Fixture {
    /// The directory.
    pub(crate) directory: FileHandle,
    /// A file of [`FILE_SIZE`] octets with [known content](content).
    pub(crate) file: FileHandle,
    /// A file that is written to.
    pub(crate) scratch: FileHandle,
    /// A symbolic link.
    pub(crate) link: FileHandle,
}

/// Content of the file that is read: no two stretches of it are the same.
pub(crate) fn content(offset: usize, length: usize) -> Vec<u8> {
    let octet = |at: usize| {
        let mixed = (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 29;
        mixed.to_le_bytes()[0]
    };
    (offset..offset + length).map(octet).collect()
}

impl Fixture {
    /// Creates the directory `rpcrdma-conform` below `path` with the files of the cases.
    ///
    /// # Errors
    ///
    /// If the directory exists, or something cannot be created.
    pub async fn create<T: Transport + Send + Sync>(
        export: &Export<T>,
        path: &[u8],
    ) -> Result<Self, Error> {
        let at = |name: &str| Self::path(path, name);
        export.make_dir(at(""), SetAttributes::default()).await?;
        let whole = content(0, FILE_SIZE);
        export
            .write_all(at("read"), whole, SetAttributes::default())
            .await?;
        export
            .write_all(at("written"), "", SetAttributes::default())
            .await?;
        export.symlink(LINK_TEXT, at("link")).await?;
        Ok(Self {
            directory: export.lstat(at("")).await?.handle,
            file: export.lstat(at("read")).await?.handle,
            scratch: export.lstat(at("written")).await?.handle,
            link: export.lstat(at("link")).await?.handle,
        })
    }

    /// Removes all that [`create`](Self::create) and the cases have created.
    ///
    /// # Errors
    ///
    /// If something cannot be removed.
    pub async fn remove<T: Transport + Send + Sync>(
        export: &Export<T>,
        path: &[u8],
    ) -> Result<(), Error> {
        for entry in export.entries(Self::path(path, "")).await? {
            let name = Self::path(path, "");
            export
                .remove([&name[..], b"/", &entry.name[..]].concat())
                .await?;
        }
        export.remove_dir(Self::path(path, "")).await
    }

    fn path(below: &[u8], name: &str) -> Vec<u8> {
        let mut path = below.to_vec();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(DIRECTORY.as_bytes());
        if !name.is_empty() {
            path.push(b'/');
            path.extend_from_slice(name.as_bytes());
        }
        path
    }
}
