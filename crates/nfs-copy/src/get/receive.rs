//! The data of one file on its way from a server.

use super::Remote;
use crate::attributes::Wanted;
use crate::connection::Connection;
use crate::directory::LocalName;
use crate::error::{Changed, Context, Error, Result};
use crate::partial::{Naming, Partial};
use crate::resume::{RESUME_WINDOW, Version, are_equal};
use crate::show;
use crate::sparse::runs;
use crate::unkept::Unkept;
use nfs_client::{Again, Export, Fault, Node, ReadStream};
use nfs_proto::{Attributes, FileType, Status};
use oncrpc::xdr::{Gather, gather_len};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use tokio::task::{JoinHandle, spawn_blocking};

impl Remote {
    /// Copies a regular file; an interrupt leaves nothing of it behind.
    pub(super) async fn file(&mut self, dest: &LocalName) -> Result<()> {
        let size = self.node.attributes.size;
        let naming = self.naming();
        let room = self.shared.room(size).await;
        self.shared.events.begun(size);
        if let Some((version, kept)) = self.shared.resumes(size, &self.node.attributes) {
            match Partial::resume(dest, &self.wanted, version.number())? {
                Some((partial, there)) => {
                    let copied = self.continued(partial, there, version, dest).await;
                    match &copied {
                        Err(error) if !matches!(error.cause(), Error::Changed(_)) => drop(kept),
                        Ok(()) | Err(_) => kept.done(),
                    }
                    return copied;
                }
                None => kept.done(),
            }
        }
        let export = Arc::clone(&self.export);
        let (stream, first) = self.begin(&export).await?;
        let first = first.unwrap_or_default();
        let (wanted, leave_out_zeros) = (self.wanted, self.leaves_out_zeros());
        if stream.has_ended() {
            self.shared.events.transferred(gather_len(&first) as u64);
            let to = dest.clone();
            let write = move || write_whole(&to, &wanted, &first, leave_out_zeros, &naming);
            return self.ends.writers.write(write).await;
        }
        let _room = match room {
            Some(room) => Some(room),
            // It is not as small as the server said.
            None => self.shared.room(u64::MAX).await,
        };
        let partial = Partial::create(dest, &wanted)?;
        let begin = Begin {
            first: Some(first),
            offset: 0,
            checkpoints: false,
        };
        self.receive(stream, begin, &partial, dest).await?;
        written(Some(spawn_blocking(move || partial.finish(&naming))), dest).await
    }

    /// Begins to read it. What was replaced since it was found is looked up again.
    pub(super) async fn begin<'e>(
        &mut self,
        export: &'e Export<Connection>,
    ) -> Result<(ReadStream<'e, Connection>, Option<Gather>)> {
        let mut again = Again::default();
        loop {
            let mut stream = export.read_node(&self.node, &self.path);
            match stream.next().await {
                Err(error) if again.after(&error.fault) => {
                    self.node = find(export, &self.path, self.follows).await?;
                    let about = (&self.node.attributes).into();
                    self.wanted = Wanted::of(&about, &self.shared.options, self.permitted);
                }
                first => return Ok((stream, first?)),
            }
        }
    }

    /// Whether what has the name is replaced.
    pub(super) fn replaces(&self) -> bool {
        !self.shared.options.keeps_existing
    }

    pub(super) fn naming(&self) -> Naming {
        Naming {
            replaces: self.replaces(),
            made: Arc::clone(&self.made),
            may_collide: self.may_collide,
        }
    }

    /// Whether zeros are not written.
    fn leaves_out_zeros(&self) -> bool {
        let Attributes { size, used, .. } = self.node.attributes;
        self.shared.options.sparse.leaves_out_zeros(used, size)
    }

    /// Goes on with a file of which so much is there.
    async fn continued(
        &self,
        partial: Partial,
        mut there: u64,
        version: Version,
        dest: &LocalName,
    ) -> Result<()> {
        let naming = self.naming();
        let remote = (self.node.handle, &self.path[..]);
        if there > 0 && !are_equal(&self.export, remote, partial.file(), there).await? {
            cannot_write(partial.file().set_len(0), dest)?;
            there = 0;
        }
        self.shared.events.already_there(there);
        let mut stream = self.export.read_node(&self.node, &self.path).from(there);
        let begin = Begin {
            first: stream.next().await?,
            offset: there,
            checkpoints: true,
        };
        self.receive(stream, begin, &partial, dest).await?;
        let now = self.export.nfs().get_attributes(self.node.handle).await;
        let now = now.map_err(|fault| fault.at("read", &self.path))?;
        if version != Version::from(&now) {
            partial.discard();
            return Err(Changed).with_context(|| nfs_client::printable(&self.path));
        }
        written(Some(spawn_blocking(move || partial.finish(&naming))), dest).await
    }

    /// Writes what comes to a file.
    async fn receive(
        &self,
        mut stream: ReadStream<'_, Connection>,
        begin: Begin,
        partial: &Partial,
        dest: &LocalName,
    ) -> Result<()> {
        let leave_out_zeros = self.leaves_out_zeros();
        let mut offset = begin.offset;
        // All before it is on the disk.
        let mut synced_to = offset;
        // One write of a disk is in flight while the next data comes.
        let mut writing: Option<JoinHandle<io::Result<()>>> = None;
        let mut next = begin.first;
        while let Some(data) = next {
            let len = gather_len(&data) as u64;
            written(writing.take(), dest).await?;
            let (file, at) = (partial.file().clone(), offset);
            let sync = begin.checkpoints && at + len - synced_to > RESUME_WINDOW;
            if sync {
                synced_to = at;
            }
            writing = Some(spawn_blocking(move || {
                if sync {
                    file.sync_data()?;
                }
                write_at(&file, &data, at, leave_out_zeros)
            }));
            offset += len;
            self.shared.events.transferred(len);
            next = stream.next().await?;
        }
        written(writing, dest).await?;
        if leave_out_zeros || begin.checkpoints {
            // It may end with a hole.
            cannot_write(partial.file().set_len(offset), dest)?;
        }
        Ok(())
    }
}

