//! A mounted export: files and directories by path.

use crate::error::{At, Full};
use crate::path::{Last, split};
use crate::{
    DirEntry, Directory, Error, Fault, Mount, Nfs3, Node, ReadStream, Tuning, Upload, Walk,
    WriteStream,
};
use nfs_proto::args::CreateHow;
use nfs_proto::{Access, FileHandle, FileType, Name, SetAttributes, Status, results};
use oncrpc::xdr::Gather;
use oncrpc::{Credential, Transport};
use std::time::Instant;

/// A mounted export. Paths begin at its root, with or without a slash; they are bytes, as names
/// on a server need not be text.
#[derive(Debug)]
pub struct Export<T> {
    nfs: Nfs3<T>,
    root: Node,
    info: results::FsInfo,
    tuning: Tuning,
}

impl<T: Transport + Send + Sync> Export<T> {
    /// The export whose root [`Mount`](crate::Mount) has found.
    ///
    /// # Errors
    ///
    /// If the server does not answer FSINFO and GETATTR for it.
    pub async fn open(
        transport: T,
        credential: Credential,
        root: FileHandle,
    ) -> Result<Self, Error> {
        let nfs = Nfs3::new(transport, credential);
        let begun = Instant::now();
        let info = nfs.fs_info(root).await.at("ask about", b"/")?;
        let round_trip = begun.elapsed();
        let attributes = match info.attributes {
            Some(attributes) => attributes,
            None => nfs.get_attributes(root).await.at("ask about", b"/")?,
        };
        Ok(Self {
            nfs,
            root: Node {
                handle: root,
                attributes,
            },
            tuning: Tuning {
                round_trip,
                ..Tuning::new(&info).within(&info)
            },
            info,
        })
    }

    /// Mounts an export by exactly this path, over a transport on which MOUNT is served too. The paths in
    /// errors begin with it.
    ///
    /// # Errors
    ///
    /// Those of [`Mount::mount`](crate::Mount::mount) and of [`open`](Self::open).
    pub async fn mount(
        transport: T,
        credential: Credential,
        path: impl AsRef<[u8]>,
    ) -> Result<Self, Error>
    where
        T: Clone,
    {
        let path = path.as_ref();
        let mount = Mount::new(transport.clone(), credential.clone());
        let mounted = mount.mount(path).await?;
        let export = Self::open(transport, credential, mounted.handle).await?;
        Ok(export.named(path))
    }

    /// The same under a name: paths in its errors begin with it, as `/data/dir/file`.
    #[must_use]
    pub fn named(mut self, path: impl AsRef<[u8]>) -> Self {
        self.nfs.name_export(path.as_ref());
        self
    }

    /// A path as errors have it.
    pub(crate) fn full<'a>(&'a self, path: &'a [u8]) -> Full<'a> {
        self.nfs.full(path)
    }

    /// Sets sizes and depth, within what the server allows.
    #[must_use]
    pub fn with_tuning(mut self, tuning: Tuning) -> Self {
        self.tuning = tuning.within(&self.info);
        self
    }

    /// Sizes and depth.
    pub fn tuning(&self) -> Tuning {
        self.tuning
    }

    /// Single calls.
    pub fn nfs(&self) -> &Nfs3<T> {
        &self.nfs
    }

    /// The root of the export, with its attributes when it was mounted.
    pub fn root(&self) -> Node {
        self.root
    }

    /// FSINFO of the file system, as of the time of mounting.
    pub fn info(&self) -> &results::FsInfo {
        &self.info
    }

    /// Looks up a path and follows symbolic links.
    ///
    /// # Errors
    ///
    /// What the server says, such as [`Status::NoEntry`]; or no answer. So for everything below.
    pub async fn stat(&self, path: impl AsRef<[u8]>) -> Result<Node, Error> {
        let path = path.as_ref();
        self.find(path, Last::Follow)
            .await
            .at("find", self.full(path))
    }

    /// Looks up a path and does not follow a final symbolic link.
    pub async fn lstat(&self, path: impl AsRef<[u8]>) -> Result<Node, Error> {
        let path = path.as_ref();
        self.find(path, Last::Keep)
            .await
            .at("find", self.full(path))
    }

    /// Returns which of these rights the caller has.
    pub async fn access(&self, path: impl AsRef<[u8]>, access: Access) -> Result<Access, Error> {
        let path = path.as_ref();
        let doing = "check access to";
        let node = self
            .find(path, Last::Follow)
            .await
            .at(doing, self.full(path))?;
        self.nfs
            .access(node.handle, access)
            .await
            .at(doing, self.full(path))
    }

