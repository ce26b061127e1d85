//! Attributes of files, how to set them, and weak cache consistency (RFC 1813 §2.5, §2.6).

use crate::{FileId, Wire};
use oncrpc::xdr::{Error, Reader, Writer};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

xdr_enum! {
    /// Type of a file (`ftype3`).
    pub enum FileType ("ftype3") {
        /// A regular file.
        Regular = 1,
        /// A directory.
        Directory = 2,
        /// A block device.
        Block = 3,
        /// A character device.
        Character = 4,
        /// A symbolic link.
        Symlink = 5,
        /// A socket.
        Socket = 6,
        /// A named pipe.
        Fifo = 7,
    }
}

xdr_struct! {
    /// Numbers of a device (`specdata3`); zeroes for everything else.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Device {
        /// Major number.
        pub major: u32,
        /// Minor number.
        pub minor: u32,
    }
}

xdr_struct! {
    /// Time since 1970 (`nfstime3`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
    pub struct NfsTime {
        /// Whole seconds.
        pub seconds: u32,
        /// Nanoseconds within the second.
        pub nanoseconds: u32,
    }
}

impl From<SystemTime> for NfsTime {
    /// Converts a time to the nearest one on the wire, which is from 1970 to 2106.
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        match u32::try_from(since.as_secs()) {
            Ok(seconds) => Self {
                seconds,
                nanoseconds: since.subsec_nanos(),
            },
            Err(_) => Self {
                seconds: u32::MAX,
                nanoseconds: 999_999_999,
            },
        }
    }
}

impl From<NfsTime> for SystemTime {
    fn from(time: NfsTime) -> Self {
        let seconds = Duration::from_secs(time.seconds.into());
        UNIX_EPOCH + seconds + Duration::from_nanos(time.nanoseconds.into())
    }
}

/// Attributes of a file (`fattr3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Its type.
    pub file_type: FileType,
    /// Permission bits, and set-user-ID, set-group-ID and sticky.
    pub mode: u32,
    /// Number of hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes of data.
    pub size: u64,
    /// Bytes of disk space.
    pub used: u64,
    /// Major and minor number of a device.
    pub device: Device,
    /// Number of the file system.
    pub fsid: u64,
    /// Number of the file in its file system.
    pub file_id: FileId,
    /// When its data was last read.
    pub atime: NfsTime,
    /// When its data was last changed.
    pub mtime: NfsTime,
    /// When its attributes were last changed.
    pub ctime: NfsTime,
}

/// Words of the XDR form of [`Attributes`].
const WORDS: usize = 21;

/// Attributes are written as one block, not field by field: they are in most replies, and were most
/// of the work of a small reply.
impl Wire<'_> for Attributes {
    const MAX: usize = 4 * WORDS;

    fn parse(r: &mut Reader<'_>) -> Result<Self, Error> {
        let words: [u32; WORDS] = r.words()?;
        let long = |at: usize| u64::from(words[at]) << 32 | u64::from(words[at + 1]);
        let time = |at: usize| NfsTime {
            seconds: words[at],
            nanoseconds: words[at + 1],
        };
        Ok(Self {
            file_type: words[0].try_into()?,
            mode: words[1],
            links: words[2],
            uid: words[3],
            gid: words[4],
            size: long(5),
            used: long(7),
            device: Device {
                major: words[9],
                minor: words[10],
            },
            fsid: long(11),
            file_id: FileId(long(13)),
            atime: time(15),
            mtime: time(17),
            ctime: time(19),
        })
    }

    #[inline]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the halves are taken apart"
    )]
    fn write(&self, w: &mut Writer) {
        let mut words = [0; WORDS];
        words[0] = self.file_type as u32;
        words[1] = self.mode;
        words[2] = self.links;
        words[3] = self.uid;
        words[4] = self.gid;
        words[9] = self.device.major;
        words[10] = self.device.minor;
        let longs = [
            (5, self.size),
            (7, self.used),
            (11, self.fsid),
            (13, self.file_id.0),
        ];
        for (at, long) in longs {
            words[at] = (long >> 32) as u32;
            words[at + 1] = long as u32;
        }
        for (at, time) in [(15, self.atime), (17, self.mtime), (19, self.ctime)] {
            words[at] = time.seconds;
            words[at + 1] = time.nanoseconds;
        }
        w.words(words);
    }
}

#[cfg(test)]
impl crate::tests::Sample for Attributes {
    fn sample(rng: &mut crate::tests::Rng) -> Self {
        use crate::tests::Sample;
        Self {
            file_type: Sample::sample(rng),
            mode: Sample::sample(rng),
            links: Sample::sample(rng),
            uid: Sample::sample(rng),
            gid: Sample::sample(rng),
            size: Sample::sample(rng),
            used: Sample::sample(rng),
            device: Sample::sample(rng),
            fsid: Sample::sample(rng),
            file_id: Sample::sample(rng),
            atime: Sample::sample(rng),
            mtime: Sample::sample(rng),
            ctime: Sample::sample(rng),
        }
    }
}

xdr_struct! {
    /// Attributes from before an operation, for cache consistency (`wcc_attr`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct WccAttributes {
        /// Bytes of data.
        pub size: u64,
        /// When its data was last changed.
        pub mtime: NfsTime,
        /// When its attributes were last changed.
        pub ctime: NfsTime,
    }
}

impl From<&Attributes> for WccAttributes {
    fn from(attributes: &Attributes) -> Self {
        Self {
            size: attributes.size,
            mtime: attributes.mtime,
            ctime: attributes.ctime,
        }
    }
}

xdr_struct! {
    /// Weak cache consistency data (`wcc_data`): a file before and after an operation.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct WccData {
        /// Before, if that is known to be just before.
        pub before: Option<WccAttributes>,
        /// After.
        pub after: Option<Attributes>,
    }
}

/// How to set a time (`set_atime`, `set_mtime`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetTime {
    /// Leave it.
    #[default]
    DontChange,
    /// To the server's time.
    ServerTime,
    /// To this time.
    ClientTime(NfsTime),
}

impl Wire<'_> for SetTime {
    const MAX: usize = 4 + NfsTime::MAX;

    fn parse(r: &mut Reader<'_>) -> Result<Self, Error> {
        match r.u32()? {
            0 => Ok(Self::DontChange),
            1 => Ok(Self::ServerTime),
            2 => NfsTime::parse(r).map(Self::ClientTime),
            value => Err(Error::NotInEnum {
                value,
                of: "time_how",
            }),
        }
    }

    fn write(&self, w: &mut Writer) {
        match self {
            Self::DontChange => w.u32(0),
            Self::ServerTime => w.u32(1),
            Self::ClientTime(time) => {
                w.u32(2);
                time.write(w);
            }
        }
    }
}

xdr_struct! {
    /// Attributes to set (`sattr3`); the default sets none.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SetAttributes {
        /// Permission bits.
        pub mode: Option<u32>,
        /// Owner.
        pub uid: Option<u32>,
        /// Group.
        pub gid: Option<u32>,
        /// Bytes of data: truncates or extends.
        pub size: Option<u64>,
        /// When its data was last read.
        pub atime: SetTime,
        /// When its data was last changed.
        pub mtime: SetTime,
    }
}
