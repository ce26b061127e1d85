//! Procedures that the server calls: CB_NULL, and CB_COMPOUND with CB_SEQUENCE and CB_RECALL (RFC 8881 §19, §20).

use crate::nfs41::{MAX_HANDLE, MINOR_VERSION, NFS4_OK, SessionId, Stateid};
use buffer::Buffer;
use oncrpc::xdr::{Error, Reader, Writer};
use oncrpc::{Answer, Call, Program, Reply};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use tokio::sync::mpsc;

/// The program that we tell the server to call: the first transient number (RFC 5531 §13.3.3).
pub(crate) const CALLBACK_PROGRAM: u32 = 0x4000_0000;

/// Its version for all of NFSv4 (RFC 8881 §19).
const VERSION: u32 = 1;

const CB_NULL: u32 = 0;
const CB_COMPOUND: u32 = 1;

const OP_CB_RECALL: u32 = 4;
const OP_CB_SEQUENCE: u32 = 11;

const NFS4ERR_NOTSUPP: u32 = 10004;
const NFS4ERR_MINOR_VERS_MISMATCH: u32 = 10021;
const NFS4ERR_BADSESSION: u32 = 10052;
const NFS4ERR_BADSLOT: u32 = 10053;
const NFS4ERR_SEQ_MISORDERED: u32 = 10063;
const NFS4ERR_OP_NOT_IN_SESSION: u32 = 10071;

/// Most bytes of a tag, operations of a call, lists of referring calls, and calls in one of these.
const MAX_TAG: u32 = 1024;
const MAX_OPERATIONS: u32 = 16;
const MAX_REFERRING: u32 = 64;

/// Delegations that the server wants back.
pub(crate) type Recalls = mpsc::UnboundedReceiver<Stateid>;

/// The callback program.
#[derive(Clone)]
pub(crate) struct CallbackProgram(Arc<State>);

struct State {
    recalls: mpsc::UnboundedSender<Stateid>,
    session: OnceLock<SessionId>,
    /// Sequence id of the last call in the one slot of the callback channel.
    last: AtomicU32,
}

impl CallbackProgram {
    pub(crate) fn new() -> (Self, Recalls) {
        let (recalls, receiver) = mpsc::unbounded_channel();
        let state = State {
            recalls,
            session: OnceLock::new(),
            last: AtomicU32::new(0),
        };
        (Self(Arc::new(state)), receiver)
    }

    /// Calls are for this session, and no other.
    pub(crate) fn set_session(&self, id: SessionId) {
        self.0.session.get_or_init(|| id);
    }

    fn compound(&self, call: Call) -> Reply {
        let mut w = call.success(Buffer::default());
        let mut r = call.args();
        let answered = self
            .operations(&mut r, &mut w)
            .and_then(|all| if all { r.finish() } else { Ok(()) });
        match answered {
            Ok(()) => Reply::Message(w.finish()),
            Err(error) => call.unreadable(error),
        }
    }

    /// CB_COMPOUND (RFC 8881 §19.2): one operation after the other, up to one that fails; whether none did.
    fn operations(&self, r: &mut Reader<'_>, w: &mut Writer) -> Result<bool, Error> {
        let tag = r.opaque(MAX_TAG)?;
        let [minor_version, _callback_ident] = r.words()?;
        let count = r.length(MAX_OPERATIONS)?;
        let status_at = w.len();
        w.u32(NFS4_OK);
        w.opaque(tag);
        let count_at = w.len();
        w.u32(0);
        if minor_version != MINOR_VERSION {
            w.patch_u32(status_at, NFS4ERR_MINOR_VERS_MISMATCH);
            return Ok(false);
        }
        for number in (1_u32..).take(count) {
            let operation = r.u32()?;
            w.u32(operation);
            let status = match operation {
                OP_CB_SEQUENCE if number == 1 => self.sequence(r, w)?,
                _ if number == 1 => refuse(w, NFS4ERR_OP_NOT_IN_SESSION),
                OP_CB_RECALL => self.recall(r, w)?,
                _ => refuse(w, NFS4ERR_NOTSUPP),
            };
            w.patch_u32(count_at, number);
            if status != NFS4_OK {
                w.patch_u32(status_at, status);
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// CB_SEQUENCE (RFC 8881 §20.9). A call that comes again is executed again: here that does no harm.
    fn sequence(&self, r: &mut Reader<'_>, w: &mut Writer) -> Result<u32, Error> {
        let session: SessionId = r.fixed()?;
        let [sequence, slot, _highest_slot] = r.words()?;
        let _cache_this = r.bool()?;
        r.vec(MAX_REFERRING, |r| {
            let _: SessionId = r.fixed()?;
            r.vec(MAX_REFERRING, Reader::words::<2>)
        })?;
        let last = self.0.last.load(Relaxed);
        let expected = self.0.session.get() == Some(&session);
        let status = match slot {
            _ if !expected => NFS4ERR_BADSESSION,
            1.. => NFS4ERR_BADSLOT,
            0 if sequence != last && sequence != last.wrapping_add(1) => NFS4ERR_SEQ_MISORDERED,
            0 => NFS4_OK,
        };
        println!("called: CB_SEQUENCE {sequence}, answered {status}");
        if status != NFS4_OK {
            return Ok(refuse(w, status));
        }
        self.0.last.store(sequence, Relaxed);
        w.u32(NFS4_OK);
        w.fixed(&session);
        // The slot, and the highest there is and that we want.
        w.words([sequence, slot, 0, 0]);
        Ok(NFS4_OK)
    }

    /// CB_RECALL (RFC 8881 §20.2): the delegation is given back later, by a call of ours.
    fn recall(&self, r: &mut Reader<'_>, w: &mut Writer) -> Result<u32, Error> {
        let stateid = Stateid::parse(r)?;
        let _truncate = r.bool()?;
        let _file = r.opaque(MAX_HANDLE)?;
        println!("called: CB_RECALL");
        // An error means that nobody waits for calls any more.
        let _ = self.0.recalls.send(stateid);
        w.u32(NFS4_OK);
        Ok(NFS4_OK)
    }
}

/// The status of an operation that failed, which is all there is of it.
fn refuse(w: &mut Writer, status: u32) -> u32 {
    w.u32(status);
    status
}

impl Program for CallbackProgram {
    fn number(&self) -> u32 {
        CALLBACK_PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        VERSION..=VERSION
    }

    /// Nothing is waited for here: it runs on the task that owns the connection.
    fn call(&self, call: Call) -> Answer {
        let reply = match call.proc {
            CB_NULL => {
                println!("called: CB_NULL");
                call.void()
            }
            CB_COMPOUND => self.compound(call),
            _ => call.proc_unavail(),
        };
        reply.into()
    }
}