    /// The entries of a directory, page by page.
    pub async fn list(&self, path: impl AsRef<[u8]>) -> Result<Directory<'_, T>, Error> {
        let path = path.as_ref();
        let node = self
            .find(path, Last::Follow)
            .await
            .at("list", self.full(path))?;
        if node.attributes.file_type != FileType::Directory {
            return Err(Status::NotDirectory).at("list", self.full(path));
        }
        Ok(self.list_dir(node.handle, path))
    }

    /// The entries of a directory whose handle is known; the path is for messages.
    pub fn list_dir(&self, dir: FileHandle, path: &[u8]) -> Directory<'_, T> {
        Directory::new(&self.nfs, dir, path, self.tuning.list_size)
    }

    /// All entries of a directory at once.
    pub async fn entries(&self, path: impl AsRef<[u8]>) -> Result<Vec<DirEntry>, Error> {
        let mut directory = self.list(path).await?;
        let mut entries = Vec::new();
        while let Some(entry) = directory.next().await? {
            entries.push(entry);
        }
        Ok(entries)
    }

    /// Everything below a directory, each directory before what is in it. Symbolic links are not
    /// followed.
    pub async fn walk(&self, path: impl AsRef<[u8]>) -> Result<Walk<'_, T>, Error> {
        Ok(Walk::new(self, self.list(path).await?))
    }

    /// The data of a file, in order, with several READs in flight.
    pub async fn read(&self, path: impl AsRef<[u8]>) -> Result<ReadStream<'_, T>, Error> {
        let path = path.as_ref();
        let node = self
            .find(path, Last::Follow)
            .await
            .at("read", self.full(path))?;
        match node.attributes.file_type {
            FileType::Regular => Ok(self.read_node(&node, path)),
            FileType::Directory => Err(Status::IsDirectory).at("read", self.full(path)),
            _ => Err(Status::Invalid).at("read", self.full(path)),
        }
    }

    /// The data of a file that was looked up; the path is for messages.
    pub fn read_node(&self, node: &Node, path: &[u8]) -> ReadStream<'_, T> {
        ReadStream::new(&self.nfs, node, path, self.tuning)
    }

    /// All data of a file of at most `limit` bytes.
    ///
    /// # Errors
    ///
    /// [`Status::TooBig`] for a larger one.
    pub async fn read_all(&self, path: impl AsRef<[u8]>, limit: usize) -> Result<Vec<u8>, Error> {
        let path = path.as_ref();
        let mut stream = self.read(path).await?;
        let mut all = Vec::new();
        while let Some(pieces) = stream.next().await? {
            if all.len() + buffer::gather_len(&pieces) > limit {
                return Err(Status::TooBig).at("read", self.full(path));
            }
            for piece in &pieces {
                all.extend_from_slice(piece);
            }
        }
        Ok(all)
    }

    /// A new file, or an existing one as `how` says, ready to be written from its beginning.
    ///
    /// The file is there from now on, with part of its data until the stream is finished; where
    /// that matters, use [`upload`](Self::upload).
    pub async fn create(
        &self,
        path: impl AsRef<[u8]>,
        how: CreateHow,
    ) -> Result<WriteStream<'_, T>, Error> {
        let path = path.as_ref();
        let (dir, name) = self.place(path).await.at("create", self.full(path))?;
        let handle = self
            .create_in(dir, name, how)
            .await
            .at("create", self.full(path))?;
        Ok(self.write_at(handle, 0, path))
    }

    /// Writes to a file from `offset` on; the path is for messages.
    pub fn write_at(&self, file: FileHandle, offset: u64, path: &[u8]) -> WriteStream<'_, T> {
        WriteStream::new(&self.nfs, file, offset, path, self.tuning)
    }

    /// A new file that gets its name, replacing what has it, when it is whole and on stable
    /// storage; until then it has a temporary one.
    pub async fn upload(
        &self,
        path: impl AsRef<[u8]>,
        attributes: SetAttributes,
    ) -> Result<Upload<'_, T>, Error> {
        let path = path.as_ref();
        let (dir, name) = self.place(path).await.at("create", self.full(path))?;
        Upload::begin(self, dir, name, path, attributes).await
    }

    /// As [`upload`](Self::upload), in a directory whose handle is known: that saves a LOOKUP for
    /// each component of the path. Of the path the last component is the name; the rest is for
    /// messages.
    pub async fn upload_in(
        &self,
        dir: FileHandle,
        path: impl AsRef<[u8]>,
        attributes: SetAttributes,
    ) -> Result<Upload<'_, T>, Error> {
        let path = path.as_ref();
        let (_, name) = split(path).at("create", self.full(path))?;
        Upload::begin(self, dir, name, path, attributes).await
    }

    /// Writes a whole file at once, as [`upload`](Self::upload) does.
    pub async fn write_all(
        &self,
        path: impl AsRef<[u8]>,
        data: impl Into<bytes::Bytes>,
        attributes: SetAttributes,
    ) -> Result<(), Error> {
        let mut upload = self.upload(path, attributes).await?;
        let data: Gather = std::iter::once(data.into()).collect();
        if let Err(error) = upload.write_last(data).await {
            // The error that led here is the one that counts.
            let _ = upload.abandon().await;
            return Err(error);
        }
        upload.finish().await
    }

    /// A directory.
    ///
    /// A call that is sent again after its connection was lost may be executed twice: where the
    /// server does not remember the first time, the second one fails with [`Status::Exist`] though
    /// all is done.
    pub async fn make_dir(
        &self,
        path: impl AsRef<[u8]>,
        attributes: SetAttributes,
    ) -> Result<(), Error> {
        let path = path.as_ref();
        let doing = "make directory";
        let (dir, name) = self.place(path).await.at(doing, self.full(path))?;
        self.nfs
            .make_dir(dir, name, attributes)
            .await
            .at(doing, self.full(path))?;
        Ok(())
    }

    /// A directory in one whose handle is known, and its handle. A directory that has the name is as
    /// good, also at the end of a symbolic link. Of the path the last component is the name.
    ///
    /// # Errors
    ///
    /// [`Status::Exist`] if something else has the name.
    pub async fn make_dir_in(
        &self,
        dir: FileHandle,
        path: impl AsRef<[u8]>,
        attributes: SetAttributes,
    ) -> Result<FileHandle, Error> {
        let path = path.as_ref();
        let doing = "make directory";
        let (_, name) = split(path).at(doing, self.full(path))?;
        match self.nfs.make_dir(dir, name, attributes).await {
            Ok(made) => match made.handle {
                Some(handle) => Ok(handle),
                None => Ok(self
                    .lookup(dir, name)
                    .await
                    .at(doing, self.full(path))?
                    .handle),
            },
            Err(fault @ Fault::Status(Status::Exist)) => {
                let there = self
                    .find(path, Last::Follow)
                    .await
                    .at("find", self.full(path))?;
                match there.attributes.file_type {
                    FileType::Directory => Ok(there.handle),
                    _ => Err(fault).at(doing, self.full(path)),
                }
            }
            Err(fault) => Err(fault).at(doing, self.full(path)),
        }
    }

    /// A directory and those it is in, as far as they are not there.
    pub async fn make_dirs(
        &self,
        path: impl AsRef<[u8]>,
        attributes: SetAttributes,
    ) -> Result<(), Error> {
        let path = path.as_ref();
        let mut so_far = Vec::new();
        for name in crate::path::components(path) {
            so_far = crate::path::join(&so_far, name);
            match self.make_dir(&so_far, attributes).await {
                Ok(()) => {}
                Err(error) => self.accept_dir(&so_far, error).await?,
            }
        }
        Ok(())
    }

    /// A directory that could not be made is as good if it is there.
    async fn accept_dir(&self, path: &[u8], error: Error) -> Result<(), Error> {
        match self.stat(path).await {
            Ok(node) if node.attributes.file_type == FileType::Directory => Ok(()),
            Ok(_) | Err(_) => Err(error),
        }
    }

    /// Removes a name of something that is no directory.
    ///
    /// A call that is sent again after its connection was lost may be executed twice: where the
    /// server does not remember the first time, the second one fails with [`Status::NoEntry`] though
    /// all is done.
    pub async fn remove(&self, path: impl AsRef<[u8]>) -> Result<(), Error> {
        let path = path.as_ref();
        let (dir, name) = self.place(path).await.at("remove", self.full(path))?;
        self.nfs
            .remove(dir, name)
            .await
            .at("remove", self.full(path))
    }

    /// Removes an empty directory. Of a lost connection, see [`remove`](Self::remove).
    pub async fn remove_dir(&self, path: impl AsRef<[u8]>) -> Result<(), Error> {
        let path = path.as_ref();
        let (dir, name) = self.place(path).await.at("remove", self.full(path))?;
        self.nfs
            .remove_dir(dir, name)
            .await
            .at("remove", self.full(path))
    }

    /// Renames a file or directory, and replaces an existing target.
    ///
    /// A call that is sent again after its connection was lost may be executed twice: where the
    /// server does not remember the first time, the second one fails with [`Status::NoEntry`] though
    /// all is done.
    pub async fn rename(&self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Result<(), Error> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let source = self.place(from).await.at("rename", self.full(from))?;
        let target = self.place(to).await.at("rename to", self.full(to))?;
        self.nfs
            .rename(source, target)
            .await
            .at("rename", self.full(from))
    }

    /// A further name of a file.
    pub async fn link(&self, file: impl AsRef<[u8]>, path: impl AsRef<[u8]>) -> Result<(), Error> {
        let (file, path) = (file.as_ref(), path.as_ref());
        let node = self
            .find(file, Last::Keep)
            .await
            .at("link", self.full(file))?;
        let (dir, name) = self.place(path).await.at("link", self.full(path))?;
        self.nfs
            .link(node.handle, dir, name)
            .await
            .at("link", self.full(path))
    }

    /// A symbolic link with this text.
    pub async fn symlink(
        &self,
        target: impl AsRef<[u8]>,
        path: impl AsRef<[u8]>,
    ) -> Result<(), Error> {
        let (target, path) = (target.as_ref(), path.as_ref());
        let (dir, name) = self
            .place(path)
            .await
            .at("make symbolic link", self.full(path))?;
        self.nfs
            .symlink(dir, name, SetAttributes::default(), target)
            .await
            .at("make symbolic link", self.full(path))?;
        Ok(())
    }

    /// The text of a symbolic link.
    pub async fn read_link(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>, Error> {
        let path = path.as_ref();
        let doing = "read symbolic link";
        let node = self
            .find(path, Last::Keep)
            .await
            .at(doing, self.full(path))?;
        self.nfs
            .read_link(node.handle)
            .await
            .at(doing, self.full(path))
    }

    /// Sets attributes; symbolic links are followed.
    pub async fn set_attributes(
        &self,
        path: impl AsRef<[u8]>,
        attributes: SetAttributes,
    ) -> Result<(), Error> {
        let path = path.as_ref();
        let doing = "change attributes of";
        let node = self
            .find(path, Last::Follow)
            .await
            .at(doing, self.full(path))?;
        self.nfs
            .set_attributes(node.handle, attributes, None)
            .await
            .at(doing, self.full(path))
    }

    /// Returns the free space of the file system of a path.
    pub async fn fs_stat(&self, path: impl AsRef<[u8]>) -> Result<results::FsStat, Error> {
        let path = path.as_ref();
        let node = self
            .find(path, Last::Follow)
            .await
            .at("ask about", self.full(path))?;
        self.nfs
            .fs_stat(node.handle)
            .await
            .at("ask about", self.full(path))
    }

    /// Limits of POSIX for a path.
    pub async fn path_conf(&self, path: impl AsRef<[u8]>) -> Result<results::PathConf, Error> {
        let path = path.as_ref();
        let node = self
            .find(path, Last::Follow)
            .await
            .at("ask about", self.full(path))?;
        self.nfs
            .path_conf(node.handle)
            .await
            .at("ask about", self.full(path))
    }

    /// Handle of the directory that a path's last component is in.
    pub async fn parent(&self, path: impl AsRef<[u8]>) -> Result<FileHandle, Error> {
        let path = path.as_ref();
        Ok(self.place(path).await.at("find", self.full(path))?.0)
    }

    /// The directory that a path's last component is in, and that component.
    pub(crate) async fn place<'p>(&self, path: &'p [u8]) -> Result<(FileHandle, Name<'p>), Fault> {
        let (dir, name) = split(path)?;
        let node = self.find(dir, Last::Follow).await?;
        Ok((node.handle, name))
    }

    /// CREATE, and LOOKUP where the server does not return the handle.
    pub(crate) async fn create_in(
        &self,
        dir: FileHandle,
        name: Name<'_>,
        how: CreateHow,
    ) -> Result<FileHandle, Fault> {
        match self.nfs.create(dir, name, how).await?.handle {
            Some(handle) => Ok(handle),
            None => Ok(self.nfs.lookup(dir, name).await?.0),
        }
    }
}
