//! Headers of calls and replies against their bytes, whole and cut off.

use super::*;
use crate::auth::{AUTH_NONE, AUTH_SYS, AuthSys};
use proptest::collection::vec;
use proptest::prelude::*;

const NFS_NULL: Procedure = Procedure {
    prog: 100_003,
    vers: 3,
    proc: 0,
};

fn call(cred: &Credential) -> Payload {
    let mut w = Writer::default();
    write_call(&mut w, 0x0102_0304, NFS_NULL, cred);
    w.finish()
}

fn reply(status: ReplyStatus<'_>) -> Payload {
    let mut w = Writer::default();
    ReplyHeader { xid: 7, status }.write(&mut w);
    w.finish()
}

fn words(payload: &Payload) -> Vec<u32> {
    payload
        .head()
        .chunks_exact(4)
        .map(|word| u32::from_be_bytes(word.try_into().unwrap()))
        .collect()
}

#[test]
fn null_call_is_ten_words() {
    assert_eq!(
        words(&call(&Credential::None)),
        [0x0102_0304, 0, 2, 100_003, 3, 0, 0, 0, 0, 0]
    );
}

#[test]
fn signed_call_is_the_same_as_one_written_whole() {
    let sys = Credential::Sys(AuthSys {
        uid: 1000,
        gids: [4, 24].into_iter().collect(),
        ..AuthSys::default()
    });
    for cred in [Credential::None, sys] {
        let mut w = Writer::default();
        EncodedCredential::new(&cred).write_call(&mut w, 0x0102_0304, NFS_NULL);
        assert_eq!(w.finish().head(), call(&cred).head());
    }
}

#[test]
fn auth_sys_call_stands_on_the_wire_as_in_appendix_a() {
    let cred = Credential::Sys(AuthSys {
        stamp: 9,
        machine_name: SmallName::from_slice(b"box"),
        uid: 1000,
        gid: 100,
        gids: [4, 24].into_iter().collect(),
    });
    let payload = call(&cred);
    assert_eq!(
        words(&payload)[6..],
        [
            1,
            32,
            9,
            3,
            0x626f_7800,
            1000,
            100,
            2,
            4,
            24, // credential
            0,
            0, // verifier
        ]
    );
    let header = CallHeader::parse(&mut Reader::from(&payload)).unwrap();
    assert_eq!(header.cred.flavour, AUTH_SYS);
    assert_eq!(header.verf.flavour, AUTH_NONE);
    assert_eq!(Credential::parse(header.cred), Ok(cred));
}

type SmallName = smallvec::SmallVec<[u8; 64]>;

#[test]
fn call_cut_off_anywhere_is_garbage_or_no_call() {
    let whole = call(&Credential::None);
    for len in 0..whole.head().len() {
        let error = CallHeader::parse(&mut Reader::new(&whole.head()[..len])).unwrap_err();
        match len {
            0..8 => assert_eq!(error, CallError::NotACall),
            _ => assert!(matches!(
                error,
                CallError::Garbage {
                    xid: 0x0102_0304,
                    ..
                }
            )),
        }
    }
}

#[test]
fn other_rpc_version_is_told_apart_before_anything_else_is_read() {
    let bytes: Vec<u8> = [5u32, 0, 3]
        .into_iter()
        .flat_map(u32::to_be_bytes)
        .collect();
    assert_eq!(
        CallHeader::parse(&mut Reader::new(&bytes)),
        Err(CallError::RpcVersion { xid: 5, version: 3 })
    );
}

#[test]
fn overlong_credential_and_verifier_are_authentication_errors() {
    let header = |cred: usize, verf: usize| {
        let mut w = Writer::default();
        for word in [5, 0, 2, 100_003, 3, 0, 6] {
            w.u32(word);
        }
        w.opaque(&vec![0; cred]);
        w.u32(0);
        w.opaque(&vec![0; verf]);
        w.finish()
    };
    let check = |cred, verf, expected: Option<AuthStat>| {
        let payload = header(cred, verf);
        let error = CallHeader::parse(&mut Reader::from(&payload)).err();
        assert_eq!(error, expected.map(|stat| CallError::Auth { xid: 5, stat }));
    };
    check(400, 400, None);
    check(401, 0, Some(AuthStat::BadCred));
    check(0, 401, Some(AuthStat::BadVerf));
}

