//! Behaviour of the commands.

use crate::running::{Served, fails, ok, text, tree};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

/// Bytes that differ from place to place.
pub(crate) fn data(len: usize) -> Vec<u8> {
    let mut state = 1u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    std::iter::repeat_with(next).take(len).collect()
}

fn json(line: &str) -> serde_json::Value {
    serde_json::from_str(line).unwrap()
}

#[test]
fn files_come_back_as_they_were_put() {
    let served = Served::new(&[]);
    // Nothing, less than inline, a whole number of calls, and an odd one.
    for len in [0, 1, 700, 1 << 20, (5 << 20) + 3] {
        let content = data(len);
        let source = served.local("source", &content);
        let url = served.url("copy");
        ok(&["put", &source, &url]);
        assert_eq!(fs::read(served.dir.join("copy")).unwrap(), content);
        assert_eq!(ok(&["cat", &url]), content);
        let dest = served.beside("dest");
        ok(&["get", &url, &dest]);
        assert_eq!(fs::read(&dest).unwrap(), content);
    }
    let names: Vec<_> = tree(&served.dir)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names, [Path::new("copy")]);
}

#[test]
fn files_are_copied_over_several_connections() {
    let served = Served::new(&[]);
    let content = data((5 << 20) + 3);
    let source = served.local("source", &content);
    let url = served.url("copy");
    ok(&["put", "--nconnect", "4", &source, &url]);
    assert_eq!(fs::read(served.dir.join("copy")).unwrap(), content);
    assert_eq!(ok(&["cat", "--nconnect=16", &url]), content);
    fails(&["cat", "--nconnect", "17", &url], 2, "17");
}

#[test]
fn files_keep_their_permissions_but_not_the_right_to_act_as_their_owner() {
    let served = Served::new(&[]);
    let source = served.local("script", b"#!/bin/sh\n");
    fs::set_permissions(&source, fs::Permissions::from_mode(0o4750)).unwrap();
    ok(&["put", &source, &served.url("")]);
    let there = fs::metadata(served.dir.join("script")).unwrap();
    assert_eq!(there.mode() & 0o7777, 0o750);
}

#[test]
fn trees_come_back_as_they_were_put() {
    let served = Served::new(&[]);
    let dir = served.around.path().join("tree");
    served.local("tree/a/b/deep", &data(100_000));
    served.local("tree/a/empty", b"");
    served.local("tree/.hidden", b"h");
    served.local("tree/with blank % and \u{e9}", b"n");
    fs::create_dir(dir.join("no files")).unwrap();
    symlink("a/b/deep", dir.join("link")).unwrap();
    symlink("/nowhere", dir.join("a/dangling")).unwrap();
    let expected = tree(&dir);

    let dir = dir.to_str().unwrap();
    ok(&["put", "-r", dir, &served.url("")]);
    assert_eq!(tree(&served.dir.join("tree")), expected);
    let back = served.beside("back");
    ok(&["get", "-r", &served.url("tree"), &back]);
    assert_eq!(tree(Path::new(&back)), expected);
    // Once more over what is there, and into a directory.
    ok(&["get", "-r", &served.url("tree"), &back]);
    assert_eq!(tree(&Path::new(&back).join("tree")), expected);

    ok(&["rm", "-r", &served.url("tree")]);
    assert!(tree(&served.dir).is_empty());
}

#[test]
fn many_files_of_all_sizes_come_back_as_they_were_put() {
    let served = Served::new(&[]);
    let sizes = [0, 1, 4096, 65_535, 65_536, 65_537, 1 << 20, 3_000_001];
    for number in 0..400 {
        let size = sizes[number % sizes.len()] / (1 + number / 100);
        served.local(&format!("many/{}/{number}", number % 3), &data(size));
    }
    let many = served.beside("many");
    let expected = tree(Path::new(&many));
    ok(&["put", "-r", &many, &served.url("")]);
    assert!(tree(&served.dir.join("many")) == expected);
    let back = served.beside("back");
    ok(&["get", "-r", &served.url("many"), &back]);
    assert!(tree(Path::new(&back)) == expected);
}

#[test]
fn large_directory_is_listed_whole() {
    let served = Served::new(&[]);
    let mut names: Vec<String> = (0..3000).map(|number| format!("file-{number}")).collect();
    for name in &names {
        fs::write(served.dir.join(name), "").unwrap();
    }
    names.sort();
    let listed = text(&ok(&["ls", &served.url("")]));
    assert_eq!(listed.lines().collect::<Vec<_>>(), names);
    ok(&["rm", "-r", &served.url("file-7"), &served.url("file-8")]);
    let lines = text(&ok(&["ls", "--json", &served.url("")]));
    assert_eq!(lines.lines().count(), 2998);
}

