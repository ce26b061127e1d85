//! The data of one file on its way from a server.

use super::Remote;
use crate::copy::attributes::Wanted;
use crate::copy::directory::LocalName;
use crate::copy::resume::{Changed, RESUME_WINDOW, Version, are_equal};
use crate::copy::sparse::runs;
use crate::partial::Partial;
use crate::show;
use anyhow::Context;
use nfs_client::ReadStream;
use nfs_proto::Attributes;
use oncrpc::xdr::{Gather, gather_len};
use rpcrdma::Client;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use tokio::task::{JoinHandle, spawn_blocking};

impl Remote {
    /// Copies a regular file; an interrupt leaves nothing of it behind.
    pub(super) async fn file(&self, dest: &LocalName) -> anyhow::Result<()> {
        let size = self.node.attributes.size;
        let wanted = self.wanted;
        let replaces = self.replaces();
        let room = self.shared.room(size).await;
        self.shared.progress.begin(size);
        if let Some((version, kept)) = self.shared.resumes(size, &self.node.attributes) {
            match Partial::resume(dest, &wanted, version.number())? {
                Some((partial, there)) => {
                    let copied = self.continued(partial, there, version, dest).await;
                    match &copied {
                        Err(error) if !error.is::<Changed>() => drop(kept),
                        Ok(()) | Err(_) => kept.done(),
                    }
                    return copied;
                }
                None => kept.done(),
            }
        }
        let leave_out_zeros = self.leaves_out_zeros();
        let mut stream = self.export.read_node(&self.node, &self.path);
        let first = stream.next().await?.unwrap_or_default();
        if stream.has_ended() {
            self.shared.progress.add(gather_len(&first) as u64);
            let to = dest.clone();
            let write = move || write_whole(&to, &wanted, &first, leave_out_zeros, replaces);
            return self.writers.write(write).await;
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
        written(Some(spawn_blocking(move || partial.finish(replaces))), dest).await
    }

    /// Whether what has the name is replaced.
    pub(super) fn replaces(&self) -> bool {
        !self.shared.options.keeps_existing
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
    ) -> anyhow::Result<()> {
        let replaces = self.replaces();
        let remote = (self.node.handle, &self.path[..]);
        if there > 0 && !are_equal(&self.export, remote, partial.file(), there).await? {
            cannot_write(partial.file().set_len(0), dest)?;
            there = 0;
        }
        self.shared.progress.already(there);
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
            let path = nfs_client::printable(&self.path);
            return Err(anyhow::Error::new(Changed).context(path));
        }
        written(Some(spawn_blocking(move || partial.finish(replaces))), dest).await
    }

    /// Writes what comes to a file.
    async fn receive(
        &self,
        mut stream: ReadStream<'_, Client>,
        begin: Begin,
        partial: &Partial,
        dest: &LocalName,
    ) -> anyhow::Result<()> {
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
            self.shared.progress.add(len);
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

/// Where data begins that is received.
struct Begin {
    /// The first of it.
    first: Option<Gather>,
    offset: u64,
    /// Whether it is put on the disk every [`RESUME_WINDOW`] bytes, so that it can be continued.
    checkpoints: bool,
}

const NO_PANIC: &str = "a write does not panic";

/// Waits until something is written.
async fn written(
    writing: Option<JoinHandle<io::Result<()>>>,
    dest: &LocalName,
) -> anyhow::Result<()> {
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
    replaces: bool,
) -> anyhow::Result<()> {
    let partial = Partial::create(dest, wanted)?;
    let written = write_at(partial.file(), data, 0, leave_out_zeros)
        .and_then(|()| match leave_out_zeros {
            true => partial.file().set_len(gather_len(data) as u64),
            false => Ok(()),
        })
        .and_then(|()| partial.finish(replaces));
    cannot_write(written, dest)
}

fn cannot_write(written: io::Result<()>, dest: &LocalName) -> anyhow::Result<()> {
    written.with_context(|| format!("{}: cannot write", show::path(&dest.path())))
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
