//! Each of these cases fails against a server that breaks its rule, and against ours, which does not, it passes.

use crate::assert_fails;
use crate::faulty::{Faults, Faulty};
use crate::free_responder::at_most;
use crate::responder::Served;
use conform::Verdict;
use conform::rpc;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The cases are caught that this server is to fail.
#[track_caller]
fn caught(faults: Faults, codes: &[&str]) {
    let report = Served::over(Faulty::with(faults)).run(codes);
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

/// RDMA_ERROR with this code, of a message.
fn is_error(message: &[u32], code: u32) -> bool {
    message[3..].starts_with(&[4, code])
}

/// RDMA_MSG of version one.
fn is_reply(message: &[u32]) -> bool {
    message[1] == 1 && message[3] == 0
}

#[test]
fn replies_with_wrong_fixed_fields_are_caught() {
    sending(
        |message| {
            // The XID of the RPC message.
            if is_reply(message) && message.len() > 7 {
                message[7] ^= 1;
            }
        },
        &["BASE-01", "BASE-02"],
    );
    sending(|message| message[1] = 3, &["BASE-03"]);
    sending(
        |message| message[2] = 0,
        &["CRED-01", "CRED-02", "CRED-03", "CRED-04"],
    );
}

#[test]
fn read_list_in_a_reply_is_caught() {
    sending(
        |message| {
            if is_reply(message) {
                message.splice(4..4, [1, 44, 7, 4, 0, 0]);
            }
        },
        &["BASE-04"],
    );
}

#[test]
fn answers_to_what_is_to_be_discarded_are_caught() {
    fn as_null(message: &mut Vec<u8>) {
        let xid = message.first_chunk().copied().map_or(1, u32::from_be_bytes);
        *message = conform::words(&rpc::msg(xid, 32, &rpc::call(xid, 100_003, 3, 0)));
    }
    receiving(
        |message| {
            if message.len() < 28 {
                as_null(message);
            }
        },
        &["HDR-01"],
    );
    receiving(
        |message| {
            if matches!(message.get(15), Some(3 | 4)) {
                as_null(message);
            }
        },
        &["HDR-08", "HDR-09", "HDR-10"],
    );
}

#[test]
fn wrong_version_errors_are_caught() {
    fn change(message: &mut [u32], at: usize, to: u32) {
        if is_error(message, 1) {
            message[at] = to;
        }
    }
    sending(|message| change(message, 4, 2), &["HDR-02"]);
    sending(|message| change(message, 0, 9), &["HDR-03"]);
    sending(|message| change(message, 1, 1), &["HDR-04"]);
    sending(|message| change(message, 5, 2), &["HDR-05"]);
}

#[test]
fn replies_in_place_of_err_chunk_are_caught() {
    sending(
        |message| {
            if message[1] == 1 && is_error(message, 2) {
                let (xid, credits) = (message[0], message[2]);
                *message = rpc::msg(xid, credits, &rpc::accepted(xid, 0, &[]));
            }
        },
        &[
            "HDR-06", "HDR-07", "HDR-11", "HDR-17", "HDR-18", "HDR-19", "HDR-20", "HDR-21",
            "RDCH-04", "RDCH-05",
        ],
    );
    sending(
        |message| {
            if message[1] == 1 && is_error(message, 2) {
                let (xid, credits) = (message[0], message[2]);
                *message = rpc::msg(xid, credits, &rpc::accepted(xid, 5, &[]));
            }
        },
        &["RDCH-06"],
    );
    sending(
        |message| {
            if message[1] == 1 && is_error(message, 2) {
                message[4] = 1;
            }
        },
        &["HDR-14", "HDR-15", "HDR-16"],
    );
    // The reply behind an error is that of another call.
    static REFUSED: AtomicBool = AtomicBool::new(false);
    sending(
        |message| {
            if is_error(message, 2) {
                REFUSED.store(true, Relaxed);
            } else if is_reply(message) && REFUSED.swap(false, Relaxed) {
                message[0] ^= 1;
            }
        },
        &["HDR-23"],
    );
    sending(
        |message| {
            if is_error(message, 2) {
                message.extend([0, 0]);
            }
        },
        &["HDR-22"],
    );
}

#[test]
fn wrong_chunks_in_replies_are_caught() {
    // The length, then the handle, of the first segment of the first Write chunk.
    sending(
        |message| {
            if is_reply(message) && message[5] == 1 && message[6] > 0 {
                message[8] = 4;
            }
        },
        &[
            "WRCH-01", "WRCH-04", "WRCH-05", "WRCH-06", "NFS-10", "NFS-13",
        ],
    );
    sending(
        |message| {
            if is_reply(message) && message[5] == 1 && message[6] > 0 {
                message[7] ^= 1;
            }
        },
        &["WRCH-02", "NFS-12"],
    );
    // An empty chunk is left out, and a Reply chunk.
    sending(
        |message| {
            if is_reply(message) && message[5..7] == [1, 0] {
                message.drain(5..7);
            }
        },
        &["WRCH-03", "NFS-15"],
    );
    sending(
        |message| {
            if is_reply(message) && message[4..7] == [0, 0, 1] {
                let count = message[7] as usize;
                message.splice(6..8 + 4 * count, [0]);
            }
        },
        &["RPCH-01", "RPCH-02", "RPCH-03"],
    );
}

#[test]
fn wrong_data_in_chunks_is_caught() {
    let written: fn(&mut Vec<u8>) = |data| {
        if let Some(first) = data.first_mut() {
            *first ^= 1;
        }
    };
    let faults = Faults {
        written: Some(written),
        ..Faults::default()
    };
    caught(
        faults,
        &[
            "NFS-01", "NFS-09", "NFS-12", "NFS-17", "NFS-18", "NFS-23", "NFS-24",
        ],
    );
    // The length of a Reply chunk without the roundup.
    sending(
        |message| {
            if message[3..8] == [1, 0, 0, 1, 1] {
                message[9] -= 3;
            }
        },
        &["NFS-19"],
    );
    let written: fn(&mut Vec<u8>) = |data| data.resize(data.len().next_multiple_of(4), 0);
    let faults = Faults {
        written: Some(written),
        ..Faults::default()
    };
    caught(faults, &["NFS-11"]);
}

#[test]
fn wrong_counts_of_octets_are_caught() {
    // A server that writes less than it says.
    let sent: fn(&mut Vec<u32>) = |message| {
        if let [.., count @ 301, 2, _, _] = &mut message[..] {
            *count = 4093;
        }
    };
    let faults = Faults {
        sent: Some(sent),
        ..Faults::receiving(at_most::<301>)
    };
    caught(faults, &["NFS-01", "NFS-02", "NFS-05"]);
    // One whose READ gives another number of octets than it says.
    sending(
        |message| {
            if let [.., count, _, length] = &mut message[..]
                && *count == *length
                && *count > 1
            {
                *length -= 1;
            }
        },
        &["NFS-09", "NFS-10", "NFS-12", "NFS-14", "NFS-23"],
    );
}

#[test]
fn wrong_use_of_private_data_is_caught() {
    let said: fn(&mut Vec<u8>) = |data| data[5] |= 0x80;
    let faults = Faults {
        said: Some(said),
        ..Faults::default()
    };
    caught(faults, &["PD-01"]);
    // Whatever a client says, it is taken for one that has set R and takes 4096 octets.
    let told: fn(&mut Vec<u8>) = |data| *data = vec![0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 3];
    let faults = Faults {
        told: Some(told),
        ..Faults::default()
    };
    caught(faults, &["PD-08", "PD-09", "PD-10", "INV-01", "INV-02"]);
    // R is set by a server that says it is not.
    let said: fn(&mut Vec<u8>) = |data| data[5] = 0;
    let faults = Faults {
        said: Some(said),
        ..Faults::default()
    };
    caught(faults, &["INV-03"]);
    let invalidated: fn(u32) -> u32 = |handle| handle ^ 0x0100;
    let faults = Faults {
        invalidated: Some(invalidated),
        ..Faults::default()
    };
    caught(faults, &["INV-04"]);
}

#[test]
fn wrong_messages_of_version_two_are_caught() {
    sending(
        |message| {
            if message[1] == 2 && message[3] == 0 {
                message[4] = 0;
            }
        },
        &["V2-03"],
    );
    sending(
        |message| {
            if message[1] == 2 && is_error(message, 2) {
                message[4] = 3;
            }
        },
        &[
            "V2-07", "V2-08", "V2-09", "V2-10", "V2-11", "XCH-04", "XCH-05", "XCH-06", "XCH-08",
        ],
    );
    sending(
        |message| {
            if message[1] == 2 && is_error(message, 3) {
                message[4] = 2;
            }
        },
        &["XCH-01"],
    );
    sending(
        |message| {
            // The XID of ROPT_RESPXCH; and all that was asked for is said to be rejected and done.
            if message[1] == 2 && message[3..6] == [5, 1, 3] {
                message[0] ^= 1;
            }
        },
        &["XCH-09"],
    );
    sending(
        |message| {
            if message[1] == 2 && message[3..6] == [5, 1, 3] {
                let info = [1, 7, 1, 7, 0];
                message.truncate(6);
                message.push(4 * 5);
                message.extend(info);
            }
        },
        &["XCH-10", "XCH-11"],
    );
}

/// A relay to a server that changes the first octets in each direction: those of MPA. What follows passes.
fn relay(to: SocketAddr, request: fn(&mut [u8]), reply: fn(&mut [u8])) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (client, server) = (client.unwrap(), TcpStream::connect(to).unwrap());
            for (from, to, change) in [
                (
                    client.try_clone().unwrap(),
                    server.try_clone().unwrap(),
                    request,
                ),
                (server, client, reply),
            ] {
                std::thread::spawn(move || pass(from, to, change));
            }
        }
    });
    at
}

