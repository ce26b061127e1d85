//! Status codes (RFC 8881 §15.1, RFC 7862 §11.1, RFC 8276 §8.3), and results that depend on them.

use crate::Wire;
use crate::v4::largest;
use oncrpc::xdr::{Error, Reader, Writer};
use std::fmt;

xdr_enum! {
    /// An error of `nfsstat4`. `NFS4_OK` is not among them: that is `Ok`.
    pub enum Status ("nfsstat4") {
        /// `NFS4ERR_PERM`: only the owner or a privileged user may do this.
        Perm = 1,
        /// `NFS4ERR_NOENT`: no such file or directory.
        NoEntry = 2,
        /// `NFS4ERR_IO`: a hard error of the device.
        Io = 5,
        /// `NFS4ERR_NXIO`: no such device or address; for SEEK, nothing behind this offset.
        NoDeviceAddress = 6,
        /// `NFS4ERR_ACCESS`: the caller's permissions do not allow it.
        Access = 13,
        /// `NFS4ERR_EXIST`: the name is taken.
        Exist = 17,
        /// `NFS4ERR_XDEV`: on another file system.
        CrossDevice = 18,
        /// `NFS4ERR_NOTDIR`: not a directory.
        NotDirectory = 20,
        /// `NFS4ERR_ISDIR`: a directory.
        IsDirectory = 21,
        /// `NFS4ERR_INVAL`: an argument that is invalid here.
        Invalid = 22,
        /// `NFS4ERR_FBIG`: larger than the server's files can be.
        TooBig = 27,
        /// `NFS4ERR_NOSPC`: no space left.
        NoSpace = 28,
        /// `NFS4ERR_ROFS`: a read-only file system.
        ReadOnly = 30,
        /// `NFS4ERR_MLINK`: too many hard links.
        TooManyLinks = 31,
        /// `NFS4ERR_NAMETOOLONG`: the name is too long.
        NameTooLong = 63,
        /// `NFS4ERR_NOTEMPTY`: the directory is not empty.
        NotEmpty = 66,
        /// `NFS4ERR_DQUOT`: the user's quota is used up.
        Quota = 69,
        /// `NFS4ERR_STALE`: the file of this handle is gone, or access to it was revoked.
        Stale = 70,
        /// `NFS4ERR_BADHANDLE`: not a handle of this server.
        BadHandle = 10001,
        /// `NFS4ERR_BAD_COOKIE`: the place in the directory is no longer valid.
        BadCookie = 10003,
        /// `NFS4ERR_NOTSUPP`: not supported.
        NotSupported = 10004,
        /// `NFS4ERR_TOOSMALL`: not even one entry fits the size asked for.
        TooSmall = 10005,
        /// `NFS4ERR_SERVERFAULT`: an error without a code of its own.
        ServerFault = 10006,
        /// `NFS4ERR_BADTYPE`: objects of this type cannot be made here.
        BadType = 10007,
        /// `NFS4ERR_DELAY`: not now; ask again later.
        Delay = 10008,
        /// `NFS4ERR_SAME`: NVERIFY found the attributes to be the same.
        Same = 10009,
        /// `NFS4ERR_DENIED`: the lock is held by another owner.
        Denied = 10010,
        /// `NFS4ERR_EXPIRED`: the lease ran out, and the state is gone.
        Expired = 10011,
        /// `NFS4ERR_LOCKED`: a lock forbids this READ or WRITE.
        Locked = 10012,
        /// `NFS4ERR_GRACE`: the server restarted, and only takes reclaims as yet.
        Grace = 10013,
        /// `NFS4ERR_FHEXPIRED`: the file handle was volatile, and has expired.
        HandleExpired = 10014,
        /// `NFS4ERR_SHARE_DENIED`: another open denies this access.
        ShareDenied = 10015,
        /// `NFS4ERR_WRONGSEC`: not with this security flavor.
        WrongSecurity = 10016,
        /// `NFS4ERR_CLID_INUSE`: another principal uses this client owner.
        ClientIdInUse = 10017,
        /// `NFS4ERR_RESOURCE`: resources are exhausted; not in minor version 1 and later.
        Resource = 10018,
        /// `NFS4ERR_MOVED`: the file system is on another server.
        Moved = 10019,
        /// `NFS4ERR_NOFILEHANDLE`: there is no current file handle.
        NoFileHandle = 10020,
        /// `NFS4ERR_MINOR_VERS_MISMATCH`: the minor version is not supported.
        MinorVersionMismatch = 10021,
        /// `NFS4ERR_STALE_CLIENTID`: not a client id of this instance of the server.
        StaleClientId = 10022,
        /// `NFS4ERR_STALE_STATEID`: not a state id of this instance of the server.
        StaleStateId = 10023,
        /// `NFS4ERR_OLD_STATEID`: not the newest seqid of this state.
        OldStateId = 10024,
        /// `NFS4ERR_BAD_STATEID`: no state, or not one for this.
        BadStateId = 10025,
        /// `NFS4ERR_BAD_SEQID`: an owner's seqid is out of order; minor version 0 only.
        BadSeqid = 10026,
        /// `NFS4ERR_NOT_SAME`: VERIFY found the attributes to differ, or the cookie verifier has changed.
        NotSame = 10027,
        /// `NFS4ERR_LOCK_RANGE`: the range lies across locks that cannot be split.
        LockRange = 10028,
        /// `NFS4ERR_SYMLINK`: a symbolic link, where a file or directory is needed.
        Symlink = 10029,
        /// `NFS4ERR_RESTOREFH`: there is no saved file handle; minor version 0 only.
        RestoreHandle = 10030,
        /// `NFS4ERR_LEASE_MOVED`: a file system of this lease moved; minor version 0 only.
        LeaseMoved = 10031,
        /// `NFS4ERR_ATTRNOTSUPP`: an attribute that is not supported here.
        AttributeNotSupported = 10032,
        /// `NFS4ERR_NO_GRACE`: too late, or too early, for a reclaim.
        NoGrace = 10033,
        /// `NFS4ERR_RECLAIM_BAD`: the client had no such state to reclaim.
        ReclaimBad = 10034,
        /// `NFS4ERR_RECLAIM_CONFLICT`: the reclaim conflicts with other state.
        ReclaimConflict = 10035,
        /// `NFS4ERR_BADXDR`: the arguments are not in the form that the protocol defines.
        BadXdr = 10036,
        /// `NFS4ERR_LOCKS_HELD`: locks are held.
        LocksHeld = 10037,
        /// `NFS4ERR_OPENMODE`: not with the access of this open.
        OpenMode = 10038,
        /// `NFS4ERR_BADOWNER`: no such owner or group.
        BadOwner = 10039,
        /// `NFS4ERR_BADCHAR`: a character that names cannot have here.
        BadCharacter = 10040,
        /// `NFS4ERR_BADNAME`: a name that is not possible here.
        BadName = 10041,
        /// `NFS4ERR_BAD_RANGE`: a range of 64 bits that the server cannot lock.
        BadRange = 10042,
        /// `NFS4ERR_LOCK_NOTSUPP`: a lock cannot be upgraded or downgraded atomically.
        LockNotSupported = 10043,
        /// `NFS4ERR_OP_ILLEGAL`: no such operation in this minor version.
        IllegalOperation = 10044,
        /// `NFS4ERR_DEADLOCK`: two lock owners would wait for each other.
        Deadlock = 10045,
        /// `NFS4ERR_FILE_OPEN`: the file is open.
        FileOpen = 10046,
        /// `NFS4ERR_ADMIN_REVOKED`: an administrator revoked the state.
        AdminRevoked = 10047,
        /// `NFS4ERR_CB_PATH_DOWN`: the client cannot be called; minor version 0 only.
        CallbackPathDown = 10048,
        /// `NFS4ERR_BADIOMODE`: a layout cannot have this mode.
        BadIoMode = 10049,
        /// `NFS4ERR_BADLAYOUT`: not a layout that is held.
        BadLayout = 10050,
        /// `NFS4ERR_BAD_SESSION_DIGEST`: the digest of a SET_SSV is wrong.
        BadSessionDigest = 10051,
        /// `NFS4ERR_BADSESSION`: no such session.
        BadSession = 10052,
        /// `NFS4ERR_BADSLOT`: no such slot.
        BadSlot = 10053,
        /// `NFS4ERR_COMPLETE_ALREADY`: a second RECLAIM_COMPLETE.
        CompleteAlready = 10054,
        /// `NFS4ERR_CONN_NOT_BOUND_TO_SESSION`: the connection is not bound to the session.
        ConnectionNotBound = 10055,
        /// `NFS4ERR_DELEG_ALREADY_WANTED`: the client waits for this delegation already.
        DelegationAlreadyWanted = 10056,
        /// `NFS4ERR_BACK_CHAN_BUSY`: callbacks are outstanding.
        BackChannelBusy = 10057,
        /// `NFS4ERR_LAYOUTTRYLATER`: no layout now; ask again later.
        LayoutTryLater = 10058,
        /// `NFS4ERR_LAYOUTUNAVAILABLE`: no layout for this file.
        LayoutUnavailable = 10059,
        /// `NFS4ERR_NOMATCHING_LAYOUT`: the client has no such layout.
        NoMatchingLayout = 10060,
        /// `NFS4ERR_RECALLCONFLICT`: the layout is being recalled.
        RecallConflict = 10061,
        /// `NFS4ERR_UNKNOWN_LAYOUTTYPE`: a layout type that the server does not know.
        UnknownLayoutType = 10062,
        /// `NFS4ERR_SEQ_MISORDERED`: the sequence id is neither the last one nor the next.
        SequenceMisordered = 10063,
        /// `NFS4ERR_SEQUENCE_POS`: SEQUENCE is not the first operation.
        SequencePosition = 10064,
        /// `NFS4ERR_REQ_TOO_BIG`: the request is larger than the session allows.
        RequestTooBig = 10065,
        /// `NFS4ERR_REP_TOO_BIG`: the reply would be larger than the session allows.
        ReplyTooBig = 10066,
        /// `NFS4ERR_REP_TOO_BIG_TO_CACHE`: the reply is to be cached, and is too large for it.
        ReplyTooBigToCache = 10067,
        /// `NFS4ERR_RETRY_UNCACHED_REP`: a retry of a request whose reply was not cached.
        RetryUncachedReply = 10068,
        /// `NFS4ERR_UNSAFE_COMPOUND`: the client could not recover if this COMPOUND was interrupted.
        UnsafeCompound = 10069,
        /// `NFS4ERR_TOO_MANY_OPS`: more operations than the session allows.
        TooManyOperations = 10070,
        /// `NFS4ERR_OP_NOT_IN_SESSION`: the operation needs a SEQUENCE before it.
        OperationNotInSession = 10071,
        /// `NFS4ERR_HASH_ALG_UNSUPP`: no hash algorithm that the server supports.
        HashAlgorithmUnsupported = 10072,
        /// `NFS4ERR_CLIENTID_BUSY`: the client still has sessions or state.
        ClientIdBusy = 10074,
        /// `NFS4ERR_PNFS_IO_HOLE`: a hole in the part of a file that this data server has.
        PnfsIoHole = 10075,
        /// `NFS4ERR_SEQ_FALSE_RETRY`: a retry that is another request than the first time.
        SequenceFalseRetry = 10076,
        /// `NFS4ERR_BAD_HIGH_SLOT`: the highest slot is beyond the table.
        BadHighSlot = 10077,
        /// `NFS4ERR_DEADSESSION`: the session is persistent, and takes retries only.
        DeadSession = 10078,
        /// `NFS4ERR_ENCR_ALG_UNSUPP`: no encryption algorithm that the server supports.
        EncryptionAlgorithmUnsupported = 10079,
        /// `NFS4ERR_PNFS_NO_LAYOUT`: I/O to a data server without a layout.
        PnfsNoLayout = 10080,
        /// `NFS4ERR_NOT_ONLY_OP`: the operation must be the only one of its COMPOUND.
        NotOnlyOperation = 10081,
        /// `NFS4ERR_WRONG_CRED`: not with this credential.
        WrongCredential = 10082,
        /// `NFS4ERR_WRONG_TYPE`: not for an object of this type.
        WrongType = 10083,
        /// `NFS4ERR_DIRDELEG_UNAVAIL`: no delegation of this directory.
        DirectoryDelegationUnavailable = 10084,
        /// `NFS4ERR_REJECT_DELEG`: the client rejects the delegation that is offered.
        RejectDelegation = 10085,
        /// `NFS4ERR_RETURNCONFLICT`: the layout is being returned.
        ReturnConflict = 10086,
        /// `NFS4ERR_DELEG_REVOKED`: the delegation or layout was revoked.
        DelegationRevoked = 10087,
        /// `NFS4ERR_PARTNER_NOTSUPP`: copies between servers are not supported.
        PartnerNotSupported = 10088,
        /// `NFS4ERR_PARTNER_NO_AUTH`: the other server does not authorize the copy.
        PartnerNoAuthorization = 10089,
        /// `NFS4ERR_UNION_NOTSUPP`: an arm of a union that is not supported.
        UnionNotSupported = 10090,
        /// `NFS4ERR_OFFLOAD_DENIED`: the copy is not allowed by the destination.
        OffloadDenied = 10091,
        /// `NFS4ERR_WRONG_LFS`: the format of the security label is not supported.
        WrongLabelFormat = 10092,
        /// `NFS4ERR_BADLABEL`: the security label is not valid.
        BadLabel = 10093,
        /// `NFS4ERR_OFFLOAD_NO_REQS`: the copy cannot be made in the way it was asked for.
        OffloadNoRequirements = 10094,
        /// `NFS4ERR_NOXATTR`: no such extended attribute.
        NoXattr = 10095,
        /// `NFS4ERR_XATTR2BIG`: the value of the extended attribute is too large.
        XattrTooBig = 10096,
    }
}

