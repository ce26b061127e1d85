//! A copy of one file, symbolic link or special file.

use super::with_url;
use crate::attributes::Wanted;
use crate::connection::Connection;
use crate::copy::{Permitted, Shared};
use crate::decide::{Skip, is_newer};
use crate::directory_completion::Held;
use crate::entry::About;
use crate::error::{Error, Result};
use crate::events::Event;
use crate::file_error::FileError;
use crate::made_names::Made;
use crate::options::Options;
use crate::place::{Follow, Of, Place};
use crate::upload::{Dataless, collision, find_made, write_data};
use nfs_client::{Again, Export, Fault, Node, ReadStream, Upload};
use nfs_proto::{FileHandle, FileType, Name, SetAttributes, Status, args as nfs};
use oncrpc::xdr::{Gather, gather_len};
use std::sync::Arc;

/// Data that comes, and the first of it.
type Begun<'a> = (ReadStream<'a, Connection>, Option<Gather>);

/// Something to be copied that is no directory.
pub(super) struct File {
    pub(super) source: Place,
    pub(super) node: Node,
    /// Meaning of its path if it is a symbolic link.
    pub(super) follow: Follow,
    /// The directory that it goes into.
    pub(super) dir: FileHandle,
    pub(super) target: Place,
    /// Holds that directory open for changes, if it is copied too.
    pub(super) held: Option<Arc<Held>>,
    /// Things made in that directory.
    pub(super) made: Arc<Made>,
    /// Whether what has got a name there may have the same.
    pub(super) may_collide: bool,
    /// Permissions that new files there may have.
    pub(super) permitted: Permitted,
}

impl File {
    /// Copies it.
    pub(super) async fn copied(mut self, shared: &Shared) -> Result<()> {
        let target = &self.target.clone();
        let name = Name::new(target.name().unwrap_or_default());
        let name = name.map_err(|status| target.fault("create", status))?;
        let nfs = target.export.nfs();
        if self.may_collide {
            let to = (self.dir, &target.path[..]);
            if find_made(&target.export, to, &self.made).await?.is_some() {
                return Err(collision(&target.path));
            }
        }
        let options = &shared.options;
        // Where attributes are kept it does not matter what is replaced.
        let there = match options.keeps_existing || options.updates || !options.preserves {
            true => nfs.lookup(self.dir, name).await,
            false => Err(Status::NoEntry.into()),
        };
        let there = match there {
            Ok(_) if options.keeps_existing => return self.skipped(shared, Skip::Exists),
            Ok((file, Some(about))) => Some((file, About::from(&about))),
            // LOOKUP may leave the attributes out (RFC 1813 §2.6).
            Ok((file, None)) if options.updates => {
                let about = nfs.get_attributes(file).await;
                let about = about.map_err(|fault| target.fault("find", fault))?;
                Some((file, About::from(&about)))
            }
            Ok((_, None)) | Err(Fault::Status(Status::NoEntry)) => None,
            Err(fault) => return Err(target.fault("find", fault).into()),
        };
        if options.updates
            && let Some((_, there)) = &there
            && !there.is_directory()
            && !self.is_newer(there, options)
        {
            return self.skipped(shared, Skip::NotOlder);
        }
        let permitted = shared.permitted(nfs, self.dir, &self.permitted).await?;
        let wanted = Wanted::of(&(&self.node.attributes).into(), options, permitted);
        let copied = match self.node.attributes.file_type {
            FileType::Regular => self.data(shared, permitted, there.as_ref()).await,
            FileType::Symlink => self.symlink(shared, name, &wanted).await,
            _ => self.special(shared, name, &wanted).await,
        };
        match copied.map_err(|error| with_url(target, error)) {
            // It was not there when it was looked for.
            Err(error) if shared.options.keeps_existing && is_taken(&error) => {
                return self.skipped(shared, Skip::Exists);
            }
            copied => copied?,
        }
        let (from, to) = (&self.source.url, &target.url);
        shared.tell(&Event::Copied { from, to })?;
        drop(self.held);
        Ok(())
    }

    fn skipped(&self, shared: &Shared, why: Skip) -> Result<()> {
        let from = &self.source.url;
        shared.tell(&Event::Skipped { from, why })
    }

    /// Whether it was changed later than what is there.
    fn is_newer(&self, there: &About, options: &Options) -> bool {
        let resolution = options.resolution.max(self.target.time_step());
        is_newer(&(&self.node.attributes).into(), there, resolution)
    }

