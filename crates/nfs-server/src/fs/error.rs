//! Errors of file operations.

use rustix::io::Errno;

/// Error of a file operation, in the terms of RFC 1813 §2.6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[expect(missing_docs, reason = "each variant is documented by its message")]
pub enum Error {
    #[error("only the owner may do this")]
    NotOwner,
    #[error("no such file")]
    NotFound,
    #[error("the device failed")]
    Io,
    #[error("no such device")]
    NoDevice,
    #[error("permission denied")]
    Access,
    #[error("the file exists")]
    Exists,
    #[error("not within one file system")]
    CrossDevice,
    #[error("not a directory")]
    NotDirectory,
    #[error("a directory")]
    IsDirectory,
    #[error("not possible with this file")]
    Invalid,
    #[error("larger than a file can be")]
    TooLarge,
    #[error("no space left")]
    NoSpace,
    #[error("read-only")]
    ReadOnly,
    #[error("too many links")]
    TooManyLinks,
    #[error("the name is longer than 255 bytes")]
    NameTooLong,
    #[error("the directory is not empty")]
    NotEmpty,
    #[error("over quota")]
    Quota,
    #[error("the file is gone")]
    Stale,
    #[error("the file changed meanwhile")]
    NotSync,
    #[error("the directory cookie is not valid any more")]
    BadCookie,
    #[error("not supported")]
    NotSupported,
    #[error("this kind of file cannot be made")]
    BadType,
    #[error("not possible now; try again later")]
    Busy,
    #[error("no such extended attribute")]
    NoXattr,
    #[error("larger than an extended attribute can be")]
    XattrTooLarge,
    #[error("behind the end of the file")]
    PastEnd,
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::PERM => Self::NotOwner,
            Errno::NOENT => Self::NotFound,
            Errno::NXIO | Errno::NODEV => Self::NoDevice,
            Errno::ACCESS | Errno::TXTBSY => Self::Access,
            Errno::EXIST => Self::Exists,
            // The name is a mount point, which an export does not cross.
            Errno::XDEV => Self::CrossDevice,
            Errno::NOTDIR => Self::NotDirectory,
            Errno::ISDIR => Self::IsDirectory,
            Errno::INVAL | Errno::LOOP => Self::Invalid,
            Errno::FBIG | Errno::OVERFLOW => Self::TooLarge,
            Errno::NOSPC => Self::NoSpace,
            Errno::ROFS => Self::ReadOnly,
            Errno::MLINK => Self::TooManyLinks,
            Errno::NAMETOOLONG => Self::NameTooLong,
            Errno::NOTEMPTY => Self::NotEmpty,
            Errno::DQUOT => Self::Quota,
            Errno::STALE => Self::Stale,
            Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY => Self::NotSupported,
            Errno::AGAIN
            | Errno::INTR
            | Errno::MFILE
            | Errno::NFILE
            | Errno::NOMEM
            | Errno::BUSY => Self::Busy,
            _ => Self::Io,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_errors_map_to_nfs_errors() {
        fn check(errno: Errno, error: Error) {
            assert_eq!(Error::from(errno), error, "{errno}");
        }
        check(Errno::PERM, Error::NotOwner);
        check(Errno::NOENT, Error::NotFound);
        check(Errno::ACCESS, Error::Access);
        check(Errno::EXIST, Error::Exists);
        check(Errno::XDEV, Error::CrossDevice);
        check(Errno::NOTDIR, Error::NotDirectory);
        check(Errno::ISDIR, Error::IsDirectory);
        check(Errno::INVAL, Error::Invalid);
        check(Errno::FBIG, Error::TooLarge);
        check(Errno::NOSPC, Error::NoSpace);
        check(Errno::ROFS, Error::ReadOnly);
        check(Errno::MLINK, Error::TooManyLinks);
        check(Errno::NAMETOOLONG, Error::NameTooLong);
        check(Errno::NOTEMPTY, Error::NotEmpty);
        check(Errno::DQUOT, Error::Quota);
        check(Errno::STALE, Error::Stale);
        check(Errno::OPNOTSUPP, Error::NotSupported);
        // The client tries again when the process has descriptors once more.
        check(Errno::MFILE, Error::Busy);
        check(Errno::IO, Error::Io);
        check(Errno::PIPE, Error::Io);
    }
}
