//! Headers of DDP and RDMAP, and the Terminate (RFC 5041 §4, RFC 5040 §4).

use crate::memory::within;
use crate::script::Script;
use iwarp_proto::ddp::{Header, TaggedView, UntaggedView};
use iwarp_proto::fpdu;
use iwarp_proto::rdmap::{Control, ReadRequest};
use iwarp_proto::terminate::Terminate;

/// Headers are values; only a Terminate is made in memory of its own.
const MEMORY: usize = 1 << 10;

/// One segment, read as each of the things that can be in it.
pub fn ddp(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let what = script.below(3);
    let bytes = script.rest();
    within(MEMORY, || match what {
        0 => header(bytes),
        1 => request(bytes),
        _ => terminate(bytes),
    });
    let length = bytes.len() % (fpdu::MAX_ULPDU + 1);
    let wire = fpdu::wire_len(length);
    assert!(wire.is_multiple_of(4) && wire >= length + 6 && wire < length + 10);
}

fn header(bytes: &[u8]) {
    let Some(header) = Header::read(bytes) else {
        assert!(bytes.len() < iwarp_proto::ddp::MAX_HEADER_LEN);
        return;
    };
    let len = header.wire_len();
    let mut emitted = Vec::new();
    header.emit(&mut emitted);
    assert_eq!(emitted, bytes[..len]);
    match header {
        Header::Tagged { stag, offset, .. } => {
            let view = TaggedView::new(bytes).expect("there is one");
            assert_eq!((view.stag(), view.offset()), (stag, offset));
        }
        Header::Untagged {
            queue, sequence, ..
        } => {
            let view = UntaggedView::new(bytes).expect("there is one");
            assert_eq!((view.queue(), view.sequence()), (queue, sequence));
        }
    }
    if let Some(opcode) = Control(bytes[1]).opcode() {
        assert_eq!(opcode.number(), bytes[1] & 0x0f);
    }
}

fn request(bytes: &[u8]) {
    if let Some(bytes) = bytes.first_chunk() {
        assert_eq!(ReadRequest::parse(bytes).emit(), *bytes);
    }
}

fn terminate(bytes: &[u8]) {
    let Some(terminate) = Terminate::parse(bytes) else {
        assert!(bytes.len() < 4);
        return;
    };
    assert!(!terminate.cause.to_string().is_empty());
    let emitted = terminate.emit();
    assert!(emitted.len() <= Terminate::MAX_LEN);
    // A cause that nobody knows, with nothing else, may have been meant in either order.
    if terminate.segment.is_some() || terminate.cause.words().is_some() {
        assert_eq!(Terminate::parse(&emitted), Some(terminate));
    }
}
