//! Every message finds its program, or draws the status that says why not.

use super::*;
use crate::auth::AuthSys;
use crate::message::{RpcError, read_reply, write_call};
use buffer::{Gather, Pool};
use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

const PROGRAM: u32 = 100_003;

/// Procedure 0 is NULL; 1 returns the word it is given and accepts data by reference behind it.
struct Echo(RangeInclusive<u32>);

impl Program for Echo {
    fn number(&self) -> u32 {
        PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        self.0.clone()
    }

    fn call(&self, call: Call) -> Answer {
        if matches!(call.cred, Credential::Other { .. }) {
            return call.denied(AuthStat::TooWeak).into();
        }
        match call.proc {
            0 => call.void().into(),
            1 => match call.decode(|r| Ok((r.u32()?, r.item(64)?.len()))) {
                Ok((word, len)) => {
                    let mut w = call.success(Buffer::default());
                    w.u32(word);
                    w.length(len);
                    Answer::message(w.finish())
                }
                Err(error) => call.unreadable(error).into(),
            },
            2 => call.system_err().into(),
            _ => call.proc_unavail().into(),
        }
    }
}

fn caller() -> Caller {
    Caller::new(([127, 0, 0, 1], 1).into())
}

fn header(prog: u32, vers: u32, proc: u32) -> Writer {
    header_by(prog, vers, proc, &Credential::None)
}

fn header_by(prog: u32, vers: u32, proc: u32, cred: &Credential) -> Writer {
    let mut w = Writer::default();
    write_call(&mut w, 5, Procedure { prog, vers, proc }, cred);
    w
}

fn ask(call: Payload) -> Reply {
    let programs = Programs::new().with(Echo(3..=3)).with(Echo(5..=6));
    match programs.call(call, &caller()) {
        Answer::Now(reply) => reply,
        Answer::Blocking(_) | Answer::Deferred(_) | Answer::Later(_) => {
            panic!("the program answers at once")
        }
    }
}

fn error(call: Writer) -> RpcError {
    match ask(call.finish()) {
        Reply::Message(reply) => read_reply(&reply, 5).unwrap_err(),
        other => panic!("{other:?}"),
    }
}

fn data() -> Gather {
    Gather::from_elem(Bytes::from_static(b"data!"), 1)
}

#[test]
fn call_reaches_its_program_with_its_arguments() {
    let mut w = header(PROGRAM, 3, 1);
    w.u32(77);
    w.item(data());
    let Reply::Message(reply) = ask(w.finish()) else {
        panic!("a reply is owed");
    };
    let mut r = read_reply(&reply, 5).unwrap();
    assert_eq!((r.u32(), r.u32()), (Ok(77), Ok(5)));
    r.finish().unwrap();
}

#[test]
fn what_cannot_be_executed_gets_the_status_that_says_why() {
    assert_eq!(error(header(7, 3, 0)), RpcError::ProgUnavail);
    assert_eq!(
        error(header(PROGRAM, 4, 0)),
        RpcError::ProgMismatch { low: 3, high: 6 }
    );
    assert_eq!(error(header(PROGRAM, 3, 9)), RpcError::ProcUnavail);
    assert_eq!(error(header(PROGRAM, 3, 1)), RpcError::GarbageArgs);
    assert_eq!(error(header(PROGRAM, 3, 2)), RpcError::SystemErr);
}

#[test]
fn bytes_behind_the_arguments_are_garbage() {
    let mut w = header(PROGRAM, 3, 1);
    w.u32(77);
    w.opaque(b"data");
    w.u32(0);
    assert_eq!(error(w), RpcError::GarbageArgs);
}

