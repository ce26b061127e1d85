//! `cargo xtask examples`: runs each example of the library, which checks its own result.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use programs::command::{AS_TESTED, cargo, within};

/// The library.
const PACKAGE: &str = "rpcrdma";

/// Examples that need another server, each with what runs it instead.
const ELSEWHERE: [(&str, &str); 1] = [("callbacks", "cargo xtask interop, with Linux' NFS server")];

/// How long an example may take.
const LIMIT: Duration = Duration::from_secs(120);

/// Builds all examples of the library and runs them one after the other.
///
/// # Errors
///
/// One does not build, fails, or does not end in time; or the library has none.
pub(crate) fn run() -> Result<()> {
    let programs = build()?;
    let scratch = tempfile::tempdir().context("cannot make a temporary directory")?;
    let mut ran = 0;
    for (name, program) in &programs {
        if let Some((_, by)) = ELSEWHERE.iter().find(|(elsewhere, _)| elsewhere == name) {
            eprintln!("{name}: run by {by}");
            continue;
        }
        let done = within(&mut Command::new(program), LIMIT, scratch.path())?;
        eprintln!("{name}: {:.1} s", done.took.as_secs_f64());
        done.stdout.lines().for_each(|line| eprintln!("    {line}"));
        ran += 1;
    }
    if ran == 0 {
        bail!("{PACKAGE} has no example");
    }
    for (name, _) in ELSEWHERE {
        if !programs.iter().any(|(built, _)| built == name) {
            bail!("{name} is no example of {PACKAGE}");
        }
    }
    Ok(())
}

/// Names and programs of the library's examples. They are built with those of the whole work tree, as
/// `cargo test --workspace` builds them.
fn build() -> Result<Vec<(String, PathBuf)>> {
    let built = cargo()
        .arg("build")
        .args(AS_TESTED)
        .arg("--message-format=json-render-diagnostics")
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    if !built.status.success() {
        bail!("the examples do not build");
    }
    let folder = programs::root().join("crates").join(PACKAGE);
    let mut programs: Vec<_> = String::from_utf8_lossy(&built.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|message| {
            let target = &message["target"];
            let is_example = target["kind"][0] == "example";
            let source = PathBuf::from(target["src_path"].as_str()?);
            let program = message["executable"].as_str()?;
            (is_example && source.starts_with(&folder))
                .then(|| Some((target["name"].as_str()?.to_owned(), program.into())))?
        })
        .collect();
    programs.sort();
    Ok(programs)
}
