//! COMPOUNDs of clients, and what they read in replies.

use buffer::{Buffer, Gather};
use bytes::Bytes;
use nfs_proto::v4::callback::{CbArgOp, CbCompoundArgs, CbCompoundRes, CbResOp, CbSequenceOk};
use nfs_proto::v4::directory::{CreateArgs, CreateType, RemoveArgs, RenameArgs};
use nfs_proto::v4::fattr::Fattr;
use nfs_proto::v4::file::{PutFhArgs, ReadArgs, WriteArgs};
use nfs_proto::v4::lock::{
    ExistingLockOwner, LockArgs, LockType, LockUArgs, Locker, OpenToLockOwner, TestStateIdArgs,
};
use nfs_proto::v4::open::{
    CloseArgs, CreateHow, OpenArgs, OpenClaim, OpenDowngradeArgs, OpenHow, ShareAccess, ShareDeny,
};
use nfs_proto::v4::session::{
    BindConnToSessionArgs, ChannelAttributes, ClientDirection, ClientOwner, CreateSessionArgs,
    CreateSessionFlags, DestroyClientIdArgs, DestroySessionArgs, ExchangeFlags, ExchangeIdArgs,
    ProtectArgs, ReclaimCompleteArgs, SequenceArgs, ServerDirection,
};
use nfs_proto::v4::{
    ArgOp, Array, CallWriter, ClientId, CompoundRes, Handle, Identifier, Res, ResOp, SequenceId,
    SessionId, SlotId, StateId, StateOwner, Status, Tag, Verifier,
};
use nfs_proto::{Data, Filename, NFS_PROGRAM, Stable, Wire};
use oncrpc::xdr::{Payload, Reader, Writer};
use oncrpc::{AuthSys, CallHeader, Credential, Procedure, read_reply, write_call};

/// Id of every call: there is one on its way at a time.
pub(super) const XID: u32 = 7;

/// Bytes that are locked one by one.
pub(super) const BYTES: usize = 16;

/// Parts of a file that are locked: each of these bytes, and all behind them.
pub(super) const PARTS: usize = BYTES + 1;

/// An operation with those that lead to its file.
#[derive(Clone, Debug)]
pub(super) enum Op {
    /// SEQUENCE alone.
    Renew,
    Complete,
    Open {
        owner: u8,
        name: u8,
        access: u32,
        deny: u32,
        guarded: bool,
    },
    /// OPEN by handle, of a file that was open before a restart or not.
    OpenHandle {
        owner: u8,
        handle: Vec<u8>,
        access: u32,
        deny: u32,
        reclaims: bool,
    },
    Close {
        handle: Vec<u8>,
        state: StateId,
    },
    Downgrade {
        handle: Vec<u8>,
        state: StateId,
        access: u32,
        deny: u32,
    },
    Lock {
        handle: Vec<u8>,
        open: StateId,
        known: Option<StateId>,
        locker: u8,
        range: (usize, usize),
        kind: LockType,
        reclaims: bool,
    },
    Unlock {
        handle: Vec<u8>,
        state: StateId,
        range: (usize, usize),
    },
    Write {
        handle: Vec<u8>,
        state: StateId,
        offset: usize,
        data: Vec<u8>,
    },
    Read {
        handle: Vec<u8>,
        state: StateId,
    },
    Rename {
        from: u8,
        to: u8,
    },
    Remove {
        name: u8,
    },
    MakeDirectory {
        name: u8,
    },
    Test {
        states: Vec<StateId>,
    },
}

/// Results of a COMPOUND.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) status: Result<(), Status>,
    /// Whether SEQUENCE, which is first, succeeded.
    pub(super) in_session: bool,
    /// Highest slot of the server, and the one that it wants.
    pub(super) slots: Option<(u32, u32)>,
    pub(super) got: Got,
}

/// Content of the last result of interest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Got {
    Nothing,
    State(StateId),
    Opened(StateId, Vec<u8>),
    Data(Vec<u8>),
    Statuses(Vec<Res<()>>),
    Client(ClientId, SequenceId),
    Session(SessionId, u32),
    Bound(ServerDirection),
}

/// Place of a request in its session.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    pub(super) session: SessionId,
    pub(super) slot: u32,
    pub(super) sequence: u32,
    pub(super) highest: u32,
    pub(super) keep: bool,
}

fn sequence(at: At) -> ArgOp<'static> {
    ArgOp::Sequence(SequenceArgs {
        session: at.session,
        sequence: SequenceId(at.sequence),
        slot: SlotId(at.slot),
        highest_slot: SlotId(at.highest),
        cache_this: at.keep,
    })
}