impl Status {
    /// Description for people.
    pub const fn message(self) -> &'static str {
        match self {
            Self::Perm => "only the owner or a privileged user may do this",
            Self::NoEntry => "no such file or directory",
            Self::Io => "a hard error of the device",
            Self::NoDeviceAddress => {
                "no such device or address; for SEEK, nothing behind this offset"
            }
            Self::Access => "the caller's permissions do not allow it",
            Self::Exist => "the name is taken",
            Self::CrossDevice => "on another file system",
            Self::NotDirectory => "not a directory",
            Self::IsDirectory => "a directory",
            Self::Invalid => "an argument that is invalid here",
            Self::TooBig => "larger than the server's files can be",
            Self::NoSpace => "no space left",
            Self::ReadOnly => "a read-only file system",
            Self::TooManyLinks => "too many hard links",
            Self::NameTooLong => "the name is too long",
            Self::NotEmpty => "the directory is not empty",
            Self::Quota => "the user's quota is used up",
            Self::Stale => "the file of this handle is gone, or access to it was revoked",
            Self::BadHandle => "not a handle of this server",
            Self::BadCookie => "the place in the directory is no longer valid",
            Self::NotSupported => "not supported",
            Self::TooSmall => "not even one entry fits the size asked for",
            Self::ServerFault => "an error without a code of its own",
            Self::BadType => "objects of this type cannot be made here",
            Self::Delay => "not now; ask again later",
            Self::Same => "NVERIFY found the attributes to be the same",
            Self::Denied => "the lock is held by another owner",
            Self::Expired => "the lease ran out, and the state is gone",
            Self::Locked => "a lock forbids this READ or WRITE",
            Self::Grace => "the server restarted, and only takes reclaims as yet",
            Self::HandleExpired => "the file handle was volatile, and has expired",
            Self::ShareDenied => "another open denies this access",
            Self::WrongSecurity => "not with this security flavor",
            Self::ClientIdInUse => "another principal uses this client owner",
            Self::Resource => "resources are exhausted; not in minor version 1 and later",
            Self::Moved => "the file system is on another server",
            Self::NoFileHandle => "there is no current file handle",
            Self::MinorVersionMismatch => "the minor version is not supported",
            Self::StaleClientId => "not a client id of this instance of the server",
            Self::StaleStateId => "not a state id of this instance of the server",
            Self::OldStateId => "not the newest seqid of this state",
            Self::BadStateId => "no state, or not one for this",
            Self::BadSeqid => "an owner's seqid is out of order; minor version 0 only",
            Self::NotSame => {
                "VERIFY found the attributes to differ, or the cookie verifier has changed"
            }
            Self::LockRange => "the range lies across locks that cannot be split",
            Self::Symlink => "a symbolic link, where a file or directory is needed",
            Self::RestoreHandle => "there is no saved file handle; minor version 0 only",
            Self::LeaseMoved => "a file system of this lease moved; minor version 0 only",
            Self::AttributeNotSupported => "an attribute that is not supported here",
            Self::NoGrace => "too late, or too early, for a reclaim",
            Self::ReclaimBad => "the client had no such state to reclaim",
            Self::ReclaimConflict => "the reclaim conflicts with other state",
            Self::BadXdr => "the arguments are not in the form that the protocol defines",
            Self::LocksHeld => "locks are held",
            Self::OpenMode => "not with the access of this open",
            Self::BadOwner => "no such owner or group",
            Self::BadCharacter => "a character that names cannot have here",
            Self::BadName => "a name that is not possible here",
            Self::BadRange => "a range of 64 bits that the server cannot lock",
            Self::LockNotSupported => "a lock cannot be upgraded or downgraded atomically",
            Self::IllegalOperation => "no such operation in this minor version",
            Self::Deadlock => "two lock owners would wait for each other",
            Self::FileOpen => "the file is open",
            Self::AdminRevoked => "an administrator revoked the state",
            Self::CallbackPathDown => "the client cannot be called; minor version 0 only",
            Self::BadIoMode => "a layout cannot have this mode",
            Self::BadLayout => "not a layout that is held",
            Self::BadSessionDigest => "the digest of a SET_SSV is wrong",
            Self::BadSession => "no such session",
            Self::BadSlot => "no such slot",
            Self::CompleteAlready => "a second RECLAIM_COMPLETE",
            Self::ConnectionNotBound => "the connection is not bound to the session",
            Self::DelegationAlreadyWanted => "the client waits for this delegation already",
            Self::BackChannelBusy => "callbacks are outstanding",
            Self::LayoutTryLater => "no layout now; ask again later",
            Self::LayoutUnavailable => "no layout for this file",
            Self::NoMatchingLayout => "the client has no such layout",
            Self::RecallConflict => "the layout is being recalled",
            Self::UnknownLayoutType => "a layout type that the server does not know",
            Self::SequenceMisordered => "the sequence id is neither the last one nor the next",
            Self::SequencePosition => "SEQUENCE is not the first operation",
            Self::RequestTooBig => "the request is larger than the session allows",
            Self::ReplyTooBig => "the reply would be larger than the session allows",
            Self::ReplyTooBigToCache => "the reply is to be cached, and is too large for it",
            Self::RetryUncachedReply => "a retry of a request whose reply was not cached",
            Self::UnsafeCompound => "the client could not recover if this COMPOUND was interrupted",
            Self::TooManyOperations => "more operations than the session allows",
            Self::OperationNotInSession => "the operation needs a SEQUENCE before it",
            Self::HashAlgorithmUnsupported => "no hash algorithm that the server supports",
            Self::ClientIdBusy => "the client still has sessions or state",
            Self::PnfsIoHole => "a hole in the part of a file that this data server has",
            Self::SequenceFalseRetry => "a retry that is another request than the first time",
            Self::BadHighSlot => "the highest slot is beyond the table",
            Self::DeadSession => "the session is persistent, and takes retries only",
            Self::EncryptionAlgorithmUnsupported => {
                "no encryption algorithm that the server supports"
            }
            Self::PnfsNoLayout => "I/O to a data server without a layout",
            Self::NotOnlyOperation => "the operation must be the only one of its COMPOUND",
            Self::WrongCredential => "not with this credential",
            Self::WrongType => "not for an object of this type",
            Self::DirectoryDelegationUnavailable => "no delegation of this directory",
            Self::RejectDelegation => "the client rejects the delegation that is offered",
            Self::ReturnConflict => "the layout is being returned",
            Self::DelegationRevoked => "the delegation or layout was revoked",
            Self::PartnerNotSupported => "copies between servers are not supported",
            Self::PartnerNoAuthorization => "the other server does not authorize the copy",
            Self::UnionNotSupported => "an arm of a union that is not supported",
            Self::OffloadDenied => "the copy is not allowed by the destination",
            Self::WrongLabelFormat => "the format of the security label is not supported",
            Self::BadLabel => "the security label is not valid",
            Self::OffloadNoRequirements => "the copy cannot be made in the way it was asked for",
            Self::NoXattr => "no such extended attribute",
            Self::XattrTooBig => "the value of the extended attribute is too large",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for Status {}

/// Result of an operation: a status, and the structure `resok` if that is `NFS4_OK`.
pub type Res<T> = Result<T, Status>;

impl<'a, T: Wire<'a>> Wire<'a> for Res<T> {
    const MAX: usize = 4 + T::MAX;

    fn parse(r: &mut Reader<'a>) -> Result<Self, Error> {
        match r.u32()? {
            0 => T::parse(r).map(Ok),
            status => status.try_into().map(Err),
        }
    }

    fn write(&self, w: &mut Writer) {
        match self {
            Ok(value) => {
                w.u32(0);
                value.write(w);
            }
            Err(status) => status.write(w),
        }
    }

    fn hand_over(self, w: &mut Writer) {
        match self {
            Ok(value) => {
                w.u32(0);
                value.hand_over(w);
            }
            Err(status) => status.write(w),
        }
    }
}

/// A failure of an operation that explains one of its errors, whose number is `CODE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused<T, const CODE: u32> {
    /// That error, with its explanation.
    Explained(T),
    /// Any other error.
    Status(Status),
}

