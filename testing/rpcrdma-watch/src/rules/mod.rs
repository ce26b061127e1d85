//! The rules of one end of a connection.

mod judging;
mod messages;

use messages::Messages;

use crate::call::{Kind, Message};
use crate::offer::{self, Offer, handles, segments};
use crate::shared::Shared;
use rpcrdma_proto::v2::Dialect;
use rpcrdma_proto::v2::characteristics::{
    BackwardRequestSupport, BackwardSupport, InvalidationDesigns, ReceiveBufferSize, ReceiveSize,
    RequesterRemoteInvalidation,
};
use rpcrdma_proto::v2::header::WordLayout;
use rpcrdma_proto::v2::ietf07::ReverseSupport;
use rpcrdma_proto::v2::operations::{InitXch, Operation};
use rpcrdma_proto::{Design, Designs, Direction, Version};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use verbs::{Completion, Handle, Handles, Segment, SharedReceiveQueue, WrId};

/// Role of this end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The end that connected.
    Client,
    /// The end that accepted.
    Server,
}

/// State of one end of a connection, as far as the rules need it.
pub(super) struct Rules {
    name: String,
    shared: Arc<Shared>,
    role: Role,
    /// Whether a call has gone from the client to the server, so that the client may be ready for
    /// calls.
    forward: bool,
    /// Whether both ends may invalidate each other's handles, where version one is spoken.
    agreed: bool,
    two: Two,
    messages: Messages,
    closed: bool,
    /// Receives posted and not complete.
    receives: usize,
    /// Work of any kind posted and not complete.
    work: usize,
    regions: BTreeMap<Handle, Region>,
    /// Calls of ours that have no reply.
    calls_out: BTreeMap<u32, Offer>,
    /// Calls of ours that have one, some of whose regions may still be exposed.
    answered: BTreeMap<u32, Vec<Handle>>,
    /// Calls that may be on their way at a time (RFC 8166 §3.3.3).
    granted: usize,
    /// The same for calls of the peer, as it heard last.
    given: usize,
    /// Calls of the peer that are not answered.
    calls_in: BTreeMap<u32, CallIn>,
    /// Reads on their way.
    reads: Vec<ReadOut>,
}

/// State that only version two has.
#[derive(Debug)]
struct Two {
    /// Version in use, by the first call.
    spoken: Option<Version>,
    dialect: Dialect,
    /// Operations of ours and of the peer that may be answered.
    out: BTreeSet<u32>,
    come: BTreeSet<u32>,
    /// The offer of a client, until it is answered.
    offer: Option<u32>,
    /// Bytes of the largest message that the peer takes.
    size: usize,
    /// Whether the peer announced remote invalidation.
    invalidation: bool,
    general: bool,
    /// Whether we have said that any handle of ours may go (xcharext §3.2).
    own_invalidation: bool,
    /// The designs that the client has offered.
    offered: Designs,
    /// The design that a server has answered (reminv §4).
    design: Option<Design>,
}

impl Default for Two {
    fn default() -> Self {
        Self {
            spoken: None,
            dialect: Dialect::Cel01,
            out: BTreeSet::new(),
            come: BTreeSet::new(),
            offer: None,
            size: DEFAULT_SIZE,
            invalidation: false,
            general: false,
            own_invalidation: false,
            offered: Designs::NONE,
            design: None,
        }
    }
}

/// Bytes of the largest message of version two that everybody takes (cel-01 §2.3), and of the first
/// (cel-01 §5).
const DEFAULT_SIZE: usize = 4096;
const FIRST_SIZE: usize = 1024;

/// Memory in one piece, for one kind of access.
#[derive(Debug)]
pub(super) struct Part {
    /// The address of its first byte.
    pub(super) base: u64,
    pub(super) len: u64,
    pub(super) source: bool,
}

