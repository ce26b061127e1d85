//! Operations of COMPOUND, with their numbers, arguments and results (`nfs_opnum4`, `nfs_argop4`,
//! `nfs_resop4`).

use crate::v4::copy::{
    AllocateArgs, CloneArgs, CopyArgs, CopyNotifyArgs, CopyNotifyOk, CopyRes, IoAdviseArgs,
    IoAdviseOk, OffloadArgs, OffloadStatusOk, ReadPlusArgs, ReadPlusOk, SeekArgs, SeekOk,
    WriteResponse, WriteSameArgs,
};
use crate::v4::delegation::{
    DelegPurgeArgs, DelegReturnArgs, Delegation, GetDirDelegationArgs, GetDirDelegationOk,
    WantDelegationArgs,
};
use crate::v4::directory::{
    CreateArgs, CreateOk, LinkArgs, LookupArgs, ReadDirArgs, ReadDirOk, ReadLinkOk, RemoveArgs,
    RenameArgs, RenameOk,
};
use crate::v4::file::{
    AccessArgs, AccessOk, CommitArgs, CommitOk, GetAttrArgs, GetAttrOk, GetFhOk, OpenAttrArgs,
    PutFhArgs, ReadArgs, ReadOk, SetAttrArgs, SetAttrRes, VerifyArgs, WriteArgs, WriteOk,
};
use crate::v4::layout::{
    GetDeviceInfoArgs, GetDeviceInfoRes, GetDeviceListArgs, GetDeviceListOk, LayoutCommitArgs,
    LayoutCommitOk, LayoutErrorArgs, LayoutGetArgs, LayoutGetRes, LayoutReturnArgs, LayoutReturnOk,
    LayoutStatsArgs,
};
use crate::v4::lock::{
    FreeStateIdArgs, LockArgs, LockRes, LockTArgs, LockUArgs, TestStateIdArgs, TestStateIdOk,
};
use crate::v4::obsolete::{
    ConfirmClientId, OpenConfirmArgs, ReleaseLockOwnerArgs, RenewArgs, SetClientIdArgs,
    SetClientIdRes,
};
use crate::v4::open::{CloseArgs, OpenArgs, OpenDowngradeArgs, OpenOk};
use crate::v4::security::{BackChannelCtlArgs, SecInfoArgs, SecInfoOk, SecInfoStyle};
use crate::v4::session::{
    BindConnToSessionArgs, BindConnToSessionOk, CreateSessionArgs, CreateSessionOk,
    DestroyClientIdArgs, DestroySessionArgs, ExchangeIdArgs, ExchangeIdOk, ReclaimCompleteArgs,
    SequenceArgs, SequenceOk, SetSsvArgs, SetSsvOk,
};
use crate::v4::status::Res;
use crate::v4::types::{ChangeInfo, StateId};
use crate::v4::xattr::{GetXattrOk, ListXattrsArgs, ListXattrsOk, SetXattrArgs, XattrArgs};

