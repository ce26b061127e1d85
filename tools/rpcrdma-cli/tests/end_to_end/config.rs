//! The file of `serve --config`.

use crate::running::{PROGRAM, Served, fails, ok, run, text};
use nfs_client::{Export, Mount, current_user};
use rpcrdma::{Client, ClientConfig};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use verbs_iwarp::Iwarp;

/// An export of a directory beside the file, for root as root.
fn export(around: &Path, name: &str, more: &str) -> String {
    let dir = around.join(name);
    fs::create_dir_all(&dir).unwrap();
    format!("[[export]]\npath = {dir:?}\nsquash = \"none\"\n{more}\n")
}

/// A file that cannot be used, and the file that is checked.
fn written(text: &str) -> (tempfile::TempDir, String) {
    let around = tempfile::tempdir().unwrap();
    let path = around.path().join("exports.toml");
    fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (around, path)
}

/// The control socket of a server.
fn control(served: &Served) -> String {
    let said: serde_json::Value = serde_json::from_str(&served.said).unwrap();
    said["control"].as_str().unwrap().to_owned()
}

#[test]
fn check_of_the_file_alone_finds_what_is_wrong_in_it_and_nothing_else() {
    let (_around, path) = written(
        "[server]\nlisten = \"192.0.2.1\"\nallow = [\"192.0.2.0/24\"]\n[[export]]\npath = \"/usr\"\n",
    );
    let alone = ["serve", "--config", &path, "--check=file"];
    fails(
        &[&alone[..3], &["--check"]].concat(),
        1,
        "is not an address of this machine",
    );
    assert!(ok(&alone).is_empty());
    fs::write(&path, "[[export]]\npath = \"/no/such/directory\"\n").unwrap();
    fails(&alone, 1, "cannot be served");
    fs::write(&path, "[[export]]\npth = \"/\"\n").unwrap();
    fails(&alone, 78, "pth");
}

