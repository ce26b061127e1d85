//! The procedures of NFS version 3, one method each.

use crate::error::{Error, Full};
use crate::{Fault, Reply, Rpc};
use bytes::Buf;
use nfs_proto::args::{self, CreateHow, Node, Place};
use nfs_proto::{
    Access, Arguments, Attributes, Cookie, CookieVerifier, Data, FileHandle, Name, NfsTime, Path,
    SetAttributes, Stable, Status, WriteVerifier, results,
};
use oncrpc::xdr::{Gather, Opaque, Parts, padded};
use oncrpc::{Credential, Transport};

/// Client of NFS version 3. Each method makes one call, which is repeated only for
/// `NFS3ERR_JUKEBOX`.
#[derive(Debug)]
pub struct Nfs3<T> {
    rpc: Rpc<T>,
    /// With which paths in errors begin.
    export: Vec<u8>,
}

/// Result of READ.
#[derive(Clone, Debug)]
pub struct ReadAt {
    /// The data: at most as many bytes as requested.
    pub data: Gather,
    /// Whether the file ends after the data.
    pub eof: bool,
    /// Attributes of the file after the READ.
    pub attributes: Option<Attributes>,
}

/// Result of WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteAt {
    /// Bytes written: at least one, if any were to be written.
    pub count: usize,
    /// Stability of the data.
    pub committed: Stable,
    /// Write verifier, which changes when uncommitted data may have been lost.
    pub verifier: WriteVerifier,
}

/// Result of CREATE, MKDIR, SYMLINK and MKNOD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Created {
    /// Handle of the new object; optional for servers.
    pub handle: Option<FileHandle>,
    /// Attributes of the new object.
    pub attributes: Option<Attributes>,
}

impl From<results::Create> for Created {
    fn from(created: results::Create) -> Self {
        Self {
            handle: created.object,
            attributes: created.attributes,
        }
    }
}

impl<T: Transport> Nfs3<T> {
    /// Creates a client over this transport with this credential.
    pub fn new(transport: T, credential: Credential) -> Self {
        Self {
            rpc: Rpc::new(transport, credential),
            export: Vec::new(),
        }
    }

    /// The same calls over another transport.
    pub(crate) fn over<U>(&self, transport: U) -> Nfs3<U> {
        Nfs3 {
            rpc: self.rpc.over(transport),
            export: self.export.clone(),
        }
    }

    /// Has paths in errors begin with the name of an export.
    pub(crate) fn name_export(&mut self, name: &[u8]) {
        self.export = name.to_vec();
    }

    /// A path as errors have it.
    pub(crate) fn full<'a>(&'a self, path: &'a [u8]) -> Full<'a> {
        Full {
            export: &self.export,
            path,
        }
    }

    /// Makes an error of an operation on a path of the export, which begins with the export's name as those of [`Export`]
    /// do.
    ///
    /// [`Export`]: crate::Export
    pub fn error_at(&self, fault: Fault, doing: &'static str, path: &[u8]) -> Error {
        fault.at(doing, &self.full(path).to_vec())
    }

    /// Returns the transport.
    pub fn transport(&self) -> &T {
        self.rpc.transport()
    }

