//! Errors of file operations.

use nfs_proto::Status;
use nfs_proto::mount::MountStatus;
use oncrpc::xdr;
use oncrpc::{RpcError, TransportError};
use std::fmt;

/// Why an operation of one or several calls failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The server returned an NFS error.
    #[error(transparent)]
    Status(#[from] Status),
    /// The server returned a MOUNT error.
    #[error(transparent)]
    Mount(#[from] MountStatus),
    /// The server did not execute the call, or its reply cannot be read.
    #[error(transparent)]
    Rpc(#[from] RpcError),
    /// The transport returned no reply.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The reply is well-formed and contradicts itself or the request.
    #[error("the server's reply makes no sense: {0}")]
    Nonsense(&'static str),
    /// The server lost written data again and again.
    #[error("the server restarted {0} times while the data was on its way to its disk")]
    KeepsRestarting(u32),
    /// A path goes through too many symbolic links.
    #[error("too many levels of symbolic links")]
    TooManySymlinks,
    /// Gave up after this many failed removals in one directory.
    #[error("more than {0} things in it cannot be removed")]
    TooManyLeft(usize),
    /// A path names the root of the export, `.` or `..` where a directory entry is needed.
    #[error("this is not the name of an entry of a directory")]
    NotAnEntry,
}

impl From<xdr::Error> for Fault {
    fn from(error: xdr::Error) -> Self {
        Self::Rpc(RpcError::Malformed(error))
    }
}

impl Fault {
    /// Makes an error of an operation on a path.
    pub fn at(self, doing: &'static str, path: &[u8]) -> Error {
        Error {
            doing,
            path: path.to_vec(),
            fault: self,
        }
    }

    /// Returns advice for the user, if there is any.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Status(status) => status_hint(*status),
            Self::Mount(MountStatus::Access | MountStatus::Perm) => {
                Some("the server must allow this client's address")
            }
            Self::Mount(MountStatus::NoEntry) => Some("ask the server for its list of exports"),
            Self::Rpc(RpcError::ProgUnavail | RpcError::ProgMismatch { .. }) => {
                Some("check that it is an NFS version 3 server")
            }
            Self::Rpc(RpcError::Auth(_)) => Some("the server wants other credentials"),
            Self::Transport(TransportError::Unreachable(_)) => {
                Some("check the address, the port, and that the server runs")
            }
            Self::KeepsRestarting(_) => Some("look at the server's log, then try again"),
            Self::Mount(_)
            | Self::Rpc(_)
            | Self::Transport(_)
            | Self::Nonsense(_)
            | Self::TooManySymlinks
            | Self::TooManyLeft(_)
            | Self::NotAnEntry => None,
        }
    }
}

fn status_hint(status: Status) -> Option<&'static str> {
    match status {
        Status::Access | Status::Perm => Some(denied_hint(rustix::process::geteuid().is_root())),
        Status::Stale | Status::BadHandle => Some("look the file up again"),
        Status::NoSpace | Status::Quota => Some(
            "make room on the server, then try again; its log says if it is the disk of its state that is full",
        ),
        Status::ReadOnly => {
            Some("the server exports it without write access, or its disk is read-only")
        }
        Status::BadCookie => Some("list the directory again"),
        Status::NotEmpty => Some("remove what is in it first, or remove it recursively"),
        _ => None,
    }
}

/// Advice for a user, or for root, who may have been taken for nobody.
fn denied_hint(root: bool) -> &'static str {
    match root {
        true => {
            "check the owner and mode there, and the log of the server; servers treat root as nobody: ours does so \
             with root of other machines, unless it runs with --squash none, and with any root where an export \
             says squash = \"root\""
        }
        false => "check the owner and mode there, and the log of the server",
    }
}

/// An error of a file operation, with its path.
///
/// The message says which operation failed on which path. The [source](std::error::Error::source) is
/// the [`fault`](Self::fault), which may have sources of its own; [`Chain`](oncrpc::Chain) displays all
/// of them. [`hint`](Fault::hint) is advice for the user, which no message repeats.
///
/// ```
/// use nfs_client::Fault;
/// use nfs_proto::Status;
/// use oncrpc::Chain;
///
/// let error = Fault::from(Status::NotEmpty).at("remove", b"/a/b");
/// assert_eq!(error.to_string(), "cannot remove /a/b");
/// assert_eq!(Chain(&error).to_string(), "cannot remove /a/b: directory not empty");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The operation that failed, as a verb such as `read`.
    pub doing: &'static str,
    /// The path: from the root of the export, or of the server if the export has a
    /// [name](crate::Export::named) or the operation is one of MOUNT.
    pub path: Vec<u8>,
    /// The cause.
    pub fault: Fault,
}

