//! The peer: the messages it sends, and the memory it has offered.

use super::control::Control;
use super::form::{Body, Form, Message};
use crate::hand::Hand;
use crate::rpcrdma_header::made_up;
use crate::script::Script;
use buffer::Buffer;
use oncrpc::xdr::Payload;
use rpcrdma_proto::header::{
    self, HeaderView, Lists, RdmaError, ReadChunk, Segments, VERSION, WriteChunk, procedure,
};
use rpcrdma_proto::v2::header::WordLayout;
use rpcrdma_proto::{Config, Direction, Role, Versions};
use std::collections::BTreeSet;
use verbs::{Handle, RemoteAddress, Segment};

/// XIDs of its calls are few, so that some come again, and some are those of ours.
const XIDS: usize = 24;

/// Calls of ours that it remembers, to answer them.
const REMEMBERED: usize = 16;

/// Bytes of a message at most: those of the largest Receive here.
pub(super) const LARGEST: usize = 16 << 10;

pub(super) struct Peer {
    role: Role,
    versions: Versions,
    credits: u32,
    /// Version and draft in use; `None` as long as that is not settled.
    pub(super) form: Option<Form>,
    /// Its messages about characteristics.
    pub(super) control: Control,
    /// A part of the handles of the next call.
    next: u32,
    /// Segments that it has offered to be read, and in which call.
    sources: Vec<(Segment, u32)>,
    /// Segments that it has offered to be written.
    sinks: Vec<Segment>,
    /// XIDs of its messages.
    called: Vec<u32>,
    /// Its calls.
    calls: Vec<Called>,
    /// XIDs that we have answered.
    answered: BTreeSet<u32>,
    /// Handles that we have invalidated.
    killed: BTreeSet<Handle>,
    /// Calls of ours, with what they offer.
    heard: Vec<(u32, Lists)>,
    /// Handles that were in them: others cannot be guessed.
    told: BTreeSet<Handle>,
}

/// A call of the peer.
pub(super) struct Called {
    pub(super) xid: u32,
    pub(super) named: Vec<Handle>,
    lists: Lists,
}

impl Called {
    pub(super) fn offers(&self, handle: Handle) -> bool {
        let reads = self.lists.reads.iter().map(|chunk| &chunk.segments);
        let writes = self.lists.writes.iter().chain(&self.lists.reply);
        let segments = reads.chain(writes.map(|chunk| &chunk.segments)).flatten();
        let mut with_bytes = segments.filter(|segment| segment.length > 0);
        with_bytes.any(|segment| segment.handle == handle)
    }

    pub(super) fn offers_source(&self, handle: Handle) -> bool {
        let mut segments = self.lists.reads.iter().flat_map(|chunk| &chunk.segments);
        segments.any(|segment| segment.handle == handle)
    }
}

impl Peer {
    pub(super) fn new(role: Role, config: &Config) -> Self {
        Self {
            role,
            versions: config.versions,
            form: None,
            control: Control::new(role),
            calls: Vec::new(),
            answered: BTreeSet::new(),
            killed: BTreeSet::new(),
            credits: config.credits,
            next: 0x4000_0000,
            sources: Vec::new(),
            sinks: Vec::new(),
            called: Vec::new(),
            heard: Vec::new(),
            told: BTreeSet::new(),
        }
    }

    /// The form of its next message: the right one, or nearly always.
    fn form(&self, script: &mut Script<'_>) -> Form {
        let two = Form::Two(WordLayout::None);
        match (self.versions, self.form) {
            (Versions::One, _) => Form::One,
            (_, None) => script.pick(&[two, two, Form::One]),
            (_, Some(form)) if script.one_in(24) => match form {
                Form::One => two,
                Form::Two(_) => script.pick(&[Form::One, Form::Two(WordLayout::One)]),
            },
            (_, Some(form)) => form,
        }
    }

