//! Files on servers by their URL.

use crate::connection::Connection;
use crate::error::Result;
use crate::file_error::{FileError, url_at};
use nfs_client::{Again, Error, Export, Fault, NfsUrl, Node};
use nfs_proto::{FileType, SetAttributes, Status};
use std::sync::Arc;

/// Largest step of times that a server is believed to have, in nanoseconds: that of FAT.
const MAX_TIME_STEP: i128 = 2_000_000_000;

/// A path on a server: the export it is in, its path there, and its URL.
#[derive(Clone)]
pub struct Place {
    /// Export that it is in.
    pub export: Arc<Export<Connection>>,
    /// Names with slashes between them; empty is the root of the export.
    pub path: Vec<u8>,
    /// URL, as it was given.
    pub url: NfsUrl,
}

/// Meaning of a symbolic link at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// For what it leads to.
    Yes,
    /// For itself.
    No,
}

/// Finds places by their URL: connects to servers, and mounts exports.
pub trait Places {
    /// Finds the place of a URL. Whether it exists is not asked.
    ///
    /// # Errors
    ///
    /// [`Error::Place`](crate::Error::Place) if there is no server, or no export there that the URL lies in.
    fn place(&mut self, url: &NfsUrl) -> impl Future<Output = Result<Place>>;
}

/// Path of an export: of a path on a server, the part above `below`, the path in the export.
pub fn export_path(path: &[u8], below: &[u8]) -> Vec<u8> {
    let names = |path: &'_ [u8]| -> Vec<Vec<u8>> {
        let names = path.split(|&byte| byte == b'/');
        let names = names.filter(|name| !matches!(*name, b"" | b"."));
        names.map(<[u8]>::to_vec).collect()
    };
    let mut all = names(path);
    all.truncate(all.len().saturating_sub(names(below).len()));
    [b"/", &all.join(&b'/')[..]].concat()
}

impl Place {
    /// The last name of the path; none for the root of the export.
    pub fn name(&self) -> Option<&[u8]> {
        let mut names = self.path.split(|byte| *byte == b'/');
        names
            .rfind(|name| !name.is_empty())
            .filter(|name| !matches!(*name, b"." | b".."))
    }

    /// The directory that it is in; none for the root of the export.
    pub fn parent(&self) -> Option<Self> {
        self.name()?;
        let above = |path: &[u8]| {
            let end = path.iter().rposition(|byte| *byte != b'/').unwrap_or(0);
            let slash = path[..end].iter().rposition(|byte| *byte == b'/');
            path[..slash.unwrap_or(0)].to_vec()
        };
        let mut url = self.url.clone();
        url.path = above(&url.path);
        Some(Self {
            export: Arc::clone(&self.export),
            path: above(&self.path),
            url,
        })
    }

    /// Handle and attributes, if there is something.
    ///
    /// # Errors
    ///
    /// If the server cannot say.
    pub async fn find(&self, follow: Follow) -> Result<Option<Node>, FileError> {
        let found = match follow {
            Follow::Yes => self.export.stat(&self.path).await,
            Follow::No => self.export.lstat(&self.path).await,
        };
        match found {
            Ok(node) => Ok(Some(node)),
            Err(error) if error.status() == Some(Status::NoEntry) => Ok(None),
            Err(error) => Err(self.error(error)),
        }
    }

    /// As [`find`](Self::find), where there was something.
    ///
    /// # Errors
    ///
    /// If there is nothing, or the server cannot say.
    pub async fn look_again(&self, follow: Follow) -> Result<Node, FileError> {
        let found = self.find(follow).await?;
        found.ok_or_else(|| self.fault("find", Status::NoEntry))
    }

