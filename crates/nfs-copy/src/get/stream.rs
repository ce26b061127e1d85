//! The data of one file on its way to a stream, a device or a FIFO: in order, and without a name that it
//! could get at the end.

use super::Remote;
use crate::error::{Context, Error, Result};
use crate::show;
use oncrpc::xdr::{Gather, gather_len};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::thread;
use tokio::sync::{mpsc, oneshot};

impl Remote {
    /// Writes a regular file to the stream or to what is there. A thread of its own does it, for which
    /// nobody waits after an interrupt: it may wait for a reader for ever.
    pub(super) async fn stream(&mut self, to: PathBuf) -> Result<()> {
        let stop = self.shared.stop.clone();
        stop.unless(self.write_to(to)).await
    }

    async fn write_to(&mut self, to: PathBuf) -> Result<()> {
        let size = self.node.attributes.size;
        let _room = self.shared.room(size).await;
        self.shared.events.begun(size);
        // One piece is written while the next one comes.
        let (pieces, next) = mpsc::channel(1);
        let (ends, ended) = oneshot::channel();
        let dest = to.clone();
        let output = self.ends.output.lock();
        let output = output.unwrap_or_else(PoisonError::into_inner).take();
        let is_stream = output.is_some();
        let write = move || {
            // Nobody wants to know after an interrupt.
            let _ = ends.send(write_all(output, &dest, next));
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
            self.shared.events.transferred(len);
            next = stream.next().await?;
        }
        drop(pieces);
        let written = ended.await.expect("the thread does not panic");
        match is_stream {
            true => written.map_err(Error::Output),
            // A FIFO that nobody reads any more is an error, other than an output that nobody reads.
            false => written.with_context(|| format!("{}: cannot write", show::path(&to))),
        }
    }
}

fn write_all(
    output: Option<File>,
    to: &Path,
    mut pieces: mpsc::Receiver<Gather>,
) -> io::Result<()> {
    let mut file = match output {
        Some(output) => output,
        // What is there is opened, and nothing is made.
        None => OpenOptions::new().write(true).open(to)?,
    };
    while let Some(data) = pieces.blocking_recv() {
        for piece in &data {
            file.write_all(piece)?;
        }
    }
    Ok(())
}