impl Part {
    /// Whether a call may offer this segment to be read, or to be written.
    fn takes(&self, segment: &Segment, source: bool) -> bool {
        let begin = segment.offset.checked_sub(self.base);
        let end = begin.and_then(|begin| begin.checked_add(u64::from(segment.length)));
        self.source == source && end.is_some_and(|end| end <= self.len)
    }
}

#[derive(Debug)]
struct Region {
    /// One, unless it was registered in parts.
    parts: Vec<Part>,
    /// It is registered from one call to the next.
    stays: bool,
    /// A call without a reply has offered it.
    offered: bool,
}

#[derive(Debug)]
struct CallIn {
    offer: Offer,
    asked: u32,
    reads: usize,
    /// Segments of its chunks that were not read to the end.
    unread: Vec<Segment>,
    /// Handles that went with the replies to others (reminv §4.6).
    gone: Vec<Handle>,
}

/// A Read on its way, and the call that it is for.
#[derive(Debug)]
pub(super) struct ReadOut {
    wr: WrId,
    xid: u32,
    from: Vec<Segment>,
}

/// The effect of a work request once it is posted.
pub(super) enum Outcome {
    Receive,
    /// With the handle that goes with it.
    Message(Message, Option<Handles>),
    Read(Option<ReadOut>),
    Other,
}

impl Outcome {
    /// The XID of a call that is sent.
    pub(super) fn call(&self) -> Option<u32> {
        match self {
            Self::Message(
                Message {
                    xid,
                    kind: Kind::Call(_),
                    ..
                },
                _,
            ) => Some(*xid),
            Self::Receive | Self::Message(..) | Self::Read(_) | Self::Other => None,
        }
    }
}

impl Rules {
    pub(super) fn new(
        name: String,
        shared: Arc<Shared>,
        role: Role,
        receives: usize,
        agreed: bool,
    ) -> Self {
        Self {
            name,
            shared,
            role,
            forward: false,
            agreed,
            two: Two::default(),
            messages: Messages::default(),
            closed: false,
            receives,
            work: receives,
            regions: BTreeMap::new(),
            calls_out: BTreeMap::new(),
            answered: BTreeMap::new(),
            granted: 1,
            given: 1,
            calls_in: BTreeMap::new(),
            reads: Vec::new(),
        }
    }

    fn found(&self, what: impl fmt::Display) {
        self.shared.finding(format_args!("{}: {what}", self.name));
    }

    fn words(&self) -> WordLayout {
        WordLayout::of(self.two.design)
    }

    /// It was posted; to no effect, if the connection is over.
    pub(super) fn posted(&mut self, outcome: Outcome, over: bool) {
        match outcome {
            Outcome::Receive => self.receives += 1,
            Outcome::Message(message, invalidate) if !over => {
                for handle in invalidate.iter().flat_map(Handles::iter) {
                    self.calls_in
                        .values_mut()
                        .for_each(|call| call.gone.push(handle));
                }
                self.count_sent(&message);
                self.sent(message);
            }
            // Its parts follow each other all the same.
            Outcome::Message(message, _) => self.count_sent(&message),
            Outcome::Read(Some(read)) if !over => {
                if let Some(call) = self.calls_in.get_mut(&read.xid) {
                    call.reads += 1;
                }
                self.reads.push(read);
            }
            Outcome::Read(_) | Outcome::Other => {}
        }
        self.work += 1;
    }

