//! The transport header of version two (cel-01 §4.2).

use crate::memory::within;
use crate::rpcrdma_header::{MEMORY, MEMORY_PER_BYTE, agree, bytes, made_up_lists, within_limits};
use crate::script::Script;
use buffer::Buffer;
use rpcrdma_proto::limits::MAX_INVALIDATE_HANDLES;
use rpcrdma_proto::v2::header::{
    self, Body, BodyView, ChunkLists, ChunkListsView, Direction, Disposition, Header, HeaderError,
    HeaderView, Invalidate, MIN_LEN, Optional, OptionalView, RdmaError, VERSION, WordLayout,
    emit_error, procedure,
};
use rpcrdma_proto::{Refusal, Role, version_of};

/// A received message.
pub fn rpcrdma_v2_header(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let layout = script.pick(&[WordLayout::None, WordLayout::One, WordLayout::Several]);
    let cut = script.word() as usize;
    let message = &script.rest_or(made_up);
    let most = MEMORY + MEMORY_PER_BYTE * message.len();
    match within(most, || Header::parse(message, layout)) {
        Ok((header, at)) => {
            valid(message, layout, &header, at);
            if at > 0 {
                cut_short(&message[..cut % at], layout, &header);
            }
        }
        Err(error) => invalid(message, error),
    }
    let body = message.get(HeaderView::FIXED_LEN..).unwrap_or(&[]);
    for proc in 0..6 {
        within(most, || BodyView::new(proc, layout, body));
    }
    for role in [Role::Client, Role::Server] {
        let refusal = within(most, || {
            Refusal::of(message, role, || cut.is_multiple_of(2))
        });
        if let Some(refusal) = refusal {
            refused(message, refusal);
        }
    }
}

/// A header as the script has it, to its end.
fn made_up(script: &mut Script<'_>) -> Vec<u8> {
    let mut words = vec![script.word(), script.pick(&[2, 2, 2, 2, 2, 2, 2, 2, 1, 3])];
    let proc = script.pick(&[0, 0, 0, 0, 1, 1, 1, 5, 5, 4, 2, 6]);
    words.extend([script.number(), proc, script.pick(&[0, 0, 0, 1, 1, 2])]);
    match proc {
        procedure::OPTIONAL => {
            let len = script.number();
            words.extend([script.number(), len]);
            let mut message = bytes(&words);
            message.extend_from_slice(script.rest());
            // Padding would nearly never be there.
            message.resize(message.len() + len as usize % 4, 0);
            return message;
        }
        _ => made_up_lists(script, &mut words),
    }
    bytes(&words)
}

fn valid(message: &[u8], layout: WordLayout, header: &Header, at: usize) {
    assert!(at <= message.len());
    let view = HeaderView::new(message).expect("a valid header has its fixed words");
    assert_eq!((view.xid(), view.credits()), (header.xid, header.credits));
    assert_eq!(version_of(message), Some(VERSION));
    let body = BodyView::new(view.procedure(), layout, &message[HeaderView::FIXED_LEN..]);
    let mut emitted = Buffer::default();
    match (&header.body, body) {
        (Body::Msg(chunks) | Body::NoMsg(chunks), BodyView::Chunks(view)) => {
            of_chunks(chunks, &view, layout, at);
        }
        (Body::Error(_), BodyView::Error(_)) => assert_eq!(header.direction(), Direction::Reply),
        (Body::Optional(optional), BodyView::Optional(view)) => {
            of_optional(optional, view);
            assert_eq!(at, header::optional_len(optional.info.len()));
            assert_eq!(message.len() - at, view.rest.len());
        }
        (body, view) => panic!("{body:?} is seen as {view:?}"),
    }
    emit(&mut emitted, header);
    match &header.body {
        Body::Msg(_) | Body::NoMsg(_) => {
            assert_eq!(emitted.len(), at, "as many as it was read from")
        }
        Body::Error(_) => assert!(message.starts_with(&emitted)),
        Body::Optional(_) => assert_eq!(*emitted, message[..at]),
    }
    let (again, end) = Header::parse(&emitted, layout).expect("what we send is valid");
    assert_eq!((&again, end), (header, emitted.len()));
}

