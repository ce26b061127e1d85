//! Files over version two as each draft has it, and ends that speak different drafts.

use crate::commands::data;
use crate::running::{Served, fails, ok, text, tree};
use serde_json::Value;
use std::fs;

const LATER: &str = "--rpcrdma-version=2:ietf-07";
const LATER_TOO: &str = "--rpcrdma-version=auto:ietf-07";

/// The version that a client with this option settles on with a server.
fn spoken(served: &Served, option: &str) -> Value {
    let report = ok(&["ping", "-c1", "--json", option, &served.listening]);
    let mut report: Value = serde_json::from_slice(&report).unwrap();
    report["rpcrdma_version"].take()
}

#[test]
fn files_are_the_same_over_ietf_07() {
    let content = data(5 << 20);
    for server in [LATER, LATER_TOO] {
        let served = Served::new(&[server]);
        for client in [LATER, LATER_TOO] {
            assert_eq!(spoken(&served, client), 2);
            let source = served.local("tree/large", &content);
            served.local("tree/small", &content[..10_000]);
            served.local("tree/empty", b"");
            for name in 0..500 {
                served.local(&format!("tree/many/{name:0100}"), b"");
            }
            let source = source.trim_end_matches("/large");
            ok(&["put", "-r", client, source, &served.url("")]);
            let back = served.beside("back");
            ok(&["get", "-r", client, &served.url("tree"), &back]);
            assert_eq!(tree(back.as_ref()), tree(source.as_ref()));
            let listing = text(&ok(&["ls", "-R", client, &served.url("")]));
            assert!(listing.matches("0000000000").count() >= 500);
            ok(&["rm", "-r", client, &served.url("tree")]);
            fs::remove_dir_all(back).unwrap();
        }
    }
}

#[test]
fn ends_of_different_drafts_speak_version_one_or_say_why_not() {
    let served = Served::new(&[LATER_TOO]);
    // Of another draft, or of none: the server has version one.
    for client in ["--rpcrdma-version=auto", "--rpcrdma-version=1"] {
        assert_eq!(spoken(&served, client), 1);
    }
    let served = Served::new(&[]);
    assert_eq!(spoken(&served, LATER_TOO), 1);
    // The server answers that it has no version two.
    fails(
        &["ping", "-c1", LATER, &served.listening],
        1,
        "the server speaks the draft cel-01 of version two, and this end ietf-07",
    );
}
