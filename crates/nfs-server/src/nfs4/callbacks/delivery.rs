//! One call to a client, by whatever way it takes.

use super::message::{self, Answer};
use super::queue::Callback;
use crate::exports::Exports;
use crate::nfs4::state::{FileKey, Shared};
use nfs_proto::v4::callback::{CbArgOp, CbNotifyLockArgs, CbRecallSlotArgs};
use nfs_proto::v4::{ClientId, Handle, Identifier, SessionId, StateOwner, Status};
use nfs4_state::{CallbackPath, CallbackResult, CallbackSlot};
use oncrpc::xdr::Payload;
use oncrpc::{ConnectionId, PeerGroup, Transport, TransportError};
use rpc_serving::backchannels::{Backchannel, Backchannels, BackwardClient, MessageSizes};
use std::sync::Arc;

/// Ways to a client that are looked at.
const MAX_PATHS: usize = 64;

/// Everything that calls need.
pub(super) struct Delivery {
    pub(super) shared: Arc<Shared>,
    pub(super) backchannels: Backchannels,
    pub(super) exports: Exports,
}

/// The slot of a session's back channel during a callback. If the callback is not ended, nobody knows whether the client executed it.
struct InSlot<'a> {
    shared: &'a Shared,
    session: SessionId,
    slot: CallbackSlot,
    result: CallbackResult,
}

impl Drop for InSlot<'_> {
    fn drop(&mut self) {
        // The session may be gone since.
        let _ = self.shared.with(|locked| {
            let (now, server) = (locked.now, &mut *locked.server);
            server.end_callback(now, self.session, self.result)
        });
    }
}

impl Delivery {
    /// Returns the address of a client that can be called.
    pub(super) fn address(&self, client: ClientId) -> Option<PeerGroup> {
        let paths = self.paths(client);
        let backchannel = paths.iter().find_map(|path| self.backchannel(path))?;
        Some(PeerGroup::of(backchannel.addr().ip()))
    }

    /// Makes a call to a client.
    pub(super) async fn call(&self, client: ClientId, callback: Callback) {
        let paths = self.paths(client);
        match callback {
            Callback::NotifyLock { owner, file } => self.notify(client, &paths, &owner, file).await,
            Callback::RecallSlots { session } => self.recall_slots(&paths, session).await,
            Callback::Null { session } => {
                if let Some(path) = paths.iter().find(|path| path.session == session) {
                    self.check(path).await;
                }
            }
        }
    }

    fn paths(&self, client: ClientId) -> Vec<CallbackPath> {
        self.shared.with(|locked| {
            let paths = locked.server.callback_paths(client);
            paths.take(MAX_PATHS).collect()
        })
    }

    fn backchannel(&self, path: &CallbackPath) -> Option<Backchannel> {
        let connection = ConnectionId::of_number(path.connection.0);
        self.backchannels.get(connection)
    }

    /// Checks a way by CB_NULL.
    async fn check(&self, path: &CallbackPath) {
        let Some(backchannel) = self.backchannel(path) else {
            return;
        };
        let addr = backchannel.addr();
        let client = backchannel.client_is_ready();
        let xid = client.next_xid();
        let call = message::null(path, xid);
        let failed = match client.call(call, message::bound()).await {
            Ok(reply) if message::is_null_reply(xid, &reply) => return,
            Ok(_) => "the client has another callback program or wants another credential".into(),
            Err(error) => error.to_string(),
        };
        tracing::debug!(%addr, error = failed, "an NFSv4 client cannot be called");
    }

    /// Tells an owner that its lock may be free: by one session after the other, until the client has executed it.
    async fn notify(&self, client: ClientId, paths: &[CallbackPath], owner: &[u8], file: FileKey) {
        let handle = self.exports.seal(file.export, file.file);
        let (Some(handle), Some(owner)) = (Handle::new(handle.as_ref()), Identifier::new(owner))
        else {
            return;
        };
        let owner = StateOwner { client, owner };
        let lock = CbArgOp::NotifyLock(CbNotifyLockArgs { handle, owner });
        for paths in paths.chunk_by(|a, b| a.session == b.session) {
            if self.call_in_session(paths, &lock).await == CallbackResult::Executed {
                return;
            }
        }
    }

