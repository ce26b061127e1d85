//! The changes that stay (`load_kept` of `testing/interop/guest/load.sh`): each that was noted must be found
//! while there is no server, and nothing that a later one has undone.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// The last change of a round.
const LAST: usize = 7;

/// Looks for all changes that were noted. The next ones may have been made, and not been noted yet, so that
/// only what no later change undoes is looked for.
///
/// # Errors
///
/// One is not there, or was undone.
pub(super) fn check_kept(notes: &[String], folder: &Path) -> Result<()> {
    let last = notes.iter().rev().find_map(|note| {
        let (round, step) = note.strip_prefix("kept ")?.split_once(' ')?;
        Some((round.parse::<usize>().ok()?, step.trim().parse().ok()?))
    });
    let Some((last, step)) = last else {
        return Ok(());
    };
    for round in 1..=last {
        let made = if round < last { LAST } else { step };
        check_round(folder, round, made).with_context(|| {
            format!("round {round} of {last}, where {made} changes were acknowledged")
        })?;
    }
    Ok(())
}

fn check_round(folder: &Path, round: usize, made: usize) -> Result<()> {
    let name = |kind: &str| folder.join(format!("{kind}-{round}"));
    let about = |kind: &str| -> Result<Metadata> {
        fs::symlink_metadata(name(kind)).with_context(|| name(kind).display().to_string())
    };
    let gone = |kind: &str| !name(kind).is_symlink() && !name(kind).exists();
    if made >= 1 {
        ensure!(about("file")?.is_file(), "the file is none");
    }
    if made >= 2 {
        ensure!(about("dir")?.is_dir(), "the directory is none");
    }
    if made >= 3 {
        let text = fs::read_link(name("soft")).context("the symbolic link")?;
        ensure!(text == Path::new(&format!("file-{round}")), "{text:?}");
    }
    if made >= 4 {
        ensure!(about("file")?.nlink() == 2, "the file has no second name");
    }
    if made >= 5 {
        let moved = fs::symlink_metadata(name("dir").join("moved")).context("what was moved")?;
        ensure!(moved.ino() == about("file")?.ino(), "another file is there");
        ensure!(gone("hard"), "what was moved is back");
    }
    if made >= 6 {
        let mode = about("file")?.mode() & 0o7777;
        ensure!(mode == 0o600, "the mode of the file is {mode:o}");
    }
    if made >= LAST {
        ensure!(gone("gone"), "what was removed is back");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{File, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use tempfile::TempDir;

    use super::*;

    /// A whole round.
    fn round() -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let file = File::create(path("file-1")).unwrap();
        file.set_permissions(Permissions::from_mode(0o600)).unwrap();
        fs::create_dir(path("dir-1")).unwrap();
        symlink("file-1", path("soft-1")).unwrap();
        fs::hard_link(path("file-1"), path("dir-1/moved")).unwrap();
        folder
    }

    /// Undoes one change of a round.
    fn undo(change: usize, folder: &Path) {
        let path = |name: &str| folder.join(name);
        match change {
            1 => fs::remove_file(path("file-1")).unwrap(),
            2 => fs::remove_dir_all(path("dir-1")).unwrap(),
            3 => fs::remove_file(path("soft-1")).unwrap(),
            4 => fs::remove_file(path("dir-1/moved")).unwrap(),
            5 => drop(File::create(path("hard-1")).unwrap()),
            6 => fs::set_permissions(path("file-1"), Permissions::from_mode(0o644)).unwrap(),
            _ => drop(File::create(path("gone-1")).unwrap()),
        }
    }

    #[test]
    fn each_change_that_was_noted_is_missed_and_no_other() {
        assert!(check_kept(&["kept 1 7".into()], round().path()).is_ok());
        for change in 1..=LAST {
            let folder = round();
            undo(change, folder.path());
            let check = |step| check_kept(&[format!("kept 1 {step}")], folder.path());
            assert!(check(change).is_err(), "{change}");
            assert!(change == 1 || check(change - 1).is_ok(), "{change}");
        }
    }

    #[test]
    fn rounds_before_the_last_are_whole() {
        let folder = round();
        let notes = |last: &str| ["kept 1 7".to_owned(), "stable 3".into(), last.into()];
        assert!(check_kept(&notes("kept 2 1"), folder.path()).is_err());
        File::create(folder.path().join("file-2")).unwrap();
        assert!(check_kept(&notes("kept 2 1"), folder.path()).is_ok());
        fs::remove_file(folder.path().join("file-1")).unwrap();
        assert!(check_kept(&notes("kept 2 1"), folder.path()).is_err());
    }
}