    fn sent(&mut self, message: Message) {
        self.spoken(&message);
        match message.kind {
            Kind::Call(lists) => {
                for handle in handles(&lists) {
                    if let Some(region) = self.regions.get_mut(&handle) {
                        region.offered = true;
                    }
                }
                self.forward |= self.role == Role::Client;
                self.answered.remove(&message.xid);
                let named = message.named;
                self.calls_out.insert(message.xid, Offer { lists, named });
            }
            Kind::Control(Direction::Call, operation) => {
                self.two.out.insert(message.xid);
                if let (Some(Operation::InitXch(init)), Role::Client) = (&operation, self.role) {
                    self.two.offer = Some(message.xid);
                    self.introduce(init);
                    self.two.offered = offered(init);
                }
            }
            Kind::Control(Direction::Reply, operation) => {
                self.two.come.remove(&message.xid);
                if let Some(Operation::InitXch(answer)) = &operation {
                    self.given = message.credits as usize;
                    self.introduce(answer);
                    self.agree(answer);
                }
            }
            Kind::Reply(_) | Kind::Error => {
                self.two.come.remove(&message.xid);
                self.calls_in.remove(&message.xid);
                if matches!(message.kind, Kind::Reply(_)) {
                    self.given = message.credits as usize;
                }
            }
            // They may be refused, too.
            Kind::Properties(_) => {
                self.two.out.insert(message.xid);
            }
            Kind::Part(..) | Kind::Grant | Kind::Other => {}
        }
    }

    fn spoken(&mut self, message: &Message) {
        if message.version == Version::Two && message.dialect == Dialect::Ietf07 {
            self.two.dialect = Dialect::Ietf07;
            // §6.5: always.
            self.two.design = Some(Design::PerCall);
        }
        if matches!(message.kind, Kind::Call(_) | Kind::Reply(_)) {
            self.two.spoken.get_or_insert(message.version);
        }
    }

    /// We say what we are.
    fn introduce(&mut self, said: &InitXch) {
        self.two.own_invalidation = may_invalidate(said);
    }

    /// A server answers: from here on its design holds, which is one that was offered.
    fn agree(&mut self, answer: &InitXch) {
        let Some(bits) = answer.start.get::<InvalidationDesigns>() else {
            return;
        };
        let design = bits.answered();
        let right = design.is_some_and(|design| self.two.offered.has(design));
        if !right || !answer.is_fixed::<InvalidationDesigns>() {
            let offered = self.two.offered;
            self.found(format_args!("{bits:?} is answered to {offered:?}"));
        }
        self.two.design = design;
        if let (Some(design), Role::Client) = (design, self.role) {
            self.shared.agreed(design);
        }
    }

    /// Notes the announcements of the peer.
    fn learn(&mut self, operation: &Operation) {
        match operation {
            Operation::InitXch(init @ InitXch { start, .. }) => {
                let two = &mut self.two;
                two.size = start
                    .get::<ReceiveBufferSize>()
                    .map_or(two.size, ReceiveSize::bytes);
                two.invalidation = may_invalidate(init);
                let backward = start.get::<BackwardRequestSupport>();
                two.general = backward == Some(BackwardSupport::General);
            }
            Operation::UpdXch(update) => {
                if let Ok(Some(size)) = update.now.read::<ReceiveBufferSize>() {
                    self.two.size = size.bytes();
                }
            }
            Operation::ReqXch(_) | Operation::RespXch(_) => {}
        }
    }

    pub(super) fn registered(&mut self, handle: Handle, parts: Vec<Part>, stays: bool) {
        let region = Region {
            parts,
            stays,
            offered: false,
        };
        if handle == Handle(0) || self.regions.insert(handle, region).is_some() {
            self.found(format_args!(
                "{handle:?} is registered, but was there before"
            ));
        }
    }

    /// Follows a completion; gives the message if there is one.
    pub(super) fn completed(&mut self, completion: &Completion) -> Option<Message> {
        // A block of a shared receive queue was posted by nobody, and comes back by itself.
        let is_shared = matches!(
            completion,
            Completion::Receive { wr, .. } if *wr == SharedReceiveQueue::WR
        );
        match self.work.checked_sub(1) {
            _ if is_shared => {}
            Some(work) => self.work = work,
            None => self.found("more work is done than was posted"),
        }
        if let Completion::Receive {
            buffer,
            invalidated,
            ..
        } = completion
        {
            if !is_shared {
                self.receive_done();
            }
            let message = Message::parse(buffer, &[], self.words(), self.two.dialect);
            if let Some(lost) = invalidated {
                self.invalidated_by_peer(&message, lost.handle);
                for lost in &lost.also {
                    self.invalidated_by_peer(&message, lost.handle);
                }
            }
            self.received(&message);
            return Some(message);
        }
        match completion {
            Completion::Read { wr, .. } => self.read_done(*wr),
            Completion::Invalidate { invalidated, .. } => self.gone(invalidated.handle),
            Completion::Send { .. }
            | Completion::Write { .. }
            | Completion::Receive { .. }
            | Completion::Failed { .. } => {}
        }
        None
    }

