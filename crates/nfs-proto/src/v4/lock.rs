//! Locks of byte ranges, and tests of state ids (RFC 8881 §18.10 to §18.12, §18.38, §18.48).

use crate::v4::array::Array;
use crate::v4::limits::MAX_STATEIDS;
use crate::v4::status::{Refused, Res, Status};
use crate::v4::types::{StateId, StateOwner};

xdr_enum! {
    /// Kind of a lock (`nfs_lock_type4`, RFC 8881 §18.10.1).
    pub enum LockType ("nfs_lock_type4") {
        /// Shared.
        Read = 1,
        /// Exclusive.
        Write = 2,
        /// Shared, and the client waits for it.
        ReadWait = 3,
        /// Exclusive, and the client waits for it.
        WriteWait = 4,
    }
}

xdr_struct! {
    /// The first lock of an owner in an open (`open_to_lock_owner4`, RFC 8881 §3.3.11).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct OpenToLockOwner<'a> {
        /// Ignored where there is a session.
        pub open_seqid: u32,
        /// The open.
        pub open: StateId,
        /// Ignored where there is a session.
        pub lock_seqid: u32,
        /// The owner.
        pub owner: StateOwner<'a>,
    }
}

xdr_struct! {
    /// A further lock of an owner (`exist_lock_owner4`, RFC 8881 §18.10.1).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ExistingLockOwner {
        /// The locks.
        pub state: StateId,
        /// Ignored where there is a session.
        pub lock_seqid: u32,
    }
}

xdr_union! {
    /// The owner of a lock (`locker4`, RFC 8881 §18.10.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Locker<'a> ("bool") {
        /// An owner that has locks.
        Existing(ExistingLockOwner) = 0,
        /// An owner without.
        New(OpenToLockOwner<'a>) = 1,
    }
}

xdr_struct! {
    /// Arguments of LOCK (RFC 8881 §18.10.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LockArgs<'a> {
        /// Kind.
        pub kind: LockType,
        /// Whether it is a lock from before the server's restart.
        pub reclaim: bool,
        /// From this byte on.
        pub offset: u64,
        /// Number of bytes; all ones are to the end of any file.
        pub length: u64,
        /// The owner.
        pub locker: Locker<'a>,
    }
}

xdr_struct! {
    /// A lock that is in the way (`LOCK4denied`, RFC 8881 §18.10.2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LockDenied<'a> {
        /// From this byte on.
        pub offset: u64,
        /// Number of bytes; all ones are to the end of any file.
        pub length: u64,
        /// Kind.
        pub kind: LockType,
        /// The owner.
        pub owner: StateOwner<'a>,
    }
}

impl Default for LockDenied<'_> {
    /// Returns a lock of unknown owner and range.
    fn default() -> Self {
        Self {
            offset: 0,
            length: u64::MAX,
            kind: LockType::Write,
            owner: StateOwner::default(),
        }
    }
}

/// Result of LOCK or LOCKT: `NFS4ERR_DENIED` names the lock that is in the way (RFC 8881 §18.10.2, §18.11.2).
pub type LockRes<'a, T> = Result<T, Refused<LockDenied<'a>, { Status::Denied as u32 }>>;

xdr_struct! {
    /// Arguments of LOCKT (RFC 8881 §18.11.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LockTArgs<'a> {
        /// Kind.
        pub kind: LockType,
        /// From this byte on.
        pub offset: u64,
        /// Number of bytes; all ones are to the end of any file.
        pub length: u64,
        /// The owner.
        pub owner: StateOwner<'a>,
    }
}

xdr_struct! {
    /// Arguments of LOCKU (RFC 8881 §18.12.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LockUArgs {
        /// Kind. A server ignores it.
        pub kind: LockType,
        /// Ignored where there is a session.
        pub seqid: u32,
        /// The locks.
        pub state: StateId,
        /// From this byte on.
        pub offset: u64,
        /// Number of bytes; all ones are to the end of any file.
        pub length: u64,
    }
}

xdr_struct! {
    /// Arguments of FREE_STATEID (RFC 8881 §18.38.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct FreeStateIdArgs {
        /// The state.
        pub state: StateId,
    }
}

xdr_struct! {
    /// Arguments of TEST_STATEID (RFC 8881 §18.48.1).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct TestStateIdArgs<'a> {
        /// The states.
        pub states: Array<'a, StateId, MAX_STATEIDS>,
    }
}

xdr_struct! {
    /// Result of TEST_STATEID (RFC 8881 §18.48.2).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct TestStateIdOk<'a> {
        /// A status for each of the states, in their order.
        pub statuses: Array<'a, Res<()>, MAX_STATEIDS>,
    }
}
