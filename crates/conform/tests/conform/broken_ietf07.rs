//! Each of these cases of ietf-07 fails against a server that breaks its rule, and against ours, which does not, it passes.

use crate::assert_fails;
use crate::faulty::{Faults, Faulty};
use crate::responder::Served;
use conform::ietf07::{error, htype, property};
use conform::{as_words, rpc, words};
use rpcrdma_proto::v2::Dialect;
use std::time::Duration;

/// Longest wait for an answer that a broken server does not give.
const IMPATIENT: Duration = Duration::from_millis(500);

#[track_caller]
fn caught(faults: Faults, codes: &[&str]) {
    let served = Served::speaking(Dialect::Ietf07, Faulty::with(faults));
    assert_fails(&served.run(codes), codes);
}

#[track_caller]
fn sending(sent: fn(&mut Vec<u32>), codes: &[&str]) {
    caught(Faults::sending(sent), codes);
}

#[track_caller]
fn receiving(received: fn(&mut Vec<u8>), codes: &[&str]) {
    caught(Faults::receiving(received), codes);
}

/// A message of version two with this header type.
fn is(message: &[u32], which: u32) -> bool {
    message[1] == 2 && message[3] == which
}

/// In place of this error comes another one.
fn instead(message: &mut [u32], of: &[u32], comes: u32) {
    if message[3] == htype::ERROR && of.contains(&message[4]) {
        message[4] = comes;
    }
}

/// Changes words of a received message with this header type.
fn change(message: &mut Vec<u8>, which: u32, how: impl FnOnce(&mut Vec<u32>)) {
    if message.len() >= 16 && message.len().is_multiple_of(4) {
        let mut changed = as_words(message);
        if is(&changed, which) {
            how(&mut changed);
            *message = words(&changed);
        }
    }
}

/// In place of a message, a NULL call with its XID.
fn as_null(message: &mut Vec<u8>) {
    let xid = message.first_chunk().copied().map_or(1, u32::from_be_bytes);
    let null = rpc::call(xid, 100_003, 3, 0);
    let mut call = conform::ietf07::call(xid, 0, &[0; 3], &null);
    call[2] = 1000;
    *message = words(&call);
}

#[test]
fn another_version_in_answers_is_caught() {
    sending(|message| message[1] = 3, &["IETF-01"]);
    sending(
        |message| {
            instead(
                message,
                &[error::VERS, error::VERS_MISMATCH],
                error::BAD_XDR,
            )
        },
        &["IETF-10"],
    );
}

#[test]
fn wrong_properties_are_caught() {
    sending(
        |message| {
            if is(message, htype::REPLY_INLINE) {
                message[3] = htype::CONNPROP_FINAL;
                message.truncate(5);
                message[4] = 0;
            }
        },
        &["IETF-02"],
    );
    sending(
        |message| {
            if is(message, htype::CONNPROP_FINAL) {
                message.truncate(4);
                message.extend([1, property::RBSIZ, 8, 0, 4096]);
            }
        },
        &["IETF-03"],
    );
}

#[test]
fn credits_that_do_not_come_are_caught() {
    let faults = Faults::sending(|message| {
        if message[1] == 2 {
            message[2] = 1;
        }
    });
    let served = Served::speaking(Dialect::Ietf07, Faulty::with(faults)).with_patience(IMPATIENT);
    let codes = ["IETF-04", "IETF-06"];
    assert_fails(&served.run(&codes), &codes);
    // 2^31 - 1 beyond the one that was sent.
    sending(
        |message| {
            if message[1] == 2 {
                message[2] = 1 << 31;
            }
        },
        &["IETF-05"],
    );
}

#[test]
fn replies_without_credits_are_caught() {
    receiving(
        |message| {
            if let Some(word) = message.get_mut(8..12) {
                word.copy_from_slice(&1000_u32.to_be_bytes());
            }
        },
        &["IETF-07"],
    );
}

#[test]
fn wrong_grants_are_caught() {
    receiving(
        |message| {
            if message.get(15) == Some(&5) {
                as_null(message);
            }
        },
        &["IETF-08"],
    );
    sending(
        |message| {
            if is(message, htype::GRANT) {
                message[0] = 9;
            }
        },
        &["IETF-09"],
    );
}

#[test]
fn wrong_errors_are_caught() {
    sending(
        |message| instead(message, &[error::INVAL_HTYPE], error::BAD_XDR),
        &["IETF-11"],
    );
    sending(
        |message| instead(message, &[error::BAD_XDR], error::INVAL_HTYPE),
        &["IETF-12", "IETF-13", "ICALL-10"],
    );
    sending(
        |message| {
            if is(message, htype::ERROR) {
                message.push(0);
            }
        },
        &["IETF-14"],
    );
    sending(
        |message| {
            instead(
                message,
                &[error::BAD_PROPVAL, error::BAD_XDR],
                error::SYSTEM,
            )
        },
        &["IETF-19", "IETF-20"],
    );
    sending(
        |message| instead(message, &[error::INVAL_CONT], error::SYSTEM),
        &["IETF-21", "IETF-23", "ICALL-04"],
    );
    sending(
        |message| instead(message, &[error::WRITE_RESOURCE], error::BAD_XDR),
        &["ICALL-17"],
    );
}

