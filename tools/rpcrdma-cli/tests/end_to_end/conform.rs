//! `conform` against our own server and client, its baselines, forms of output and exit codes.

use crate::running::{PROGRAM, Served, fails, free_port, ok, run, text};
use crate::schemas::prints;
use std::fs;

/// Cases that fail against our server, with their reasons. None does.
const KNOWN: &str = include_str!("../../../../testing/conform/serve.known");

/// Cases that fail against our client, with their reasons. None does.
const KNOWN_CLIENT: &str = include_str!("../../../../testing/conform/client.known");

#[test]
fn our_server_fails_no_case() {
    let served = Served::new(&[]);
    let known = served.local("known", KNOWN.as_bytes());
    let junit = served.beside("junit.xml");
    let before = crate::running::tree(&served.dir);
    let args = [
        "conform",
        "--patience=60s",
        "--directory=/",
        "--known",
        &known,
        "--junit",
        &junit,
        &served.listening,
    ];
    let printed = text(&ok(&args));
    let last = printed.lines().last().unwrap();
    assert!(last.contains(" passed, 0 failed, "), "{printed}");
    assert!(
        printed.lines().next().unwrap().contains(" cases, about "),
        "{printed}"
    );
    let xml = fs::read_to_string(junit).unwrap();
    assert!(xml.contains("failures=\"0\" errors=\"0\""), "{xml}");
    assert_eq!(
        xml.matches("<testcase ").count(),
        xml.matches("</testcase>").count()
    );
    // What the cases have written is gone.
    assert_eq!(crate::running::tree(&served.dir), before);
}

#[test]
fn cases_without_a_directory_are_skipped_with_the_reason() {
    let served = Served::new(&[]);
    let printed = text(&ok(&["conform", "--only=NFS-01,BASE-*", &served.listening]));
    assert!(printed.contains("--directory"), "{printed}");
    assert!(
        printed.contains("7 passed, 0 failed, 1 skipped"),
        "{printed}"
    );
}

#[test]
fn output_is_tap_or_json() {
    let served = Served::new(&[]);
    let server = &*served.listening;
    let tap = text(&ok(&["conform", "--tap", "--only=CRED-*", server]));
    let mut lines = tap.lines();
    assert_eq!(lines.next(), Some("TAP version 13"));
    assert_eq!(lines.next(), Some("1..7"));
    assert_eq!(
        lines.filter(|line| line.starts_with("ok ")).count(),
        7,
        "{tap}"
    );
    let found = prints(
        "conform",
        &["conform", "--json", "--only=BASE-01,NFS-01", server],
    );
    assert_eq!(found[0]["passed"], 1);
    assert_eq!(found[0]["findings"][0]["code"], "BASE-01");
    assert!(
        !found[0]["findings"][0]["exchange"]
            .as_array()
            .unwrap()
            .is_empty()
    );
}

/// A server that answers every message with RDMA_ERROR: what a baseline can be made of.
fn refusing() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        loop {
            let mut peer = hostile_peer::Peer::accept(&listener);
            while let hostile_peer::Heard::Message { bytes, .. } = peer.hear() {
                let xid = u32::from_be_bytes(*bytes.first_chunk().unwrap());
                peer.send(&hostile_peer::words(&[xid, 1, 1, 4, 2]));
            }
        }
    });
    addr
}

#[test]
fn baseline_makes_known_failures_green_and_new_ones_red() {
    let served = Served::new(&[]);
    let (server, known) = (refusing(), served.beside("known"));
    let base = ["conform", "--only=BASE-01,BASE-02,CRED-04", &server];
    let output = run(&base);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("failures: BASE-01 BASE-02\n"));
    ok(&[&base[..], &["--write-known", &known]].concat());
    let kept = fs::read_to_string(&known).unwrap();
    assert!(
        kept.contains("\nBASE-01  ") && kept.contains("\nBASE-02  "),
        "{kept}"
    );
    let printed = text(&ok(&[&base[..], &["--known", &known]].concat()));
    assert!(printed.contains("2 of the failures are known"), "{printed}");
    // One that is not in it is red.
    fs::write(&known, "BASE-01  reason\n").unwrap();
    let output = run(&[&base[..], &["--known", &known]].concat());
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("failures: BASE-02\n"));
    // And one that passes is told.
    fs::write(&known, "BASE-01  reason\nBASE-02  reason\nCRED-04  old\n").unwrap();
    let printed = text(&ok(&[&base[..], &["--known", &known]].concat()));
    assert!(printed.contains("now pass: CRED-04 "), "{printed}");
}

