//! NFS versions 4.1 and 4.2: COMPOUND and CB_COMPOUND, their operations and attributes (RFC 8881, RFC 7862).

use crate::memory::within;
use crate::script::Script;
use buffer::Buffer;
use nfs_proto::limits::MAX_ITEMS;
use nfs_proto::scan::{CallScan, ItemPlace};
use nfs_proto::v4::callback::{
    CALLBACK_VERSION, CbArgOp, CbCompoundArgs, CbCompoundRes, CbOperation, CbResOp,
};
use nfs_proto::v4::directory::{DirectoryWriter, ReadDirArgs};
use nfs_proto::v4::fattr::write_fattr;
use nfs_proto::v4::lock::TestStateIdOk;
use nfs_proto::v4::open::{CreateHow, OpenArgs, OpenHow};
use nfs_proto::v4::{
    ArgOp, Array, Attribute, AttributeAccess, AttributeNumber, Bitmap, CallWriter, ChangeId,
    CompoundArgs, CompoundRes, Fattr, FileType, Operation, Principal, Procedure, ReplyWriter, Res,
    ResOp, SpecialStateId, StateId, Status, Time,
};
use nfs_proto::{Cookie, CookieVerifier, FileId, Filename, Wire};
use oncrpc::xdr::{Item, Payload, Reader, Writer};
use std::time::SystemTime;

/// Reading arguments allocates nothing.
const ARGUMENTS_MEMORY: usize = 0;

/// An entry of a directory takes 24 bytes at least; the list of all grows by doubling.
const RESULTS_MEMORY_PER_BYTE: usize = 20;
const RESULTS_MEMORY: usize = 4 << 10;

/// Reads a value, if it is one: what is written of it is read as the same value. (A function could not name its type
/// for another lifetime.)
macro_rules! stable {
    ($ty:ty, $bytes:expr, $memory:expr) => {{
        let value = within($memory, || <$ty>::parse(&mut Reader::new($bytes)));
        if let Ok(value) = &value {
            let message = written(value);
            assert!(
                message.head().len() <= <$ty>::MAX,
                "within its declared size"
            );
            let whole = stream(&message);
            let mut r = Reader::new(&whole);
            let again = <$ty>::parse(&mut r).expect("what was written");
            assert_eq!(r.finish(), Ok(()), "to the end");
            assert_eq!(&again, value, "the same value");
            assert_eq!(stream(&written(&again)), whole, "the same bytes");
        }
        value.ok()
    }};
}