#[test]
fn all_that_is_wrong_with_file_and_machine_is_said_in_one_run() {
    let (around, path) = written("");
    let wrong = "[server]\nlisten = \"192.0.2.77\"\nmetrics = \"here\"\nalow = [\"::1\"]\n"
        .to_owned()
        + &export(around.path(), "data", "redonly = true")
        + "[[export]]\npath = \"/no/such/directory\"\n[[export]]\npath = \"/proc/sys\"\n";
    fs::write(&path, wrong).unwrap();
    let said = |option: &str| {
        let output = run(&["serve", "--config", &path, option]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(78), "{said}");
        said.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let expected = [
        "exports.toml:3: server.metrics: it is neither a port nor",
        "exports.toml:4: server.alow: there is no such option",
        "exports.toml:8: export[0].redonly: there is no key redonly",
        "exports.toml:10: export[1].path: /no/such/directory: cannot be served",
        "exports.toml:12: export[2].path: /proc/sys: it is in proc",
        "192.0.2.77 is not an address of this machine",
    ];
    let check = |said: &[String], expected: &[&str]| {
        assert_eq!(said.len(), expected.len(), "{said:?}");
        for (line, says) in said.iter().zip(expected) {
            assert!(line.contains(says), "{line}");
        }
    };
    check(&said("--check"), &expected);
    // What is in a directory is looked at when it is opened.
    check(&said("--check=file"), &expected[..4]);
    check(&said("--json"), &expected[..4]);
}

#[test]
fn exports_of_a_file_are_served_by_its_rules() {
    let served = Served::configured(
        |around| {
            let read_only = "[[export.client]]\nhosts = [\"localhost\"]\nread_only = true";
            let elsewhere = "[[export.client]]\nhosts = [\"192.0.2.0/24\"]";
            export(around, "stuff", "")
                + &export(around, "books", read_only)
                + &export(around, "far", elsewhere)
        },
        &[],
    );
    let file = served.local("file", b"content");
    ok(&["put", &file, &served.url("stuff/file")]);
    fails(
        &["put", &file, &served.url("books/file")],
        1,
        "read-only file system",
    );
    fails(
        &["ls", &served.url("far")],
        1,
        "not exported to this client",
    );
    assert_eq!(ok(&["cat", &served.url("stuff/file")]), b"content");
}

#[test]
fn file_is_read_again_without_losing_a_connection() {
    let mut served = Served::configured(|around| export(around, "stuff", ""), &[]);
    fs::write(served.dir.join("file"), "content").unwrap();
    let runtime = Runtime::new().unwrap();
    let addr = served.listening.parse().unwrap();
    let (client, stuff) = runtime.block_on(async {
        let provider = Arc::new(Iwarp::default());
        let client = Client::connect(provider, addr, ClientConfig::default())
            .await
            .unwrap();
        let mount = Mount::new(client.clone(), current_user());
        let root = mount.mount("/stuff").await.unwrap().handle;
        let stuff = Export::open(client.clone(), current_user(), root)
            .await
            .unwrap();
        (client, stuff)
    });
    let around = served.around.path().to_owned();
    let reloaded = |served: &mut Served, exports: &str| {
        served.configure(exports);
        served.signal(Signal::HUP);
        served.hear("exports")
    };
    let both = export(&around, "stuff", "") + &export(&around, "books", "");
    let said = reloaded(&mut served, &both);
    assert!(said.contains("added /books; 1 as before"), "{said}");
    runtime.block_on(async {
        let mount = Mount::new(client.clone(), current_user());
        assert_eq!(mount.exports().await.unwrap().len(), 2);
        assert_eq!(stuff.stat(b"file").await.unwrap().attributes.size, 7);
    });

    let said = reloaded(&mut served, &(both.clone() + "redonly = true\n"));
    assert!(said.contains("the exports stay as they are"), "{said}");
    assert!(
        said.contains("exports.toml:13: export[1].redonly: there is no key redonly"),
        "{said}"
    );
    let control = control(&served);
    let stats = || text(&ok(&["stats", "-l", "--socket", &control]));
    let failed = stats();
    assert!(
        failed.contains("\nreload        failed ")
            && failed.contains("export[1].redonly: there is no key"),
        "{failed}"
    );
    let gone = both.clone() + "[[export]]\npath = \"/no/such/directory\"\n";
    let said = reloaded(&mut served, &gone);
    assert!(
        said.contains("/no/such/directory: cannot be served: No such file"),
        "{said}"
    );
    let here = format!("credits = 7\n{both}");
    let said = reloaded(&mut served, &here);
    assert!(said.contains("exports read again: 2 as before"), "{said}");
    served.hear("options of [server] have changed");
    let well = stats();
    assert!(!well.contains("\nreload        failed "), "{well}");
    assert!(well.contains("\nreload        "), "{well}");

    let read_only = export(&around, "stuff", "read_only = true") + &export(&around, "books", "");
    let said = reloaded(&mut served, &read_only);
    assert!(said.contains("changed /stuff; 1 as before"), "{said}");
    // The options are again those that are in force.
    served.signal(Signal::USR1);
    let next = served.hear("");
    assert!(next.contains("statistics"), "{next}");

    let said = reloaded(&mut served, &export(&around, "books", ""));
    assert!(said.contains("removed /stuff; 1 as before"), "{said}");
    runtime.block_on(async {
        let stat = stuff.stat(b"file").await.unwrap_err();
        assert_eq!(stat.status(), Some(nfs_proto::Status::Stale));
    });
    served.signal(Signal::USR1);
    let said = served.hear("statistics");
    assert!(
        said.contains(" accepted=1 "),
        "one connection all the time: {said}"
    );
    runtime.block_on(client.close());
}

#[test]
fn files_of_an_included_directory_are_read_again_with_the_file() {
    let around = tempfile::tempdir().unwrap();
    let dir = around.path().join("exports.d");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("books.toml"), export(around.path(), "books", "")).unwrap();
    let path = around.path().join("exports.toml");
    let mut served = Served::configured_in(around, |around| export(around, "stuff", ""), &[], &[]);
    let file = fs::read_to_string(&path).unwrap();
    let reloaded = |served: &mut Served| {
        served.signal(Signal::HUP);
        served.hear("exports")
    };
    fs::write(&path, "include = \"exports.d\"\n".to_owned() + &file).unwrap();
    let said = reloaded(&mut served);
    assert!(said.contains("added /books; 1 as before"), "{said}");
    let music = export(served.around.path(), "music", "");
    fs::write(dir.join("music.toml"), &music).unwrap();
    fs::remove_file(dir.join("books.toml")).unwrap();
    let said = reloaded(&mut served);
    assert!(
        said.contains("added /music; removed /books; 1 as before"),
        "{said}"
    );
    let check = ["serve", "--check=file", "--config", path.to_str().unwrap()];
    assert!(ok(&check).is_empty());
    fs::write(dir.join("music.toml"), music + "redonly = true\n").unwrap();
    let says = "exports.d/music.toml:5: export[0].redonly: there is no key redonly";
    let said = reloaded(&mut served);
    assert!(
        said.contains("the exports stay as they are") && said.contains(says),
        "{said}"
    );
    fails(&check, 78, says);
    assert_eq!(text(&ok(&["ls", &served.url("music")])), "");
}

