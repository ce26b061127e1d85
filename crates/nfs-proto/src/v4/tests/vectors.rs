//! Octets put down by hand from the XDR of RFC 5662, RFC 7863 and RFC 8276, for COMPOUNDs as Linux' client sends
//! them.

use super::{bytes, hex};
use crate::v4::callback::{
    CbArgOp, CbCompoundArgs, CbCompoundRes, CbNotifyLockArgs, CbRecallAnyArgs, CbRecallArgs,
    CbRecallSlotArgs, CbResOp, CbSequenceArgs, CbSequenceOk,
};
use crate::v4::copy::{CloneArgs, CopyArgs, SeekArgs, SeekTo};
use crate::v4::delegation::{
    Delegation, NoDelegation, ReadDelegation, SpaceLimit, WriteDelegation,
};
use crate::v4::directory::{CreateArgs, CreateType, ReadDirArgs};
use crate::v4::file::{Access, AccessArgs, ReadArgs, SetAttrArgs, SetAttrRes, WriteArgs};
use crate::v4::locations::ModeUmask;
use crate::v4::lock::{LockArgs, LockDenied, LockType, Locker, OpenToLockOwner, TestStateIdArgs};
use crate::v4::open::{
    CloseArgs, CreateHow, ExclusiveCreate, OpenArgs, OpenClaim, OpenFlags, OpenHow, OpenOk,
    ShareAccess, ShareDeny,
};
use crate::v4::security::{CallbackSecurity, SecInfoStyle, SysCredential};
use crate::v4::session::{
    ChannelAttributes, ClientOwner, CreateSessionArgs, CreateSessionFlags, ExchangeFlags,
    ExchangeIdArgs, ImplementationId, ProtectArgs, SequenceArgs, SequenceOk, SequenceStatus,
};
use crate::v4::xattr::{ListXattrsOk, SetXattrArgs, SetXattrOption};
use crate::v4::{
    ArgOp, Array, Attribute, Bitmap, ChangeId, ChangeInfo, ClientId, CompoundArgs, Fattr, Handle,
    Identifier, Refused, ResOp, SequenceId, SessionId, SetTime, SlotId, StateId, StateOwner,
    Status, Time, Verifier,
};
use crate::{Bytes, Cookie, CookieVerifier, Filename, Stable, Wire};
use oncrpc::xdr::Reader;

const SESSION: &str = "0101010101010101 0101010101010101";
const STATE: &str = "00000003 020202020202020202020202";

fn session() -> SessionId {
    SessionId([1; 16])
}

fn state() -> StateId {
    StateId {
        seqid: 3,
        other: [2; 12],
    }
}

fn owner() -> StateOwner<'static> {
    StateOwner {
        client: ClientId(5),
        owner: Identifier::new(b"lock").unwrap(),
    }
}

/// Checks an operation with its arguments, number included.
#[track_caller]
fn arguments(operation: ArgOp<'_>, text: &str) {
    assert_eq!(bytes(&operation), hex(text));
    let octets = hex(text);
    let mut r = Reader::new(&octets);
    assert_eq!(ArgOp::parse(&mut r), Ok(operation));
    assert_eq!(r.finish(), Ok(()));
}

#[track_caller]
fn result(operation: ResOp<'_>, text: &str) {
    assert_eq!(bytes(&operation), hex(text));
    let octets = hex(text);
    let mut r = Reader::new(&octets);
    assert_eq!(ResOp::parse(&mut r), Ok(operation));
    assert_eq!(r.finish(), Ok(()));
}

#[test]
fn exchange_id_of_linux() {
    arguments(
        ArgOp::ExchangeId(ExchangeIdArgs {
            owner: ClientOwner {
                verifier: Verifier(*b"instance"),
                owner: Identifier::new(b"Linux NFSv4.2 host").unwrap(),
            },
            flags: ExchangeFlags::SUPP_MOVED_REFER | ExchangeFlags::BIND_PRINC_STATEID,
            protect: ProtectArgs::None,
            implementation: Some(ImplementationId {
                domain: Identifier::new(b"kernel.org").unwrap(),
                name: Identifier::new(b"Linux 6.12").unwrap(),
                date: Time::default(),
            }),
        }),
        "0000002a  696e7374616e6365
         00000012 4c696e7578204e465376342e3220686f7374 0000
         00000101  00000000  00000001
         0000000a 6b65726e656c2e6f7267 0000  0000000a 4c696e757820362e3132 0000
         0000000000000000 00000000",
    );
}