    /// Messages find up to so many blocks of a shared receive queue, or wait.
    pub(super) fn shares(&mut self, blocks: usize) {
        self.receives = blocks;
    }

    fn receive_done(&mut self) {
        match self.receives.checked_sub(1) {
            Some(receives) => self.receives = receives,
            None => self.found("more Receives are done than were posted"),
        }
    }

    fn read_done(&mut self, wr: WrId) {
        if let Some(at) = self.reads.iter().position(|read| read.wr == wr) {
            let ReadOut { xid, from, .. } = self.reads.remove(at);
            if let Some(call) = self.calls_in.get_mut(&xid) {
                call.reads -= 1;
                call.unread.retain(|segment| !from.contains(segment));
            }
        }
    }

    fn invalidated_by_peer(&mut self, message: &Message, handle: Handle) {
        let xid = message.xid;
        let design = match message.version {
            // Linux' server does so without setting R itself.
            Version::One => Some(Design::PerConnection),
            Version::Two => self.may_come(Version::Two),
        };
        let of_call = self.calls_out.get(&xid);
        let of_call = of_call.filter(|call| call.has(handle));
        let right = match (of_call, design) {
            (Some(call), Some(design)) => call.may_go(design, handle),
            (None, Some(Design::InterCall)) => {
                let mut others = self.calls_out.values();
                others.any(|call| call.is_only_read(handle))
            }
            (_, None) | (None, _) => false,
        };
        if !right || self.regions.get(&handle).is_some_and(|region| region.stays) {
            self.found(format_args!(
                "the reply to {xid:#010x} took {handle:?} along"
            ));
        }
        self.gone(handle);
    }

    fn gone(&mut self, handle: Handle) {
        if self.regions.remove(&handle).is_none() {
            self.found(format_args!("{handle:?} is invalidated twice"));
        }
    }

    fn received(&mut self, message: &Message) {
        let (xid, credits) = (message.xid, message.credits);
        self.spoken(message);
        self.count_received(message);
        match &message.kind {
            Kind::Part(..) | Kind::Grant => {}
            Kind::Properties(set) => {
                self.two.come.insert(xid);
                let size = set
                    .receive_buffer
                    .map_or(DEFAULT_SIZE, |size| size as usize);
                self.two.size = size;
                self.two.general = set.reverse == Some(ReverseSupport::General);
            }
            Kind::Control(direction, operation) => {
                match direction {
                    Direction::Call => {
                        self.two.come.insert(xid);
                        if let (Some(Operation::InitXch(init)), Role::Server) =
                            (operation, self.role)
                        {
                            self.two.offered = offered(init);
                        }
                    }
                    Direction::Reply => {
                        if !self.two.out.remove(&xid) {
                            self.found(format_args!("{message} comes, and nobody asked"));
                        }
                        if self.two.offer == Some(xid) {
                            self.two.offer = None;
                            self.granted = credits.max(1) as usize;
                            if let Some(Operation::InitXch(answer)) = operation {
                                self.agree(answer);
                            }
                        }
                    }
                }
                operation.iter().for_each(|operation| self.learn(operation));
            }
            Kind::Error if self.two.out.remove(&xid) => {
                if self.two.offer == Some(xid) {
                    self.two.offer = None;
                }
            }
            Kind::Call(lists) => {
                match self.role {
                    Role::Server => self.forward = true,
                    Role::Client if !self.forward => self.found(format_args!(
                        "call {xid:#010x} comes before it was said that we are ready"
                    )),
                    Role::Client => {}
                }
                let read = segments(lists).filter(|(segment, read)| *read && segment.length > 0);
                let call = CallIn {
                    unread: read.map(|(segment, _)| segment).collect(),
                    offer: Offer {
                        lists: lists.clone(),
                        named: message.named.clone(),
                    },
                    asked: credits,
                    reads: 0,
                    gone: Vec::new(),
                };
                if self.calls_in.insert(xid, call).is_some() {
                    self.found(format_args!("call {xid:#010x} comes twice"));
                }
            }
            Kind::Reply(_) | Kind::Error => {
                let Some(call) = self.calls_out.remove(&xid) else {
                    return self.found(format_args!("a reply to {xid:#010x} that is no call"));
                };
                let handles = handles(&call.lists);
                for handle in &handles {
                    if let Some(region) = self.regions.get_mut(handle) {
                        region.offered = false;
                    }
                }
                self.answered.insert(xid, handles);
                // RFC 8166 §3.3.1: zero would be a deadlock.
                if matches!(message.kind, Kind::Reply(_)) {
                    self.granted = credits.max(1) as usize;
                }
            }
            Kind::Other => self.found("a message comes that is none of either version"),
        }
    }

