//! Commands that look at files and change them, beside those of coreutils.

use crate::commands::data;
use crate::coreutils::{ours, ours_with, theirs};
use crate::running::{PROGRAM, Served, fails, text, tree};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{getegid, geteuid};
use std::collections::BTreeSet;
use std::fs::{self, FileTimes, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[test]
fn df_has_the_columns_and_sizes_of_coreutils() {
    let served = Served::new(&[]);
    let url = served.url("");
    let words = |text: &str| -> Vec<Vec<String>> {
        let lines = text.lines();
        lines
            .map(|line| line.split_whitespace().map(str::to_owned).collect())
            .collect()
    };
    // What is used changes while the test runs; the size does not.
    for (options, size) in [
        (&[][..], 1),
        (&["-k"], 1),
        (&["-h"], 1),
        (&["-H"], 1),
        (&["-i"], 1),
    ] {
        let shown = words(&ours(&[&["df"], options, &[&url]].concat()));
        let expected = words(&theirs(&served.dir, &[&["df"], options, &["."]].concat()));
        assert_eq!(shown[0], expected[0][..5], "{options:?}");
        assert_eq!(shown[1][0], url);
        assert_eq!(shown[1][size], expected[1][size], "{options:?}");
        assert_eq!(shown[1].len(), 5);
    }
    let both = ours(&["df", &url, &url]);
    assert_eq!(both.lines().count(), 3);
}

#[test]
fn df_of_what_is_not_there_shows_the_rest() {
    let served = Served::new(&[]);
    let (missing, url) = (served.url("missing"), served.url(""));
    let output = ours_with(&["df", &missing, &url], &[]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout).lines().count(), 2);
    assert_eq!(
        text(&output.stderr),
        format!("rpcrdma: {missing}: no such file or directory\n")
    );
}

