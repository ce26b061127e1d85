//! Findings of `get` and `put` before they copy anything.

use crate::commands::data;
use crate::copies::mode;
use crate::running::{PROGRAM, Running, Served, fails, ok, run, text, tree};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn conflicts_are_all_reported_and_then_nothing_is_copied() {
    let served = Served::new(&[]);
    let source = served.around.path().join("tree");
    served.local("tree/a", b"a");
    served.local("tree/file-there-directory", b"f");
    served.local("tree/directory-there-file/x", b"x");
    let dest = served.around.path().join("dest/tree");
    for there in [&served.dir.join("tree"), &dest] {
        fs::create_dir_all(there.join("file-there-directory")).unwrap();
        fs::write(there.join("directory-there-file"), "").unwrap();
    }
    let before = tree(&served.dir);
    let output = run(&["put", "-r", path(&source), &served.url("")]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    for says in [
        "cannot replace the directory ",
        "directory-there-file, which is a file",
        "nothing was copied",
    ] {
        assert!(errors.contains(says), "{errors}");
    }
    assert!(tree(&served.dir) == before);

    fs::rename(&source, served.dir.join("source")).unwrap();
    let (url, before) = (served.url("source/."), tree(&dest));
    let output = run(&["get", "-r", &url, path(&dest)]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(errors.matches("cannot ").count(), 2, "{errors}");
    assert!(errors.contains("nothing was copied"), "{errors}");
    assert!(tree(&dest) == before);
}

#[test]
fn sources_that_would_get_one_name_are_refused() {
    let served = Served::new(&[]);
    let (a, b) = (served.local("a/name", b"a"), served.local("b/name", b"b"));
    let says = "something else of this copy gets that name";
    fails(&["put", &a, &b, &served.url("")], 1, says);
    for dir in ["a", "b"] {
        fs::create_dir(served.dir.join(dir)).unwrap();
        fs::write(served.dir.join(dir).join("name"), dir).unwrap();
    }
    let dest = served.around.path().join("dest");
    fs::create_dir(&dest).unwrap();
    let urls = [served.url("a/name"), served.url("b/name")];
    fails(&["get", &urls[0], &urls[1], path(&dest)], 1, says);
    // Contents of directories have names too.
    let contents = [served.url("a/."), served.url("b/.")];
    fails(
        &["get", "-r", &contents[0], &contents[1], path(&dest)],
        1,
        says,
    );
    fails(&["get", "-r", &contents[0], &urls[1], path(&dest)], 1, says);
    assert!(tree(&dest).is_empty());
    fs::rename(served.dir.join("b/name"), served.dir.join("b/other")).unwrap();
    ok(&["get", "-r", &contents[0], &contents[1], path(&dest)]);
    assert_eq!(dest.read_dir().unwrap().count(), 2);
}

#[test]
fn copy_into_itself_is_refused_before_it_starts() {
    let served = Served::new(&[]);
    fs::create_dir_all(served.dir.join("a/b")).unwrap();
    fs::write(served.dir.join("a/file"), "content").unwrap();
    let before = tree(&served.dir);
    let into_itself = "into itself";
    let same = "one and the same";
    let (root, a) = (served.dir.clone(), served.dir.join("a"));
    let url = |path: &str| served.url(path);
    let into = |path: &str| served.dir.join(path).to_str().unwrap().to_owned();
    fails(&["put", "-r", path(&root), &url("")], 1, into_itself);
    fails(&["put", "-r", path(&root), &url("a/b/new")], 1, into_itself);
    fails(&["put", "-r", path(&a), &url("a/b")], 1, into_itself);
    fails(&["put", "-r", path(&a), &url("")], 1, same);
    fails(&["put", path(&a.join("file")), &url("a")], 1, same);
    fails(&["get", "-r", &url(""), &into("a/b/new")], 1, into_itself);
    fails(&["get", "-r", &url("a"), &into("a")], 1, into_itself);
    fails(&["get", "-r", &url("a/."), &into("a")], 1, same);
    fails(&["get", &url("a/file"), &into("a")], 1, same);
    assert_eq!(tree(&served.dir), before);
    // Beside itself is another place.
    ok(&["put", "-r", path(&a), &url("copy")]);
    ok(&["get", "-r", &url("a"), &into("second")]);
    assert_eq!(tree(&served.dir.join("copy")), tree(&a));
    assert_eq!(tree(&served.dir.join("second")), tree(&a));
}

#[test]
fn one_source_that_is_missing_does_not_keep_others_from_being_copied() {
    let served = Served::new(&[]);
    let file = served.local("file", b"f");
    let missing = served.beside("missing");
    fails(
        &["put", &missing, &file, &served.url("")],
        1,
        "no such file",
    );
    assert_eq!(fs::read(served.dir.join("file")).unwrap(), b"f");
    let dest = served.around.path().join("dest");
    fs::create_dir(&dest).unwrap();
    let urls = [served.url("missing"), served.url("file")];
    fails(&["get", &urls[0], &urls[1], path(&dest)], 1, "no such file");
    assert_eq!(fs::read(dest.join("file")).unwrap(), b"f");
}

#[test]
fn several_sources_go_into_a_directory_whatever_is_there() {
    let served = Served::new(&[]);
    let names = ["a", "b", "c", "d", "e", "f"];
    let sources = names.map(|name| served.local(&format!("from/{name}"), name.as_bytes()));
    let there = served.dir.join("there");
    fs::create_dir(&there).unwrap();
    fs::write(there.join("a"), "old").unwrap();
    fs::write(there.join("target"), "old").unwrap();
    symlink("target", there.join("b")).unwrap();
    symlink("there", served.dir.join("link")).unwrap();
    let url = served.url("link");
    let put: Vec<&str> = ["put"]
        .into_iter()
        .chain(sources.iter().map(String::as_str))
        .chain([&*url])
        .collect();
    ok(&put);
    for name in names {
        assert_eq!(fs::read_to_string(there.join(name)).unwrap(), name);
    }
    assert!(there.join("b").is_symlink());
    assert_eq!(fs::read(there.join("target")).unwrap(), b"b");
    fs::remove_file(there.join("f")).unwrap();
    fs::create_dir(there.join("f")).unwrap();
    fails(&put, 1, "cannot replace the directory");
}

#[test]
fn directory_that_cannot_be_listed_is_reported_once_and_nothing_is_removed() {
    // Run by root, the server takes callers for nobody; else it acts as the owner.
    let served = Served::new(&["--squash", "all"]);
    let closed = served.dir.join("tree/closed");
    fs::create_dir_all(&closed).unwrap();
    fs::write(served.dir.join("tree/file"), "f").unwrap();
    fs::set_permissions(&closed, Permissions::from_mode(0o000)).unwrap();
    let back = served.around.path().join("back");
    served.local("back/extra", b"x");
    let url = served.url("tree/.");
    let output = run(&["get", "-r", "--delete", &url, path(&back)]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert_eq!(errors.matches("closed").count(), 1, "{errors}");
    assert!(errors.contains("nothing was removed"), "{errors}");
    assert_eq!(fs::read(back.join("file")).unwrap(), b"f");
    assert!(back.join("extra").exists());
    fs::set_permissions(&closed, Permissions::from_mode(0o755)).unwrap();
}

/// More than a plan keeps in memory, so that it is gone through a second time.
#[test]
fn tree_of_any_size_is_copied() {
    let served = Served::new(&[]);
    let source = served.around.path().join("many");
    for dir in 0..40 {
        let dir = source.join(format!("{dir}"));
        fs::create_dir_all(&dir).unwrap();
        for name in 0..900 {
            // Symbolic links are made by one call.
            symlink("x", dir.join(format!("{name}"))).unwrap();
        }
    }
    let url = served.url("many");
    ok(&["put", "-r", path(&source), &url]);
    let put = served.dir.join("many");
    assert_eq!(put.read_dir().unwrap().count(), 40);
    let expected = tree(&source);
    assert!(tree(&put) == expected);
    let back = served.around.path().join("back");
    ok(&["get", "-r", &url, path(&back)]);
    assert!(tree(&back) == expected);
}

/// Makes a file whose copy does not end before somebody notices that it has begun.
fn large(path: &Path) {
    fs::write(path, data(1 << 20)).unwrap();
    let file = File::options().write(true).open(path).unwrap();
    file.set_len(1 << 40).unwrap();
}

/// The program, which ends at a SIGHUP. Where tests run under nohup(1), programs that they start ignore it.
fn with_terminal() -> Command {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = u64::from_str_radix(ignored.unwrap().trim(), 16).unwrap();
    if ignored & 1 == 0 {
        return Command::new(PROGRAM);
    }
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP", PROGRAM]);
    command
}

/// Runs a copy that does not end, and sends it a SIGHUP when something is in `dest`. Its standard input has some data and no end.
fn hung_up(args: &[&str], dest: &Path) {
    let (input, mut writer) = std::io::pipe().unwrap();
    let mut copy = Running::spawn(
        with_terminal()
            .args(args)
            .stdin(input)
            .stderr(Stdio::piped()),
    );
    let writer = std::thread::spawn(move || {
        // Nobody may read it to the end.
        let _ = writer.write_all(&data(4 << 20));
        writer
    });
    while dest.read_dir().unwrap().count() == 0 {
        assert!(copy.try_wait().unwrap().is_none(), "it has ended");
        std::thread::yield_now();
    }
    kill_process(Pid::from_child(&copy), Signal::HUP).unwrap();
    let output = copy.output();
    assert!(!output.status.success());
    drop(writer.join().unwrap());
}

#[test]
fn copy_whose_terminal_is_closed_leaves_nothing_behind() {
    let served = Served::new(&[]);
    let put = ["put", "-", &served.url("endless")];
    hung_up(&put, &served.dir);
    assert!(tree(&served.dir).is_empty());
    large(&served.dir.join("large"));
    let dest = served.around.path().join("dest");
    fs::create_dir(&dest).unwrap();
    let get = ["get", &served.url("large"), path(&dest)];
    hung_up(&get, &dest);
    assert!(tree(&dest).is_empty());
}

#[test]
fn interrupted_copy_leaves_directories_with_their_own_modes() {
    let served = Served::new(&[]);
    let dir = served.dir.join("tree/dir");
    fs::create_dir_all(&dir).unwrap();
    large(&dir.join("large"));
    let closed = Permissions::from_mode(0o555);
    fs::set_permissions(&dir, closed).unwrap();
    let dest = served.around.path().join("dest");
    fs::create_dir(&dest).unwrap();
    let get = ["get", "-r", &served.url("tree/."), path(&dest)];
    let mut copy = Running::spawn(Command::new(PROGRAM).args(get).stderr(Stdio::piped()));
    let unfinished = || {
        dest.join("dir")
            .read_dir()
            .is_ok_and(|mut all| all.next().is_some())
    };
    while !unfinished() {
        assert!(copy.try_wait().unwrap().is_none(), "it has ended");
        std::thread::yield_now();
    }
    kill_process(Pid::from_child(&copy), Signal::TERM).unwrap();
    copy.output();
    assert_eq!(mode(&dest.join("dir")), 0o555);
    assert_eq!(dest.join("dir").read_dir().unwrap().count(), 0);
    let open = Permissions::from_mode(0o755);
    fs::set_permissions(&dir, open).unwrap();
}
