//! `ls` beside that of coreutils, and what only ours can show.

use crate::coreutils::{ours, theirs};
use crate::running::{Served, run, text};
use crate::terminal::shown;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs::{self, File, FileTimes, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// A directory `d` with all that `ls` can show without being root.
fn variety(served: &Served) -> SystemTime {
    let dir = served.dir.join("d");
    fs::create_dir(&dir).unwrap();
    let now = SystemTime::now();
    let day = Duration::from_secs(86_400);
    let times = [
        now - Duration::from_secs(30),
        now - 100 * day,
        now - 200 * day,
        now + 10 * day,
        SystemTime::UNIX_EPOCH + Duration::new(951_782_400, 123_456_789),
    ];
    let names = [
        "a",
        "B.tar",
        "übergröße",
        "文字",
        "_",
        "run",
        "sticky",
        "e f",
    ];
    let sizes = [0, 1023, 1024, 10_239, 1_572_864, 1 << 20, 999_950, 5 << 30];
    for (index, (name, size)) in names.into_iter().zip(sizes).enumerate() {
        let path = dir.join(name);
        let file = File::create(&path).unwrap();
        file.set_len(size).unwrap();
        let modified = times[index % times.len()];
        let accessed = times[(index + 1) % times.len()];
        let modes = [0o644, 0o4755, 0o600, 0o2745, 0o755, 0o1777, 0, 0o7000];
        file.set_permissions(Permissions::from_mode(modes[index]))
            .unwrap();
        let times = FileTimes::new()
            .set_modified(modified)
            .set_accessed(accessed);
        file.set_times(times).unwrap();
    }
    fs::write(dir.join("data"), vec![7; 100_000]).unwrap();
    fs::hard_link(dir.join("data"), dir.join("other name")).unwrap();
    fs::write(dir.join(".hidden"), "h").unwrap();
    for below in ["sub", "sub/deep", "sub/deep/.h", "sub/other", "tmp"] {
        fs::create_dir(dir.join(below)).unwrap();
        fs::write(dir.join(below).join("file"), below).unwrap();
    }
    fs::set_permissions(dir.join("tmp"), Permissions::from_mode(0o1777)).unwrap();
    symlink("data", dir.join("link")).unwrap();
    symlink("sub", dir.join("to-directory")).unwrap();
    symlink("nowhere", dir.join("dangling")).unwrap();
    mknodat(
        CWD,
        dir.join("pipe"),
        FileType::Fifo,
        Mode::from_raw_mode(0o644),
        0,
    )
    .unwrap();
    UnixListener::bind(dir.join("socket")).unwrap();
    now
}

/// Lists with both.
#[track_caller]
fn check(served: &Served, options: &[&str], names: &[&str]) {
    let (shown, expected) = both(served, options, names);
    assert_eq!(shown, expected, "{options:?} {names:?}");
}

/// Output of both; headings differ in that ours are URLs.
fn both(served: &Served, options: &[&str], names: &[&str]) -> (String, String) {
    let urls: Vec<String> = names.iter().map(|name| served.url(name)).collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let shown = ours(&[&["ls"], options, &urls].concat()).replace(&served.url(""), "");
    // Tabs between columns are as wide as the spaces that ours has there.
    let expected = theirs(&served.dir, &[&["ls", "-T0"], options, names].concat());
    (shown, expected)
}

#[test]
fn exports_are_the_directories_of_a_root_that_is_none() {
    let served = Served::configured(
        |around| {
            let export = |name: &str| {
                let dir = around.join(name);
                fs::create_dir_all(&dir).unwrap();
                fs::write(dir.join("file"), name).unwrap();
                format!("[[export]]\npath = {dir:?}\nsquash = \"none\"\n")
            };
            let deep = "name = \"/deep/übrig\"\n".to_owned();
            export("stuff") + &export("books") + &export("other") + &deep
        },
        &[],
    );
    let root = served.url("");
    assert_eq!(ours(&["ls", &root]), "books\ndeep/übrig\nstuff\n");
    let long = ours(&["ls", "-lr", &root]);
    let lines: Vec<&str> = long.lines().collect();
    assert!(
        lines[1].starts_with("drwx") && lines[1].ends_with(" stuff"),
        "{long}"
    );
    let all = ours(&["ls", "-R", &root]).replace(&root, "/");
    assert!(
        all.starts_with("/:\nbooks\n") && all.contains("\n\n/stuff:\nfile\n"),
        "{all}"
    );
    let json = ours(&["ls", "--json", &root]);
    let url: serde_json::Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    assert_eq!(url["url"], served.url("books"));
    assert_eq!(url["type"], "directory");
    // There is nothing to be told of the root itself.
    assert_eq!(run(&["ls", "-d", &root]).status.code(), Some(1));
}

#[test]
fn pattern_that_no_shell_expands_is_told_from_a_name() {
    let served = Served::new(&[]);
    let said = |name: &str| text(&run(&["ls", &served.url(name)]).stderr);
    let hint = "the shell does not expand patterns in URLs";
    assert!(said("*.txt").contains(hint), "{}", said("*.txt"));
    assert!(said("[ab]").contains(hint));
    assert!(!said("none").contains(hint));
    fs::write(served.dir.join("*.txt"), "").unwrap();
    assert_eq!(said("*.txt"), "");
}

#[test]
fn directories_are_listed_as_coreutils_do() {
    let served = Served::new(&[]);
    variety(&served);
    for options in [
        &[][..],
        &["-l"],
        &["-a"],
        &["-la"],
        &["-lA"],
        &["-A"],
        &["-lh"],
        &["-l", "--si"],
        &["-n"],
        &["-ln"],
        &["-t"],
        &["-ltr"],
        &["-S"],
        &["-lS"],
        &["-lSr"],
        &["-r"],
        &["-tS"],
        &["-St"],
        &["-lc"],
        &["-ltc"],
        &["-c"],
        &["-lu"],
        &["-ltu"],
        &["-u"],
        &["-i"],
        &["-li"],
        &["-F"],
        &["-lF"],
        &["-L", "-I", "dangling"],
        &["-1"],
        &["-l1"],
        &["-ld"],
        &["-d"],
        &["-R"],
        &["-lR"],
        &["-AR"],
        &["--full-time"],
        &["-l", "--time-style=full-iso"],
        &["-l", "--time-style=long-iso"],
        &["-l", "--time-style=iso"],
        &["-l", "--time-style=locale"],
        &["-l", "--time-style=+%Y-%m-%dT%H:%M:%S.%N %a %b"],
        &["-C", "-w", "40"],
        &["-C", "-w80"],
        &["-C", "-w0"],
        &["-iC", "-w60"],
        &["-FC", "-w60"],
    ] {
        // Ours has no -I: what dangles is not there for -L.
        if let ["-L", ..] = options {
            let dangling = served.dir.join("d/dangling");
            fs::remove_file(&dangling).unwrap();
            check(&served, &["-lL"], &["d"]);
            check(&served, &["-L"], &["d"]);
            symlink("nowhere", dangling).unwrap();
            continue;
        }
        check(&served, options, &["d"]);
    }
}

#[test]
fn what_is_named_is_listed_as_coreutils_do() {
    let served = Served::new(&[]);
    variety(&served);
    let all = [
        "d/tmp",
        "d/sub",
        "d/link",
        "d/to-directory",
        "d/a",
        "d/dangling",
    ];
    for options in [
        &[][..],
        &["-l"],
        &["-d"],
        &["-ld"],
        &["-lt"],
        &["-S"],
        &["-r"],
        &["-F"],
        &["-lF"],
        &["-R"],
    ] {
        // Theirs has columns as wide as the directories need, which it does not show.
        let (shown, expected) = both(&served, options, &all);
        let words = |line: &str| -> Vec<String> {
            line.split(' ')
                .filter(|word| !word.is_empty())
                .map(str::to_owned)
                .collect()
        };
        let lines = |text: &str| -> Vec<Vec<String>> { text.lines().map(words).collect() };
        assert_eq!(lines(&shown), lines(&expected), "{options:?}");
        check(&served, options, &["d/link"]);
        check(&served, options, &["d/to-directory"]);
    }
    for options in [&["-H"][..], &["-lH"], &["-L"], &["-ldL"], &["-FH"]] {
        check(&served, options, &all[..5]);
    }
}

#[test]
fn order_of_the_server_is_kept_on_demand() {
    let served = Served::new(&[]);
    variety(&served);
    let lines = |text: &str| -> Vec<String> { text.lines().map(str::to_owned).collect() };
    let unsorted = lines(&ours(&["ls", "-U", &served.url("d")]));
    let objects = ours(&["ls", "--json", &served.url("d")]);
    let names = objects.lines().map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        line["path"]
            .as_str()
            .unwrap()
            .strip_prefix("d/")
            .unwrap()
            .to_owned()
    });
    assert_eq!(unsorted, names.collect::<Vec<_>>());
    let mut sorted = unsorted.clone();
    sorted.sort();
    assert_eq!(sorted, lines(&ours(&["ls", &served.url("d")])));
}