fn call(operations: Vec<ArgOp<'_>>) -> Payload {
    let mut w = Writer::default();
    let procedure = Procedure {
        prog: NFS_PROGRAM,
        vers: 4,
        proc: 1,
    };
    let root = Credential::Sys(AuthSys {
        uid: 0,
        gid: 0,
        ..AuthSys::default()
    });
    write_call(&mut w, XID, procedure, &root);
    let mut call = CallWriter::new(&mut w, Tag::default(), 2);
    operations
        .into_iter()
        .for_each(|operation| call.push(operation));
    call.finish();
    w.finish()
}

pub(super) fn exchange(name: &[u8], instance: u8) -> Payload {
    call(vec![ArgOp::ExchangeId(ExchangeIdArgs {
        owner: ClientOwner {
            verifier: Verifier([instance; 8]),
            owner: Identifier::new(name).expect("a short name"),
        },
        flags: ExchangeFlags::BIND_PRINC_STATEID,
        protect: ProtectArgs::None,
        implementation: None,
    })])
}

pub(super) fn create_session(client: ClientId, sequence: SequenceId, slots: u32) -> Payload {
    let channel = ChannelAttributes {
        max_request: 65_536,
        max_response: 65_536,
        max_response_cached: 4096,
        max_operations: 8,
        max_requests: slots,
        ..ChannelAttributes::default()
    };
    call(vec![ArgOp::CreateSession(CreateSessionArgs {
        client,
        sequence,
        flags: CreateSessionFlags::CONN_BACK_CHAN,
        fore: channel,
        back: channel,
        callback_program: 0x4000_0000,
        callback_security: Default::default(),
    })])
}

/// Binds a connection to both channels of a session, if it can be.
pub(super) fn bind(session: SessionId) -> Payload {
    call(vec![ArgOp::BindConnToSession(BindConnToSessionArgs {
        session,
        direction: ClientDirection::ForeOrBoth,
        use_rdma: false,
    })])
}

pub(super) fn destroy_session(session: SessionId) -> Payload {
    call(vec![ArgOp::DestroySession(DestroySessionArgs { session })])
}

pub(super) fn destroy_client(client: ClientId) -> Payload {
    call(vec![ArgOp::DestroyClientId(DestroyClientIdArgs { client })])
}

/// Writes a request of a session.
pub(super) fn request(at: At, op: &Op) -> Payload {
    let mut all = vec![sequence(at)];
    let names: [Vec<u8>; 2];
    let states;
    match op {
        Op::Renew => {}
        Op::Complete => all.push(ArgOp::ReclaimComplete(ReclaimCompleteArgs {
            one_fs: false,
        })),
        Op::Open {
            owner: by,
            name,
            access,
            deny,
            guarded,
        } => {
            names = [file_name(*name), owner(*by)];
            let attributes = Fattr::default();
            let how = match guarded {
                true => CreateHow::Guarded(attributes),
                false => CreateHow::Unchecked(attributes),
            };
            all.push(ArgOp::PutRootFh);
            all.push(open(
                &names[1],
                (*access, *deny),
                OpenHow::Create(how),
                OpenClaim::Null(filename(&names[0])),
            ));
            all.push(ArgOp::GetFh);
        }
        Op::OpenHandle {
            owner: by,
            handle,
            access,
            deny,
            reclaims,
        } => {
            names = [Vec::new(), owner(*by)];
            let claim = match reclaims {
                true => OpenClaim::Previous(nfs_proto::v4::delegation::DelegationType::None),
                false => OpenClaim::Handle,
            };
            all.push(put(handle));
            all.push(open(&names[1], (*access, *deny), OpenHow::NoCreate, claim));
            all.push(ArgOp::GetFh);
        }
        Op::Close { handle, state } => {
            all.push(put(handle));
            all.push(ArgOp::Close(CloseArgs {
                seqid: 0,
                state: *state,
            }));
        }
        Op::Downgrade {
            handle,
            state,
            access,
            deny,
        } => {
            all.push(put(handle));
            all.push(ArgOp::OpenDowngrade(OpenDowngradeArgs {
                state: *state,
                seqid: 0,
                access: ShareAccess::from_bits_retain(*access),
                deny: ShareDeny::from_bits_retain(*deny),
            }));
        }
        Op::Lock {
            handle,
            open,
            known,
            locker: by,
            range,
            kind,
            reclaims,
        } => {
            names = [Vec::new(), locker(*by)];
            let (offset, length) = octets(*range);
            all.push(put(handle));
            all.push(ArgOp::Lock(LockArgs {
                kind: *kind,
                reclaim: *reclaims,
                offset,
                length,
                locker: match known {
                    Some(state) => Locker::Existing(ExistingLockOwner {
                        state: *state,
                        lock_seqid: 0,
                    }),
                    None => Locker::New(OpenToLockOwner {
                        open_seqid: 0,
                        open: *open,
                        lock_seqid: 0,
                        owner: state_owner(&names[1]),
                    }),
                },
            }));
        }
        Op::Unlock {
            handle,
            state,
            range,
        } => {
            let (offset, length) = octets(*range);
            all.push(put(handle));
            all.push(ArgOp::LockU(LockUArgs {
                kind: LockType::Write,
                seqid: 0,
                state: *state,
                offset,
                length,
            }));
        }
        Op::Write {
            handle,
            state,
            offset,
            data,
        } => {
            all.push(put(handle));
            let data = Gather::from_elem(Bytes::copy_from_slice(data), 1);
            all.push(ArgOp::Write(WriteArgs {
                state: *state,
                offset: *offset as u64,
                stable: Stable::Unstable,
                data: Data::from(data),
            }));
        }
        Op::Read { handle, state } => {
            all.push(put(handle));
            all.push(ArgOp::Read(ReadArgs {
                state: *state,
                offset: 0,
                count: 1024,
            }));
        }
        Op::Rename { from, to } => {
            names = [file_name(*from), file_name(*to)];
            all.extend([ArgOp::PutRootFh, ArgOp::SaveFh]);
            all.push(ArgOp::Rename(RenameArgs {
                from: filename(&names[0]),
                to: filename(&names[1]),
            }));
        }
        Op::Remove { name } => {
            names = [file_name(*name), Vec::new()];
            all.push(ArgOp::PutRootFh);
            all.push(ArgOp::Remove(RemoveArgs {
                name: filename(&names[0]),
            }));
        }
        Op::MakeDirectory { name } => {
            names = [file_name(*name), Vec::new()];
            all.push(ArgOp::PutRootFh);
            all.push(ArgOp::Create(CreateArgs {
                kind: CreateType::Directory,
                name: filename(&names[0]),
                attributes: Fattr::default(),
            }));
        }
        Op::Test { states: of } => {
            states = of.clone();
            let states = Array::new(&states).expect("a few");
            all.push(ArgOp::TestStateId(TestStateIdArgs { states }));
        }
    }
    call(all)
}