/// One operation, a call that is answered, a reply, or a callback.
pub fn nfs4(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    match script.below(8) {
        0 => call(&mut script),
        1 => reply(script.rest()),
        2 => {
            let message = script.rest();
            stable!(CbCompoundArgs<'_>, message, ARGUMENTS_MEMORY);
            stable!(CbCompoundRes<'_>, message, ARGUMENTS_MEMORY);
        }
        3 => callback(&mut script),
        4 => attributes(script.rest()),
        _ => operation(&mut script),
    }
}

/// Arguments and result of one operation.
fn operation(script: &mut Script<'_>) {
    let operation = script.pick(Operation::ALL);
    let mut message = words(&[operation as u32]);
    message.extend_from_slice(script.rest());
    if let Some(arguments) = stable!(ArgOp<'_>, &message, ARGUMENTS_MEMORY) {
        assert_eq!(arguments.number(), operation);
        if operation.is_in(2) {
            scan_agrees(&[arguments]);
        }
    }
    let memory = RESULTS_MEMORY + RESULTS_MEMORY_PER_BYTE * message.len();
    if let Some(result) = stable!(ResOp<'_>, &message, memory) {
        assert_eq!(result.number(), operation);
    }
    let failed = ResOp::failed(operation, Status::Delay);
    assert_eq!(failed.status(), Err(Status::Delay));
}

/// Arguments and result of one callback.
fn callback(script: &mut Script<'_>) {
    assert_eq!((CALLBACK_VERSION, Procedure::ALL.len()), (1, 2));
    let operation = script.pick(CbOperation::ALL);
    let mut message = words(&[operation as u32]);
    message.extend_from_slice(script.rest());
    if let Some(arguments) = stable!(CbArgOp<'_>, &message, ARGUMENTS_MEMORY) {
        assert_eq!(arguments.number(), operation);
    }
    if let Some(result) = stable!(CbResOp<'_>, &message, ARGUMENTS_MEMORY) {
        let failed = CbResOp::failed(result.number(), Status::Delay);
        assert_eq!(failed.status(), Err(Status::Delay));
    }
}

/// A set of attributes: what can be read of it is a set of its own.
fn attributes(bytes: &[u8]) {
    let Some(set) = stable!(Fattr<'_>, bytes, ARGUMENTS_MEMORY) else {
        return;
    };
    let numbers: Vec<u32> = set.mask().iter().collect();
    let read: Vec<Attribute<'_>> = set.iter().map_while(Result::ok).collect();
    assert!(read.len() <= numbers.len());
    assert!(
        read.iter()
            .map(|value| value.number() as u32)
            .eq(numbers[..read.len()].iter().copied())
    );
    let own = Fattr::new(&read).expect("they are in order");
    if set.iter().all(|value| value.is_ok()) {
        assert_eq!(own, set);
    }
    // The same, where each is asked for.
    let mut w = Writer::default();
    let mut left = read.iter().copied();
    write_fattr(&mut w, &own.mask(), |number| {
        left.next().filter(|value| value.number() == number)
    });
    assert_eq!(w.finish().head(), written(&own).head());
}

/// The results of a reply, which are written as the same reply.
fn reply(bytes: &[u8]) {
    let Ok(mut results) = CompoundRes::parse(Reader::new(bytes)) else {
        return;
    };
    let mut again = ReplyWriter::new(Writer::default(), results.tag, results.status);
    let mut number = 0;
    while let Some(Ok(result)) = results.next_result() {
        again.push(result);
        number += 1;
    }
    let status = again.status();
    check_reply(&stream(&again.finish().finish()), status, number);
}

fn check_reply(reply: &[u8], status: Res<()>, number: usize) {
    let mut results = CompoundRes::parse(Reader::new(reply)).expect("a reply");
    assert_eq!(results.status, status);
    for _ in 0..number {
        assert!(results.next_result().is_some_and(|result| result.is_ok()));
    }
    assert!(results.next_result().is_none());
    assert_eq!(results.finish(), Ok(()));
}

/// A call of any operations, and its reply within some size.
fn call(script: &mut Script<'_>) {
    let minor_version = script.pick(&[1, 2]);
    let most = script.number() as usize;
    let operations: u32 = script.byte().into();
    let mut message = words(&[0, minor_version, operations]);
    message.extend_from_slice(script.rest());
    let mut args = within(ARGUMENTS_MEMORY, || {
        CompoundArgs::parse(Reader::new(&message))
    })
    .expect("it has a head");
    assert_eq!(args.operations_left(), operations as usize);
    let mut reply = ReplyWriter::new(Writer::default(), args.tag, Ok(()));
    let (mut number, mut good) = (0, Vec::new());
    while let Some(operation) = within(ARGUMENTS_MEMORY, || args.next_operation()) {
        number += 1;
        match operation {
            Ok(operation) => {
                good.push(operation.clone());
                answer(operation, &mut reply);
            }
            Err(bad) => reply.push(bad.result()),
        }
        if reply.stream_len() > most {
            let last = good.last().map_or(Operation::Illegal, ArgOp::number);
            reply.replace_last(ResOp::failed(last, Status::ReplyTooBig));
        }
        if reply.status().is_err() {
            break;
        }
    }
    let status = reply.status();
    check_reply(&stream(&reply.finish().finish()), status, number);
    scan_agrees(&good);
}

/// The answer of a server with one file, which changes nothing.
fn answer(operation: ArgOp<'_>, reply: &mut ReplyWriter) {
    match operation {
        ArgOp::GetAttr(args) => reply.push_with(Operation::GetAttr, |w| {
            write_fattr(w, &args.wanted, give);
            Ok(())
        }),
        ArgOp::ReadDir(args) => {
            reply.push_with(Operation::ReadDir, |w| directory(w, &args));
        }
        ArgOp::SetAttr(args) => {
            let status = settable(&args.attributes).and(Err(Status::ReadOnly));
            reply.push(ResOp::failed(
                Operation::SetAttr,
                status.unwrap_or_else(|status| status),
            ));
        }
        ArgOp::TestStateId(args) => {
            let statuses: Vec<Res<()>> = args.states.iter().map(known).collect();
            let statuses = Array::new(&statuses).expect("as many as in the call");
            reply.push(ResOp::TestStateId(Ok(TestStateIdOk { statuses })));
        }
        ArgOp::Open(args) => reply.push(ResOp::Open(Err(opened(&args)))),
        ArgOp::PutRootFh => reply.push(ResOp::PutRootFh(Ok(()))),
        other => {
            let status = match other.number().is_obsolete() {
                true => Status::NotSupported,
                false => Status::ServerFault,
            };
            reply.push(ResOp::failed(other.number(), status));
        }
    }
}

fn give(number: AttributeNumber) -> Option<Attribute<'static>> {
    Some(match number {
        AttributeNumber::Type => Attribute::Type(FileType::Regular),
        AttributeNumber::Change => Attribute::Change(ChangeId(7)),
        AttributeNumber::RdattrError => Attribute::RdattrError(Ok(())),
        AttributeNumber::FileId => Attribute::FileId(FileId(3)),
        AttributeNumber::Owner => Attribute::Owner(Principal::new(b"1000").expect("a short name")),
        AttributeNumber::TimeModify => Attribute::TimeModify(Time::from(SystemTime::UNIX_EPOCH)),
        AttributeNumber::SuppAttrExclCreat => {
            Attribute::SuppAttrExclCreat(Bitmap::of([AttributeNumber::Mode as u32]))
        }
        _ => return None,
    })
}

/// Three entries, as far as they fit.
fn directory(w: &mut Writer, args: &ReadDirArgs) -> Result<(), Status> {
    let (start, room) = (w.len(), 4096);
    let mut directory = DirectoryWriter::new(w, args, room, CookieVerifier::default());
    let mut cookies = (3..6).map(Cookie);
    let name = Filename::new(b"an entry").expect("a short name");
    let fit = cookies
        .by_ref()
        .take_while(|cookie| directory.push(*cookie, name, |w| write_fattr(w, &args.wanted, give)));
    let all = fit.count() == 3;
    directory.finish(all)?;
    assert!(w.len() - start <= room.min(args.max_count as usize));
    Ok(())
}

/// Whether each attribute is known and can be set.
fn settable(set: &Fattr<'_>) -> Result<(), Status> {
    for value in set.iter() {
        let access = value?.number().access();
        if access == AttributeAccess::R {
            return Err(Status::Invalid);
        }
    }
    Ok(())
}

/// Whether a state id is a special one, which is one value each.
fn known(state: StateId) -> Res<()> {
    match state.special() {
        Some(special) => {
            assert_eq!(StateId::from(special), state);
            match special {
                SpecialStateId::Anonymous | SpecialStateId::ReadBypass => Ok(()),
                SpecialStateId::Current | SpecialStateId::Invalid => Err(Status::BadStateId),
            }
        }
        None => Err(Status::BadStateId),
    }
}

fn opened(args: &OpenArgs<'_>) -> Status {
    match args.access.wish() {
        Some(wish) => assert_eq!(args.access.with_wish(wish), args.access),
        None => return Status::Invalid,
    }
    let attributes = match args.how {
        OpenHow::Create(CreateHow::Unchecked(set) | CreateHow::Guarded(set)) => set,
        OpenHow::Create(CreateHow::Exclusive41(create)) => create.attributes,
        OpenHow::Create(CreateHow::Exclusive(_)) | OpenHow::NoCreate => Fattr::default(),
    };
    settable(&attributes).err().unwrap_or(Status::ReadOnly)
}

/// The scan of messages that pass by finds the operations of a call, and the items that the codec makes of it.
fn scan_agrees(operations: &[ArgOp<'_>]) {
    let mut w = Writer::default();
    w.words([9, 0, 2, 100_003, 4, 1, 0, 0, 0, 0]);
    let mut call = CallWriter::new(&mut w, Default::default(), 2);
    operations
        .iter()
        .cloned()
        .for_each(|operation| call.push(operation));
    call.finish();
    let message = w.finish();
    let mut scan = CallScan::default();
    scan.push(&stream(&message));
    let found = scan.finish().expect("a call");
    assert!(!found.truncated, "{operations:?}");
    let numbers = operations.iter().map(|operation| operation.number() as u32);
    assert!(numbers.eq(found.operations.iter().map(|&number| number.into())));
    let place = |(index, item): (usize, &Item)| ItemPlace {
        offset: message.position(index),
        length: item.len(),
    };
    let places = message.items().iter().enumerate().map(place);
    assert!(places.take(MAX_ITEMS).eq(found.arguments.iter().copied()));
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn written<'a>(value: &impl Wire<'a>) -> Payload {
    let mut w = Writer::default();
    value.write(&mut w);
    w.finish()
}

fn stream(message: &Payload) -> Vec<u8> {
    let mut whole = Buffer::default();
    message.copy_stream_into(&mut whole);
    whole.to_vec()
}