#[test]
fn user_of_this_machine_speaks_for_itself_only() {
    let programs = Programs::new().with(Echo(3..=3));
    let denied_at = |procedure, local_uid, uid: Option<u32>| {
        let caller = Caller {
            local_uid,
            ..caller()
        };
        let cred = uid.map_or(Credential::None, |uid| {
            Credential::Sys(AuthSys {
                uid,
                ..AuthSys::default()
            })
        });
        let call = header_by(PROGRAM, 3, procedure, &cred).finish();
        match programs.call(call, &caller) {
            Answer::Now(Reply::Message(reply)) => read_reply(&reply, 5).err(),
            _ => panic!("the program answers at once"),
        }
    };
    let denied = |local_uid, uid| denied_at(0, local_uid, uid);
    let refused = Some(RpcError::Auth(AuthStat::BadCred));
    assert_eq!(denied(Some(1000), Some(1000)), None);
    assert_eq!(
        denied(Some(1000), None),
        None,
        "of NULL nobody asks who calls"
    );
    let too_weak = Some(RpcError::Auth(AuthStat::TooWeak));
    assert_eq!(
        denied_at(1, Some(1000), None),
        too_weak,
        "nobody is another user"
    );
    assert_ne!(denied_at(1, Some(0), None), too_weak);
    assert_ne!(denied_at(1, None, None), too_weak);
    assert_eq!(denied(Some(1000), Some(1001)), refused);
    assert_eq!(denied(Some(1000), Some(0)), refused);
    assert_eq!(denied(Some(0), Some(1001)), None, "root and the kernel");
    assert_eq!(denied(None, Some(1001)), None, "another machine");
}

#[test]
fn unknown_auth_flavour_is_denied_by_the_program() {
    let cred = Credential::Other {
        flavour: 7,
        body: vec![1; 12].into(),
    };
    assert_eq!(
        error(header_by(PROGRAM, 3, 0, &cred)),
        RpcError::Auth(AuthStat::TooWeak)
    );
}

#[test]
fn malformed_auth_sys_is_denied() {
    let cred = Credential::Other {
        flavour: crate::auth::AUTH_SYS,
        body: vec![1; 12].into(),
    };
    assert_eq!(
        error(header_by(PROGRAM, 3, 0, &cred)),
        RpcError::Auth(AuthStat::BadCred)
    );
}

#[test]
fn other_rpc_version_is_denied_with_the_supported_one() {
    let mut w = header(PROGRAM, 3, 0);
    w.patch_u32(8, 3);
    assert_eq!(error(w), RpcError::RpcMismatch { low: 2, high: 2 });
}

#[test]
fn header_cut_off_behind_its_type_is_garbage() {
    let mut w = header(PROGRAM, 3, 0);
    w.truncate(20);
    assert_eq!(error(w), RpcError::GarbageArgs);
}

#[test]
fn messages_that_are_not_calls_are_not_answered() {
    let mut w = header(PROGRAM, 3, 0);
    w.patch_u32(4, 1);
    assert!(matches!(ask(w.finish()), Reply::Nothing));
    assert!(matches!(
        ask(Payload::new(Buffer::from(vec![0; 7]), 0)),
        Reply::Nothing
    ));
}

#[test]
fn item_in_header_or_where_none_is_eligible_is_not_executed() {
    let mut w = Writer::default();
    for word in [5, 0, 2, PROGRAM, 3, 0, 1] {
        w.u32(word);
    }
    w.item(data());
    w.u32(0);
    w.u32(0);
    assert!(matches!(ask(w.finish()), Reply::Ineligible));

    // In place of the direction, so that it is not even known to be a call.
    let mut w = Writer::default();
    w.item(data());
    w.u32(0);
    assert!(matches!(ask(w.finish()), Reply::Ineligible));

    let mut w = header(PROGRAM, 3, 1);
    w.item(data());
    w.u32(0);
    assert!(matches!(ask(w.finish()), Reply::Ineligible));
}

#[test]
fn null_call_is_answered_in_its_own_memory() {
    let pool = Pool::new(1 << 20);
    let mut w = Writer::new(pool.take(4096));
    let target = Procedure {
        prog: PROGRAM,
        vers: 3,
        proc: 0,
    };
    write_call(&mut w, 5, target, &Credential::None);
    let Reply::Message(reply) = ask(w.finish()) else {
        panic!("a reply is owed");
    };
    read_reply(&reply, 5).unwrap().finish().unwrap();
    assert_eq!((pool.stats().out, pool.stats().misses), (4096, 1));
    drop(reply);
    assert_eq!(pool.stats().free, 4096);
}

proptest! {
    #[test]
    fn any_message_is_answered_or_discarded(bytes in vec(any::<u8>(), 0..200), sound: bool) {
        let mut w = if sound { header(PROGRAM, 3, 1) } else { Writer::default() };
        w.fixed(&bytes);
        if let Reply::Message(reply) = ask(w.finish()) {
            let mut r = Reader::from(&reply);
            prop_assert!(ReplyHeader::parse(&mut r).is_ok());
        }
    }
}
