//! Calls of the server to its clients, over the connections of their calls (RFC 8167).
//!
//! What a client says with a call is that it is ready on that connection, if the call is one of
//! those that were announced. It is called then, while its call is in flight or after it, and with
//! the XID of that call. A client that has nothing to answer with says so too.

use crate::dice::Dice;
use crate::echo::{Echo, Shape, Shared};
use crate::judge::judge;
use crate::scenario::Backward;
use crate::stage::{Stage, count};
use crate::triggered::Triggered;
use oncrpc::xdr;
use oncrpc::xdr::{Payload, Reader};
use oncrpc::{
    Answer, Caller, Credential, MAX_REPLY_HEADER, Procedure, Programs, ReplyBound, RpcError,
    Service, Transport, TransportError, read_reply, write_call,
};
use rpcrdma::{Backchannels, BackwardClient};
use rpcrdma_watch::{Party, Watched};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Stream of random numbers of this file.
const BACK: u64 = 4;

/// Distance between the XIDs of backward calls triggered by one call of the client.
const XIDS: u32 = 0x1000_0000;

/// Bytes that fit inline whatever the ends agreed on, less the header.
const ALWAYS_FITS: usize = 1024 - 28;

/// A procedure of a program that no client has.
const NOTHING: Procedure = Procedure {
    prog: 0x2000_0001,
    vers: 1,
    proc: 0,
};

/// A service for echo calls and for the NULL calls of liveness probes.
pub(crate) struct Answering {
    pub(crate) echo: Arc<Echo>,
    /// Makes the calls that calls of clients trigger.
    pub(crate) back: Option<Arc<Back>>,
}

impl Service for Answering {
    fn call(&self, call: Payload, caller: &Caller) -> Answer {
        if is_rpc(&call) {
            return Programs::new().call(call, caller);
        }
        let made = { self.back.as_ref() }.and_then(|back| back.called(&self.echo, &call, caller));
        let answer = Shared(Arc::clone(&self.echo)).call(call, caller);
        match (made, &self.back) {
            (Some(made), Some(back)) => back.go(made, answer),
            _ => answer,
        }
    }
}

/// Whether it is an RPC call without arguments: one of the echo has other lengths, or another id.
fn is_rpc(call: &Payload) -> bool {
    let mut r = Reader::from(call);
    let words = [(); 3].map(|()| r.u32());
    call.stream_len() == 40 && words[2] == Ok(2)
}

/// A server that calls its clients.
pub(crate) struct Back {
    stage: Arc<Stage>,
    party: Party,
    backward: Backward,
    pub(crate) backchannels: Backchannels,
    state: Mutex<State>,
    running: Triggered,
}

#[derive(Default)]
struct State {
    /// The client of each call that says that its client is ready.
    announced: HashMap<u64, usize>,
    /// The service of each client, if it has one.
    clients: HashMap<usize, Option<Arc<Echo>>>,
    /// Calls that were made.
    made: Vec<(usize, u64)>,
}

/// Backward calls triggered by one call of a client.
struct Made {
    calls: Vec<CallBack>,
    /// Whether that call is answered after them.
    nested: bool,
}

/// A call to a client.
struct CallBack {
    client: Watched<BackwardClient>,
    number: usize,
    echo: Option<Arc<Echo>>,
    xid: u32,
    dice: Dice,
}

