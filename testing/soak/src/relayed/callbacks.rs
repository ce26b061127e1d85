//! Calls of the server to its clients, over the connections of their calls (RFC 8881 §2.10.3.1).
//!
//! A client says on each of its connections that it takes callbacks, or never does. Some of its
//! calls trigger callbacks, the first with the XID of the call, which may be in flight meanwhile.

use super::messages::{self, CALLBACK, Said};
use super::program::EchoProgram;
use super::session::Session;
use crate::dice::Dice;
use crate::echo::{Echo, How, Mix, Shape};
use crate::scenario::Backward;
use crate::stage::{Stage, count};
use crate::triggered::Triggered;
use oncrpc::xdr::Payload;
use oncrpc::{Answer, Caller, ConnectionId, ReplyBound, Service, Transport, TransportError};
use oncrpc_tcp::{Backchannels, BackwardClient};
use rpcrdma_watch::{Party, Watched};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Stream of random numbers of this file.
const BACK: u64 = 6;

/// Distance between the XIDs of callbacks that one call triggers.
const XIDS: u32 = 0x1000_0000;

/// One callback in this many is CB_NULL.
const NULLS: u32 = 6;

/// Largest callback in bytes that is sent, whatever its session allows: a gateway ends the pair of a
/// server that sends more.
const LARGEST: usize = 64 << 10;

/// Longest pause before a callback is sent again, in milliseconds.
const PAUSE: usize = 3000;

/// A server that calls its clients.
pub(super) struct Callbacks {
    stage: Arc<Stage>,
    /// The gateway behind, which has callbacks first, and that in front, which brings them to clients.
    behind: Party,
    front: Party,
    backward: Backward,
    pub(super) backchannels: Backchannels,
    state: Mutex<State>,
    running: Triggered,
}

#[derive(Default)]
struct State {
    /// The client of each call that triggers callbacks.
    announced: HashMap<u64, usize>,
    /// The service of each client, if it has one.
    clients: HashMap<usize, Option<Arc<Echo>>>,
    /// Connections on which a client has said that it takes callbacks, and the last of each client.
    sessions: BTreeMap<ConnectionId, Session>,
    last: HashMap<usize, ConnectionId>,
    /// XIDs that callbacks had on their connections.
    used: BTreeSet<(ConnectionId, u32)>,
    /// How often each callback was sent, and to which client.
    sent: BTreeMap<u64, (usize, u32)>,
    /// How often callbacks were sent with this XID.
    sent_as: HashMap<u32, u32>,
}

/// Callbacks that a call of a client triggers.
pub(super) struct Made {
    callbacks: Vec<Callback>,
    /// Whether that call is answered after them.
    nested: bool,
}

/// A call to a client.
struct Callback {
    number: usize,
    /// The service of the client, if it has one.
    echo: Option<Arc<Echo>>,
    connection: ConnectionId,
    xid: u32,
    id: u64,
    what: What,
    dice: Dice,
}

/// Request of a callback.
enum What {
    Null,
    Echo(Shape),
}

impl What {
    fn draw(dice: &mut Dice, mix: &Mix) -> Self {
        let shape = Shape::draw(dice, mix);
        let len = messages::call(CALLBACK, &shape, 0, 0).stream_len();
        match dice.once_in(NULLS) || len > LARGEST {
            true => Self::Null,
            false => Self::Echo(shape),
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("CB_NULL"),
            Self::Echo(shape) => shape.fmt(f),
        }
    }
}

