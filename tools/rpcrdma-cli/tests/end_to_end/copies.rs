//! Options of `get` and `put`, and what is copied through instead of replaced.

use crate::commands::data;
use crate::running::{PROGRAM, Served, fails, ok, run, text, tree};
use rustix::fs::{FileType, Mode, mknodat};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
use std::fs::{self, File, FileTimes, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) fn fifo(path: &Path) {
    let mode = Mode::from_raw_mode(0o600);
    mknodat(rustix::fs::CWD, path, FileType::Fifo, mode, 0).unwrap();
}

/// A pseudo-terminal that passes on all bytes as they are: its two ends, and the path of the second one, which is a
/// device.
fn raw_terminal() -> (File, File, PathBuf) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let path = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    let end = File::options().read(true).write(true).open(&path).unwrap();
    let mut modes = tcgetattr(&end).unwrap();
    modes.make_raw();
    tcsetattr(&end, OptionalActions::Now, &modes).unwrap();
    (master.into(), end, path.into())
}

/// Runs the program with something to read.
fn run_with_input(args: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(PROGRAM)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    thread::scope(|scope| {
        // What refuses its input does not read it.
        scope.spawn(move || {
            let _ = stdin.write_all(input);
        });
        child.wait_with_output().unwrap()
    })
}

/// Runs the program with a umask, which must succeed.
#[track_caller]
pub(crate) fn ok_with_umask(umask: &str, args: &[&str]) {
    let script = format!("umask {umask}; exec \"$0\" \"$@\"");
    let output = Command::new("sh")
        .args(["-c", &script, PROGRAM])
        .args(args)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

pub(crate) fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A time of this second, with nanoseconds.
fn at(second: u64) -> SystemTime {
    UNIX_EPOCH + Duration::new(second, 123_456_789)
}

/// Sets access and modification time.
pub(crate) fn set_times(path: &Path, second: u64) {
    let times = FileTimes::new()
        .set_accessed(at(second + 7))
        .set_modified(at(second));
    File::open(path).unwrap().set_times(times).unwrap();
}

fn modified(path: &Path) -> SystemTime {
    fs::symlink_metadata(path).unwrap().modified().unwrap()
}

#[test]
fn get_writes_to_devices_and_fifos_and_does_not_replace_them() {
    let served = Served::new(&[]);
    let content = data((3 << 20) + 5);
    fs::write(served.dir.join("file"), &content).unwrap();
    // In devpts nothing can be made or renamed: a mistake cannot replace a device of the machine.
    let (mut master, _held_open, terminal) = raw_terminal();
    let link = served.around.path().join("device");
    symlink(&terminal, &link).unwrap();
    let len = content.len();
    let reader = thread::spawn(move || {
        let mut read = vec![0; len];
        master.read_exact(&mut read).unwrap();
        // Without it the terminal is gone.
        (read, master)
    });
    ok(&["get", &served.url("file"), path(&link)]);
    let (read, _master) = reader.join().unwrap();
    assert!(read == content);
    assert!(link.is_symlink());
    assert!(fs::metadata(&link).unwrap().file_type().is_char_device());

    let pipe = served.around.path().join("pipe");
    fifo(&pipe);
    let reader = {
        let pipe = pipe.clone();
        thread::spawn(move || fs::read(pipe).unwrap())
    };
    ok(&["get", &served.url("file"), path(&pipe)]);
    assert!(reader.join().unwrap() == content);
    assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
    // Below a directory that is copied a FIFO is not waited for.
    let dest = served.around.path().join("dest");
    fs::create_dir(&dest).unwrap();
    fifo(&dest.join("file"));
    let says = "which is a fifo: it is not replaced";
    fails(&["get", "-r", &served.url("."), path(&dest)], 1, says);
    assert!(
        dest.join("file")
            .symlink_metadata()
            .unwrap()
            .file_type()
            .is_fifo()
    );
}

#[test]
fn put_does_not_replace_a_fifo_of_the_server() {
    let served = Served::new(&[]);
    fifo(&served.dir.join("pipe"));
    let file = served.local("file", b"content");
    let says = "which is a fifo: it is not replaced";
    fails(&["put", &file, &served.url("pipe")], 1, says);
    let there = served.dir.join("pipe").symlink_metadata().unwrap();
    assert!(there.file_type().is_fifo());
}

#[test]
fn symbolic_link_named_as_destination_is_followed() {
    let served = Served::new(&[]);
    let source = served.local("source", b"new");
    fs::create_dir(served.dir.join("dir")).unwrap();
    for dir in [served.dir.clone(), served.around.path().join("here")] {
        fs::create_dir_all(dir.join("dir")).unwrap();
        fs::write(dir.join("dir/target"), "old").unwrap();
        symlink("dir/target", dir.join("link")).unwrap();
        symlink("nowhere", dir.join("dangling")).unwrap();
    }
    fs::write(served.dir.join("file"), "new").unwrap();
    let here = served.around.path().join("here");
    let (link, dangling) = (here.join("link"), here.join("dangling"));
    ok(&["put", &source, &served.url("link")]);
    ok(&["get", &served.url("file"), path(&link)]);
    for dir in [&served.dir, &here] {
        assert!(dir.join("link").is_symlink());
        assert_eq!(fs::read(dir.join("dir/target")).unwrap(), b"new");
        assert_eq!(dir.join("dir").read_dir().unwrap().count(), 1);
    }
    let says = "a symbolic link to something that is not there";
    fails(&["put", &source, &served.url("dangling")], 1, says);
    fails(&["get", &served.url("file"), path(&dangling)], 1, says);
    assert!(dangling.is_symlink() && served.dir.join("dangling").is_symlink());
}

#[test]
fn symbolic_link_inside_a_copied_tree_is_not_followed() {
    let served = Served::new(&[]);
    let elsewhere = served.around.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("file"), "mine").unwrap();
    let source = served.around.path().join("tree");
    served.local("tree/file", b"new");
    served.local("tree/dir/file", b"new");
    for there in [
        served.dir.join("tree"),
        served.around.path().join("got/tree"),
    ] {
        fs::create_dir_all(&there).unwrap();
        symlink(elsewhere.join("file"), there.join("file")).unwrap();
        symlink(&elsewhere, there.join("dir")).unwrap();
    }
    let says = "which is a symlink";
    fails(&["put", "-r", path(&source), &served.url("")], 1, says);
    fs::remove_file(served.dir.join("tree/dir")).unwrap();
    ok(&["put", "-r", path(&source), &served.url("")]);
    assert_eq!(tree(&served.dir.join("tree")), tree(&source));
    let got = served.around.path().join("got");
    fails(&["get", "-r", &served.url("tree"), path(&got)], 1, says);
    fs::remove_file(got.join("tree/dir")).unwrap();
    ok(&["get", "-r", &served.url("tree"), path(&got)]);
    assert_eq!(tree(&got.join("tree")), tree(&source));
    assert_eq!(fs::read(elsewhere.join("file")).unwrap(), b"mine");
}

