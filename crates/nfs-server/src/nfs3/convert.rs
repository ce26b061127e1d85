//! Conversions between the types of a file system and those of the protocol.

use crate::fs;
use nfs_proto::{
    Attributes, Device, FileId, FileType, NfsTime, SetAttributes, SetTime, Status, WccAttributes,
    WccData,
};

/// The status of an error.
pub(crate) fn status(error: fs::Error) -> Status {
    match error {
        fs::Error::NotOwner => Status::Perm,
        fs::Error::NotFound => Status::NoEntry,
        fs::Error::Io => Status::Io,
        fs::Error::NoDevice => Status::NoDevice,
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
        fs::Error::NotSync => Status::NotSync,
        fs::Error::BadCookie => Status::BadCookie,
        fs::Error::NotSupported => Status::NotSupported,
        fs::Error::BadType => Status::BadType,
        fs::Error::Busy => Status::Jukebox,
        // Version 3 has no operation that fails so.
        fs::Error::NoXattr | fs::Error::XattrTooLarge | fs::Error::PastEnd => Status::ServerFault,
    }
}

/// Converts attributes; the number of the export becomes that of the file system (`fsid`).
pub(super) fn attributes(export: u32, found: &fs::Attributes) -> Attributes {
    let file_type = match found.kind {
        fs::FileKind::Regular => FileType::Regular,
        fs::FileKind::Directory => FileType::Directory,
        fs::FileKind::BlockDevice => FileType::Block,
        fs::FileKind::CharacterDevice => FileType::Character,
        fs::FileKind::Symlink => FileType::Symlink,
        fs::FileKind::Socket => FileType::Socket,
        fs::FileKind::Fifo => FileType::Fifo,
    };
    Attributes {
        file_type,
        mode: found.mode,
        links: found.links,
        uid: found.uid,
        gid: found.gid,
        size: found.size,
        used: found.used,
        device: Device {
            major: found.device.0,
            minor: found.device.1,
        },
        fsid: export.into(),
        file_id: FileId(found.fileid),
        atime: time(found.atime),
        mtime: time(found.mtime),
        ctime: time(found.ctime),
    }
}

pub(super) fn wcc(export: u32, wcc: &fs::Wcc) -> WccData {
    WccData {
        before: wcc.before.map(|before| WccAttributes {
            size: before.size,
            mtime: time(before.mtime),
            ctime: time(before.ctime),
        }),
        after: wcc.after.map(|after| attributes(export, &after)),
    }
}

/// Converts a time. Times on the wire are unsigned; earlier and later ones become the nearest
/// possible one.
fn time(time: fs::Time) -> NfsTime {
    match u32::try_from(time.seconds) {
        Ok(seconds) => NfsTime {
            seconds,
            nanoseconds: time.nanos,
        },
        Err(_) if time.seconds < 0 => NfsTime::default(),
        Err(_) => NfsTime {
            seconds: u32::MAX,
            nanoseconds: 999_999_999,
        },
    }
}

/// Converts a time from the wire; `None` if its nanoseconds are a second or more.
pub(super) fn time_from(time: NfsTime) -> Option<fs::Time> {
    (time.nanoseconds < 1_000_000_000).then(|| fs::Time {
        seconds: time.seconds.into(),
        nanos: time.nanoseconds,
    })
}

fn set_time(set: SetTime) -> Result<fs::SetTime, Status> {
    match set {
        SetTime::DontChange => Ok(fs::SetTime::Keep),
        SetTime::ServerTime => Ok(fs::SetTime::Now),
        SetTime::ClientTime(time) => time_from(time).map(fs::SetTime::To).ok_or(Status::Invalid),
    }
}

pub(super) fn set_attributes(set: &SetAttributes) -> Result<fs::SetAttributes, Status> {
    Ok(fs::SetAttributes {
        umask: 0,
        mode: set.mode.map(|mode| mode & fs::mode::ALL),
        uid: set.uid,
        gid: set.gid,
        size: set.size,
        atime: set_time(set.atime)?,
        mtime: set_time(set.mtime)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_out_of_range_are_clamped_to_nfstime3() {
        let wire = |seconds| time(fs::Time { seconds, nanos: 5 });
        assert_eq!(wire(-1), NfsTime::default());
        assert_eq!(wire(7).seconds, 7);
        assert_eq!(wire(1 << 32).seconds, u32::MAX);
    }

    #[test]
    fn second_of_too_many_nanoseconds_is_invalid() {
        let set = SetAttributes {
            mtime: SetTime::ClientTime(NfsTime {
                seconds: 1,
                nanoseconds: 1_000_000_000,
            }),
            ..SetAttributes::default()
        };
        assert_eq!(set_attributes(&set), Err(Status::Invalid));
    }
}