#[test]
fn names_have_the_colours_of_ls_colors() {
    let served = Served::new(&[]);
    variety(&served);
    let shown = ours(&["ls", "--color", &served.url("d")]);
    for (name, code) in [
        ("sub", "1;34"),
        ("link", "1;36"),
        ("_", "1;32"),
        ("B.tar", "1;31"),
    ] {
        // A suffix counts for what is no program only.
        let colored = format!("\u{1b}[{code}m{name}\u{1b}[0m\n");
        assert_eq!(
            shown.contains(&colored),
            name != "B.tar",
            "{name}: {shown:?}"
        );
    }
    assert!(!ours(&["ls", "--color=auto", &served.url("d")]).contains('\u{1b}'));
    assert!(!ours(&["ls", "-C", &served.url("d")]).contains('\u{1b}'));
}

/// Lines that a terminal of this width shows.
fn on_a_terminal(width: u16, args: &[&str]) -> Vec<String> {
    let mut lines = shown(width, args);
    lines.retain(|line| !line.is_empty());
    lines
}

#[test]
fn names_are_in_columns_on_a_terminal() {
    let served = Served::new(&[]);
    for name in ["one", "two", "three", "four"] {
        fs::write(served.dir.join(name), "").unwrap();
    }
    let url = served.url("");
    assert_eq!(on_a_terminal(80, &["ls", &url]), ["four  one  three  two"]);
    assert_eq!(
        on_a_terminal(12, &["ls", &url]),
        ["four  three", "one   two"]
    );
    assert_eq!(on_a_terminal(80, &["ls", "-1", &url]).len(), 4);
    let piped = text(&run(&["ls", &url]).stdout);
    assert_eq!(piped, "four\none\nthree\ntwo\n");
}