fn pass(mut from: TcpStream, mut to: TcpStream, change: fn(&mut [u8])) {
    let mut first = true;
    let mut octets = [0; 65536];
    while let Ok(read) = from.read(&mut octets)
        && read > 0
    {
        if std::mem::replace(&mut first, false) {
            change(&mut octets[..read]);
        }
        if to.write_all(&octets[..read]).is_err() {
            break;
        }
    }
    // An end of a connection that has ended is of no use to the other.
    let _ = to.shutdown(std::net::Shutdown::Write);
}

#[track_caller]
fn caught_below(request: fn(&mut [u8]), reply: fn(&mut [u8]), codes: &[&str]) {
    let served = Served::start();
    let at = relay(served.address(), request, reply);
    let report = served.run_at(at, codes);
    assert_fails(&report, codes);
}

#[test]
fn wrong_setup_of_mpa_is_caught() {
    let pass = |_: &mut [u8]| {};
    // A server that takes any key, and any revision.
    caught_below(
        |request| {
            let right = b"MPA ID Req Frame";
            let count = right.len().min(request.len());
            request[..count].copy_from_slice(&right[..count]);
            if let Some(revision) = request.get_mut(17).filter(|revision| **revision > 2) {
                *revision = 2;
            }
        },
        pass,
        &["MPA-01", "MPA-02", "MPA-03"],
    );
    // A Reply with reserved bits; with an ORD beyond the Request's IRD; with control flags that nobody asked for.
    caught_below(pass, |reply| reply[16] |= 0x01, &["MPA-10"]);
    caught_below(pass, |reply| reply[23] = 0xff, &["MPA-09"]);
    caught_below(pass, |reply| reply[22] |= 0x80, &["MPA-11"]);
}