impl Callbacks {
    pub(super) fn new(
        stage: &Arc<Stage>,
        (front, behind): (&Party, &Party),
        backward: Backward,
    ) -> Arc<Self> {
        Arc::new(Self {
            stage: Arc::clone(stage),
            behind: behind.clone(),
            front: front.clone(),
            backward,
            backchannels: Backchannels::default(),
            state: Mutex::default(),
            running: Triggered::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wrong(&self, what: impl fmt::Display) {
        self.stage.watch.finding(what);
    }

    /// The service of one more client, if it has one.
    pub(super) fn client(&self, number: usize, dice: &mut Dice) -> Option<Arc<dyn Service>> {
        let echo = (!dice.once_in(self.backward.without_service)).then(Arc::<Echo>::default);
        self.state().clients.insert(number, echo.clone());
        let program = EchoProgram {
            number: CALLBACK,
            echo: echo?,
            callbacks: None,
        };
        // It answers what comes over RPC-over-RDMA to the gateway before it.
        Some(self.front.service(Arc::new(program)))
    }

    /// A client may be about to make a call that triggers callbacks.
    pub(super) fn announce(&self, id: u64, number: usize, dice: &mut Dice) {
        if dice.once_in(self.backward.often) {
            self.state().announced.insert(id, number);
        }
    }

    /// A client says that it takes callbacks on a connection.
    pub(super) fn declared(&self, connection: ConnectionId, session: Session) {
        let mut state = self.state();
        if !matches!(state.clients.get(&session.client), Some(Some(_))) {
            self.wrong(format_args!("a session of no client: {session:?}"));
        }
        state.sessions.insert(connection, session);
        state.last.insert(session.client, connection);
    }

    /// The callbacks that a call of a client triggers.
    pub(super) fn triggered(
        &self,
        forward: &Echo,
        (xid, id): (u32, u64),
        caller: &Caller,
    ) -> Option<Made> {
        let mut state = self.state();
        let number = *state.announced.get(&id)?;
        let echo = state.clients.get(&number).cloned().flatten();
        let connection = caller.connection;
        if self.backchannels.get(connection).is_none() {
            self.wrong(format_args!(
                "call {xid:#010x} came over no connection that is there"
            ));
            return None;
        }
        // The same call may come once more, and brings about others then.
        let again = u64::from(forward.executed(id));
        let mut dice = Dice::new(id.wrapping_add(again), BACK);
        let callbacks = (0..dice.within(1, self.backward.most)).map(|_| {
            let mut dice = dice.split();
            Callback {
                number,
                echo: echo.clone(),
                connection,
                xid: state.xid(connection, xid),
                id: dice.any(),
                what: What::draw(&mut dice, &self.backward.mix),
                dice,
            }
        });
        Some(Made {
            callbacks: callbacks.collect(),
            nested: Dice::new(id, BACK).coin(),
        })
    }

    /// Makes callbacks, and answers the call that triggered them.
    pub(super) fn go(self: &Arc<Self>, made: Made, answer: Answer) -> Answer {
        let calls = { made.callbacks.into_iter() }.map(|call| Arc::clone(self).call(call));
        self.running.answer(calls.collect(), made.nested, answer)
    }

    async fn call(self: Arc<Self>, mut callback: Callback) {
        let reply = if callback.dice.once_in(self.stage.scenario.cancel) {
            let limit = callback.dice.milliseconds(300) / self.stage.pace;
            match tokio::time::timeout(limit, self.send(&callback)).await {
                Ok(reply) => reply,
                Err(_) => return,
            }
        } else {
            match self.send(&callback).await {
                Err(TransportError::Disconnected(_)) if callback.dice.coin() => {
                    self.stage.pause(&mut callback.dice, PAUSE).await;
                    if !self.state().moves(&mut callback) {
                        return;
                    }
                    self.send(&callback).await
                }
                reply => reply,
            }
        };
        match self.judge(&callback, reply) {
            Ok(true) => count(&self.stage.counts.called_back),
            Ok(false) => {}
            Err(wrong) => {
                let Callback {
                    xid, number, what, ..
                } = &callback;
                self.wrong(format_args!(
                    "callback {xid:#010x} to client {number}, {what}: {wrong}"
                ));
            }
        }
    }

    /// Sends a callback, and waits for its reply.
    async fn send(self: &Arc<Self>, callback: &Callback) -> Result<Payload, TransportError> {
        let Callback { xid, id, what, .. } = callback;
        let Some(client) = self.backchannel(callback.connection) else {
            let gone = std::io::Error::from(std::io::ErrorKind::NotConnected);
            return Err(TransportError::Disconnected(gone.into()));
        };
        self.state()
            .sent
            .entry(*id)
            .or_insert((callback.number, 0))
            .1 += 1;
        let message = match what {
            What::Null => messages::null(CALLBACK, *xid),
            What::Echo(shape) => messages::call(CALLBACK, shape, *xid, *id),
        };
        client.call(message, ReplyBound::default()).await
    }

    fn backchannel(self: &Arc<Self>, connection: ConnectionId) -> Option<Watched<BackwardClient>> {
        let client = self.backchannels.get(connection)?.client_is_ready();
        let all = Arc::clone(self);
        let times = move |xid| all.state().sent_as.get(&xid).copied().unwrap_or(0);
        Some(self.behind.transport_to_gateway(client, times))
    }

    /// Whether a callback has its reply; the error describes an outcome that is not allowed.
    fn judge(
        &self,
        callback: &Callback,
        reply: Result<Payload, TransportError>,
    ) -> Result<bool, String> {
        let scenario = &self.stage.scenario;
        let Callback { xid, id, what, .. } = callback;
        let reply = match reply {
            Ok(reply) => reply,
            Err(
                TransportError::TimedOut(_)
                | TransportError::Disconnected(_)
                | TransportError::Unreachable(_),
            ) if !scenario.must_succeed => return Ok(false),
            // The connection of a client that takes none is not kept for callbacks while it is idle.
            Err(TransportError::Disconnected(_)) if callback.echo.is_none() => return Ok(false),
            Err(error) => return Err(error.to_string()),
        };
        let said = match what {
            What::Null => messages::check_null(*xid, &reply)?,
            What::Echo(shape) => messages::check(shape, *xid, *id, &reply)?,
        };
        let executed = callback.echo.as_ref().map(|echo| echo.executed(*id));
        match (said, what, executed) {
            // Nobody asked for it.
            (Said::ProgUnavail, _, None) => Ok(true),
            (Said::ProgUnavail, ..) => Err("PROG_UNAVAIL, but the client takes callbacks".into()),
            (_, _, None) => Err(format!("{said:?}, but the client takes no callbacks")),
            (Said::Done, What::Echo(shape), _) if shape.answer == How::Never => {
                Err("a reply that nobody gave".into())
            }
            (Said::Done, What::Echo(_), Some(0)) => Err("a reply, but nobody executed it".into()),
            (Said::Done, ..) => Ok(true),
            (Said::SystemErr, What::Echo(shape), _) if self.is_large(callback, shape) => Ok(true),
            // A server does not try a call again whose chunks cost it a connection (RFC 8166 §4.5.3).
            (Said::SystemErr, ..) if scenario.faults.failures > 0 => Ok(false),
            (Said::SystemErr, ..) => Err("SYSTEM_ERR, but it fits".into()),
        }
    }

    /// Whether a callback or its reply is larger than what its session allows.
    fn is_large(&self, callback: &Callback, shape: &Shape) -> bool {
        let state = self.state();
        let call = messages::call(CALLBACK, shape, callback.xid, callback.id);
        let session = state.sessions.get(&callback.connection);
        session.is_none_or(|session| {
            call.stream_len() > session.call || messages::reply_len(shape) > session.reply
        })
    }

    /// Waits until no callback is in flight that nobody waits for.
    pub(super) async fn settle(&self) {
        self.running.settle().await;
    }

    /// No callback is executed more often than it was sent, and none by a client that takes none.
    pub(super) fn check(&self) {
        let state = self.state();
        for (id, (number, sent)) in &state.sent {
            let echo = state.clients.get(number).and_then(Option::as_ref);
            let executed = echo.map_or(0, |echo| echo.executed(*id));
            if executed > *sent {
                self.wrong(format_args!(
                    "a callback to client {number} was sent {sent} times and executed {executed} times"
                ));
            }
        }
        let echoes = state.clients.values().flatten();
        for wrong in echoes.flat_map(|echo| echo.wrong()) {
            self.wrong(wrong);
        }
        let left = self.backchannels.len();
        if left > 0 {
            self.wrong(format_args!(
                "{left} connections to call clients over are left"
            ));
        }
    }
}

impl State {
    /// An XID for a callback: that of the call in the other direction which triggers it, or the next
    /// one that no callback had on this connection.
    fn xid(&mut self, connection: ConnectionId, of_call: u32) -> u32 {
        let mut xid = of_call;
        while !self.used.insert((connection, xid)) {
            xid = xid.wrapping_add(XIDS);
        }
        xid
    }

    /// Gives a callback that has lost its connection the last one of its client, where it keeps its
    /// XID. Returns whether there is one.
    fn moves(&mut self, callback: &mut Callback) -> bool {
        let last = self.last.get(&callback.number).copied();
        let Some(last) = last.filter(|last| self.used.insert((*last, callback.xid))) else {
            return false;
        };
        callback.connection = last;
        true
    }
}
