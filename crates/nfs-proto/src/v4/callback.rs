//! The callback program: CB_COMPOUND and its operations (RFC 8881 §20, RFC 7862 §16).

use crate::Wire;
use crate::limits::MAX_OPERATIONS;
use crate::v4::array::Array;
use crate::v4::bitmap::Bitmap;
use crate::v4::compound::Tag;
use crate::v4::copy::WriteResponse;
use crate::v4::delegation::Delegation;
use crate::v4::fattr::Fattr;
use crate::v4::largest;
use crate::v4::layout::{IoMode, LayoutBody};
use crate::v4::limits::{MAX_NOTIFICATIONS, MAX_REFERRING_CALLS};
use crate::v4::status::{Res, Status};
use crate::v4::types::{
    FsId, Handle, LayoutType, SequenceId, SessionId, SlotId, StateId, StateOwner,
};
use oncrpc::xdr::{Error, Reader, Writer};

/// Version of the callback program. Its number is the client's choice (RFC 8881 §18.36.3).
pub const CALLBACK_VERSION: u32 = 1;

xdr_struct! {
    /// Arguments of CB_GETATTR (RFC 8881 §20.1.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CbGetAttrArgs<'a> {
        /// The file.
        pub handle: Handle<'a>,
        /// Attributes wanted.
        pub wanted: Bitmap,
    }
}

xdr_struct! {
    /// Arguments of CB_RECALL (RFC 8881 §20.2.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CbRecallArgs<'a> {
        /// The delegation.
        pub state: StateId,
        /// Whether the file will be truncated, so that data need not be written.
        pub truncate: bool,
        /// The file.
        pub handle: Handle<'a>,
    }
}

xdr_struct! {
    /// Layouts of a file (`layoutrecall_file4`, RFC 8881 §20.3.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LayoutRecallFile<'a> {
        /// The file.
        pub handle: Handle<'a>,
        /// From this byte on.
        pub offset: u64,
        /// Number of bytes.
        pub length: u64,
        /// The layouts' state.
        pub state: StateId,
    }
}

xdr_union! {
    /// Layouts to recall (`layoutrecall4`, RFC 8881 §20.3.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum LayoutRecall<'a> ("layoutrecall_type4") {
        /// Of a file.
        File(LayoutRecallFile<'a>) = 1,
        /// Of a file system.
        FileSystem(FsId) = 2,
        /// All.
        All = 3,
    }
}

xdr_struct! {
    /// Arguments of CB_LAYOUTRECALL (RFC 8881 §20.3.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CbLayoutRecallArgs<'a> {
        /// Layout type.
        pub kind: LayoutType,
        /// I/O that the layouts are for.
        pub mode: IoMode,
        /// Whether the layouts have changed, so that data need not be written by them.
        pub changed: bool,
        /// The layouts.
        pub recall: LayoutRecall<'a>,
    }
}

xdr_struct! {
    /// A change (`notify4`, RFC 8881 §20.4.1).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Notification<'a> {
        /// Kinds of changes.
        pub mask: Bitmap,
        /// The changes, in the form of their kinds.
        pub values: LayoutBody<'a>,
    }
}

/// Changes of a directory or of devices.
pub type Notifications<'a> = Array<'a, Notification<'a>, MAX_NOTIFICATIONS>;

xdr_struct! {
    /// Arguments of CB_NOTIFY (RFC 8881 §20.4.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CbNotifyArgs<'a> {
        /// The delegation.
        pub state: StateId,
        /// The directory.
        pub handle: Handle<'a>,
        /// The changes.
        pub changes: Notifications<'a>,
    }
}

xdr_struct! {
    /// Arguments of CB_PUSH_DELEG (RFC 8881 §20.5.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CbPushDelegArgs<'a> {
        /// The file.
        pub handle: Handle<'a>,
        /// The delegation.
        pub delegation: Delegation<'a>,
    }
}

xdr_struct! {
    /// Arguments of CB_RECALL_ANY and CB_RECALLABLE_OBJ_AVAIL (RFC 8881 §20.6.1, §20.7.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CbRecallAnyArgs {
        /// Delegations and layouts that the client may keep.
        pub keep: u32,
        /// Their kinds (`RCA4_TYPE_MASK_*`): 0 delegations for reading, 1 for writing, 2 of directories.
        pub kinds: Bitmap,
    }
}

