//! A Responder that does everything right, one call at a time, so that a case has only to do what is wrong.

use super::observation::Received;
use super::stage::{IDLE, QUIET, Stage, Workload};
use crate::bed::private_data;
use crate::header::{error as code, procedure};
use crate::link::{Heard, Link};
use crate::message::{Chunk, Message, Segment, chunk_len};
use crate::verdict::{Tested, ensure, error, fail, skip};
use crate::words;
use buffer::Buffer;
use oncrpc::xdr::Payload;
use oncrpc::{Answer, Caller, Reply, Respond};
use rpcrdma_proto::{InlineThreshold, PrivateData};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Most octets of all chunks of a call that are pulled.
const MAX_PULLED: u64 = 4 << 20;

/// Most messages of version two that are kept of a connection.
const MAX_OF_VERSION_TWO: usize = 16;

/// Most messages of one connection that are served before it is taken for one without an end.
const MAX_CALLS: usize = 20_000;

/// One connection of a Requester.
pub(super) struct Player<'a> {
    pub(super) stage: &'a Stage,
    pub(super) link: Link,
    caller: Caller,
    /// Credits that each reply grants.
    pub(super) grant: u32,
    /// Octets that the Requester takes in a message.
    threshold: usize,
    /// Messages of version two, each of which was answered with ERR_VERS.
    pub(super) of_version_two: Vec<Vec<u8>>,
    /// Handle that the next reply invalidates.
    pub(super) invalidate: Option<u32>,
}

impl<'a> Player<'a> {
    pub(super) fn new(stage: &'a Stage, link: Link) -> Self {
        let announced = PrivateData::find(&link.private_data);
        let receive = announced.map_or(InlineThreshold::MIN, |data| data.receive);
        Self {
            stage,
            link,
            // Of this machine, so that the export is open to it.
            caller: Caller::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
            grant: 32,
            threshold: receive.bytes().min(4096),
            of_version_two: Vec::new(),
            invalidate: None,
        }
    }

    /// The next call, within this time. `None` at the end of the connection, or if nothing comes.
    pub(super) fn call_within(&mut self, limit: Duration) -> Tested<Option<Received>> {
        loop {
            let bytes = match self.link.hear_within(limit) {
                Heard::Message { bytes, .. } => bytes,
                Heard::End(_) | Heard::Silence => return Ok(None),
            };
            match Message::parse(&bytes) {
                Ok(message) if message.version == 1 => {
                    return Ok(Some(Received { message, bytes }));
                }
                Ok(message) => {
                    let (xid, version) = (message.xid, message.version);
                    if version == 2 && self.of_version_two.len() < MAX_OF_VERSION_TWO {
                        self.of_version_two.push(bytes);
                    }
                    let answer = [xid, version, self.grant, procedure::ERROR, code::VERS, 1, 1];
                    self.link.send(&words(&answer))?;
                }
                Err(why) => return fail(format!("the Requester sends what is no message: {why}")),
            }
        }
    }

    /// The first call, which there must be.
    pub(super) fn first_call(&mut self) -> Tested<Received> {
        match self.call_within(self.stage.patience)? {
            Some(call) => Ok(call),
            None => error("the Requester connects, and calls nothing"),
        }
    }

    /// The first call that the condition holds for, and its connection; all before it are answered. `None` if the
    /// Requester has done its work before.
    pub(super) fn at_call(
        stage: &'a Stage,
        is_it: impl Fn(&Received) -> bool,
    ) -> Tested<Option<(Self, Received)>> {
        Self::at_call_granting(stage, 32, is_it)
    }

    /// The same where each reply grants so many credits.
    pub(super) fn at_call_granting(
        stage: &'a Stage,
        grant: u32,
        is_it: impl Fn(&Received) -> bool,
    ) -> Tested<Option<(Self, Received)>> {
        let said = private_data(true, 4096);
        let granting = |player| Self { grant, ..player };
        let mut player = granting(stage.connection()?);
        for _ in 0..MAX_CALLS {
            match player.call_within(IDLE.max(stage.patience / 4))? {
                Some(call) if is_it(&call) => return Ok(Some((player, call))),
                Some(call) => player.answer(&call)?,
                None => match stage.next_connection(&said)? {
                    Some(next) => player = granting(next),
                    None => return Ok(None),
                },
            }
        }
        error("the Requester calls without an end")
    }

