//! Conversions between the types of a file system and those of the protocol.

use crate::fs;
use nfs_proto::v4::{ChangeId, ChangeInfo, Status};

pub(super) fn status(error: fs::Error) -> Status {
    match error {
        fs::Error::NotOwner => Status::Perm,
        fs::Error::NotFound => Status::NoEntry,
        fs::Error::Io => Status::Io,
        fs::Error::NoDevice => Status::NoDeviceAddress,
        fs::Error::Access => Status::Access,
        fs::Error::Exists => Status::Exist,
        fs::Error::CrossDevice => Status::CrossDevice,
        fs::Error::NotDirectory => Status::NotDirectory,
        fs::Error::IsDirectory => Status::IsDirectory,
        fs::Error::Invalid => Status::Invalid,
        fs::Error::TooLarge => Status::TooBig,
        fs::Error::NoSpace => Status::NoSpace,
        fs::Error::ReadOnly => Status::ReadOnly,
        fs::Error::TooManyLinks => Status::TooManyLinks,
        fs::Error::NameTooLong => Status::NameTooLong,
        fs::Error::NotEmpty => Status::NotEmpty,
        fs::Error::Quota => Status::Quota,
        fs::Error::Stale => Status::Stale,
        fs::Error::NotSync => Status::NotSame,
        fs::Error::BadCookie => Status::BadCookie,
        fs::Error::NotSupported => Status::NotSupported,
        fs::Error::BadType => Status::BadType,
        fs::Error::Busy => Status::Delay,
        fs::Error::NoXattr => Status::NoXattr,
        fs::Error::XattrTooLarge => Status::XattrTooBig,
        // RFC 7862 §15.11.3.
        fs::Error::PastEnd => Status::NoDeviceAddress,
    }
}

/// Converts a status of version 3, as handles have it: the codes that both versions have are the same.
pub(super) fn status_of_handle(status: nfs_proto::Status) -> Status {
    Status::try_from(status as u32).unwrap_or(Status::ServerFault)
}

/// Tells of a change of a directory, or of extended attributes. It is not said to be atomic: others may have changed the object
/// between the two looks.
pub(super) fn change(wcc: &fs::Wcc) -> ChangeInfo {
    let after = wcc.after.map(|after| after.change);
    let before = wcc.before.map(|before| before.change);
    ChangeInfo {
        atomic: false,
        before: ChangeId(before.or(after).unwrap_or_default()),
        after: ChangeId(after.unwrap_or_default()),
    }
}

/// Checks the name of an entry (RFC 8881 §14.5, §18.4.3).
///
/// # Errors
///
/// `Invalid`: it is empty. `BadName`: it is `.` or `..`, or has a slash. `BadCharacter`: it has a NUL. `NameTooLong`.
pub(super) fn name(bytes: &[u8]) -> Result<fs::Name<'_>, Status> {
    match bytes {
        [] => return Err(Status::Invalid),
        b"." | b".." => return Err(Status::BadName),
        bytes if bytes.contains(&0) => return Err(Status::BadCharacter),
        bytes if bytes.contains(&b'/') => return Err(Status::BadName),
        _ => {}
    }
    fs::Name::new(bytes).map_err(status)
}