/// Connections that a server refuses after a Request of revision 99, of which it dies; then it is back.
const DEAD: usize = 3;

#[test]
fn case_that_kills_the_server_fails_by_name_and_the_others_go_on() {
    let served = Served::start();
    let to = served.address();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut dead = 0;
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let mut request = [0; 20];
            if dead > 0 || client.read_exact(&mut request).is_err() {
                dead = usize::saturating_sub(dead, 1);
                continue;
            }
            if request[17] == 99 {
                dead = DEAD;
                continue;
            }
            let mut server = TcpStream::connect(to).unwrap();
            server.write_all(&request).unwrap();
            let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || pass(from, to, |_| {}));
            std::thread::spawn(move || pass(server, client, |_| {}));
        }
    });
    let report = served.run_at(at, &["BASE-01", "MPA-03", "MPA-08"]);
    let found: Vec<_> = report
        .findings
        .iter()
        .map(|finding| (finding.code, finding.verdict))
        .collect();
    let expected = [
        ("BASE-01", Verdict::Pass),
        ("MPA-03", Verdict::Fail),
        ("MPA-08", Verdict::Pass),
    ];
    assert_eq!(found, expected);
    let why = &report.findings[1].why;
    assert!(why.contains("serves no new connection afterwards"), "{why}");
}
