//! One connection against a peer that is driven by hand, and may do anything.

use super::pair::{End, MAX_TURNS};
use super::*;
use crate::Direction;
use crate::codec::{Body as CoreBody, Codec, Contents, Rejection};
use crate::v2::header::Invalidate;
use crate::wire::header::{self, Body, Header, Lists, RdmaError, ReadChunk, Segments, procedure};
use oncrpc::TransportError;
use verbs::{
    Completion, Handle, Handles, Limits, QueuePair, RemoteAddress, Segment, WorkRequest, WrId,
};
use verbs_sim::{EndOptions, Fabric, PairOptions, SimQp};

/// The connection under test, and its peer.
pub(super) struct Lone {
    pub(super) end: End<SimQp>,
    pub(super) peer: SimQp,
    pub(super) events: Vec<Event>,
}

impl Lone {
    pub(super) fn new(config: &Config) -> Self {
        Self::with(config, |_| {})
    }

    pub(super) fn with(config: &Config, limits: impl Fn(&mut Limits)) -> Self {
        Self::owned(config, TestOwner::default(), limits)
    }

    pub(super) fn owned(config: &Config, owner: TestOwner, limits: impl Fn(&mut Limits)) -> Self {
        let mut options = PairOptions::both(EndOptions::default());
        limits(&mut options.left.limits);
        let (left, mut peer) = Fabric::new(3).pair(&options);
        for i in 0..100 {
            let receive = WorkRequest::Receive {
                wr: WrId(i),
                buffer: Buffer::with_capacity(4096),
            };
            peer.post(receive).expect("there is room for receives");
        }
        Self {
            end: End::new(left, config, owner, Some(config.own)),
            peer,
            events: Vec::new(),
        }
    }

    /// A server that speaks this.
    pub(super) fn server(versions: Versions) -> Self {
        Self::new(&Config {
            versions,
            ..config(Role::Server)
        })
    }

    pub(super) fn drive(&mut self) {
        let mut turns = 0;
        while self.end.turn() | self.peer.progress() {
            turns += 1;
            assert!(
                turns < MAX_TURNS,
                "it has no end: {:?}",
                self.end.connection
            );
            while let Some(event) = self.end.connection.poll_event() {
                self.events.push(event);
            }
        }
    }

    /// Takes the next message for the peer: header and stream.
    pub(super) fn receive(&mut self) -> Option<(Header, Vec<u8>)> {
        self.drive();
        while let Some(completion) = self.peer.poll_cq() {
            if let Completion::Receive { buffer, .. } = completion {
                let (header, at) = parsed(self.end.connection.core.shared.agreed.codec, &buffer);
                return Some((header, buffer[at..].to_vec()));
            }
        }
        None
    }

    /// The peer sends bytes, and may invalidate a handle with them.
    pub(super) fn send(&mut self, bytes: &[u8], invalidate: Option<Handle>) {
        self.send_and_all(bytes, invalidate);
    }

    /// The peer sends bytes, and invalidates all of these handles with them.
    pub(super) fn send_and_all(&mut self, bytes: &[u8], handles: impl IntoIterator<Item = Handle>) {
        let send = WorkRequest::Send {
            wr: WrId(1000),
            buffer: Buffer::from(bytes.to_vec()),
            rest: Gather::new(),
            invalidate: Handles::new(handles),
        };
        self.peer.post(send).expect("there is room");
        self.drive();
    }

    /// The peer sends a call in the version that is spoken.
    pub(super) fn send_lists(&mut self, proc: u32, xid: u32, lists: &Lists, stream: &[u8]) {
        let mut out = Buffer::default();
        let contents = Contents {
            long: proc == procedure::NOMSG,
            direction: Direction::Call,
            invalidate: Invalidate::Unsaid,
            lists,
        };
        let codec = self.end.connection.core.shared.agreed.codec;
        codec.emit(&mut out, xid, 8, &contents);
        out[12..16].copy_from_slice(&proc.to_be_bytes());
        out.extend_from_slice(stream);
        self.send(&out, None);
    }

    /// The peer sends a message without chunks.
    pub(super) fn send_stream(&mut self, xid: u32, credits: u32, stream: &[u8]) {
        let bytes = wire(procedure::MSG, xid, credits, &Lists::default(), stream);
        self.send(&bytes, None);
    }

    /// The peer sends a call without chunks.
    pub(super) fn send_call(&mut self, xid: u32) {
        self.send_stream(xid, 8, &stream(&call(xid, 40, &[])));
    }

