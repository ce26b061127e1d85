//! Files of the packages that are made of the program and the work tree: manual pages, completions, documentation, licenses of
//! libraries.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use flate2::{Compression, GzBuilder};

use super::{licenses, pages};
use programs::command::output;

/// Names of completions, by shell, as their shells look for them.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "rpcrdma"),
    ("zsh", "_rpcrdma"),
    ("fish", "rpcrdma.fish"),
];

/// Makes them below `folder`, which is emptied, and returns where.
///
/// # Errors
///
/// The program fails, or a file cannot be written.
pub(super) fn make(folder: &Path, program: &Path) -> Result<PathBuf> {
    let share = folder.join("share");
    if share.exists() {
        fs::remove_dir_all(&share)?;
    }
    let completions = share.join("completions");
    fs::create_dir_all(&completions)?;
    output(
        Command::new(program)
            .arg("man-pages")
            .arg(share.join("man/man1")),
    )?;
    for (shell, name) in COMPLETIONS {
        let script = output(Command::new(program).args(["completions", shell]))?;
        fs::write(completions.join(name), script)?;
    }
    pages::make(programs::root(), &share).context("documentation")?;
    // Without a time in it, so that it is the same each time.
    let file = File::create(share.join("third-party-licenses.gz"))?;
    let mut packed = GzBuilder::new().write(file, Compression::best());
    packed.write_all(
        licenses::text()
            .context("licenses of libraries")?
            .as_bytes(),
    )?;
    packed.finish()?;
    Ok(share)
}