#[test]
fn minus_is_standard_output_of_get_and_standard_input_of_put() {
    let served = Served::new(&[]);
    for content in [data(0), data(1000), data((5 << 20) + 3)] {
        let url = served.url("file");
        let put = run_with_input(&["put", "-", &url], &content);
        assert!(put.status.success(), "{}", text(&put.stderr));
        assert!(fs::read(served.dir.join("file")).unwrap() == content);
        assert!(ok(&["get", &url, "-"]) == content);
    }
    assert_eq!(served.dir.read_dir().unwrap().count(), 1);
    // A file of that name is named in another way.
    let named = served.local("-", b"in a file");
    let (dir, url) = (served.around.path(), served.url("named"));
    let put = Command::new(PROGRAM)
        .current_dir(dir)
        .args(["put", "./-", &url])
        .status();
    assert!(put.unwrap().success());
    assert_eq!(ok(&["get", &url, "-"]), fs::read(named).unwrap());
}

#[test]
fn pipes_are_sources_of_put() {
    let served = Served::new(&[]);
    let pipe = served.around.path().join("pipe");
    fifo(&pipe);
    let content = data((2 << 20) + 1);
    let writer = {
        let (pipe, content) = (pipe.clone(), content.clone());
        thread::spawn(move || fs::write(pipe, content).unwrap())
    };
    ok(&["put", path(&pipe), &served.url("")]);
    writer.join().unwrap();
    assert!(fs::read(served.dir.join("pipe")).unwrap() == content);
    // One that a tree has in it is not waited for.
    let dir = served.around.path().join("tree");
    fs::create_dir(&dir).unwrap();
    fifo(&dir.join("pipe"));
    served.local("tree/file", b"f");
    let says = "is a fifo, which is not copied";
    fails(&["put", "-r", path(&dir), &served.url("")], 1, says);
    assert_eq!(fs::read(served.dir.join("tree/file")).unwrap(), b"f");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let served = Served::new(&[]);
    fs::create_dir(served.dir.join("dir")).unwrap();
    fs::write(served.dir.join("file"), "f").unwrap();
    let (dir, file, root) = (served.url("dir"), served.url("file"), served.url(""));
    let local = served.local("file", b"f");
    fails(&["get", &file, &file, "-"], 2, "only one file");
    fails(&["get", "-p", &file, "-"], 2, "--preserve cannot be used");
    fails(&["get", &dir, "-"], 1, "only a file can be copied");
    fails(&["put", "-", &local, &root], 2, "the only source");
    fails(&["put", "-r", "-", &file], 2, "--recursive cannot be used");
    fails(&["put", "-", &root], 2, "needs a name in it");
    fails(&["get", "-n", "-u", &file], 2, "--update");
    fails(&["get", "--delete", &file], 2, "--recursive");
    fails(
        &["put", "-r", "--delete", &local, &root],
        2,
        "of which none",
    );
    fails(&["get", "--exclude", "[a", &file], 2, "--exclude [a: ");
    fails(
        &["put", &local, &served.url("no/file")],
        1,
        "there is no directory",
    );
}

