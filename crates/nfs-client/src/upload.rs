//! Atomic uploads: a file appears under its name only when it is complete.

use crate::error::At;
use crate::{Error, Export, Fault, Nfs3, WriteStream};
use nfs_proto::args::CreateHow;
use nfs_proto::limits::MAX_NAME;
use nfs_proto::{FileHandle, Name, SetAttributes, Status};
use oncrpc::Transport;
use oncrpc::xdr::Gather;
use std::hash::{BuildHasher, RandomState};

/// What temporary names end in, before a number.
const MARK: &str = ".rpcrdma-";

/// Permissions of a file for which none are asked.
const USUAL_MODE: u32 = 0o644;

/// Permissions without which its owner could not write a file.
const WRITABLE: u32 = 0o600;

/// Temporary names that are tried before giving up.
const MAX_TRIES: u32 = 8;

/// A new file being written under a temporary name.
///
/// Dropping it leaves the temporary file behind, because a drop cannot send anything. The temporary
/// name begins with a dot and contains `.rpcrdma-`. [`abandon`](Self::abandon) removes the file.
pub struct Upload<'c, T> {
    export: &'c Export<T>,
    dir: FileHandle,
    name: Vec<u8>,
    temporary: Vec<u8>,
    path: Vec<u8>,
    /// What is left to be set when the data is written.
    attributes: SetAttributes,
    stream: WriteStream<'c, T>,
}

impl<'c, T: Transport + Send + Sync> Upload<'c, T> {
    pub(crate) async fn begin(
        export: &'c Export<T>,
        dir: FileHandle,
        name: Name<'_>,
        path: &[u8],
        attributes: SetAttributes,
    ) -> Result<Self, Error> {
        let mode = attributes.mode.unwrap_or(USUAL_MODE);
        let (temporary, file) = create_temporary(export, dir, name, mode | WRITABLE)
            .await
            .at("create", export.full(path))?;
        let set = mode == mode | WRITABLE && attributes.uid.is_none() && attributes.gid.is_none();
        Ok(Self {
            export,
            dir,
            name: name.to_vec(),
            temporary,
            path: path.to_vec(),
            attributes: SetAttributes {
                mode: (!set).then_some(mode),
                ..attributes
            },
            stream: export.write_at(file, 0, path),
        })
    }

    /// The stream that writes the file.
    pub fn stream(&mut self) -> &mut WriteStream<'c, T> {
        &mut self.stream
    }

    /// Returns the name of the file until it is finished.
    pub fn temporary_name(&self) -> &[u8] {
        &self.temporary
    }

    /// Adds data at the end; see [`WriteStream::write`].
    ///
    /// # Errors
    ///
    /// The server's error, or a failed call. Only [`abandon`](Self::abandon) is useful after that.
    pub async fn write(&mut self, data: Gather) -> Result<(), Error> {
        self.stream.write(data).await
    }

    /// Adds data at the end, and waits until all data is on stable storage; see
    /// [`WriteStream::write_last`].
    ///
    /// # Errors
    ///
    /// Those of [`write`](Self::write).
    pub async fn write_last(&mut self, data: Gather) -> Result<(), Error> {
        self.stream.write_last(data).await
    }

    /// Waits until all data is on stable storage, sets the attributes, and gives the file its
    /// name. On failure the temporary file is removed.
    ///
    /// # Errors
    ///
    /// The server's error, or a failed call. The previous entry of the name is untouched then.
    pub async fn finish(mut self) -> Result<(), Error> {
        let finished = self.complete().await;
        if finished.is_err() {
            // The error that led here is the one that counts.
            let _ = self.abandon().await;
        }
        finished
    }

    /// Like [`finish`](Self::finish), but leaves removing the temporary file on failure to
    /// [`abandon`](Self::abandon).
    ///
    /// # Errors
    ///
    /// Those of [`finish`](Self::finish). Only [`abandon`](Self::abandon) is useful after that.
    pub async fn complete(&mut self) -> Result<(), Error> {
        self.stream.finish().await?;
        let nfs = self.export.nfs();
        if self.attributes != SetAttributes::default() {
            nfs.set_attributes(self.stream.handle(), self.attributes, None)
                .await
                .at("change attributes of", self.export.full(&self.path))?;
        }
        let from = Name::new(&self.temporary).at("name", self.export.full(&self.path))?;
        let to = Name::new(&self.name).at("name", self.export.full(&self.path))?;
        let (dir, ours) = (self.dir, self.stream.handle());
        let named = match nfs.rename((dir, from), (dir, to)).await {
            // The call came a second time to a server that has forgotten the first, or so it seems.
            Err(Fault::Status(Status::NoEntry)) if has_name(nfs, ours, dir, to).await => Ok(()),
            named => named,
        };
        named.at("name", self.export.full(&self.path))
    }

    /// Removes the temporary file.
    ///
    /// # Errors
    ///
    /// If the server refuses. The file is left behind under its [temporary
    /// name](Self::temporary_name).
    pub async fn abandon(self) -> Result<(), Error> {
        let Self {
            export,
            dir,
            temporary,
            path,
            stream,
            ..
        } = self;
        // What is in flight must not write after the file is gone.
        drop(stream);
        let name = Name::new(&temporary).at("remove", export.full(&path))?;
        let removed = export.nfs().remove(dir, name).await;
        removed.at("remove", export.full(&path))
    }
}

