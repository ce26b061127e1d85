//! `cargo xtask docs`: the documentation as a book, and the figures in it.
//!
//! The pages link to files beside `docs`, such as README.md and contrib/rpcrdma.toml, which mdBook does not find.
//! So the book is built from a copy: the pages and what they link to, at the same paths from the root as in the
//! work tree. Every relative link means the same there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::figures;
use crate::tidy::{Pages, SUMMARY};
use programs::command::line;
use programs::tool::Tool;

#[derive(Args, Default)]
pub(crate) struct Options {
    /// Write the figures that commands of the program make into their pages, and build no book
    #[arg(long)]
    write: bool,
    /// Compare these figures with the pages, and build no book
    #[arg(long, conflicts_with = "write")]
    figures: bool,
}

/// Builds the book. A debug build of it compiles in half the time, and builds this book in a second.
const MDBOOK: Tool = Tool {
    name: "mdbook",
    version: "0.5.4",
    arguments: &["--debug", "--no-default-features", "--features", "search"],
};

/// Folder in which mdBook looks for the pages, from the root of the work tree.
const COPY: &str = "target/docs/src";

/// Compares the figures of pages with those that the program makes, and builds the book; or writes the figures.
///
/// # Errors
///
/// A figure differs, or those of the book.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.write {
        return figures::write();
    }
    figures::check()?;
    match options.figures {
        true => Ok(()),
        false => book(),
    }
}

/// Builds the book in `target/docs/book`; installs mdBook below `target` if it is missing.
///
/// # Errors
///
/// mdBook cannot be installed, or it reports an error or a warning.
fn book() -> Result<()> {
    let root = programs::root();
    let mdbook = MDBOOK.find(&root.join("target/tools"), |what| eprintln!("docs: {what}"))?;
    copy(root, &Pages::read(root)?, &root.join(COPY))?;
    let mut build = Command::new(mdbook);
    build.arg("build").arg(root.join("docs"));
    let done = build
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {}", line(&build)))?;
    let said = String::from_utf8_lossy(&done.stderr);
    eprint!("{said}");
    if !done.status.success() {
        bail!("mdBook failed ({})", done.status);
    }
    if has_warning(&said) {
        bail!("mdBook reports warnings");
    }
    println!("{}", root.join("target/docs/book/index.html").display());
    Ok(())
}

/// Whether a line of mdBook's log is a warning or an error.
fn has_warning(log: &str) -> bool {
    log.lines().any(|line| {
        let words = line.split_whitespace();
        words
            .take(3)
            .any(|word| matches!(word, "WARN" | "ERROR" | "[WARN]" | "[ERROR]"))
    })
}

/// Copies the pages, and the files they link to, from `root` to `target`.
fn copy(root: &Path, pages: &Pages, target: &Path) -> Result<()> {
    if target.exists() {
        fs::remove_dir_all(target).with_context(|| format!("{}", target.display()))?;
    }
    let chapters = pages.linked_from(Path::new(SUMMARY));
    let linked = chapters.iter().flat_map(|page| pages.linked_from(page));
    let files: BTreeSet<PathBuf> = linked.chain(chapters.iter().cloned()).collect();
    for file in files {
        let from = root.join(&file);
        let to = target.join(&file);
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::copy(&from, &to).with_context(|| format!("{}", from.display()))?;
    }
    let summary = fs::read_to_string(root.join(SUMMARY))?;
    fs::write(target.join("SUMMARY.md"), summary_from_root(&summary))?;
    Ok(())
}

/// The table of contents with paths from the root of the work tree instead of from `docs`.
fn summary_from_root(summary: &str) -> String {
    summary.replace("](", "](docs/").replace("](docs/../", "](")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_has_the_chapters_and_what_they_link_to() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for (file, text) in [
            (SUMMARY, "[Start](../README.md)\n- [A](guide/a.md)\n"),
            ("README.md", "[A](docs/guide/a.md)\n"),
            ("docs/guide/a.md", "[b](../../contrib/b#c)\n"),
            ("contrib/b", "b"),
            ("contrib/c", "c"),
        ] {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let target = root.join(COPY);
        copy(root, &Pages::read(root).unwrap(), &target).unwrap();
        let summary = fs::read_to_string(target.join("SUMMARY.md")).unwrap();
        assert_eq!(summary, "[Start](README.md)\n- [A](docs/guide/a.md)\n");
        for (file, is_there) in [
            ("README.md", true),
            ("docs/guide/a.md", true),
            ("contrib/b", true),
            ("contrib/c", false),
        ] {
            assert_eq!(target.join(file).exists(), is_there, "{file}");
        }
    }

    #[test]
    fn warnings_of_mdbook_are_seen() {
        assert!(has_warning(
            " INFO Book building\n WARN unclosed HTML tag `<x>`\n"
        ));
        assert!(has_warning("2026-01-01 [ERROR] (mdbook): no\n"));
        assert!(!has_warning(" INFO Running the html backend\n"));
    }
}
