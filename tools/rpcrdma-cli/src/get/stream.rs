//! The data of one file on its way to standard output, a device or a FIFO: in order, and without a name that it
//! could get at the end.

use super::Remote;
use crate::copy::STREAM;
use crate::output;
use crate::show;
use anyhow::{Context, anyhow};
use oncrpc::xdr::{Gather, gather_len};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use tokio::sync::{mpsc, oneshot};

impl Remote {
    /// Writes a regular file to standard output or to what is there. A thread of its own does it, for which
    /// nobody waits after an interrupt: it may wait for a reader for ever.
    pub(super) async fn stream(&mut self, to: PathBuf) -> anyhow::Result<()> {
        let interrupt = self.shared.interrupt.clone();
        interrupt.unless(self.write_to(to)).await
    }

    async fn write_to(&mut self, to: PathBuf) -> anyhow::Result<()> {
        let size = self.node.attributes.size;
        let _room = self.shared.room(size).await;
        self.shared.progress.begin(size);
        // One piece is written while the next one comes.
        let (pieces, next) = mpsc::channel(1);
        let (ends, ended) = oneshot::channel();
        let dest = to.clone();
        let write = move || {
            // Nobody wants to know after an interrupt.
            let _ = ends.send(write_all(&dest, next));
        };
        let thread = thread::Builder::new()
            .name("output".to_owned())
            .spawn(write);
        thread.context("cannot start a thread")?;
        let export = Arc::clone(&self.export);
        let (mut stream, mut next) = self.begin(&export).await?;
        while let Some(data) = next {
            let len = gather_len(&data) as u64;
            if pieces.send(data).await.is_err() {
                // It could not be written: the thread says why.
                break;
            }
            self.shared.progress.add(len);
            next = stream.next().await?;
        }
        drop(pieces);
        let written = ended.await.expect("the thread does not panic");
        match to == Path::new(STREAM) {
            true => written.context("cannot write the output"),
            // A FIFO that nobody reads any more is an error, other than an output that nobody reads.
            false => written.map_err(|error| anyhow!("{}: cannot write: {error}", show::path(&to))),
        }
    }
}

fn write_all(to: &Path, mut pieces: mpsc::Receiver<Gather>) -> io::Result<()> {
    let mut file = open(to)?;
    while let Some(data) = pieces.blocking_recv() {
        for piece in &data {
            file.write_all(piece)?;
        }
    }
    Ok(())
}

/// Opens what is there, and makes nothing.
fn open(to: &Path) -> io::Result<File> {
    if to == Path::new(STREAM) {
        output::check()?;
        // Without the buffer for lines.
        return Ok(io::stdout().as_fd().try_clone_to_owned()?.into());
    }
    OpenOptions::new().write(true).open(to)
}
