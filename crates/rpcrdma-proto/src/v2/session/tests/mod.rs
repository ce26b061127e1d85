//! One session and the messages it decodes, and two sessions that talk to each other.

mod beginning;
mod designs;
mod hostile;
mod lengths;
mod lowering;
mod raising;
mod random;
mod requests;

use super::*;
use crate::limits::{CONTROL_RECEIVES, MAX_CONTROL_MESSAGES};
use crate::v2::characteristics::XcharId;
use crate::v2::characteristics::{
    DesignBits, InvalidationDesigns, MayChange, ReceiveBufferSize, Registry, ValueError, XcharSpec,
};
use crate::v2::operations::{InitXch, Outcome, ReqXch, UpdXch, code};
use oncrpc::xdr::{Reader, Writer};

/// A characteristic that a user has added: it may grow unasked, and shrink if the peer asks.
pub(super) struct Queue;

impl Characteristic for Queue {
    type Value = u32;

    const ID: XcharId = XcharId(4_294_967_100);
    const NAME: &'static str = "Queue";
    const XDR: &'static str = "uint32";
    const FIXED: bool = false;

    fn default() -> u32 {
        16
    }

    fn parse(r: &mut Reader<'_>) -> Result<u32, ValueError> {
        Ok(r.u32()?)
    }

    fn emit(value: &u32, w: &mut Writer) {
        w.u32(*value);
    }

    fn may_change(from: &u32, to: &u32) -> MayChange {
        if to < from {
            MayChange::OnRequest
        } else {
            MayChange::Unasked
        }
    }
}

pub(super) fn size(bytes: u32) -> ReceiveSize {
    ReceiveSize::new(bytes).expect("not too small")
}

pub(super) fn receives(bytes: u32) -> XcharVal {
    XcharVal::of::<ReceiveBufferSize>(&size(bytes))
}

fn queue(length: u32) -> XcharVal {
    XcharVal::of::<Queue>(&length)
}

/// With Receives of 4096 bytes now and 65536 at most, and a queue of 16.
pub(super) fn config(role: Role) -> Config {
    let mut config = Config::new(role);
    config.max_receive_size = size(65_536);
    config.registry.register::<Queue>().expect("its id is free");
    config.registered.set::<Queue>(&16);
    config
}

/// Two ends, and a wire without anything on it.
struct Pair {
    client: Session,
    server: Session,
    next: u32,
}

impl Pair {
    fn with(change: impl Fn(&mut Config)) -> Self {
        let [client, server] = [Role::Client, Role::Server].map(|role| {
            let mut config = config(role);
            change(&mut config);
            Session::new(config).expect("it is in order")
        });
        let next = 0;
        Self {
            client,
            server,
            next,
        }
    }

    /// Both have said what they are.
    fn open(change: impl Fn(&mut Config)) -> Self {
        let mut pair = Self::with(change);
        pair.drive();
        assert_eq!(pair.client.opening(), Opening::Done);
        pair
    }

    /// Lets all messages arrive. As nothing else is on its way, all that is awaited has happened.
    fn drive(&mut self) {
        loop {
            let mut quiet = true;
            for client in [true, false] {
                let [from, to] = match client {
                    true => [&mut self.client, &mut self.server],
                    false => [&mut self.server, &mut self.client],
                };
                from.handle_old_receives_gone(from.receive_size());
                from.handle_calls_drained();
                while let Some(message) = from.poll_message(&mut || counted(&mut self.next)) {
                    quiet = false;
                    deliver(message, to);
                }
            }
            if quiet {
                break;
            }
        }
    }
}

fn counted(next: &mut u32) -> u32 {
    *next += 1;
    *next
}

pub(super) fn deliver(message: Message, to: &mut Session) {
    match message {
        Message::Optional { xid, optional } => to.handle_optional(xid, &optional, &[]),
        Message::Error { xid, error } => {
            assert!(to.handle_error(xid, error), "an error for nothing");
        }
    }
}

/// The next message, with XID 7 if it needs one.
fn next(session: &mut Session) -> Option<Message> {
    session.poll_message(&mut || 7)
}

fn optional(session: &mut Session) -> (u32, Optional) {
    match next(session) {
        Some(Message::Optional { xid, optional }) => (xid, optional),
        other => panic!("{other:?}"),
    }
}

/// The operation that is sent next, with its XID.
fn operation(session: &mut Session) -> (u32, Operation) {
    let (xid, optional) = optional(session);
    let parsed = Operation::parse(&optional, &[], Supported::All, session.own.registry());
    (xid, parsed.expect("we send nothing else").0)
}

fn response(session: &mut Session) -> RespXch {
    match operation(session).1 {
        Operation::RespXch(response) => response,
        other => panic!("{other:?}"),
    }
}

fn update(session: &mut Session) -> UpdXch {
    match operation(session).1 {
        Operation::UpdXch(update) => update,
        other => panic!("{other:?}"),
    }
}

fn say(session: &mut Session, xid: u32, direction: Direction, operation: Operation) {
    session.handle_optional(xid, &operation.to_optional(direction), &[]);
}

fn request(session: &mut Session, want: &[XcharVal]) {
    let mut spec = XcharSpec::default();
    want.iter().for_each(|value| spec.put(value.clone()));
    let request = Operation::ReqXch(ReqXch { want: spec });
    say(session, 40, Direction::Call, request);
}

fn tell(session: &mut Session, now: XcharVal, pendclr: bool) {
    let update = Operation::UpdXch(UpdXch { now, pendclr });
    say(session, 41, Direction::Call, update);
}

fn respond(session: &mut Session, xid: u32, outcomes: &[Outcome]) {
    let response = outcomes.iter().copied().collect();
    say(session, xid, Direction::Reply, Operation::RespXch(response));
}

fn events(session: &mut Session) -> Vec<Event> {
    std::iter::from_fn(|| session.poll_event()).collect()
}

fn settled(wanted: XcharVal, outcome: Settled) -> Event {
    Event::Settled { wanted, outcome }
}
