//! MPA frames and private data (RFC 5044 §7.1, RFC 6581, RFC 8797).

use crate::memory::within;
use crate::script::Script;
use iwarp_proto::mpa::{
    Frame, FrameError, FrameReader, Initiator, Kind, MAX_DEPTH, MAX_PRIVATE_DATA, Offer, REV1_ORD,
    Responder, Revision,
};
use rpcrdma_proto::PrivateData;
use rpcrdma_proto::private_data::PrivateDataView;
use std::mem::discriminant;

/// Bytes of the fixed part of a frame.
const FIXED_LEN: usize = 20;

/// A frame is read once into the reader and once into its value, and each may have grown by half.
const MEMORY: usize = 8 << 10;

/// Takes the beginning of a connection in pieces.
pub fn mpa(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let kind = script.pick(&[Kind::Request, Kind::Reply]);
    let piece = 1 + usize::from(script.byte());
    let offer = Offer {
        crc: script.flag(),
        ird: u16::from(script.byte()),
        ord: u16::from(script.byte()),
        peer_to_peer: script.flag(),
    };
    let rest = script.rest();
    // Most inputs would never get beyond the key.
    let keyed;
    let bytes = match rest.split_first() {
        Some((1.., rest)) => {
            keyed = [kind.key(), rest].concat();
            &keyed
        }
        _ => rest,
    };
    let whole = within(MEMORY, || read(kind, bytes, usize::MAX));
    // What an error shows of the bytes is what had come.
    match (read(kind, bytes, piece), &whole) {
        (Err(error), Err(other)) => assert_eq!(discriminant(&error), discriminant(other)),
        (cut, whole) => assert_eq!(&cut, whole, "the cut does not matter"),
    }
    find(bytes);
    let Ok(Some((frame, len))) = whole else {
        return;
    };
    check_frame(&frame, len);
    match kind {
        Kind::Request => answer(frame, offer),
        Kind::Reply => understand(&frame, offer),
    }
}

/// The frame, and how many bytes it took.
fn read(kind: Kind, bytes: &[u8], piece: usize) -> Result<Option<(Frame, usize)>, FrameError> {
    let mut reader = FrameReader::new(kind);
    let mut at = 0;
    while at < bytes.len() {
        let wanted = reader.wanted();
        assert!(wanted > 0, "a reader that wants nothing has its frame");
        assert!(wanted <= FIXED_LEN + usize::from(u16::MAX));
        let len = piece.min(wanted).min(bytes.len() - at);
        let frame = reader.take(&bytes[at..at + len])?;
        at += len;
        if let Some(frame) = frame {
            return Ok(Some((frame, at)));
        }
    }
    Ok(None)
}

fn check_frame(frame: &Frame, len: usize) {
    assert!(len <= FIXED_LEN + MAX_PRIVATE_DATA);
    assert!(frame.private_data.len() <= Frame::capacity(frame.enhanced.is_some()));
    assert!(frame.revision == Revision::Two || frame.enhanced.is_none());
    let emitted = frame.emit();
    assert_eq!(emitted.len(), len);
    let again = read(frame.kind, &emitted, usize::MAX);
    assert_eq!(again, Ok(Some((frame.clone(), len))), "what is sent again");
}

/// A responder accepts whatever is valid, and its initiator understands that.
fn answer(request: Frame, offer: Offer) {
    let theirs = request.enhanced;
    let requested = Responder.request(request.clone());
    let user = vec![0xa5; requested.capacity()];
    let (reply, agreed) = requested.accept(offer, &user);
    assert_eq!(reply.kind, Kind::Reply);
    assert!(!reply.reject);
    check_frame(&reply, reply.emit().len());
    assert_eq!(agreed.crc, offer.crc || request.crc);
    assert!(
        agreed.ord <= offer.ord,
        "no Read more than we have room for"
    );
    assert_eq!(agreed.enhanced, theirs.is_some());
    let rejected = requested.reject(&user);
    assert!(rejected.reject);
    check_frame(&rejected, rejected.emit().len());

    let Some(theirs) = theirs else {
        assert!(agreed.ord <= REV1_ORD);
        return;
    };
    if theirs.peer_to_peer.is_some() || theirs.ird > MAX_DEPTH || theirs.ord > MAX_DEPTH {
        return;
    }
    let initiator = Initiator::new(Offer {
        crc: request.crc,
        ird: theirs.ird,
        ord: theirs.ord,
        peer_to_peer: false,
    });
    let seen = initiator.reply(&reply).expect("our own reply");
    assert!(
        seen.ord <= agreed.ird,
        "we serve what the peer may have out"
    );
    assert!(
        agreed.ord <= seen.ird,
        "the peer serves what we may have out"
    );
    assert_eq!(seen.crc, agreed.crc);
}

/// An initiator takes a reply or refuses it, and never beyond its own offer.
fn understand(reply: &Frame, offer: Offer) {
    for initiator in [Initiator::new(offer), Initiator::revision_one(offer)] {
        if let Ok(agreed) = initiator.reply(reply) {
            assert!(!reply.reject);
            assert_eq!(agreed.crc, offer.crc || reply.crc);
            assert!(agreed.ord <= offer.ord);
            assert!(agreed.ird <= offer.ird.max(MAX_DEPTH));
        }
    }
}

/// RFC 8797 §5.2: the first valid structure, wherever it stands.
fn find(bytes: &[u8]) {
    let found = PrivateData::find(bytes);
    let each = (0..bytes.len()).filter_map(|at| PrivateDataView::new(&bytes[at..]));
    assert_eq!(found, each.clone().find_map(PrivateData::parse));
    for view in each {
        if let Some(strict) = PrivateData::parse_strict(view) {
            assert_eq!(PrivateData::parse(view), Some(strict));
        }
    }
    if let Some(found) = found {
        assert_eq!(PrivateData::find(&found.emit()), Some(found));
        let thresholds = PrivateData::ABSENT.thresholds(found);
        assert_eq!(thresholds.send, PrivateData::ABSENT.send, "the smaller one");
    }
}