#[test]
fn check_says_what_would_be_served_and_serves_nothing() {
    let (around, path) = written("");
    let data = export(
        around.path(),
        "data",
        "fsid = 9\n[[export.client]]\nhosts = [\"laptop\"]\n",
    );
    fs::write(&path, format!("[server]\nlisten = \"127.0.0.9\"\n{data}")).unwrap();
    let check = ["serve", "--config", &path, "--check"];
    let said = text(&ok(&check));
    for part in [
        "would serve NFSv4.2, 4.1 and 3 at 127.0.0.9:20049 over RDMA, and listen at 127.0.0.9:20048 over TCP for MOUNT",
        "/data is ",
        ", fsid 9\n",
        "  laptop: read-write, squash none, nobody is 65534:65534\n",
    ] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    let json = ok(&[&check[..], &["--json"]].concat());
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["exports"][0]["clients"][0]["clients"], "laptop");
    // The command line counts more.
    let said = text(&ok(&[&check[..], &["--listen", "127.0.0.8:0"]].concat()));
    assert!(said.contains(" at 127.0.0.8:0 over RDMA, "), "{said}");
    assert_eq!(
        around.path().read_dir().unwrap().count(),
        2,
        "no state is made"
    );
}

/// Output of `--check` about a file that can be used: the warnings, and all as JSON.
#[track_caller]
fn checked(path: &str, more: &[&str]) -> (String, serde_json::Value) {
    let check = ["serve", "--check", "--json", "--config", path];
    let output = run(&[&check[..], more].concat());
    let warnings = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{warnings}");
    (warnings, serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn check_warns_of_what_may_not_be_meant() {
    let (around, path) = written("");
    let shadowed = "[[export.client]]\nhosts = [\"127.0.0.0/8\", \"localhost\"]";
    let nobody = "[[export.client]]\nhosts = [\"nobody.invalid\"]";
    let all = export(around.path(), "data", "")
        + &export(
            around.path(),
            "data/sub",
            "read_only = true\nname = \"/sub\"",
        )
        + &export(around.path(), "twice", "")
        + &export(around.path(), "twice", "name = \"/again\"")
        + &export(around.path(), "shadowed", shadowed)
        + &export(around.path(), "nobody", nobody);
    fs::write(&path, all).unwrap();
    let ports = ["--listen", "127.0.0.1:0", "--mount-port", "0"];
    let (warnings, json) = checked(&path, &ports);
    for part in [
        "/sub is read-only, but lies within /data, through which clients can change it",
        "/twice and /again are both ",
        "the host nobody.invalid has no address now, and would not be served: ",
    ] {
        assert!(warnings.contains(part), "{part} is not in {warnings}");
        let listed = json["warnings"].as_array().unwrap();
        let has = |said: &serde_json::Value| said.as_str().unwrap().contains(part);
        assert!(listed.iter().any(has), "{json}");
    }
    let never = "the rule of /shadowed for localhost never counts, as the one for 127.0.0.0/8";
    // Where localhost is ::1 too, it does.
    let ips = std::net::ToSocketAddrs::to_socket_addrs(&("localhost", 0)).unwrap();
    let only_four = ips.map(|addr| addr.ip()).all(|ip| ip.is_ipv4());
    assert_eq!(warnings.contains(never), only_four, "{warnings}");
}

#[test]
fn check_tries_ports_and_state() {
    let served = Served::configured(|around| export(around, "stuff", ""), &[]);
    let path = served.beside("exports.toml");
    let state = ["--state-dir", &served.beside("state")];
    let at = |port: &str| {
        let given = ["--listen", &served.listening, "--mount-port", port];
        checked(&path, &[&given[..], &state].concat()).0
    };
    // They are free when the server that runs there ends, and it keeps them at a reload.
    let warning = at(&served.mount_port.to_string());
    assert!(warning.contains("has these ports already"), "{warning}");
    assert!(warning.contains(&served.listening), "{warning}");
    // The port of another program stops a start, and so the check, in the same words.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let says = format!("port {port} of 127.0.0.1 is in use: stop the server that has it");
    let start = ["serve", "--config", &path, "--listen", "127.0.0.1:0"];
    let own_state = ["--state-dir", &served.beside("other_state")];
    let start = [&start[..], &["--mount-port", &port], &own_state].concat();
    fails(&start, 1, &says);
    fails(&[&start[..], &["--check"]].concat(), 1, &says);
    let check = ["serve", "--check", "--config", &path];
    let elsewhere = "[server]\nlisten = \"192.0.2.77\"\nallow = [\"::1\"]\n";
    let elsewhere = elsewhere.to_owned() + &export(served.around.path(), "stuff", "");
    let elsewhere = served.local("elsewhere.toml", elsewhere.as_bytes());
    fails(
        &["serve", "--check", "--config", &elsewhere],
        1,
        "192.0.2.77 is not an address of this machine: choose another with --listen",
    );
    fails(
        &[&check[..], &["--metrics", "192.0.2.77:9"]].concat(),
        1,
        "192.0.2.77 is not an address of this machine: choose another with --metrics",
    );
    let one_port =
        "[server]\nlisten = \"127.0.0.1:20049\"\nmount_port = 20049\nallow = [\"::1\"]\n";
    let one_port = one_port.to_owned() + &export(served.around.path(), "stuff", "");
    let one_port = served.local("one_port.toml", one_port.as_bytes());
    fails(
        &["serve", "--check", "--config", &one_port],
        78,
        "listen and mount_port are both port 20049: each needs one of its own",
    );

    let own = format!("[server]\nstate_dir = {:?}\n", served.around.path());
    let own = own + &export(served.around.path(), "stuff", "");
    let own = served.local("own.toml", own.as_bytes());
    let check_own = ["serve", "--check", "--config", &own];
    fails(&check_own, 78, "export[0].path: ");
    fails(&check_own, 78, "holds the state of this server");

    fs::write(served.beside("state/handle.key"), "short").unwrap();
    fails(
        &[&check[..], &state].concat(),
        1,
        "handle.key: it is not a key of 16 bytes",
    );
    let below = served.local("file", b"") + "/below";
    let nowhere = [&check[..], &["--state-dir", &below]].concat();
    fails(&nowhere, 1, "below");
}

#[test]
fn file_that_cannot_be_used_is_refused_with_file_line_and_key() {
    let check = |text: &str, says: &str| {
        let (_around, path) = written(text);
        fails(
            &["serve", "--check", "--config", &path],
            78,
            &format!("{path}:{says}"),
        );
    };
    check(
        "[server]\ncredits = 5000\n",
        "2: server.credits: 5000 is not in 1..=1024",
    );
    check(
        "[server]\nthreads = \"many\"\n",
        "2: server.threads: it is a number",
    );
    check(
        "[server]\nspin = \"fast\"\n",
        "2: server.spin: it is one of park, adaptive, always",
    );
    check(
        "[server]\nlisten = \"here\"\n",
        "2: server.listen: it is not an address",
    );
    check("[server]\nallow = [\"10.1.2.3/8\"]\n", "2: server.allow: ");
    check(
        "[server]\nrpcbind = 1\n",
        "2: server.rpcbind: it is true or false",
    );
    check(
        "[server]\n\nlisen = \"::\"\n",
        "3: server.lisen: there is no such option; there are listen,",
    );
    check(
        "[server]\nread_only = true\n",
        "2: server.read_only: there is no key read_only here: it belongs into [[export]]",
    );
    check(
        "[server]\nmount-port = 1\n",
        "2: server.mount-port: there is no such option",
    );
    check(
        "[[export]]\npath = 1\n",
        "2: export[0].path: 1 does not fit",
    );
    check(
        "[server]\nlisten = \"::\"\n[[export]]\npath = \"/usr\"\n",
        "4: export[0].client: it is for nobody",
    );
    fails(
        &["serve", "--config", "/no/such/file"],
        78,
        "/no/such/file: cannot read: No such file or directory\n",
    );
    fails(
        &["serve", "--config", "x", "--read-only"],
        2,
        "cannot be used with",
    );
    fails(&["serve", "--config", "x", "."], 2, "cannot be used with");
    let (_around, path) = written("[[export]]\npath = \"/proc/sys\"\n");
    let check = ["serve", "--check", "--config", &path];
    let says = format!(
        "{path}:2: export[0].path: /proc/sys: it is in proc, and what is there has no file handles"
    );
    fails(&check, 78, &says);
    // The file may be right, and this machine is not as it should be.
    let (_around, path) = written("[[export]]\npath = \"/no/such/directory\"\n");
    let check = ["serve", "--check", "--config", &path];
    let says =
        format!("{path}:2: export[0].path: /no/such/directory: cannot be served: No such file");
    fails(&check, 1, &says);
    fails(&["serve", "--config", &path], 1, &says);
}

#[test]
fn missing_directory_that_need_not_be_there_does_not_stop_the_others() {
    let mut served = Served::configured(
        |around| {
            let later = around.join("later");
            let later = format!("[[export]]\npath = {later:?}\nsquash = \"none\"\nnofail = true\n");
            export(around, "stuff", "") + &later
        },
        &[],
    );
    let said = served.hear("is not served: it is not there");
    assert!(said.contains("export=/later"), "{said}");
    assert!(said.contains("No such file or directory"), "{said}");
    let announced: serde_json::Value = serde_json::from_str(&served.said).unwrap();
    assert!(announced["exports"][0].get("absent").is_none());
    let why = announced["exports"][1]["absent"].as_str().unwrap();
    assert!(why.contains("No such file"), "{why}");
    let path = served.beside("exports.toml");
    let said = text(&ok(&["serve", "--check", "--config", &path]));
    assert!(
        said.contains("/later: cannot be served: No such file or directory\n"),
        "{said}"
    );

    let file = served.local("file", b"content");
    ok(&["put", &file, &served.url("stuff")]);
    fails(&["put", &file, &served.url("later")], 1, "no such export");
    let said = served.hear("mount refused");
    assert!(said.contains("client=127.0.0.1 path=/later"), "{said}");
    assert!(said.contains("this export is not served now: "), "{said}");

    // It is found without being asked for.
    fs::create_dir(served.around.path().join("later")).unwrap();
    served.hear("export is served, as it is there now");
    ok(&["put", &file, &served.url("later")]);
    // Where it is gone again, a reload says so, and its clients wait.
    fs::remove_dir_all(served.around.path().join("later")).unwrap();
    served.signal(Signal::HUP);
    served.hear("is not served: it is not there");
    ok(&["ls", &served.url("stuff")]);
}

#[test]
fn export_of_a_mount_point_is_served_while_something_is_mounted() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not run: it needs root");
        return;
    }
    let mut served = Served::configured(
        |around| export(around, "stuff", "mountpoint = true") + &export(around, "plain", ""),
        &[],
    );
    let file = served.local("file", b"content");
    let said = served.hear("is not served");
    assert!(said.contains("nothing is mounted at "), "{said}");
    fails(&["put", &file, &served.url("stuff")], 1, "no such export");
    let disk = Mounted::tmpfs(&served.dir);
    served.hear("export is served, as it is there now");
    ok(&["put", &file, &served.url("stuff")]);
    assert_eq!(fs::read(served.dir.join("file")).unwrap(), b"content");
    drop(disk);
    served.hear("is not served");
    fails(&["put", &file, &served.url("stuff")], 1, "no such export");
    assert_eq!(fs::read_dir(&served.dir).unwrap().count(), 0);
    ok(&["ls", &served.url("plain")]);
}