xdr_struct! {
    /// Arguments of CB_RECALL_SLOT (RFC 8881 §20.8.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CbRecallSlotArgs {
        /// Highest slot that the client should use.
        pub target_highest_slot: SlotId,
    }
}

xdr_struct! {
    /// A call that a callback refers to (`referring_call4`, RFC 8881 §20.9.1).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ReferringCall {
        /// Its sequence id.
        pub sequence: SequenceId,
        /// Its slot.
        pub slot: SlotId,
    }
}

xdr_struct! {
    /// Calls of one session that a callback refers to (`referring_call_list4`, RFC 8881 §20.9.1).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct ReferringCalls<'a> {
        /// The session.
        pub session: SessionId,
        /// The calls.
        pub calls: Array<'a, ReferringCall, MAX_REFERRING_CALLS>,
    }
}

xdr_struct! {
    /// Arguments of CB_SEQUENCE (RFC 8881 §20.9.1).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CbSequenceArgs<'a> {
        /// The session.
        pub session: SessionId,
        /// Sequence id of the slot.
        pub sequence: SequenceId,
        /// The slot.
        pub slot: SlotId,
        /// Highest slot with a callback that waits for its reply.
        pub highest_slot: SlotId,
        /// Whether the reply has to be kept for a retry.
        pub cache_this: bool,
        /// Calls that must be answered before the callback is executed.
        pub referring: Array<'a, ReferringCalls<'a>, MAX_REFERRING_CALLS>,
    }
}

xdr_struct! {
    /// Result of CB_SEQUENCE (RFC 8881 §20.9.2).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CbSequenceOk {
        /// The session.
        pub session: SessionId,
        /// Sequence id of the slot.
        pub sequence: SequenceId,
        /// The slot.
        pub slot: SlotId,
        /// Highest slot that the client takes.
        pub highest_slot: SlotId,
        /// Highest slot that the server should use.
        pub target_highest_slot: SlotId,
    }
}

xdr_struct! {
    /// Arguments of CB_WANTS_CANCELLED (RFC 8881 §20.10.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CbWantsCancelledArgs {
        /// Wishes that wait for other users of a file.
        pub contended: bool,
        /// Wishes that wait for resources.
        pub resourced: bool,
    }
}

xdr_struct! {
    /// Arguments of CB_NOTIFY_LOCK (RFC 8881 §20.11.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CbNotifyLockArgs<'a> {
        /// The file.
        pub handle: Handle<'a>,
        /// Owner of the lock that can be had now.
        pub owner: StateOwner<'a>,
    }
}

xdr_struct! {
    /// Arguments of CB_NOTIFY_DEVICEID (RFC 8881 §20.12.1).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CbNotifyDeviceIdArgs<'a> {
        /// The changes.
        pub changes: Notifications<'a>,
    }
}

/// End of a copy (`offload_info4`, RFC 7862 §16.1.1): its data, or an error and the bytes copied before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffloadInfo {
    /// It is complete.
    Done(WriteResponse),
    /// It failed behind this number of bytes.
    Failed(Status, u64),
}

impl Wire<'_> for OffloadInfo {
    const MAX: usize = 4 + largest(&[WriteResponse::MAX, 8]);

    fn parse(r: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(match r.u32()? {
            0 => Self::Done(Wire::parse(r)?),
            status => Self::Failed(status.try_into()?, r.u64()?),
        })
    }

    fn write(&self, w: &mut Writer) {
        match self {
            Self::Done(response) => {
                w.u32(0);
                response.write(w);
            }
            Self::Failed(status, count) => {
                status.write(w);
                w.u64(*count);
            }
        }
    }
}

#[cfg(test)]
impl crate::tests::Sample for OffloadInfo {
    fn sample(rng: &mut crate::tests::Rng) -> Self {
        match rng.below(2) {
            0 => Self::Done(crate::tests::Sample::sample(rng)),
            _ => Self::Failed(
                crate::tests::Sample::sample(rng),
                crate::tests::Sample::sample(rng),
            ),
        }
    }
}

