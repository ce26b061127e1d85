//! Basic types of NFS version 4: identifiers, owners, times (RFC 8881 §3.2, §3.3).

use crate::limits::{MAX_NETWORK_ADDRESS, MAX_OWNER_NAME, MAX_STATE_OWNER, MAX_V4_HANDLE};
use crate::v4::status::Status;
use crate::{Bytes, Wire};
use oncrpc::xdr::{Error, Reader, Writer};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A file handle (`nfs_fh4`), opaque to clients.
pub type Handle<'a> = Bytes<'a, MAX_V4_HANDLE>;

/// Identifier of an owner of state, of a client or of a server (`NFS4_OPAQUE_LIMIT`).
pub type Identifier<'a> = Bytes<'a, MAX_STATE_OWNER>;

/// Name of a user or group: `owner`, `owner_group` and the subject of an entry of an access control
/// list (`utf8str_mixed`, RFC 8881 §5.9). Decimal digits are a number.
pub type Principal<'a> = Bytes<'a, MAX_OWNER_NAME>;

numbers! {
    /// Client id (`clientid4`), given by EXCHANGE_ID (RFC 8881 §18.35).
    pub struct ClientId(u64);

    /// Sequence id of a slot, or of CREATE_SESSION (`sequenceid4`, RFC 8881 §2.10.6.1). It wraps
    /// around.
    pub struct SequenceId(u32);

    /// Number of a slot in the table of a session (`slotid4`, RFC 8881 §2.10.6.1).
    pub struct SlotId(u32);

    /// Change attribute of an object (`changeid4`, RFC 8881 §5.8.1.4).
    pub struct ChangeId(u64);

    /// Kind of a pNFS layout (`layouttype4`, RFC 8881 §3.3.13): 1 files, 2 objects, 3 blocks, 4 flexible files.
    /// Any value.
    pub struct LayoutType(u32);
}

fixed_opaque! {
    /// Session id (`sessionid4`, RFC 8881 §2.10.3).
    pub struct SessionId([u8; 16]);

    /// Value by which one instance is told from another (`verifier4`, RFC 8881 §3.2): of a client,
    /// of an exclusive creation.
    pub struct Verifier([u8; 8]);

    /// Id of a pNFS device (`deviceid4`, RFC 8881 §3.3.14).
    pub struct DeviceId([u8; 16]);
}

/// State id (`stateid4`, RFC 8881 §3.3.12, §8.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StateId {
    /// Number of the change of this state, from 1 on. Zero means the newest (RFC 8881 §8.2.2).
    pub seqid: u32,
    /// Identifies the state. The server chooses it.
    pub other: [u8; 12],
}

/// State ids with a meaning of their own (RFC 8881 §8.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialStateId {
    /// All zero: no open, lock or delegation.
    Anonymous,
    /// All ones: the same, and READ passes locks.
    ReadBypass,
    /// The current state id of the COMPOUND (RFC 8881 §16.2.3.1.2).
    Current,
    /// Never valid.
    Invalid,
}

impl StateId {
    /// Returns the special meaning, if it has one (RFC 8881 §8.2.3).
    pub fn special(&self) -> Option<SpecialStateId> {
        match (self.seqid, self.other) {
            (0, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]) => Some(SpecialStateId::Anonymous),
            (u32::MAX, other) if other == [0xff; 12] => Some(SpecialStateId::ReadBypass),
            (1, other) if other == [0; 12] => Some(SpecialStateId::Current),
            (u32::MAX, other) if other == [0; 12] => Some(SpecialStateId::Invalid),
            _ => None,
        }
    }
}

impl From<SpecialStateId> for StateId {
    fn from(special: SpecialStateId) -> Self {
        let (seqid, byte) = match special {
            SpecialStateId::Anonymous => (0, 0),
            SpecialStateId::ReadBypass => (u32::MAX, 0xff),
            SpecialStateId::Current => (1, 0),
            SpecialStateId::Invalid => (u32::MAX, 0),
        };
        let other = [byte; 12];
        Self { seqid, other }
    }
}

impl Wire<'_> for StateId {
    const MAX: usize = 16;

    fn parse(r: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Self {
            seqid: r.u32()?,
            other: r.fixed()?,
        })
    }

    fn write(&self, w: &mut Writer) {
        w.u32(self.seqid);
        w.fixed(&self.other);
    }
}