    /// Answers a call as it should be.
    pub(super) fn answer(&mut self, call: &Received) -> Tested {
        match self.reply_to(call)? {
            Some(reply) => {
                let handle = self.invalidate.take();
                self.link.send_invalidating(&reply, handle)
            }
            None => Ok(()),
        }
    }

    /// Serves until the Requester has nothing more to say, or has ended the connection. The calls that came.
    pub(super) fn serve_rest(&mut self) -> Tested<Vec<Received>> {
        let mut calls = Vec::new();
        while let Some(call) = self.call_within(IDLE)? {
            self.answer(&call)?;
            calls.push(call);
            ensure(calls.len() < MAX_CALLS, || {
                "the Requester calls without an end".to_owned()
            })?;
        }
        Ok(calls)
    }

    /// Asserts that the Requester says nothing for a while. One that ends the connection may have had no Receive for what
    /// came, as it need not have more than calls without a reply (RFC 8167 §4.3.1): its work must go on.
    pub(super) fn discards(&mut self) -> Tested {
        match self.link.hear_within(QUIET) {
            Heard::End(why) => match self.stage.attend(&private_data(true, 4096), |_| ())? {
                Workload::Failed(failed) => fail(format!(
                    "it ends the connection ({why}), and its work fails: {failed}"
                )),
                Workload::Done | Workload::Unknown => {
                    skip(format!("it ends the connection: {why}"))
                }
            },
            Heard::Silence => Ok(()),
            Heard::Message { bytes, .. } => {
                fail(format!("it answers: {}", crate::message::describe(&bytes)))
            }
        }
    }

    /// Asserts that the Requester says nothing for a while, and does not end the connection.
    pub(super) fn is_quiet(&mut self) -> Tested {
        match self.link.hear_within(QUIET) {
            Heard::Silence => Ok(()),
            Heard::Message { bytes, .. } => {
                fail(format!("it answers: {}", crate::message::describe(&bytes)))
            }
            Heard::End(why) => fail(format!("it ends the connection: {why}")),
        }
    }

    /// The call went on in spite of what was done to it: others follow it on this connection, or the work of the Requester
    /// is done.
    pub(super) fn goes_on(mut self) -> Tested {
        let later = self.serve_rest()?;
        let end = self.link.closed();
        let stage = self.stage;
        self.link.close();
        match stage.attend(&private_data(true, 4096), |_| ())? {
            Workload::Done => Ok(()),
            Workload::Failed(why) => fail(format!("the work of the Requester fails: {why}")),
            Workload::Unknown => ensure(!later.is_empty(), || match end {
                Some(why) => format!("the connection ends: {why}"),
                None => "no other call follows on this connection".to_owned(),
            }),
        }
    }

    /// The whole stream of a call, with its Read chunks pulled; `Err` with the reason if that cannot be done.
    pub(super) fn stream(&mut self, call: &Received) -> Tested<Result<Vec<u8>, String>> {
        let Some(lists) = call.message.lists_of() else {
            return Ok(Err("no call".to_owned()));
        };
        let mut stream = call.message.payload.clone();
        let all: u64 = lists
            .reads
            .iter()
            .map(|(_, part)| u64::from(part.length))
            .sum();
        if all > MAX_PULLED {
            return Ok(Err("the Read chunks are too large to be pulled".to_owned()));
        }
        let mut reads = lists.reads.iter().peekable();
        while let Some(&(position, first)) = reads.next() {
            let mut chunk = vec![first];
            while let Some(&&(_, next)) = reads.peek().filter(|(next, _)| *next == position) {
                chunk.push(next);
                reads.next();
            }
            let mut data = match self.link.read(&chunk)? {
                Ok(data) => data,
                Err(why) => return Ok(Err(why)),
            };
            data.resize(data.len().next_multiple_of(4), 0);
            let at = position as usize;
            if at > stream.len() {
                return Ok(Err(format!("Position {at} is behind the end of the call")));
            }
            stream.splice(at..at, data);
        }
        Ok(Ok(stream))
    }