fn emit(out: &mut Buffer, header: &Header) {
    let (xid, credits) = (header.xid, header.credits);
    match &header.body {
        Body::Msg(chunks) => header::emit(out, procedure::MSG, xid, credits, chunks),
        Body::NoMsg(chunks) => header::emit(out, procedure::NOMSG, xid, credits, chunks),
        Body::Error(error) => header::emit_error(out, xid, VERSION, credits, *error),
        Body::Optional(Optional {
            direction,
            operation,
            info,
        }) => header::emit_optional(out, xid, credits, *direction, *operation, info),
    }
}

fn of_chunks(chunks: &ChunkLists, view: &ChunkListsView, layout: WordLayout, at: usize) {
    let lists = &chunks.lists;
    within_limits(lists);
    agree(lists, &view.lists);
    assert_eq!(view.direction, Some(chunks.direction.word()));
    let named = chunks.invalidate.handles();
    assert!(named.len() <= MAX_INVALIDATE_HANDLES);
    assert_eq!(chunks.invalidate.layout(), layout);
    let seen = &view.invalidate.handles;
    match chunks.invalidate {
        Invalidate::Unsaid => assert!(seen.is_empty()),
        Invalidate::One(None) => assert_eq!(seen[..], [0]),
        Invalidate::One(Some(handle)) => {
            assert_ne!(handle.0, 0);
            assert_eq!(seen[..], [handle.0]);
        }
        Invalidate::Several(_) => assert!(named.iter().map(|handle| handle.0).eq(seen.clone())),
    }
    let reads = lists.reads.iter().map(|chunk| chunk.segments.len()).sum();
    let writes = lists.writes.iter().map(|chunk| chunk.segments.len());
    let reply = lists.reply.as_ref().map(|chunk| chunk.segments.len());
    let len = header::emitted_len(layout, named.len(), reads, writes, reply);
    assert_eq!(len, at);
}

fn of_optional(optional: &Optional, view: OptionalView<'_>) {
    assert_eq!(view.error, None);
    assert_eq!(view.direction, Some(optional.direction.word()));
    assert_eq!(view.operation, Some(optional.operation));
    assert_eq!(view.info, optional.info);
}

/// No part of a header is one; a part of an error, which has no length, may be.
fn cut_short(message: &[u8], layout: WordLayout, whole: &Header) {
    match (Header::parse(message, layout), &whole.body) {
        (Ok((part, _)), Body::Error(_)) => assert_eq!(part, *whole),
        (Ok(_), _) => panic!("a part of a header is taken for one"),
        (Err(error), _) => invalid(message, error),
    }
}

/// Nobody is answered whose message is too short, or no call.
fn invalid(message: &[u8], error: HeaderError) {
    let Some(view) = HeaderView::new(message) else {
        assert_eq!(error, HeaderError::Runt);
        return;
    };
    let (echoed, asked) = match error.disposition() {
        Disposition::Discard => return,
        Disposition::ErrVers {
            xid,
            version,
            credits,
        } => {
            assert_ne!(version, VERSION);
            assert_eq!(version, view.version());
            (xid, credits)
        }
        Disposition::BadHeader { xid, credits } => {
            assert_ne!(error.direction(), Some(Direction::Reply));
            (xid, credits)
        }
        Disposition::InvalOption { .. } => panic!("a header knows no operations"),
    };
    assert!(message.len() >= MIN_LEN);
    assert_eq!((echoed, asked), (view.xid(), view.credits()));
    assert_ne!(view.procedure(), procedure::ERROR);
}

fn refused(message: &[u8], refusal: Refusal) {
    let view = HeaderView::new(message).expect("it has an XID");
    assert!(message.len() >= MIN_LEN);
    assert_ne!(view.procedure(), procedure::ERROR);
    assert_eq!((refusal.xid, refusal.version), (view.xid(), view.version()));
    let mut emitted = Buffer::default();
    let range = RdmaError::Version { low: 1, high: 2 };
    emit_error(&mut emitted, refusal.xid, refusal.version, 1, range);
    if refusal.version == VERSION {
        let (read, _) = Header::parse(&emitted, WordLayout::None).expect("it can be read");
        assert_eq!(read.body, Body::Error(range));
    }
}
