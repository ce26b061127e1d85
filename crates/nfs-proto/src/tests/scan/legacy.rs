//! Scans of versions 2 and 3: against what this crate writes, and by hand.

use super::super::{Rng, Sample};
use super::{place, scan, scan_reply, stream, words};
use crate::results::{self, Res};
use crate::scan::{ItemPlace, ScannedCall};
use crate::{Arguments, Attributes, Wire, args};
use oncrpc::xdr::{Payload, Writer};
use oncrpc::{Credential, Procedure, write_call};
use proptest::prelude::*;

/// A message as this crate writes it, with its by-reference item.
fn written<'a>(header: impl FnOnce(&mut Writer), body: &impl Wire<'a>) -> Payload {
    let mut w = Writer::default();
    header(&mut w);
    body.write(&mut w);
    w.finish()
}

/// The argument of a call that has one at most.
fn argument(call: &ScannedCall) -> Option<ItemPlace> {
    assert!(call.arguments.len() <= 1);
    call.arguments.first().copied()
}

fn result(call: &ScannedCall, reply: &[u8], piece: usize) -> Option<ItemPlace> {
    scan_reply(call, reply, piece).results.first().copied()
}

fn item(payload: &Payload) -> Option<ItemPlace> {
    let length = payload.items().first()?.len();
    Some(place(payload.position(0), length))
}

fn check_call<'a, A: Arguments<'a>>(args: &A, piece: usize) -> Result<(), TestCaseError> {
    let target = Procedure {
        prog: A::PROGRAM,
        vers: A::VERSION,
        proc: A::PROCEDURE,
    };
    let payload = written(|w| write_call(w, 9, target, &Credential::None), args);
    let call = stream(&payload);
    let found = scan(&call, piece).unwrap();
    prop_assert_eq!(argument(&found), item(&payload));
    prop_assert_eq!((found.xid, found.procedure), (9, A::PROCEDURE));
    // Samples may ask for more than a gateway can carry.
    if let Some(reply) = found.reply {
        prop_assert_eq!(reply, args.reply_bound());
    }
    if let Some(item) = item(&payload) {
        let cut = scan(&call[..item.end() - 1], piece).unwrap();
        prop_assert_eq!((argument(&cut), cut.reply), (None, None));
    }
    Ok(())
}

fn check_reply<'a>(
    procedure: u32,
    reply: &impl Wire<'a>,
    piece: usize,
) -> Result<(), TestCaseError> {
    let call = expecting(3, procedure);
    let header = |w: &mut Writer| {
        words(&[9, 1, 0, 0, 0, 0]).chunks(4).for_each(|word| {
            w.u32(u32::from_be_bytes(word.try_into().unwrap()));
        })
    };
    let payload = written(header, reply);
    prop_assert_eq!(result(&call, &stream(&payload), piece), item(&payload));
    Ok(())
}

/// A call of READLINK or READ.
fn expecting(version: u32, procedure: u32) -> ScannedCall {
    let mut call = words(&[9, 0, 2, 100_003, version, procedure, 0, 0, 0, 0]);
    call.extend(words(&match version {
        3 => vec![4, 0xab, 0, 0, 65536],
        _ => vec![0, 0, 0, 0, 0, 0, 0, 0, 0, 4096, 0],
    }));
    scan(&call, call.len()).unwrap()
}

