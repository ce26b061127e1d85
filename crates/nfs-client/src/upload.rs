//! Atomic uploads: a file appears under its name only when it is complete.

use crate::error::At;
use crate::{Error, Export, Fault, Nfs3, Node, WriteStream};
use nfs_proto::args::CreateHow;
use nfs_proto::{Attributes, FileHandle, FileType, Name, SetAttributes, Status};
use oncrpc::Transport;
use oncrpc::xdr::{Gather, gather_len};
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};

/// Ending of temporary names, before a number.
const MARK: &str = ".rpcrdma-";

/// Bytes of a name that every file system has room for.
const ALWAYS_FITS: usize = 64;

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
    /// Attributes that are set once the data is written.
    attributes: SetAttributes,
    stream: WriteStream<'c, T>,
    /// Attributes of the file when it was made or found, as far as the server told them.
    begun: Option<Attributes>,
    /// Whether the last bytes so far were left out, so that the size is still to be set.
    ends_in_hole: bool,
    /// How far the file is on stable storage, if it is to be continued when it is cut off.
    checkpoints: Option<Checkpoints>,
}

/// The file of an upload that is cut off, so that another upload can continue it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resume {
    /// The number in its temporary name: one that stands for one version of one source, so that what is there
    /// under that name is the beginning of the same data.
    pub number: u64,
    /// Bytes at the end of what is there that are sent again, as the server may have lost them. All before them
    /// is on stable storage: while it is sent, what is not never reaches back further.
    pub window: u64,
}