fn put(handle: &[u8]) -> ArgOp<'_> {
    ArgOp::PutFh(PutFhArgs {
        handle: Handle::new(handle).expect("a handle of the server"),
    })
}

fn open<'a>(
    owner: &'a [u8],
    (access, deny): (u32, u32),
    how: OpenHow<'a>,
    claim: OpenClaim<'a>,
) -> ArgOp<'a> {
    ArgOp::Open(OpenArgs {
        seqid: 0,
        access: ShareAccess::from_bits_retain(access),
        deny: ShareDeny::from_bits_retain(deny),
        owner: state_owner(owner),
        how,
        claim,
    })
}

fn state_owner(name: &[u8]) -> StateOwner<'_> {
    StateOwner {
        client: ClientId(0),
        owner: Identifier::new(name).expect("a short name"),
    }
}

fn owner(of: u8) -> Vec<u8> {
    format!("owner {of}").into()
}

fn locker(of: u8) -> Vec<u8> {
    format!("locker {of}").into()
}

fn file_name(name: u8) -> Vec<u8> {
    format!("name {name}").into()
}

fn filename(name: &[u8]) -> Filename<'_> {
    Filename::new(name).expect("a short name")
}

/// Offset and length of parts of a file, from the first to the last.
fn octets((first, last): (usize, usize)) -> (u64, u64) {
    let length = match last {
        BYTES.. => u64::MAX,
        last => (last - first + 1) as u64,
    };
    (first as u64, length)
}

/// A call to a client.
#[derive(Clone, Copy, Debug)]
pub(super) enum Called {
    /// A lock may be free for this owner.
    Lock(ClientId, u8),
    /// The highest slot that it should use.
    Slots(u32),
}