/// Whether a file is what has a name. Handles of one file may differ; numbers do not.
async fn has_name<T: Transport + Send + Sync>(
    nfs: &Nfs3<T>,
    file: FileHandle,
    dir: FileHandle,
    name: Name<'_>,
) -> bool {
    match nfs.lookup(dir, name).await {
        Ok((found, _)) if found == file => true,
        Ok((found, _)) => {
            let both = (
                nfs.get_attributes(found).await,
                nfs.get_attributes(file).await,
            );
            matches!(both, (Ok(found), Ok(file))
                if (found.fsid, found.file_id) == (file.fsid, file.file_id))
        }
        // The first error is the one that counts.
        Err(_) => false,
    }
}

/// Creates a file of a name nobody else has: GUARDED, which sets its mode in the same call, where
/// EXCLUSIVE would need a SETATTR behind it (RFC 1813 §3.3.8).
async fn create_temporary<T: Transport + Send + Sync>(
    export: &Export<T>,
    dir: FileHandle,
    name: Name<'_>,
    mode: u32,
) -> Result<(Vec<u8>, FileHandle), Fault> {
    let how = CreateHow::Guarded(SetAttributes {
        mode: Some(mode),
        ..SetAttributes::default()
    });
    for _ in 0..MAX_TRIES {
        let number = RandomState::new().hash_one(name.get());
        let temporary = temporary_name(&name, number);
        let place = Name::new(&temporary)?;
        match export.create_in(dir, place, how).await {
            Ok(handle) => return Ok((temporary, handle)),
            // The call came a second time to a server that has forgotten the first, or so it seems:
            // nobody else knows the name. If it cannot be removed, that is told by nobody.
            Err(Fault::Status(Status::Exist)) => {
                let _ = export.nfs().remove(dir, place).await;
            }
            Err(fault) => return Err(fault),
        }
    }
    Err(Status::Exist.into())
}

/// Returns the name of an incomplete file: `.NAME.rpcrdma-NUMBER`, with as much of the final name
/// as fits. The number must be unique.
pub fn temporary_name(name: &[u8], number: u64) -> Vec<u8> {
    let end = format!("{MARK}{number:016x}");
    let room = MAX_NAME - 1 - end.len();
    let kept = &name[..name.len().min(room)];
    [b".", kept, end.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_names_are_valid_however_long_the_name_is() {
        let short = temporary_name(b"a", 1);
        assert_eq!(short, b".a.rpcrdma-0000000000000001");
        let long = [b'x'; MAX_NAME];
        let long = temporary_name(&long, 1);
        assert_eq!(long.len(), MAX_NAME);
        assert!(Name::new(&long).is_ok());
    }
}