#[test]
fn every_reply_status_has_its_encoding() {
    use AcceptStatus::*;
    let check = |status, tail: &[u32]| {
        let payload = reply(status);
        assert_eq!(words(&payload)[..2], [7, 1]);
        assert_eq!(words(&payload)[2..], *tail);
        let parsed = ReplyHeader::parse(&mut Reader::from(&payload)).unwrap();
        assert_eq!(parsed, ReplyHeader { xid: 7, status });
    };
    check(ReplyStatus::accepted(Success), &[0, 0, 0, 0]);
    check(ReplyStatus::accepted(ProgUnavail), &[0, 0, 0, 1]);
    check(
        ReplyStatus::accepted(ProgMismatch { low: 2, high: 4 }),
        &[0, 0, 0, 2, 2, 4],
    );
    check(ReplyStatus::accepted(ProcUnavail), &[0, 0, 0, 3]);
    check(ReplyStatus::accepted(GarbageArgs), &[0, 0, 0, 4]);
    check(ReplyStatus::accepted(SystemErr), &[0, 0, 0, 5]);
    check(
        ReplyStatus::Denied(RejectStatus::RpcMismatch { low: 2, high: 2 }),
        &[1, 0, 2, 2],
    );
    check(
        ReplyStatus::Denied(RejectStatus::AuthError(AuthStat::TooWeak)),
        &[1, 1, 5],
    );
}

#[test]
fn successful_reply_leaves_the_reader_at_the_results() {
    let mut w = Writer::default();
    ReplyHeader {
        xid: 7,
        status: ReplyStatus::accepted(AcceptStatus::Success),
    }
    .write(&mut w);
    assert_eq!(w.len(), REPLY_HEADER);
    w.u32(99);
    let payload = w.finish();
    assert_eq!(read_reply(&payload, 7).unwrap().u32(), Ok(99));
    assert_eq!(read_reply(&payload, 8).unwrap_err(), RpcError::OtherXid);
}

#[test]
fn reply_without_results_is_an_error_that_says_why() {
    let check = |status, error| {
        assert_eq!(read_reply(&reply(status), 7).unwrap_err(), error);
    };
    let accepted = ReplyStatus::accepted;
    check(accepted(AcceptStatus::ProgUnavail), RpcError::ProgUnavail);
    check(
        accepted(AcceptStatus::ProgMismatch { low: 3, high: 4 }),
        RpcError::ProgMismatch { low: 3, high: 4 },
    );
    check(accepted(AcceptStatus::ProcUnavail), RpcError::ProcUnavail);
    check(accepted(AcceptStatus::GarbageArgs), RpcError::GarbageArgs);
    check(accepted(AcceptStatus::SystemErr), RpcError::SystemErr);
    check(
        ReplyStatus::Denied(RejectStatus::RpcMismatch { low: 2, high: 2 }),
        RpcError::RpcMismatch { low: 2, high: 2 },
    );
    check(
        ReplyStatus::Denied(RejectStatus::AuthError(AuthStat::BadCred)),
        RpcError::Auth(AuthStat::BadCred),
    );
}

#[test]
fn a_call_is_not_a_reply() {
    assert!(matches!(
        read_reply(&call(&Credential::None), 0x0102_0304).unwrap_err(),
        RpcError::Malformed(Error::NotInEnum { value: 0, .. })
    ));
}

proptest! {
    #[test]
    fn no_bytes_make_a_parser_panic(bytes in vec(any::<u8>(), 0..600)) {
        let _ = CallHeader::parse(&mut Reader::new(&bytes));
        let _ = ReplyHeader::parse(&mut Reader::new(&bytes));
    }

    #[test]
    fn no_bytes_behind_a_sound_start_make_a_parser_panic(
        kind in 0u32..2,
        bytes in vec(any::<u8>(), 0..600),
    ) {
        let mut w = Writer::default();
        for word in [1, kind, 2 * (1 - kind)] {
            w.u32(word);
        }
        w.fixed(&bytes);
        let payload = w.finish();
        let _ = CallHeader::parse(&mut Reader::from(&payload));
        let _ = ReplyHeader::parse(&mut Reader::from(&payload));
    }

    #[test]
    fn calls_round_trip(xid: u32, prog: u32, vers: u32, proc: u32) {
        let mut w = Writer::default();
        write_call(&mut w, xid, Procedure { prog, vers, proc }, &Credential::None);
        let payload = w.finish();
        let header = CallHeader::parse(&mut Reader::from(&payload)).unwrap();
        let expected = CallHeader {
            xid, prog, vers, proc, cred: OpaqueAuth::NONE, verf: OpaqueAuth::NONE,
        };
        prop_assert_eq!(header, expected);
    }
}
