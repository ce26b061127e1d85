//! Output that cannot be written, and files of which that is known when they are closed.

use crate::running::{PROGRAM, Served, text};
use std::ffi::OsStr;
use std::fs::{self, File};
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

/// None where there is no C compiler.
fn failing_library(dir: &Path) -> Option<std::path::PathBuf> {
    let (source, library) = (dir.join("failing.c"), dir.join("failing.so"));
    fs::write(&source, FAILING).unwrap();
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
    let Some(library) = failing_library(served.around.path()) else {
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