#[test]
fn ls_shows_entries_with_attributes() {
    let served = Served::new(&[]);
    fs::create_dir_all(served.dir.join("dir/inner")).unwrap();
    fs::write(served.dir.join("dir/file"), "1234567").unwrap();
    fs::write(served.dir.join(".dot"), "").unwrap();
    fs::write(served.dir.join("bell\u{7}"), "").unwrap();
    symlink("dir/file", served.dir.join("link")).unwrap();
    let root = served.url("");
    assert_eq!(text(&ok(&["ls", &root])), "bell\\x07\ndir\nlink\n");
    assert_eq!(
        text(&ok(&["ls", "-a", &root])),
        ".\n..\n.dot\nbell\\x07\ndir\nlink\n"
    );

    let long = text(&ok(&["ls", "-l", &root]));
    let lines: Vec<&str> = long.lines().collect();
    assert!(
        lines[2].starts_with("drwx") && lines[2].ends_with(" dir"),
        "{long}"
    );
    assert!(
        lines[3].starts_with("lrwx") && lines[3].ends_with(" link -> dir/file"),
        "{long}"
    );

    let deep = text(&ok(&["ls", "-R", &root]));
    let inner = served.url("dir/inner");
    assert!(deep.contains(&format!("\n\n{inner}:\n")), "{deep}");
    assert!(deep.contains(":\nfile\ninner\n"), "{deep}");

    let one = text(&ok(&["ls", "--json", &served.url("dir/file")]));
    assert_eq!(json(&one)["size"], 7);
    assert_eq!(json(&one)["type"], "file");
    assert_eq!(json(&one)["path"], "dir/file");
}

#[test]
fn names_that_are_no_text_are_named_by_their_url() {
    let served = Served::new(&[]);
    let name = OsStr::from_bytes(b"odd-\xff\xfe");
    fs::write(served.dir.join(name), "content").unwrap();
    let url = served.url("odd-%FF%FE");
    let line = text(&ok(&["ls", "--json", &served.url("")]));
    assert_eq!(json(&line)["url"], url.as_str());
    let line = text(&ok(&["stat", "--json", &url]));
    assert_eq!(json(&line)["url"], url.as_str());
    assert_eq!(ok(&["cat", &url]), b"content");
    let raw = OsString::from_vec([served.url("").as_bytes(), name.as_bytes()].concat());
    let raw = raw.as_os_str();
    let says = "write such bytes as %XX";
    for args in [
        &[OsStr::new("cat"), raw][..],
        &[OsStr::new("get"), raw],
        &[OsStr::new("ln"), raw, OsStr::new(&url)],
    ] {
        fails(args, 2, says);
    }
}

#[test]
fn names_are_made_moved_linked_and_removed() {
    let served = Served::new(&[]);
    let url = |path| served.url(path);
    ok(&["mkdir", &url("one"), &url("two")]);
    ok(&["mkdir", "-p", &url("one/a/b"), &url("two")]);
    assert!(served.dir.join("one/a/b").is_dir());
    let file = served.local("file", b"content");
    ok(&["put", &file, &url("one/a%20name")]);
    assert!(served.dir.join("one/a name").is_file());

    ok(&["mv", &url("one/a%20name"), &url("one/renamed")]);
    ok(&["mv", &url("one/renamed"), &url("one/a"), &url("two/")]);
    assert!(served.dir.join("two/a/b").is_dir());
    ok(&["ln", &url("two/renamed"), &url("hard")]);
    assert_eq!(fs::metadata(served.dir.join("hard")).unwrap().nlink(), 2);
    ok(&["ln", "-s", "two/renamed", &url("soft")]);
    assert_eq!(ok(&["cat", &url("soft")]), b"content");

    let soft = text(&ok(&["stat", "--json", &url("soft")]));
    assert_eq!(json(&soft)["type"], "symlink");
    assert_eq!(json(&soft)["target"], "two/renamed");
    let hard = text(&ok(&["stat", "-L", "--json", &url("soft")]));
    assert_eq!(json(&hard)["links"], 2);
    assert!(text(&ok(&["stat", &url("hard")])).contains("links    2"));

    ok(&["rm", &url("soft"), &url("hard")]);
    ok(&["rm", "-f", &url("hard")]);
    ok(&["rm", "-r", &url("one"), &url("two")]);
    assert!(tree(&served.dir).is_empty());
}

