//! Calls of the upstream to the client of its relay (RFC 8167, RFC 8881 §2.10.3.1).

use crate::relay::Relay;
use crate::replies::can_answer;
use crate::xids::Taken;
use oncrpc::xdr::{Payload, Reader};
use oncrpc::{
    Answer, CallHeader, Caller, Programs, Reply, ReplyBound, Service, Transport, TransportError,
};
use std::sync::{Arc, Weak};
use tracing::debug;

/// The service for calls of the upstream of one relay.
pub(crate) struct Callbacks {
    pub(crate) relay: Weak<Relay>,
}

impl Service for Callbacks {
    fn call(&self, call: Payload, caller: &Caller) -> Answer {
        match self.relay.upgrade() {
            Some(relay) => relay.call_back(call, caller),
            None => Answer::Now(Reply::Nothing),
        }
    }
}

/// Turns of the event loop in which replies pass a callback that was received behind them: their memory is taken back
/// from an RDMA upstream, and the task of the client queues them.
const TURNS: usize = 8;

/// Lets replies go first that were received before, such as that of OPEN before the recall of its delegation. Nothing
/// tells of them, and most have passed in a turn or two.
async fn let_replies_pass() {
    for _ in 0..TURNS {
        tokio::task::yield_now().await;
    }
}

/// Fields of a callback with which the gateway can answer it itself.
struct Target {
    xid: u32,
    prog: u32,
    flavor: u32,
}

/// A call of the upstream in flight. Dropping it frees its XID.
struct InFlight {
    relay: Arc<Relay>,
    xid: u32,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.relay.lock().called_back.free(self.xid);
    }
}

impl Relay {
    /// Answers a call of the upstream: by the client, if it has said that it takes calls.
    fn call_back(self: Arc<Self>, call: Payload, upstream: &Caller) -> Answer {
        // First of all: no answer of the gateway's own is to be taken for that of a call in flight.
        let xid = Reader::from(&call).u32().unwrap_or_default();
        if self.lock().called_back.take(xid) != Taken::Now {
            self.gateway.stats.repetitions.bump();
            debug!(target: "gateway", listen = self.gateway.listen(), client = %self.caller().addr, xid, "a call of the upstream that is in flight is not repeated");
            return Answer::Now(Reply::Nothing);
        }
        let in_flight = InFlight {
            relay: Arc::clone(&self),
            xid,
        };
        let header = CallHeader::parse(&mut Reader::from(&call));
        let Ok(header) = header else {
            // Without programs, it answers what is wrong with the header (RFC 5531 §9).
            self.gateway.stats.malformed.bump();
            return Programs::new().call(call, upstream);
        };
        let target = Target {
            xid: header.xid,
            prog: header.prog,
            flavor: header.cred.flavour,
        };
        let Some(client) = self.backward() else {
            self.gateway.stats.callbacks_refused.bump();
            let prog = target.prog;
            self.warn(&format!(
                "PROG_UNAVAIL: the upstream calls program {prog:#x} of a client that has not said that it takes calls"
            ));
            return match can_answer(target.flavor) {
                true => Programs::new().call(call, upstream),
                false => {
                    let side = self.gateway.upstream_kind;
                    Answer::Now(self.system_error(target.xid, target.flavor, side))
                }
            };
        };
        self.gateway.stats.callbacks.bump();
        self.gateway.stats.bytes_down.add(call.stream_len() as u64);
        let upstream = *upstream;
        Answer::Later(Box::pin(async move {
            let _in_flight = in_flight;
            let_replies_pass().await;
            // No reply to a callback has eligible results (RFC 8267 §6.5).
            let sizes = client.message_sizes();
            let bound = sizes.map_or_else(ReplyBound::default, |most| ReplyBound::new(most.reply));
            let reply = client.call(call, bound).await;
            self.called_back(reply, &target, &upstream)
        }))
    }

    /// The reply of the client as it goes to the upstream.
    fn called_back(
        &self,
        reply: Result<Payload, TransportError>,
        target: &Target,
        upstream: &Caller,
    ) -> Reply {
        let stats = &self.gateway.stats;
        let error = match reply {
            Ok(reply)
                if upstream
                    .reply_room
                    .carries(&ReplyBound::new(reply.stream_len())) =>
            {
                stats.callback_replies.bump();
                stats.bytes_up.add(reply.stream_len() as u64);
                return Reply::Message(reply);
            }
            Ok(reply) => TransportError::TooLarge {
                len: reply.stream_len(),
                limit: 0,
            },
            Err(error) => error,
        };
        match error {
            // The upstream repeats a call, or waits in vain: it has limits of its own.
            TransportError::XidInUse(_)
            | TransportError::Disconnected(_)
            | TransportError::Unreachable(_)
            | TransportError::TimedOut(_) => Reply::Nothing,
            other => {
                self.warn(&format!("a callback cannot be carried: {other}"));
                self.system_error(target.xid, target.flavor, self.gateway.upstream_kind)
            }
        }
    }
}