/// The regular file that a path leads to by now.
async fn find(
    export: &Export<Connection>,
    path: &[u8],
    follows: bool,
) -> Result<Node, nfs_client::Error> {
    let node = match follows {
        true => export.stat(path).await?,
        false => export.lstat(path).await?,
    };
    match node.attributes.file_type {
        FileType::Regular => Ok(node),
        _ => Err(Fault::from(Status::Stale).at("read", path)),
    }
}

/// Begin of data that is received.
struct Begin {
    /// The first of it.
    first: Option<Gather>,
    offset: u64,
    /// Whether it is put on the disk every [`RESUME_WINDOW`] bytes, so that it can be continued.
    checkpoints: bool,
}

const NO_PANIC: &str = "a write does not panic";

/// Waits until something is written.
async fn written(writing: Option<JoinHandle<io::Result<()>>>, dest: &LocalName) -> Result<()> {
    match writing {
        Some(writing) => cannot_write(writing.await.expect(NO_PANIC), dest),
        None => Ok(()),
    }
}

/// Writes a whole file.
fn write_whole(
    dest: &LocalName,
    wanted: &Wanted,
    data: &Gather,
    leave_out_zeros: bool,
    naming: &Naming,
) -> Result<()> {
    let partial = Partial::create(dest, wanted)?;
    let written = write_at(partial.file(), data, 0, leave_out_zeros)
        .and_then(|()| match leave_out_zeros {
            true => partial.file().set_len(gather_len(data) as u64),
            false => Ok(()),
        })
        .and_then(|()| partial.finish(naming));
    cannot_write(written, dest)
}

/// Whether an error is that of a file which has its name, and lacks attributes.
pub(super) fn lacks_attributes(error: &Error) -> bool {
    error.local().is_some_and(is_unkept)
}

fn is_unkept(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|error| error.is::<Unkept>())
}

fn cannot_write(written: io::Result<()>, dest: &LocalName) -> Result<()> {
    let is_unkept = written.as_ref().is_err_and(is_unkept);
    written.with_context(|| {
        let path = show::path(&dest.path());
        match is_unkept {
            true => format!("{path} is copied"),
            false => format!("{path}: cannot write"),
        }
    })
}

/// Writes data to a place where nothing was written before, so that zeros need not be written.
fn write_at(file: &File, data: &Gather, mut offset: u64, leave_out_zeros: bool) -> io::Result<()> {
    for piece in data {
        if leave_out_zeros {
            let mut at = offset;
            for run in runs(piece, offset) {
                if !run.is_hole {
                    file.write_all_at(run.data, at)?;
                }
                at += run.data.len() as u64;
            }
        } else {
            file.write_all_at(piece, offset)?;
        }
        offset += piece.len() as u64;
    }
    Ok(())
}
