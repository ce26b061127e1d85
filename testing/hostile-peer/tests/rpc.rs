//! Invalid RPC messages in valid transport headers, and the replies of RFC 5531 §9.

use hostile_peer::rpc::accept;
use hostile_peer::{PROGRAM, Peer, Target, Version, procedure, rpc, words};

const XID: u32 = 0x0bad_ca11;
const RPC_MISMATCH: u32 = 0;
const AUTH_ERROR: u32 = 1;
const AUTH_BADCRED: u32 = 1;
const AUTH_BADVERF: u32 = 3;
const AUTH_SYS: u32 = 1;

/// Each call is answered like this, in either version, on a connection that goes on.
#[track_caller]
fn check(target: &Target, call: &[u32], expected: &[u32]) {
    for version in Version::BOTH {
        let mut peer = Peer::connect(target.addr());
        for _ in 0..2 {
            peer.send(&words(&version.call(&rpc::msg(XID, 4, call))));
            assert_eq!(peer.answer(), version.reply(&rpc::msg(XID, 4, expected)));
        }
    }
    target.assert_serves();
}

fn add(arguments: &[u32]) -> Vec<u32> {
    rpc::call_with(XID, [PROGRAM, 2, procedure::ADD], arguments)
}

#[test]
fn valid_call_is_answered() {
    let target = Target::start();
    let expected = rpc::accepted(XID, accept::SUCCESS, &[5]);
    check(&target, &add(&[2, 3]), &expected);
}

#[test]
fn unknown_program_is_unavailable() {
    let target = Target::start();
    for program in [0, PROGRAM + 1, 100_003, u32::MAX] {
        let expected = rpc::accepted(XID, accept::PROG_UNAVAIL, &[]);
        check(&target, &rpc::call(XID, program, 2, 0), &expected);
    }
}

#[test]
fn unknown_version_is_a_mismatch_with_the_versions_there_are() {
    let target = Target::start();
    for version in [0, 1, 4, u32::MAX] {
        let expected = rpc::accepted(XID, accept::PROG_MISMATCH, &[2, 3]);
        check(&target, &rpc::call(XID, PROGRAM, version, 0), &expected);
    }
}

#[test]
fn unknown_procedure_is_unavailable() {
    let target = Target::start();
    for procedure in [3, 99, u32::MAX] {
        let expected = rpc::accepted(XID, accept::PROC_UNAVAIL, &[]);
        check(&target, &rpc::call(XID, PROGRAM, 2, procedure), &expected);
    }
}

#[test]
fn arguments_that_cannot_be_decoded_are_garbage() {
    let target = Target::start();
    let garbage = rpc::accepted(XID, accept::GARBAGE_ARGS, &[]);
    for arguments in [&[][..], &[1], &[1, 2, 3]] {
        check(&target, &add(arguments), &garbage);
    }
    let echo = |arguments: &[u32]| {
        let call = rpc::call_with(XID, [PROGRAM, 2, procedure::ECHO], arguments);
        check(&target, &call, &garbage);
    };
    echo(&[]);
    // Longer than the message, than the limit, than memory.
    echo(&[8, 1]);
    echo(&[(1 << 20) + 1, 1]);
    echo(&[u32::MAX, 1]);
    // Padding that is not zero, and bytes left over.
    echo(&[1, 0x0100_0001]);
    echo(&[4, 1, 2]);
}

#[test]
fn header_that_is_cut_off_is_garbage() {
    let target = Target::start();
    let call = rpc::call(XID, PROGRAM, 2, 0);
    for length in 2..call.len() {
        let expected = rpc::accepted(XID, accept::GARBAGE_ARGS, &[]);
        check(&target, &call[..length], &expected);
    }
}

#[test]
fn other_versions_of_rpc_are_denied() {
    let target = Target::start();
    for version in [0, 1, 3, u32::MAX] {
        let mut call = rpc::call(XID, PROGRAM, 2, 0);
        call[2] = version;
        check(&target, &call, &rpc::denied(XID, &[RPC_MISMATCH, 2, 2]));
    }
}

#[test]
fn credentials_that_are_malformed_are_denied() {
    let target = Target::start();
    let with_credential = |credential: &[u32]| {
        let head = &rpc::call(XID, PROGRAM, 2, 0)[..6];
        let call = [head, credential, &[0, 0]].concat();
        check(
            &target,
            &call,
            &rpc::denied(XID, &[AUTH_ERROR, AUTH_BADCRED]),
        );
    };
    // More than 400 bytes (RFC 5531 §8.2), whether they are there or not.
    with_credential(&[AUTH_SYS, 404]);
    with_credential(&[0, u32::MAX]);
    with_credential(&[&[7, 404][..], &[0; 101]].concat());
    // AUTH_SYS that is not: empty, cut off, a name that is too long, too many groups.
    with_credential(&[AUTH_SYS, 0]);
    with_credential(&[AUTH_SYS, 8, 1, 0]);
    with_credential(&[AUTH_SYS, 12, 1, 256, 0]);
    with_credential(&[AUTH_SYS, 20, 1, 0, 0, 0, 17]);
}

#[test]
fn verifier_that_is_malformed_is_denied() {
    let target = Target::start();
    let mut call = rpc::call(XID, PROGRAM, 2, 0);
    call[9] = 404;
    check(
        &target,
        &call,
        &rpc::denied(XID, &[AUTH_ERROR, AUTH_BADVERF]),
    );
}