#[test]
fn modes_and_times_are_kept_if_asked_for() {
    let served = Served::new(&[]);
    let source = served.around.path().join("tree");
    served.local("tree/dir/small", b"s");
    served.local("tree/dir/large", &data(1 << 20));
    symlink("small", source.join("dir/link")).unwrap();
    fs::create_dir(source.join("empty")).unwrap();
    set_mode(&source.join("dir/small"), 0o4751);
    set_mode(&source.join("dir/large"), 0o400);
    for (name, second) in [
        ("dir/small", 1),
        ("dir/large", 1 << 30),
        ("empty", 3),
        ("dir", 4),
    ] {
        set_times(&source.join(name), second);
    }
    set_mode(&source.join("dir"), 0o2555);
    set_times(&source, 1 << 31);
    let check = |copy: &Path| {
        for name in ["", "dir", "empty", "dir/small", "dir/large"] {
            let (from, to) = (source.join(name), copy.join(name));
            assert_eq!(mode(&to), mode(&from), "{}", to.display());
            assert_eq!(modified(&to), modified(&from), "{}", to.display());
        }
        assert_eq!(fs::read(copy.join("dir/large")).unwrap(), data(1 << 20));
        assert!(copy.join("dir/link").is_symlink());
    };
    ok(&["put", "-rp", path(&source), &served.url("")]);
    // The copy has not been read so far.
    let small = fs::metadata(served.dir.join("tree/dir/small")).unwrap();
    assert_eq!(small.accessed().unwrap(), at(8));
    check(&served.dir.join("tree"));
    let back = served.around.path().join("back");
    // Reading it changes times of access.
    set_times(&served.dir.join("tree/dir/small"), 1);
    ok(&["get", "-rp", &served.url("tree"), path(&back)]);
    check(&back);
    // Also where it is there already.
    set_mode(&served.dir.join("tree/empty"), 0o700);
    ok(&[
        "put",
        "-rp",
        &format!("{}/.", path(&source)),
        &served.url("tree"),
    ]);
    check(&served.dir.join("tree"));
    for dir in [&source, &back, &served.dir.join("tree")] {
        set_mode(&dir.join("dir"), 0o755);
    }
}

