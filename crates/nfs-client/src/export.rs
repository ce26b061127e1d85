//! A mounted export: files and directories by path.

use crate::again::Again;
use crate::error::{At, Full};
use crate::path::{Last, split};
use crate::{
    DirEntry, Directory, Error, Fault, Mount, Nfs3, Node, ReadStream, Resume, Tuning, Upload, Walk,
    WriteStream,
};
use nfs_proto::args::CreateHow;
use nfs_proto::{Access, Attributes, FileHandle, FileType, Name, SetAttributes, Status, results};
use oncrpc::xdr::Gather;
use oncrpc::{Credential, Transport};
use std::time::Instant;

/// A mounted export. Paths begin at its root, with or without a slash. They are bytes, because
/// names on a server need not be text.
#[derive(Debug)]
pub struct Export<T> {
    nfs: Nfs3<T>,
    root: Node,
    info: results::FsInfo,
    tuning: Tuning,
}

impl<T: Transport + Send + Sync> Export<T> {
    /// Opens the export whose root [`Mount`](crate::Mount) has found.
    ///
    /// # Errors
    ///
    /// If FSINFO or GETATTR of the root fails.
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
            tuning: Tuning::new(&info).within(&info).with_round_trip(round_trip),
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

    /// Sets a prefix for paths in errors, as in `/data/dir/file`.
    #[must_use]
    pub fn named(mut self, path: impl AsRef<[u8]>) -> Self {
        self.nfs.name_export(path.as_ref());
        self
    }

    /// The same export over another transport to its server.
    pub fn over<U>(&self, transport: U) -> Export<U> {
        Export {
            nfs: self.nfs.over(transport),
            root: self.root,
            info: self.info,
            tuning: self.tuning,
        }
    }

    /// A path as errors have it.
    pub(crate) fn full<'a>(&'a self, path: &'a [u8]) -> Full<'a> {
        self.nfs.full(path)
    }

    /// Sets transfer sizes and depth, within the limits of the server.
    #[must_use]
    pub fn with_tuning(mut self, tuning: Tuning) -> Self {
        self.tuning = tuning.within(&self.info);
        self
    }

    /// Returns the transfer sizes and depth.
    pub fn tuning(&self) -> Tuning {
        self.tuning
    }

    /// Returns the client for single calls.
    pub fn nfs(&self) -> &Nfs3<T> {
        &self.nfs
    }

    /// Returns the root of the export, with its attributes at the time of mounting.
    pub fn root(&self) -> Node {
        self.root
    }

    /// Returns FSINFO of the file system at the time of mounting.
    pub fn info(&self) -> &results::FsInfo {
        &self.info
    }