    /// The reply to a call, as a message; results that go into chunks are written. `None` if none is due.
    pub(super) fn reply_to(&mut self, call: &Received) -> Tested<Option<Vec<u8>>> {
        let Some(lists) = call.message.lists_of() else {
            return Ok(None);
        };
        let lists = lists.clone();
        let xid = call.message.xid;
        let stream = match self.stream(call)? {
            Ok(stream) => stream,
            Err(_) => return Ok(Some(self.err_chunk(xid))),
        };
        let payload = match self.execute(stream) {
            Reply::Message(payload) => payload,
            Reply::Nothing => return Ok(None),
            Reply::Ineligible | Reply::TooLarge(_) => return Ok(Some(self.err_chunk(xid))),
        };
        let mut returned = Vec::new();
        let mut items = payload.items().iter();
        let mut moved = 0;
        for chunk in &lists.writes {
            let item = match chunk.is_empty() {
                true => None,
                false => items.next(),
            };
            match item {
                Some(item) if item.len() as u64 <= chunk_len(chunk) => {
                    moved += 1;
                    returned.push(self.fill(chunk, &item.data.concat())?);
                }
                Some(_) => return Ok(Some(self.err_chunk(xid))),
                None => returned.push(unused(chunk)),
            }
        }
        let mut reduced = Buffer::default();
        payload.copy_reduced_into(&mut reduced, |at| at < moved);
        let mut header = vec![xid, 1, self.grant, procedure::MSG, 0];
        for chunk in &returned {
            header.push(1);
            header.extend(chunk_words(chunk));
        }
        header.push(0);
        let inline = |chunk: Option<&Chunk>| -> Vec<u32> {
            match chunk {
                Some(chunk) => [vec![1], chunk_words(&unused(chunk))].concat(),
                None => vec![0],
            }
        };
        let short = [words(&header), words(&inline(lists.reply.as_ref()))].concat();
        if short.len() + reduced.len() <= self.threshold {
            return Ok(Some([&short[..], &reduced].concat()));
        }
        let Some(chunk) = lists
            .reply
            .filter(|chunk| reduced.len() as u64 <= chunk_len(chunk))
        else {
            return Ok(Some(self.err_chunk(xid)));
        };
        let filled = self.fill(&chunk, &reduced)?;
        header[3] = procedure::NOMSG;
        header.push(1);
        header.extend(chunk_words(&filled));
        Ok(Some(words(&header)))
    }

    fn err_chunk(&self, xid: u32) -> Vec<u8> {
        words(&[xid, 1, self.grant, procedure::ERROR, code::HEADER])
    }

    /// Writes octets into a chunk: the chunk as it goes back.
    fn fill(&mut self, chunk: &[Segment], data: &[u8]) -> Tested<Chunk> {
        let mut rest = data;
        let mut filled = Vec::new();
        for segment in chunk {
            let (now, later) = rest.split_at(rest.len().min(segment.length as usize));
            if !now.is_empty() {
                self.link.write(*segment, now)?;
            }
            let length = u32::try_from(now.len()).expect("a segment's length has 32 bits");
            filled.push(segment.part(0, length));
            rest = later;
        }
        Ok(filled)
    }

    /// Has the service carry out a call.
    fn execute(&self, stream: Vec<u8>) -> Reply {
        let payload = Payload::new(Buffer::from(stream), 0);
        match self.stage.service.call(payload, &self.caller) {
            Answer::Now(reply) => reply,
            Answer::Blocking(work) => work(),
            Answer::Deferred(work) => Respond::wait(work).unwrap_or(Reply::Nothing),
            Answer::Later(future) => self.stage.runtime.block_on(future),
        }
    }
}

/// The words of a chunk.
pub(super) fn chunk_words(chunk: &[Segment]) -> Vec<u32> {
    let count = u32::try_from(chunk.len()).expect("it was counted by 32 bits");
    let segments = chunk.iter().flat_map(|segment| segment.words());
    [count].into_iter().chain(segments).collect()
}

/// A chunk that goes back without octets.
fn unused(chunk: &[Segment]) -> Chunk {
    chunk.iter().map(|segment| segment.part(0, 0)).collect()
}
