//! Status codes (RFC 1813 §2.6), and the results of failed calls.

use crate::Wire;
use oncrpc::xdr::{Error, Reader, Writer};
use std::fmt;

xdr_enum! {
    /// An error of `nfsstat3`. `NFS3_OK` is not among them: that is `Ok`.
    pub enum Status ("nfsstat3") {
        /// `NFS3ERR_PERM`: only the owner or a privileged user may do this.
        Perm = 1,
        /// `NFS3ERR_NOENT`: no such file or directory.
        NoEntry = 2,
        /// `NFS3ERR_IO`: a hard error of the device.
        Io = 5,
        /// `NFS3ERR_NXIO`: no such device or address.
        NoDeviceAddress = 6,
        /// `NFS3ERR_ACCES`: the caller's permissions do not allow it.
        Access = 13,
        /// `NFS3ERR_EXIST`: the name is taken.
        Exist = 17,
        /// `NFS3ERR_XDEV`: a hard link to another file system.
        CrossDevice = 18,
        /// `NFS3ERR_NODEV`: no such device.
        NoDevice = 19,
        /// `NFS3ERR_NOTDIR`: not a directory.
        NotDirectory = 20,
        /// `NFS3ERR_ISDIR`: a directory.
        IsDirectory = 21,
        /// `NFS3ERR_INVAL`: an argument that is invalid or not supported here.
        Invalid = 22,
        /// `NFS3ERR_FBIG`: larger than the server's files can be.
        TooBig = 27,
        /// `NFS3ERR_NOSPC`: no space left.
        NoSpace = 28,
        /// `NFS3ERR_ROFS`: a read-only file system.
        ReadOnly = 30,
        /// `NFS3ERR_MLINK`: too many hard links.
        TooManyLinks = 31,
        /// `NFS3ERR_NAMETOOLONG`: the name is too long.
        NameTooLong = 63,
        /// `NFS3ERR_NOTEMPTY`: the directory is not empty.
        NotEmpty = 66,
        /// `NFS3ERR_DQUOT`: the user's quota is used up.
        Quota = 69,
        /// `NFS3ERR_STALE`: the file of this handle is gone, or access to it was revoked.
        Stale = 70,
        /// `NFS3ERR_REMOTE`: the handle is of a file on another server.
        Remote = 71,
        /// `NFS3ERR_BADHANDLE`: not a handle of this server.
        BadHandle = 10001,
        /// `NFS3ERR_NOT_SYNC`: the guard of a SETATTR does not match.
        NotSync = 10002,
        /// `NFS3ERR_BAD_COOKIE`: the place in the directory is no longer valid.
        BadCookie = 10003,
        /// `NFS3ERR_NOTSUPP`: not supported.
        NotSupported = 10004,
        /// `NFS3ERR_TOOSMALL`: not even one entry fits the size asked for.
        TooSmall = 10005,
        /// `NFS3ERR_SERVERFAULT`: an error without a code of its own.
        ServerFault = 10006,
        /// `NFS3ERR_BADTYPE`: objects of this type cannot be made here.
        BadType = 10007,
        /// `NFS3ERR_JUKEBOX`: not now; ask again later, as a new call.
        Jukebox = 10008,
    }
}

impl Status {
    /// Description for people.
    pub const fn message(self) -> &'static str {
        match self {
            Self::Perm => "operation not permitted",
            Self::NoEntry => "no such file or directory",
            Self::Io => "input/output error on the server",
            Self::NoDeviceAddress => "no such device or address",
            Self::Access => "permission denied",
            Self::Exist => "file exists",
            Self::CrossDevice => "on another file system",
            Self::NoDevice => "no such device",
            Self::NotDirectory => "not a directory",
            Self::IsDirectory => "is a directory",
            Self::Invalid => "invalid argument",
            Self::TooBig => "file too large",
            Self::NoSpace => "no space left on the server",
            Self::ReadOnly => "read-only file system",
            Self::TooManyLinks => "too many links",
            Self::NameTooLong => "name too long",
            Self::NotEmpty => "directory not empty",
            Self::Quota => "quota exceeded",
            Self::Stale => "stale file handle: the file is gone, or not exported any more",
            Self::Remote => "the file is on another server",
            Self::BadHandle => "not a file handle of this server",
            Self::NotSync => "changed by somebody else in the meantime",
            Self::BadCookie => "the directory changed while it was read",
            Self::NotSupported => "not supported by the server",
            Self::TooSmall => "not even one entry fits the reply",
            Self::ServerFault => "the server failed",
            Self::BadType => "files of this type cannot be made there",
            Self::Jukebox => "not available yet, try again later",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for Status {}

/// Result of a failed procedure: the error and `resfail`, usually attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed<T> {
    /// The error.
    pub status: Status,
    /// Further results of the failed call.
    pub with: T,
}

impl<T> Failed<T> {
    /// Creates a failure with its `resfail`.
    pub fn new(status: Status, with: T) -> Self {
        Self { status, with }
    }
}

impl<T: Default> From<Status> for Failed<T> {
    /// Creates a failure without attributes.
    fn from(status: Status) -> Self {
        Self::new(status, T::default())
    }
}

/// The union that every procedure returns: a status, then `resok` or `resfail`.
impl<'a, T: Wire<'a>, F: Wire<'a>> Wire<'a> for Result<T, Failed<F>> {
    const MAX: usize = 4 + if T::MAX > F::MAX { T::MAX } else { F::MAX };

    fn parse(r: &mut Reader<'a>) -> Result<Self, Error> {
        match r.u32()? {
            0 => T::parse(r).map(Ok),
            status => Ok(Err(Failed::new(status.try_into()?, F::parse(r)?))),
        }
    }

    fn write(&self, w: &mut Writer) {
        match self {
            Ok(value) => {
                w.u32(0);
                value.write(w);
            }
            Err(failed) => {
                failed.status.write(w);
                failed.with.write(w);
            }
        }
    }

    #[inline]
    fn hand_over(self, w: &mut Writer) {
        match self {
            Ok(value) => {
                w.u32(0);
                value.hand_over(w);
            }
            Err(_) => self.write(w),
        }
    }
}
