//! Things that copies make on a server: directories, files that get their names when they are complete, and what has no
//! data.

use super::access_lists::RemoteList;
use super::attributes::{Wanted, is_of_attributes, opened_mode};
use super::copy::Shared;
use super::entry::split;
use super::made_names::{Collision, FileId, Made};
use super::resume::{Kept as KeptFile, RESUME_WINDOW, Version, is_ours};
use super::sparse::runs;
use crate::connection::Connection;
use crate::error::{Error, Result};
use bytes::Bytes;
use nfs_client::{Export, Fault, Nfs3, Node, Resume, Upload};
use nfs_proto::{Attributes, FileHandle, FileType, Name, SetAttributes, Status, args};
use oncrpc::xdr::Gather;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;
use tokio::time::timeout;

/// How long a server may take, after an interrupt, to make a file or give it its name, and to remove what is
/// incomplete: who interrupts a copy may do so because the server does not answer.
pub(crate) const REMOVED_WITHIN: Duration = Duration::from_secs(3);

/// A file that a copy has made on a server, under its name.
#[derive(Debug)]
pub(crate) struct Uploaded {
    pub(crate) handle: FileHandle,
    /// Its numbers, if the server tells them.
    pub(crate) id: Option<FileId>,
    /// Why it lacks attributes, if it does.
    pub(crate) set: Result<()>,
}

