//! A server of NFS version 4 with arbitrary operations behind a valid SEQUENCE.

use crate::memory::within_and_back;
use crate::script::Script;
use crate::site::{EXPORT, flat};
use buffer::{Buffer, Pool};
use nfs_proto::v4::session::{
    ChannelAttributes, ClientOwner, CreateSessionArgs, CreateSessionFlags, ExchangeFlags,
    ExchangeIdArgs, ProtectArgs, ReclaimCompleteArgs, SequenceArgs,
};
use nfs_proto::v4::{
    ArgOp, CallWriter, CompoundRes, Identifier, Operation, Res, ResOp, SequenceId, SessionId,
    SlotId, StateId, Status, Tag, Verifier,
};
use nfs_proto::{NFS_PROGRAM, Wire};
use nfs_server::{
    ExportOptions, Exports, HandleKey, MemFs, Nfs4, Nfs4Settings, Nfs4State, Nfs4Upkeep, Squash,
};
use oncrpc::xdr::{Payload, Reader, Writer};
use oncrpc::{
    Answer, AuthSys, Caller, Credential, Procedure, Programs, Reply, Respond, Service, read_reply,
    write_call,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Memory for the file system, its server, and the largest reply.
const MEMORY: usize = 16 << 20;

/// Bytes of the file system.
const CAPACITY: u64 = 1 << 20;

/// Requests that are made, and operations of each.
const REQUESTS: usize = 40;
const OPERATIONS: usize = 12;

const SLOTS: u8 = 2;

/// Handles and state ids that are remembered.
const REMEMBERED: usize = 8;

/// A script of COMPOUNDs: the reply says how far each got, its slot is free afterwards, and a retry gets the same reply.
pub fn nfs4_compound(bytes: &[u8]) {
    within_and_back(MEMORY, || {
        let mut script = Script::new(bytes);
        let mut user = User::new();
        for _ in 0..REQUESTS {
            if script.is_over() {
                break;
            }
            user.request(&mut script);
        }
        user.check_slots();
    });
}

struct User {
    programs: Programs,
    upkeep: Nfs4Upkeep,
    now: Arc<std::sync::Mutex<Instant>>,
    caller: Caller,
    session: SessionId,
    sequences: [u32; SLOTS as usize],
    handles: Vec<Vec<u8>>,
    states: Vec<StateId>,
}

impl User {
    fn new() -> Self {
        let options = ExportOptions::default().with_squash(Squash::None);
        let key = HandleKey::random().expect("the system has random numbers");
        let exports = Exports::new(key)
            .with(EXPORT, Arc::new(MemFs::new(CAPACITY)), options)
            .expect("a good name");
        let now = Arc::new(std::sync::Mutex::new(Instant::now()));
        let clock = Arc::clone(&now);
        let clock = move || *clock.lock().expect("nobody panics with it");
        let opened = Nfs4State::with_clock(Nfs4Settings::default(), clock);
        let (state, upkeep) = opened.expect("no file is needed");
        let nfs = Nfs4::new(exports, Pool::new(1 << 20), state);
        let mut user = Self {
            programs: Programs::new().with(nfs),
            upkeep,
            now,
            caller: Caller::new(([127, 0, 0, 1], 700).into()),
            session: SessionId::default(),
            sequences: [0; SLOTS as usize],
            handles: Vec::new(),
            states: Vec::new(),
        };
        user.begin();
        user
    }

    /// Makes a session.
    fn begin(&mut self) {
        let exchange = ArgOp::ExchangeId(ExchangeIdArgs {
            owner: ClientOwner {
                verifier: Verifier([1; 8]),
                owner: Identifier::new(b"user").expect("a short name"),
            },
            flags: ExchangeFlags::empty(),
            protect: ProtectArgs::None,
            implementation: None,
        });
        let known = match self.only(exchange) {
            ResOp::ExchangeId(Ok(known)) => (known.client, known.sequence),
            other => panic!("{other:?}"),
        };
        let channel = ChannelAttributes {
            max_request: 1 << 16,
            max_response: 1 << 16,
            max_response_cached: 1 << 12,
            max_operations: 64,
            max_requests: SLOTS.into(),
            ..ChannelAttributes::default()
        };
        let create = ArgOp::CreateSession(CreateSessionArgs {
            client: known.0,
            sequence: known.1,
            flags: CreateSessionFlags::empty(),
            fore: channel,
            back: channel,
            callback_program: 1,
            callback_security: Default::default(),
        });
        self.session = match self.only(create) {
            ResOp::CreateSession(Ok(created)) => created.session,
            other => panic!("{other:?}"),
        };
        self.sequences = [0; SLOTS as usize];
        let complete = ArgOp::ReclaimComplete(ReclaimCompleteArgs { one_fs: false });
        let message = self.message(0, true, |call| call.push(complete));
        self.exchange(message);
    }

    fn only(&mut self, operation: ArgOp<'_>) -> ResOp<'static> {
        let mut w = begin_call();
        let mut call = CallWriter::new(&mut w, Tag::default(), 2);
        call.push(operation);
        call.finish();
        let reply = self.exchange(w.finish());
        let mut results = results(&reply);
        match results.next_result() {
            Some(Ok(ResOp::ExchangeId(Ok(known)))) => {
                ResOp::ExchangeId(Ok(nfs_proto::v4::session::ExchangeIdOk {
                    owner: Default::default(),
                    scope: Default::default(),
                    implementation: None,
                    protect: nfs_proto::v4::session::ProtectRes::None,
                    ..known
                }))
            }
            Some(Ok(ResOp::CreateSession(created))) => ResOp::CreateSession(created),
            other => panic!("{other:?}"),
        }
    }

    /// A COMPOUND with the next SEQUENCE of a slot.
    fn message(
        &mut self,
        slot: u8,
        keep: bool,
        write: impl FnOnce(&mut CallWriter<'_>),
    ) -> Payload {
        let sequence = &mut self.sequences[usize::from(slot)];
        *sequence += 1;
        let sequence = *sequence;
        let mut w = begin_call();
        let mut call = CallWriter::new(&mut w, Tag::new(b"t").expect("short"), 2);
        call.push(ArgOp::Sequence(SequenceArgs {
            session: self.session,
            sequence: SequenceId(sequence),
            slot: SlotId(slot.into()),
            highest_slot: SlotId(slot.into()),
            cache_this: keep,
        }));
        write(&mut call);
        call.finish();
        w.finish()
    }

    fn request(&mut self, script: &mut Script<'_>) {
        if script.one_in(16) {
            let time = Duration::from_secs(script.number().min(1 << 20).into());
            *self.now.lock().expect("nobody panics with it") += time;
            self.upkeep.run();
        }
        let slot = script.byte() % SLOTS;
        let keep = !script.one_in(4);
        let wanted = script.below(OPERATIONS) + 1;
        let mut operations: Vec<Vec<u8>> = Vec::new();
        for _ in 0..wanted {
            operations.push(self.operation(script));
        }
        let parsed: Vec<_> = operations
            .iter()
            .map_while(|bytes| ArgOp::parse(&mut Reader::new(bytes)).ok())
            .collect();
        let numbers: Vec<Operation> = parsed.iter().map(ArgOp::number).collect();
        let message = self.message(slot, keep, |call| {
            parsed
                .into_iter()
                .for_each(|operation| call.push(operation));
        });
        // Bytes behind the last good operation, which the count says are operations.
        let rest = operations.get(numbers.len()).cloned();
        let mut stream = flat(&message).to_vec();
        if let Some(rest) = rest {
            let count_at = COUNT_AT;
            let count = u32::try_from(numbers.len()).expect("a few") + 2;
            stream[count_at..count_at + 4].copy_from_slice(&count.to_be_bytes());
            stream.extend_from_slice(&rest);
        }
        let again = payload(&stream);
        let reply = self.exchange(payload(&stream));
        if !self.check(&reply, &numbers) {
            self.begin();
            return;
        }
        self.caller = Caller::new(([127, 0, 0, 1], 701).into());
        let second = self.exchange(again);
        let kept = results(&second).status != Err(Status::RetryUncachedReply);
        if keep && kept {
            assert_eq!(
                flat(&reply).to_vec(),
                flat(&second).to_vec(),
                "executed twice"
            );
        }
    }

    /// Checks a reply. Returns whether the session is still there.
    fn check(&mut self, reply: &Payload, numbers: &[Operation]) -> bool {
        let mut found = results(reply);
        let status = found.status;
        let mut last: Res<()> = Ok(());
        let mut number = 0_usize;
        while let Some(result) = found.next_result() {
            let result = result.expect("a good result");
            assert!(last.is_ok(), "nothing is behind a failure");
            last = result.status();
            match &result {
                ResOp::GetFh(Ok(got)) => remember(&mut self.handles, got.handle.to_vec()),
                ResOp::Open(Ok(open)) => remember(&mut self.states, open.state),
                ResOp::Lock(Ok(state)) => remember(&mut self.states, *state),
                ResOp::Sequence(Err(Status::BadSession)) if number == 0 => return false,
                _ => {}
            }
            if let Some(operation) = number.checked_sub(1).and_then(|at| numbers.get(at)) {
                let its = result.number();
                assert!(its == *operation || its == Operation::Illegal, "{its:?}");
            } else if number == 0 {
                assert!(last.is_ok(), "SEQUENCE: {last:?}");
            }
            number += 1;
        }
        assert_eq!(found.finish(), Ok(()), "nothing is behind the results");
        assert_eq!(status, last, "the status of the last result");
        assert!(number <= numbers.len() + 2);
        true
    }

    /// Every slot is free.
    fn check_slots(&mut self) {
        for slot in 0..SLOTS {
            let message = self.message(slot, true, |_| {});
            let reply = self.exchange(message);
            let status = results(&reply).status;
            assert!(
                matches!(status, Ok(()) | Err(Status::BadSession)),
                "{status:?}"
            );
        }
    }

    fn operation(&self, script: &mut Script<'_>) -> Vec<u8> {
        let mut w = Writer::default();
        let state = match script.below(4) {
            0 => StateId::default(),
            1 => StateId {
                seqid: 1,
                other: [0; 12],
            },
            _ => match self.states.is_empty() {
                true => StateId::default(),
                false => self.states[script.below(self.states.len())],
            },
        };
        match script.below(24) {
            0 => w.u32(24),
            1..3 => {
                w.u32(15);
                w.opaque(script.pick(&[&b"data"[..], b"a", b"b", b"..", b"dir"]));
            }
            3 if !self.handles.is_empty() => {
                w.u32(22);
                w.opaque(&self.handles[script.below(self.handles.len())]);
            }
            4 => w.u32(10),
            5..8 => {
                // OPEN, by name or by handle, that creates or not.
                w.words([18, 0, script.pick(&[1, 2, 3, 3, 0x103])]);
                w.u32(script.pick(&[0, 0, 0, 1, 3]));
                w.u64(0);
                w.opaque(script.pick(&[&b"x"[..], b"y"]));
                match script.below(3) {
                    0 => w.u32(0),
                    1 => w.words([1, script.pick(&[0, 1]), 0, 0]),
                    _ => w.words([1, 2, 7, 7]),
                }
                match script.below(4) {
                    0 => w.u32(4),
                    1 => w.words([1, 0]),
                    _ => {
                        w.u32(0);
                        w.opaque(script.pick(&[&b"a"[..], b"b"]));
                    }
                }
            }
            8 | 9 => {
                w.words([12, script.pick(&[1, 2, 3, 4]), u32::from(script.one_in(8))]);
                w.u64(script.long());
                w.u64(script.long());
                match script.flag() {
                    true => {
                        w.words([1, 0]);
                        state.write(&mut w);
                        w.u32(0);
                        w.u64(0);
                        w.opaque(script.pick(&[&b"l"[..], b"m"]));
                    }
                    false => {
                        w.u32(0);
                        state.write(&mut w);
                        w.u32(0);
                    }
                }
            }
            10 => {
                w.words([14, 1, 0]);
                state.write(&mut w);
                w.u64(script.long());
                w.u64(script.long());
            }
            11 => {
                w.words([4, 0]);
                state.write(&mut w);
            }
            12 => {
                w.u32(38);
                state.write(&mut w);
                w.u64(script.long() % CAPACITY);
                w.u32(script.pick(&[0, 1, 2]));
                w.opaque(script.some(200));
            }
            13 => {
                w.u32(25);
                state.write(&mut w);
                w.u64(script.long());
                w.u32(script.number());
            }
            14 => {
                w.u32(9);
                w.words([2, script.number(), script.number()]);
            }
            15 => {
                w.u32(26);
                w.u64(script.long());
                w.u64(0);
                w.words([script.number(), script.number(), 1, script.number()]);
            }
            16 => {
                w.words([6, 2]);
                w.opaque(b"dir");
                w.u64(0);
            }
            17 => {
                w.u32(28);
                w.opaque(script.pick(&[&b"a"[..], b"b", b"dir"]));
            }
            _ => {
                w.u32(match script.byte() {
                    0..240 => script.pick(Operation::ALL) as u32,
                    240.. => script.number(),
                });
                let mut bytes = flat(&w.finish()).to_vec();
                bytes.extend_from_slice(script.some(96));
                return bytes;
            }
        }
        flat(&w.finish()).to_vec()
    }

    fn exchange(&mut self, call: Payload) -> Payload {
        let (done, reply) = std::sync::mpsc::channel();
        let reply = match self.programs.call(call, &self.caller) {
            Answer::Now(reply) => reply,
            Answer::Blocking(job) => job(),
            Answer::Deferred(job) => {
                job(Respond::new(move |reply| drop(done.send(reply))));
                self.upkeep.run();
                let reply = reply.try_recv().expect("nothing else is waited for");
                reply.expect("nothing panics")
            }
            Answer::Later(_) => panic!("COMPOUND waits for no future"),
        };
        match reply {
            Reply::Message(reply) => reply,
            other => panic!("{other:?}"),
        }
    }
}

/// Offset of the number of operations, behind a header with an empty machine name and no groups, a tag of one byte, and the version.
const COUNT_AT: usize = 24 + 8 + 20 + 8 + 8 + 4;

fn begin_call() -> Writer {
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
    write_call(&mut w, 7, procedure, &root);
    w
}

fn payload(stream: &[u8]) -> Payload {
    Payload::new(Buffer::from(stream.to_vec()), 0)
}

fn results(reply: &Payload) -> CompoundRes<'_> {
    let reader = read_reply(reply, 7).expect("a good reply");
    CompoundRes::parse(reader).expect("results of COMPOUND")
}

fn remember<T: PartialEq>(all: &mut Vec<T>, new: T) {
    if !all.contains(&new) {
        if all.len() == REMEMBERED {
            all.remove(0);
        }
        all.push(new);
    }
}