#[derive(Clone, Copy, Debug)]
struct Checkpoints {
    window: u64,
    /// All before this offset is on stable storage.
    stable_to: u64,
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
        let (temporary, file, begun) = create_temporary(export, dir, name, mode | WRITABLE)
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
            begun,
            ends_in_hole: false,
            checkpoints: None,
        })
    }

    pub(crate) async fn resume(
        export: &'c Export<T>,
        dir: FileHandle,
        name: Name<'_>,
        path: &[u8],
        (attributes, resume): (SetAttributes, Resume),
        is_ours: impl FnOnce(&Attributes) -> bool,
    ) -> Result<Self, Error> {
        let temporary = temporary_name(&name, resume.number);
        let (file, from, begun) = continued(export, dir, &temporary, resume, is_ours)
            .await
            .at("continue", export.full(path))?;
        Ok(Self {
            export,
            dir,
            name: name.to_vec(),
            temporary,
            path: path.to_vec(),
            attributes: SetAttributes {
                mode: Some(attributes.mode.unwrap_or(USUAL_MODE)),
                ..attributes
            },
            stream: export.write_at(file, from, path),
            begun,
            ends_in_hole: false,
            checkpoints: Some(Checkpoints {
                window: resume.window,
                stable_to: from,
            }),
        })
    }

    /// Begins anew, as what is there turned out to be something else.
    ///
    /// # Errors
    ///
    /// What the server says. Only [`abandon`](Self::abandon) is left to do then.
    pub async fn restart(&mut self) -> Result<(), Error> {
        let file = self.stream.handle();
        let empty = self.export.nfs().set_attributes(file, size(0), None).await;
        empty.at("begin anew", self.export.full(&self.path))?;
        self.stream = self.export.write_at(file, 0, &self.path);
        self.ends_in_hole = false;
        if let Some(checkpoints) = &mut self.checkpoints {
            checkpoints.stable_to = 0;
        }
        Ok(())
    }

    /// Offset of the next byte; of an upload that [continues](Export::resume_upload_in) one, how much is there
    /// already.
    pub fn offset(&self) -> u64 {
        self.stream.offset()
    }

    /// Handle of the file.
    pub fn handle(&self) -> FileHandle {
        self.stream.handle()
    }

    /// Attributes of the file from before anything was written, if the server told them.
    pub fn begun(&self) -> Option<&Attributes> {
        self.begun.as_ref()
    }

    /// Leaves out bytes: a hole, which reads as zeros.
    pub fn skip(&mut self, bytes: u64) {
        self.stream.skip(bytes);
        self.ends_in_hole |= bytes > 0;
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
        self.ends_in_hole &= data.is_empty();
        if let Some(Checkpoints { window, stable_to }) = &mut self.checkpoints {
            let begin = self.stream.offset();
            let end = begin.saturating_add(gather_len(&data) as u64);
            if end - *stable_to > *window {
                self.stream.finish().await?;
                *stable_to = begin;
            }
        }
        self.stream.write(data).await
    }

    /// Adds data at the end, and waits until all data is on stable storage; see
    /// [`WriteStream::write_last`].
    ///
    /// # Errors
    ///
    /// Those of [`write`](Self::write).
    pub async fn write_last(&mut self, data: Gather) -> Result<(), Error> {
        self.ends_in_hole &= data.is_empty();
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
        self.settle().await?;
        let nfs = self.export.nfs();
        let from = Name::new(&self.temporary).at("name", self.export.full(&self.path))?;
        let to = Name::new(&self.name).at("name", self.export.full(&self.path))?;
        let (dir, ours) = (self.dir, self.stream.handle());
        let named = nfs.rename_file(ours, (dir, from), (dir, to)).await;
        named.at("name", self.export.full(&self.path))
    }

    /// Like [`complete`](Self::complete), but replaces nothing: the name is given by LINK, which does not replace, or
    /// where the server has no links by RENAME after a look.
    ///
    /// # Errors
    ///
    /// [`Status::Exist`] if something has the name, and those of [`complete`](Self::complete). Only
    /// [`abandon`](Self::abandon) is useful after that.
    pub async fn complete_new(&mut self) -> Result<(), Error> {
        self.settle().await?;
        let names = (&self.temporary[..], &self.name[..]);
        let named = name_new(self.export.nfs(), self.stream.handle(), self.dir, names).await;
        named.at("name", self.export.full(&self.path))
    }

    /// Waits until all data is on stable storage, and sets the attributes. Others that are set from then on stay.
    ///
    /// # Errors
    ///
    /// Those of [`finish`](Self::finish). Only [`abandon`](Self::abandon) is useful after that.
    pub async fn settle(&mut self) -> Result<(), Error> {
        self.settle_data().await?;
        self.settle_attributes().await
    }

    /// Waits until all data is on stable storage, and sets the size if the file ends in a hole.
    ///
    /// # Errors
    ///
    /// Those of [`finish`](Self::finish). Only [`abandon`](Self::abandon) is useful after that.
    pub async fn settle_data(&mut self) -> Result<(), Error> {
        self.stream.finish().await?;
        if std::mem::take(&mut self.ends_in_hole) {
            let file = self.stream.handle();
            let set = size(self.stream.offset());
            let set = self.export.nfs().set_attributes(file, set, None).await;
            set.at("change the size of", self.export.full(&self.path))?;
        }
        Ok(())
    }

    /// Sets the attributes that the file is to have and could not be made with, if there are any.
    ///
    /// # Errors
    ///
    /// The server's error, or a failed call. If the server refuses, the file can still be given its name
    /// [without](Self::complete) them: they are not set again.
    pub async fn settle_attributes(&mut self) -> Result<(), Error> {
        let attributes = std::mem::take(&mut self.attributes);
        if attributes != SetAttributes::default() {
            let file = self.stream.handle();
            let set = self
                .export
                .nfs()
                .set_attributes(file, attributes, None)
                .await;
            set.at("change attributes of", self.export.full(&self.path))?;
        }
        Ok(())
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

/// Sets the size alone.
fn size(bytes: u64) -> SetAttributes {
    SetAttributes {
        size: Some(bytes),
        ..SetAttributes::default()
    }
}

/// The file of this temporary name, and how much of it is there and on stable storage; a new one, if there is
/// none.
async fn continued<T: Transport + Send + Sync>(
    export: &Export<T>,
    dir: FileHandle,
    temporary: &[u8],
    resume: Resume,
    is_ours: impl FnOnce(&Attributes) -> bool,
) -> Result<(FileHandle, u64, Option<Attributes>), Fault> {
    let name = Name::new(temporary)?;
    let Node { handle, attributes } = match export.lookup(dir, name).await {
        Ok(found) => found,
        Err(Fault::Status(Status::NoEntry)) => {
            let how = CreateHow::Guarded(SetAttributes {
                mode: Some(WRITABLE),
                ..SetAttributes::default()
            });
            let (handle, attributes) = export.create_in(dir, name, how).await?;
            return Ok((handle, 0, attributes));
        }
        Err(fault) => return Err(fault),
    };
    let is_file = attributes.file_type == FileType::Regular && attributes.links == 1;
    if !is_file || !is_ours(&attributes) {
        return Err(Status::Exist.into());
    }
    // What is behind that stays: another upload may be sending it at this moment.
    let from = attributes.size.saturating_sub(resume.window);
    Ok((handle, from, Some(attributes)))
}

/// Gives a file of a temporary name its name, unless something has that.
async fn name_new<T: Transport + Send + Sync>(
    nfs: &Nfs3<T>,
    file: FileHandle,
    dir: FileHandle,
    (temporary, name): (&[u8], &[u8]),
) -> Result<(), Fault> {
    let (from, to) = (Name::new(temporary)?, Name::new(name)?);
    match nfs.link(file, dir, to).await {
        Ok(()) => {}
        Err(Fault::Status(Status::Exist)) => {
            // The call came a second time to a server that has forgotten the first, or so it seems.
            if !nfs.is_name_of(file, dir, to).await {
                return Err(Status::Exist.into());
            }
        }
        Err(Fault::Status(_)) => {
            return match nfs.lookup(dir, to).await {
                Ok(_) => Err(Status::Exist.into()),
                Err(Fault::Status(Status::NoEntry)) => {
                    nfs.rename_file(file, (dir, from), (dir, to)).await
                }
                Err(fault) => Err(fault),
            };
        }
        Err(fault) => return Err(fault),
    }
    match nfs.remove(dir, from).await {
        Ok(()) | Err(Fault::Status(Status::NoEntry)) => Ok(()),
        Err(fault) => Err(fault),
    }
}

/// Creates a file of a name nobody else has: GUARDED, which sets its mode in the same call, where
/// EXCLUSIVE would need a SETATTR behind it (RFC 1813 §3.3.8).
async fn create_temporary<T: Transport + Send + Sync>(
    export: &Export<T>,
    dir: FileHandle,
    name: Name<'_>,
    mode: u32,
) -> Result<(Vec<u8>, FileHandle, Option<Attributes>), Fault> {
    let how = CreateHow::Guarded(SetAttributes {
        mode: Some(mode),
        ..SetAttributes::default()
    });
    for _ in 0..MAX_TRIES {
        let number = RandomState::new().hash_one(name.get());
        let temporary = temporary_name(&name, number);
        let place = Name::new(&temporary)?;
        match export.create_in(dir, place, how).await {
            Ok((handle, attributes)) => return Ok((temporary, handle, attributes)),
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

/// Returns the name of an incomplete file: `.NAME.rpcrdma-NUMBER`. The number must be unique for each name.
///
/// Some file systems have shorter names than others: a name of more than 64 bytes is longer than the final name in no
/// case, and has the beginning of it and another number.
pub fn temporary_name(name: &[u8], number: u64) -> Vec<u8> {
    let end = |number: u64| format!("{MARK}{number:016x}");
    let room = name.len().max(ALWAYS_FITS) - 1 - end(number).len();
    if name.len() <= room {
        return [b".", name, end(number).as_bytes()].concat();
    }
    // Others begin in the same way.
    let mut hasher = DefaultHasher::new();
    (name, number).hash(&mut hasher);
    [b".", beginning(name, room), end(hasher.finish()).as_bytes()].concat()
}

/// At most so many bytes at the beginning of a name, and no part of a character: there are file systems that have text
/// alone for names.
fn beginning(name: &[u8], room: usize) -> &[u8] {
    let continues = |at: usize| name.get(at).is_some_and(|byte| byte & 0xc0 == 0x80);
    let mut end = room.min(name.len());
    while end > room.saturating_sub(3) && continues(end) {
        end -= 1;
    }
    match continues(end) {
        // It is no text.
        true => &name[..room],
        false => &name[..end],
    }
}

/// Whether a name is one that [`temporary_name`] gives.
pub fn is_temporary_name(name: &[u8]) -> bool {
    let Some(rest) = name.strip_prefix(b".") else {
        return false;
    };
    let Some((kept, number)) = rest.split_last_chunk::<16>() else {
        return false;
    };
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    kept.ends_with(MARK.as_bytes()) && number.iter().all(is_digit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfs_proto::limits::MAX_NAME;

    #[test]
    fn temporary_names_are_valid_however_long_the_name_is() {
        let short = temporary_name(b"a", 1);
        assert_eq!(short, b".a.rpcrdma-0000000000000001");
        for len in 1..=MAX_NAME {
            let long = temporary_name(&vec![b'x'; len], 1);
            assert!(Name::new(&long).is_ok());
            assert!(is_temporary_name(&long));
            assert!(long.len() <= len.max(ALWAYS_FITS), "{len}");
        }
    }

    #[test]
    fn temporary_names_of_long_names_differ_and_are_text_if_those_are() {
        let long = "\u{e9}".repeat(70);
        let one = temporary_name(long.as_bytes(), 1);
        assert!(std::str::from_utf8(&one).is_ok());
        let other = temporary_name(format!("{long}x").as_bytes(), 1);
        assert_ne!(one, other);
        assert_eq!(one, temporary_name(long.as_bytes(), 1));
        assert_ne!(one, temporary_name(long.as_bytes(), 2));
        let bytes = [0x80; 100];
        assert_eq!(temporary_name(&bytes, 1).len(), 100);
    }

    #[test]
    fn temporary_names_are_recognised() {
        assert!(is_temporary_name(&temporary_name(b"a", u64::MAX)));
        assert!(is_temporary_name(&temporary_name(&[b'x'; MAX_NAME], 1)));
        for other in [
            "a",
            ".a.rpcrdma-1",
            "a.rpcrdma-0000000000000001",
            ".a.rpcrdma-000000000000000G",
            ".a.rpcrdma-0000000000000001~",
        ] {
            assert!(!is_temporary_name(other.as_bytes()), "{other}");
        }
    }
}