#[cfg(test)]
impl crate::tests::Sample for StateId {
    fn sample(rng: &mut crate::tests::Rng) -> Self {
        use crate::tests::Sample;
        Self {
            seqid: Sample::sample(rng),
            other: std::array::from_fn(|_| u32::sample(rng).to_be_bytes()[0]),
        }
    }
}

xdr_enum! {
    /// Type of an object (`nfs_ftype4`, RFC 8881 §5.8.1.2).
    pub enum FileType ("nfs_ftype4") {
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
        /// A directory of named attributes.
        AttributeDirectory = 8,
        /// A named attribute.
        NamedAttribute = 9,
    }
}

xdr_struct! {
    /// Id of a file system (`fsid4`, RFC 8881 §3.3.5).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct FsId {
        /// Major part.
        pub major: u64,
        /// Minor part.
        pub minor: u64,
    }
}

impl Wire<'_> for i32 {
    const MAX: usize = 4;

    fn parse(r: &mut Reader<'_>) -> Result<Self, Error> {
        r.i32()
    }

    fn write(&self, w: &mut Writer) {
        w.i32(*self);
    }
}

impl Wire<'_> for i64 {
    const MAX: usize = 8;

    fn parse(r: &mut Reader<'_>) -> Result<Self, Error> {
        r.i64()
    }

    fn write(&self, w: &mut Writer) {
        w.i64(*self);
    }
}

xdr_struct! {
    /// Time relative to 1970 (`nfstime4`, RFC 8881 §3.3.1).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
    pub struct Time {
        /// Whole seconds, rounded down; negative before 1970.
        pub seconds: i64,
        /// Nanoseconds after them: less than 1,000,000,000 in a valid time.
        pub nanoseconds: u32,
    }
}

/// Nanoseconds of a second.
const NANOSECONDS: u32 = 1_000_000_000;

impl From<SystemTime> for Time {
    fn from(time: SystemTime) -> Self {
        let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        match time.duration_since(UNIX_EPOCH) {
            Ok(since) => Self {
                seconds: seconds(since),
                nanoseconds: since.subsec_nanos(),
            },
            Err(before) => {
                let before = before.duration();
                match before.subsec_nanos() {
                    0 => Self {
                        seconds: -seconds(before),
                        nanoseconds: 0,
                    },
                    nanoseconds => Self {
                        seconds: -seconds(before) - 1,
                        nanoseconds: NANOSECONDS - nanoseconds,
                    },
                }
            }
        }
    }
}

impl TryFrom<Time> for SystemTime {
    type Error = Status;

    /// # Errors
    ///
    /// `NFS4ERR_INVAL` if the time has too many nanoseconds (RFC 8881 §3.3.1), or lies beyond the times of the
    /// system.
    fn try_from(time: Time) -> Result<Self, Status> {
        if time.nanoseconds >= NANOSECONDS {
            return Err(Status::Invalid);
        }
        let seconds = Duration::from_secs(time.seconds.unsigned_abs());
        let whole = match time.seconds < 0 {
            true => UNIX_EPOCH.checked_sub(seconds),
            false => UNIX_EPOCH.checked_add(seconds),
        };
        let within = Duration::from_nanos(time.nanoseconds.into());
        let time = whole.and_then(|whole| whole.checked_add(within));
        time.ok_or(Status::Invalid)
    }
}

xdr_union! {
    /// How to set a time (`settime4`, RFC 8881 §3.3.3).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum SetTime ("time_how4") {
        /// To the server's time.
        ServerTime = 0,
        /// To this time.
        ClientTime(Time) = 1,
    }
}

xdr_struct! {
    /// Change attribute of a directory before and after an operation (`change_info4`, RFC 8881
    /// §3.3.8).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ChangeInfo {
        /// Whether nothing else changed the directory between both.
        pub atomic: bool,
        /// Before.
        pub before: ChangeId,
        /// After.
        pub after: ChangeId,
    }
}

xdr_struct! {
    /// Owner of opens or locks of one client (`state_owner4`, RFC 8881 §3.3.10).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct StateOwner<'a> {
        /// The client. A server ignores it where there is a session (RFC 8881 §18.16.3).
        pub client: ClientId,
        /// The owner within the client.
        pub owner: Identifier<'a>,
    }
}

xdr_struct! {
    /// Address of a service (`netaddr4`, RFC 8881 §3.3.9).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct NetAddress<'a> {
        /// Network id, such as `tcp`.
        pub netid: Bytes<'a, MAX_NETWORK_ADDRESS>,
        /// Universal address (RFC 5665 §5.2.3).
        pub address: Bytes<'a, MAX_NETWORK_ADDRESS>,
    }
}