    /// Makes any call and returns the whole reply.
    ///
    /// # Errors
    ///
    /// If there is no reply, or the call was not executed.
    pub async fn call<'a, A: Arguments<'a>>(&self, args: &A) -> Result<Reply<'a, A>, Fault> {
        self.rpc.call(args).await
    }

    /// NULL.
    ///
    /// # Errors
    ///
    /// For this and every method below: if there is no reply, or the call was not executed; and
    /// where the server returns a status, [`Fault::Status`].
    pub async fn null(&self) -> Result<(), Fault> {
        self.call(&args::Null).await?.results()
    }

    /// GETATTR: attributes of an object.
    pub async fn get_attributes(&self, object: FileHandle) -> Result<Attributes, Fault> {
        let reply = self.call(&args::GetAttr { object }).await?;
        Ok(ok(reply.results()?)?.attributes)
    }

    /// SETATTR: sets attributes. With a guard, only if the object's ctime is equal to it.
    pub async fn set_attributes(
        &self,
        object: FileHandle,
        attributes: SetAttributes,
        guard: Option<NfsTime>,
    ) -> Result<(), Fault> {
        let args = args::SetAttr {
            object,
            attributes,
            guard,
        };
        ok(self.call(&args).await?.results()?)?;
        Ok(())
    }

    /// LOOKUP: finds a name in a directory.
    pub async fn lookup(
        &self,
        dir: FileHandle,
        name: Name<'_>,
    ) -> Result<(FileHandle, Option<Attributes>), Fault> {
        let what = place(dir, name);
        let found = ok(self.call(&args::Lookup { what }).await?.results()?)?;
        Ok((found.object, found.attributes))
    }

    /// ACCESS: which of these rights the caller has.
    pub async fn access(&self, object: FileHandle, access: Access) -> Result<Access, Fault> {
        let reply = self.call(&args::CheckAccess { object, access }).await?;
        Ok(ok(reply.results()?)?.access)
    }

    /// READLINK: the text of a symbolic link.
    pub async fn read_link(&self, symlink: FileHandle) -> Result<Vec<u8>, Fault> {
        let reply = self.call(&args::ReadLink { symlink }).await?;
        Ok(ok(reply.results()?)?.target.bytes().into_owned())
    }

    /// READ: reads up to `count` bytes at `offset`, without a copy.
    pub async fn read(&self, file: FileHandle, offset: u64, count: u32) -> Result<ReadAt, Fault> {
        let args = args::Read {
            file,
            offset,
            count,
        };
        let reply = self.rpc.call(&args).await?;
        let read = ok(reply.results()?)?;
        if read.count as usize != read.data.len() {
            return Err(Fault::Nonsense("READ has more or less data than it says"));
        }
        if read.count > count {
            return Err(Fault::Nonsense("READ has more data than was asked for"));
        }
        let (eof, attributes, len) = (read.eof, read.attributes, read.data.len());
        let data = match read.data.0 {
            Opaque::ByReference(pieces) => pieces,
            Opaque::Inline(_) => tail(reply, len),
        };
        Ok(ReadAt {
            data,
            eof,
            attributes,
        })
    }

    /// WRITE: writes bytes at `offset`, by reference.
    pub async fn write(
        &self,
        file: FileHandle,
        offset: u64,
        data: Gather,
        stable: Stable,
    ) -> Result<WriteAt, Fault> {
        let data = Data::from(data);
        let count = u32::try_from(data.len()).map_err(|_| Status::TooBig)?;
        let args = args::Write {
            file,
            offset,
            count,
            stable,
            data,
        };
        let wrote = ok(self.call(&args).await?.results()?)?;
        if wrote.count > count || wrote.count == 0 && count > 0 {
            return Err(Fault::Nonsense(
                "WRITE says it wrote what it was not given, or nothing",
            ));
        }
        if wrote.committed < stable {
            // RFC 1813 §3.3.7 forbids it.
            return Err(Fault::Nonsense("WRITE promises less than was asked for"));
        }
        Ok(WriteAt {
            count: wrote.count as usize,
            committed: wrote.committed,
            verifier: wrote.verifier,
        })
    }

    /// CREATE: creates a regular file.
    pub async fn create(
        &self,
        dir: FileHandle,
        name: Name<'_>,
        how: CreateHow,
    ) -> Result<Created, Fault> {
        let place = place(dir, name);
        Ok(ok(self.call(&args::Create { place, how }).await?.results()?)?.into())
    }

    /// MKDIR: creates a directory.
    pub async fn make_dir(
        &self,
        dir: FileHandle,
        name: Name<'_>,
        attributes: SetAttributes,
    ) -> Result<Created, Fault> {
        let place = place(dir, name);
        let args = args::MkDir { place, attributes };
        Ok(ok(self.call(&args).await?.results()?)?.into())
    }

    /// SYMLINK: creates a symbolic link with this text.
    pub async fn symlink(
        &self,
        dir: FileHandle,
        name: Name<'_>,
        attributes: SetAttributes,
        target: &[u8],
    ) -> Result<Created, Fault> {
        let args = args::Symlink {
            place: place(dir, name),
            attributes,
            target: Path::from(target),
        };
        Ok(ok(self.call(&args).await?.results()?)?.into())
    }

    /// MKNOD: creates a device, socket or pipe.
    pub async fn make_node(
        &self,
        dir: FileHandle,
        name: Name<'_>,
        what: Node,
    ) -> Result<Created, Fault> {
        let place = place(dir, name);
        Ok(ok(self.call(&args::MkNod { place, what }).await?.results()?)?.into())
    }

    /// REMOVE: removes an entry that is not a directory.
    pub async fn remove(&self, dir: FileHandle, name: Name<'_>) -> Result<(), Fault> {
        let object = place(dir, name);
        ok(self.call(&args::Remove { object }).await?.results()?)?;
        Ok(())
    }

    /// RMDIR: removes an empty directory.
    pub async fn remove_dir(&self, dir: FileHandle, name: Name<'_>) -> Result<(), Fault> {
        let object = place(dir, name);
        ok(self.call(&args::RmDir { object }).await?.results()?)?;
        Ok(())
    }

    /// RENAME: renames an entry, replacing an existing target.
    pub async fn rename(
        &self,
        from: (FileHandle, Name<'_>),
        to: (FileHandle, Name<'_>),
    ) -> Result<(), Fault> {
        let args = args::Rename {
            from: place(from.0, from.1),
            to: place(to.0, to.1),
        };
        ok(self.call(&args).await?.results()?)?;
        Ok(())
    }

    /// LINK: creates a hard link to a file.
    pub async fn link(
        &self,
        file: FileHandle,
        dir: FileHandle,
        name: Name<'_>,
    ) -> Result<(), Fault> {
        let link = place(dir, name);
        ok(self.call(&args::Link { file, link }).await?.results()?)?;
        Ok(())
    }

    /// READDIR: lists names from a cookie on. The reply borrows; see
    /// [`Directory`](crate::Directory) for entries.
    pub async fn read_dir(
        &self,
        dir: FileHandle,
        (cookie, verifier): (Cookie, CookieVerifier),
        count: u32,
    ) -> Result<Reply<'static, args::ReadDir>, Fault> {
        let args = args::ReadDir {
            dir,
            cookie,
            verifier,
            count,
        };
        self.call(&args).await
    }

    /// READDIRPLUS: lists names with attributes and handles from a cookie on.
    pub async fn read_dir_plus(
        &self,
        dir: FileHandle,
        (cookie, verifier): (Cookie, CookieVerifier),
        count: u32,
    ) -> Result<Reply<'static, args::ReadDirPlus>, Fault> {
        let args = args::ReadDirPlus {
            dir,
            cookie,
            verifier,
            dir_count: count,
            max_count: count,
        };
        self.call(&args).await
    }

    /// FSSTAT: free and used space of a file system.
    pub async fn fs_stat(&self, root: FileHandle) -> Result<results::FsStat, Fault> {
        Ok(ok(self.call(&args::FsStat { root }).await?.results()?)?)
    }

    /// FSINFO: limits and properties of a file system.
    pub async fn fs_info(&self, root: FileHandle) -> Result<results::FsInfo, Fault> {
        Ok(ok(self.call(&args::FsInfo { root }).await?.results()?)?)
    }

    /// PATHCONF: POSIX limits of an object.
    pub async fn path_conf(&self, object: FileHandle) -> Result<results::PathConf, Fault> {
        Ok(ok(self
            .call(&args::PathConf { object })
            .await?
            .results()?)?)
    }

    /// COMMIT: commits written data to stable storage; with `count` 0, up to the end of the file.
    pub async fn commit(
        &self,
        file: FileHandle,
        offset: u64,
        count: u32,
    ) -> Result<WriteVerifier, Fault> {
        let args = args::Commit {
            file,
            offset,
            count,
        };
        Ok(ok(self.call(&args).await?.results()?)?.verifier)
    }
}

fn place<'a>(dir: FileHandle, name: Name<'a>) -> Place<'a> {
    Place {
        dir,
        name: name.filename(),
    }
}

/// The last value of a reply that was in the stream, `len` bytes, without a copy.
fn tail<'a, A: Arguments<'a>>(reply: Reply<'a, A>, len: usize) -> Gather {
    if len == 0 {
        return Gather::new();
    }
    let Parts {
        head,
        start: _,
        items: _,
        // Replies to calls of this crate have none.
        lease: _,
    } = reply.into_payload().into_parts();
    let mut data = head.freeze();
    // Cut in place: each further reference would be counted, and this is done for every small READ.
    data.advance(data.len() - padded(len));
    data.truncate(len);
    Gather::from_buf([data])
}

/// The results of a call that succeeded.
fn ok<R, F>(results: results::Res<R, F>) -> Result<R, Status> {
    results.map_err(|failed| failed.status)
}