#[test]
fn octets_of_failed_cases_are_printed_when_asked_for() {
    let server = refusing();
    let output = run(&["conform", "-v", "--only=BASE-01", &server]);
    let printed = text(&output.stdout);
    assert!(printed.contains("<- RDMA_ERROR ERR_CHUNK"), "{printed}");
    // Version, credits that are asked for, RDMA_MSG.
    let octets = "00 00 00 01 00 00 00 20 00 00 00 00\n";
    let first = printed.lines().find(|line| line.contains("  0000  "));
    assert!(
        first.unwrap_or_default().ends_with(octets.trim_end()),
        "{printed}"
    );
}

#[test]
fn nothing_to_test_is_code_77_and_what_makes_no_sense_2() {
    let closed = format!("127.0.0.1:{}", free_port());
    fails(&["conform", &closed], 77, "nothing could be tested");
    let waiting = ["conform", "--serve=127.0.0.1:0", "--client-wait=100ms"];
    fails(&waiting, 77, "no Requester connected");
    fails(
        &["conform", "--only=NO-01", &closed],
        2,
        "no case has the code NO-01",
    );
    fails(&["conform", "--known=/no/such", &closed], 2, "/no/such");
    fails(&["conform"], 2, "HOST[:PORT]");
}

#[test]
fn list_has_every_case() {
    let listed = text(&ok(&["conform", "--list"]));
    for code in [
        "BASE-01", "MPA-22", "XCH-18", "IETF-30", "ICALL-24", "RDIS-01", "RV2-04",
    ] {
        assert!(listed.contains(&format!("{code} ")), "{code}");
    }
    let without = text(&ok(&["conform", "--list", "--except=HDR-*,rdch-03"]));
    assert!(!without.contains("HDR-") && !without.contains("RDCH-03 "));
    assert!(without.contains("RDCH-04 "));
    fails(
        &["conform", "--list", "--except=RDCH-99"],
        2,
        "--except: no case has the code RDCH-99",
    );
    fails(
        &["conform", "--list", "--only=HDR-01", "--except=HDR-*"],
        2,
        "--except leaves no case of --only",
    );
    let some = text(&ok(&["conform", "--list", "--only=hdr-0*"]));
    assert_eq!(some.matches("HDR-").count(), 9, "{some}");
}

#[test]
fn our_client_fails_no_case() {
    let around = tempfile::tempdir().unwrap();
    let known = around.path().join("known");
    fs::write(&known, KNOWN_CLIENT).unwrap();
    let file = around.path().join("file");
    fs::write(&file, vec![7; 200_000]).unwrap();
    let (file, copy) = (file.display(), around.path().join("copy"));
    // Several connections, one for each command.
    let work = format!(
        "set -e; u=nfs://$RPCRDMA_HOST:$RPCRDMA_PORT$RPCRDMA_EXPORT
        {PROGRAM} put {file} $u/file; {PROGRAM} cat $u/file >{copy}; cmp {file} {copy}
        {PROGRAM} ls -l $u",
        copy = copy.display()
    );
    let at = format!("127.0.0.1:{}", free_port());
    let args = [
        "conform",
        "--patience=60s",
        "--serve",
        &at,
        "--run",
        &work,
        "--known",
        known.to_str().unwrap(),
    ];
    let printed = text(&ok(&args));
    assert!(printed.contains(" passed, 0 failed, "), "{printed}");
}

#[test]
fn options_for_clients_are_refused_where_a_server_is_tested() {
    for option in ["--run=true", "--client-wait=3s"] {
        fails(
            &["conform", option, "127.0.0.1:9"],
            2,
            "cannot be used with",
        );
    }
}

#[test]
fn run_in_which_no_case_has_a_verdict_ends_with_its_own_code() {
    let served = Served::new(&[]);
    let args = ["conform", "--only=NFS-01", &served.listening];
    fails(&args, 77, "no case came to a verdict");
}
