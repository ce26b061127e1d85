//! Output of `probe` about peers of all kinds.

use crate::running::{Served, fails, free_port, ok, run, text};
use hostile_peer::{Heard, as_words, rpc, words};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The command, with a timeout that only a silent peer reaches.
fn probe(addr: &str, args: &[&str]) -> Value {
    let output = run(&[&["probe", "--json", addr], args].concat());
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(text(&output.stderr), "", "{found}");
    let expected = if found["verdict"] == "rpcrdma" { 0 } else { 1 };
    assert_eq!(output.status.code(), Some(expected), "{found}");
    found
}

/// Somebody who is no server of ours.
struct Peer {
    addr: String,
    connections: Arc<AtomicUsize>,
}

/// Act of such a peer after it has spoken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Close,
    Wait,
}

impl Peer {
    /// Says this on each connection, once it was spoken to.
    fn that(says: &'static [u8], then: Then) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        std::thread::spawn(move || {
            let mut kept = Vec::new();
            for stream in listener.incoming() {
                counted.fetch_add(1, Relaxed);
                let mut stream = stream.unwrap();
                let heard = stream.read(&mut [0; 4096]);
                if heard.is_ok() && stream.write_all(says).is_ok() && then == Then::Wait {
                    kept.push(stream);
                }
            }
        });
        Self { addr, connections }
    }

    fn probed(&self) -> Value {
        let found = probe(&self.addr, &["--timeout", "0.5"]);
        let connections = self.connections.load(Relaxed);
        assert!(connections <= 3, "{connections} connections");
        found
    }
}

/// A server that answers each message with what `say` makes of its words.
fn scripted(say: fn(&[u32]) -> Vec<Vec<u32>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        loop {
            let mut peer = hostile_peer::Peer::accept(&listener);
            while let Heard::Message { bytes, .. } = peer.hear() {
                for answer in say(&as_words(&bytes)) {
                    peer.send(&words(&answer));
                }
            }
        }
    });
    addr
}

/// The reply to a call that has gone well. Of a COMPOUND it says so too.
fn done(xid: u32) -> Vec<u32> {
    rpc::msg(
        xid,
        8,
        &rpc::accepted(xid, rpc::accept::SUCCESS, &[0, 0, 0]),
    )
}

/// The same with every time, of which nothing can be known beforehand, as `T`.
fn without_times(shown: &str) -> String {
    let times = |word: &str| {
        let parts = word.split('/').map(|part| match part.parse::<f64>() {
            Ok(_) if part.contains('.') => "T",
            _ => part,
        });
        parts.collect::<Vec<_>>().join("/")
    };
    let words: Vec<_> = shown.split(' ').map(times).collect();
    words.join(" ")
}

#[test]
fn probe_of_our_server_fits_on_one_screen() {
    let served = Served::new(&[]);
    let shown = text(&ok(&["probe", "-c", "5", &served.listening]));
    let expected = format!(
        "\
{}: it answers NFS over RPC-over-RDMA
  TCP            connected in T ms
  MPA            revision 2 enhanced, CRC32C always, no markers
                 IRD 32, ORD 32 (offered: 32, 32)
  private data   f6ab0e18010107037270633263653031
                 RPC-over-RDMA version 1 CM Private Data, at the head
                 sends up to 8192 bytes, receives up to 4096
                 it announces version 2 (cel-01)
  inline         4096 bytes to it, 8192 bytes from it
  invalidation   announced and used
  RPC-over-RDMA  version 1, version 2 (cel-01)
                 its operations: ROPT_INITXCH, ROPT_REQXCH, ROPT_RESPXCH, ROPT_UPDXCH
                 Receive Buffer Size: 8192
                 Requester Remote Invalidation: true (fixed)
  credits        128 granted, 1024 asked for
  NFS            versions 3, 4
  MOUNT          version 3
  NFS version 4  4.1, 4.2
  lease          90 s
  round trip     min/median/max = T/T/T ms, 5 calls
",
        served.listening
    );
    let shown = without_times(&shown);
    let (of_session, others): (Vec<_>, Vec<_>) = shown
        .split_inclusive('\n')
        .partition(|line| line.starts_with("  server owner ") || line.starts_with("  session "));
    assert_eq!(of_session.len(), 2, "{shown}");
    assert_eq!(others.concat(), expected);
}

