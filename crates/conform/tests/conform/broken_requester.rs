//! Each of these cases fails against a client that breaks its rule, and against ours, which does not, it passes.

use crate::assert_fails;
use crate::faulty::{Faults, Faulty};
use crate::requester::{OurClient, run};
use conform::rpc;
use rpcrdma::Versions;
use rpcrdma_proto::v2::Dialect;

#[track_caller]
fn caught(faults: Faults, codes: &[&str]) {
    let client = OurClient::over(Faulty::with(faults), Versions::One);
    let report = run(client, codes);
    assert_fails(&report, codes);
}

#[track_caller]
fn sending(sent: fn(&mut Vec<u32>), codes: &[&str]) {
    caught(Faults::sending(sent), codes);
}

#[track_caller]
fn receiving(received: fn(&mut Vec<u8>), codes: &[&str]) {
    caught(Faults::receiving(received), codes);
}

#[test]
fn calls_with_wrong_fixed_fields_are_caught() {
    sending(|message| message[7] ^= 1, &["RBASE-02"]);
    sending(|message| message[3] = 2, &["RBASE-03"]);
    sending(
        |message| message.resize(1200, 0),
        &["RBASE-06", "RPD-02", "RPD-03", "RPD-04"],
    );
}

#[test]
fn wrong_chunks_of_calls_are_caught() {
    // The Position of the first read segment.
    sending(
        |message| {
            if message[4] == 1 {
                message[5] -= 2;
            }
        },
        &["RCHK-01"],
    );
    sending(
        |message| {
            if message[4] == 1 {
                message[5] -= 4;
            }
        },
        &["RCHK-02"],
    );
    // The length of its segment, and the handle of it.
    sending(
        |message| {
            if message[4] == 1 {
                message[7] -= 8;
            }
        },
        &["RCHK-03"],
    );
    sending(
        |message| {
            if message[4] == 1 {
                message[6] ^= 0x0101;
            }
        },
        &["RCHK-04"],
    );
    // The length of the first segment of a Write chunk.
    sending(
        |message| {
            if message[4..6] == [0, 1] {
                message[8] = 1;
            }
        },
        &["RCHK-05"],
    );
    // No Reply chunk is offered.
    sending(
        |message| {
            if message[4..7] == [0, 0, 1] {
                let count = message[7] as usize;
                message.splice(6..8 + 4 * count, [0]);
            }
        },
        &["RCHK-06"],
    );
}

#[test]
fn replies_that_are_taken_though_they_are_to_be_discarded_are_caught() {
    /// A reply without results, which fails the call.
    fn as_reply(message: &mut Vec<u8>) {
        let xid = message.first_chunk().copied().map_or(1, u32::from_be_bytes);
        *message = conform::words(&rpc::msg(xid, 32, &rpc::accepted(xid, 5, &[])));
    }
    receiving(
        |message| {
            if message.len() < 28 {
                as_reply(message);
            }
        },
        &["RDIS-01"],
    );
    receiving(
        |message| {
            if message[4..8] != [0, 0, 0, 1] || message[15] > 1 || message[19] > 1 {
                as_reply(message);
            }
        },
        &["RDIS-04", "RDIS-05", "RDIS-06", "RDIS-07"],
    );
}

#[test]
fn wrong_private_data_is_caught() {
    let said: fn(&mut Vec<u8>) = |data| data[5] |= 0x80;
    let faults = Faults {
        said: Some(said),
        ..Faults::default()
    };
    caught(faults, &["RPD-01"]);
    // Whatever the server says, it is taken for one that takes 4096 octets: the first call is long.
    let told: fn(&mut Vec<u8>) = |data| *data = vec![0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 3];
    let faults = Faults {
        told: Some(told),
        sent: Some(|message| message.resize(message.len().max(600), 0)),
        ..Faults::default()
    };
    caught(faults, &["RPD-02"]);
}

#[test]
fn long_first_messages_of_either_draft_are_caught() {
    for (dialect, code) in [(Dialect::Cel01, "RV2-01"), (Dialect::Ietf07, "RV2-03")] {
        let faults = Faults::sending(|message| {
            if message[1] == 2 {
                message.resize(300, 0);
            }
        });
        let client = OurClient::over(Faulty::with(faults), Versions::Auto).with_dialect(dialect);
        assert_fails(&run(client, &[code]), &[code]);
    }
}