    /// A call with chunks that are good, or nearly.
    pub(super) fn call(&mut self, script: &mut Script<'_>, _: &mut Hand) -> Vec<u8> {
        self.next += 0x100;
        let xid = u32::try_from(script.below(XIDS)).expect("there are few");
        let proc = script.pick(&[procedure::MSG, procedure::MSG, procedure::NOMSG]);
        let chunked = self.role == Role::Server || script.one_in(4);
        let lists = if chunked {
            self.lists(script, proc)
        } else {
            Lists::default()
        };
        let form = self.form(script);
        let named = self.named(script, form, &lists);
        let mut message = Buffer::default();
        let fixed = (xid, script.number());
        form.emit(&mut message, proc, fixed, Direction::Call, &named, &lists);
        if proc == procedure::MSG {
            let inner = if script.one_in(12) { xid ^ 1 } else { xid };
            for word in [inner, 0, 2, 7, 7, 7, 0, 0, 0, 0] {
                message.extend_from_slice(&word.to_be_bytes());
            }
            let words = script.pick(&[0, 1, 3, 700]);
            message.extend_from_slice(&vec![0; 4 * words]);
        }
        spoil(script, &mut message);
        message.to_vec()
    }

    /// Handles for a call to name: its own, and sometimes others.
    fn named(&self, script: &mut Script<'_>, form: Form, lists: &Lists) -> Vec<Handle> {
        let (Form::One | Form::Two(WordLayout::None)) = form else {
            let reads = lists.reads.iter().map(|chunk| &chunk.segments);
            let writes = lists.writes.iter().chain(&lists.reply);
            let segments = reads.chain(writes.map(|chunk| &chunk.segments)).flatten();
            let mut own: Vec<Handle> = segments.map(|segment| segment.handle).collect();
            own.push(Handle(self.next - script.number() % 0x200));
            let many = script.below(own.len().min(17) + 1);
            return (0..many).map(|_| script.pick(&own)).collect();
        };
        Vec::new()
    }

    fn lists(&mut self, script: &mut Script<'_>, proc: u32) -> Lists {
        let mut lists = Lists::default();
        if proc == procedure::NOMSG {
            lists.reads.push(ReadChunk {
                position: 0,
                segments: self.segments(script, 40),
            });
        }
        let mut position = 40;
        for _ in 0..script.below(3) {
            let segments = self.segments(script, 0);
            let lengths = segments.iter().map(|segment| segment.length);
            let len = lengths.fold(3, u32::saturating_add) & !3;
            let at = if script.one_in(8) {
                script.number() & !3
            } else {
                position
            };
            position = position.saturating_add(len) & !3;
            lists.reads.push(ReadChunk {
                position: at,
                segments,
            });
        }
        lists.writes = (0..script.below(3))
            .map(|_| WriteChunk {
                segments: self.segments(script, 0),
            })
            .collect();
        lists.reply = script.flag().then(|| WriteChunk {
            segments: self.segments(script, 0),
        });
        lists
    }

    /// Segments of a chunk that has at least so many bytes.
    fn segments(&mut self, script: &mut Script<'_>, least: u32) -> Segments {
        let mut segments = Segments::new();
        for number in 0..script.below(4) {
            self.next += 1;
            let length = match script.byte() {
                small @ 0..200 => u32::from(small),
                200..250 => u32::try_from(script.below(40_000)).expect("it is below"),
                250.. => script.number(),
            };
            segments.push(Segment {
                handle: Handle(self.next),
                length: if number == 0 {
                    length.max(least)
                } else {
                    length
                },
                offset: u64::from(script.byte()),
            });
        }
        segments
    }

    /// An answer to a call of ours that is good, or nearly.
    pub(super) fn reply(&mut self, script: &mut Script<'_>, hand: &mut Hand) -> Vec<u8> {
        if self.heard.is_empty() {
            return self.anything(script, hand);
        }
        let index = script.below(self.heard.len());
        let (xid, offered) = if script.one_in(4) {
            self.heard[index].clone()
        } else {
            self.heard.remove(index)
        };
        let mut lists = Lists::default();
        for chunk in &offered.writes {
            let len = usize::try_from(chunk.len()).expect("our chunks are small");
            let written = script.pick(&[0, 1, len / 2, len]).min(len);
            lists.writes.push(chunk.returned(written));
        }
        let proc = match &offered.reply {
            Some(chunk) if script.flag() => {
                lists.reply = Some(chunk.returned(self.long_reply(script, xid, chunk, hand)));
                procedure::NOMSG
            }
            Some(chunk) => {
                lists.reply = Some(chunk.returned(0));
                procedure::MSG
            }
            None => procedure::MSG,
        };
        let credits = if script.one_in(3) {
            script.number()
        } else {
            self.credits
        };
        let form = self.form(script);
        let named = self.named(script, form, &offered);
        let mut message = Buffer::default();
        let fixed = (xid, credits);
        form.emit(&mut message, proc, fixed, Direction::Reply, &named, &lists);
        if proc == procedure::MSG {
            message.extend_from_slice(&reply_header(xid));
            message.extend_from_slice(&vec![0; 4 * script.pick(&[0, 1, 5, 200])]);
        }
        spoil(script, &mut message);
        message.to_vec()
    }

