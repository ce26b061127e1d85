//! Files for administrators beside the program: units, a man page, a file of exports.

use crate::running::{PROGRAM, fails, ok, run, text};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

/// A file of `contrib`.
fn contrib(name: &str) -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.join("../../contrib").join(name)
}

/// Runs a program that not every machine has.
pub(crate) fn tool(program: &str, args: &[&str]) -> Option<Output> {
    let output = Command::new(program)
        .args(args)
        .env("LC_ALL", "C.UTF-8")
        .output();
    if let Err(error) = &output {
        eprintln!("not run: {program}: {error}");
    }
    output.ok()
}

#[test]
fn units_are_understood_by_systemd_and_hardened() {
    let dir = tempfile::tempdir().unwrap();
    let mut units = Vec::new();
    for unit in [
        "rpcrdma.service",
        "rpcrdma-gateway.service",
        "rpcrdma-rdma.socket",
        "rpcrdma-mount.socket",
    ] {
        let unit_text = fs::read_to_string(contrib("systemd").join(unit)).unwrap();
        let path = dir.path().join(unit);
        fs::write(&path, unit_text.replace("/usr/bin/rpcrdma", PROGRAM)).unwrap();
        units.push(path.to_str().unwrap().to_owned());
    }
    let mut verify = vec!["verify", "--man=no"];
    verify.extend(units.iter().map(String::as_str));
    let Some(output) = tool("systemd-analyze", &verify) else {
        return;
    };
    let said = text(&output.stdout) + &text(&output.stderr);
    // Messages about the units of this machine are none of ours.
    let ours: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("rpcrdma"))
        .collect();
    assert!(output.status.success() && ours.is_empty(), "{said}");
    for service in &units[..2] {
        let security = ["security", "--offline=true", "--threshold=40", service];
        let output = tool("systemd-analyze", &security).unwrap();
        assert!(output.status.success(), "{}", text(&output.stdout));
    }
}

#[test]
fn man_pages_have_no_errors() {
    for page in ["man/rpcrdma.toml.5", "man/gateway.toml.5"] {
        let page = contrib(page);
        let page = page.to_str().unwrap();
        let args = ["--warnings", "-E", "UTF-8", "-Tutf8", "-Z", "-l", page];
        let Some(output) = tool("man", &args) else {
            return;
        };
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{page}: {}",
            text(&output.stderr)
        );
    }
}

/// Whether a page has a key as the beginning of a paragraph, in a list, or in brackets.
fn describes(page: &str, key: &str) -> bool {
    let described = [
        format!(".BR {key} "),
        format!(".B {key}\n"),
        format!(" {key} "),
        format!("{key}]"),
    ];
    described.iter().any(|with| page.contains(with))
}