#[test]
fn create_session_of_linux() {
    let fore = ChannelAttributes {
        header_pad: 0,
        max_request: 1_049_620,
        max_response: 1_049_480,
        max_response_cached: 7584,
        max_operations: 8,
        max_requests: 64,
        rdma_ird: None,
    };
    let back = ChannelAttributes {
        header_pad: 0,
        max_request: 4068,
        max_response: 4068,
        max_response_cached: 0,
        max_operations: 2,
        max_requests: 16,
        rdma_ird: Some(1),
    };
    let security = [CallbackSecurity::Sys(SysCredential {
        stamp: 7,
        machine_name: Bytes::new(b"host").unwrap(),
        uid: 0,
        gid: 0,
        gids: Array::new(&[10, 20]).unwrap(),
    })];
    arguments(
        ArgOp::CreateSession(CreateSessionArgs {
            client: ClientId(0x1_0000_0002),
            sequence: SequenceId(1),
            flags: CreateSessionFlags::PERSIST | CreateSessionFlags::CONN_BACK_CHAN,
            fore,
            back,
            callback_program: 0x4000_0000,
            callback_security: Array::new(&security).unwrap(),
        }),
        "0000002b  0000000100000002  00000001  00000003
         00000000 00100414 00100388 00001da0 00000008 00000040  00000000
         00000000 00000fe4 00000fe4 00000000 00000002 00000010  00000001 00000001
         40000000
         00000001  00000001 00000007 00000004 686f7374 00000000 00000000 00000002 0000000a 00000014",
    );
}

#[test]
fn compound_with_sequence_of_linux() {
    let message = hex(&format!(
        "00000000 00000002 00000003
         00000035 {SESSION} 00000001 00000000 00000000 00000001
         00000018
         00000034 00000000"
    ));
    let mut args = CompoundArgs::parse(Reader::new(&message)).unwrap();
    let sequence = ArgOp::Sequence(SequenceArgs {
        session: session(),
        sequence: SequenceId(1),
        slot: SlotId(0),
        highest_slot: SlotId(0),
        cache_this: true,
    });
    assert_eq!(args.next_operation(), Some(Ok(sequence)));
    assert_eq!(args.next_operation(), Some(Ok(ArgOp::PutRootFh)));
    let secinfo = ArgOp::SecInfoNoName(SecInfoStyle::CurrentHandle);
    assert_eq!(args.next_operation(), Some(Ok(secinfo)));
    assert_eq!(args.finish(), Ok(()));
    result(
        ResOp::Sequence(Ok(SequenceOk {
            session: session(),
            sequence: SequenceId(1),
            slot: SlotId(2),
            highest_slot: SlotId(29),
            target_highest_slot: SlotId(30),
            status: SequenceStatus::CB_PATH_DOWN_SESSION,
        })),
        &format!("00000035 00000000 {SESSION} 00000001 00000002 0000001d 0000001e 00000200"),
    );
}

#[test]
fn open_that_creates_with_mode_and_umask() {
    let attributes = [Attribute::ModeUmask(ModeUmask {
        mode: 0o666,
        umask: 0o22,
    })];
    arguments(
        ArgOp::Open(OpenArgs {
            seqid: 0,
            access: ShareAccess::READ | ShareAccess::WRITE,
            deny: ShareDeny::empty(),
            owner: owner(),
            how: OpenHow::Create(CreateHow::Exclusive41(ExclusiveCreate {
                verifier: Verifier(*b"verifier"),
                attributes: Fattr::new(&attributes).unwrap(),
            })),
            claim: OpenClaim::Null(Filename::new(b"file").unwrap()),
        }),
        "00000012  00000000 00000003 00000000  0000000000000005 00000004 6c6f636b
         00000001 00000003 7665726966696572
         00000003 00000000 00000000 00020000  00000008 000001b6 00000012
         00000000 00000004 66696c65",
    );
    arguments(
        ArgOp::Open(OpenArgs {
            seqid: 0,
            access: ShareAccess::READ,
            deny: ShareDeny::WRITE,
            owner: owner(),
            how: OpenHow::NoCreate,
            claim: OpenClaim::DelegateCurrentHandle(state()),
        }),
        &format!(
            "00000012  00000000 00000001 00000002  0000000000000005 00000004 6c6f636b
             00000000  00000005 {STATE}"
        ),
    );
}