#[test]
fn mount_that_is_refused_is_in_the_log_with_the_reason() {
    let mut served = Served::configured(
        |around| {
            let elsewhere = "[[export.client]]\nhosts = [\"192.0.2.0/24\"]";
            export(around, "stuff", "") + &export(around, "far", elsewhere)
        },
        &[],
    );
    let mut refused = |path: &str, reason: &str| {
        fails(&["ls", &served.url(path)], 1, "");
        let said = served.hear("mount refused");
        assert!(said.contains(" WARN "), "{said}");
        let fields = format!("client=127.0.0.1 path=/{path} reason=\"{reason}\"");
        assert!(said.contains(&fields), "{fields} is not in {said}");
    };
    refused("far", "no rule of the export /far has this address");
    refused("none", "no export has this path");
    // The paths above are tried too, and are the same mistake.
    refused("none/a/b", "no export has this path");
    refused("far", "no rule of the export /far has this address");
    // So many at once that it does not matter how slow the machine is.
    const MANY: usize = 200;
    let url = served.url("none");
    fails(&[&["ls"][..], &[&*url; MANY]].concat(), 1, "");
    served.signal(Signal::TERM);
    let log = served.hear_all();
    let said = log.matches("mount refused").count();
    assert!((1..MANY / 2).contains(&said), "{log}");
    assert!(log.contains("further mounts refused"), "{log}");
}