#[test]
fn df_shows_free_space() {
    let served = Served::new(&[]);
    let line = text(&ok(&["df", "--json", &served.url("")]));
    let total = json(&line)["total"].as_u64().unwrap();
    let available = json(&line)["available"].as_u64().unwrap();
    assert!(0 < total && available <= total, "{line}");
}

#[test]
fn pings_are_answered_and_counted() {
    let served = Served::new(&[]);
    let report = text(&ok(&[
        "ping",
        "-c",
        "20",
        "-i",
        "0",
        "--json",
        &served.listening,
    ]));
    assert_eq!(json(&report)["sent"], 20);
    assert_eq!(json(&report)["received"], 20);
    assert!(json(&report)["rtt_ms"]["min"].as_f64().unwrap() > 0.0);
    // Loopback is not reached over devices.
    let shown = text(&ok(&[
        "ping",
        "--provider=auto",
        "-c",
        "2",
        "-i",
        "0.01",
        &served.listening,
    ]));
    assert!(shown.contains("iWARP"), "{shown}");
    assert!(shown.contains("seq=2 time="), "{shown}");
    assert!(shown.contains("2 calls, 2 replies, 0% lost"), "{shown}");
}

/// Output is the same in either version.
#[test]
fn every_command_does_the_same_over_each_version() {
    let served = Served::new(&[]);
    let content = data((3 << 20) + 1);
    let source = served.local("source", &content);
    fs::create_dir_all(served.dir.join("a/b")).unwrap();
    for name in 0..300 {
        fs::write(served.dir.join(format!("a/b/{name}")), "").unwrap();
    }
    let over = |version: &str| {
        let copy = served.url(&format!("a/of {version}"));
        let version = format!("--rpcrdma-version={version}");
        ok(&["put", &version, &source, &copy]);
        let got = served.beside("got");
        ok(&["get", &version, &copy, &got]);
        assert_eq!(fs::read(&got).unwrap(), content, "{version}");
        ok(&["rm", &version, &copy]);
        ok(&["ls", "-R", &version, &served.url("")])
    };
    let listing = over("1");
    assert!(text(&listing).lines().count() > 300);
    assert_eq!(over("2"), listing);
    assert_eq!(over("auto"), listing);
}

#[test]
fn protocol_version_can_be_chosen_at_either_end() {
    let spoken = |server: &str, client: &str| {
        let served = Served::new(&[&format!("--rpcrdma-version={server}")]);
        let client = format!("--rpcrdma-version={client}");
        let report = text(&ok(&["ping", "-c1", "--json", &client, &served.listening]));
        json(&report)["rpcrdma_version"].as_u64().unwrap()
    };
    assert_eq!(spoken("auto", "auto"), 2);
    assert_eq!(spoken("auto", "1"), 1);
    assert_eq!(spoken("1", "auto"), 1);
    let served = Served::new(&["--rpcrdma-version=1"]);
    fails(
        &["ping", "--rpcrdma-version=2", "-c1", &served.listening],
        1,
        "the peer supports versions 1 to 1",
    );
}

#[test]
fn several_exports_have_their_own_names() {
    let other = tempfile::tempdir().unwrap();
    fs::write(other.path().join("there"), "other").unwrap();
    let other = format!("/a/second={}", other.path().display());
    let served = Served::new(&[&other]);
    fs::write(served.dir.join("here"), "first").unwrap();
    assert_eq!(ok(&["cat", &served.url("stuff/here")]), b"first");
    assert_eq!(ok(&["cat", &served.url("a/second/there")]), b"other");
}

#[test]
fn files_are_copied_with_other_transport_options() {
    let content = data(300_000);
    for args in [
        &["--no-crc"][..],
        &["--crc", "strict", "--inline-size", "1024"],
        &["--credits", "1", "--spin", "park"],
        &["--inline-size", "262144", "--threads", "1"],
    ] {
        let served = Served::new(args);
        let source = served.local("source", &content);
        ok(&["put", "--crc=off", &source, &served.url("copy")]);
        let copied = ok(&[
            "cat",
            "--inline-size=2048",
            "--credits=3",
            &served.url("copy"),
        ]);
        assert_eq!(copied, content, "{args:?}");
    }
}