#[test]
fn open_with_each_delegation() {
    let open = |delegation| {
        ResOp::Open(Ok(OpenOk {
            state: state(),
            change: ChangeInfo {
                atomic: true,
                before: ChangeId(1),
                after: ChangeId(2),
            },
            flags: OpenFlags::LOCKTYPE_POSIX | OpenFlags::MAY_NOTIFY_LOCK,
            set: Bitmap::of([33]),
            delegation,
        }))
    };
    let text = |delegation: &str| {
        format!(
            "00000012 00000000 {STATE} 00000001 0000000000000001 0000000000000002
             00000024 00000002 00000000 00000002 {delegation}"
        )
    };
    result(open(Delegation::None), &text("00000000"));
    let read = ReadDelegation {
        state: state(),
        ..ReadDelegation::default()
    };
    let nothing = "00000000 00000000 00000000 00000000";
    let is_read = format!("{STATE} 00000000 {nothing}");
    result(
        open(Delegation::Read(read)),
        &text(&format!("00000001 {is_read}")),
    );
    result(
        open(Delegation::ReadAttributes(read)),
        &text(&format!("00000004 {is_read}")),
    );
    let write = WriteDelegation {
        state: state(),
        recall: true,
        space_limit: SpaceLimit::Size(0),
        permissions: Default::default(),
    };
    let is_write = format!("00000002 {STATE} 00000001 00000001 0000000000000000 {nothing}");
    result(open(Delegation::Write(write)), &text(&is_write));
    let none = Delegation::NoneExt(NoDelegation::NotWanted);
    result(open(none), &text("00000003 00000000"));
    let none = Delegation::NoneExt(NoDelegation::Contention(true));
    result(open(none), &text("00000003 00000001 00000001"));
}

#[test]
fn data_is_behind_state_and_offset() {
    arguments(
        ArgOp::Write(WriteArgs {
            state: state(),
            offset: 0x1_0000_0000,
            stable: Stable::FileSync,
            data: (&b"xyz"[..]).into(),
        }),
        &format!("00000026 {STATE} 0000000100000000 00000002 00000003 78797a00"),
    );
    arguments(
        ArgOp::Read(ReadArgs {
            state: StateId::default(),
            offset: 4096,
            count: 512,
        }),
        "00000019 00000000000000000000000000000000 0000000000001000 00000200",
    );
}

#[test]
fn attributes_to_set_and_those_set() {
    let attributes = [
        Attribute::Size(0),
        Attribute::TimeAccessSet(SetTime::ServerTime),
        Attribute::TimeModifySet(SetTime::ClientTime(Time {
            seconds: -1,
            nanoseconds: 5,
        })),
    ];
    arguments(
        ArgOp::SetAttr(SetAttrArgs {
            state: state(),
            attributes: Fattr::new(&attributes).unwrap(),
        }),
        &format!(
            "00000022 {STATE} 00000002 00000010 00410000
             0000001c 0000000000000000 00000000 00000001 ffffffffffffffff 00000005"
        ),
    );
    // RFC 8881 §18.30.2: the bitmap is there whatever the status.
    result(
        ResOp::SetAttr(SetAttrRes {
            status: Err(Status::Access),
            set: Bitmap::of([4]),
        }),
        "00000022 0000000d 00000001 00000010",
    );
}

#[test]
fn lock_and_the_lock_in_the_way() {
    arguments(
        ArgOp::Lock(LockArgs {
            kind: LockType::WriteWait,
            reclaim: false,
            offset: 0,
            length: u64::MAX,
            locker: Locker::New(OpenToLockOwner {
                open_seqid: 0,
                open: state(),
                lock_seqid: 1,
                owner: owner(),
            }),
        }),
        &format!(
            "0000000c 00000004 00000000 0000000000000000 ffffffffffffffff
             00000001 00000000 {STATE} 00000001 0000000000000005 00000004 6c6f636b"
        ),
    );
    result(
        ResOp::Lock(Err(Refused::Explained(LockDenied {
            offset: 10,
            length: 20,
            kind: LockType::Read,
            owner: owner(),
        }))),
        "0000000c 0000271a 000000000000000a 0000000000000014 00000001
         0000000000000005 00000004 6c6f636b",
    );
    result(
        ResOp::LockT(Err(Refused::Status(Status::Grace))),
        "0000000d 0000271d",
    );
    result(
        ResOp::LockU(Ok(state())),
        &format!("0000000e 00000000 {STATE}"),
    );
}

#[test]
fn small_operations() {
    arguments(
        ArgOp::Access(AccessArgs {
            access: Access::from_bits_retain(0x1df),
        }),
        "00000003 000001df",
    );
    arguments(
        ArgOp::Close(CloseArgs {
            seqid: 0,
            state: state(),
        }),
        &format!("00000004 00000000 {STATE}"),
    );
    arguments(
        ArgOp::TestStateId(TestStateIdArgs {
            states: Array::new(&[state()]).unwrap(),
        }),
        &format!("00000037 00000001 {STATE}"),
    );
    arguments(
        ArgOp::ReadDir(ReadDirArgs {
            cookie: Cookie(3),
            verifier: CookieVerifier(*b"verifier"),
            dir_count: 65_448,
            max_count: 65_448,
            wanted: Bitmap::of([1]),
        }),
        "0000001a 0000000000000003 7665726966696572 0000ffa8 0000ffa8 00000001 00000002",
    );
    arguments(
        ArgOp::Create(CreateArgs {
            kind: CreateType::Symlink((&b"target"[..]).into()),
            name: Filename::new(b"link").unwrap(),
            attributes: Fattr::default(),
        }),
        "00000006 00000005 00000006 7461726765740000 00000004 6c696e6b 00000000 00000000",
    );
}