/// Runs a program, which must succeed.
#[track_caller]
fn done(program: &str, args: &[&str]) {
    let status = std::process::Command::new(program)
        .args(args)
        .status()
        .unwrap();
    assert!(status.success(), "{program} {args:?}");
}

/// Something mounted for a test.
struct Mounted(String);

impl Mounted {
    fn tmpfs(at: &Path) -> Self {
        fs::create_dir_all(at).unwrap();
        let at = at.to_str().unwrap().to_owned();
        done("mount", &["-t", "tmpfs", "none", &at]);
        Self(at)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        done("umount", &["--lazy", &self.0]);
    }
}

#[test]
fn what_is_mounted_below_an_export_is_served_with_it_if_it_says_so() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not run: it needs root");
        return;
    }
    let crossing =
        |around: &Path| export(around, "stuff", "crossmnt = true") + &export(around, "plain", "");
    let around = tempfile::tempdir().unwrap();
    let plain = Mounted::tmpfs(&around.path().join("plain/sub"));
    fs::write(Path::new(&plain.0).join("inside"), "inside").unwrap();
    let mut served = Served::configured_in(around, crossing, &[], &[]);
    fails(&["cat", &served.url("plain/sub/inside")], 1, "");

    // Mounted while it is served, one in the other.
    let sub = Mounted::tmpfs(&served.dir.join("sub"));
    let deep = Mounted::tmpfs(&Path::new(&sub.0).join("deep"));
    fs::write(Path::new(&deep.0).join("file"), "content").unwrap();
    let url = served.url("stuff/sub/deep/file");
    eventually(|| run(&["cat", &url]).stdout == b"content");
    let file = served.local("file", b"put there");
    ok(&["put", &file, &served.url("stuff/sub/deep/put")]);
    assert_eq!(
        fs::read(Path::new(&deep.0).join("put")).unwrap(),
        b"put there"
    );
    let listed = text(&ok(&["ls", &served.url("stuff/sub")]));
    assert_eq!(listed, "deep\n");

    drop(deep);
    eventually(|| run(&["cat", &url]).status.code() == Some(1));
    served.signal(Signal::HUP);
    served.hear("2 as before");
    ok(&["ls", &served.url("stuff/sub")]);
}