impl Error {
    /// Returns the server's NFS error, if it returned one.
    pub fn status(&self) -> Option<Status> {
        match self.fault {
            Fault::Status(status) => Some(status),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = crate::printable(&self.path);
        let root = if path.starts_with('/') { "" } else { "/" };
        write!(f, "cannot {} {root}{path}", self.doing)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.fault)
    }
}

/// A path in an export that may have a name.
#[derive(Clone, Copy)]
pub(crate) struct Full<'a> {
    /// The name of the export, empty if it has none.
    pub(crate) export: &'a [u8],
    pub(crate) path: &'a [u8],
}

impl<'a> From<&'a [u8]> for Full<'a> {
    fn from(path: &'a [u8]) -> Self {
        Self { export: b"", path }
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Full<'a> {
    fn from(path: &'a [u8; N]) -> Self {
        Self::from(&path[..])
    }
}

impl Full<'_> {
    pub(crate) fn to_vec(self) -> Vec<u8> {
        let path = self.path;
        match self.export.strip_suffix(b"/").unwrap_or(self.export) {
            b"" => path.to_vec(),
            export if path.is_empty() || path == b"/" => export.to_vec(),
            export if path.starts_with(b"/") => [export, path].concat(),
            export => [export, b"/", path].concat(),
        }
    }
}

/// Says to what something was done.
pub(crate) trait At<T> {
    /// Makes an error of an operation on a path.
    fn at<'a>(self, doing: &'static str, path: impl Into<Full<'a>>) -> Result<T, Error>;
}

impl<T, F: Into<Fault>> At<T> for Result<T, F> {
    fn at<'a>(self, doing: &'static str, path: impl Into<Full<'a>>) -> Result<T, Error> {
        self.map_err(|fault| fault.into().at(doing, &path.into().to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oncrpc::Chain;

    #[test]
    fn path_is_shown_from_the_root_of_the_export() {
        for (path, shown) in [("", "/"), ("a/b", "/a/b"), ("/a", "/a")] {
            let error = Err::<(), _>(Status::Io).at("read", path.as_bytes());
            let text = error.unwrap_err().to_string();
            assert_eq!(text, format!("cannot read {shown}"));
        }
    }

    #[test]
    fn path_begins_with_the_name_of_the_export() {
        let check = |export: &str, path: &str, shown: &str| {
            let (export, path) = (export.as_bytes(), path.as_bytes());
            assert_eq!(Full { export, path }.to_vec(), shown.as_bytes());
        };
        check("", "a/b", "a/b");
        check("/data", "a/b", "/data/a/b");
        check("/data", "/a", "/data/a");
        check("/data", "", "/data");
        check("/data", "/", "/data");
        check("/", "a", "a");
        check("/", "/", "/");
    }

    #[test]
    fn control_characters_in_paths_are_escaped() {
        let error = Err::<(), _>(Status::Io).at("read", b"/a\x1b[2J\xff");
        let text = error.unwrap_err().to_string();
        assert_eq!(text, "cannot read /a\\x1b[2J\\xff");
    }

    #[test]
    fn causes_are_sources_that_are_said_once_and_keep_their_types() {
        use std::error::Error as _;
        let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        let lost = TransportError::Disconnected(reset.into());
        let error = Err::<(), _>(lost).at("read", b"/a").unwrap_err();
        assert_eq!(
            Chain(&error).to_string(),
            "cannot read /a: the connection ended: connection reset"
        );
        let fault = error.source().expect("the fault");
        assert!(fault.is::<Fault>());
        let cause = fault.source().expect("the cause of the transport");
        assert!(cause.is::<std::io::Error>());

        let unread = RpcError::Malformed(xdr::Error::Ineligible);
        let error = Err::<(), _>(unread).at("read", b"/a").unwrap_err();
        let cause = error.fault.source().expect("why it cannot be read");
        assert_eq!(cause.downcast_ref(), Some(&xdr::Error::Ineligible));
    }

    #[test]
    fn root_that_is_denied_something_is_told_that_it_may_be_nobody() {
        assert_eq!(
            denied_hint(false),
            "check the owner and mode there, and the log of the server"
        );
        let root = denied_hint(true);
        assert!(root.contains("root of other machines, unless it runs with --squash none"));
        assert!(root.contains("squash = \"root\""));
    }

    #[test]
    fn hint_says_what_to_do() {
        let hint = |status: Status| Fault::from(status).hint();
        assert_eq!(
            hint(Status::NotEmpty),
            Some("remove what is in it first, or remove it recursively")
        );
        assert_eq!(hint(Status::Io), None);
    }
}
