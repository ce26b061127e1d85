//! A tree of small files, and what it is compared by.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::{sha256, write_noise};
use programs::command::output;

/// Its size: each file is too large for inline sizes of 4 and 8 KiB, and not for those of 16 KiB.
const FOLDERS: usize = 32;
const FILES: usize = 20;
const FILE_BYTES: usize = 9001;

/// How many files it has in all folders.
pub(super) const ALL_FILES: usize = FOLDERS * FILES;

/// Bytes in all of them, or a few more.
pub(super) const BYTES: usize = ALL_FILES * FILE_BYTES;

/// Makes it.
pub(super) fn make(tree: &Path) -> Result<()> {
    for folder in 0..FOLDERS {
        let folder = tree.join(format!("folder-{folder}"));
        fs::create_dir_all(&folder)?;
        for file in 0..FILES {
            write_noise(&folder.join(format!("file-{file}")), FILE_BYTES - file)?;
        }
    }
    Ok(())
}

/// Sums that a guest prints of a tree (`kernel-server.sh`), of one that is here.
pub(super) fn sums(tree: &Path) -> Result<String> {
    let list = "find . -type f | LC_ALL=C sort | xargs sha256sum";
    let listing = output(Command::new("sh").args(["-c", list]).current_dir(tree))?;
    let file = tree.with_extension("sums");
    fs::write(&file, &listing)?;
    Ok(format!("{} {}", listing.lines().count(), sha256(&file)?))
}
