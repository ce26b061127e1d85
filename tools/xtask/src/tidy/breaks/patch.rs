//! A patch that breaks one rule.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::tidy::compliance::Row;

/// Beginning of a line that excuses a test of the row: the patch breaks another aspect of the rule.
const SPARES: &str = "Spares ";

/// A patch, with its row.
#[derive(Debug)]
pub(super) struct Patch {
    /// Path from the root.
    pub(super) file: PathBuf,
    pub(super) row: Row,
    /// How it breaks the rule.
    pub(super) sentence: String,
    /// Tests of the row that need not fail.
    pub(super) spared: Vec<String>,
    /// Files that it changes.
    pub(super) changed: Vec<String>,
}

impl Patch {
    /// Name of the file without its extension: the id of the row, and a word if the row has several patches.
    pub(super) fn name(&self) -> String {
        let stem = self.file.file_stem().unwrap_or_default();
        stem.to_string_lossy().into_owned()
    }

    /// Parses a patch of this row.
    pub(super) fn parse(file: &Path, row: &Row, text: &str) -> Result<Self> {
        let head: Vec<&str> = text.lines().take_while(|l| !l.starts_with("---")).collect();
        let sentence = *head.first().context("an empty patch")?;
        if !sentence.ends_with('.') {
            bail!("the first line is no sentence that says how the rule is broken");
        }
        let mut spared = Vec::new();
        for line in head.iter().filter_map(|line| line.strip_prefix(SPARES)) {
            let (test, reason) = line.split_once(": ").unwrap_or((line, ""));
            if !row.tests.iter().any(|named| named == test) {
                bail!("{} does not name the test {test}", row.id);
            }
            if reason.is_empty() {
                bail!("no reason why {test} need not fail");
            }
            spared.push(test.to_owned());
        }
        let changed = text.lines().filter_map(|line| line.strip_prefix("+++ b/"));
        let changed: Vec<String> = changed.map(str::to_owned).collect();
        if !changed.iter().any(|file| row.files.contains(file)) {
            bail!("{} names none of the files that this changes", row.id);
        }
        Ok(Self {
            file: file.to_owned(),
            row: row.clone(),
            sentence: sentence.to_owned(),
            spared,
            changed,
        })
    }

    /// Whether this is one of those that `id` selects: a row, a section or a document.
    pub(super) fn is_of(&self, id: &str) -> bool {
        let rest = self.row.id.strip_prefix(id.to_uppercase().as_str());
        rest.is_some_and(|rest| rest.is_empty() || !rest.starts_with(|c: char| c.is_ascii_digit()))
    }
}

/// Applies a patch to the tree in `folder`, which need not be a repository.
pub(super) fn apply(folder: &Path, patch: &Path, options: &[&str]) -> Result<()> {
    let mut git = Command::new("git");
    git.args(["apply", "--whitespace=nowarn"]).args(options);
    git.arg(patch).current_dir(folder);
    // In a folder of a repository it would ignore everything that is not in that.
    git.env("GIT_CEILING_DIRECTORIES", folder.parent().unwrap_or(folder));
    let done = git.output().context("cannot run git")?;
    if !done.status.success() {
        let why = String::from_utf8_lossy(&done.stderr);
        bail!("the patch does not apply: {}", why.trim());
    }
    Ok(())
}
