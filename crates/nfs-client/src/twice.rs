//! Changes of names that a server may execute twice: a call that is sent again after its connection was lost finds no
//! first reply in a duplicate request cache that was lost, too, and is told what the first execution has made of the
//! directory.

use crate::{Created, Fault, Nfs3};
use nfs_proto::{FileHandle, FileType, Name, SetAttributes, Status};
use oncrpc::Transport;

impl<T: Transport + Send + Sync> Nfs3<T> {
    /// Returns a function that tells whether calls since now may have been sent again.
    pub(crate) fn resent(&self) -> impl Fn() -> bool {
        let before = self.transport().connections_ended();
        move || self.transport().connections_ended() != before
    }

    /// Whether a name leads to this file. Handles of one file may differ; numbers do not. False if the server does not
    /// say.
    pub async fn is_name_of(&self, file: FileHandle, dir: FileHandle, name: Name<'_>) -> bool {
        match self.lookup(dir, name).await {
            Ok((found, _)) if found == file => true,
            Ok((found, _)) => {
                let both = (
                    self.get_attributes(found).await,
                    self.get_attributes(file).await,
                );
                matches!(both, (Ok(found), Ok(file))
                    if (found.fsid, found.file_id) == (file.fsid, file.file_id))
            }
            Err(_) => false,
        }
    }

    /// RENAME of a file whose handle is known, and whose name nobody else renames, as a temporary one. If the call comes a second time, and the server has forgotten the first,
    /// there is no such name, and the file has the new one: that is no error.
    pub async fn rename_file(
        &self,
        file: FileHandle,
        from: (FileHandle, Name<'_>),
        to: (FileHandle, Name<'_>),
    ) -> Result<(), Fault> {
        match self.rename(from, to).await {
            Err(Fault::Status(Status::NoEntry)) if self.is_name_of(file, to.0, to.1).await => {
                Ok(())
            }
            renamed => renamed,
        }
    }

    /// SYMLINK where it does not matter who makes the link, as under a temporary name or in a copy. If the call comes a second time, and the
    /// server has forgotten the first, there is a link with this text: that is no error.
    pub async fn symlink_once(
        &self,
        dir: FileHandle,
        name: Name<'_>,
        attributes: SetAttributes,
        target: &[u8],
    ) -> Result<Created, Fault> {
        let made = self.symlink(dir, name, attributes, target).await;
        if !matches!(made, Err(Fault::Status(Status::Exist))) {
            return made;
        }
        match self.link_with(dir, name, target).await {
            Some(found) => Ok(found),
            None => made,
        }
    }

    /// The symbolic link of this name, if it has this text.
    pub(crate) async fn link_with(
        &self,
        dir: FileHandle,
        name: Name<'_>,
        text: &[u8],
    ) -> Option<Created> {
        let (handle, attributes) = self.lookup(dir, name).await.ok()?;
        let attributes = match attributes {
            Some(attributes) => attributes,
            None => self.get_attributes(handle).await.ok()?,
        };
        let is_same = attributes.file_type == FileType::Symlink
            && self
                .read_link(handle)
                .await
                .is_ok_and(|found| found == text);
        is_same.then_some(Created {
            handle: Some(handle),
            attributes: Some(attributes),
        })
    }
}
