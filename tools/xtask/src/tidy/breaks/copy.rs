//! A copy of the work tree below `target`, in which the rules are broken.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::patch::{Patch, apply};

/// Folder of the copy and of what is built from it.
const FOLDER: &str = "target/breaks";

/// The copy. It stays between runs, and what is built from it: only what changed is compiled again.
pub(super) struct TreeCopy<'a> {
    root: &'a Path,
    pub(super) tree: PathBuf,
    pub(super) build: PathBuf,
}

/// A patch in the copy, until this is dropped.
pub(super) struct Broken<'a> {
    copy: &'a TreeCopy<'a>,
    changed: &'a [String],
}

impl<'a> TreeCopy<'a> {
    /// Makes the copy the same as the work tree, with files that are not committed. A patch that an interrupted run
    /// left in it goes away.
    pub(super) fn of(root: &'a Path) -> Result<Self> {
        let folder = root.join(FOLDER);
        let copy = Self {
            root,
            tree: folder.join("tree"),
            build: folder.join("build"),
        };
        let files = files(root)?;
        for file in &files {
            copy.restore(file)?;
        }
        remove_others(&copy.tree, &copy.tree, &files)?;
        Ok(copy)
    }

    /// Copies a file if it is not the same: the time of one that is stays, so that nothing is built again.
    fn restore(&self, file: &Path) -> Result<()> {
        let (from, to) = (self.root.join(file), self.tree.join(file));
        let wanted = fs::read(&from).with_context(|| format!("{}", from.display()))?;
        if fs::read(&to).is_ok_and(|found| found == wanted) {
            return Ok(());
        }
        let folder = to.parent().unwrap_or(&self.tree);
        fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
        fs::copy(&from, &to).with_context(|| format!("{}", to.display()))?;
        // The times of the work tree are not copied: this is newer than what was built before.
        Ok(())
    }

    /// Applies a patch.
    pub(super) fn broken_by(&'a self, patch: &'a Patch) -> Result<Broken<'a>> {
        let broken = Broken {
            copy: self,
            changed: &patch.changed,
        };
        apply(&self.tree, &self.root.join(&patch.file), &[])?;
        Ok(broken)
    }
}

impl Drop for Broken<'_> {
    fn drop(&mut self) {
        for file in self.changed {
            // If it fails, the next run begins with a copy of the whole tree.
            let _ = self.copy.restore(Path::new(file));
        }
    }
}

/// The files of the work tree that are not ignored: committed, changed and new ones.
fn files(root: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut git = Command::new("git");
    git.args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]);
    let done = git.current_dir(root).output().context("cannot run git")?;
    if !done.status.success() {
        bail!("git ls-files failed ({})", done.status);
    }
    let names = done.stdout.split(|&byte| byte == 0);
    let files = names.map(|name| PathBuf::from(std::ffi::OsStr::from_bytes(name)));
    Ok(files.filter(|file| root.join(file).is_file()).collect())
}

/// Removes files below `folder` of the copy that the work tree does not have.
fn remove_others(tree: &Path, folder: &Path, files: &BTreeSet<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("{}", folder.display()))? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            remove_others(tree, &path, files)?;
        } else if !files.contains(path.strip_prefix(tree).unwrap_or(&path)) {
            fs::remove_file(&path).with_context(|| format!("{}", path.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_has_what_the_tree_has_and_files_that_stay_keep_their_times() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let git = |arguments: &[&str]| {
            let done = Command::new("git")
                .args(arguments)
                .current_dir(root)
                .output()
                .unwrap();
            assert!(done.status.success(), "{done:?}");
        };
        git(&["init", "--quiet"]);
        fs::write(root.join(".gitignore"), "/target\n").unwrap();
        fs::write(root.join("a"), "one").unwrap();
        fs::write(root.join("b"), "two").unwrap();
        let copy = TreeCopy::of(root).unwrap();
        let read = |file: &str| fs::read_to_string(copy.tree.join(file)).ok();
        let time = |file: &str| {
            fs::metadata(copy.tree.join(file))
                .unwrap()
                .modified()
                .unwrap()
        };
        let before = time("a");
        fs::write(copy.tree.join("b"), "broken").unwrap();
        fs::write(copy.tree.join("left"), "behind").unwrap();
        TreeCopy::of(root).unwrap();
        assert_eq!(read("b").as_deref(), Some("two"));
        assert_eq!(read("left"), None);
        assert_eq!(time("a"), before);
    }
}