impl Shared {
    /// Makes a file that gets its name when `send` is through; an interrupt removes it, unless it can be
    /// continued.
    ///
    /// # Errors
    ///
    /// There is no file of that name, or still the one that was there before.
    pub(crate) async fn upload(
        &self,
        (export, dir, to): (&Export<Connection>, FileHandle, &[u8]),
        made: &Made,
        size: u64,
        wanted: &Wanted,
        resume: Option<(Version, KeptFile)>,
        send: impl AsyncFnOnce(&mut Upload<'_, Connection>) -> Result<()>,
    ) -> Result<Uploaded> {
        self.events.begun(size);
        let stop = &self.stop;
        let (list, wanted) = match wanted.replaced {
            Some(replaced) => {
                let now = self.replaced_now((export, dir, to), replaced, wanted);
                stop.unless(now).await?
            }
            None => (None, *wanted),
        };
        let attributes = SetAttributes {
            mode: Some(match &list {
                // It may take rights away that the mode gives.
                Some(_) => 0o600,
                None => wanted.first_mode(),
            }),
            ..SetAttributes::default()
        };
        let begun = async {
            let Some((version, kept)) = resume else {
                return Ok((export.upload_in(dir, to, attributes).await?, None));
            };
            let resume = Resume {
                number: version.number(),
                window: RESUME_WINDOW,
            };
            let resumed = export.resume_upload_in(dir, to, attributes, resume, is_ours);
            match resumed.await {
                Ok(upload) => Ok((upload, Some(kept))),
                // Somebody else has put something there.
                Err(error) if error.status() == Some(Status::Exist) => {
                    kept.done();
                    Ok((export.upload_in(dir, to, attributes).await?, None))
                }
                Err(error) => {
                    kept.done();
                    Err(error)
                }
            }
        };
        let begun = stop.unless_late(REMOVED_WITHIN, begun).await;
        let (mut upload, kept) = begun.inspect_err(|error| {
            // Whether it was begun is not known.
            if matches!(error, Error::Stopped) {
                self.leave_incomplete();
            }
        })?;
        let id_of = |about: &Attributes| (about.fsid, about.file_id.0);
        let mut id = upload.begun().map(id_of);
        let owner = upload.begun().map(|begun| (begun.uid, begun.gid));
        let sent = async {
            send(&mut upload).await?;
            if id.is_none() {
                let about = export.nfs().get_attributes(upload.handle()).await;
                id = about.ok().as_ref().map(id_of);
            }
            if let Some(id) = id {
                made.note(id);
            }
            // All of it is written first: that would change the times.
            upload.settle_data().await?;
            let set = async {
                upload.settle_attributes().await?;
                let file = (upload.handle(), to);
                wanted
                    .set_remote(export.nfs(), file, list.as_ref(), owner)
                    .await
            };
            match set.await {
                // It is not thrown away for what it lacks.
                Err(error) if is_of_attributes(&error) => Ok(Err(error)),
                set => set.map(Ok),
            }
        };
        let mut set = Ok(());
        let copied = match stop.unless(sent).await {
            Ok(were_set) => {
                set = were_set;
                let completed = async {
                    match self.options.keeps_existing {
                        true => upload.complete_new().await,
                        false => upload.complete().await,
                    }
                };
                stop.unless_late(REMOVED_WITHIN, completed).await
            }
            Err(error) => Err(error),
        };
        let error = match copied {
            Ok(()) => {
                if let Some(kept) = kept {
                    kept.done();
                }
                let handle = upload.handle();
                return Ok(Uploaded { handle, id, set });
            }
            Err(error) => error,
        };
        match kept {
            // It stays, and is counted as it is dropped.
            Some(kept) if !matches!(error.cause(), Error::Changed(_)) && !is_taken(&error) => {
                drop(kept);
                return Err(error);
            }
            Some(kept) => kept.done(),
            None => {}
        }
        let removed = timeout(REMOVED_WITHIN, upload.abandon()).await;
        if !matches!(removed, Ok(Ok(()))) {
            self.leave_incomplete();
        }
        Err(error)
    }

    /// The list of the file that is replaced, and what is wanted in its place: its mode and owner may be others than those
    /// it had when the copy was planned, and it may be another file.
    async fn replaced_now(
        &self,
        (export, dir, to): (&Export<Connection>, FileHandle, &[u8]),
        replaced: FileHandle,
        wanted: &Wanted,
    ) -> Result<(Option<RemoteList>, Wanted)> {
        let nfs = export.nfs();
        let found = async {
            match self.lists.of(nfs, replaced).await {
                Err(Fault::Status(Status::Stale | Status::NoEntry)) => {
                    let (now, _) = nfs.lookup(dir, Name::new(split(to).1)?).await?;
                    self.lists.of(nfs, now).await
                }
                found => found,
            }
        };
        match found.await {
            Ok((list, now)) => Ok((list, wanted.in_place_of_what_is_there(&now))),
            // Nothing is replaced by now.
            Err(Fault::Status(Status::NoEntry)) => Ok((None, *wanted)),
            Err(fault) => {
                let doing = "read the access control list of";
                Err(nfs.error_at(fault, doing, to).into())
            }
        }
    }
}

/// Looks whether what has a name was made by the same copy: another name of it may lead there, as some servers do not
/// tell the two apart. Returns its numbers if so.
///
/// # Errors
///
/// Errors of the server.
pub(crate) async fn find_made(
    export: &Export<Connection>,
    (dir, to): (FileHandle, &[u8]),
    made: &Made,
) -> Result<Option<FileId>> {
    let nfs = export.nfs();
    let found = async {
        let (handle, attributes) = nfs.lookup(dir, Name::new(split(to).1)?).await?;
        match attributes {
            Some(attributes) => Ok(attributes),
            None => nfs.get_attributes(handle).await,
        }
    };
    match found.await {
        Ok(found) => {
            let found = (found.fsid, found.file_id.0);
            let is_made = made.has(found) || !is_listed(export, (dir, to)).await;
            Ok(is_made.then_some(found))
        }
        Err(Fault::Status(Status::NoEntry)) => Ok(None),
        Err(fault) => Err(nfs.error_at(fault, "find", to).into()),
    }
}

/// Whether a directory lists the very name of this path. What has the name otherwise has another spelling of it, which
/// the server does not tell apart. It reads the whole directory; where that is not permitted, the name counts as listed.
pub(crate) async fn is_listed(
    export: &Export<Connection>,
    (dir, path): (FileHandle, &[u8]),
) -> bool {
    let (above, name) = split(path);
    let mut list = export.list_dir(dir, above);
    loop {
        match list.next().await {
            Ok(Some(entry)) if entry.name == name => return true,
            Ok(Some(_)) => {}
            Ok(None) => return false,
            Err(_) => return true,
        }
    }
}

/// The error of what is not copied, as the same copy has made what has its name.
pub(crate) fn collision(to: &[u8]) -> Error {
    Error::In {
        doing: format!("cannot copy to {}", nfs_client::printable(to)),
        cause: Box::new(Collision.into()),
    }
}

/// Whether something was not copied because there is something by now.
pub(crate) fn is_taken(error: &Error) -> bool {
    error.status() == Some(Status::Exist)
}

/// Writes data, and leaves out zeros.
pub(crate) async fn write_data(upload: &mut Upload<'_, Connection>, data: &Bytes) -> Result<()> {
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

/// A directory that was made, or was there.
pub(crate) struct MadeDirectory {
    pub(crate) node: Node,
    pub(crate) is_new: bool,
}

/// Makes a directory. One that is there is as good.
pub(crate) async fn make_directory(
    nfs: &Nfs3<Connection>,
    parent: FileHandle,
    name: &[u8],
    mode: u32,
) -> Result<MadeDirectory, Fault> {
    let name = Name::new(name)?;
    let attributes = SetAttributes {
        mode: Some(mode),
        ..SetAttributes::default()
    };
    let made = nfs.make_dir(parent, name, attributes).await;
    let is_new = made.is_ok();
    let (handle, attributes) = match made {
        Ok(made) => match made.handle {
            Some(handle) => (handle, made.attributes),
            None => nfs.lookup(parent, name).await?,
        },
        Err(Fault::Status(Status::Exist)) => nfs.lookup(parent, name).await?,
        Err(fault) => return Err(fault),
    };
    let attributes = match attributes {
        Some(attributes) => attributes,
        None => nfs.get_attributes(handle).await?,
    };
    match attributes.file_type {
        FileType::Directory => Ok(MadeDirectory {
            node: Node { handle, attributes },
            is_new,
        }),
        _ => Err(Status::Exist.into()),
    }
}

/// Lets something be put into a directory that its owner has closed; whether its mode was changed for that.
pub(crate) async fn open_up(nfs: &Nfs3<Connection>, dir: &Node) -> bool {
    let Some(mode) = opened_mode(dir.attributes.mode) else {
        return false;
    };
    let open = SetAttributes {
        mode: Some(mode),
        ..SetAttributes::default()
    };
    // Of another owner's directory, what is put into it tells what is wrong.
    nfs.set_attributes(dir.handle, open, None).await.is_ok()
}

/// Gives a directory the attributes that it has in the end.
pub(crate) async fn set_directory(
    nfs: &Nfs3<Connection>,
    dir: FileHandle,
    path: &[u8],
    wanted: &Wanted,
) -> Result<()> {
    if let Some(kept) = &wanted.kept {
        return kept.set_remote(nfs, dir, path).await;
    }
    let attributes = SetAttributes {
        mode: Some(wanted.mode),
        ..SetAttributes::default()
    };
    let set = nfs.set_attributes(dir, attributes, None).await;
    Ok(set.map_err(|fault| nfs.error_at(fault, "change attributes of", path))?)
}

/// Something without data.
pub(crate) enum Dataless {
    /// A symbolic link with this text.
    Symlink(Vec<u8>),
    /// A pipe, a socket or a device.
    Special(args::Node),
}

impl Dataless {
    /// Makes it, in place of what has the name but is no directory if that is wanted.
    pub(crate) async fn make(
        &self,
        nfs: &Nfs3<Connection>,
        dir: FileHandle,
        name: Name<'_>,
        replaces: bool,
    ) -> Result<Node, Fault> {
        let temporary = match replaces {
            true => nfs_client::temporary_name(&name, random()),
            false => name.to_vec(),
        };
        let first = Name::new(&temporary)?;
        let usual = SetAttributes::default();
        let made = match self {
            Self::Symlink(text) => nfs.symlink_once(dir, first, usual, text).await?,
            Self::Special(node) => nfs.make_node(dir, first, *node).await?,
        };
        if replaces {
            let (from, to) = ((dir, first), (dir, name));
            let renamed = match made.handle {
                Some(file) => nfs.rename_file(file, from, to).await,
                None => nfs.rename(from, to).await,
            };
            if let Err(fault) = renamed {
                // The error to be told is that of renaming.
                let _ = nfs.remove(dir, first).await;
                return Err(fault);
            }
        }
        let (handle, attributes) = match made.handle {
            Some(handle) => (handle, made.attributes),
            None => nfs.lookup(dir, name).await?,
        };
        let attributes = match attributes {
            Some(attributes) => attributes,
            None => nfs.get_attributes(handle).await?,
        };
        Ok(Node { handle, attributes })
    }
}

/// A number that nobody else uses.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(0)
}