#[test]
fn options_of_a_server_are_seen_from_outside() {
    let served = Served::new(&[
        "--crc=off",
        "--inline-size=65536",
        "--remote-invalidation=off",
        "--credits=3",
    ]);
    let found = probe(&served.listening, &[]);
    assert_eq!(found["mpa"]["crc_required"], false);
    assert_eq!(found["private_data"]["send_size"], 65536);
    assert_eq!(found["private_data"]["receive_size"], 65536);
    assert_eq!(found["private_data"]["remote_invalidation"], false);
    assert_eq!(found["inline"], json!({"to_peer": 4096, "from_peer": 8192}));
    assert_eq!(found["rpcrdma"]["invalidates"], false);
    assert_eq!(found["rpcrdma"]["credits_granted"], 3);
    assert_eq!(found["rpcrdma"]["ended"], Value::Null);
}

#[test]
fn programs_and_their_versions_are_told_apart() {
    let served = Served::new(&[]);
    let found = probe(&served.listening, &["-c", "1"]);
    let mismatch = |version| {
        json!({"name": "NFS", "program": 100_003, "version": version,
            "answer": "prog_mismatch", "low": 3, "high": 4})
    };
    let there = |name, program, version| json!({"name": name, "program": program, "version": version, "answer": "success"});
    let programs = json!([
        mismatch(2),
        there("NFS", 100_003, 3),
        there("NFS", 100_003, 4),
        there("MOUNT", 100_005, 3)
    ]);
    assert_eq!(found["programs"], programs);
    assert_eq!(found["nfs_versions"], json!([3, 4]));
    assert_eq!(found["nfs4_minor_versions"], json!([1, 2]));
    assert_eq!(found["rtt_ms"]["calls"], 1);
}

#[test]
fn what_is_not_mpa_is_quoted() {
    let ssh = Peer::that(b"SSH-2.0-of some\x1b kind\r\n", Then::Wait);
    let found = ssh.probed();
    assert_eq!(found["verdict"], "not_mpa");
    assert_eq!(found["first_bytes"]["text"], "SSH-2.0-of some\\x1b kin");
    let shown = run(&["probe", &ssh.addr]);
    assert_eq!(shown.status.code(), Some(1));
    let shown = text(&shown.stdout);
    let says =
        "it accepts TCP connections but does not speak MPA: it said \"SSH-2.0-of some\\x1b kin\"";
    assert!(shown.contains(says), "{shown}");
}

#[test]
fn nfs_over_plain_tcp_is_recognised() {
    let served = Served::new(&[]);
    let found = probe(&format!("127.0.0.1:{}", served.mount_port), &[]);
    assert_eq!(found["verdict"], "closed");
    assert_eq!(found["plain_tcp"]["answer"], "success");
    let explanation = found["explanation"].as_str().unwrap();
    assert!(
        explanation.contains("port of NFS over plain TCP"),
        "{explanation}"
    );
    assert_eq!(found["mpa"], Value::Null);
}

#[test]
fn probe_of_a_peer_that_sends_nothing_ends() {
    let check = |then, verdict| {
        let found = Peer::that(b"", then).probed();
        assert_eq!(found["verdict"], verdict);
        assert_eq!(found["plain_tcp"], Value::Null);
    };
    check(Then::Close, "closed");
    check(Then::Wait, "silent");
}

#[test]
fn closed_port_is_reported() {
    let nobody = format!("127.0.0.1:{}", free_port());
    let found = probe(&nobody, &[]);
    assert_eq!(found["verdict"], "refused");
    assert_eq!(found["tcp_connect_ms"], Value::Null);
}

#[test]
fn mpa_peer_that_answers_no_call_is_reported() {
    const REPLY: &[u8] = b"MPA ID Rep Frame\x90\x02\x00\x11\x00\x07\x3f\xff\
        other\xf6\xab\x0e\x18\x01\x01\x0f\x01";
    let found = Peer::that(REPLY, Then::Wait).probed();
    assert_eq!(found["verdict"], "mpa_only");
    let mpa = &found["mpa"];
    assert_eq!((&mpa["ird"], &mpa["ord"]), (&json!(7), &Value::Null));
    assert_eq!(
        (&mpa["markers"], &mpa["crc"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(found["private_data"]["offset"], 5);
    assert_eq!(found["inline"], json!({"to_peer": 2048, "from_peer": 8192}));
    assert_eq!(found["programs"][0]["answer"], "nothing");
    assert_eq!(found["programs"].as_array().unwrap().len(), 1);
}

#[test]
fn closed_connection_is_not_taken_for_the_silence_of_a_gateway() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        loop {
            let mut peer = hostile_peer::Peer::accept(&listener);
            peer.hear();
            peer.hang_up();
        }
    });
    let found = probe(&addr, &[]);
    let explained = found["explanation"].as_str().unwrap();
    assert!(
        explained.ends_with("if it is a gateway, its log says why"),
        "{found}"
    );
}

