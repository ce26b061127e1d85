//! RPC messages, credentials, records and rpcbind (RFC 5531, RFC 1833).

use crate::memory::within;
use crate::script::Script;
use buffer::{Buffer, Gather};
use bytes::Bytes;
use oncrpc::auth::OpaqueAuth;
use oncrpc::xdr::{Item, Payload, Reader, Writer};
use oncrpc::{
    Answer, Call, CallHeader, Caller, Credential, Program, Programs, Reply, ReplyBound,
    ReplyHeader, Service, Transport, TransportError,
};
use oncrpc_tcp::record::{Decoder, RecordError, encode};
use oncrpc_tcp::rpcbind::{NetId, Rpcbind};
use std::future::Future;
use std::ops::RangeInclusive;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};

/// A message, its copies here, and buffers that grow by half.
const MEMORY_PER_BYTE: usize = 16;
const MEMORY: usize = 32 << 10;

/// Bytes of a record at most.
const RECORD: u16 = 1 << 10;

/// The program that answers.
const PROGRAM: u32 = 7;

/// One message, or what a stream of records has.
pub fn rpc(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let what = script.below(6);
    let most = MEMORY + MEMORY_PER_BYTE * bytes.len();
    within(most, || match what {
        0 => call(script.rest()),
        1 => reply(script.rest()),
        2 => records(&mut script),
        3 => answered(&mut script),
        4 => rpcbind(&mut script),
        _ => payload(&mut script),
    });
}

fn call(bytes: &[u8]) {
    let mut r = Reader::new(bytes);
    let Ok(header) = CallHeader::parse(&mut r) else {
        return;
    };
    let mut w = Writer::default();
    for word in [header.xid, 0, 2, header.prog, header.vers, header.proc] {
        w.u32(word);
    }
    header.cred.write(&mut w);
    header.verf.write(&mut w);
    assert_eq!(w.finish().head(), &bytes[..r.offset()], "the same bytes");
    let Ok(credential) = Credential::parse(header.cred) else {
        return;
    };
    let mut w = Writer::default();
    credential.write(&mut w);
    let written = w.finish();
    assert!(written.head().len() <= Credential::MAX_LEN);
    let mut r = Reader::from(&written);
    let again = OpaqueAuth::parse(&mut r).expect("what we write is within its limits");
    assert_eq!(Credential::parse(again).as_ref(), Ok(&credential));
}

fn reply(bytes: &[u8]) {
    let mut r = Reader::new(bytes);
    let Ok(header) = ReplyHeader::parse(&mut r) else {
        return;
    };
    let mut w = Writer::default();
    header.write(&mut w);
    assert_eq!(w.finish().head(), &bytes[..r.offset()], "the same bytes");
    let whole = Payload::new(Buffer::from(bytes.to_vec()), 0);
    assert!(oncrpc::read_reply(&whole, header.xid.wrapping_add(1)).is_err());
    if let Ok(rest) = oncrpc::read_reply(&whole, header.xid) {
        assert_eq!(rest.offset(), r.offset());
    }
}

fn records(script: &mut Script<'_>) {
    let piece = 1 + usize::from(script.byte());
    let stream = script.rest();
    let (whole, error) = decode(stream, usize::MAX);
    assert_eq!((whole.clone(), error), decode(stream, piece), "any cut");
    let mut again = Buffer::default();
    for record in &whole {
        assert!(record.len() <= usize::from(RECORD));
        encode(&Payload::new(Buffer::from(record.clone()), 0), &mut again);
    }
    assert_eq!(decode(&again, piece), (whole, None), "what is sent again");
}

fn decode(stream: &[u8], piece: usize) -> (Vec<Vec<u8>>, Option<RecordError>) {
    let mut decoder = Decoder::new(RECORD.into());
    let mut records = Vec::new();
    for mut input in stream.chunks(piece) {
        loop {
            match decoder.decode(&mut input) {
                Ok(Some(record)) => records.push(record.head().to_vec()),
                Ok(None) => break assert!(input.is_empty(), "all that came is taken"),
                Err(error) => return (records, Some(error)),
            }
        }
    }
    (records, None)
}

/// A program whose one procedure gives back an opaque argument.
struct Echo;

impl Program for Echo {
    fn number(&self) -> u32 {
        PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        2..=3
    }

    fn call(&self, call: Call) -> Answer {
        if call.proc != 1 {
            return call.proc_unavail().into();
        }
        let decoded = call.decode(|r| Ok(r.item(RECORD.into())?.into_gather()));
        Answer::Now(match decoded {
            Ok(data) => {
                let mut w = call.success(Buffer::default());
                w.item(data);
                Reply::Message(w.finish())
            }
            Err(error) => call.unreadable(error),
        })
    }
}