operations! {
    numbers
    /// Number of an operation.
    Operation ("nfs_opnum4");
    arguments
    /// An operation with its arguments.
    ArgOp;
    results
    /// An operation with its result.
    ResOp;

    /// ACCESS: check access rights (RFC 8881 §18.1).
    Access(AccessArgs) = 3 => Res<AccessOk>;
    /// CLOSE: close a file (RFC 8881 §18.2).
    Close(CloseArgs) = 4 => Res<StateId>;
    /// COMMIT: make written data stable (RFC 8881 §18.3).
    Commit(CommitArgs) = 5 => Res<CommitOk>;
    /// CREATE: create an object that is no regular file (RFC 8881 §18.4).
    Create(CreateArgs<'a>) = 6 => Res<CreateOk>;
    /// DELEGPURGE: give up delegations from before a restart (RFC 8881 §18.5).
    DelegPurge(DelegPurgeArgs) = 7 => Res<()>;
    /// DELEGRETURN: return a delegation (RFC 8881 §18.6).
    DelegReturn(DelegReturnArgs) = 8 => Res<()>;
    /// GETATTR: get attributes (RFC 8881 §18.7).
    GetAttr(GetAttrArgs) = 9 => Res<GetAttrOk<'a>>;
    /// GETFH: get the current file handle (RFC 8881 §18.8).
    GetFh = 10 => Res<GetFhOk<'a>>;
    /// LINK: add a name (RFC 8881 §18.9).
    Link(LinkArgs<'a>) = 11 => Res<ChangeInfo>;
    /// LOCK: lock a range of bytes (RFC 8881 §18.10).
    Lock(LockArgs<'a>) = 12 => LockRes<'a, StateId>;
    /// LOCKT: test for a lock (RFC 8881 §18.11).
    LockT(LockTArgs<'a>) = 13 => LockRes<'a, ()>;
    /// LOCKU: unlock a range of bytes (RFC 8881 §18.12).
    LockU(LockUArgs) = 14 => Res<StateId>;
    /// LOOKUP: look up a name (RFC 8881 §18.13).
    Lookup(LookupArgs<'a>) = 15 => Res<()>;
    /// LOOKUPP: go to the parent directory (RFC 8881 §18.14).
    LookupP = 16 => Res<()>;
    /// NVERIFY: go on if attributes differ (RFC 8881 §18.15).
    NVerify(VerifyArgs<'a>) = 17 => Res<()>;
    /// OPEN: open or create a file (RFC 8881 §18.16).
    Open(OpenArgs<'a>) = 18 => Res<OpenOk<'a>>;
    /// OPENATTR: go to the directory of named attributes (RFC 8881 §18.17).
    OpenAttr(OpenAttrArgs) = 19 => Res<()>;
    /// OPEN_CONFIRM: minor version 0 only (RFC 7530 §16.18).
    OpenConfirm(OpenConfirmArgs) = 20 => Res<StateId>;
    /// OPEN_DOWNGRADE: reduce the access of an open (RFC 8881 §18.18).
    OpenDowngrade(OpenDowngradeArgs) = 21 => Res<StateId>;
    /// PUTFH: set the current file handle (RFC 8881 §18.19).
    PutFh(PutFhArgs<'a>) = 22 => Res<()>;
    /// PUTPUBFH: set it to the public one (RFC 8881 §18.20).
    PutPubFh = 23 => Res<()>;
    /// PUTROOTFH: set it to the root (RFC 8881 §18.21).
    PutRootFh = 24 => Res<()>;
    /// READ: read data (RFC 8881 §18.22).
    Read(ReadArgs) = 25 => Res<ReadOk<'a>>;
    /// READDIR: read a directory (RFC 8881 §18.23).
    ReadDir(ReadDirArgs) = 26 => Res<ReadDirOk<'a>>;
    /// READLINK: read a symbolic link (RFC 8881 §18.24).
    ReadLink = 27 => Res<ReadLinkOk<'a>>;
    /// REMOVE: remove a name (RFC 8881 §18.25).
    Remove(RemoveArgs<'a>) = 28 => Res<ChangeInfo>;
    /// RENAME: rename an object (RFC 8881 §18.26).
    Rename(RenameArgs<'a>) = 29 => Res<RenameOk>;
    /// RENEW: minor version 0 only (RFC 7530 §16.28).
    Renew(RenewArgs) = 30 => Res<()>;
    /// RESTOREFH: make the saved file handle the current one (RFC 8881 §18.27).
    RestoreFh = 31 => Res<()>;
    /// SAVEFH: save the current file handle (RFC 8881 §18.28).
    SaveFh = 32 => Res<()>;
    /// SECINFO: security flavors of a name (RFC 8881 §18.29).
    SecInfo(SecInfoArgs<'a>) = 33 => Res<SecInfoOk<'a>>;
    /// SETATTR: set attributes (RFC 8881 §18.30).
    SetAttr(SetAttrArgs<'a>) = 34 => SetAttrRes;
    /// SETCLIENTID: minor version 0 only (RFC 7530 §16.33).
    SetClientId(SetClientIdArgs<'a>) = 35 => SetClientIdRes<'a>;
    /// SETCLIENTID_CONFIRM: minor version 0 only (RFC 7530 §16.34).
    SetClientIdConfirm(ConfirmClientId) = 36 => Res<()>;
    /// VERIFY: go on if attributes are the same (RFC 8881 §18.31).
    Verify(VerifyArgs<'a>) = 37 => Res<()>;
    /// WRITE: write data (RFC 8881 §18.32).
    Write(WriteArgs<'a>) = 38 => Res<WriteOk>;
    /// RELEASE_LOCKOWNER: minor version 0 only (RFC 7530 §16.37).
    ReleaseLockOwner(ReleaseLockOwnerArgs<'a>) = 39 => Res<()>;
    /// BACKCHANNEL_CTL: change the credentials of callbacks (RFC 8881 §18.33).
    BackChannelCtl(BackChannelCtlArgs<'a>) = 40 => Res<()>;
    /// BIND_CONN_TO_SESSION: bind a connection to a session (RFC 8881 §18.34).
    BindConnToSession(BindConnToSessionArgs) = 41 => Res<BindConnToSessionOk>;
    /// EXCHANGE_ID: get a client id (RFC 8881 §18.35).
    ExchangeId(ExchangeIdArgs<'a>) = 42 => Res<ExchangeIdOk<'a>>;
    /// CREATE_SESSION: create a session, and confirm the client id (RFC 8881 §18.36).
    CreateSession(CreateSessionArgs<'a>) = 43 => Res<CreateSessionOk>;
    /// DESTROY_SESSION: destroy a session (RFC 8881 §18.37).
    DestroySession(DestroySessionArgs) = 44 => Res<()>;
    /// FREE_STATEID: free a state id without locks (RFC 8881 §18.38).
    FreeStateId(FreeStateIdArgs) = 45 => Res<()>;
    /// GET_DIR_DELEGATION: get a delegation of a directory (RFC 8881 §18.39).
    GetDirDelegation(GetDirDelegationArgs) = 46 => Res<GetDirDelegationOk>;
    /// GETDEVICEINFO: get the address of a device (RFC 8881 §18.40).
    GetDeviceInfo(GetDeviceInfoArgs) = 47 => GetDeviceInfoRes<'a>;
    /// GETDEVICELIST: get all devices of a file system (RFC 8881 §18.41).
    GetDeviceList(GetDeviceListArgs) = 48 => Res<GetDeviceListOk<'a>>;
    /// LAYOUTCOMMIT: commit writes by a layout (RFC 8881 §18.42).
    LayoutCommit(LayoutCommitArgs<'a>) = 49 => Res<LayoutCommitOk>;
    /// LAYOUTGET: get layouts (RFC 8881 §18.43).
    LayoutGet(LayoutGetArgs) = 50 => LayoutGetRes<'a>;
    /// LAYOUTRETURN: return layouts (RFC 8881 §18.44).
    LayoutReturn(LayoutReturnArgs<'a>) = 51 => Res<LayoutReturnOk>;
    /// SECINFO_NO_NAME: security flavors of a file handle (RFC 8881 §18.45).
    SecInfoNoName(SecInfoStyle) = 52 => Res<SecInfoOk<'a>>;
    /// SEQUENCE: slot of the request, and status of the session (RFC 8881 §18.46).
    Sequence(SequenceArgs) = 53 => Res<SequenceOk>;
    /// SET_SSV: change the secret state verifier (RFC 8881 §18.47).
    SetSsv(SetSsvArgs<'a>) = 54 => Res<SetSsvOk<'a>>;
    /// TEST_STATEID: test whether state ids are valid (RFC 8881 §18.48).
    TestStateId(TestStateIdArgs<'a>) = 55 => Res<TestStateIdOk<'a>>;
    /// WANT_DELEGATION: ask for a delegation (RFC 8881 §18.49).
    WantDelegation(WantDelegationArgs) = 56 => Res<Delegation<'a>>;
    /// DESTROY_CLIENTID: destroy a client id (RFC 8881 §18.50).
    DestroyClientId(DestroyClientIdArgs) = 57 => Res<()>;
    /// RECLAIM_COMPLETE: no more reclaims follow (RFC 8881 §18.51).
    ReclaimComplete(ReclaimCompleteArgs) = 58 => Res<()>;
    /// ALLOCATE: reserve space (RFC 7862 §15.1).
    Allocate(AllocateArgs) = 59 => Res<()>;
    /// COPY: copy between files (RFC 7862 §15.2).
    Copy(CopyArgs<'a>) = 60 => CopyRes;
    /// COPY_NOTIFY: allow a copy by another server (RFC 7862 §15.3).
    CopyNotify(CopyNotifyArgs<'a>) = 61 => Res<CopyNotifyOk<'a>>;
    /// DEALLOCATE: free space (RFC 7862 §15.4).
    Deallocate(AllocateArgs) = 62 => Res<()>;
    /// IO_ADVISE: hints about I/O (RFC 7862 §15.5).
    IoAdvise(IoAdviseArgs) = 63 => Res<IoAdviseOk>;
    /// LAYOUTERROR: report errors of devices (RFC 7862 §15.6).
    LayoutError(LayoutErrorArgs<'a>) = 64 => Res<()>;
    /// LAYOUTSTATS: report I/O to devices (RFC 7862 §15.7).
    LayoutStats(LayoutStatsArgs<'a>) = 65 => Res<()>;
    /// OFFLOAD_CANCEL: stop a copy (RFC 7862 §15.8).
    OffloadCancel(OffloadArgs) = 66 => Res<()>;
    /// OFFLOAD_STATUS: how far a copy is (RFC 7862 §15.9).
    OffloadStatus(OffloadArgs) = 67 => Res<OffloadStatusOk>;
    /// READ_PLUS: read data and holes (RFC 7862 §15.10).
    ReadPlus(ReadPlusArgs) = 68 => Res<ReadPlusOk<'a>>;
    /// SEEK: find the next data or hole (RFC 7862 §15.11).
    Seek(SeekArgs) = 69 => Res<SeekOk>;
    /// WRITE_SAME: write blocks with a pattern (RFC 7862 §15.12).
    WriteSame(WriteSameArgs<'a>) = 70 => Res<WriteResponse>;
    /// CLONE: share data between files (RFC 7862 §15.13).
    Clone(CloneArgs) = 71 => Res<()>;
    /// GETXATTR: get an extended attribute (RFC 8276 §8.4.1).
    GetXattr(XattrArgs<'a>) = 72 => Res<GetXattrOk<'a>>;
    /// SETXATTR: set an extended attribute (RFC 8276 §8.4.2).
    SetXattr(SetXattrArgs<'a>) = 73 => Res<ChangeInfo>;
    /// LISTXATTRS: list extended attributes (RFC 8276 §8.4.3).
    ListXattrs(ListXattrsArgs) = 74 => Res<ListXattrsOk<'a>>;
    /// REMOVEXATTR: remove an extended attribute (RFC 8276 §8.4.4).
    RemoveXattr(XattrArgs<'a>) = 75 => Res<ChangeInfo>;
    /// ILLEGAL: answers a number that is no operation (RFC 8881 §18.52).
    Illegal = 10044 => Res<()>;
}

impl Operation {
    /// Whether a minor version has the operation: those of minor version 2 with the extended attributes
    /// of RFC 8276. Another number is `NFS4ERR_OP_ILLEGAL` (RFC 8881 §15.1.3.4).
    #[inline]
    pub fn is_in(self, minor_version: u32) -> bool {
        match minor_version {
            1 => self <= Self::ReclaimComplete,
            2 => self <= Self::RemoveXattr,
            _ => false,
        }
    }

    /// Whether only minor version 0 implements it: `NFS4ERR_NOTSUPP` in the others (RFC 8881 §17).
    pub fn is_obsolete(self) -> bool {
        matches!(
            self,
            Self::OpenConfirm
                | Self::ReleaseLockOwner
                | Self::Renew
                | Self::SetClientId
                | Self::SetClientIdConfirm
        )
    }
}
