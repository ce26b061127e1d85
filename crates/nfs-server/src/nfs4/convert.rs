//! Conversions between the types of a file system and those of the protocol.

use crate::{fs, nfs3};
use nfs_proto::v4::{ChangeId, ChangeInfo, Status};

/// The status of an error: the code of version 3, unless version 4 has another one for it or version 3 has none.
pub(super) fn status(error: fs::Error) -> Status {
    match error {
        // For the second: RFC 7862 §15.11.3.
        fs::Error::NoDevice | fs::Error::PastEnd => Status::NoDeviceAddress,
        fs::Error::NotSync => Status::NotSame,
        fs::Error::NoXattr => Status::NoXattr,
        fs::Error::XattrTooLarge => Status::XattrTooBig,
        error => from_v3(nfs3::status(error)),
    }
}

/// Converts a status of version 3: the codes that both versions have are the same.
pub(super) fn from_v3(status: nfs_proto::Status) -> Status {
    Status::try_from(status as u32).unwrap_or(Status::ServerFault)
}

/// Tells of a change of a directory, or of extended attributes. It is said to be atomic if the file system is certain that nobody else
/// changed the object between the two looks; otherwise a client forgets what it knows of it (RFC 8881 §10.8.1).
///
/// Where the value from before is not known, it is one that no client has: Linux takes a file for one that was there if both are the
/// same.
pub(super) fn change(wcc: &fs::Wcc) -> ChangeInfo {
    let after = wcc.after.map(|after| after.change).unwrap_or_default();
    let before = wcc.before.map(|before| before.change);
    ChangeInfo {
        atomic: wcc.atomic && before.is_some(),
        before: ChangeId(before.unwrap_or(!after)),
        after: ChangeId(after),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_version_4_are_those_of_version_3_but_for_some() {
        assert_eq!(status(fs::Error::NoSpace), Status::NoSpace);
        assert_eq!(status(fs::Error::Busy), Status::Delay);
        for (error, expected) in [
            (fs::Error::NoDevice, Status::NoDeviceAddress),
            (fs::Error::PastEnd, Status::NoDeviceAddress),
            (fs::Error::NotSync, Status::NotSame),
            (fs::Error::NoXattr, Status::NoXattr),
            (fs::Error::XattrTooLarge, Status::XattrTooBig),
        ] {
            assert_eq!(status(error), expected);
            assert_ne!(from_v3(nfs3::status(error)), expected, "{error:?}");
        }
    }
}