#[test]
fn export_whose_disk_is_unmounted_does_not_become_the_directory_below_it() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not run: it needs root");
        return;
    }
    let around = tempfile::tempdir().unwrap();
    let disk = Mounted::tmpfs(&around.path().join("stuff"));
    let crossing = |around: &Path| export(around, "stuff", "crossmnt = true");
    let mut served = Served::configured_in(around, crossing, &["--log=debug"], &[]);
    let (file, url) = (served.local("file", b"content"), served.url("stuff"));
    ok(&["put", &file, &url]);
    drop(disk);
    served.hear("the export is the directory that was here before");
    ok(&["mv", &served.url("stuff/file"), &served.url("stuff/moved")]);
    assert_eq!(fs::read_dir(&served.dir).unwrap().count(), 0);
    served.signal(Signal::HUP);
    served.hear("another directory or file system is here than before");
    served.hear("1 as before");
    assert_eq!(text(&ok(&["ls", &url])), "");
}

#[test]
fn directory_below_a_mount_is_not_shown_when_that_is_unmounted() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not run: it needs root");
        return;
    }
    let around = tempfile::tempdir().unwrap();
    let crossing = |around: &Path| export(around, "stuff", "crossmnt = true");
    let mut served = Served::configured_in(around, crossing, &[], &[]);
    let point = served.dir.join("sub");
    let sub = Mounted::tmpfs(&point);
    let deep = Mounted::tmpfs(&Path::new(&sub.0).join("deep"));
    let (file, url) = (served.local("file", b"content"), served.url("stuff/sub"));
    eventually(|| {
        run(&["put", &file, &served.url("stuff/sub/deep")])
            .status
            .success()
    });
    fs::remove_file(Path::new(&deep.0).join("file")).unwrap();

    drop(deep);
    served.hear("it was unmounted");
    fails(&["put", &file, &served.url("stuff/sub/deep")], 1, "stale");
    // What is mounted over all this has a directory of that name.
    let over = Mounted::tmpfs(&point);
    fs::create_dir(Path::new(&over.0).join("deep")).unwrap();
    eventually(|| {
        run(&["put", &file, &served.url("stuff/sub/deep")])
            .status
            .success()
    });
    drop(over);
    drop(sub);
    served.hear("it was unmounted");
    fails(&["put", &file, &url], 1, "stale");
    assert_eq!(fs::read_dir(&point).unwrap().count(), 0);

    // It is there again, and is gone for good.
    let sub = Mounted::tmpfs(&point);
    eventually(|| run(&["put", &file, &url]).status.success());
    drop(sub);
    served.hear("it was unmounted");
    served.signal(Signal::HUP);
    served.hear("1 as before");
    ok(&["put", &file, &url]);
    assert_eq!(fs::read(point.join("file")).unwrap(), b"content");
}

