//! Messages of Linux' NFS client and server in versions 4.1 and 4.2, read and written again: `cargo xtask
//! record-messages` recorded them.

use buffer::Buffer;
use nfs_proto::scan::ItemPlace;
use nfs_proto::v4::open::{CreateHow, OpenHow};
use nfs_proto::v4::{
    ArgOp, CallWriter, CompoundArgs, CompoundRes, Fattr, Operation, ReplyWriter, ResOp,
};
use oncrpc::auth::OpaqueAuth;
use oncrpc::xdr::{Item, Payload, Reader, Writer};
use std::collections::BTreeSet;

/// A message of the table.
struct Message {
    version: &'static str,
    is_call: bool,
    operations: &'static str,
    items: &'static str,
    bytes: Vec<u8>,
}

/// Calls with their replies, of minor versions 1 and 2.
fn messages() -> Vec<Message> {
    let lines = include_str!("messages/linux.tsv").lines();
    let lines = lines.filter(|line| !line.starts_with('#'));
    let mut minor_version = "";
    let messages = lines.map(|line| {
        let fields: Vec<&str> = line.split('\t').collect();
        let [version, direction, operations, items, bytes] = fields[..] else {
            panic!("not a message: {line}")
        };
        let is_call = direction == "call";
        if is_call {
            minor_version = version;
        }
        let pairs = bytes.as_bytes().chunks(2);
        let pairs = pairs.map(|pair| std::str::from_utf8(pair).unwrap());
        Message {
            version: minor_version,
            is_call,
            operations,
            items,
            bytes: pairs
                .map(|pair| u8::from_str_radix(pair, 16).unwrap())
                .collect(),
        }
    });
    let is_compound = |message: &Message| !message.operations.starts_with("procedure");
    let messages = messages.filter(|message| matches!(message.version, "4.1" | "4.2"));
    messages.filter(is_compound).collect()
}

/// A reader behind the header of a call or reply.
fn body<'a>(message: &'a Message) -> Reader<'a> {
    let mut r = Reader::new(&message.bytes);
    if message.is_call {
        r.words::<6>().unwrap();
        OpaqueAuth::parse(&mut r).unwrap();
        OpaqueAuth::parse(&mut r).unwrap();
    } else {
        r.words::<3>().unwrap();
        OpaqueAuth::parse(&mut r).unwrap();
        assert_eq!(r.u32(), Ok(0), "accepted");
    }
    r
}

/// Checks that every attribute is known.
fn known(set: &Fattr<'_>) -> usize {
    let values: Result<Vec<_>, _> = set.iter().collect();
    values.unwrap().len()
}

fn attributes_of_call(operation: &ArgOp<'_>) -> usize {
    match operation {
        ArgOp::SetAttr(args) => known(&args.attributes),
        ArgOp::Create(args) => known(&args.attributes),
        ArgOp::Verify(args) | ArgOp::NVerify(args) => known(&args.attributes),
        ArgOp::Open(args) => match &args.how {
            OpenHow::Create(CreateHow::Unchecked(set) | CreateHow::Guarded(set)) => known(set),
            OpenHow::Create(CreateHow::Exclusive41(create)) => known(&create.attributes),
            OpenHow::Create(CreateHow::Exclusive(_)) | OpenHow::NoCreate => 0,
        },
        _ => 0,
    }
}

fn attributes_of_reply(result: &ResOp<'_>) -> usize {
    match result {
        ResOp::GetAttr(Ok(found)) => known(&found.attributes),
        ResOp::ReadDir(Ok(found)) => {
            let entries = found.entries.0.iter();
            entries.map(|entry| known(&entry.attributes)).sum()
        }
        _ => 0,
    }
}

/// Reads a message operation by operation and writes it again. Returns what was written, the operations, and the number of attributes.
fn again(message: &Message) -> (Payload, Vec<Operation>, usize) {
    let mut r = body(message);
    let mut w = Writer::default();
    w.fixed(&message.bytes[..r.offset()]);
    let (mut operations, mut attributes) = (Vec::new(), 0);
    if message.is_call {
        let mut args = CompoundArgs::parse(r).unwrap();
        let mut call = CallWriter::new(&mut w, args.tag, args.minor_version);
        while let Some(operation) = args.next_operation() {
            let operation = operation.unwrap();
            operations.push(operation.number());
            attributes += attributes_of_call(&operation);
            call.push(operation);
        }
        call.finish();
        args.finish().unwrap();
    } else {
        let mut results = CompoundRes::parse(r.clone()).unwrap();
        let mut reply = ReplyWriter::new(w, results.tag, results.status);
        while let Some(result) = results.next_result() {
            let result = result.unwrap();
            operations.push(result.number());
            attributes += attributes_of_reply(&result);
            reply.push(result);
        }
        assert_eq!(reply.status(), results.status);
        w = reply.finish();
        results.finish().unwrap();
        r.u32().unwrap();
    }
    (w.finish(), operations, attributes)
}

fn stream(message: &Payload) -> Vec<u8> {
    let mut whole = Buffer::default();
    message.copy_stream_into(&mut whole);
    whole.to_vec()
}

/// The items with data, as in the table.
fn places(message: &Payload) -> String {
    let place = |(index, item): (usize, &Item)| ItemPlace {
        offset: message.position(index),
        length: item.len(),
    };
    let places = message.items().iter().enumerate().map(place);
    let places = places.filter(|place| place.length > 0);
    let places = places.map(|place| format!("{}+{}", place.offset, place.length));
    places.collect::<Vec<_>>().join(" ")
}

#[test]
fn messages_of_linux_are_written_as_they_were_read() {
    let (mut seen, mut attributes) = (BTreeSet::new(), [0, 0]);
    for message in messages() {
        let what = format!("{} {}", message.version, message.operations);
        let (written, operations, number) = again(&message);
        let numbers = operations
            .iter()
            .map(|&operation| (operation as u32).to_string());
        let numbers: Vec<_> = numbers.collect();
        assert_eq!(numbers.join(" "), message.operations, "{what}");
        // Linux' server has a bitmap of one word without a bit for the attributes that OPEN, CREATE and SETATTR did not
        // set; this codec has no word.
        let sets = [Operation::Open, Operation::Create, Operation::SetAttr];
        let sets = !message.is_call && sets.iter().any(|sets| operations.contains(sets));
        let (whole, zeroes) = (
            stream(&written),
            message.bytes.len() - stream(&written).len(),
        );
        if zeroes == 0 || !sets {
            assert_eq!(whole, message.bytes, "{what}");
        } else {
            assert!(zeroes <= 12, "{what}");
        }
        assert_eq!(places(&written), message.items, "{what}");
        seen.extend(
            operations
                .into_iter()
                .map(|operation| (message.is_call, operation as u32)),
        );
        attributes[usize::from(message.is_call)] += number;
    }
    // The table has the daily work of a client.
    assert!(seen.len() > 60, "{seen:?}");
    assert!(attributes[0] > 500 && attributes[1] > 10, "{attributes:?}");
}