/// Reads a call to a client: its session, its sequence id and what it says; `None` for CB_NULL.
pub(super) fn called(call: &[u8]) -> Result<Option<(SessionId, u32, Called)>, String> {
    let mut r = Reader::new(call);
    let header = CallHeader::parse(&mut r).map_err(|error| format!("a call: {error:?}"))?;
    if header.proc == 0 {
        return Ok(None);
    }
    let args = CbCompoundArgs::parse(&mut r).map_err(|error| format!("a call: {error}"))?;
    let operations: Vec<_> = args.operations.iter().collect();
    let [CbArgOp::Sequence(sequence), operation] = &operations[..] else {
        return Err(format!("a call: {operations:?}"));
    };
    let what = match operation {
        CbArgOp::NotifyLock(lock) => {
            let name = lock.owner.owner.to_vec();
            let number = name.strip_prefix(b"locker ").unwrap_or_default();
            let number = std::str::from_utf8(number).ok();
            let number = number.and_then(|number| number.parse().ok());
            Called::Lock(lock.owner.client, number.ok_or("a call to no owner")?)
        }
        CbArgOp::RecallSlot(recall) => Called::Slots(recall.target_highest_slot.0),
        other => return Err(format!("a call: {other:?}")),
    };
    Ok(Some((sequence.session, sequence.sequence.0, what)))
}

/// A reply without results.
pub(super) fn accepted() -> Payload {
    accept(|_| {})
}

fn accept(results: impl FnOnce(&mut Writer)) -> Payload {
    let mut w = Writer::default();
    w.words([XID, 1, 0, 0, 0, 0]);
    results(&mut w);
    w.finish()
}

/// The reply to a call to a client, with the result of its CB_SEQUENCE.
pub(super) fn called_back(call: &[u8], result: Result<(), Status>) -> Result<Payload, String> {
    let mut r = Reader::new(call);
    CallHeader::parse(&mut r).map_err(|error| format!("a call: {error:?}"))?;
    let args = CbCompoundArgs::parse(&mut r).map_err(|error| format!("a call: {error}"))?;
    let operations: Vec<_> = args.operations.iter().collect();
    let [CbArgOp::Sequence(sequence), operation] = &operations[..] else {
        return Err(format!("a call: {operations:?}"));
    };
    let ok = CbSequenceOk {
        session: sequence.session,
        sequence: sequence.sequence,
        slot: sequence.slot,
        ..CbSequenceOk::default()
    };
    let mut results = vec![CbResOp::Sequence(result.map(|()| ok))];
    if result.is_ok() {
        results.push(match operation {
            CbArgOp::RecallSlot(_) => CbResOp::RecallSlot(Ok(())),
            _ => CbResOp::NotifyLock(Ok(())),
        });
    }
    let results = Array::new(&results).ok_or("two results")?;
    let compound = CbCompoundRes {
        status: result,
        tag: Tag::default(),
        results,
    };
    Ok(accept(|w| compound.write(w)))
}

/// The bytes of a message in one piece.
pub(super) fn flat(message: &Payload) -> Buffer {
    let mut stream = Buffer::default();
    message.copy_stream_into(&mut stream);
    stream
}

/// Reads a reply.
pub(super) fn read(reply: &Payload) -> Result<Outcome, String> {
    let reader = read_reply(reply, XID).map_err(|error| format!("no reply: {error:?}"))?;
    let mut results = CompoundRes::parse(reader).map_err(|error| error.to_string())?;
    let status = results.status;
    let mut outcome = Outcome {
        status,
        in_session: false,
        slots: None,
        got: Got::Nothing,
    };
    let mut last = None;
    while let Some(result) = results.next_result() {
        let result = result.map_err(|error| error.to_string())?;
        last = Some(result.status());
        match result {
            ResOp::Sequence(result) => {
                outcome.in_session = result.is_ok();
                let slots = result.map(|its| (its.highest_slot.0, its.target_highest_slot.0));
                outcome.slots = slots.ok();
            }
            ResOp::Open(Ok(open)) => outcome.got = Got::State(open.state),
            ResOp::OpenDowngrade(Ok(state)) => outcome.got = Got::State(state),
            ResOp::BindConnToSession(Ok(bound)) => outcome.got = Got::Bound(bound.direction),
            ResOp::GetFh(Ok(found)) => {
                if let Got::State(state) = outcome.got {
                    outcome.got = Got::Opened(state, found.handle.to_vec());
                }
            }
            ResOp::Lock(Ok(state)) | ResOp::LockU(Ok(state)) => outcome.got = Got::State(state),
            ResOp::Read(Ok(read)) => outcome.got = Got::Data(read.data.bytes().into_owned()),
            ResOp::TestStateId(Ok(tested)) => {
                outcome.got = Got::Statuses(tested.statuses.iter().collect());
            }
            ResOp::ExchangeId(Ok(known)) => {
                outcome.got = Got::Client(known.client, known.sequence);
            }
            ResOp::CreateSession(Ok(created)) => {
                outcome.got = Got::Session(created.session, created.fore.max_requests);
            }
            _ => {}
        }
    }
    results.finish().map_err(|error| error.to_string())?;
    match last {
        Some(last) if last != status => Err(format!("status {status:?} after {last:?}")),
        _ => Ok(outcome),
    }
}