#[test]
fn man_page_of_pairs_has_the_keys_that_the_program_knows() {
    let page = fs::read_to_string(contrib("man/gateway.toml.5")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gateway.toml");
    let pair = "[[pair]]\nlisten = \"rdma://127.0.0.1\"\nupstream = \"tcp://127.0.0.1\"\n";
    let known = |file: &str| -> BTreeSet<String> {
        fs::write(&path, file).unwrap();
        let output = run(&["gateway", "--check", "--config", path.to_str().unwrap()]);
        let said = text(&output.stderr);
        let known = said.split("there are ").nth(1).unwrap().trim();
        known.split(", ").map(str::to_owned).collect()
    };
    let of_pairs = known("[[pair]]\nno_such_key = 1\n");
    let of_all = known(&format!("[gateway]\nno_such_key = 1\n{pair}"));
    assert!(of_pairs.len() > 5 && of_all.len() > 10);
    for key in of_pairs.iter().chain(&of_all) {
        assert!(describes(&page, key), "{key} is not described");
    }
    // And no others: each key of a pair begins a paragraph, each of all is in one of the lists.
    let (all, pairs) = page.split_once(".SH PAIRS").unwrap();
    let listed = all.split_once("For the gateway as a whole").unwrap().1;
    let listed = listed.split_once("These three").unwrap().0.lines();
    let listed = listed.filter_map(|line| line.strip_prefix(".BR "));
    let listed = listed.map(|line| line.split(' ').next().unwrap().to_owned());
    assert_eq!(listed.collect::<BTreeSet<_>>(), of_all);
    let pairs = pairs.split_once(".SH ").unwrap().0.split(".TP\n").skip(1);
    let headed = pairs.map(|paragraph| paragraph.split(' ').nth(1).unwrap().to_owned());
    assert_eq!(headed.collect::<BTreeSet<_>>(), of_pairs);
}

#[test]
fn man_page_has_every_key_and_limit_of_the_file() {
    let page = fs::read_to_string(contrib("man/rpcrdma.toml.5")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("exports.toml");
    let mut keys = 0;
    for table in [
        "[[export]]\n",
        "[[export]]\npath = \"/usr\"\n[[export.client]]\n",
    ] {
        fs::write(&path, format!("{table}no_such_key = 1\n")).unwrap();
        let output = run(&["serve", "--check", "--config", path.to_str().unwrap()]);
        let said = text(&output.stderr);
        let known = said.split("there are ").nth(1).unwrap().trim();
        for key in known.split(", ").map(|key| key.trim_matches('`')) {
            keys += 1;
            assert!(describes(&page, key), "{key} is not described");
        }
    }
    assert!(keys > 10, "{keys}");
}

#[test]
fn example_of_a_file_exports_nothing_until_its_comments_are_removed() {
    let example = fs::read_to_string(contrib("rpcrdma.toml")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("exports.toml");
    let check = ["serve", "--check", "--config", path.to_str().unwrap()];
    fs::write(&path, &example).unwrap();
    fails(&check, 78, "export: there has to be one at least");
    // Of this block only, as an administrator who begins.
    let first = ["#[[export]]", "#path = ", "#read_only = true"];
    let begun = uncommented(&example, |line| {
        first.iter().any(|begin| line.starts_with(begin))
    });
    let begun = begun.replacen("path = \"/srv\"", &format!("path = {:?}", dir.path()), 1);
    fs::write(&path, &begun).unwrap();
    assert!(text(&ok(&check)).contains("127.0.0.0/8: read-only"));
    // And all of it.
    fs::create_dir(dir.path().join("exports.d")).unwrap();
    fs::write(&path, uncommented(&example, |_| true)).unwrap();
    let said = text(&ok(&check));
    assert!(said.contains("\n/srv is "), "{said}");
    assert!(
        said.contains("  backup.example.org: read-write, squash none"),
        "{said}"
    );
    fs::write(&path, begun.replace("[server]", "[sever]")).unwrap();
    fails(&check, 78, "sever: there is no key sever");
}

#[test]
fn example_of_a_file_of_pairs_is_one_once_its_comments_are_removed() {
    let example = fs::read_to_string(contrib("gateway.toml")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gateway.toml");
    let check = ["gateway", "--check", "--config", path.to_str().unwrap()];
    fs::write(&path, &example).unwrap();
    fails(&check, 78, "no [[pair]]: add one with listen and upstream");
    // Names and ports that every machine has.
    let local = uncommented(&example, |_| true)
        .replace("filer.example.org", "127.0.0.1")
        .replace("0.0.0.0:20049", "127.0.0.1:0")
        .replace(
            "127.0.0.1:2049\"\nupstream = \"rdma",
            "127.0.0.1:0\"\nupstream = \"rdma",
        )
        .replace("mount_port = 20048", "mount_port = 0")
        .replace("rpcbind = true", "rpcbind = false")
        .replace("reserved_port = true", "reserved_port = false");
    fs::write(&path, local).unwrap();
    let said = text(&ok(&check));
    assert!(said.contains("to tcp://127.0.0.1:2049"), "{said}");
    assert!(said.contains("to rdma://127.0.0.1:20049"), "{said}");
}

#[test]
fn example_of_a_file_of_pairs_has_every_key_of_a_pair() {
    let example = fs::read_to_string(contrib("gateway.toml")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gateway.toml");
    fs::write(&path, "[[pair]]\nno_such_key = 1\n").unwrap();
    let output = run(&["gateway", "--check", "--config", path.to_str().unwrap()]);
    let said = text(&output.stderr);
    let known: Vec<&str> = said
        .split("there are ")
        .nth(1)
        .unwrap()
        .trim()
        .split(", ")
        .collect();
    assert!(known.len() > 5, "{said}");
    for key in known {
        let line = format!("{key} = ");
        assert!(example.contains(&line), "{key} is not in the example");
    }
}

/// The text with these of its lines no comments any more, where they are no sentences.
fn uncommented(text: &str, which: impl Fn(&str) -> bool) -> String {
    text.lines()
        .map(|line| match line.strip_prefix('#') {
            Some(rest) if !rest.starts_with(' ') && which(line) => format!("{rest}\n"),
            _ => format!("{line}\n"),
        })
        .collect()
}