impl Back {
    pub(crate) fn new(stage: &Arc<Stage>, party: Party, backward: Backward) -> Arc<Self> {
        Arc::new(Self {
            stage: Arc::clone(stage),
            party,
            backward,
            backchannels: Backchannels::default(),
            state: Mutex::default(),
            running: Triggered::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The service of one more client, if it has one.
    pub(crate) fn client(&self, number: usize, dice: &mut Dice) -> Option<Arc<dyn Service>> {
        let echo = (!dice.once_in(self.backward.without_service)).then(Arc::<Echo>::default);
        self.state().clients.insert(number, echo.clone());
        echo.map(|echo| Arc::new(Answering { echo, back: None }) as Arc<dyn Service>)
    }

    /// A client may be about to say with a call that it is ready.
    pub(crate) fn announce(&self, id: u64, number: usize, dice: &mut Dice) {
        if dice.once_in(self.backward.often) {
            self.state().announced.insert(id, number);
        }
    }

    /// The backward calls that a call of a client triggers.
    fn called(&self, forward: &Echo, call: &Payload, caller: &Caller) -> Option<Made> {
        let mut r = Reader::from(call);
        let (Ok(xid), Ok(_), Ok(id)) = (r.u32(), r.u32(), r.u64()) else {
            return None;
        };
        let (number, echo) = {
            let state = self.state();
            let number = *state.announced.get(&id)?;
            (number, state.clients.get(&number).cloned().flatten())
        };
        let Some(backchannel) = self.backchannels.get(caller.connection) else {
            let watch = &self.stage.watch;
            watch.finding(format_args!(
                "call {xid:#010x} came over no connection that is there"
            ));
            return None;
        };
        // The same call may come once more, and brings about others then.
        let again = u64::from(forward.executed(id));
        let mut dice = Dice::new(id.wrapping_add(again), BACK);
        let client = backchannel.client_is_ready();
        let calls = (0..dice.within(1, self.backward.most)).scan(xid, |xid, _| {
            let call = CallBack {
                client: self.party.transport(client.clone()),
                number,
                echo: echo.clone(),
                xid: *xid,
                dice: dice.split(),
            };
            *xid = xid.wrapping_add(XIDS);
            Some(call)
        });
        Some(Made {
            calls: calls.collect(),
            nested: Dice::new(id, BACK).coin(),
        })
    }

    /// Makes the calls, and answers the one that triggered them.
    fn go(self: &Arc<Self>, made: Made, answer: Answer) -> Answer {
        let calls = { made.calls.into_iter() }.map(|call| Arc::clone(self).call(call));
        self.running.answer(calls.collect(), made.nested, answer)
    }

    async fn call(self: Arc<Self>, mut call: CallBack) {
        let (stage, number, xid) = (&self.stage, call.number, call.xid);
        let (id, made) = match &call.echo {
            Some(_) => (
                call.dice.any(),
                Shape::draw(&mut call.dice, &self.backward.mix),
            ),
            None => (0, Shape::null()),
        };
        let judged = match call.echo {
            Some(echo) => {
                self.state().made.push((number, id));
                let (message, bound) = (made.call(xid, id), made.bound());
                let large = message.stream_len().max(made.reply_len()) > ALWAYS_FITS;
                let calling = call.client.call(message, bound);
                let reply = if call.dice.once_in(stage.scenario.cancel) {
                    let limit = call.dice.milliseconds(300) / stage.pace;
                    match tokio::time::timeout(limit, calling).await {
                        Ok(reply) => reply,
                        Err(_) => return,
                    }
                } else {
                    calling.await
                };
                match reply {
                    // RFC 8167 §5.3: there are no chunks for it.
                    Err(TransportError::TooLarge { .. }) if large => Ok(false),
                    reply => judge(stage, &echo, &made, xid, id, reply),
                }
            }
            None => self.call_without_service(&call.client, xid).await,
        };
        match judged {
            Ok(true) => count(&stage.counts.called_back),
            Ok(false) => {}
            Err(wrong) => stage.watch.finding(format_args!(
                "call {xid:#010x} to client {number}, {made}: {wrong}"
            )),
        }
    }

    /// A client without a service says that it has no such program, and goes on.
    async fn call_without_service(
        &self,
        client: &Watched<BackwardClient>,
        xid: u32,
    ) -> Result<bool, String> {
        let mut w = xdr::Writer::default();
        write_call(&mut w, xid, NOTHING, &Credential::None);
        let bound = ReplyBound {
            fixed: MAX_REPLY_HEADER,
            ..ReplyBound::default()
        };
        match client.call(w.finish(), bound).await {
            Ok(reply) => match read_reply(&reply, xid) {
                Err(RpcError::ProgUnavail) => Ok(true),
                other => Err(format!("a client without a service says {other:?}")),
            },
            // In version two it has said before that nothing is answered there (xcharext §3.3).
            Err(TransportError::Refused(why))
                if why.contains("BKREQSUP_NONE") || why.contains("RDMA2_RVRSDIR_NONE") =>
            {
                Ok(true)
            }
            Err(
                TransportError::TimedOut(_)
                | TransportError::Disconnected(_)
                | TransportError::Unreachable(_),
            ) if !self.stage.scenario.must_succeed => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Waits until no backward call is in flight that nobody waits for.
    pub(crate) async fn settle(&self) {
        self.running.settle().await;
    }

    /// No call to a client is executed more often than once: it ends with its connection.
    pub(crate) fn check(&self) {
        let state = self.state();
        for (number, id) in &state.made {
            let echo = state.clients.get(number).and_then(Option::as_ref);
            let executed = echo.map_or(0, |echo| echo.executed(*id));
            if executed > 1 {
                self.stage.watch.finding(format_args!(
                    "a call to client {number} was executed {executed} times"
                ));
            }
        }
        let echoes = state.clients.values().flatten();
        for wrong in echoes.flat_map(|echo| echo.wrong()) {
            self.stage.watch.finding(wrong);
        }
    }
}

/// The calls of a server to its clients, if it makes any.
pub(crate) type MayCall = Option<Arc<Back>>;

/// The connections over which it calls its clients.
pub(crate) fn backchannels(back: &MayCall) -> Option<Backchannels> {
    back.as_ref().map(|back| back.backchannels.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_rpc_are_told_from_those_of_the_echo() {
        let mut w = xdr::Writer::default();
        write_call(&mut w, 7, NOTHING, &Credential::None);
        assert!(is_rpc(&w.finish()));
        for args in 0..20 {
            let shape = Shape {
                args: vec![args],
                ..Shape::null()
            };
            assert!(!is_rpc(&shape.call(7, 1 << 40)), "{args}");
        }
    }
}
