//! The data of one file on its way to a server.

use super::Put;
use super::read::Reader;
use crate::interrupt::Interrupted;
use crate::show;
use anyhow::Context;
use bytes::Bytes;
use nfs_client::Upload;
use nfs_proto::{FileHandle, SetAttributes};
use oncrpc::xdr::Gather;
use rpcrdma::Client;
use std::fs::File;
use std::path::Path;
use std::time::Duration;
use tokio::time::timeout;

/// How long a server may take, after an interrupt, to make a file or give it its name, and to remove what is
/// incomplete: who interrupts a copy may do so because the server does not answer.
const REMOVED_WITHIN: Duration = Duration::from_secs(3);

impl Put {
    /// Copies a file that was read as a whole.
    pub(super) async fn small(
        &self,
        data: Bytes,
        mode: u32,
        dir: FileHandle,
        to: &[u8],
    ) -> anyhow::Result<()> {
        let len = data.len() as u64;
        self.copied((len, mode), dir, to, async |upload| {
            upload.write_last(Gather::from_elem(data, 1)).await?;
            self.shared.progress.add(len);
            Ok(())
        })
        .await
    }

    /// Copies a file that is read while it is sent.
    pub(super) async fn large(
        &self,
        source: &Path,
        (file, size, mode): (File, u64, u32),
        dir: FileHandle,
        to: &[u8],
    ) -> anyhow::Result<()> {
        self.copied((size, mode), dir, to, async |upload| {
            self.send(file, source, upload).await
        })
        .await
    }

    /// Makes a file that gets its name when `send` is through; an interrupt removes it.
    async fn copied(
        &self,
        (size, mode): (u64, u32),
        dir: FileHandle,
        to: &[u8],
        send: impl AsyncFnOnce(&mut Upload<'_, Client>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        self.shared.progress.begin(size);
        let attributes = SetAttributes {
            // What runs with the rights of its owner is made so by the owner, not by copying.
            mode: Some(mode & 0o777),
            ..SetAttributes::default()
        };
        let interrupt = &self.shared.interrupt;
        let begun = self.export.upload_in(dir, to, attributes);
        let begun = interrupt.unless_late(REMOVED_WITHIN, begun).await;
        let mut upload = begun.inspect_err(|error| {
            // Whether it was begun is not known.
            if error.is::<Interrupted>() {
                self.shared.leave_incomplete();
            }
        })?;
        let sent = send(&mut upload);
        let copied = match interrupt.unless(sent).await {
            Ok(()) => {
                let completed = upload.complete();
                interrupt.unless_late(REMOVED_WITHIN, completed).await
            }
            Err(error) => Err(error),
        };
        if copied.is_err() {
            let removed = timeout(REMOVED_WITHIN, upload.abandon()).await;
            if !matches!(removed, Ok(Ok(()))) {
                self.shared.leave_incomplete();
            }
        }
        copied
    }

    /// Sends a file.
    async fn send(
        &self,
        file: File,
        source: &Path,
        upload: &mut Upload<'_, Client>,
    ) -> anyhow::Result<()> {
        let mut reader = Reader::new(file, &self.pool);
        loop {
            let piece = reader.next().await;
            let piece = piece.with_context(|| format!("cannot read {}", show::path(source)))?;
            if piece.is_empty() {
                return Ok(());
            }
            let len = piece.len() as u64;
            upload.write(Gather::from_elem(piece.freeze(), 1)).await?;
            self.shared.progress.add(len);
        }
    }
}