#[test]
fn stat_shows_owners_by_name_and_times_in_the_time_zone() {
    let served = Served::new(&[]);
    let path = served.dir.join("file");
    fs::write(&path, "content").unwrap();
    let shown = ours(&["stat", &served.url("file")]);
    let long = theirs(&served.dir, &["ls", "-l", "file"]);
    let words: Vec<&str> = long.split_whitespace().collect();
    let names = format!("({}:{})\n", words[2], words[3]);
    assert!(shown.contains(&names), "{names} is not in {shown}");
    let format = ["stat", "-c", "%u:%g |%y|%x|%z", "file"];
    for part in theirs(&served.dir, &format).trim_end().split('|') {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    let line = ours(&["stat", "--json", &served.url("file")]);
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    // A user without a name has none there.
    let owner = match words[2].parse::<u32>() {
        Ok(_) => serde_json::Value::Null,
        Err(_) => words[2].into(),
    };
    assert_eq!(line["owner"], owner);
    assert_eq!(line["uid"], fs::metadata(path).unwrap().uid());
    assert!(line["mtime"].as_str().unwrap().ends_with('Z'));
}

#[test]
fn cat_prints_all_that_can_be_read() {
    let served = Served::new(&[]);
    for name in ["one", "two"] {
        fs::write(served.dir.join(name), format!("{name}\n")).unwrap();
    }
    let [one, missing, two] = ["one", "missing", "two"].map(|name| served.url(name));
    assert_eq!(ours(&["cat", &two, &one]), "two\none\n");
    let output = ours_with(&["cat", &one, &missing, &two], &[]);
    assert_eq!(text(&output.stdout), "one\ntwo\n");
    fails(
        &["cat", &one, &missing, &two],
        1,
        &format!("rpcrdma: {missing}: cannot read: no such file or directory\n"),
    );
}

/// Whether it is an error that the name is taken depends on the version of coreutils.
#[test]
fn what_has_the_name_is_kept_on_demand() {
    let served = Served::new(&[]);
    let content = |name: &str| fs::read_to_string(served.dir.join(name)).unwrap_or_default();
    for name in ["a", "b"] {
        fs::write(served.dir.join(name), name).unwrap();
    }
    for command in ["mv", "cp"] {
        ours(&[command, "-n", &served.url("a"), &served.url("b")]);
        ours(&[command, "-fn", &served.url("a"), &served.url("b")]);
        assert_eq!((content("a"), content("b")), ("a".into(), "b".into()));
    }
    ours(&["cp", "-rn", &served.url("a"), &served.url("new")]);
    assert_eq!(content("new"), "a");
}

/// State of a directory: mode, owner and content of all that is there.
fn state(dir: &Path) -> String {
    theirs(dir, &["find", ".", "-printf", "%p %y %m %U:%G %l %n\n"])
        .lines()
        .map(str::to_owned)
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect::<Vec<_>>()
        .join("\n")
}

/// A tree as `make` makes it, once for ours, which is served, and once for coreutils.
struct Twins {
    served: Served,
    theirs: PathBuf,
}

impl Twins {
    fn new(make: impl Fn(&Path)) -> Self {
        let served = Served::new(&[]);
        let theirs = served.around.path().join("theirs");
        fs::create_dir(&theirs).unwrap();
        make(&served.dir);
        make(&theirs);
        Self { served, theirs }
    }

    /// Runs a command on both, and compares what they leave and whether they succeed. Arguments that begin
    /// with a dot and a slash are paths, which ours gets as URLs.
    #[track_caller]
    fn run(&self, command: &str) {
        let args: Vec<&str> = command.split(' ').collect();
        let urls: Vec<String> = args
            .iter()
            .map(|arg| match arg.split_once("./") {
                Some((option, path)) => format!("{option}{}", self.served.url(path)),
                None => (*arg).to_owned(),
            })
            .collect();
        let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
        let output = ours_with(&urls, &[]);
        let mut reference = Command::new(args[0]);
        let paths = args[1..].iter().map(|arg| arg.replacen("./", "", 1));
        reference.args(paths).current_dir(&self.theirs);
        let expected = reference.stdin(Stdio::null()).output().unwrap();
        let errors = text(&output.stderr);
        assert_eq!(
            output.status.success(),
            expected.status.success(),
            "{command}: {errors}{}",
            text(&expected.stderr)
        );
        assert_eq!(
            state(&self.served.dir),
            state(&self.theirs),
            "{command}: {errors}"
        );
        // An error names what it is about, once.
        for line in errors.lines() {
            assert!(line.starts_with("rpcrdma: nfs://"), "{command}: {line}");
        }
    }
}

fn some_tree(dir: &Path) {
    fs::create_dir_all(dir.join("d/e")).unwrap();
    fs::create_dir(dir.join("empty")).unwrap();
    for file in ["f", "g", "d/f", "d/e/f"] {
        fs::write(dir.join(file), file).unwrap();
        fs::set_permissions(dir.join(file), Permissions::from_mode(0o640)).unwrap();
    }
    fs::hard_link(dir.join("f"), dir.join("f2")).unwrap();
    symlink("f", dir.join("link")).unwrap();
    symlink("d", dir.join("to-d")).unwrap();
    symlink("nowhere", dir.join("dangling")).unwrap();
    symlink("../f", dir.join("d/up")).unwrap();
    for dir in ["d", "d/e", "empty"].map(|name| dir.join(name)) {
        fs::set_permissions(dir, Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn chmod_leaves_what_coreutils_leave() {
    let twins = Twins::new(some_tree);
    for command in [
        "chmod 600 ./f",
        "chmod u+x,go=r ./f ./d/f",
        "chmod +x ./g",
        "chmod -x ./g",
        "chmod -R go-rwx ./d",
        "chmod -R u=rwX,go=rX ./d ./empty",
        "chmod -R a+X ./to-d",
        "chmod 444 ./link",
        "chmod 644 ./missing ./f",
        "chmod 644 ./dangling",
        "chmod g+s ./d",
        "chmod 755 ./d",
        "chmod 00755 ./d",
        "chmod -R 700 ./d",
        "chmod --reference=./g ./f",
    ] {
        twins.run(command);
    }
    fails(
        &["chmod", "u+q", &twins.served.url("f")],
        2,
        "it is not a mode",
    );
    fails(&["chmod", "644"], 2, "<URL>");
    let shown = ours(&["chmod", "-v", "600", &twins.served.url("g")]);
    assert!(shown.ends_with(" changed to 0600 (rw-------)\n"), "{shown}");
    assert_eq!(ours(&["chmod", "-c", "600", &twins.served.url("g")]), "");
}

#[test]
fn chown_leaves_what_coreutils_leave() {
    let twins = Twins::new(some_tree);
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    let mut commands = vec![
        format!("chown {uid} ./f"),
        format!("chown {uid}:{gid} ./f ./d"),
        format!("chown :{gid} ./missing ./f"),
        format!("chown -R {uid}:{gid} ./d"),
        format!("chown -h {uid} ./link ./dangling"),
        format!("chown {uid} ./dangling"),
    ];
    // Only root gives files away.
    if geteuid().is_root() {
        commands.extend(
            [
                "chown 1234:2345 ./f",
                "chown 1234 ./link",
                "chown -h 1235 ./link",
                "chown -R 77:88 ./d",
                "chown -R 78 ./to-d",
                "chown daemon: ./g",
                "chown root:daemon ./g",
                "chown --reference=./d ./empty",
            ]
            .map(str::to_owned),
        );
    }
    for command in &commands {
        twins.run(command);
    }
    let url = twins.served.url("f");
    fails(
        &["chown", "no-such-user", &url],
        2,
        "there is no user no-such-user",
    );
}

#[test]
fn directories_are_made_and_removed_as_coreutils_do() {
    let twins = Twins::new(some_tree);
    for command in [
        "mkdir ./new",
        "mkdir ./new",
        "mkdir -p ./new ./a/b/c",
        "mkdir -m 700 ./closed",
        "mkdir -m u=rwx,g=rx,o= ./named",
        "mkdir -p -m 2770 ./p/q/r",
        "mkdir -m 1777 ./sticky",
        "mkdir ./no/parent",
        "mkdir -p ./f/below",
        "mkdir -p ./to-d/below",
        "rmdir ./new ./d ./closed",
        "rmdir --ignore-fail-on-non-empty ./d",
        "rmdir -p ./a/b/c",
        "rmdir ./f",
        "rmdir ./missing",
        "mkdir -p ./x/y/z ./x/other",
        "rmdir -p ./x/y/z",
    ] {
        twins.run(command);
    }
    let served = &twins.served;
    let (one, two) = (served.url("one"), served.url("one/two"));
    assert_eq!(
        ours(&["mkdir", "-pv", &two]),
        format!("made {one}\nmade {two}\n")
    );
    assert_eq!(
        ours(&["rmdir", "-pv", &two]),
        format!("removed {two}\nremoved {one}\n")
    );
}

#[test]
fn names_are_removed_renamed_and_linked_as_coreutils_do() {
    let twins = Twins::new(some_tree);
    for command in [
        "mv ./g ./moved",
        "mv -nf ./moved ./f",
        "mv ./f ./f2",
        "mv ./missing ./link ./empty",
        "mv ./empty/link ./d/",
        "mv -T ./empty ./d",
        "mv ./d ./to-there",
        "mv ./to-there ./d",
        "mv ./f2 ./missing/",
        "ln ./f ./hard",
        "ln ./f ./hard",
        "ln -f ./f2 ./hard",
        "ln ./f ./f2 ./empty",
        "ln -f ./f ./f",
        "ln -f ./f ./empty",
        "rm ./empty/f",
        "rm ./empty ./hard",
        "rm -d ./empty ./d",
        "rm -f ./missing ./f",
        "rm -r ./to-d",
        "rm -R ./d",
        "rm ./missing",
    ] {
        twins.run(command);
    }
    // The text of a link is no URL.
    let served = &twins.served;
    fs::create_dir(served.dir.join("v1")).unwrap();
    let at = |name: &str| fs::read_link(served.dir.join(name)).unwrap();
    let current = served.url("current");
    ours(&["ln", "-s", "v1", &current]);
    ours(&["ln", "-s", "inside", &current]);
    assert_eq!(at("v1/inside"), Path::new("inside"));
    ours(&["ln", "-sfn", "v2", &current]);
    assert_eq!(at("current"), Path::new("v2"));
    ours(&["ln", "-sfT", "v3", &current]);
    assert_eq!(at("current"), Path::new("v3"));
    fails(&["ln", "-s", "v4", &current], 1, "file exists");
    ours(&["ln", "-s", "a/one", "two", &served.url("v1")]);
    assert_eq!((at("v1/one"), at("v1/two")), ("a/one".into(), "two".into()));
    let shown = ours(&["rm", "-rv", &served.url("v1")]);
    assert_eq!(shown.lines().count(), 4, "{shown}");
    assert!(shown.ends_with(&format!("removed {}\n", served.url("v1"))));
    assert_eq!(
        ours(&["mv", "-v", &current, &served.url("last")]),
        format!("renamed {current} to {}\n", served.url("last"))
    );
    assert_eq!(
        ours(&["rm", "-v", &served.url("last")]),
        format!("removed {}\n", served.url("last"))
    );
}

#[test]
fn rm_asks_before_each_removal() {
    let served = Served::new(&[]);
    some_tree(&served.dir);
    let asked = |args: &[&str], answers: &str| {
        let mut command = Command::new(PROGRAM);
        command
            .args(args)
            .stdin(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut answer = child.stdin.take().unwrap();
        answer.write_all(answers.as_bytes()).unwrap();
        drop(answer);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stderr).replace(&served.url(""), "")
    };
    let (f, g, d) = (served.url("f"), served.url("g"), served.url("d"));
    let questions = asked(&["rm", "-i", &f, &g], "n\nyes\n");
    assert_eq!(
        questions,
        "rpcrdma: remove file f? rpcrdma: remove file g? "
    );
    assert!(served.dir.join("f").exists() && !served.dir.join("g").exists());
    // Into d and d/e, the file there, d/e itself; not the file in d, but the link; d is not empty then.
    let questions = asked(&["rm", "-ri", &d], "y\ny\ny\ny\nn\ny\n");
    assert_eq!(questions.matches("? ").count(), 7, "{questions}");
    assert!(!served.dir.join("d/e").exists() && served.dir.join("d/f").exists());
    assert!(!served.dir.join("d/up").exists());
    asked(&["rm", "-rif", &d], "");
    assert!(!served.dir.join("d").exists());
}

#[test]
fn touch_leaves_the_times_that_coreutils_leave() {
    let twins = Twins::new(some_tree);
    let shown = |dir: &Path| {
        let format = "%p %A+ %T+\n";
        let now = ["find", ".", "-type", "f", "-printf", format];
        let lines = theirs(dir, &now);
        lines.lines().map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let both = |args: &[&str], names: &[&str]| {
        let urls: Vec<String> = names.iter().map(|name| twins.served.url(name)).collect();
        let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
        ours(&[&["touch"], args, &urls].concat());
        theirs(&twins.theirs, &[&["touch"], args, names].concat());
        assert_eq!(shown(&twins.served.dir), shown(&twins.theirs), "{args:?}");
    };
    let all = ["f", "g", "d/f", "d/e/f"];
    both(&["-d", "2020-02-29 12:34:56.789012345"], &all);
    both(&["-d", "2026-11-23T05:40:12Z"], &["f"]);
    both(&["-d", "@1234567890"], &["g"]);
    both(&["-a", "-t", "202401020304.05"], &["f"]);
    both(&["-m", "-t", "9901020304"], &["f"]);
    both(&["-am", "-t", "2501020304.59"], &["g"]);
    both(&["-d", "2001-01-01", "-c"], &["missing", "d/f"]);
    both(&["-d", "1 Jan 2030 10:00 +0500"], &["new"]);
    both(
        &["-r", twins.served.dir.join("f").to_str().unwrap()],
        &["g"],
    );
    both(&["-h", "-d", "2011-11-11"], &["link", "f"]);
    let reference = twins.served.url("f");
    ours(&["touch", "-r", &reference, &twins.served.url("g")]);
    theirs(&twins.theirs, &["touch", "-r", "f", "g"]);
    assert_eq!(shown(&twins.served.dir), shown(&twins.theirs));

    let link = twins.served.dir.join("link");
    let modified = link.symlink_metadata().unwrap().mtime();
    assert_eq!(
        modified,
        twins
            .theirs
            .join("link")
            .symlink_metadata()
            .unwrap()
            .mtime()
    );
    // The clock of the server is that of this machine here.
    let before = SystemTime::now();
    ours(&["touch", &twins.served.url("g"), &twins.served.url("made")]);
    for name in ["g", "made"] {
        let about = fs::metadata(twins.served.dir.join(name)).unwrap();
        let tick = Duration::from_millis(20);
        assert!(about.modified().unwrap() + tick >= before, "{name}");
    }
    let made = fs::metadata(twins.served.dir.join("made")).unwrap();
    theirs(&twins.theirs, &["touch", "made"]);
    assert_eq!(
        made.mode(),
        fs::metadata(twins.theirs.join("made")).unwrap().mode()
    );
    let url = twins.served.url("f");
    fails(&["touch", "-d", "someday", &url], 2, "is not a date");
    fails(
        &["touch", "-d", "1960-01-01", &url],
        2,
        "from 1970-01-01 to 2106-02-07",
    );
    fails(&["touch", "-t", "1", &url], 2, "[[CC]YY]MMDDhhmm");
    fails(
        &["touch", "-h", &twins.served.url("none")],
        1,
        "no such file",
    );
}

#[test]
fn du_sums_up_as_coreutils_do() {
    let served = Served::new(&[]);
    some_tree(&served.dir);
    fs::write(served.dir.join("d/large"), vec![1; 3_000_000]).unwrap();
    fs::File::create(served.dir.join("d/e/hole"))
        .unwrap()
        .set_len(1 << 30)
        .unwrap();
    fs::hard_link(served.dir.join("d/large"), served.dir.join("d/e/again")).unwrap();
    // Files are all on the disk, so that nothing is allocated later.
    theirs(&served.dir, &["sync", "-f", "."]);
    let lines = |text: &str| -> BTreeSet<String> { text.lines().map(str::to_owned).collect() };
    for options in [
        &[][..],
        &["-s"],
        &["-h"],
        &["-sh"],
        &["-a"],
        &["-ah"],
        &["-d", "0"],
        &["-d1"],
        &["-a", "-d", "1"],
        &["-c"],
        &["-l"],
        &["-k"],
        &["--si"],
        &["-x"],
        &["-ac"],
    ] {
        // Which name of a file comes first, and so is counted, is up to the order of the directory: ask
        // for each alone.
        for name in ["d/e", "empty", "d/large", "link"] {
            let shown = ours(&[&["du"], options, &[&served.url(name)]].concat());
            let shown = shown.replace(&served.url(""), "");
            let expected = theirs(&served.dir, &[&["du"], options, &[name]].concat());
            assert_eq!(lines(&shown), lines(&expected), "{options:?} {name}");
        }
    }
    for options in ["-s", "-sl", "-sc"] {
        let shown = ours(&["du", options, &served.url("d")]).replace(&served.url(""), "");
        assert_eq!(
            shown,
            theirs(&served.dir, &["du", options, "d"]),
            "{options}"
        );
    }
    let bytes = ours(&["du", "-b", &served.url("d/e/hole")]);
    assert_eq!(bytes, format!("1073741824\t{}\n", served.url("d/e/hole")));
    let line = ours(&["du", "-s", "--json", &served.url("d")]);
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    // Two small files, the text of a link, a hole and a large file.
    assert_eq!(line["apparent"], (1 << 30) + 3_000_000 + 3 + 5 + 4);
    assert_eq!(line["entries"], 7);
    let output = ours_with(&["du", "-s", &served.url("missing"), &served.url("d")], &[]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout).lines().count(), 1);
}

#[test]
fn copies_on_a_server_are_as_those_of_coreutils() {
    let twins = Twins::new(|dir| {
        some_tree(dir);
        fs::write(dir.join("large"), data((3 << 20) + 17)).unwrap();
        fs::write(dir.join("d/none"), "").unwrap();
        mknodat(
            CWD,
            dir.join("d/pipe"),
            FileType::Fifo,
            Mode::from_raw_mode(0o644),
            0,
        )
        .unwrap();
        fs::create_dir(dir.join("d/closed")).unwrap();
        fs::set_permissions(dir.join("d/closed"), Permissions::from_mode(0o500)).unwrap();
    });
    let content = |dir: &Path| -> BTreeSet<String> {
        let sums = theirs(
            dir,
            &["find", ".", "-type", "f", "-exec", "cksum", "{}", "+"],
        );
        sums.lines().map(str::to_owned).collect()
    };
    for command in [
        "cp ./f ./copy",
        "cp ./large ./large-copy",
        "cp ./link ./followed",
        "cp ./f ./g ./empty",
        "cp ./d ./no",
        "cp -r ./d ./new",
        "cp -r ./d ./empty",
        "cp -r ./link ./copied-link",
        "cp ./missing ./g ./empty",
        "cp ./f ./f",
        "cp ./f ./missing/",
        "cp ./f ./d/closed/../up2",
        "cp -T ./f ./d",
        "cp -a ./d ./archive",
    ] {
        twins.run(command);
        let (ours, theirs) = (content(&twins.served.dir), content(&twins.theirs));
        assert_eq!(ours, theirs, "{command}");
    }
    let url = |name: &str| twins.served.url(name);
    fails(
        &["cp", "-r", &url("d"), &url("d/e/inside")],
        1,
        "cannot be copied into itself",
    );
    fails(
        &["cp", "-r", &url(""), &url("d/e")],
        1,
        "cannot be copied into itself",
    );
    let shown = ours(&["cp", "-v", &url("f"), &url("again")]);
    assert_eq!(shown, format!("{} copied to {}\n", url("f"), url("again")));
}

#[test]
fn copies_keep_times_and_modes_and_holes() {
    let served = Served::new(&[]);
    some_tree(&served.dir);
    let hole = fs::File::create(served.dir.join("d/hole")).unwrap();
    hole.write_all_at(b"begin", 0).unwrap();
    hole.write_all_at(b"middle", (1 << 20) + 1).unwrap();
    hole.set_len(100 << 20).unwrap();
    let long_ago = UNIX_EPOCH + Duration::new(1_000_000_000, 123);
    for name in ["d/f", "d/e", "d/hole"] {
        let file = fs::File::open(served.dir.join(name)).unwrap();
        file.set_times(
            FileTimes::new()
                .set_modified(long_ago)
                .set_accessed(long_ago),
        )
        .unwrap();
    }
    fs::set_permissions(served.dir.join("d/f"), Permissions::from_mode(0o4751)).unwrap();
    ours(&["cp", "-rp", &served.url("d"), &served.url("copy")]);
    let about = |name: &str| fs::metadata(served.dir.join(name)).unwrap();
    for name in ["f", "e", "hole"] {
        let (from, to) = (about(&format!("d/{name}")), about(&format!("copy/{name}")));
        assert_eq!(from.modified().unwrap(), to.modified().unwrap(), "{name}");
        assert_eq!(from.mode(), to.mode(), "{name}");
        assert_eq!((from.uid(), from.gid()), (to.uid(), to.gid()), "{name}");
    }
    assert_eq!(about("copy/hole").len(), 100 << 20);
    assert!(about("copy/hole").blocks() * 512 < 1 << 20);
    let whole = |name: &str| fs::read(served.dir.join(name)).unwrap();
    assert!(whole("copy/hole") == whole("d/hole"));
    let (hole, full) = (served.url("d/hole"), served.url("full"));
    ours(&["cp", "--sparse=never", &hole, &full]);
    assert!(about("full").blocks() * 512 >= 100 << 20);
    ours(&["cp", "--sparse=always", &full, &served.url("again")]);
    assert!(about("again").blocks() * 512 < 1 << 20);
    assert!(whole("full") == whole("d/hole") && whole("again") == whole("d/hole"));
    // What runs with the rights of its owner is not made so by copying.
    ours(&["cp", &served.url("d/f"), &served.url("plain")]);
    assert_eq!(about("plain").mode() & 0o7000, 0);
}

#[test]
fn copied_links_and_pipes_replace_files_and_no_directories() {
    let served = Served::new(&[]);
    let path = |name: &str| served.dir.join(name);
    symlink("nowhere", path("link")).unwrap();
    let mode = Mode::from_raw_mode(0o644);
    mknodat(CWD, path("pipe"), FileType::Fifo, mode, 0).unwrap();
    fs::create_dir(path("dir")).unwrap();
    fs::write(path("there"), "").unwrap();
    let (there, dir) = (served.url("there"), served.url("dir"));
    for name in ["link", "pipe"] {
        let url = served.url(name);
        ours(&["cp", "-aT", &url, &there]);
        let about = |name: &str| fs::symlink_metadata(path(name)).unwrap();
        let (from, to) = (about(name), about("there"));
        assert_eq!(from.file_type(), to.file_type());
        assert_eq!(from.modified().unwrap(), to.modified().unwrap(), "{name}");
        fails(&["cp", "-aT", &url, &dir], 1, "cannot make ");
    }
    // It would be a link to itself.
    fs::write(path("file"), "data").unwrap();
    symlink("file", path("to-file")).unwrap();
    let (link, file) = (served.url("to-file"), served.url("file"));
    fails(
        &["cp", "-aT", &link, &file],
        1,
        "a copy of it would replace",
    );
    assert_eq!(fs::read(path("file")).unwrap(), b"data");
    // Nothing else is left.
    assert_eq!(fs::read_dir(&served.dir).unwrap().count(), 6);
    assert!(path("dir").is_dir());
}

#[test]
fn files_are_copied_from_one_export_and_server_to_another() {
    let (from, to) = (Served::new(&[]), Served::new(&[]));
    some_tree(&from.dir);
    ours(&["cp", "-r", &from.url("d"), &to.url("copy")]);
    assert_eq!(tree(&from.dir.join("d")), tree(&to.dir.join("copy")));
}