/// Every call has at most one answer, which a client can read.
fn answered(script: &mut Script<'_>) {
    let items = script.below(3);
    let target = [PROGRAM, script.pick(&[2, 2, 3, 9]), script.pick(&[1, 1, 0])];
    let head = if script.flag() {
        let mut w = Writer::default();
        let [prog, vers, proc] = target;
        let procedure = oncrpc::Procedure { prog, vers, proc };
        oncrpc::write_call(&mut w, script.word(), procedure, &Credential::None);
        let mut head = w.finish().head().to_vec();
        head.extend(script.take(64));
        head
    } else {
        script.take(256).to_vec()
    };
    let xid = head.first_chunk().map(|xid| u32::from_be_bytes(*xid));
    let message = with_items(script, head, items);
    let caller = Caller::new(([127, 0, 0, 1], 1).into());
    let Answer::Now(reply) = Programs::new().with(Echo).call(message, &caller) else {
        panic!("it answers at once");
    };
    match reply {
        Reply::Message(reply) => {
            let header = ReplyHeader::parse(&mut Reader::from(&reply)).expect("a good reply");
            assert_eq!(Some(header.xid), xid);
        }
        Reply::Ineligible => assert!(items > 0, "only by-reference items are not eligible"),
        Reply::Nothing => {}
        Reply::TooLarge(_) => panic!("there is room for every reply"),
    }
}

/// A message with items where the script has them.
fn with_items(script: &mut Script<'_>, head: Vec<u8>, items: usize) -> Payload {
    let mut at = 0;
    let items = (0..items).map(|_| {
        at += script.below(head.len() - at + 1);
        let (data, more) = (script.some(32), script.some(8));
        let data = [data, more].map(Bytes::copy_from_slice);
        Item {
            at,
            data: Gather::from_iter(data),
        }
    });
    let items = items.collect();
    Payload::with_items(Buffer::from(head), 0, items)
}

/// The ways to take a message as a stream agree.
fn payload(script: &mut Script<'_>) {
    let head = script.some(200).to_vec();
    let items = script.below(4);
    let message = with_items(script, head, items);
    let mut stream = Buffer::default();
    message.copy_stream_into(&mut stream);
    assert_eq!(stream.len(), message.stream_len());
    for (index, item) in message.items().iter().enumerate() {
        let at = message.position(index);
        assert_eq!(stream[at..at + item.len()], item.data.concat());
    }
    read_all(script, &message, &stream);
    assert_eq!(message.into_gather().0.concat(), *stream);
}

/// Whatever is read of a message by reference is in its stream as well.
fn read_all(script: &mut Script<'_>, message: &Payload, stream: &[u8]) {
    let mut r = Reader::from(message);
    let mut inline = Reader::new(stream);
    while !script.is_over() {
        let limit = script.number();
        let same = match script.below(4) {
            0 => r.u32().ok().map(|word| Ok(word) == inline.u32()),
            1 => {
                let read = r.opaque(limit).ok();
                read.map(|bytes| Ok(bytes) == inline.opaque(limit))
            }
            2 => r.bool().ok().map(|flag| Ok(flag) == inline.bool()),
            _ => r.item(limit).ok().map(|item| {
                let Ok(found) = inline.item(limit) else {
                    // It had bytes of its own for its padding, which need not be zero.
                    return true;
                };
                found.to_vec() == item.to_vec()
            }),
        };
        match same {
            Some(same) => assert!(same, "by reference or not, it is the same"),
            None => return,
        }
        if inline.offset() < r.offset() {
            return;
        }
    }
}

/// A transport to a peer that answers with these bytes, behind a good header or not.
struct Answering {
    bytes: Vec<u8>,
    headed: bool,
    calls: AtomicUsize,
}

impl Transport for Answering {
    fn next_xid(&self) -> u32 {
        3
    }

    async fn call(&self, _: Payload, bound: ReplyBound) -> Result<Payload, TransportError> {
        self.calls.fetch_add(1, Relaxed);
        let head: &[u8] = if self.headed {
            b"\0\0\0\x03\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
        } else {
            b""
        };
        let mut reply = [head, &self.bytes].concat();
        reply.truncate(bound.fixed);
        Ok(Payload::new(Buffer::from(reply), 0))
    }
}

fn rpcbind(script: &mut Script<'_>) {
    let netid = script.pick(&[NetId::Tcp, NetId::Tcp6, NetId::Rdma, NetId::Rdma6]);
    let rpcbind = Rpcbind::new(Answering {
        headed: script.flag(),
        bytes: script.rest().to_vec(),
        calls: AtomicUsize::new(0),
    });
    let asked =
        pin!(rpcbind.getaddr(100_003, 3, netid)).poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(asked, Poll::Ready(_)), "a reply is there at once");
}