proptest! {
    #[test]
    fn scans_find_what_is_written_by_reference(seed: u64, piece in 1usize..64) {
        let rng = &mut Rng::new(seed);
        check_call(&args::Write::sample(rng), piece)?;
        check_call(&args::Symlink::sample(rng), piece)?;
        check_call(&args::Read::sample(rng), piece)?;
        check_call(&args::ReadLink::sample(rng), piece)?;
        check_call(&args::ReadDir::sample(rng), piece)?;
        check_call(&args::ReadDirPlus::sample(rng), piece)?;
        check_call(&args::Rename::sample(rng), piece)?;
        check_reply(5, &Res::<results::ReadLink<'_>, Option<Attributes>>::sample(rng), piece)?;
        check_reply(6, &Res::<results::Read<'_>, Option<Attributes>>::sample(rng), piece)?;
    }

    #[test]
    fn pieces_do_not_matter_and_items_are_inside(
        version in 2u32..4,
        procedure in 0u32..24,
        args in proptest::collection::vec(prop_oneof![0u32..40, any::<u32>()], 0..40),
        piece in 1usize..40,
    ) {
        let mut call = words(&[9, 0, 2, 100_003, version, procedure, 0, 0, 0, 0]);
        call.extend(words(&args));
        let whole = scan(&call, call.len());
        prop_assert_eq!(&scan(&call, piece), &whole);
        let end = whole.and_then(|call| argument(&call)).map_or(0, ItemPlace::end);
        prop_assert!(end <= call.len());
    }

    #[test]
    fn any_bytes_are_scanned(bytes: Vec<u8>, piece in 1usize..40) {
        prop_assert_eq!(scan(&bytes, piece), scan(&bytes, bytes.len().max(1)));
        let found = result(&expecting(3, 6), &bytes, piece);
        prop_assert!(found.is_none_or(|item| item.end() <= bytes.len()));
    }
}

#[test]
fn version_2_has_its_data_after_three_unused_words() {
    let mut call = words(&[7, 0, 2, 100_003, 2, 8, 1, 4, 0, 0, 0]);
    call.extend([0; 32]);
    call.extend(words(&[0, 0, 0, 5]));
    call.extend(b"hello\0\0\0");
    let found = scan(&call, 5).unwrap();
    let place = ItemPlace {
        offset: 44 + 32 + 16,
        length: 5,
    };
    assert_eq!(argument(&found), Some(place));
    assert_eq!((place.padding(), place.end()), (3, call.len()));
    assert_eq!(found.flavor, 1);
    assert_eq!(found.reply.unwrap().fixed, 24 + 4 + 68);
}

#[test]
fn version_2_results_are_found() {
    let read = expecting(2, 6);
    assert_eq!(read.reply.as_ref().unwrap().results[..], [4096]);
    let mut reply = words(&[9, 1, 0, 0, 0, 0, 0]);
    reply.extend([0; 68]);
    reply.extend(b"\0\0\0\x02hi\0\0");
    let place = ItemPlace {
        offset: 28 + 68 + 4,
        length: 2,
    };
    assert_eq!(result(&read, &reply, 3), Some(place));
    // Cut in the padding, another XID, and another status.
    assert_eq!(result(&read, &reply[..reply.len() - 1], 3), None);
    let changed = |at: usize| {
        let mut reply = reply.clone();
        reply[at] ^= 1;
        result(&read, &reply, 3)
    };
    assert_eq!((changed(3), changed(27)), (None, None));
}

/// READ of version 3 with a credential of RPCSEC_GSS, whose handle has four bytes.
fn gss(procedure: u32, service: u32) -> ScannedCall {
    let credential = [6, 24, 1, procedure, 1, service, 4, 0xabcd];
    let verifier = [6, 4, 0x1234];
    let args = [4, 0xab, 0, 0, 512];
    let header = [9, 0, 2, 100_003, 3, 6];
    scan(
        &words(&[&header[..], &credential, &verifier, &args].concat()),
        4,
    )
    .unwrap()
}

#[test]
fn rpcsec_gss_has_items_only_where_arguments_are_in_clear() {
    let clear = gss(0, 1).reply.unwrap();
    assert_eq!(
        (clear.fixed, &clear.results[..]),
        (24 + 4 + 88 + 12 + 400, &[512][..])
    );
    // Integrity, privacy, and the making of a context.
    for (procedure, service) in [(0, 2), (0, 3), (1, 1)] {
        let call = gss(procedure, service);
        assert_eq!((call.flavor, call.reply), (6, None));
    }
}

#[test]
fn call_with_an_unknown_rpcsec_gss_credential_passes_without_items() {
    let header = [9, 0, 2, 100_003, 3, 6];
    // Version 3 (RFC 7861 §2.3), and a credential that is too short for its fixed fields.
    for credential in [&[6, 24, 3, 0, 1, 1, 4, 0xabcd][..], &[6, 4, 1]] {
        let rest = [0, 0, 4, 0xab, 0, 0, 512];
        let call = scan(&words(&[&header[..], credential, &rest].concat()), 5).unwrap();
        assert_eq!((call.xid, call.procedure, call.flavor), (9, 6, 6));
        assert_eq!((argument(&call), call.reply), (None, None));
    }
}

#[test]
fn counts_above_the_limits_have_no_bound() {
    let read = |count| {
        let call = words(&[9, 0, 2, 100_003, 3, 6, 0, 0, 0, 0, 4, 0xab, 0, 0, count]);
        scan(&call, 7).unwrap().reply
    };
    assert!(read(crate::limits::MAX_DATA).is_some());
    assert_eq!(read(crate::limits::MAX_DATA + 1), None);
}

#[test]
fn other_programs_pass_without_items() {
    for (program, version) in [(100_005, 3), (100_227, 3), (100_003, 5), (0x4000_0000, 1)] {
        let call = words(&[9, 0, 2, program, version, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(argument(&scan(&call, 7).unwrap()), None);
    }
    // A reply is not a call.
    assert_eq!(scan(&words(&[9, 1, 0, 0, 0, 0, 0, 0, 0, 0]), 7), None);
}

#[test]
fn auxiliary_programs_have_bounds_where_their_results_are_limited() {
    let bound = |program, version, procedure| {
        let call = words(&[9, 0, 2, program, version, procedure, 0, 0, 0, 0, 0, 0]);
        scan(&call, 7).unwrap().reply.map(|bound| bound.fixed)
    };
    // NULL of MOUNT, NLM, NSM, rpcbind and NFSACL: room for PROG_MISMATCH.
    for program in [100_005, 100_021, 100_024, 100_000, 100_227] {
        assert_eq!(bound(program, 1, 0), Some(32));
    }
    // MNT of versions 1 and 3, UMNT, and EXPORT without a limit.
    assert_eq!(bound(100_005, 1, 1), Some(24 + 36));
    assert_eq!(bound(100_005, 3, 1), Some(24 + 4 + 68 + 4 + 4 * 64));
    assert_eq!(
        (bound(100_005, 3, 3), bound(100_005, 3, 5)),
        (Some(32), None)
    );
    // LOCK: a cookie of 1024 bytes, and the status.
    assert_eq!(bound(100_021, 4, 2), Some(24 + 1028 + 4));
    // GETPORT, DUMP of the portmapper; SETACL, GETACL.
    assert_eq!(
        (bound(100_000, 2, 3), bound(100_000, 2, 4)),
        (Some(32), None)
    );
    assert_eq!(
        (bound(100_227, 3, 2), bound(100_227, 3, 1)),
        (Some(24 + 92), None)
    );
    // A program of the client's choice, as for callbacks.
    assert_eq!(bound(0x4000_0000, 1, 0), None);
}

#[test]
fn getacl_may_be_sent_again_with_a_larger_reply_chunk() {
    let retry = |program, procedure| {
        let call = words(&[9, 0, 2, program, 3, procedure, 0, 0, 0, 0, 4, 0xab, 0]);
        scan(&call, 7).unwrap().short_reply_retry
    };
    assert!(retry(100_227, 1));
    assert!(!retry(100_227, 2) && !retry(100_003, 1));
}
