//! Output that cannot be written, and files of which that is known when they are closed.

use crate::running::{PROGRAM, Served, text};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn into_full(args: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    let full = File::options().write(true).open("/dev/full").unwrap();
    command.args(args).stdin(Stdio::null()).stdout(full);
    command.output().unwrap()
}

#[test]
fn output_that_is_full_is_said_once_and_is_status_1() {
    let served = Served::new(&[]);
    for name in ["a", "b"] {
        fs::write(served.dir.join(name), name).unwrap();
    }
    let (file, root) = (served.url("a"), served.url(""));
    for args in [
        &["ls", &root][..],
        &["ls", "-l", &root, &root],
        &["ls", "--json", &root],
        &["du", &root],
        &["df", &root],
        &["stat", &file],
        &["cat", &file],
        &["cat", &file, &file],
        &["get", &file, "-"],
        &["chmod", "-v", "600", &file, &served.url("b")],
        &["completions", "bash"],
        &["--version"],
        &["--help"],
        &["help", "ls"],
    ] {
        let output = into_full(args);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {errors}");
        let said = "cannot write the output: No space left on device";
        assert_eq!(errors.matches(said).count(), 1, "{args:?}: {errors}");
        assert_eq!(errors.lines().count(), 1, "{args:?}: {errors}");
    }
}

/// Runs the program with standard streams redirected by a shell.
fn redirected(redirects: &str, args: &[&str]) -> Output {
    let script = format!("exec \"$0\" \"$@\" {redirects}");
    let mut command = Command::new("sh");
    command.args(["-c", &script, PROGRAM]).args(args);
    command.stdin(Stdio::null()).output().unwrap()
}

#[test]
fn closed_input_of_put_is_an_error_and_replaces_nothing() {
    let served = Served::new(&[]);
    let (file, url) = (served.dir.join("file"), served.url("file"));
    fs::write(&file, "content").unwrap();
    for source in ["-", "/dev/stdin"] {
        let output = redirected("<&-", &["put", source, &url]);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{source}: {errors}");
        let said = "cannot read standard input: Bad file descriptor";
        assert!(errors.contains(said), "{source}: {errors}");
        assert_eq!(fs::read(&file).unwrap(), b"content");
        assert_eq!(served.dir.read_dir().unwrap().count(), 1);
    }
    // An empty input is one.
    let output = redirected("</dev/null", &["put", "-", &url]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(fs::read(&file).unwrap(), b"");
}

#[test]
fn closed_output_is_said_once_and_is_status_1_if_anything_is_written() {
    let served = Served::new(&[]);
    fs::write(served.dir.join("file"), "content").unwrap();
    let (file, root) = (served.url("file"), served.url(""));
    for args in [
        &["cat", &file][..],
        &["get", &file, "-"],
        &["ls", &root],
        &["stat", &file],
        &["df", &root],
        &["chmod", "-v", "600", &file],
        &["completions", "bash"],
        &["--version"],
        &["help", "ls"],
    ] {
        let output = redirected(">&-", args);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {errors}");
        let said = "cannot write the output: Bad file descriptor";
        assert_eq!(errors.matches(said).count(), 1, "{args:?}: {errors}");
        assert_eq!(errors.lines().count(), 1, "{args:?}: {errors}");
    }
    fs::write(served.dir.join("empty"), "").unwrap();
    for args in [
        &["mkdir", &served.url("dir")][..],
        &["cat", &served.url("empty")],
    ] {
        let output = redirected(">&-", args);
        assert!(
            output.status.success(),
            "{args:?}: {}",
            text(&output.stderr)
        );
    }
}

/// A library that has close(2) fail for files of this name, as file systems with quotas do.
const FAILING: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int close(int fd)
{
    static int (*next)(int);
    char link[64], path[4096];
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "close");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    int result = next(fd);
    if (len < 0)
        return result;
    path[len] = 0;
    if (len > 6 && !strcmp(path + len - 6, "-quota")) {
        errno = EDQUOT;
        return -1;
    }
    return result;
}
"#;

/// A library of this source. None where there is no C compiler.
pub(crate) fn library(dir: &Path, text: &str) -> Option<std::path::PathBuf> {
    let (source, library) = (dir.join("library.c"), dir.join("library.so"));
    fs::write(&source, text).unwrap();
    let made = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"].map(OsStr::new))
        .args([&library, &source])
        .arg("-ldl")
        .status();
    match made {
        Ok(status) if status.success() => Some(library),
        other => {
            eprintln!("skipped: no library can be made: {other:?}");
            None
        }
    }
}

