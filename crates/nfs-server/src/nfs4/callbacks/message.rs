//! Callbacks on the wire (RFC 8881 §19, §20).

use nfs_proto::Wire;
use nfs_proto::v4::callback::{
    CALLBACK_VERSION, CbArgOp, CbCompoundArgs, CbCompoundRes, CbResOp, CbSequenceArgs,
};
use nfs_proto::v4::{Array, SlotId, Status};
use nfs4_state::{CallbackCredential, CallbackPath, CallbackSlot};
use oncrpc::xdr::{Payload, Writer};
use oncrpc::{
    AuthSys, Credential, MAX_REPLY_HEADER, Procedure, ReplyBound, read_reply, write_call,
};

/// CB_NULL and CB_COMPOUND.
const NULL: u32 = 0;
const COMPOUND: u32 = 1;

/// Operations of a callback.
pub(super) const OPERATIONS: u32 = 2;

/// Most bytes of the results of a callback: status, tag and count; CB_SEQUENCE with its result; another operation with a status.
const RESULTS: usize = (4 + 4 + 4) + (8 + 16 + 4 * 4) + 8;

/// Bytes that the reply to a callback has at most.
pub(super) const REPLY: usize = MAX_REPLY_HEADER + RESULTS;

/// Bytes of a reply that the client makes as RFC 8881 has it, with an empty verifier.
pub(super) const USUAL_REPLY: usize = oncrpc::REPLY_HEADER + RESULTS;

pub(super) fn bound() -> ReplyBound {
    ReplyBound::new(REPLY)
}

/// Returns the credential of a way.
fn credential(path: &CallbackPath) -> Credential {
    match &path.credential {
        CallbackCredential::None => Credential::None,
        CallbackCredential::Sys(sys) => Credential::Sys(AuthSys {
            stamp: sys.stamp,
            machine_name: sys.machine_name.iter().copied().collect(),
            uid: sys.uid,
            gid: sys.gid,
            gids: sys.gids.iter().copied().collect(),
        }),
    }
}

fn header(path: &CallbackPath, xid: u32, proc: u32) -> Writer {
    let mut w = Writer::default();
    let target = Procedure {
        prog: path.program,
        vers: CALLBACK_VERSION,
        proc,
    };
    write_call(&mut w, xid, target, &credential(path));
    w
}

/// Makes a CB_NULL.
pub(super) fn null(path: &CallbackPath, xid: u32) -> Payload {
    header(path, xid, NULL).finish()
}

/// Makes a CB_COMPOUND of CB_SEQUENCE and another operation.
pub(super) fn compound(
    path: &CallbackPath,
    xid: u32,
    slot: CallbackSlot,
    operation: CbArgOp<'_>,
) -> Payload {
    let mut w = header(path, xid, COMPOUND);
    let sequence = CbSequenceArgs {
        session: path.session,
        sequence: slot.sequence,
        slot: slot.slot,
        // No other is in use.
        highest_slot: SlotId(0),
        // What the client does not know of this call it learns by asking for the lock, or by its next SEQUENCE.
        cache_this: false,
        referring: Array::default(),
    };
    let operations = [CbArgOp::Sequence(sequence), operation];
    let args = CbCompoundArgs {
        tag: Default::default(),
        minor_version: path.minor_version,
        callback_ident: 0,
        operations: Array::new(&operations).expect("two operations are no more than the limit"),
    };
    args.write(&mut w);
    w.finish()
}

/// The reply of a client to a callback in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// CB_SEQUENCE succeeded: the slot was used.
    Executed,
    /// CB_SEQUENCE failed, or nothing was executed at all: the slot is as it was (RFC 8881 §20.9.3).
    Refused(Option<Status>),
    /// It is no reply to this callback.
    Unreadable,
}

/// Reads the reply to a callback.
pub(super) fn answer(path: &CallbackPath, slot: CallbackSlot, xid: u32, reply: &Payload) -> Answer {
    use oncrpc::RpcError::{Malformed, OtherXid};
    let mut r = match read_reply(reply, xid) {
        Ok(r) => r,
        Err(OtherXid | Malformed(_)) => return Answer::Unreadable,
        Err(_) => return Answer::Refused(None),
    };
    let Ok(compound) = CbCompoundRes::parse(&mut r) else {
        return Answer::Unreadable;
    };
    let first = compound.results.iter().next();
    match (first, compound.status) {
        (Some(CbResOp::Sequence(Ok(found))), _) => {
            let expected = (path.session, slot.slot, slot.sequence);
            match (found.session, found.slot, found.sequence) == expected {
                true => Answer::Executed,
                false => Answer::Unreadable,
            }
        }
        (Some(CbResOp::Sequence(Err(status))), _) => Answer::Refused(Some(status)),
        (None, Err(status)) => Answer::Refused(Some(status)),
        (None, Ok(())) | (Some(_), _) => Answer::Unreadable,
    }
}

/// Returns whether a reply to CB_NULL is one.
pub(super) fn is_null_reply(xid: u32, reply: &Payload) -> bool {
    read_reply(reply, xid).is_ok()
}