/// As acl(5) has it, and mkdir(1) and touch(1) on the same disk.
#[test]
fn umask_does_not_count_in_a_directory_with_a_default_access_control_list() {
    let served = Served::new(&[]);
    let mode = |path: &str| fs::metadata(served.dir.join(path)).unwrap().mode() & 0o777;
    let make = |names: [&str; 3]| {
        let [dir, deep, file] = names.map(|name| served.url(name));
        ok_with_umask("022", &["mkdir", &dir]);
        ok_with_umask("022", &["mkdir", "-p", &deep]);
        ok_with_umask("022", &["touch", &file]);
        names.map(mode)
    };
    assert_eq!(make(["d", "p/q", "f"]), [0o755, 0o755, 0o644]);
    // Owner, user 1001, owning group, mask and others: all may do all.
    let entries = [
        (0x01, u32::MAX),
        (0x02, 1001),
        (0x04, u32::MAX),
        (0x10, u32::MAX),
        (0x20, u32::MAX),
    ];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, id) in entries {
        list.extend(u16::to_le_bytes(tag));
        list.extend(7_u16.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    let name = "system.posix_acl_default";
    rustix::fs::setxattr(&served.dir, name, &list, rustix::fs::XattrFlags::empty()).unwrap();
    assert_eq!(make(["d2", "p2/q", "f2"]), [0o777, 0o777, 0o666]);
    assert_eq!(mode("p2"), 0o777);
}

#[test]
fn umask_is_the_same_in_both_directions() {
    let served = Served::new(&[]);
    let source = served.around.path().join("tree");
    served.local("tree/dir/file", b"f");
    set_mode(&source.join("dir/file"), 0o6777);
    set_mode(&source.join("dir"), 0o555);
    set_mode(&source, 0o777);
    let back = served.around.path().join("back");
    ok_with_umask("027", &["put", "-r", path(&source), &served.url("")]);
    let put = served.dir.join("tree");
    set_mode(&put.join("dir/file"), 0o777);
    set_mode(&put.join("dir"), 0o555);
    let modes = |dir: &Path| ["", "dir", "dir/file"].map(|name| mode(&dir.join(name)));
    set_mode(&put, 0o777);
    ok_with_umask("027", &["get", "-r", &served.url("tree"), path(&back)]);
    assert_eq!(modes(&back), [0o750, 0o550, 0o750]);
    ok_with_umask("027", &["put", "-r", path(&source), &served.url("again")]);
    assert_eq!(modes(&served.dir.join("again")), [0o750, 0o550, 0o750]);
    let piped = served.url("piped");
    ok_with_umask("027", &["put", "-", &piped]);
    assert_eq!(mode(&served.dir.join("piped")), 0o640);
    for dir in [&source, &back, &put, &served.dir.join("again")] {
        set_mode(&dir.join("dir"), 0o755);
    }
}

/// A file on both sides, older or younger there than here.
fn on_both_sides() -> (Served, std::path::PathBuf) {
    let served = Served::new(&[]);
    let here = served.around.path().join("here");
    for (name, second) in [("younger", 2000), ("older", 500), ("same", 1000)] {
        served.local(&format!("here/{name}"), b"here");
        fs::write(served.dir.join(name), "there").unwrap();
        set_times(&here.join(name), 1000);
        set_times(&served.dir.join(name), second);
    }
    (served, here)
}

fn contents(dir: &Path) -> [String; 3] {
    ["younger", "older", "same"].map(|name| fs::read_to_string(dir.join(name)).unwrap())
}

#[test]
fn files_that_are_there_stay_with_no_clobber() {
    let (served, here) = on_both_sides();
    let all = format!("{}/.", path(&here));
    served.local("here/new", b"new");
    fs::write(served.dir.join("other"), "other").unwrap();
    ok(&["put", "-rn", &all, &served.url("")]);
    ok(&["get", "-rn", &served.url("."), path(&here)]);
    assert_eq!(contents(&served.dir), ["there"; 3]);
    assert_eq!(contents(&here), ["here"; 3]);
    assert_eq!(fs::read(served.dir.join("new")).unwrap(), b"new");
    assert_eq!(fs::read(here.join("other")).unwrap(), b"other");
}

#[test]
fn only_what_is_older_is_replaced_with_update() {
    let (served, here) = on_both_sides();
    ok(&["put", "-ru", &format!("{}/.", path(&here)), &served.url("")]);
    assert_eq!(contents(&served.dir), ["there", "here", "there"]);
    let (served, here) = on_both_sides();
    ok(&["get", "-ru", &served.url("."), path(&here)]);
    assert_eq!(contents(&here), ["there", "here", "here"]);
    // What kept its times is not copied again.
    let (served, here) = on_both_sides();
    let all = format!("{}/.", path(&here));
    ok(&["put", "-rp", &all, &served.url("")]);
    let said = text(&ok(&["put", "-rpuv", &all, &served.url("")]));
    assert_eq!(
        said.matches("skipped: what is there is not older").count(),
        3
    );
    assert!(!said.contains(" -> "), "{said}");
}

#[test]
fn excluded_names_are_left_out() {
    let served = Served::new(&[]);
    let source = served.around.path().join("tree");
    for name in [
        "a.o",
        "a.c",
        "cache/x",
        "sub/cache/x",
        "sub/b.o",
        "sub/keep/b.c",
        "sub/top",
    ] {
        served.local(&format!("tree/{name}"), b"x");
    }
    served.local("tree/top", b"x");
    let exclude = [
        "--exclude",
        "*.o",
        "--exclude",
        "cache/",
        "--exclude=/tree/top",
    ];
    let names = |dir: &Path| -> Vec<_> {
        let names = tree(dir).into_iter().map(|(name, _)| name);
        names
            .filter_map(|name| name.to_str().map(str::to_owned))
            .collect()
    };
    let expected = ["a.c", "sub", "sub/keep", "sub/keep/b.c", "sub/top"];
    ok(&[&["put", "-r", path(&source), &served.url("")], &exclude[..]].concat());
    assert_eq!(names(&served.dir.join("tree")), expected);
    ok(&["put", "-r", path(&source), &served.url("")]);
    let back = served.around.path().join("back");
    ok(&[
        &["get", "-r", &served.url("tree"), path(&back)],
        &exclude[..],
    ]
    .concat());
    assert_eq!(names(&back), expected);
}

#[test]
fn delete_removes_what_the_source_lacks_but_nothing_excluded() {
    let served = Served::new(&[]);
    let source = served.around.path().join("source");
    served.local("source/dir/file", b"new");
    let from_url = served.dir.join("source");
    let dest = served.around.path().join("dest");
    for there in [&from_url, &dest] {
        for name in [
            "dir/extra",
            "gone/deep/file",
            "gone/deep/more.keep",
            "x.keep",
            "all/a/b",
        ] {
            let path = there.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
        symlink("/", there.join("link")).unwrap();
    }
    let options = ["-r", "--delete", "--exclude", "*.keep"];
    let contents = format!("{}/.", path(&source));
    let url = served.url("source");
    let put = [&["put"], &options[..], &[&contents, &url]].concat();
    let before = tree(&from_url);
    let dry = text(&ok(&[&put[..], &["--dry-run"]].concat()));
    assert!(
        dry.contains(&format!("would remove {}", served.url("source/dir/extra"))),
        "{dry}"
    );
    assert!(dry.contains("source/link\n"), "{dry}");
    assert!(!dry.contains("x.keep"), "{dry}");
    assert!(tree(&from_url) == before, "a dry run changes nothing");
    ok(&put);
    let names = |dir: &Path| -> Vec<String> {
        let names = tree(dir).into_iter();
        names
            .map(|(name, _)| name.to_str().unwrap().to_owned())
            .collect()
    };
    let expected = [
        "dir",
        "dir/file",
        "gone",
        "gone/deep",
        "gone/deep/more.keep",
        "x.keep",
    ];
    assert_eq!(names(&from_url), expected);

    let url = served.url("source/.");
    let get = [&["get"], &options[..], &[&url, path(&dest)]].concat();
    ok(&get);
    assert_eq!(names(&dest), expected);
    // Without a pattern everything goes.
    ok(&[
        "get",
        "-r",
        "--delete",
        &served.url("source/dir/."),
        path(&dest),
    ]);
    assert_eq!(names(&dest), ["file"]);
    ok(&["put", "-r", "--delete", &contents, &served.url("source")]);
    assert_eq!(names(&from_url), ["dir", "dir/file"]);
}

#[test]
fn nothing_is_removed_if_the_source_was_not_copied_in_full() {
    let served = Served::new(&[]);
    let source = served.around.path().join("tree");
    served.local("tree/file", b"f");
    fifo(&source.join("pipe"));
    fs::create_dir(served.dir.join("tree")).unwrap();
    fs::write(served.dir.join("tree/extra"), "x").unwrap();
    let says = "nothing was removed at the destination";
    fails(
        &["put", "-r", "--delete", path(&source), &served.url("")],
        1,
        says,
    );
    assert!(served.dir.join("tree/extra").exists());
    let got = served.around.path().join("got");
    served.local("got/tree/extra", b"x");
    fifo(&served.dir.join("tree/pipe"));
    fails(
        &["get", "-r", "--delete", &served.url("tree"), path(&got)],
        1,
        says,
    );
    assert!(got.join("tree/extra").exists());
}

#[test]
fn dry_run_copies_nothing_and_verbose_names_what_is_copied() {
    let served = Served::new(&[]);
    let source = served.around.path().join("tree");
    served.local("tree/dir/file", b"f");
    let put = ["put", "-r", path(&source), &served.url("")];
    let dry = text(&ok(&[&put[..], &["--dry-run"]].concat()));
    assert!(tree(&served.dir).is_empty());
    let line = format!(
        "{}/dir/file -> {}\n",
        path(&source),
        served.url("tree/dir/file")
    );
    assert!(dry.contains(&line), "{dry}");
    let said = text(&ok(&[&put[..], &["-v"]].concat()));
    assert!(said.contains(&line), "{said}");
    let back = served.beside("back");
    let get = ["get", "-r", &served.url("tree"), &back];
    let line = format!("{} -> {back}/dir/file\n", served.url("tree/dir/file"));
    let dry = text(&ok(&[&get[..], &["--dry-run"]].concat()));
    assert!(dry.contains(&line) && !Path::new(&back).exists(), "{dry}");
    assert!(text(&ok(&[&get[..], &["-v"]].concat())).contains(&line));
    assert!(text(&ok(&get)).is_empty());
    // Standard output is for the data.
    let output = run(&["get", "-v", &served.url("tree/dir/file"), "-"]);
    assert_eq!(output.stdout, b"f");
    assert!(text(&output.stderr).contains("tree/dir/file -> -\n"));
}

/// Reads from a command whose output nobody wants any more.
#[test]
fn get_ends_when_nobody_reads_its_output_any_more() {
    let served = Served::new(&[]);
    fs::write(served.dir.join("file"), data(4 << 20)).unwrap();
    let mut child = Command::new(PROGRAM)
        .args(["get", &served.url("file"), "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut some = [0; 100];
    child.stdout.take().unwrap().read_exact(&mut some).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn archive_copies_directories_with_modes_and_links_as_links() {
    let served = Served::new(&[]);
    served.local("tree/file", b"content");
    let tree = served.around.path().join("tree");
    set_mode(&tree.join("file"), 0o4751);
    symlink("file", tree.join("link")).unwrap();
    let link = served.beside("named");
    symlink("tree", &link).unwrap();
    // The second copy finds what the first one made, and a link that leads there.
    for _ in 0..2 {
        ok(&["put", "-a", &served.beside("tree"), &link, &served.url("")]);
        assert_eq!(
            fs::read_link(served.dir.join("named")).unwrap(),
            Path::new("tree")
        );
        assert_eq!(
            fs::read_link(served.dir.join("tree/link")).unwrap(),
            Path::new("file")
        );
        assert_eq!(mode(&served.dir.join("tree/file")), 0o4751);
    }
    let dest = tempfile::tempdir().unwrap();
    let to = dest.path().to_str().unwrap();
    for _ in 0..2 {
        ok(&["get", "-a", &served.url("tree"), &served.url("named"), to]);
        assert_eq!(
            fs::read_link(dest.path().join("named")).unwrap(),
            Path::new("tree")
        );
        assert_eq!(mode(&dest.path().join("tree/file")), 0o4751);
    }
    // The name of a link stands for the link, when a link is copied to it.
    symlink("tree", served.dir.join("other")).unwrap();
    let other = served.url("other");
    ok(&[
        "put",
        "-aT",
        &served.local("alone", b"alone"),
        &served.url("alone"),
    ]);
    let alone = served.beside("to-alone");
    symlink("alone", &alone).unwrap();
    ok(&["put", "-aT", &alone, &other]);
    assert_eq!(
        fs::read_link(served.dir.join("other")).unwrap(),
        Path::new("alone")
    );
    assert!(served.dir.join("tree/file").exists());
}

#[test]
fn destination_is_the_name_itself_with_no_target_directory() {
    let served = Served::new(&[]);
    served.local("tree/file", b"content");
    fs::create_dir(served.dir.join("dest")).unwrap();
    let tree = served.beside("tree");
    ok(&["put", "-rT", &tree, &served.url("dest")]);
    assert_eq!(fs::read(served.dir.join("dest/file")).unwrap(), b"content");
    let dest = tempfile::tempdir().unwrap();
    let to = dest.path().to_str().unwrap();
    ok(&["get", "-rT", &served.url("dest"), to]);
    assert_eq!(fs::read(dest.path().join("file")).unwrap(), b"content");
    let file = format!("{tree}/file");
    fails(
        &["put", "-T", &file, &served.url("dest")],
        1,
        "cannot replace the directory",
    );
    fails(
        &["put", "-T", &file, &file, &served.url("dest")],
        2,
        "-T takes one source",
    );
    fails(
        &["get", "-T", &served.url("dest/file"), to],
        1,
        "cannot replace the directory",
    );
}

#[test]
fn names_that_begin_with_a_hyphen_are_sources_behind_two_hyphens() {
    let served = Served::new(&[]);
    let names = ["-n", "--help", "-r"];
    for name in names {
        served.local(name, name.as_bytes());
    }
    let mut put = Command::new(PROGRAM);
    put.args(["put", "--"]).args(names).arg(served.url(""));
    let output = put.current_dir(served.around.path()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    for name in names {
        assert_eq!(fs::read(served.dir.join(name)).unwrap(), name.as_bytes());
    }
    fails(&["put", "file"], 2, "a source and the URL of a destination");
    fails(&["put", "file", "other"], 2, "other: ");
}

#[test]
fn directories_keep_mode_and_times_where_delete_removes_something() {
    let served = Served::new(&[]);
    let (from, back) = (served.around.path().join("t"), served.beside("back"));
    let dirs = ["", "dir", "dir/deep"];
    fs::create_dir_all(from.join("dir/deep")).unwrap();
    fs::create_dir(&back).unwrap();
    for dir in dirs {
        for name in ["stays", "goes"] {
            fs::write(from.join(dir).join(name), name).unwrap();
        }
    }
    let both = || {
        for dir in dirs.iter().rev() {
            set_mode(&from.join(dir), 0o555);
            set_times(&from.join(dir), 1000);
        }
        let all = format!("{}/.", path(&from));
        ok(&["put", "-rp", "--delete", &all, &served.url("")]);
        ok(&["get", "-rp", "--delete", &served.url("."), &back]);
    };
    both();
    for dir in dirs {
        set_mode(&from.join(dir), 0o755);
        fs::remove_file(from.join(dir).join("goes")).unwrap();
    }
    both();
    for copy in [&served.dir, Path::new(&back)] {
        for dir in dirs {
            let copied = copy.join(dir);
            assert_eq!(
                (modified(&copied), mode(&copied)),
                (at(1000), 0o555),
                "{dir}"
            );
            assert!(copied.join("stays").exists() && !copied.join("goes").exists());
        }
    }
}
