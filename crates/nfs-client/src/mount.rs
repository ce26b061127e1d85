//! MOUNT version 3: from the path of an export to its root.

use crate::error::At;
use crate::path::components;
use crate::{Error, Fault, Rpc};
use nfs_proto::mount::{self, DirPath, MountStatus, Mounted};
use oncrpc::{Credential, Transport};

/// Client of MOUNT version 3.
#[derive(Debug)]
pub struct Mount<T> {
    rpc: Rpc<T>,
}

/// A directory that a server exports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportedDir {
    /// Path on the server.
    pub path: Vec<u8>,
    /// Names of the hosts and groups that may mount it; empty means everybody.
    pub groups: Vec<Vec<u8>>,
}

impl<T: Transport> Mount<T> {
    /// Creates a client over this transport with this credential.
    pub fn new(transport: T, credential: Credential) -> Self {
        Self {
            rpc: Rpc::new(transport, credential),
        }
    }

    /// Calls NULL, to check whether MOUNT is served over this transport.
    ///
    /// # Errors
    ///
    /// [`Fault::Rpc`] with PROG_UNAVAIL if it is not.
    pub async fn null(&self) -> Result<(), Fault> {
        self.rpc.call(&mount::Null).await?.results()
    }

    /// Returns the root of the export with exactly this path.
    ///
    /// # Errors
    ///
    /// [`Fault::Mount`] if the path is not exported, or not to this client.
    pub async fn mount(&self, path: impl AsRef<[u8]>) -> Result<Mounted, Error> {
        let path = path.as_ref();
        self.mount_path(path).await.at("mount", path)
    }

    async fn mount_path(&self, path: &[u8]) -> Result<Mounted, Fault> {
        let dir = DirPath::new(path).ok_or(MountStatus::NameTooLong)?;
        let reply = self.rpc.call(&mount::Mount { path: dir }).await?;
        Ok(reply.results()??)
    }

    /// Returns the export that contains a path, and the rest of the path below its root.
    ///
    /// Uses the longest match in the server's list. If the server does not disclose the list, tries
    /// the path and then each directory above it.
    ///
    /// Tells the server at once that the export is unmounted, so that its list of mounts keeps no
    /// stale entry (RFC 2224 §7). The handle stays valid.
    ///
    /// # Errors
    ///
    /// Those of [`mount`](Self::mount), for the path itself.
    pub async fn mount_above(&self, path: impl AsRef<[u8]>) -> Result<(Mounted, Vec<u8>), Error> {
        let names: Vec<&[u8]> = components(path.as_ref()).collect();
        let listed = match self.exports().await {
            Ok(exports) => exports
                .iter()
                .filter(|export| lies_in(&names, &export.path))
                .map(|export| components(&export.path).count())
                .max(),
            Err(Error {
                fault: Fault::Rpc(_),
                ..
            }) => None,
            Err(error) => return Err(error),
        };
        let depths: Vec<usize> = match listed {
            Some(depth) => vec![depth],
            None => (0..=names.len()).rev().collect(),
        };
        let mut first = None;
        for depth in depths {
            let dir = [b"/", &names[..depth].join(&b'/')[..]].concat();
            match self.mount(&dir).await {
                Ok(mounted) => {
                    // Not being able to is no reason to fail: the list is for people.
                    let _ = self.unmount(&dir).await;
                    return Ok((mounted, names[depth..].join(&b'/')));
                }
                Err(
                    error @ Error {
                        fault: Fault::Mount(_),
                        ..
                    },
                ) => {
                    first.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        Err(first.expect("at least one path was tried"))
    }

    /// Lists all exports.
    ///
    /// # Errors
    ///
    /// If there is no reply, or the call was not executed. The same applies to the methods below.
    pub async fn exports(&self) -> Result<Vec<ExportedDir>, Error> {
        self.list_exports()
            .await
            .at("list what is exported below", b"/")
    }

    async fn list_exports(&self) -> Result<Vec<ExportedDir>, Fault> {
        let reply = self.rpc.call(&mount::Export).await?;
        let exports = reply.results()?;
        Ok(exports
            .0
            .iter()
            .map(|export| ExportedDir {
                path: export.path.to_vec(),
                groups: export.groups.0.iter().map(|name| name.to_vec()).collect(),
            })
            .collect())
    }

    /// Lists mounts known to the server, as host and path.
    pub async fn mounts(&self) -> Result<Vec<(Vec<u8>, Vec<u8>)>, Fault> {
        let reply = self.rpc.call(&mount::Dump).await?;
        let mounts = reply.results()?;
        Ok(mounts
            .0
            .iter()
            .map(|entry| (entry.host.to_vec(), entry.path.to_vec()))
            .collect())
    }

    /// Removes an export from the server's list of mounts. The handle stays valid.
    pub async fn unmount(&self, path: impl AsRef<[u8]>) -> Result<(), Error> {
        let path = path.as_ref();
        self.unmount_path(path).await.at("unmount", path)
    }

    async fn unmount_path(&self, path: &[u8]) -> Result<(), Fault> {
        let dir = DirPath::new(path).ok_or(MountStatus::NameTooLong)?;
        self.rpc
            .call(&mount::Unmount { path: dir })
            .await?
            .results()
    }
}

/// Whether the path of these components is an exported directory or below it.
fn lies_in(names: &[&[u8]], export: &[u8]) -> bool {
    let mut names = names.iter();
    components(export).all(|name| names.next() == Some(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_matched_by_whole_components() {
        let names = [&b"srv"[..], b"data", b"file"];
        for export in ["/", "/srv", "/srv/data/", "/srv/data/file"] {
            assert!(lies_in(&names, export.as_bytes()), "{export}");
        }
        for export in ["/sr", "/srv/dat", "/data", "/srv/data/file/more"] {
            assert!(!lies_in(&names, export.as_bytes()), "{export}");
        }
    }
}
