//! The rules of one end of a connection.

use super::Shared;
use super::call::{Kind, Message};
use rpcrdma_proto::header::{Lists, Segments, WriteChunk};
use rpcrdma_proto::v2::characteristics::{
    BackwardRequestSupport, BackwardSupport, DesignBits, InvalidationDesigns, ReceiveBufferSize,
    ReceiveSize, RequesterRemoteInvalidation,
};
use rpcrdma_proto::v2::header::WordLayout;
use rpcrdma_proto::v2::operations::{InitXch, Operation};
use rpcrdma_proto::{Design, Direction, Version};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use verbs::{Completion, Handle, RemoteAddress, Segment, WorkRequest, WrId};

/// Which end it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The one that has connected.
    Client,
    /// The one that has accepted.
    Server,
}

/// What one end of a connection has done, as far as the rules need it.
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
    closed: bool,
    /// Receives posted and not complete.
    receives: usize,
    /// Work of any kind posted and not complete.
    work: usize,
    regions: BTreeMap<Handle, Region>,
    /// Calls of ours that have no reply.
    calls_out: BTreeMap<u32, Vec<Handle>>,
    /// Calls of ours that have one, some of whose regions may still be exposed.
    answered: BTreeMap<u32, Vec<Handle>>,
    /// Calls that may be on their way at a time (RFC 8166 §3.3.3).
    granted: usize,
    /// The same for calls of the peer, as it heard last.
    given: usize,
    /// Calls of the peer that are not answered.
    calls_in: BTreeMap<u32, CallIn>,
    /// Reads on their way, each with the call that it is for.
    reads: Vec<(WrId, u32)>,
}

/// What version two adds.
#[derive(Debug)]
struct Two {
    /// What is spoken, as the first call says.
    spoken: Option<Version>,
    /// Operations of ours and of the peer that may be answered.
    out: BTreeSet<u32>,
    come: BTreeSet<u32>,
    /// The offer of a client, until it is answered.
    offer: Option<u32>,
    /// Octets of the largest message that the peer takes.
    size: usize,
    /// What the peer said of itself.
    invalidation: bool,
    general: bool,
    /// Whether any handle of a call may go without a word about it (reminv §4.1).
    by_version: bool,
    /// The design that a server has answered (reminv §4).
    design: Option<Design>,
}

impl Default for Two {
    fn default() -> Self {
        Self {
            spoken: None,
            out: BTreeSet::new(),
            come: BTreeSet::new(),
            offer: None,
            size: DEFAULT_SIZE,
            invalidation: false,
            general: false,
            by_version: false,
            design: None,
        }
    }
}

/// Octets of the largest message of version two that everybody takes (cel-01 §2.3), and of the first
/// (cel-01 §5).
const DEFAULT_SIZE: usize = 4096;
const FIRST_SIZE: usize = 1024;

#[derive(Debug)]
struct Region {
    len: u64,
    source: bool,
    /// It is registered from one call to the next.
    stays: bool,
    /// A call without a reply has offered it.
    offered: bool,
}

#[derive(Debug)]
struct CallIn {
    lists: Lists,
    named: Vec<Handle>,
    asked: u32,
    reads: usize,
}

/// What a piece of work changes once it is posted.
pub(super) enum Outcome {
    Receive,
    Message(Message),
    Read(WrId, Option<u32>),
    Other,
}

