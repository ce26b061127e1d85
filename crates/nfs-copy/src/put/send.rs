//! The data of one file on its way to a server.

use super::Put;
use super::reader::{Piece, Reader, has_holes};
use crate::attributes::Wanted;
use crate::connection::Connection;
use crate::error::{Changed, Context, Result};
use crate::made_names::Made;
use crate::resume::{Version, are_equal};
use crate::show;
use crate::sparse::Sparse;
use crate::upload::{Uploaded, write_data};
use bytes::Bytes;
use nfs_client::Upload;
use nfs_proto::FileHandle;
use oncrpc::xdr::Gather;
use std::fs::{File, Metadata};
use std::path::Path;
use std::sync::Arc;

impl Put {
    /// Copies a file that was read as a whole.
    pub(super) async fn small(
        &self,
        data: Bytes,
        wanted: &Wanted,
        (dir, to, made): (FileHandle, &[u8], &Made),
    ) -> Result<Uploaded> {
        let len = data.len() as u64;
        let to = (&*self.export, dir, to);
        let sent = self
            .shared
            .upload(to, made, len, wanted, None, async |upload| {
                upload.write_last(Gather::from_elem(data, 1)).await?;
                self.shared.events.transferred(len);
                Ok(())
            });
        sent.await
    }

    /// Copies a file that is read while it is sent.
    pub(super) async fn large(
        &self,
        source: &Path,
        (file, size): (File, u64),
        wanted: &Wanted,
        (dir, to, made): (FileHandle, &[u8], &Made),
    ) -> Result<Uploaded> {
        let unreadable = || format!("{}: cannot read", show::path(source));
        let about = file.metadata().with_context(unreadable)?;
        let file = Arc::new(file);
        let resume = self.shared.resumes(size, &about);
        let version = resume.as_ref().map(|(version, _)| *version);
        let target = (&*self.export, dir, to);
        let sent = self
            .shared
            .upload(target, made, size, wanted, resume, async |upload| {
                let there = upload.offset();
                if there > 0 {
                    let remote = (upload.handle(), to);
                    match are_equal(&self.export, remote, &file, there).await? {
                        true => self.shared.events.already_there(there),
                        false => upload.restart().await?,
                    }
                }
                self.send(&file, source, upload, &about).await?;
                if let Some(version) = version {
                    let now = file.metadata().with_context(unreadable)?;
                    if version != Version::from(&now) {
                        return Err(Changed).with_context(|| show::path(source));
                    }
                }
                Ok(())
            });
        sent.await
    }

    /// Sends a file, from where the upload is.
    async fn send(
        &self,
        file: &Arc<File>,
        source: &Path,
        upload: &mut Upload<'_, Connection>,
        about: &Metadata,
    ) -> Result<()> {
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
            self.shared.events.transferred(len);
        }
    }
}