    /// Looks up a path and follows symbolic links.
    ///
    /// # Errors
    ///
    /// The server's error, such as [`Status::NoEntry`], or a failed call. The same applies to the
    /// methods below.
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
        let checked = self.with(path, Last::Follow, async |node| {
            self.nfs.access(node.handle, access).await
        });
        checked.await.at("check access to", self.full(path))
    }

    /// Lists a directory, page by page.
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

    /// Lists a directory whose handle is known. The path is for errors.
    pub fn list_dir(&self, dir: FileHandle, path: &[u8]) -> Directory<'_, T> {
        Directory::new(&self.nfs, dir, path, self.tuning.list_size)
    }

    /// Returns all entries of a directory.
    pub async fn entries(&self, path: impl AsRef<[u8]>) -> Result<Vec<DirEntry>, Error> {
        let mut directory = self.list(path).await?;
        let mut entries = Vec::new();
        while let Some(entry) = directory.next().await? {
            entries.push(entry);
        }
        Ok(entries)
    }

    /// Walks the tree below a directory, each directory before its entries. Symbolic links are not
    /// followed.
    pub async fn walk(&self, path: impl AsRef<[u8]>) -> Result<Walk<'_, T>, Error> {
        Ok(Walk::new(self, self.list(path).await?))
    }

    /// Reads a file in order, with several READs in flight. A file that is replaced before its first data is there is
    /// looked up again.
    pub async fn read(&self, path: impl AsRef<[u8]>) -> Result<ReadStream<'_, T>, Error> {
        let path = path.as_ref();
        let node = self.find_file(path).await.at("read", self.full(path))?;
        Ok(self.read_node(&node, path).found_in(self))
    }

    /// Returns the object at a path, if it is a regular file.
    pub(crate) async fn find_file(&self, path: &[u8]) -> Result<Node, Fault> {
        let node = self.find(path, Last::Follow).await?;
        match node.attributes.file_type {
            FileType::Regular => Ok(node),
            FileType::Directory => Err(Status::IsDirectory.into()),
            _ => Err(Status::Invalid.into()),
        }
    }

    /// Reads a file that was looked up. The path is for errors.
    pub fn read_node(&self, node: &Node, path: &[u8]) -> ReadStream<'_, T> {
        ReadStream::new(&self.nfs, node, path, self.tuning)
    }

    /// Reads a whole file of at most `limit` bytes.
    ///
    /// # Errors
    ///
    /// [`Status::TooBig`] for a larger file.
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

    /// Creates a file, or opens an existing one as `how` allows, to be written from its beginning.
    ///
    /// The file is visible at once, with part of its data until the stream is finished. To avoid
    /// that, use [`upload`](Self::upload).
    pub async fn create(
        &self,
        path: impl AsRef<[u8]>,
        how: CreateHow,
    ) -> Result<WriteStream<'_, T>, Error> {
        let path = path.as_ref();
        let (dir, name) = self.place(path).await.at("create", self.full(path))?;
        let (handle, _) = self
            .create_in(dir, name, how)
            .await
            .at("create", self.full(path))?;
        Ok(self.write_at(handle, 0, path))
    }

    /// Writes to a file from `offset` on. The path is for errors.
    pub fn write_at(&self, file: FileHandle, offset: u64, path: &[u8]) -> WriteStream<'_, T> {
        WriteStream::new(&self.nfs, file, offset, path, self.tuning)
    }

    /// Creates a file under a temporary name, which replaces the entry at `path` when the file is
    /// complete and on stable storage.
    pub async fn upload(
        &self,
        path: impl AsRef<[u8]>,
        attributes: SetAttributes,
    ) -> Result<Upload<'_, T>, Error> {
        let path = path.as_ref();
        let (dir, name) = self.place(path).await.at("create", self.full(path))?;
        Upload::begin(self, dir, name, path, attributes).await
    }

    /// Like [`upload`](Self::upload), in a directory whose handle is known, which saves a LOOKUP
    /// per path component. The last component of the path is the name; the rest is for errors.
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

    /// As [`upload_in`](Self::upload_in), with a temporary name that stays the same, so that an upload that was
    /// cut off can be continued: [`Upload::offset`] tells how much of it is there. Dropped, it can be continued
    /// by another.
    ///
    /// `is_ours` is to tell by its attributes whether a file that has the name was made by the caller: names are
    /// no secret, and others may have put something else there.
    ///
    /// # Errors
    ///
    /// [`Status::Exist`] if it was not, or is no regular file of one name.
    pub async fn resume_upload_in(
        &self,
        dir: FileHandle,
        path: impl AsRef<[u8]>,
        attributes: SetAttributes,
        resume: Resume,
        is_ours: impl FnOnce(&Attributes) -> bool,
    ) -> Result<Upload<'_, T>, Error> {
        let path = path.as_ref();
        let (_, name) = split(path).at("continue", self.full(path))?;
        Upload::resume(self, dir, name, path, (attributes, resume), is_ours).await
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

    /// Creates a directory.
    ///
    /// A call that is repeated after a lost connection may be executed twice: if the server's
    /// duplicate request cache lacks the first one, the second fails with [`Status::Exist`]
    /// although the operation succeeded.
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

    /// Creates a directory in one whose handle is known, and returns its handle. An existing
    /// directory of that name is accepted, also through a symbolic link. The last component of the
    /// path is the name.
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

    /// Creates a directory and its missing parents.
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

    /// Removes an entry that is not a directory.
    ///
    /// A call that is repeated after a lost connection may be executed twice: if the server's
    /// duplicate request cache lacks the first one, the second fails with [`Status::NoEntry`]
    /// although the operation succeeded.
    pub async fn remove(&self, path: impl AsRef<[u8]>) -> Result<(), Error> {
        let path = path.as_ref();
        let (dir, name) = self.place(path).await.at("remove", self.full(path))?;
        self.nfs
            .remove(dir, name)
            .await
            .at("remove", self.full(path))
    }

    /// Removes an empty directory. For lost connections, see [`remove`](Self::remove).
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
    /// The source is looked up before. A call that is repeated after a lost connection may be executed twice; the second
    /// finds no source then, and it is no error if the target is what the source was. Without a lost connection it is: of
    /// several clients that rename a file to the same name, one succeeds.
    pub async fn rename(&self, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) -> Result<(), Error> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let source = self.place(from).await.at("rename", self.full(from))?;
        let target = self.place(to).await.at("rename to", self.full(to))?;
        let renamed = async {
            let (file, _) = self.nfs.lookup(source.0, source.1).await?;
            let resent = self.nfs.resent();
            match self.nfs.rename(source, target).await {
                Err(Fault::Status(Status::NoEntry))
                    if resent() && self.nfs.is_name_of(file, target.0, target.1).await =>
                {
                    Ok(())
                }
                renamed => renamed,
            }
        };
        renamed.await.at("rename", self.full(from))
    }

    /// Creates a hard link to a file.
    pub async fn link(&self, file: impl AsRef<[u8]>, path: impl AsRef<[u8]>) -> Result<(), Error> {
        let (file, path) = (file.as_ref(), path.as_ref());
        let linked = self.with(file, Last::Keep, async |node| {
            let (dir, name) = self.place(path).await?;
            self.nfs.link(node.handle, dir, name).await
        });
        linked.await.at("link", self.full(path))
    }

    /// Creates a symbolic link with this text.
    ///
    /// The name is looked up before. A call that is repeated after a lost connection may be executed twice; the second
    /// finds a link with this text then, and that is no error. Without a lost connection it is: of several clients that make
    /// the same link, one succeeds.
    ///
    /// # Errors
    ///
    /// [`Status::Exist`] if something has the name.
    pub async fn symlink(
        &self,
        target: impl AsRef<[u8]>,
        path: impl AsRef<[u8]>,
    ) -> Result<(), Error> {
        let (target, path) = (target.as_ref(), path.as_ref());
        let doing = "make symbolic link";
        let (dir, name) = self.place(path).await.at(doing, self.full(path))?;
        let (nfs, attributes) = (&self.nfs, SetAttributes::default());
        let made = async {
            match nfs.lookup(dir, name).await {
                Ok(_) => Err(Status::Exist.into()),
                // The server says more to the call itself.
                Err(_) => {
                    let resent = nfs.resent();
                    match nfs.symlink(dir, name, attributes, target).await {
                        Err(Fault::Status(Status::Exist)) if resent() => {
                            let made = nfs.link_with(dir, name, target).await;
                            made.ok_or(Status::Exist.into())
                        }
                        made => made,
                    }
                }
            }
        };
        made.await.at(doing, self.full(path))?;
        Ok(())
    }

    /// Returns the text of a symbolic link.
    pub async fn read_link(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>, Error> {
        let path = path.as_ref();
        let text = self.with(path, Last::Keep, async |node| {
            self.nfs.read_link(node.handle).await
        });
        text.await.at("read symbolic link", self.full(path))
    }

    /// Sets attributes; symbolic links are followed.
    pub async fn set_attributes(
        &self,
        path: impl AsRef<[u8]>,
        attributes: SetAttributes,
    ) -> Result<(), Error> {
        let path = path.as_ref();
        let set = self.with(path, Last::Follow, async |node| {
            self.nfs.set_attributes(node.handle, attributes, None).await
        });
        set.await.at("change attributes of", self.full(path))
    }

    /// Returns the free space of the file system of a path.
    pub async fn fs_stat(&self, path: impl AsRef<[u8]>) -> Result<results::FsStat, Error> {
        let path = path.as_ref();
        let told = self.with(path, Last::Follow, async |node| {
            self.nfs.fs_stat(node.handle).await
        });
        told.await.at("ask about", self.full(path))
    }

    /// Returns the POSIX limits of a path.
    pub async fn path_conf(&self, path: impl AsRef<[u8]>) -> Result<results::PathConf, Error> {
        let path = path.as_ref();
        let told = self.with(path, Last::Follow, async |node| {
            self.nfs.path_conf(node.handle).await
        });
        told.await.at("ask about", self.full(path))
    }

    /// Does something with what a path leads to, which is looked up again if it is replaced meanwhile.
    async fn with<R>(
        &self,
        path: &[u8],
        last: Last,
        act: impl AsyncFn(Node) -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        let mut again = Again::default();
        loop {
            let done = match self.find_once(path, last).await {
                Ok(node) => act(node).await,
                Err(fault) => Err(fault),
            };
            match done {
                Err(fault) if again.after(&fault) => {}
                done => return done,
            }
        }
    }

    /// Returns the handle of the parent directory of a path.
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

    /// CREATE, and LOOKUP where the server does not return the handle; the attributes, if it returns those.
    pub(crate) async fn create_in(
        &self,
        dir: FileHandle,
        name: Name<'_>,
        how: CreateHow,
    ) -> Result<(FileHandle, Option<Attributes>), Fault> {
        let made = self.nfs.create(dir, name, how).await?;
        match made.handle {
            Some(handle) => Ok((handle, made.attributes)),
            None => self.nfs.lookup(dir, name).await,
        }
    }
}
