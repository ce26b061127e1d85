//! The data of one file on its way from a server.

use super::Remote;
use crate::partial::Partial;
use crate::show;
use anyhow::Context;
use nfs_proto::Attributes;
use oncrpc::xdr::{Gather, gather_len};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use tokio::task::{JoinHandle, spawn_blocking};

impl Remote {
    /// Copies a regular file; an interrupt leaves nothing of it behind.
    pub(super) async fn file(&self, dest: &Path) -> anyhow::Result<()> {
        let Attributes { size, mode, .. } = self.node.attributes;
        let room = self.shared.room(size).await;
        self.shared.progress.begin(size);
        let mut stream = self.export.read_node(&self.node, &self.path);
        let first = stream.next().await?.unwrap_or_default();
        if stream.has_ended() {
            self.shared.progress.add(gather_len(&first) as u64);
            let to = dest.to_owned();
            let written = spawn_blocking(move || write_whole(&to, mode, &first));
            return written.await.expect(NO_PANIC);
        }
        let _room = match room {
            Some(room) => Some(room),
            // It is not as small as the server said.
            None => self.shared.room(u64::MAX).await,
        };
        let partial = Partial::create(dest, mode)?;
        let mut offset = 0;
        // One write of a disk is in flight while the next data comes.
        let mut writing: Option<JoinHandle<io::Result<()>>> = None;
        let mut next = Some(first);
        while let Some(data) = next {
            let len = gather_len(&data) as u64;
            written(writing.take(), dest).await?;
            let (file, at) = (partial.file().clone(), offset);
            writing = Some(spawn_blocking(move || write_at(&file, &data, at)));
            offset += len;
            self.shared.progress.add(len);
            next = stream.next().await?;
        }
        written(writing, dest).await?;
        written(Some(spawn_blocking(move || partial.finish())), dest).await
    }
}

const NO_PANIC: &str = "a write does not panic";

/// Waits until something is written.
async fn written(writing: Option<JoinHandle<io::Result<()>>>, dest: &Path) -> anyhow::Result<()> {
    match writing {
        Some(writing) => cannot_write(writing.await.expect(NO_PANIC), dest),
        None => Ok(()),
    }
}

/// Writes a whole file.
fn write_whole(dest: &Path, mode: u32, data: &Gather) -> anyhow::Result<()> {
    let partial = Partial::create(dest, mode)?;
    let written = write_at(partial.file(), data, 0).and_then(|()| partial.finish());
    cannot_write(written, dest)
}

fn cannot_write(written: io::Result<()>, dest: &Path) -> anyhow::Result<()> {
    written.with_context(|| format!("cannot write {}", show::path(dest)))
}

fn write_at(file: &std::fs::File, data: &Gather, mut offset: u64) -> io::Result<()> {
    for piece in data {
        file.write_all_at(piece, offset)?;
        offset += piece.len() as u64;
    }
    Ok(())
}