    /// A reply is put where there is room for it; its length.
    fn long_reply(
        &self,
        script: &mut Script<'_>,
        xid: u32,
        chunk: &WriteChunk,
        hand: &mut Hand,
    ) -> usize {
        let reply = reply_header(xid);
        let Some(first) = chunk.segments.first() else {
            return 0;
        };
        if let Some(sink) = hand.sink_mut(first.handle)
            && sink.len() >= reply.len()
        {
            sink[..reply.len()].copy_from_slice(&reply);
        }
        let len = usize::try_from(chunk.len()).expect("our chunks are small");
        script.pick(&[24, 28, 0, len]).min(len)
    }

    /// Its first message in version two, or its answer to the offer.
    pub(super) fn introduction(&mut self, script: &mut Script<'_>, _: &mut Hand) -> Vec<u8> {
        self.control.introduction(script).to_vec()
    }

    /// Something about characteristics.
    pub(super) fn control(&mut self, script: &mut Script<'_>, _: &mut Hand) -> Vec<u8> {
        let mut message = self.control.say(script);
        spoil(script, &mut message);
        message.to_vec()
    }

    /// Whatever comes to its mind.
    pub(super) fn anything(&mut self, script: &mut Script<'_>, _: &mut Hand) -> Vec<u8> {
        let xid = u32::try_from(script.below(XIDS)).expect("there are few");
        let mut message = Buffer::default();
        let version = script.pick(&[VERSION, VERSION, 2]);
        match script.below(5) {
            0 => header::emit_error(&mut message, xid, version, 1, RdmaError::Chunk),
            1 => {
                let error = RdmaError::Version { low: 1, high: 1 };
                header::emit_error(&mut message, xid, version, 1, error);
            }
            2 => {
                let proc = script.pick(&[procedure::MSGP, procedure::DONE, 77]);
                header::emit(&mut message, proc, xid, 1, &Lists::default());
            }
            3 => {
                let bytes = script.take(64).to_vec();
                let mut made_up = made_up(&mut Script::new(&bytes));
                made_up.truncate(LARGEST);
                return made_up;
            }
            _ => return script.some(100).to_vec(),
        }
        spoil(script, &mut message);
        message.to_vec()
    }

    /// A handle for this message to take along: of the call that it answers, or another one.
    pub(super) fn victim(
        &self,
        script: &mut Script<'_>,
        message: &[u8],
        hand: &Hand,
    ) -> Option<Handle> {
        let handles: Vec<Handle> = if script.one_in(8) {
            hand.regions.keys().copied().collect()
        } else {
            let message = self.form_of(message).parse(message);
            let Some(Body::Rpc { lists, .. }) = message.map(|message| message.body) else {
                return None;
            };
            let segments = lists.writes.iter().chain(&lists.reply);
            let handles = segments.flat_map(|chunk| &chunk.segments);
            handles.map(|segment| segment.handle).collect()
        };
        let handles: Vec<Handle> = handles
            .into_iter()
            .filter(|handle| self.told.contains(handle))
            .collect();
        (!handles.is_empty()).then(|| script.pick(&handles))
    }

    /// Writes where it was offered to.
    pub(super) fn write(&mut self, script: &mut Script<'_>, hand: &mut Hand) {
        let handles: Vec<Handle> = hand.regions.keys().copied().collect();
        if handles.is_empty() {
            return;
        }
        if let Some(sink) = hand.sink_mut(script.pick(&handles)) {
            let at = script.below(sink.len());
            sink[at..].fill(script.byte());
        }
    }

    /// How a message of the peer is read.
    pub(super) fn form_of(&self, message: &[u8]) -> Form {
        let first = || Form::of_first(message, self.versions);
        self.form.unwrap_or_else(first)
    }