    async fn symlink(&self, shared: &Shared, name: Name<'_>, wanted: &Wanted) -> Result<()> {
        let source = self.source.export.nfs();
        let text = source.read_link(self.node.handle).await;
        let text = text.map_err(|fault| self.source.fault("read symbolic link", fault))?;
        let nfs = self.target.export.nfs();
        let link = self.replacing(shared, "make symbolic link", name, Dataless::Symlink(text));
        let link = link.await?;
        match &wanted.kept {
            Some(kept) => {
                kept.set_remote_link(nfs, link.handle, &self.target.path)
                    .await
            }
            None => Ok(()),
        }
    }

    /// Makes a pipe, a socket or a device.
    async fn special(&self, shared: &Shared, name: Name<'_>, wanted: &Wanted) -> Result<()> {
        let attributes = SetAttributes {
            mode: Some(wanted.mode),
            ..SetAttributes::default()
        };
        let device = self.node.attributes.device;
        let node = match self.node.attributes.file_type {
            FileType::Fifo => nfs::Node::Fifo(attributes),
            FileType::Socket => nfs::Node::Socket(attributes),
            FileType::Block => nfs::Node::Block(attributes, device),
            FileType::Character => nfs::Node::Character(attributes, device),
            FileType::Regular | FileType::Directory | FileType::Symlink => {
                return Err(self.source.fault("copy", Status::BadType).into());
            }
        };
        let nfs = self.target.export.nfs();
        let copy = self.replacing(shared, "make special file", name, Dataless::Special(node));
        let copy = copy.await?;
        match &wanted.kept {
            Some(kept) => kept.set_remote(nfs, copy.handle, &self.target.path).await,
            None => Ok(()),
        }
    }

    /// Makes something, in place of what has the name, unless that is a directory or stays.
    async fn replacing(
        &self,
        shared: &Shared,
        doing: &'static str,
        name: Name<'_>,
        what: Dataless,
    ) -> Result<Node, FileError> {
        let nfs = self.target.export.nfs();
        let made = match what.make(nfs, self.dir, name, false).await {
            Err(Fault::Status(Status::Exist)) if !shared.options.keeps_existing => {
                what.make(nfs, self.dir, name, true).await
            }
            made => made,
        };
        let made = made.map_err(|fault| self.target.fault(doing, fault))?;
        let about = &made.attributes;
        self.made.note((about.fsid, about.file_id.0));
        Ok(made)
    }

    /// Copies the data of a regular file. An interrupt removes what is incomplete.
    async fn data(
        &mut self,
        shared: &Shared,
        permitted: u32,
        there: Option<&(FileHandle, About)>,
    ) -> Result<()> {
        let _room = shared.room(self.node.attributes.size).await;
        let export = Arc::clone(&self.source.export);
        let begun = self.begin(&export).await?;
        let size = self.node.attributes.size;
        let about = (&self.node.attributes).into();
        let wanted = Wanted::of(&about, &shared.options, permitted);
        let (file, there) = there.map(|(file, there)| (*file, there)).unzip();
        let wanted = wanted.in_place_of(there, file);
        let to = (&*self.target.export, self.dir, &self.target.path[..]);
        let sent = shared.upload(to, &self.made, size, &wanted, None, async |upload| {
            self.send(upload, shared, begun).await
        });
        sent.await?.set
    }

    /// Begins to read it. What was replaced since it was found is looked up again.
    async fn begin<'e>(&mut self, export: &'e Export<Connection>) -> Result<Begun<'e>> {
        let mut again = Again::default();
        loop {
            let mut stream = export.read_node(&self.node, &self.source.path);
            match stream.next().await {
                Err(error) if again.after(&error.fault) => {
                    self.node = self.source.look_again(self.follow).await?;
                    if self.node.attributes.file_type != FileType::Regular {
                        return Err(self.source.error(error).into());
                    }
                }
                first => return Ok((stream, first.of(&self.source)?)),
            }
        }
    }

    async fn send(
        &self,
        upload: &mut Upload<'_, Connection>,
        shared: &Shared,
        (mut stream, mut next): Begun<'_>,
    ) -> Result<()> {
        let attributes = &self.node.attributes;
        let sparse = shared.options.sparse;
        let sparse = sparse.leaves_out_zeros(attributes.used, attributes.size);
        while let Some(data) = next {
            let len = gather_len(&data) as u64;
            if sparse {
                for piece in data {
                    write_data(upload, &piece).await?;
                }
            } else if stream.has_ended() && upload.offset() == 0 {
                upload.write_last(data).await?;
            } else {
                upload.write(data).await?;
            }
            shared.events.transferred(len);
            next = stream.next().await.of(&self.source)?;
        }
        Ok(())
    }
}

/// Whether something was not copied because there is something by now.
fn is_taken(error: &Error) -> bool {
    matches!(error, Error::File(error) if error.status() == Some(Status::Exist))
}
