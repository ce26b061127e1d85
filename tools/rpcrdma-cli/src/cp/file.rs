//! A copy of one file, symbolic link or special file.

use super::with_url;
use crate::copy::attributes::Wanted;
use crate::copy::upload::{Dataless, write_data};
use crate::copy::{Held, Shared};
use crate::session::{FileError, Of, Place};
use anyhow::bail;
use nfs_client::{Fault, Node, Upload};
use nfs_proto::{FileHandle, FileType, Name, SetAttributes, Status, args as nfs};
use rpcrdma::Client;
use std::sync::Arc;

/// Something to be copied that is no directory.
pub(super) struct File {
    pub(super) source: Place,
    pub(super) node: Node,
    /// The directory that it goes into.
    pub(super) dir: FileHandle,
    pub(super) target: Place,
    /// What holds that directory open for changes, if it is copied too.
    pub(super) held: Option<Arc<Held>>,
}

impl File {
    /// Copies it.
    pub(super) async fn copied(self, shared: &Shared) -> anyhow::Result<()> {
        let target = &self.target;
        let name = Name::new(target.name().unwrap_or_default());
        let name = name.map_err(|status| target.fault("create", status))?;
        if shared.options.keeps_existing {
            match target.export.nfs().lookup(self.dir, name).await {
                Ok(_) => return Ok(()),
                Err(Fault::Status(Status::NoEntry)) => {}
                Err(fault) => bail!(target.fault("find", fault)),
            }
        }
        let wanted = Wanted::of(&(&self.node.attributes).into(), &shared.options);
        let copied = match self.node.attributes.file_type {
            FileType::Regular => self.data(shared, &wanted).await,
            FileType::Symlink => self.symlink(shared, name, &wanted).await,
            _ => self.special(shared, name, &wanted).await,
        };
        match copied.map_err(|error| with_url(target, error)) {
            // It was not there when it was looked for.
            Err(error) if shared.options.keeps_existing && is_taken(&error) => return Ok(()),
            copied => copied?,
        }
        let (source, target) = (&self.source.url, &target.url);
        shared.tell(|| format!("{source} copied to {target}"))?;
        drop(self.held);
        Ok(())
    }

    async fn symlink(
        &self,
        shared: &Shared,
        name: Name<'_>,
        wanted: &Wanted,
    ) -> anyhow::Result<()> {
        let source = self.source.export.nfs();
        let text = source.read_link(self.node.handle).await;
        let text = text.map_err(|fault| self.source.fault("read symbolic link", fault))?;
        let nfs = self.target.export.nfs();
        let link = self.replacing(shared, "make symbolic link", name, Dataless::Symlink(text));
        let link = link.await?;
        match &wanted.kept {
            Some(kept) => kept.set_remote_link(nfs, link, &self.target.path).await,
            None => Ok(()),
        }
    }

    /// Makes a pipe, a socket or a device.
    async fn special(
        &self,
        shared: &Shared,
        name: Name<'_>,
        wanted: &Wanted,
    ) -> anyhow::Result<()> {
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
                bail!(self.source.fault("copy", Status::BadType))
            }
        };
        let nfs = self.target.export.nfs();
        let copy = self.replacing(shared, "make special file", name, Dataless::Special(node));
        let copy = copy.await?;
        match &wanted.kept {
            Some(kept) => kept.set_remote(nfs, copy, &self.target.path).await,
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
    ) -> Result<FileHandle, FileError> {
        let nfs = self.target.export.nfs();
        let made = match what.make(nfs, self.dir, name, false).await {
            Err(Fault::Status(Status::Exist)) if !shared.options.keeps_existing => {
                what.make(nfs, self.dir, name, true).await
            }
            made => made,
        };
        made.map_err(|fault| self.target.fault(doing, fault))
    }

    /// Copies the data of a regular file. An interrupt removes what is incomplete.
    async fn data(&self, shared: &Shared, wanted: &Wanted) -> anyhow::Result<()> {
        let size = self.node.attributes.size;
        let _room = shared.room(size).await;
        let to = (&*self.target.export, self.dir, &self.target.path[..]);
        let sent = shared.upload(to, size, wanted, None, async |upload| {
            self.send(upload, shared).await
        });
        sent.await?;
        Ok(())
    }

    async fn send(&self, upload: &mut Upload<'_, Client>, shared: &Shared) -> anyhow::Result<()> {
        let attributes = &self.node.attributes;
        let sparse = shared.options.sparse;
        let sparse = sparse.leaves_out_zeros(attributes.used, attributes.size);
        let mut stream = self.source.export.read_node(&self.node, &self.source.path);
        while let Some(data) = stream.next().await.of(&self.source)? {
            if sparse {
                for piece in data {
                    write_data(upload, &piece).await?;
                }
            } else if stream.has_ended() && upload.offset() == 0 {
                upload.write_last(data).await?;
            } else {
                upload.write(data).await?;
            }
        }
        Ok(())
    }
}

/// Whether something was not copied because there is something by now.
fn is_taken(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<FileError>();
    error.is_some_and(|error| error.status() == Some(Status::Exist))
}