#[test]
fn operations_of_minor_version_2() {
    arguments(
        ArgOp::Copy(CopyArgs {
            source_state: state(),
            destination_state: StateId::default(),
            source_offset: 1,
            destination_offset: 2,
            count: 3,
            consecutive: true,
            synchronous: true,
            source_servers: Array::default(),
        }),
        &format!(
            "0000003c {STATE} 00000000000000000000000000000000
             0000000000000001 0000000000000002 0000000000000003 00000001 00000001 00000000"
        ),
    );
    arguments(
        ArgOp::Clone(CloneArgs {
            source_state: state(),
            destination_state: state(),
            source_offset: 0,
            destination_offset: 0,
            count: 0,
        }),
        &format!("00000047 {STATE} {STATE} 0000000000000000 0000000000000000 0000000000000000"),
    );
    arguments(
        ArgOp::Seek(SeekArgs {
            state: state(),
            offset: 0,
            to: SeekTo::Hole,
        }),
        &format!("00000045 {STATE} 0000000000000000 00000001"),
    );
    arguments(
        ArgOp::SetXattr(SetXattrArgs {
            option: SetXattrOption::Create,
            name: Filename::new(b"key").unwrap(),
            value: Bytes::new(b"value").unwrap(),
        }),
        "00000049 00000001 00000003 6b657900 00000005 76616c7565000000",
    );
    let names = [Filename::new(b"a").unwrap(), Filename::new(b"bc").unwrap()];
    result(
        ResOp::ListXattrs(Ok(ListXattrsOk {
            cookie: Cookie(2),
            names: Array::new(&names).unwrap(),
            eof: true,
        })),
        "0000004a 00000000 0000000000000002 00000002 00000001 61000000 00000002 62630000 00000001",
    );
    result(ResOp::GetXattr(Err(Status::NoXattr)), "00000048 0000276f");
}

#[test]
fn callback_that_recalls_a_delegation() {
    let sequence = CbArgOp::Sequence(CbSequenceArgs {
        session: session(),
        sequence: SequenceId(9),
        ..CbSequenceArgs::default()
    });
    let recall = CbArgOp::Recall(CbRecallArgs {
        state: state(),
        truncate: false,
        handle: Handle::new(b"file").unwrap(),
    });
    let operations = [sequence, recall];
    let call = CbCompoundArgs {
        minor_version: 2,
        operations: Array::new(&operations).unwrap(),
        ..CbCompoundArgs::default()
    };
    let expected = format!(
        "00000000 00000002 00000000 00000002
         0000000b {SESSION} 00000009 00000000 00000000 00000000 00000000
         00000004 {STATE} 00000000 00000004 66696c65"
    );
    assert_eq!(bytes(&call), hex(&expected));
    let answer = hex(&format!(
        "00000000 00000000 00000002
         0000000b 00000000 {SESSION} 00000009 00000000 0000000f 0000000f
         00000004 00000000"
    ));
    let mut r = Reader::new(&answer);
    let answer = CbCompoundRes::parse(&mut r).unwrap();
    assert_eq!(r.finish(), Ok(()));
    let sequence = CbResOp::Sequence(Ok(CbSequenceOk {
        session: session(),
        sequence: SequenceId(9),
        slot: SlotId(0),
        highest_slot: SlotId(15),
        target_highest_slot: SlotId(15),
    }));
    assert_eq!(answer.status, Ok(()));
    assert!(
        answer
            .results
            .iter()
            .eq([sequence, CbResOp::Recall(Ok(()))])
    );
}

#[test]
fn other_callbacks() {
    let any = CbArgOp::RecallAny(CbRecallAnyArgs {
        keep: 0,
        kinds: Bitmap::of([0, 1]),
    });
    assert_eq!(bytes(&any), hex("00000008 00000000 00000001 00000003"));
    let slot = CbArgOp::RecallSlot(CbRecallSlotArgs {
        target_highest_slot: SlotId(3),
    });
    assert_eq!(bytes(&slot), hex("0000000a 00000003"));
    let lock = CbArgOp::NotifyLock(CbNotifyLockArgs {
        handle: Handle::new(b"file").unwrap(),
        owner: owner(),
    });
    let expected = "0000000d 00000004 66696c65 0000000000000005 00000004 6c6f636b";
    assert_eq!(bytes(&lock), hex(expected));
}