#[test]
fn ping_of_a_server_without_nfs_does_not_guess_why_it_is_silent() {
    let addr = scripted(|message| {
        let unavailable = rpc::accepted(message[0], rpc::accept::PROG_UNAVAIL, &[]);
        vec![rpc::msg(message[0], 4, &unavailable)]
    });
    let pinged = run(&["ping", "-c1", "--rpcrdma-version=1", &addr]);
    let said = text(&pinged.stderr);
    assert!(
        said.contains("does not have this program") && !said.contains("gateway"),
        "{said}"
    );
}

#[test]
fn mpa_reply_that_cannot_be_accepted_is_shown() {
    let found = Peer::that(
        b"MPA ID Rep Frame\x50\x03\x00\x04\x00\x01\x00\x02",
        Then::Wait,
    )
    .probed();
    assert_eq!(found["verdict"], "bad_mpa");
    assert_eq!(found["mpa"]["revision"], 3);
    assert_eq!(found["mpa"]["crc"], true);
}

/// Speaks version one only.
fn version_one(message: &[u32]) -> Vec<Vec<u32>> {
    match *message {
        [xid, 1, ..] => vec![done(xid)],
        [xid, version, ..] => vec![vec![xid, version, 8, 4, 1, 1, 1]],
        _ => Vec::new(),
    }
}

#[test]
fn refusal_of_version_two_tells_the_versions_that_there_are() {
    let addr = scripted(version_one);
    let found = probe(&addr, &["-c", "1"]);
    assert_eq!(found["rpcrdma"]["version_one"], true);
    let refusal = json!({"answer": "err_vers", "low": 1, "high": 1});
    assert_eq!(found["rpcrdma"]["version_two"], refusal);
    let shown = text(&ok(&["probe", "-c", "1", &addr]));
    let expected = "  RPC-over-RDMA  version 1; version 2 is refused (ERR_VERS, 1 to 1)\n";
    assert!(shown.contains(expected), "{shown}");
}

/// Speaks version one, and version two with characteristics, one of which nobody knows.
fn versions_one_and_two(message: &[u32]) -> Vec<Vec<u32>> {
    const INITXCH: u32 = 1;
    const REQXCH: u32 = 2;
    const RESPXCH: u32 = 3;
    match *message {
        [xid, 1, ..] => vec![done(xid)],
        // Its RBSIZ of 16384, one that is not known, and that it does remote invalidation for good.
        [xid, 2, _, 5, 0, INITXCH, ..] => {
            let characteristics = [3, 1, 4, 16384, 77, 4, 5, 2, 4, 1, 1, 0b100];
            let header = [xid, 2, 16, 5, 1, INITXCH, 48];
            vec![[&header[..], &characteristics].concat()]
        }
        [xid, 2, _, 5, 0, REQXCH, ..] => vec![vec![xid, 2, 16, 5, 1, RESPXCH, 12, 0, 0, 0]],
        // UPDXCH is not supported.
        [xid, 2, ..] => vec![vec![xid, 2, 16, 4, 3]],
        _ => Vec::new(),
    }
}