impl Outcome {
    /// The XID of a call that is sent.
    pub(super) fn call(&self) -> Option<u32> {
        match self {
            Self::Message(Message {
                xid,
                kind: Kind::Call(_),
                ..
            }) => Some(*xid),
            Self::Receive | Self::Message(_) | Self::Read(..) | Self::Other => None,
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

    /// Checks a piece of work that is about to be posted.
    pub(super) fn judge(&self, work: &WorkRequest) -> Outcome {
        match work {
            WorkRequest::Receive { .. } => Outcome::Receive,
            WorkRequest::Send {
                buffer,
                rest,
                invalidate,
                ..
            } => {
                let message = Message::parse(buffer, rest, self.words());
                self.judge_message(&message, *invalidate);
                Outcome::Message(message)
            }
            WorkRequest::Write { source, to, .. } => {
                self.judge_write(*to, source.iter().map(|piece| piece.len() as u64).sum());
                Outcome::Other
            }
            WorkRequest::Read { wr, from, .. } => Outcome::Read(*wr, self.judge_read(from)),
            WorkRequest::Invalidate { handle, .. } => {
                match self.regions.get(handle) {
                    None => self.found(format_args!("{handle:?} is invalidated, but is not there")),
                    Some(region) if region.offered => {
                        self.found(format_args!("{handle:?} is invalidated before the reply"));
                    }
                    Some(_) => {}
                }
                Outcome::Other
            }
        }
    }

    fn judge_message(&self, message: &Message, invalidate: Option<Handle>) {
        self.judge_version(message);
        match &message.kind {
            Kind::Call(lists) => {
                self.judge_call(message, lists);
                if let Some(handle) = invalidate {
                    self.found(format_args!("a call invalidates {handle:?}"));
                }
            }
            Kind::Reply(lists) => self.judge_reply(message, Some(lists), invalidate),
            // An operation may be refused, too.
            Kind::Error if self.two.come.contains(&message.xid) => {}
            Kind::Error => self.judge_reply(message, None, invalidate),
            Kind::Control(direction, operation) => {
                let xid = message.xid;
                if operation.is_none() || invalidate.is_some() {
                    self.found(format_args!("{message} is no valid operation"));
                }
                if *direction == Direction::Reply && !self.two.come.contains(&xid) {
                    self.found(format_args!("{xid:#010x} is answered, but nobody asked"));
                }
            }
            Kind::Other => self.found("a message that is none of either version"),
        }
    }

    /// One version is spoken on a connection, and of version two nothing before the offer is answered
    /// (cel-01 §5), nor a message that is larger than the peer says that it takes.
    fn judge_version(&self, message: &Message) {
        let (version, len) = (message.version, message.len);
        let error = matches!(message.kind, Kind::Error);
        if !error && self.two.spoken.is_some_and(|spoken| spoken != version) {
            self.found(format_args!("{message} is of another version"));
        }
        if self.two.offer.is_some() {
            self.found(format_args!(
                "{message} is sent before the offer is answered"
            ));
        }
        let first = self.role == Role::Client && matches!(message.kind, Kind::Control(..));
        let size = match first && self.two.spoken.is_none() {
            true => FIRST_SIZE,
            false => self.two.size,
        };
        if version == Version::Two && len > size {
            self.found(format_args!("{message} goes to Receives of {size}"));
        }
    }

    fn judge_call(&self, message: &Message, lists: &Lists) {
        let xid = message.xid;
        if self.calls_out.contains_key(&xid) {
            self.found(format_args!("call {xid:#010x} is sent twice"));
        }
        let calls = self.calls_out.len() + 1;
        if calls > self.granted {
            let granted = self.granted;
            self.found(format_args!(
                "{calls} calls under way with {granted} credits"
            ));
        }
        let may_come = self.given.saturating_sub(self.calls_in.len());
        if calls + may_come > self.receives {
            let receives = self.receives;
            self.found(format_args!(
                "{calls} calls under way and {may_come} that may come with {receives} Receives"
            ));
        }
        if self.role == Role::Server {
            if !self.forward {
                self.found(format_args!(
                    "call {xid:#010x} to a client that may not be ready"
                ));
            }
            let chunks = message.version == Version::Two && self.two.general;
            if !chunks && offered(lists).next().is_some() {
                self.found(format_args!("call {xid:#010x} to a client offers chunks"));
            }
        }
        for (segment, source) in offered(lists) {
            let end = segment.offset.checked_add(u64::from(segment.length));
            let right = self.regions.get(&segment.handle).is_some_and(|region| {
                region.source == source && end.is_some_and(|end| end <= region.len)
            });
            // One without octets needs no memory behind it.
            if !right && segment.length > 0 {
                self.found(format_args!("call {xid:#010x} offers {segment:?}"));
            }
        }
    }

    fn judge_reply(&self, message: &Message, lists: Option<&Lists>, invalidate: Option<Handle>) {
        let (xid, credits) = (message.xid, message.credits);
        let Some(call) = self.calls_in.get(&xid) else {
            return self.found(format_args!(
                "{xid:#010x} is answered, but there is no such call, or no more"
            ));
        };
        if call.reads > 0 {
            let reads = call.reads;
            self.found(format_args!(
                "{xid:#010x} is answered while {reads} Reads go on"
            ));
        }
        if credits == 0 || credits > call.asked.max(1) {
            let asked = call.asked;
            self.found(format_args!("{credits} credits are granted of {asked}"));
        }
        // What the peer may send now beside the calls that are here.
        let may_come = (credits as usize).saturating_sub(self.calls_in.len() - 1);
        let replies = self.calls_out.len();
        if may_come + replies > self.receives {
            let receives = self.receives;
            self.found(format_args!(
                "{may_come} calls may come, and {replies} replies, with {receives} Receives"
            ));
        }
        if let Some(handle) = invalidate {
            let mine = offered(&call.lists).any(|(segment, _)| segment.handle == handle);
            let right = match (message.version, self.two.design) {
                (Version::One, _) => mine && self.agreed,
                (Version::Two, None) => mine && (self.two.invalidation || self.two.by_version),
                (Version::Two, Some(design)) => match design {
                    Design::PerVersion | Design::PerConnection => mine,
                    Design::Fixed => {
                        let mut offered = offered(&call.lists).map(|(segment, _)| segment);
                        let first = offered.find(|segment| segment.length > 0);
                        first.is_some_and(|first| first.handle == handle)
                    }
                    Design::PerCall | Design::PerCallSeveral => {
                        mine && call.named.contains(&handle)
                    }
                    Design::InterCall => mine || self.is_spare(handle),
                },
            };
            if !right {
                self.found(format_args!(
                    "the reply to {xid:#010x} invalidates {handle:?}"
                ));
            }
        }
        if let Some(lists) = lists {
            let chunks = |lists: &Lists| -> Vec<Segments> {
                let all = lists.writes.iter().chain(&lists.reply);
                all.map(|chunk: &WriteChunk| chunk.segments.clone())
                    .collect()
            };
            let (offered, returned) = (chunks(&call.lists), chunks(lists));
            let fits = |(offered, returned): (&Segments, &Segments)| {
                let pairs = offered.iter().zip(returned);
                offered.len() == returned.len() && { pairs }.all(|(o, r)| r.length <= o.length)
            };
            if offered.len() != returned.len() || !offered.iter().zip(&returned).all(fits) {
                self.found(format_args!(
                    "the reply to {xid:#010x} returns other chunks"
                ));
            }
        }
    }

    /// reminv §4.6: the handle is of a chunk that was read for another call, which has no reply.
    fn is_spare(&self, handle: Handle) -> bool {
        let mut calls = self.calls_in.values();
        calls.any(|call| {
            let mut reads = call.lists.reads.iter().flat_map(|chunk| &chunk.segments);
            let read = call.reads == 0;
            read && reads.any(|segment| segment.handle == handle)
        })
    }

    /// The words of version two for remote invalidation.
    fn words(&self) -> WordLayout {
        WordLayout::of(self.two.design)
    }

    /// Version two says by itself that any handle of a call may go.
    pub(super) fn by_version(&mut self) {
        self.two.by_version = true;
    }

    fn judge_write(&self, to: RemoteAddress, len: u64) {
        let end = to.offset.saturating_add(len);
        let within = |segment: &Segment| {
            let last = segment.offset.saturating_add(u64::from(segment.length));
            segment.handle == to.handle && to.offset >= segment.offset && end <= last
        };
        let right = self.calls_in.values().any(|call| {
            let chunks = call.lists.writes.iter().chain(&call.lists.reply);
            { chunks }.any(|chunk| chunk.segments.iter().any(within))
        });
        if !right {
            self.found(format_args!(
                "a Write of {len} octets to {to:?}, which no call offers"
            ));
        }
    }

    /// The call whose chunk is read.
    fn judge_read(&self, from: &[Segment]) -> Option<u32> {
        let call = self.calls_in.iter().find(|(_, call)| {
            let mut chunks = call.lists.reads.iter();
            chunks.any(|chunk| from.iter().all(|segment| chunk.segments.contains(segment)))
        });
        if call.is_none() {
            self.found(format_args!("a Read of {from:?}, which no call offers"));
        }
        call.map(|(xid, _)| *xid)
    }

    /// It was posted; to no effect, if the connection is over.
    pub(super) fn posted(&mut self, outcome: Outcome, over: bool) {
        match outcome {
            Outcome::Receive => self.receives += 1,
            Outcome::Message(message) if !over => self.sent(message),
            Outcome::Read(wr, Some(xid)) if !over => {
                self.reads.push((wr, xid));
                if let Some(call) = self.calls_in.get_mut(&xid) {
                    call.reads += 1;
                }
            }
            Outcome::Message(_) | Outcome::Read(..) | Outcome::Other => {}
        }
        self.work += 1;
    }

    fn sent(&mut self, message: Message) {
        self.spoken(&message);
        match message.kind {
            Kind::Call(lists) => {
                let handles = handles(&lists);
                for handle in &handles {
                    if let Some(region) = self.regions.get_mut(handle) {
                        region.offered = true;
                    }
                }
                self.forward |= self.role == Role::Client;
                self.answered.remove(&message.xid);
                self.calls_out.insert(message.xid, handles);
            }
            Kind::Control(Direction::Call, operation) => {
                self.two.out.insert(message.xid);
                if matches!(operation, Some(Operation::InitXch(_))) && self.role == Role::Client {
                    self.two.offer = Some(message.xid);
                }
            }
            Kind::Control(Direction::Reply, operation) => {
                self.two.come.remove(&message.xid);
                if let Some(Operation::InitXch(answer)) = &operation {
                    self.given = message.credits as usize;
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
            Kind::Other => {}
        }
    }

    fn spoken(&mut self, message: &Message) {
        if matches!(message.kind, Kind::Call(_) | Kind::Reply(_)) {
            self.two.spoken.get_or_insert(message.version);
        }
    }

    /// A server answers: from here on its design holds.
    fn agree(&mut self, answer: &InitXch) {
        let design = answer.start.get::<InvalidationDesigns>();
        self.two.design = design.and_then(DesignBits::answered);
    }

    /// What the peer says of itself.
    fn learn(&mut self, operation: &Operation) {
        match operation {
            Operation::InitXch(InitXch { start, .. }) => {
                let two = &mut self.two;
                two.size = start
                    .get::<ReceiveBufferSize>()
                    .map_or(two.size, ReceiveSize::octets);
                two.invalidation = start.get::<RequesterRemoteInvalidation>() == Some(true);
                let backward = start.get::<BackwardRequestSupport>();
                two.general = backward == Some(BackwardSupport::General);
            }
            Operation::UpdXch(update) => {
                if let Ok(Some(size)) = update.now.read::<ReceiveBufferSize>() {
                    self.two.size = size.octets();
                }
            }
            Operation::ReqXch(_) | Operation::RespXch(_) => {}
        }
    }

    pub(super) fn registered(&mut self, handle: Handle, len: usize, source: bool, stays: bool) {
        let region = Region {
            len: len as u64,
            source,
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
        match self.work.checked_sub(1) {
            Some(work) => self.work = work,
            None => self.found("more work is done than was posted"),
        }
        if let Completion::Receive {
            buffer,
            invalidated,
            ..
        } = completion
        {
            self.receive_done();
            let message = Message::parse(buffer, &[], self.words());
            if let Some(lost) = invalidated {
                self.invalidated_by_peer(&message, lost.handle);
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

    fn receive_done(&mut self) {
        match self.receives.checked_sub(1) {
            Some(receives) => self.receives = receives,
            None => self.found("more Receives are done than were posted"),
        }
    }

    fn read_done(&mut self, wr: WrId) {
        if let Some(at) = self.reads.iter().position(|(read, _)| *read == wr) {
            let (_, xid) = self.reads.remove(at);
            if let Some(call) = self.calls_in.get_mut(&xid) {
                call.reads -= 1;
            }
        }
    }

    fn invalidated_by_peer(&mut self, message: &Message, handle: Handle) {
        let xid = message.xid;
        let mut calls = self
            .calls_out
            .iter()
            .filter(|(other, _)| match self.two.design {
                Some(Design::InterCall) => true,
                Some(_) | None => **other == xid,
            });
        let right = calls.any(|(_, handles)| handles.contains(&handle));
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
        match &message.kind {
            Kind::Control(direction, operation) => {
                match direction {
                    Direction::Call => {
                        self.two.come.insert(xid);
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
                let call = CallIn {
                    lists: lists.clone(),
                    named: message.named.clone(),
                    asked: credits,
                    reads: 0,
                };
                if self.calls_in.insert(xid, call).is_some() {
                    self.found(format_args!("call {xid:#010x} comes twice"));
                }
            }
            Kind::Reply(_) | Kind::Error => {
                let Some(handles) = self.calls_out.remove(&xid) else {
                    return self.found(format_args!("a reply to {xid:#010x} that is no call"));
                };
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
        let handles = handles.or_else(|| self.calls_out.get(&xid).cloned());
        if self.closed {
            return;
        }
        for handle in handles.iter().flatten() {
            if self.regions.get(handle).is_some_and(|region| !region.stays) {
                self.found(format_args!(
                    "the reply to {xid:#010x} is delivered with {handle:?} exposed"
                ));
            }
        }
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

/// All segments that a call offers, and whether they are to be read.
fn offered(lists: &Lists) -> impl Iterator<Item = (Segment, bool)> + '_ {
    let reads = lists.reads.iter().flat_map(|chunk| &chunk.segments);
    let writes = lists.writes.iter().chain(&lists.reply);
    let writes = writes.flat_map(|chunk| &chunk.segments);
    reads
        .map(|segment| (*segment, true))
        .chain(writes.map(|segment| (*segment, false)))
}

fn handles(lists: &Lists) -> Vec<Handle> {
    let mut handles: Vec<_> = offered(lists).map(|(segment, _)| segment.handle).collect();
    handles.sort_unstable();
    handles.dedup();
    handles
}
