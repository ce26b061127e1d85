//! Rules for work that is about to be posted.

use super::{CallIn, FIRST_SIZE, Outcome, ReadOut, Role, Rules};
use crate::call::{Kind, Message};
use crate::offer::{handles, segments};
use rpcrdma_proto::header::{Lists, Segments, WriteChunk};
use rpcrdma_proto::v2::Dialect;
use rpcrdma_proto::{Design, Direction, Version};
use verbs::{Handle, Handles, RemoteAddress, Segment, WorkRequest, WrId};

impl Rules {
    /// Checks a piece of work that is about to be posted.
    pub(crate) fn judge(&self, work: &WorkRequest) -> Outcome {
        match work {
            WorkRequest::Receive { .. } => Outcome::Receive,
            WorkRequest::Send {
                buffer,
                rest,
                invalidate,
                ..
            } => {
                let message = Message::parse(buffer, rest, self.words(), self.two.dialect);
                self.judge_message(&message, invalidate.as_ref());
                Outcome::Message(message, invalidate.clone())
            }
            WorkRequest::Write { source, to, .. } => {
                self.judge_write(*to, source.iter().map(|piece| piece.len() as u64).sum());
                Outcome::Other
            }
            WorkRequest::Read { wr, from, .. } => Outcome::Read(self.judge_read(*wr, from)),
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

    fn judge_message(&self, message: &Message, invalidate: Option<&Handles>) {
        self.judge_version(message);
        self.judge_number(message);
        match &message.kind {
            Kind::Part(..) | Kind::Properties(_) | Kind::Grant => {
                if let Some(handles) = invalidate {
                    self.found(format_args!("{message} invalidates {handles:?}"));
                }
            }
            Kind::Call(lists) => {
                self.judge_call(message, lists);
                if let Some(handles) = invalidate {
                    self.found(format_args!("a call invalidates {handles:?}"));
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
        let control = matches!(message.kind, Kind::Control(..) | Kind::Properties(_));
        let first = self.role == Role::Client && control;
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
        let counts_calls = message.version == Version::One || message.dialect == Dialect::Cel01;
        let calls = self.calls_out.len() + 1;
        if counts_calls && calls > self.granted {
            let granted = self.granted;
            self.found(format_args!(
                "{calls} calls in flight with {granted} credits"
            ));
        }
        let may_come = self.given.saturating_sub(self.calls_in.len());
        if counts_calls && calls + may_come > self.receives {
            let receives = self.receives;
            self.found(format_args!(
                "{calls} calls in flight and {may_come} that may come with {receives} Receives"
            ));
        }
        if self.role == Role::Server {
            if !self.forward {
                self.found(format_args!(
                    "call {xid:#010x} to a client that may not be ready"
                ));
            }
            let chunks = message.version == Version::Two && self.two.general;
            if !chunks && segments(lists).next().is_some() {
                self.found(format_args!("call {xid:#010x} to a client offers chunks"));
            }
        }
        for (segment, source) in segments(lists) {
            let right = self.regions.get(&segment.handle).is_some_and(|region| {
                let mut parts = region.parts.iter();
                parts.any(|part| part.takes(&segment, source))
            });
            // One without bytes needs no memory behind it.
            if !right && segment.length > 0 {
                self.found(format_args!("call {xid:#010x} offers {segment:?}"));
            }
        }
        let others_choose =
            { self.may_come(message.version) }.is_some_and(|design| !design.tolerates_persistent());
        let handles = handles(lists);
        for handle in &handles {
            let Some(region) = self.regions.get(handle) else {
                continue;
            };
            if region.offered {
                self.found(format_args!(
                    "call {xid:#010x} offers {handle:?}, as another does that has no reply"
                ));
            }
            if region.stays && others_choose {
                self.found(format_args!(
                    "call {xid:#010x} offers {handle:?}, which is to stay, and may lose it"
                ));
            }
        }
        for named in &message.named {
            let goes = self.regions.get(named).is_some_and(|region| !region.stays);
            if !goes || !handles.contains(named) {
                self.found(format_args!("call {xid:#010x} names {named:?}"));
            }
        }
    }

    /// By which design the peer's replies may take along handles of ours, where version two is spoken.
    pub(super) fn may_come(&self, version: Version) -> Option<Design> {
        let two = &self.two;
        let any = two.own_invalidation;
        match version {
            Version::One => self.agreed.then_some(Design::PerConnection),
            Version::Two => two.design.or(any.then_some(Design::PerConnection)),
        }
    }

    /// By which design our replies may take along handles of the peer.
    fn may_send(&self, version: Version) -> Option<Design> {
        let two = &self.two;
        let any = two.invalidation;
        match version {
            Version::One => self.agreed.then_some(Design::PerConnection),
            Version::Two => two.design.or(any.then_some(Design::PerConnection)),
        }
    }

    fn judge_reply(&self, message: &Message, lists: Option<&Lists>, invalidate: Option<&Handles>) {
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
        let counts_calls = message.version == Version::One || message.dialect == Dialect::Cel01;
        if counts_calls && (credits == 0 || credits > call.asked.max(1)) {
            let asked = call.asked;
            self.found(format_args!("{credits} credits are granted of {asked}"));
        }
        // What the peer may send now beside the calls that are here.
        let may_come = (credits as usize).saturating_sub(self.calls_in.len() - 1);
        let replies = self.calls_out.len();
        if counts_calls && may_come + replies > self.receives {
            let receives = self.receives;
            self.found(format_args!(
                "{may_come} calls may come, and {replies} replies, with {receives} Receives"
            ));
        }
        self.judge_invalidation(message, call, invalidate);
        if let Some(lists) = lists {
            let chunks = |lists: &Lists| -> Vec<Segments> {
                let all = lists.writes.iter().chain(&lists.reply);
                all.map(|chunk: &WriteChunk| chunk.segments.clone())
                    .collect()
            };
            let (mut offered, returned) = (chunks(&call.offer.lists), chunks(lists));
            if !counts_calls && lists.reply.is_none() {
                // ietf-07 §6.3.10: an inline reply has no place for it.
                offered.truncate(call.offer.lists.writes.len());
            }
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

    /// Which handle goes with a reply, and what the reply says of it.
    fn judge_invalidation(&self, message: &Message, call: &CallIn, invalidate: Option<&Handles>) {
        let xid = message.xid;
        let design = self.may_send(message.version);
        if invalidate.is_some_and(|all| all.count() > 1) && design != Some(Design::PerCallAll) {
            self.found(format_args!(
                "the reply to {xid:#010x} invalidates several handles"
            ));
        }
        for handle in invalidate.into_iter().flat_map(Handles::iter) {
            let right = design.is_some_and(|design| call.offer.may_go(design, handle));
            let right = right && !call.gone.contains(&handle);
            let spare = design == Some(Design::InterCall) && self.is_spare(xid, handle);
            if !right && !spare {
                self.found(format_args!(
                    "the reply to {xid:#010x} invalidates {handle:?}"
                ));
            }
        }
        if message.version == Version::One || !matches!(message.kind, Kind::Reply(_)) {
            return;
        }
        // reminv §5.3: the reply copies the one handle that its call names, and of several says none.
        let copied = match self.two.design {
            Some(Design::PerCall) if message.dialect == Dialect::Cel01 => {
                call.offer.named.as_slice()
            }
            _ => &[],
        };
        if message.named != copied {
            let named = &message.named;
            self.found(format_args!("the reply to {xid:#010x} names {named:?}"));
        }
        // In ietf-07 a Responder may do without (§6.5).
        let must = message.dialect == Dialect::Cel01;
        if must && !call.offer.named.is_empty() && invalidate.is_none() {
            self.found(format_args!(
                "the reply to {xid:#010x} invalidates nothing, though its call says what may go"
            ));
        }
    }

    /// reminv §4.6: the handle is of a chunk of another call, it was read to its end, and nobody else
    /// needs it.
    fn is_spare(&self, xid: u32, handle: Handle) -> bool {
        let others = self.calls_in.iter().filter(|(other, _)| **other != xid);
        let mut others = others
            .map(|(_, call)| call)
            .filter(|call| call.offer.has(handle) && !call.gone.contains(&handle))
            .peekable();
        let read = |call: &CallIn| {
            let unread = { call.unread.iter() }.any(|segment| segment.handle == handle);
            call.offer.is_only_read(handle) && !unread
        };
        others.peek().is_some() && others.all(read)
    }

    /// The words of version two for remote invalidation.
    fn judge_write(&self, to: RemoteAddress, len: u64) {
        let end = to.offset.saturating_add(len);
        let within = |segment: &Segment| {
            let last = segment.offset.saturating_add(u64::from(segment.length));
            segment.handle == to.handle && to.offset >= segment.offset && end <= last
        };
        let right = self.calls_in.values().any(|call| {
            let lists = &call.offer.lists;
            let chunks = lists.writes.iter().chain(&lists.reply);
            { chunks }.any(|chunk| chunk.segments.iter().any(within))
        });
        if !right {
            self.found(format_args!(
                "a Write of {len} bytes to {to:?}, which no call offers"
            ));
        }
    }

    /// The call whose chunk is read.
    fn judge_read(&self, wr: WrId, from: &[Segment]) -> Option<ReadOut> {
        let call = self.calls_in.iter().find(|(_, call)| {
            let mut chunks = call.offer.lists.reads.iter();
            chunks.any(|chunk| from.iter().all(|segment| chunk.segments.contains(segment)))
        });
        if call.is_none() {
            self.found(format_args!("a Read of {from:?}, which no call offers"));
        }
        call.map(|(&xid, _)| ReadOut {
            wr,
            xid,
            from: from.to_vec(),
        })
    }
}