/// Union of a status with two arms that have data: `NFS4_OK`, and one error.
impl<'a, T: Wire<'a>, F: Wire<'a>, const CODE: u32> Wire<'a> for Result<T, Refused<F, CODE>> {
    const MAX: usize = 4 + largest(&[T::MAX, F::MAX]);

    fn parse(r: &mut Reader<'a>) -> Result<Self, Error> {
        Ok(match r.u32()? {
            0 => Ok(T::parse(r)?),
            code if code == CODE => Err(Refused::Explained(F::parse(r)?)),
            status => Err(Refused::Status(status.try_into()?)),
        })
    }

    fn write(&self, w: &mut Writer) {
        match self {
            Ok(value) => {
                w.u32(0);
                value.write(w);
            }
            Err(Refused::Explained(value)) => {
                w.u32(CODE);
                value.write(w);
            }
            Err(Refused::Status(status)) => status.write(w),
        }
    }
}

/// Result of an operation with its status, whatever form it has.
pub trait Outcome<'a>: Wire<'a> {
    /// Returns the status.
    fn status(&self) -> Result<(), Status>;

    /// Creates the result that has only this error.
    fn failed(status: Status) -> Self;
}

impl<'a, T: Wire<'a>> Outcome<'a> for Res<T> {
    fn status(&self) -> Result<(), Status> {
        self.as_ref().map(drop).map_err(|&status| status)
    }

    fn failed(status: Status) -> Self {
        Err(status)
    }
}

impl<'a, T: Wire<'a>, F: Wire<'a> + Default, const CODE: u32> Outcome<'a>
    for Result<T, Refused<F, CODE>>
{
    fn status(&self) -> Result<(), Status> {
        match self {
            Ok(_) => Ok(()),
            Err(Refused::Explained(_)) => Err(CODE.try_into().expect("a code of nfsstat4")),
            Err(Refused::Status(status)) => Err(*status),
        }
    }

    /// An error that has an explanation gets an empty one.
    fn failed(status: Status) -> Self {
        Err(match status as u32 == CODE {
            true => Refused::Explained(F::default()),
            false => Refused::Status(status),
        })
    }
}