#[test]
fn file_of_which_close_fails_is_status_1() {
    let served = Served::new(&[]);
    let Some(library) = library(served.around.path(), FAILING) else {
        return;
    };
    let run = |args: &[&str], to: Option<File>| {
        let mut command = Command::new(PROGRAM);
        command.args(args).stdin(Stdio::null());
        command.env("LD_PRELOAD", &library);
        command.stdout(to.map_or_else(Stdio::null, Stdio::from));
        let output = command.output().unwrap();
        (output.status.code(), text(&output.stderr))
    };
    fs::write(served.dir.join("file"), "content").unwrap();
    fs::write(served.dir.join("large"), vec![7; 5 << 20]).unwrap();
    for name in ["file", "large"] {
        let (url, copy) = (served.url(name), served.beside("copy-quota"));
        let (code, errors) = run(&["get", &url, &copy], None);
        assert_eq!(code, Some(1), "{errors}");
        assert!(errors.contains("uota exceeded"), "{errors}");
        let out = served.beside("output-quota");
        for args in [&["cat", &url][..], &["get", &url, "-"]] {
            let (code, errors) = run(args, Some(File::create(&out).unwrap()));
            assert_eq!(code, Some(1), "{args:?}: {errors}");
            let said = "cannot write the output: ";
            assert!(errors.contains(said), "{args:?}: {errors}");
        }
        let (code, errors) = run(&["get", &url, &served.beside("copy")], None);
        assert_eq!(code, Some(0), "{errors}");
    }
}

/// A library that has fchmod(2) fail.
const NO_MODES: &str = r#"
#include <errno.h>
#include <sys/stat.h>

int fchmod(int fd, mode_t mode)
{
    (void)fd, (void)mode;
    errno = EPERM;
    return -1;
}
"#;

#[test]
fn hard_links_are_made_where_attributes_are_refused() {
    let served = Served::new(&[]);
    let Some(library) = library(served.around.path(), NO_MODES) else {
        return;
    };
    let tree = served.dir.join("t");
    fs::create_dir(&tree).unwrap();
    for (name, size) in [("one", 100), ("large", 3 << 20)] {
        fs::write(tree.join(name), vec![7; size]).unwrap();
        let link = tree.join(format!("{name}-too"));
        fs::hard_link(tree.join(name), link).unwrap();
    }
    let here = served.beside("here");
    let mut command = Command::new(PROGRAM);
    command.args(["get", "-rp", &served.url("t"), &here]);
    let output = command.env("LD_PRELOAD", &library).output().unwrap();
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    let said = "its mode could not be kept";
    assert_eq!(errors.matches(said).count(), 3, "{errors}");
    for name in ["one", "one-too", "large", "large-too"] {
        let copy = Path::new(&here).join(name);
        assert_eq!(copy.metadata().unwrap().nlink(), 2, "{name}");
        let same = fs::read(&copy).unwrap() == fs::read(tree.join(name)).unwrap();
        assert!(same, "{name} has another content");
    }
}

/// A library that has utimensat(2) and fsync(2) fail, as some file systems in user space do.
const NEITHER_TIMES_NOR_FSYNC: &str = r#"
#include <errno.h>
#include <sys/stat.h>
#include <time.h>

int futimens(int fd, const struct timespec times[2])
{
    (void)fd, (void)times;
    errno = EINVAL;
    return -1;
}

int utimensat(int dir, const char *path, const struct timespec times[2], int flags)
{
    (void)dir, (void)path, (void)times, (void)flags;
    errno = EINVAL;
    return -1;
}

int fsync(int fd)
{
    (void)fd;
    errno = EINVAL;
    return -1;
}
"#;

#[test]
fn data_is_kept_where_times_and_fsync_are_refused() {
    let served = Served::new(&[]);
    let Some(library) = library(served.around.path(), NEITHER_TIMES_NOR_FSYNC) else {
        return;
    };
    let tree = served.dir.join("t");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("small"), "content").unwrap();
    fs::write(tree.join("large"), vec![7; 3 << 20]).unwrap();
    let run = |args: &[&str]| {
        let mut command = Command::new(PROGRAM);
        let output = command.args(args).env("LD_PRELOAD", &library).output();
        let output = output.unwrap();
        (output.status.code(), text(&output.stderr))
    };
    let same = |here: &str| {
        for name in ["small", "large"] {
            let copy = fs::read(Path::new(here).join(name)).unwrap();
            assert!(copy == fs::read(tree.join(name)).unwrap(), "{here}/{name}");
        }
    };
    let here = served.beside("with-times");
    let (code, errors) = run(&["get", "-a", &served.url("t"), &here]);
    assert_eq!(code, Some(1), "{errors}");
    // The directory and two files.
    let said = "its times could not be kept";
    assert_eq!(errors.matches(said).count(), 3, "{errors}");
    same(&here);
    let here = served.beside("without");
    let (code, errors) = run(&["get", "-r", &served.url("t"), &here]);
    assert_eq!(code, Some(1), "{errors}");
    let said = "its place on the disk could not be kept";
    assert_eq!(errors.matches(said).count(), 2, "{errors}");
    same(&here);
}