    /// Notes that a message is on its way, with all that it offers.
    pub(super) fn said(&mut self, message: &[u8]) {
        let Some(view) = HeaderView::new(message) else {
            return;
        };
        self.called.push(view.xid());
        let Some(Message {
            xid,
            body: Body::Rpc { named, lists, .. },
            ..
        }) = self.form_of(message).parse(message)
        else {
            return;
        };
        let sources = lists.reads.iter().flat_map(|chunk| &chunk.segments);
        self.sources.extend(sources.map(|segment| (*segment, xid)));
        let sinks = lists.writes.iter().chain(&lists.reply);
        self.sinks.extend(sinks.flat_map(|chunk| &chunk.segments));
        self.calls.push(Called { xid, named, lists });
    }

    /// A message of ours.
    pub(super) fn heard(&mut self, message: &Message) {
        match &message.body {
            Body::Rpc {
                direction: Some(Direction::Reply),
                ..
            }
            | Body::Error => {
                self.answered.insert(message.xid);
            }
            Body::Rpc { lists, .. } => {
                let reads = lists.reads.iter().map(|chunk| &chunk.segments);
                let writes = lists.writes.iter().chain(&lists.reply);
                let segments = reads.chain(writes.map(|chunk| &chunk.segments));
                self.told
                    .extend(segments.flatten().map(|segment| segment.handle));
                if self.heard.len() < REMEMBERED {
                    self.heard.push((message.xid, lists.clone()));
                }
            }
            Body::Optional(optional) => self.control.heard(message.xid, optional),
            Body::Done => {}
        }
    }

    /// We take this handle along with a message.
    ///
    /// Returns whether one call alone offered it: a peer that offers it with several harms only itself.
    pub(super) fn killed(&mut self, handle: Handle) -> bool {
        let offered = self.calls.iter().filter(|call| call.offers(handle));
        let offers = offered.count();
        assert!(offers > 0, "{handle:?} was never offered");
        let first = self.killed.insert(handle);
        assert!(first || offers > 1, "{handle:?} is killed twice");
        offers == 1
    }

    /// The only call with this XID, if only one message had it.
    pub(super) fn call_with(&self, xid: u32) -> Option<&Called> {
        let mut calls = self.calls.iter().filter(|call| call.xid == xid);
        let call = calls.next()?;
        (self.calls_with(xid) == 1).then_some(call)
    }

    /// Whether we have answered something with this XID.
    pub(super) fn was_answered(&self, xid: u32) -> bool {
        self.answered.contains(&xid)
    }

    pub(super) fn has_offered_sink(&self, to: RemoteAddress, len: usize) -> bool {
        let end = to.offset + len as u64;
        self.sinks.iter().any(|segment| {
            segment.handle == to.handle
                && segment.offset <= to.offset
                && end <= segment.offset.saturating_add(segment.length.into())
        })
    }

    pub(super) fn has_offered_source(&self, wanted: Segment) -> bool {
        self.sources.iter().any(|(segment, _)| *segment == wanted)
    }

    /// The call that has this handle, if it is only one.
    pub(super) fn xid_of(&self, handle: Handle) -> Option<u32> {
        let sources = self.sources.iter();
        let xids: BTreeSet<u32> = sources
            .filter(|(segment, _)| segment.handle == handle)
            .map(|(_, xid)| *xid)
            .collect();
        match xids.len() {
            1 => xids.first().copied(),
            _ => None,
        }
    }

    /// Messages with this XID so far.
    pub(super) fn calls_with(&self, xid: u32) -> usize {
        self.called.iter().filter(|called| **called == xid).count()
    }

    pub(super) fn has_called(&self, message: &Payload) -> bool {
        let xid = message.head().first_chunk();
        xid.is_some_and(|xid| self.called.contains(&u32::from_be_bytes(*xid)))
    }
}

fn reply_header(xid: u32) -> Vec<u8> {
    let words = [xid, 1, 0, 0, 0, 0];
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// A word changes, or the end is missing.
fn spoil(script: &mut Script<'_>, message: &mut Buffer) {
    match script.byte() {
        0..200 => {}
        200..240 => {
            let words = message.len() / 4;
            let at = 4 * script.below(words.min(64));
            let word = script.number().to_be_bytes();
            if let Some(place) = message.get_mut(at..at + 4) {
                place.copy_from_slice(&word);
            }
        }
        240.. => {
            let len = script.below(message.len() + 1);
            message.truncate(len);
        }
    }
}