#[test]
fn what_cannot_be_listed_does_not_hide_the_rest() {
    // Run by root, the server takes callers for nobody; else it acts as the owner.
    let served = Served::new(&["--squash", "all"]);
    let allow = |dir: &Path, mode| fs::set_permissions(dir, Permissions::from_mode(mode)).unwrap();
    allow(served.around.path(), 0o755);
    allow(&served.dir, 0o755);
    for dir in ["closed", "names-only", "open"] {
        fs::create_dir(served.dir.join(dir)).unwrap();
        fs::write(served.dir.join(dir).join("file"), "").unwrap();
        allow(&served.dir.join(dir), 0o755);
    }
    fs::write(served.dir.join("file"), "").unwrap();
    allow(&served.dir.join("closed"), 0);
    allow(&served.dir.join("names-only"), 0o444);

    let named = ["missing", "closed", "open", "file"].map(|name| served.url(name));
    let named: Vec<&str> = [&["ls"][..], &named.each_ref().map(String::as_str)].concat();
    let output = run(&named);
    assert_eq!(output.status.code(), Some(1));
    let shown = text(&output.stdout).replace(&served.url(""), "");
    assert_eq!(shown, "file\n\nopen:\nfile\n");
    let errors = text(&output.stderr);
    let missing = format!(
        "rpcrdma: {}: no such file or directory\n",
        served.url("missing")
    );
    let closed = format!(
        "rpcrdma: {}: cannot list: permission denied (",
        served.url("closed")
    );
    assert!(errors.starts_with(&missing), "{errors}");
    assert!(errors.contains(&closed), "{errors}");
    assert_eq!(errors.lines().count(), 2, "{errors}");

    let output = run(&["ls", "-R", &served.url("")]);
    assert_eq!(output.status.code(), Some(1));
    let shown = text(&output.stdout);
    let open = format!("\n\n{}:\nfile\n", served.url("open"));
    assert!(shown.ends_with(&open), "{shown}");

    let output = run(&["ls", "-l", &served.url("names-only")]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout), "total 0\n?????????? ? ? ? ? ? file\n");
    let denied = format!(
        "rpcrdma: {}: permission denied (",
        served.url("names-only/file")
    );
    assert!(text(&output.stderr).starts_with(&denied));
    allow(&served.dir.join("closed"), 0o755);
    allow(&served.dir.join("names-only"), 0o755);
}

#[test]
fn time_style_that_is_none_is_a_usage_error() {
    let served = Served::new(&[]);
    let style = ["ls", "-l", "--time-style=gregorian", &served.url("")];
    crate::running::fails(&style, 2, "full-iso, long-iso, iso, locale");
}