xdr_struct! {
    /// Arguments of CB_OFFLOAD (RFC 7862 §16.1.1).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CbOffloadArgs<'a> {
        /// The destination.
        pub handle: Handle<'a>,
        /// The copy.
        pub state: StateId,
        /// How it ended.
        pub info: OffloadInfo,
    }
}

xdr_struct! {
    /// Result of CB_GETATTR (RFC 8881 §20.1.2).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CbGetAttrOk<'a> {
        /// The attributes.
        pub attributes: Fattr<'a>,
    }
}

operations! {
    numbers
    /// Number of a callback operation.
    CbOperation ("nfs_cb_opnum4");
    arguments
    /// A callback operation with its arguments.
    CbArgOp;
    results
    /// A callback operation with its result.
    CbResOp;

    /// CB_GETATTR: get attributes of a delegated file (RFC 8881 §20.1).
    GetAttr(CbGetAttrArgs<'a>) = 3 => Res<CbGetAttrOk<'a>>;
    /// CB_RECALL: recall a delegation (RFC 8881 §20.2).
    Recall(CbRecallArgs<'a>) = 4 => Res<()>;
    /// CB_LAYOUTRECALL: recall layouts (RFC 8881 §20.3).
    LayoutRecall(CbLayoutRecallArgs<'a>) = 5 => Res<()>;
    /// CB_NOTIFY: changes of a directory (RFC 8881 §20.4).
    Notify(CbNotifyArgs<'a>) = 6 => Res<()>;
    /// CB_PUSH_DELEG: offer a delegation that was wanted (RFC 8881 §20.5).
    PushDeleg(CbPushDelegArgs<'a>) = 7 => Res<()>;
    /// CB_RECALL_ANY: recall some of many delegations or layouts (RFC 8881 §20.6).
    RecallAny(CbRecallAnyArgs) = 8 => Res<()>;
    /// CB_RECALLABLE_OBJ_AVAIL: resources for delegations or layouts are there (RFC 8881 §20.7).
    RecallableObjAvail(CbRecallAnyArgs) = 9 => Res<()>;
    /// CB_RECALL_SLOT: reduce the slots in use (RFC 8881 §20.8).
    RecallSlot(CbRecallSlotArgs) = 10 => Res<()>;
    /// CB_SEQUENCE: slot of the callback (RFC 8881 §20.9).
    Sequence(CbSequenceArgs<'a>) = 11 => Res<CbSequenceOk>;
    /// CB_WANTS_CANCELLED: wishes for delegations are given up (RFC 8881 §20.10).
    WantsCancelled(CbWantsCancelledArgs) = 12 => Res<()>;
    /// CB_NOTIFY_LOCK: a lock may be had now (RFC 8881 §20.11).
    NotifyLock(CbNotifyLockArgs<'a>) = 13 => Res<()>;
    /// CB_NOTIFY_DEVICEID: changes of devices (RFC 8881 §20.12).
    NotifyDeviceId(CbNotifyDeviceIdArgs<'a>) = 14 => Res<()>;
    /// CB_OFFLOAD: a copy has ended (RFC 7862 §16.1).
    Offload(CbOffloadArgs<'a>) = 15 => Res<()>;
    /// CB_ILLEGAL: answers a number that is no operation (RFC 8881 §20.13).
    Illegal = 10044 => Res<()>;
}

xdr_struct! {
    /// Arguments of CB_COMPOUND (`CB_COMPOUND4args`, RFC 8881 §19.2.1).
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct CbCompoundArgs<'a> {
        /// Tag.
        pub tag: Tag<'a>,
        /// Minor version: that of the session.
        pub minor_version: u32,
        /// Zero in minor version 1 and later.
        pub callback_ident: u32,
        /// The operations.
        pub operations: Array<'a, CbArgOp<'a>, MAX_OPERATIONS>,
    }
}

xdr_struct! {
    /// Results of CB_COMPOUND (`CB_COMPOUND4res`, RFC 8881 §19.2.2).
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct CbCompoundRes<'a> {
        /// Status of the last operation that was executed.
        pub status: Res<()>,
        /// Tag of the call.
        pub tag: Tag<'a>,
        /// The results.
        pub results: Array<'a, CbResOp<'a>, MAX_OPERATIONS>,
    }
}