#[test]
fn version_two_is_shown_with_characteristics_and_operations() {
    let addr = scripted(versions_one_and_two);
    let found = probe(&addr, &["-c", "1"]);
    assert_eq!(found["nfs_versions"], json!([2, 3, 4]));
    assert_eq!(found["nfs4_minor_versions"], json!([0, 1, 2]));
    let two = &found["rpcrdma"]["version_two"];
    assert_eq!(two["answer"], "spoken", "{found}");
    assert_eq!(
        (&two["odd"], &two["credits_granted"]),
        (&Value::Null, &json!(16))
    );
    let operations = json!(["ROPT_INITXCH", "ROPT_REQXCH", "ROPT_RESPXCH"]);
    assert_eq!(two["operations"], operations);
    let seen = |id, name: Option<&str>, value: Value, bytes, fixed| json!({"id": id, "name": name, "value": value, "bytes": bytes, "fixed": fixed});
    let characteristics = json!([
        seen(
            1,
            Some("Receive Buffer Size"),
            json!(16384),
            "00004000",
            false
        ),
        seen(77, None, Value::Null, "00000005", false),
        seen(
            2,
            Some("Requester Remote Invalidation"),
            json!(true),
            "00000001",
            true
        ),
    ]);
    assert_eq!(two["characteristics"], characteristics);

    let shown = text(&ok(&["probe", "-c", "1", &addr]));
    let expected = "  RPC-over-RDMA  version 1, version 2 (cel-01)
                 its operations: ROPT_INITXCH, ROPT_REQXCH, ROPT_RESPXCH
                 Receive Buffer Size: 16384
                 characteristic 77: 00000005
                 Requester Remote Invalidation: true (fixed)
";
    assert!(shown.contains(expected), "{shown}");
}

/// Speaks version one, and version two as ietf-07 has it: RDMA2_CONNPROP_FINAL comes unasked.
fn later_draft(message: &[u32]) -> Vec<Vec<u32>> {
    match *message {
        [xid, 1, ..] => vec![done(xid)],
        _ => vec![vec![0, 2, 128, 7, 0]],
    }
}

#[test]
fn draft_of_version_two_is_named() {
    let addr = scripted(later_draft);
    let found = probe(&addr, &["-c", "1", "--timeout", "60"]);
    let other = json!({"answer": "other_draft", "drafts": "cel-03 to cel-07 or ietf-03 to ietf-07",
        "detail": "header type 7 of cel-03 to cel-07 or ietf-03 to ietf-07"});
    assert_eq!(found["rpcrdma"]["version_two"], other);
    assert_eq!(found["private_data"]["version_two"], Value::Null);
    let shown = text(&ok(&["probe", "-c", "1", &addr]));
    let expected = "version 1; another draft of version 2: header type 7 of cel-03";
    assert!(shown.contains(expected), "{shown}");
    // Silence may mean that the offer was taken for something else.
    let addr = scripted(|message| match *message {
        [xid, 1, ..] => vec![done(xid)],
        _ => Vec::new(),
    });
    let found = probe(&addr, &["-c", "1", "--timeout", "0.5"]);
    let detail = found["rpcrdma"]["version_two"]["detail"].as_str().unwrap();
    assert!(detail.contains("RDMA2_GRANT"), "{detail}");
}

#[test]
fn designs_that_the_server_does_not_select_are_shown() {
    let served = Served::new(&[]);
    let offer = "--remote-invalidation=fixed,per_call";
    let found = probe(&served.listening, &["-c", "1", offer]);
    let two = &found["rpcrdma"]["version_two"];
    assert_eq!(two["dialect"], "cel-01");
    assert_eq!(two["designs_offered"], json!(["fixed", "per_call"]));
    assert_eq!(two["design_selected"], Value::Null);
    let shown = text(&ok(&["probe", "-c", "1", offer, &served.listening]));
    let expected = "it selects none of these designs: fixed, per_call\n";
    assert!(shown.contains(expected), "{shown}");
    let served = Served::new(&["--remote-invalidation=per_call"]);
    let found = probe(&served.listening, &["-c", "1", offer]);
    assert_eq!(
        found["rpcrdma"]["version_two"]["design_selected"],
        "per_call"
    );
    assert_eq!(found["private_data"]["version_two"], "cel-01");
}

/// Says something of its own before each reply, and refuses all calls but those of NFS version 3
/// without a chunk.
fn odd(message: &[u32]) -> Vec<Vec<u32>> {
    match *message {
        [xid, 1, _, _, _, _, _, _, _, _, 100_003, 3, ..] => vec![vec![!xid; 7], done(xid)],
        [xid, 1, ..] => vec![vec![xid, 1, 0, 4, 2]],
        [xid, ..] => vec![vec![xid, 7, 1, 0, 0, 0, 0]],
        [] => Vec::new(),
    }
}

#[test]
fn invalid_replies_of_a_server_are_shown() {
    let found = probe(&scripted(odd), &["-c", "2"]);
    assert_eq!(found["nfs_versions"], json!([3]));
    assert_eq!(found["programs"][0]["detail"], "RDMA_ERROR, ERR_CHUNK");
    let rpcrdma = &found["rpcrdma"];
    assert_eq!(rpcrdma["stray_messages"], 3);
    assert_eq!(rpcrdma["credits_granted"], 8);
    assert_eq!(rpcrdma["invalidates"], false);
    assert_eq!(
        rpcrdma["version_two"]["detail"],
        "a message of version 7, procedure 0"
    );
}

