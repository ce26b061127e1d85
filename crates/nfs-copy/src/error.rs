//! Errors of copies.

use crate::decide::Conflict;
use crate::file_error::FileError;
use crate::made_names::Collision;
use crate::show;
use crate::unkept::Unkept;
use nfs_proto::{FileType, Status};
use std::io;

/// Result of a part of a copy.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why something was not copied, or nothing was.
///
/// Errors of single files are passed to [`Events::failed`](crate::Events::failed), and the rest is copied. An error that
/// [ends](Self::ends) the copy is its [result](crate::Ended::result).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller asked the copy to stop before all was done.
    #[error("interrupted")]
    Stopped,
    /// An error, and the operation and the file that it is of.
    #[error("{doing}")]
    In {
        /// The operation and the file, such as `/a/b: cannot read`.
        doing: String,
        /// The error.
        #[source]
        cause: Box<Self>,
    },
    /// An operation on a local file failed.
    #[error(transparent)]
    Local(#[from] io::Error),
    /// An operation on a file of a server failed.
    #[error(transparent)]
    Nfs(#[from] nfs_client::Error),
    /// The same, of a file with a URL.
    #[error(transparent)]
    File(#[from] Box<FileError>),
    /// A call to a server failed that is of no file in particular.
    #[error(transparent)]
    Call(#[from] nfs_client::Fault),
    /// A server could not be reached, or has no export with the URL. Other places may be found.
    #[error(transparent)]
    Place(Box<dyn std::error::Error + Send + Sync>),
    /// No place can be found.
    #[error(transparent)]
    Places(Box<dyn std::error::Error + Send + Sync>),
    /// [`Events::event`](crate::Events::event) failed.
    #[error(transparent)]
    Event(io::Error),
    /// The stream that is copied could not be read.
    #[error("cannot read the input")]
    Input(#[source] io::Error),
    /// The stream that is copied to could not be written.
    #[error("cannot write the output")]
    Output(#[source] io::Error),
    /// The copy has its data, and lacks an attribute.
    #[error(transparent)]
    Unkept(#[from] Unkept),
    /// The same copy has made something else under the name.
    #[error(transparent)]
    Collision(#[from] Collision),
    /// The source was changed while it was copied.
    #[error(transparent)]
    Changed(#[from] Changed),
    /// Source and destination do not go together. Nothing is copied then.
    #[error("{}", .conflict.text(.path, .to))]
    Conflict {
        /// The conflict.
        conflict: Conflict,
        /// Path or URL of the source.
        path: String,
        /// Path or URL at the destination.
        to: String,
    },
    /// Nothing was copied, because of conflicts.
    #[error("nothing was copied")]
    NothingCopied,
    /// Files of this type are not copied.
    #[error("{path} is a {}, which is not copied", show::file_type(*.kind))]
    Unsupported {
        /// Path or URL.
        path: String,
        /// Its type.
        kind: FileType,
    },
    /// A directory was named as a source, and the copy is not [recursive](crate::Options::recursive).
    #[error("{path} is a directory")]
    IsDirectory {
        /// Path or URL.
        path: String,
    },
    /// A directory was named as a source of a copy to a stream.
    #[error("{path} is a directory: only a file can be copied to a stream")]
    DirectoryToStream {
        /// URL.
        path: String,
    },
    /// A directory is needed at the destination, and something else is there.
    #[error("{path}: it is not a directory")]
    NotDirectory {
        /// URL.
        path: String,
    },
    /// There is no directory that something could be copied into.
    #[error("cannot copy to {to}: there is no directory {parent}")]
    NoParent {
        /// Path or URL at the destination.
        to: String,
        /// Path or URL of the directory.
        parent: String,
    },
    /// There is nothing at the path of a source.
    #[error("no such file or directory")]
    NoEntry,
    /// A file was replaced by something else while the copy was under way.
    #[error("it is no file any more")]
    NoFile,
    /// The directory of a file was replaced while the copy was under way.
    #[error("its directory was replaced")]
    DirectoryReplaced,
    /// Something that is no directory has the name of a directory that is copied.
    #[error("something else has that name")]
    NameTaken,
    /// A path has no file handle of the server that it should be on.
    #[error("{path} is not on this server")]
    NotOnServer {
        /// Path or URL.
        path: String,
    },
    /// Directories within directories, beyond the limit.
    #[error("{path}: directories are nested too deeply")]
    TooDeep {
        /// Path or URL.
        path: String,
    },
    /// A path goes through more symbolic links than Linux follows.
    #[error("{path}: too many levels of symbolic links")]
    TooManySymlinks {
        /// Path or URL.
        path: String,
    },
    /// Two URLs name one file.
    #[error("{path} and {to} are the same file")]
    Same {
        /// URL of the source.
        path: String,
        /// URL of the destination.
        to: String,
    },
    /// A symbolic link would replace the file that it leads to.
    #[error("{path} is a symbolic link to {to}, which a copy of it would replace")]
    ReplacesItsTarget {
        /// URL of the symbolic link.
        path: String,
        /// URL of the destination.
        to: String,
    },
    /// A directory would be copied into itself.
    #[error("{path}: it cannot be copied into itself, to {to}")]
    IntoItself {
        /// URL of the directory.
        path: String,
        /// URL of the destination.
        to: String,
    },
    /// [`Options::deletes`](crate::Options::deletes) without a directory among the sources.
    #[error("there is nothing to remove from: no directory is copied")]
    NoDirectory,
    /// Nothing was removed at the destination, as the source may have more than was copied.
    #[error("nothing was removed at the destination, as not all was read and copied")]
    NothingRemoved,
    /// Nothing was removed, as another directory has the path of the source by now.
    #[error("nothing was removed: {path} is not the directory that was copied")]
    NotTheSource {
        /// Path or URL.
        path: String,
    },
    /// A directory at the destination is not removed, as a source is in it.
    #[error("{path}: it is not removed, as what is copied is in it")]
    HoldsSource {
        /// Path or URL.
        path: String,
    },
    /// A directory at the destination cannot be emptied.
    #[error("{path}: what is in it cannot be removed, as it comes again or is too much")]
    CannotBeEmptied {
        /// Path or URL.
        path: String,
    },
}

impl Error {
    /// The error without the operations that it is [of](Self::In).
    pub fn cause(&self) -> &Self {
        match self {
            Self::In { cause, .. } => cause.cause(),
            error => error,
        }
    }

    /// A conflict of a source with its destination.
    pub(crate) fn conflict(conflict: Conflict, path: String, to: String) -> Self {
        Self::Conflict { conflict, path, to }
    }

    /// Whether the copy ends with this error. After others, it goes on with the rest.
    pub fn ends(&self) -> bool {
        let is_closed = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
        match self.cause() {
            Self::Stopped | Self::NoDirectory | Self::Places(_) => true,
            Self::Event(error) | Self::Output(error) => is_closed(error),
            // Nothing else can be copied there either.
            Self::Nfs(error) => error.status() == Some(Status::ReadOnly),
            _ => false,
        }
    }

    /// The NFS error that a server returned, if it is that of a file without a URL.
    pub(crate) fn status(&self) -> Option<Status> {
        match self.cause() {
            Self::Nfs(error) => error.status(),
            _ => None,
        }
    }

    /// The error of an operation on a local file, if it is one.
    pub(crate) fn local(&self) -> Option<&io::Error> {
        match self.cause() {
            Self::Local(error) => Some(error),
            _ => None,
        }
    }
}

/// The source of a copy was changed before the copy was complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it was changed while it was copied: copy it again")]
pub struct Changed;

impl From<FileError> for Error {
    fn from(error: FileError) -> Self {
        Self::File(Box::new(error))
    }
}

/// Says of errors which operation on which file failed.
pub(crate) trait Context<T> {
    /// The same, with an operation and a file.
    fn with_context<S: Into<String>>(self, doing: impl FnOnce() -> S) -> Result<T>;

    /// The same, where the text is at hand.
    fn context(self, doing: &str) -> Result<T>;
}

impl<T, E: Into<Error>> Context<T> for std::result::Result<T, E> {
    fn with_context<S: Into<String>>(self, doing: impl FnOnce() -> S) -> Result<T> {
        self.map_err(|error| Error::In {
            doing: doing().into(),
            cause: Box::new(error.into()),
        })
    }

    fn context(self, doing: &str) -> Result<T> {
        self.with_context(|| doing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oncrpc::Chain;

    #[test]
    fn error_is_told_with_its_file_and_decided_by_its_cause() {
        let error = std::result::Result::<(), _>::Err(Changed).context("/a/b");
        let error = error.with_context(|| "above").unwrap_err();
        assert!(matches!(error.cause(), Error::Changed(_)) && !error.ends());
        let shown = Chain(&error).to_string();
        assert!(shown.starts_with("above: /a/b: it was changed"), "{shown}");
    }

    #[test]
    fn copy_ends_where_nobody_hears_of_it_and_where_nothing_can_be_changed() {
        let closed = || io::Error::from(io::ErrorKind::BrokenPipe);
        for error in [
            Error::Stopped,
            Error::Event(closed()),
            Error::Output(closed()),
        ] {
            assert!(error.ends(), "{error}");
        }
        let full = io::Error::from(io::ErrorKind::StorageFull);
        for error in [Error::Local(closed()), Error::Event(full)] {
            assert!(!error.ends(), "{error}");
        }
        let refused = |status| nfs_client::Fault::from(status).at("create", b"a");
        assert!(Error::Nfs(refused(Status::ReadOnly)).ends());
        assert!(!Error::Nfs(refused(Status::Access)).ends());
    }
}