    /// The peer writes into memory it was offered.
    pub(super) fn write(&mut self, bytes: &[u8], to: Segment) {
        let write = WorkRequest::Write {
            wr: WrId(1001),
            source: Gather::from_elem(Bytes::copy_from_slice(bytes), 1),
            to: to.address(),
        };
        self.peer.post(write).expect("there is room");
    }

    pub(super) fn call(&mut self, request: CallRequest) {
        self.end.call(request).expect("it can be carried");
        assert_eq!(self.end.connection.calls_waiting(), 0, "it is sent at once");
    }

    /// The end of the one call of ours.
    pub(super) fn ended(&mut self) -> Result<Payload, TransportError> {
        match self.events.pop() {
            Some(Event::Reply { reply, .. }) => reply,
            other => panic!("{other:?}"),
        }
    }

    /// The one call of the peer.
    pub(super) fn called(&mut self) -> (CallId, Payload) {
        match self.events.pop() {
            Some(Event::Call { id, message }) => (id, message),
            other => panic!("{other:?}"),
        }
    }
}

pub(super) fn client() -> Lone {
    Lone::new(&config(Role::Client))
}

pub(super) fn server() -> Lone {
    Lone::new(&config(Role::Server))
}

/// A header of ours, in the terms of version one, and where its stream is.
fn parsed(codec: &dyn Codec, message: &[u8]) -> (Header, usize) {
    let header = codec.parse(message).expect("we send valid headers");
    let body = match header.body {
        CoreBody::Rpc(rpc) if rpc.long => Body::NoMsg(rpc.lists),
        CoreBody::Rpc(rpc) => Body::Msg(rpc.lists),
        CoreBody::Error(error) => Body::Error(match error.cause {
            Rejection::Versions { low, high } => RdmaError::Version { low, high },
            Rejection::Header => RdmaError::Chunk,
            _ => panic!("{error:?}"),
        }),
        CoreBody::Done => Body::Done,
        other => panic!("{other:?}"),
    };
    let (xid, credits) = (header.xid, header.credits);
    (Header { xid, credits, body }, header.stream)
}

/// A message arrives on a connection, and nothing of what that posts is posted.
pub(super) fn arrive(connection: &mut Connection, bytes: Vec<u8>) {
    connection.handle_completion(Completion::Receive {
        wr: crate::work::Purpose::Receive.wr(),
        buffer: Buffer::from(bytes),
        invalidated: None,
    });
    give_memory(connection);
}

/// Gives calls of the peer all memory that they need.
pub(super) fn give_memory(connection: &mut Connection) {
    while let Some(need) = connection.poll_memory() {
        let lease = TestOwner::default().budget.take(need.pulls + need.offered);
        connection.handle_memory(lease.expect("there is as much as one call takes"));
    }
}

/// A message on the wire.
pub(super) fn wire(proc: u32, xid: u32, credits: u32, lists: &Lists, stream: &[u8]) -> Vec<u8> {
    let mut out = Buffer::default();
    header::emit(&mut out, proc, xid, credits, lists);
    out.extend_from_slice(stream);
    out.to_vec()
}

pub(super) fn error(xid: u32, error: RdmaError) -> Vec<u8> {
    let mut out = Buffer::default();
    header::emit_error(&mut out, xid, 1, 8, error);
    out.to_vec()
}

pub(super) fn lists(header: &Header) -> Lists {
    match &header.body {
        Body::Msg(lists) | Body::NoMsg(lists) => lists.clone(),
        Body::Done | Body::Error(_) => panic!("a message"),
    }
}

pub(super) fn segment(handle: u32, length: u32) -> Segment {
    Segment {
        handle: Handle(handle),
        length,
        offset: 0,
    }
}

/// The beginning of memory that the peer has registered.
pub(super) fn segment_at(at: RemoteAddress, length: u32) -> Segment {
    Segment {
        handle: at.handle,
        length,
        offset: at.offset,
    }
}

pub(super) fn read_chunk(position: u32, segments: Segments) -> ReadChunk {
    ReadChunk { position, segments }
}

pub(super) fn unused(offered: &Lists) -> Lists {
    Lists {
        reads: vec![],
        writes: offered.writes.iter().map(|c| c.returned(0)).collect(),
        reply: offered.reply.as_ref().map(|c| c.returned(0)),
    }
}

pub(super) fn inline(lists: &Lists) -> Vec<u8> {
    wire(procedure::MSG, 5, 8, lists, &stream(&reply(5, 40, &[])))
}
