//! The transport header of version two as ietf-07 has it.

use crate::memory::within;
use crate::rpcrdma_header::{MEMORY, MEMORY_PER_BYTE, agree, bytes, made_up_lists, within_limits};
use crate::script::Script;
use buffer::Buffer;
use rpcrdma_proto::limits::MAX_HOST_AUTH;
use rpcrdma_proto::v2::header::{Direction, HeaderView, Lists, VERSION};
use rpcrdma_proto::v2::ietf07::{
    Body, BodyView, Disposition, GRANT_LEN, Header, HeaderError, PART_LEN, Properties, PropertySet,
    RdmaError, RpcView, call_len, emit_error, header_type, plain_call, plain_reply, properties_len,
    property, reply_len,
};

/// A received message.
pub fn rpcrdma_v2_ietf07(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let cut = script.word() as usize;
    let message = &script.rest_or(made_up);
    let most = MEMORY + MEMORY_PER_BYTE * message.len();
    match within(most, || Header::parse(message)) {
        Ok((header, at)) => {
            valid(message, &header, at);
            let own = own_len(&header, at);
            cut_short(&message[..cut % own]);
        }
        Err(error) => invalid(message, error),
    }
    let body = message.get(HeaderView::FIXED_LEN..).unwrap_or(&[]);
    for htype in 3..15 {
        within(most, || BodyView::new(htype, body));
    }
}

/// A header as the script has it, to its end.
fn made_up(script: &mut Script<'_>) -> Vec<u8> {
    let mut words = vec![script.word(), script.pick(&[2, 2, 2, 2, 2, 2, 2, 2, 1, 3])];
    let htype = script.pick(&[8, 10, 11, 13, 8, 10, 11, 13, 6, 7, 7, 4, 5, 9, 12, 3, 14]);
    words.extend([script.number(), htype]);
    match htype {
        header_type::ERROR => words.extend([script.number() % 16, script.number()]),
        header_type::CONNPROP_MIDDLE | header_type::CONNPROP_FINAL => {
            made_up_set(script, &mut words)
        }
        _ => {}
    }
    made_up_lists(script, &mut words);
    bytes(&words)
}

/// A set of properties, most of which are valid.
fn made_up_set(script: &mut Script<'_>, words: &mut Vec<u32>) {
    let count = script.number() % 9;
    words.push(count);
    for _ in 0..count {
        let which = script.pick(&[1, 2, 3, 4, 5, 6, 6, 7, 0]);
        match (which, script.byte()) {
            (_, 0..32) => words.extend([which, 0]),
            (property::HOSTAUTH, _) => {
                let len = script.number() % 64;
                let padded = len.next_multiple_of(4);
                words.extend([which, 4 + padded, len]);
                let len = words.len() + (padded / 4) as usize;
                words.resize(len, 0);
            }
            (_, 32..224) => words.extend([which, 4, script.number()]),
            (_, 224..) => words.extend([which, script.number(), script.number()]),
        }
    }
}

/// The octets of a header without what is ignored behind it.
fn own_len(header: &Header, at: usize) -> usize {
    match &header.body {
        Body::Error(_) => HeaderView::FIXED_LEN + 4,
        Body::Grant => GRANT_LEN,
        // Octets behind values, and unknown properties, are in the message only.
        Body::Properties { .. } => HeaderView::FIXED_LEN + 4,
        Body::Call { .. } | Body::Reply { .. } | Body::Part { .. } => at,
    }
}

fn valid(message: &[u8], header: &Header, at: usize) {
    assert!(at <= message.len());
    let view = HeaderView::new(message).expect("a valid header has its prefix");
    let htype = view.procedure();
    assert_eq!((view.version(), view.credits()), (VERSION, header.credits));
    let xid = if htype == header_type::GRANT {
        0
    } else {
        view.xid()
    };
    assert_eq!(header.xid, xid);
    let body = BodyView::new(htype, &message[HeaderView::FIXED_LEN..]);
    match (&header.body, body) {
        (
            Body::Call {
                external,
                invalidate,
                lists,
            },
            BodyView::Rpc(view),
        ) => {
            of_call(*external, lists, &view, at);
            let named = invalidate.map_or(0, |handle| handle.0);
            assert_eq!(view.invalidate, Some(named));
        }
        (Body::Reply { external, lists }, BodyView::Rpc(view)) => {
            of_reply(*external, lists, &view, at)
        }
        (Body::Part { remaining, .. }, BodyView::Part(view)) => {
            assert_eq!((view, at), (Some(*remaining), PART_LEN));
        }
        (Body::Properties { set, .. }, BodyView::Properties(view)) => {
            assert_eq!(view.error, None);
            of_set(set, view.set.values.len());
        }
        (Body::Error(_), BodyView::Error(_)) | (Body::Grant, BodyView::Grant) => {}
        (body, view) => panic!("{body:?} is seen as {view:?}"),
    }
    let mut emitted = Buffer::default();
    header.emit(&mut emitted);
    match &header.body {
        Body::Call { .. } | Body::Reply { .. } | Body::Part { .. } => {
            assert_eq!(*emitted, message[..at])
        }
        Body::Error(_) => assert!(message.starts_with(&emitted)),
        Body::Grant => assert_eq!(emitted.len(), GRANT_LEN),
        Body::Properties { set, .. } => assert_eq!(emitted.len(), properties_len(set)),
    }
    let (again, end) = Header::parse(&emitted).expect("what we send is valid");
    assert_eq!((&again, end), (header, emitted.len()));
    starts(header, &message[at..]);
}