#[test]
fn echoed_call_is_not_taken_for_a_reply() {
    let found = probe(&scripted(|message| vec![message.to_vec()]), &[]);
    assert_eq!(found["verdict"], "mpa_only");
    assert_eq!(found["rpcrdma"]["version_one"], false);
    let explanation = found["explanation"].as_str().unwrap();
    assert!(
        explanation.contains("the reply is malformed"),
        "{explanation}"
    );
}

#[test]
fn rejection_is_not_reported_as_absence() {
    let served = Served::new(&["--allow", "192.0.2.0/24"]);
    let found = probe(&served.listening, &[]);
    assert_eq!(found["verdict"], "rejected");
    assert_eq!(found["mpa"]["rejected"], true);
}

#[test]
fn probe_leaves_no_connection_behind() {
    let served = Served::new(&["--max-connections", "4"]);
    for _ in 0..5 {
        assert_eq!(probe(&served.listening, &["-c", "1"])["verdict"], "rpcrdma");
    }
    ok(&["ls", &served.url("")]);
}

#[test]
fn every_field_is_explained() {
    const PAGE: &str = include_str!("../../../../docs/guide/probe.md");
    fn check(found: &Value) {
        for (name, value) in found.as_object().into_iter().flatten() {
            assert!(PAGE.contains(&format!("`{name}`")), "{name}");
            check(value);
        }
        found.as_array().into_iter().flatten().for_each(check);
    }
    let served = Served::new(&[]);
    check(&probe(&served.listening, &["-c", "1"]));
    check(&probe(&scripted(versions_one_and_two), &["-c", "1"]));
    check(&Peer::that(b"HTTP/1.1 400 Bad Request\r\n", Then::Close).probed());
}

#[test]
fn invalid_probe_arguments_are_reported() {
    fails(
        &["probe", "host.invalid"],
        1,
        "host.invalid:20049: cannot find this host",
    );
    fails(&["probe", "127.0.0.1:0"], 2, "1 to 65535");
    fails(&["probe", "-c", "1001", "127.0.0.1"], 2, "1001");
}

#[test]
fn probe_shows_what_a_server_of_ietf_07_says_of_itself() {
    let said = json!([
        {"id": 1, "name": "Maximum Send Size", "value": 32768, "bytes": "00008000"},
        {"id": 2, "name": "Receive Buffer Size", "value": 8192, "bytes": "00002000"},
        {"id": 3, "name": "Maximum Segment Size", "value": 4194304, "bytes": "00400000"},
        {"id": 4, "name": "Maximum Segment Count", "value": 256, "bytes": "00000100"},
    ]);
    let asked = ["--rpcrdma-version", "2:ietf-07"];
    for (server, ways) in [
        ("auto:ietf-07", &[&[][..], &asked][..]),
        ("2:ietf-07", &[&[]]),
    ] {
        let served = Served::new(&["--rpcrdma-version", server]);
        for args in ways {
            let found = probe(&served.listening, args);
            assert_eq!(found["private_data"]["version_two"], "ietf-07");
            let two = &found["rpcrdma"]["version_two"];
            assert_eq!(two["answer"], "spoken", "{found}");
            assert_eq!(two["dialect"], "ietf-07");
            assert_eq!(two["properties"], said);
            assert!(two["credits_granted"].as_u64() > Some(0), "{two}");
            assert_eq!(two["odd"], Value::Null);
        }
        if server == "2:ietf-07" {
            continue;
        }
        let shown = text(&ok(&["probe", &served.listening]));
        for part in [
            "version 2 (ietf-07)",
            "Maximum Segment Count: 256",
            " messages\n",
        ] {
            assert!(shown.contains(part), "{shown}");
        }
        // Asked for the draft that it does not have, it says so.
        let other = probe(&served.listening, &["--rpcrdma-version", "2"]);
        assert_eq!(other["rpcrdma"]["version_two"]["answer"], "err_vers");
    }
    let served = Served::new(&[]);
    let other = probe(&served.listening, &["--rpcrdma-version", "2:ietf-07"]);
    assert_eq!(other["rpcrdma"]["version_two"]["answer"], "err_vers");
}