/// How long something may take that depends on the kernel telling the server.
const EVENTUALLY: Duration = Duration::from_secs(120);

/// Waits until something is so that depends on the kernel telling the server.
#[track_caller]
fn eventually(is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < EVENTUALLY, "it never is so");
        std::thread::yield_now();
    }
}

/// Lines of a command on standard error.
fn complaints(output: &Output) -> Vec<String> {
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    said.lines().map(str::to_owned).collect()
}

#[test]
fn put_ends_with_the_first_file_where_nothing_can_be_changed() {
    let read_only = |around: &Path| export(around, "stuff", "read_only = true");
    let served = Served::configured(read_only, &[]);
    let files = [1, 2, 3].map(|number| served.local(&format!("file-{number}"), b"content"));
    let [one, two, three] = &files;
    let said = complaints(&run(&["put", "-q", one, two, three, &served.url("stuff/")]));
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("read-only file system"), "{said:?}");
}

#[test]
fn put_ends_when_the_export_becomes_read_only_and_says_what_it_leaves() {
    let mut served = Served::configured(|around| export(around, "stuff", ""), &[]);
    let large = served.local("large", b"");
    let file = fs::File::options().write(true).open(&large).unwrap();
    // So many pieces of data between holes that the copy is seen before it is complete: each is a call.
    for piece in 0..16_384 {
        file.write_all_at(&[1; 4096], piece << 17).unwrap();
    }
    let others = [1, 2, 3].map(|number| served.local(&format!("file-{number}"), b"content"));
    let [one, two, three] = &others;
    let mut put = Command::new(PROGRAM)
        .args(["put", "-q", &large, one, two, three, &served.url("stuff/")])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let left = || {
        let names = fs::read_dir(&served.dir).unwrap();
        let mut names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.find(|name| name.starts_with(".large.rpcrdma-"))
    };
    while left().is_none() {
        assert_eq!(put.try_wait().unwrap(), None, "the copy has ended");
        std::thread::yield_now();
    }
    let pid = Pid::from_child(&put);
    kill_process(pid, Signal::STOP).unwrap();
    assert!(left().is_some(), "the copy is under way");
    let around = served.around.path().to_owned();
    served.configure(&export(&around, "stuff", "read_only = true"));
    served.signal(Signal::HUP);
    served.hear("exports read again");
    kill_process(pid, Signal::CONT).unwrap();
    let said = complaints(&put.wait_with_output().unwrap());
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(
        said[0].contains("incomplete files are left on the server"),
        "{said:?}"
    );
    assert!(said[1].contains("read-only file system"), "{said:?}");
}