fn of_call(external: bool, lists: &Lists, view: &RpcView, at: usize) {
    within_limits(lists);
    let positions: Vec<u32> = lists.reads.iter().map(|chunk| chunk.position).collect();
    assert!(positions.is_sorted());
    assert_eq!(positions.first() == Some(&0), external);
    let (body, items) = lists.reads.split_at(external.into());
    let body: usize = body.iter().map(|chunk| chunk.segments.len()).sum();
    assert_eq!(view.call_chunk.len(), body);
    let rest = Lists {
        reads: items.to_vec(),
        writes: lists.writes.clone(),
        reply: lists.reply.clone(),
    };
    agree(&rest, &view.lists);
    let reads = lists.reads.iter().map(|chunk| chunk.segments.len()).sum();
    let writes = lists.writes.iter().map(|chunk| chunk.segments.len());
    let reply = lists.reply.as_ref().map(|chunk| chunk.segments.len());
    assert_eq!(call_len(external, reads, writes, reply), at);
    if !external && lists.is_empty() {
        assert_eq!(plain_call(0, 0).len(), at);
    }
}

fn of_reply(external: bool, lists: &Lists, view: &RpcView, at: usize) {
    within_limits(lists);
    assert_eq!(lists.reply.is_some(), external);
    assert!(lists.reads.is_empty() && view.call_chunk.is_empty());
    assert_eq!(view.invalidate, None);
    agree(lists, &view.lists);
    let writes = lists.writes.iter().map(|chunk| chunk.segments.len());
    let reply = lists.reply.as_ref().map(|chunk| chunk.segments.len());
    assert_eq!(reply_len(writes, reply), at);
    if lists.is_empty() {
        assert_eq!(plain_reply(0, 0).len(), at);
    }
}

/// A set has no more values than the message, and applying it changes those alone.
fn of_set(set: &PropertySet, values: usize) {
    let numbers = [
        set.max_send,
        set.receive_buffer,
        set.max_segment_size,
        set.max_segments,
    ];
    let numbers = numbers.iter().flatten().count() + usize::from(set.reverse.is_some());
    let auth = set.host_auth.as_ref();
    assert!(numbers + usize::from(auth.is_some()) <= values);
    assert!(auth.is_none_or(|auth| auth.len() <= MAX_HOST_AUTH as usize));
    let mut properties = Properties::default();
    properties.apply(PropertySet::default());
    assert_eq!(properties, Properties::default());
    properties.apply(set.clone());
    let default = Properties::default();
    assert_eq!(
        properties.max_send,
        set.max_send.unwrap_or(default.max_send)
    );
    assert_eq!(properties.host_auth, set.host_auth);
}

/// The stream is compared with the header only where there is one.
fn starts(header: &Header, stream: &[u8]) {
    let same = stream.len() >= 8
        && stream[..4] == header.xid.to_be_bytes()
        && header
            .direction()
            .is_some_and(|direction| stream[4..8] == direction.word().to_be_bytes());
    if header.direction().is_some() {
        assert_eq!(header.check_start(stream).is_ok(), same);
    }
}

/// No part of a header is one.
fn cut_short(message: &[u8]) {
    match Header::parse(message) {
        Ok(part) => panic!("a part of a header is taken for {part:?}"),
        Err(error) => invalid(message, error),
    }
}

/// Nobody is answered whose message is too short, an error or a reply.
fn invalid(message: &[u8], why: HeaderError) {
    let Some(view) = HeaderView::new(message) else {
        assert_eq!(why, HeaderError::Runt);
        return;
    };
    let (echoed, version, error) = match why.disposition() {
        Disposition::Discard => return,
        Disposition::OtherVersion { xid, version } => {
            assert_ne!(version, VERSION);
            (xid, version, RdmaError::VersionMismatch)
        }
        Disposition::Answer { xid, error } => {
            if let HeaderError::Malformed { direction, .. } = why {
                assert_ne!(direction, Some(Direction::Reply));
            }
            (xid, VERSION, error)
        }
    };
    assert_eq!((echoed, version), (view.xid(), view.version()));
    assert_ne!(view.procedure(), header_type::ERROR);
    // What is owed can be read by whoever it is for.
    let mut emitted = Buffer::default();
    emit_error(&mut emitted, echoed, VERSION, 1, error);
    let (read, _) = Header::parse(&emitted).expect("it can be read");
    assert_eq!(read.body, Body::Error(error));
}
