//! The data of one file on its way to a server.

use super::Put;
use super::read::{Piece, Reader, has_holes};
use crate::copy::attributes::Wanted;
use crate::copy::resume::{Changed, Kept, RESUME_WINDOW, Version, are_equal, is_ours};
use crate::copy::sparse::{Sparse, runs};
use crate::interrupt::Interrupted;
use crate::show;
use anyhow::Context;
use bytes::Bytes;
use nfs_client::{Resume, Upload};
use nfs_proto::{FileHandle, SetAttributes, Status};
use oncrpc::xdr::Gather;
use rpcrdma::Client;
use std::fs::{File, Metadata};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long a server may take, after an interrupt, to make a file or give it its name, and to remove what is
/// incomplete: who interrupts a copy may do so because the server does not answer.
pub(super) const REMOVED_WITHIN: Duration = Duration::from_secs(3);

impl Put {
    /// Copies a file that was read as a whole, and returns the handle of the copy.
    pub(super) async fn small(
        &self,
        data: Bytes,
        wanted: &Wanted,
        dir: FileHandle,
        to: &[u8],
    ) -> anyhow::Result<FileHandle> {
        let len = data.len() as u64;
        self.copied(len, wanted, dir, to, None, async |upload| {
            upload.write_last(Gather::from_elem(data, 1)).await?;
            self.shared.progress.add(len);
            Ok(())
        })
        .await
    }

    /// Copies a file that is read while it is sent, and returns its handle.
    pub(super) async fn large(
        &self,
        source: &Path,
        (file, size): (File, u64),
        wanted: &Wanted,
        dir: FileHandle,
        to: &[u8],
    ) -> anyhow::Result<FileHandle> {
        let unreadable = || format!("{}: cannot read", show::path(source));
        let about = file.metadata().with_context(unreadable)?;
        let file = Arc::new(file);
        let resume = self.shared.resumes(size, &about);
        let version = resume.as_ref().map(|(version, _)| *version);
        self.copied(size, wanted, dir, to, resume, async |upload| {
            let there = upload.offset();
            if there > 0 {
                let remote = (upload.handle(), to);
                match are_equal(&self.export, remote, &file, there).await? {
                    true => self.shared.progress.already(there),
                    false => upload.restart().await?,
                }
            }
            self.send(&file, source, upload, &about).await?;
            if let Some(version) = version {
                let now = file.metadata().with_context(unreadable)?;
                if version != Version::from(&now) {
                    return Err(anyhow::Error::new(Changed).context(show::path(source)));
                }
            }
            Ok(())
        })
        .await
    }

    /// Makes a file that gets its name when `send` is through; an interrupt removes it, unless it can be
    /// continued. Returns its handle.
    pub(super) async fn copied(
        &self,
        size: u64,
        wanted: &Wanted,
        dir: FileHandle,
        to: &[u8],
        resume: Option<(Version, Kept)>,
        send: impl AsyncFnOnce(&mut Upload<'_, Client>) -> anyhow::Result<()>,
    ) -> anyhow::Result<FileHandle> {
        self.shared.progress.begin(size);
        let attributes = SetAttributes {
            mode: Some(wanted.first_mode()),
            ..SetAttributes::default()
        };
        let interrupt = &self.shared.interrupt;
        let begun = async {
            let Some((version, kept)) = resume else {
                return Ok((self.export.upload_in(dir, to, attributes).await?, None));
            };
            let resume = Resume {
                number: version.number(),
                window: RESUME_WINDOW,
            };
            let resumed = self
                .export
                .resume_upload_in(dir, to, attributes, resume, is_ours);
            match resumed.await {
                Ok(upload) => Ok((upload, Some(kept))),
                // Somebody else has put something there.
                Err(error) if error.status() == Some(Status::Exist) => {
                    kept.done();
                    Ok((self.export.upload_in(dir, to, attributes).await?, None))
                }
                Err(error) => {
                    kept.done();
                    Err(error)
                }
            }
        };
        let begun = interrupt.unless_late(REMOVED_WITHIN, begun).await;
        let (mut upload, kept) = begun.inspect_err(|error| {
            // Whether it was begun is not known.
            if error.is::<Interrupted>() {
                self.shared.leave_incomplete();
            }
        })?;
        let sent = async {
            send(&mut upload).await?;
            if let Some(kept) = &wanted.kept {
                // All of it is written first: that would change the times.
                upload.settle().await?;
                kept.set_remote(self.export.nfs(), upload.handle(), to)
                    .await?;
            }
            Ok(())
        };
        let copied = match interrupt.unless(sent).await {
            Ok(()) => {
                let completed = async {
                    match self.shared.options.keeps_existing {
                        true => upload.complete_new().await,
                        false => upload.complete().await,
                    }
                };
                interrupt.unless_late(REMOVED_WITHIN, completed).await
            }
            Err(error) => Err(error),
        };
        let error = match copied {
            Ok(()) => {
                if let Some(kept) = kept {
                    kept.done();
                }
                return Ok(upload.handle());
            }
            Err(error) => error,
        };
        match kept {
            // It stays, and is counted as it is dropped.
            Some(kept) if !error.is::<Changed>() && !is_taken(&error) => {
                drop(kept);
                return Err(error);
            }
            Some(kept) => kept.done(),
            None => {}
        }
        let removed = timeout(REMOVED_WITHIN, upload.abandon()).await;
        if !matches!(removed, Ok(Ok(()))) {
            self.shared.leave_incomplete();
        }
        Err(error)
    }

    /// Sends a file, from where the upload is.
    async fn send(
        &self,
        file: &Arc<File>,
        source: &Path,
        upload: &mut Upload<'_, Client>,
        about: &Metadata,
    ) -> anyhow::Result<()> {
        let holes = self.shared.options.sparse != Sparse::Never && has_holes(about);
        let mut reader = Reader::new(Arc::clone(file), &self.pool, upload.offset(), holes);
        loop {
            let piece = reader.next().await;
            let piece = piece.with_context(|| format!("{}: cannot read", show::path(source)))?;
            let len = match piece {
                Piece::End => return Ok(()),
                Piece::Hole(len) => {
                    upload.skip(len);
                    len
                }
                Piece::Data(piece) => {
                    let len = piece.len() as u64;
                    let data = piece.freeze();
                    match self.shared.options.sparse {
                        Sparse::Always => write_data(upload, &data).await?,
                        Sparse::Auto | Sparse::Never => {
                            upload.write(Gather::from_elem(data, 1)).await?;
                        }
                    }
                    len
                }
            };
            self.shared.progress.add(len);
        }
    }
}

/// Whether something was not copied because there is something by now.
pub(super) fn is_taken(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<nfs_client::Error>();
    error.is_some_and(|error| error.status() == Some(Status::Exist))
}

/// Writes data, and leaves out zeros.
async fn write_data(upload: &mut Upload<'_, Client>, data: &Bytes) -> anyhow::Result<()> {
    for run in runs(data, upload.offset()) {
        match run.is_hole {
            true => upload.skip(run.data.len() as u64),
            false => {
                let run = data.slice_ref(run.data);
                upload.write(Gather::from_elem(run, 1)).await?;
            }
        }
    }
    Ok(())
}