    /// Sets attributes of what was found here, or of what has its place by then.
    ///
    /// # Errors
    ///
    /// The server's error, or a failed call.
    pub async fn set_attributes(
        &self,
        node: &Node,
        follow: Follow,
        attributes: SetAttributes,
    ) -> Result<(), FileError> {
        let (mut node, mut again) = (*node, Again::default());
        loop {
            let set = self.export.nfs();
            let set = set.set_attributes(node.handle, attributes, None).await;
            match set {
                Err(fault) if again.after(&fault) => node = self.look_again(follow).await?,
                set => return set.map_err(|fault| self.fault("change attributes of", fault)),
            }
        }
    }

    /// Whether this and something else that was found are one file of one server, as far as can be told.
    pub fn is_same(&self, node: &Node, other: &Self, other_node: &Node) -> bool {
        let id = |node: &Node| (node.attributes.fsid, node.attributes.file_id);
        let server = |place: &Self| (place.url.host.clone(), place.url.port);
        node.handle == other_node.handle
            || server(self) == server(other) && id(node) == id(other_node)
    }

    /// The URL of the root of the export.
    pub fn export_url(&self) -> NfsUrl {
        NfsUrl {
            path: export_path(&self.url.path, &self.path),
            ..self.url.clone()
        }
    }

    /// Steps in which the server keeps times, in nanoseconds, as it says (`time_delta`, RFC 1813 §3.3.19): from 1 to
    /// [`MAX_TIME_STEP`].
    pub(crate) fn time_step(&self) -> i128 {
        let delta = self.export.info().time_delta;
        let nanos = i128::from(delta.seconds) * 1_000_000_000 + i128::from(delta.nanoseconds);
        nanos.clamp(1, MAX_TIME_STEP)
    }

    /// Whether it is there and a directory, a symbolic link to one included.
    ///
    /// # Errors
    ///
    /// If the server cannot say.
    pub async fn is_directory(&self) -> Result<bool, FileError> {
        let found = self.find(Follow::Yes).await?;
        Ok(found.is_some_and(|node| node.attributes.file_type == FileType::Directory))
    }

    /// The error of an operation in the same export, of the file that its path names.
    pub fn error(&self, error: Error) -> FileError {
        FileError::at(&self.url, error)
    }

    /// The URL of something in the same export, by its path from the root of the server: as errors have it.
    pub fn url_of(&self, path: Vec<u8>) -> NfsUrl {
        url_at(&self.url, path)
    }

    /// The error of an operation on this.
    pub fn fault(&self, doing: &'static str, fault: impl Into<Fault>) -> FileError {
        FileError::new(self.url.clone(), doing, fault)
    }

    /// The place that a walk from here has found at a path, which begins with that of this place.
    pub fn found(&self, path: &[u8]) -> Self {
        let below = path.strip_prefix(&self.path[..]).unwrap_or(path);
        let begin = below.iter().position(|byte| *byte != b'/');
        match &below[begin.unwrap_or(below.len())..] {
            b"" => self.clone(),
            below => self.join(below),
        }
    }

    /// The place of `name` in this directory.
    pub fn join(&self, name: &[u8]) -> Self {
        let path = if self.path.is_empty() {
            name.to_vec()
        } else {
            [&self.path, &b"/"[..], name].concat()
        };
        Self {
            export: Arc::clone(&self.export),
            path,
            url: self.url.join(name),
        }
    }
}

/// Names errors of file operations by their URL.
pub trait Of<T> {
    /// The error of an operation in the export of this place; its path says on what.
    fn of(self, place: &Place) -> Result<T, FileError>;
}

impl<T> Of<T> for Result<T, Error> {
    fn of(self, place: &Place) -> Result<T, FileError> {
        self.map_err(|error| place.error(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn export_is_what_is_above_the_path_in_it() {
        let check = |path: &str, below: &str, name: &str| {
            let above = export_path(path.as_bytes(), below.as_bytes());
            assert_eq!(String::from_utf8(above).unwrap(), name);
        };
        check("/data/a/b", "a/b", "/data");
        check("/data/", "", "/data");
        check("//srv//data//a/", "a", "/srv/data");
        check("/a", "a", "/");
        check("/data/a/.", "a", "/data");
        check("/", "", "/");
    }
}
