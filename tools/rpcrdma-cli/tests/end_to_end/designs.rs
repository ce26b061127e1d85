//! Files under each design for remote invalidation, and how it is chosen and shown.

use crate::commands::data;
use crate::running::{Served, fails, ok, text, tree};
use serde_json::{Value, json};
use std::fs;

const NAMES: [&str; 7] = [
    "per_version",
    "per_connection",
    "fixed",
    "per_call",
    "per_call_several",
    "inter_call",
    "per_call_all",
];

fn invalidation(how: &str) -> String {
    format!("--remote-invalidation={how}")
}

/// Design that a client with these options agrees on with a server.
fn agreed(served: &Served, args: &[&str]) -> Value {
    let ping = ["ping", "-c1", "--json", &served.listening];
    let report = ok(&[&ping[..], args].concat());
    let mut report: Value = serde_json::from_slice(&report).unwrap();
    report["remote_invalidation"].take()
}

#[test]
fn files_are_the_same_under_each_design() {
    let content = data(3 << 20);
    for name in NAMES {
        let how = invalidation(name);
        let served = Served::new(&[&how]);
        assert_eq!(agreed(&served, &[&how]), name);
        for args in [
            &[&how[..]][..],
            &[&how, "--persistent-memory=65536"],
            &[&how, "--one-region"],
        ] {
            let source = served.local("tree/large", &content);
            served.local("tree/small", &content[..10_000]);
            served.local("tree/empty", b"");
            let source = source.trim_end_matches("/large");
            ok(&[&["put", "-r", source, &served.url("")], args].concat());
            assert_eq!(fs::read(served.dir.join("tree/large")).unwrap(), content);
            let back = served.beside("back");
            ok(&[&["get", "-r", &served.url("tree"), &back], args].concat());
            assert_eq!(tree(back.as_ref()), tree(source.as_ref()));
            let listing = text(&ok(&[&["ls", "-R", &served.url("")], args].concat()));
            assert!(listing.contains("large") && listing.contains("small"));
            ok(&[&["rm", "-r", &served.url("tree")], args].concat());
            fs::remove_dir_all(back).unwrap();
        }
    }
}

#[test]
fn server_reports_its_designs_and_agrees_on_its_first_that_is_offered() {
    let served = Served::new(&[&invalidation("inter_call,per_call,per_connection")]);
    let said: Value = serde_json::from_str(&served.said).unwrap();
    let list = json!(["inter_call", "per_call", "per_connection"]);
    assert_eq!(said["remote_invalidation"], list);
    let agreed = |args: &[&str]| agreed(&served, args);
    assert_eq!(agreed(&[&invalidation("fixed,per_call")]), "per_call");
    assert_eq!(
        agreed(&["--invalidation", "per_call,inter_call"]),
        "inter_call"
    );
    // Without one that both have it is as if there were none of them.
    assert_eq!(
        agreed(&[&invalidation("fixed,per_connection")]),
        "per_connection"
    );
    assert_eq!(agreed(&[]), "per_connection");
    assert_eq!(agreed(&[&invalidation("on")]), "per_connection");
    assert_eq!(agreed(&[&invalidation("fixed")]), Value::Null);
    assert_eq!(agreed(&[&invalidation("off")]), Value::Null);
    assert_eq!(
        agreed(&[
            "--rpcrdma-version=1",
            &invalidation("per_call,per_connection")
        ]),
        "per_connection"
    );
    assert_eq!(agreed(&["--persistent-memory=100"]), Value::Null);
}

#[test]
fn probe_shows_which_design_a_server_takes() {
    let served = Served::new(&[&invalidation("per_call_several,fixed")]);
    let designs = |args: &[&str]| {
        let probe = ["probe", "-c1", "--json", &served.listening];
        let found: Value = serde_json::from_slice(&ok(&[&probe[..], args].concat())).unwrap();
        let said = found["rpcrdma"]["version_two"]["characteristics"].clone();
        let mut said = said.as_array().unwrap().clone();
        said.retain(|said| said["id"] == 4_294_967_040_u32);
        said.pop()
    };
    assert_eq!(designs(&[]), None);
    let said = designs(&[&invalidation("inter_call,per_call_several,fixed")]).unwrap();
    assert_eq!(said["name"], "Remote Invalidation Designs");
    assert_eq!(
        (&said["value"], &said["fixed"]),
        (&json!("per_call_several"), &json!(true))
    );
    assert_eq!(designs(&[&invalidation("per_call")]), None);
}

#[test]
fn unknown_design_is_reported_with_the_known_ones() {
    for command in ["serve", "ping"] {
        for how in ["often", "fixed,", "none,fixed", ""] {
            let args = [command, &invalidation(how), "127.0.0.1"];
            fails(
                &args,
                2,
                "known designs are per_version, per_connection, fixed,",
            );
        }
    }
}

#[test]
fn probe_takes_no_design_that_cannot_be_offered() {
    for how in ["on", "off", "per_version", "fixed,per_connection", "often"] {
        let args = ["probe", &invalidation(how), "127.0.0.1"];
        fails(
            &args,
            2,
            "there are fixed, per_call, per_call_several, inter_call and",
        );
    }
}