#[test]
fn wrong_arguments_of_errors_are_caught() {
    fn argument(message: &mut [u32], of: u32, at: usize, to: u32) {
        if is(message, htype::ERROR) && message[4] == of {
            message[at] = to;
        }
    }
    sending(
        |message| argument(message, error::WRITE_RESOURCE, 5, 2),
        &["ICALL-17"],
    );
    sending(
        |message| argument(message, error::WRITE_RESOURCE, 6, 2000),
        &["ICALL-17"],
    );
    sending(
        |message| argument(message, error::WRITE_CHUNKS, 5, 1 << 20),
        &["ICALL-18"],
    );
    sending(
        |message| argument(message, error::READ_CHUNKS, 5, 1 << 20),
        &["ICALL-19"],
    );
}

#[test]
fn answers_to_what_is_to_be_discarded_are_caught() {
    receiving(
        |message| {
            if message.get(15) == Some(&4) {
                as_null(message);
            }
        },
        &["IETF-15"],
    );
    receiving(
        |message| {
            if message.len() < 16 {
                as_null(message);
            }
        },
        &["IETF-16"],
    );
}

#[test]
fn properties_that_are_refused_are_caught() {
    receiving(
        |message| {
            change(message, htype::CONNPROP_FINAL, |set| {
                if set[5] > 0x7fff_0000 {
                    set[4] = 1000;
                }
            });
        },
        &["IETF-17"],
    );
    receiving(
        |message| {
            change(message, htype::CONNPROP_FINAL, |set| {
                if set[6] == 0 {
                    set[4] = 1000;
                }
            });
        },
        &["IETF-18"],
    );
    receiving(
        |message| change(message, htype::CONNPROP_MIDDLE, |set| set[4] = 1000),
        &["IETF-22"],
    );
}

#[test]
fn calls_that_are_not_taken_in_are_caught() {
    receiving(
        |message| {
            if message.len() > 1024 {
                message.truncate(20);
            }
        },
        &["ICALL-02"],
    );
    receiving(
        |message| change(message, htype::CALL_MIDDLE, |part| part[4] += 4),
        &["ICALL-03"],
    );
    receiving(
        |message| change(message, htype::CALL_EXTERNAL, |call| call[3] = 77),
        &["ICALL-09"],
    );
    // A server that carries out what does not fit together.
    sending(
        |message| {
            if is(message, htype::ERROR) && message[4] == error::INVAL_CONT {
                let xid = message[0];
                message[3] = htype::REPLY_INLINE;
                message.truncate(4);
                message.push(0);
                message.extend(rpc::accepted(xid, 0, &[]));
            }
        },
        &["ICALL-05"],
    );
}

#[test]
fn wrong_replies_are_caught() {
    sending(
        |message| {
            if is(message, htype::REPLY_INLINE) {
                message[3] = htype::REPLY_EXTERNAL;
            }
        },
        &["ICALL-01"],
    );
    sending(
        |message| {
            if is(message, htype::REPLY_INLINE) {
                message[0] ^= 1;
            }
        },
        &["ICALL-24"],
    );
    sending(
        |message| {
            if is(message, htype::REPLY_INLINE) && message[4] == 1 {
                message[7] = 4;
            }
        },
        &["ICALL-11", "ICALL-12"],
    );
    sending(
        |message| {
            if is(message, htype::REPLY_EXTERNAL) {
                message.truncate(4);
                message.extend([0, 0]);
            }
        },
        &["ICALL-16"],
    );
    let written: fn(&mut Vec<u8>) = |data| {
        if let Some(first) = data.first_mut() {
            *first ^= 1;
        }
    };
    let faults = Faults {
        written: Some(written),
        ..Faults::default()
    };
    caught(faults, &["ICALL-12", "ICALL-16"]);
}

#[test]
fn wrong_parts_and_sizes_of_replies_are_caught() {
    // Whatever a client says, it is taken for one with large Receives.
    receiving(
        |message| {
            change(message, htype::CONNPROP_FINAL, |set| {
                if let Some(size) = set.get_mut(10) {
                    *size = 16_000;
                }
            });
        },
        &["ICALL-13"],
    );
    sending(
        |message| {
            if is(message, htype::REPLY_MIDDLE) {
                message[3] = htype::ERROR;
                message.truncate(4);
                message.extend([error::REPLY_RESOURCE, 9000]);
            }
        },
        &["ICALL-14"],
    );
    sending(
        |message| {
            if is(message, htype::REPLY_MIDDLE) {
                message[4] -= 4;
            }
        },
        &["ICALL-15"],
    );
}

#[test]
fn handles_that_no_call_names_are_caught() {
    // The handle of the Call chunk is taken, whatever the call names.
    receiving(
        |message| change(message, htype::CALL_EXTERNAL, |call| call[4] = call[7]),
        &["ICALL-20", "ICALL-21", "ICALL-22"],
    );
}