    /// Tells a client how many slots of a session it should use (RFC 8881 §20.8), unless that has changed since.
    async fn recall_slots(&self, paths: &[CallbackPath], session: SessionId) {
        let target = (self.shared).with(|locked| locked.server.recalled_slots(session));
        let paths = paths.chunk_by(|a, b| a.session == b.session);
        let mut paths = paths.filter(|paths| paths[0].session == session);
        if let (Some(target_highest_slot), Some(paths)) = (target, paths.next()) {
            let recall = CbRecallSlotArgs {
                target_highest_slot,
            };
            // If the client did not execute it, it reads the same in the results of its SEQUENCE.
            self.call_in_session(paths, &CbArgOp::RecallSlot(recall))
                .await;
        }
    }

    /// Makes a call in one session, over one connection after the other.
    async fn call_in_session(
        &self,
        paths: &[CallbackPath],
        operation: &CbArgOp<'_>,
    ) -> CallbackResult {
        let session = paths[0].session;
        let begun = |slot| InSlot {
            shared: &self.shared,
            session,
            slot,
            result: CallbackResult::NotExecuted,
        };
        let slot = (self.shared).with(|locked| locked.server.begin_callback(session));
        let Some(mut place) = slot.map(begun) else {
            return CallbackResult::NotExecuted;
        };
        let mut was_lost = false;
        for path in paths {
            let Some(backchannel) = self.backchannel(path) else {
                continue;
            };
            let client = backchannel.client_is_ready();
            let xid = client.next_xid();
            let call = message::compound(path, xid, place.slot, operation.clone());
            if !fits(path, &client, &call) {
                continue;
            }
            place.result = CallbackResult::Unknown;
            let reply = client.call(call, message::bound()).await;
            let attempt = attempt(path, place.slot, xid, reply, was_lost);
            place.result = attempt.result;
            was_lost |= attempt.result == CallbackResult::Unknown;
            if !attempt.goes_on {
                break;
            }
        }
        place.result
    }
}

/// Returns whether a call fits a way, and its reply.
fn fits(path: &CallbackPath, client: &BackwardClient, call: &Payload) -> bool {
    let most = client.message_sizes();
    let most = most.unwrap_or(MessageSizes {
        call: usize::MAX,
        reply: usize::MAX,
    });
    let (request, response) = (
        path.attributes.max_request as usize,
        path.attributes.max_response as usize,
    );
    path.attributes.max_operations >= message::OPERATIONS
        && call.stream_len() <= most.call.min(request)
        && message::REPLY <= most.reply
        && message::USUAL_REPLY <= response
}

/// End of an attempt over one connection.
#[derive(Debug, PartialEq, Eq)]
struct Attempt {
    result: CallbackResult,
    /// Another connection of the session may do better.
    goes_on: bool,
}

/// Finds out how an attempt ended. An attempt before may have been executed if its connection was lost (`was_lost`).
fn attempt(
    path: &CallbackPath,
    slot: CallbackSlot,
    xid: u32,
    reply: Result<Payload, TransportError>,
    was_lost: bool,
) -> Attempt {
    let unsent = match was_lost {
        true => CallbackResult::Unknown,
        false => CallbackResult::NotExecuted,
    };
    let reply = match reply {
        Ok(reply) => reply,
        Err(error) => {
            let (result, goes_on) = match error {
                TransportError::Unreachable(_)
                | TransportError::TooLarge { .. }
                | TransportError::XidInUse(_) => (unsent, true),
                // RFC 8881 §2.10.6.2: only then may it be sent again, over another connection.
                TransportError::Disconnected(_) => (CallbackResult::Unknown, true),
                _ => (CallbackResult::Unknown, false),
            };
            return Attempt { result, goes_on };
        }
    };
    let result = match message::answer(path, slot, xid, &reply) {
        Answer::Executed => CallbackResult::Executed,
        // It has seen this sequence id: the attempt before was executed.
        Answer::Refused(Some(Status::RetryUncachedReply | Status::SequenceFalseRetry))
            if was_lost =>
        {
            CallbackResult::Executed
        }
        Answer::Refused(Some(Status::SequenceMisordered | Status::BadSlot)) => {
            CallbackResult::Unknown
        }
        Answer::Refused(_) => unsent,
        Answer::Unreadable => CallbackResult::Unknown,
    };
    Attempt {
        result,
        goes_on: false,
    }
}
