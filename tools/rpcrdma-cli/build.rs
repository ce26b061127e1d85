//! Tells the program of which commit it is, of which day, and for which machine, for `rpcrdma --version` and manual
//! pages.
//!
//! The commit is that of git where this is a work tree of the project, or what `cargo package` noted in
//! the package; elsewhere there is none, and the version stands alone. Nothing depends on the time of the
//! build, and it is done again only when another commit is checked out.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Digits of a commit that are shown.
const DIGITS: usize = 12;

/// File that `cargo package` writes.
const NOTED: &str = ".cargo_vcs_info.json";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let commit = of_work_tree().or_else(of_package).unwrap_or_default();
    println!("cargo::rustc-env=RPCRDMA_COMMIT={commit}");
    // The date of the manual pages: as the commit, it is the same for each build.
    let date = git(&["show", "--no-patch", "--format=%cs", &commit]);
    let date = date.filter(|_| !commit.is_empty()).unwrap_or_default();
    println!("cargo::rustc-env=RPCRDMA_COMMIT_DATE={date}");
    let target = env::var("TARGET").unwrap_or_default();
    println!("cargo::rustc-env=RPCRDMA_TARGET={target}");
}

/// The commit that is checked out, if this file is a part of it.
fn of_work_tree() -> Option<String> {
    // A package may lie in somebody else's work tree.
    git(&["ls-files", "--error-unmatch", "build.rs"])?;
    let branch = git(&["rev-parse", "--symbolic-full-name", "HEAD"])?;
    for changed in ["HEAD", "logs/HEAD", "packed-refs", &branch] {
        let path = git(&["rev-parse", "--git-path", changed])?;
        // One that is missing would count as changed each time.
        if Path::new(&path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    let commit = git(&["rev-parse", "HEAD"])?;
    Some(commit.get(..DIGITS)?.to_owned())
}

/// The commit that a package was made of.
fn of_package() -> Option<String> {
    let noted = fs::read_to_string(NOTED).ok()?;
    println!("cargo::rerun-if-changed={NOTED}");
    let (_, behind) = noted.split_once("\"sha1\":")?;
    let commit = behind.split('"').nth(1)?.get(..DIGITS)?;
    let is_commit = commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_commit.then(|| commit.to_owned())
}

/// Output of git in one line, if it is there and prints something.
fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let said = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| said.trim().to_owned())
}