    /// Bytes are copied into memory that stays registered.
    pub(super) fn changed(&self, handle: Handle) {
        if { self.regions.get(&handle) }.is_some_and(|region| region.offered) {
            self.found(format_args!(
                "{handle:?} is written to while a call offers it"
            ));
        }
    }

    pub(super) fn client_is_ready(&mut self) {
        self.forward = true;
    }

    /// Whether a reply to this call of ours came, and is not delivered yet.
    pub(super) fn has_reply(&self, xid: u32) -> bool {
        self.answered.contains_key(&xid)
    }

    /// Calls of ours with a reply that is not delivered.
    pub(super) fn undelivered(&self) -> impl Iterator<Item = u32> {
        self.answered.keys().copied()
    }

    /// The reply to a call is in its caller's hands: RFC 8166 §4.4.1.
    pub(super) fn delivered(&mut self, xid: u32) {
        let handles = self.answered.remove(&xid);
        let handles = handles.or_else(|| Some(offer::handles(&self.calls_out.get(&xid)?.lists)));
        if self.closed {
            return;
        }
        for handle in handles.iter().flatten() {
            if self.is_exposed(handle) {
                self.found(format_args!(
                    "the reply to {xid:#010x} is delivered with {handle:?} exposed"
                ));
            }
        }
    }

    /// Whether a reply to this call of ours came, and waits for memory that is still exposed.
    pub(super) fn awaits_memory(&self, xid: u32) -> bool {
        let handles = self.answered.get(&xid).into_iter().flatten();
        !self.closed && { handles }.any(|handle| self.is_exposed(handle))
    }

    fn is_exposed(&self, handle: &Handle) -> bool {
        let region = self.regions.get(handle);
        region.is_some_and(|region| !region.stays)
    }

    pub(super) fn closed(&mut self) {
        self.closed = true;
    }

    /// The connection is over and all completions are taken.
    pub(super) fn over(&mut self) {
        self.closed = true;
        if self.work > 0 {
            let work = std::mem::take(&mut self.work);
            self.found(format_args!("{work} pieces of work have no end"));
        }
    }

    /// Calls of ours without a reply.
    pub(super) fn unanswered(&self) -> usize {
        self.calls_out.len()
    }
}

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// The designs that a client offers.
fn offered(init: &InitXch) -> Designs {
    let bits = init.start.get::<InvalidationDesigns>();
    bits.unwrap_or_default().offered()
}

/// Whether replies to the sender may invalidate its handles (xcharext §3.2). An INITXCH that names
/// nothing leaves that to the version itself (reminv §4.1), of which a bystander cannot know.
fn may_invalidate(init: &InitXch) -> bool {
    let said = init.start.get::<RequesterRemoteInvalidation>();
    said == Some(true) || init.start.is_empty()
}
