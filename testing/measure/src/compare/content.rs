//! The file and the tree that are copied, and whether a copy is the same.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// Bytes of the file: 1 GiB in blocks.
const BLOCKS: u64 = 1024;
const BLOCK: usize = 1 << 20;

/// The tree: so many directories, with so many files in each.
const FOLDERS: usize = 100;
const FILES: usize = 100;
const FILE: usize = 4 << 10;

/// Makes a file of 1 GiB in which no block is like another.
pub(super) fn make_file(path: &Path) -> Result<()> {
    let mut file = File::create(path)?;
    let mut block = noise(BLOCK);
    for number in 0..BLOCKS {
        block[..8].copy_from_slice(&number.to_be_bytes());
        file.write_all(&block)?;
    }
    Ok(())
}

/// Makes a tree of 10,000 files of 4 KiB, of which no two are the same.
pub(super) fn make_tree(path: &Path) -> Result<()> {
    let mut content = noise(FILE);
    for folder in 0..FOLDERS {
        let path = path.join(format!("folder-{folder:02}"));
        fs::create_dir_all(&path)?;
        for file in 0..FILES {
            content[..8].copy_from_slice(&(folder * FILES + file).to_be_bytes());
            fs::write(path.join(format!("file-{file:02}")), &content)?;
        }
    }
    Ok(())
}

/// Bytes that no compression or repetition makes easy, the same in every run.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let words = std::iter::repeat_with(move || {
        // Xorshift.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.flatten().take(bytes).collect()
}

/// Compares a copy, of a file or a directory with all that is in it, with its original.
///
/// # Errors
///
/// They differ, or cannot be read.
pub(super) fn compare(original: &Path, copy: &Path) -> Result<()> {
    let what = fs::metadata(copy).with_context(|| format!("no copy {}", copy.display()))?;
    if original.is_file() {
        ensure!(what.is_file(), "{} is no file", copy.display());
        return compare_files(original, copy);
    }
    let mut names = 0;
    for entry in fs::read_dir(original)? {
        let name = entry?.file_name();
        compare(&original.join(&name), &copy.join(&name))?;
        names += 1;
    }
    let copied = fs::read_dir(copy)?.count();
    ensure!(
        copied == names,
        "{} has {copied} names, not {names}",
        copy.display()
    );
    Ok(())
}

fn compare_files(original: &Path, copy: &Path) -> Result<()> {
    let (mut first, mut second) = (File::open(original)?, File::open(copy)?);
    let (mut expected, mut seen) = (Vec::new(), Vec::new());
    loop {
        take(&mut first, &mut expected)?;
        take(&mut second, &mut seen)?;
        ensure!(
            expected == seen,
            "{} is not like {}",
            copy.display(),
            original.display()
        );
        if expected.is_empty() {
            return Ok(());
        }
    }
}

/// Replaces `block` by the next block of the file; the last one is shorter.
fn take(file: &mut File, block: &mut Vec<u8>) -> Result<()> {
    block.clear();
    let limit = u64::try_from(BLOCK)?;
    file.take(limit).read_to_end(block)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_that_differs_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let (original, copy) = (folder.path().join("original"), folder.path().join("copy"));
        for tree in [&original, &copy] {
            fs::create_dir_all(tree.join("sub")).unwrap();
            fs::write(tree.join("sub/file"), noise(BLOCK + 1)).unwrap();
        }
        compare(&original, &copy).unwrap();

        let mut flipped = noise(BLOCK + 1);
        flipped[BLOCK] ^= 1;
        let shorter = noise(BLOCK);
        let longer = noise(BLOCK + 2);
        for other in [flipped, shorter, longer] {
            fs::write(copy.join("sub/file"), other).unwrap();
            assert!(compare(&original, &copy).is_err());
        }
        fs::write(copy.join("sub/file"), noise(BLOCK + 1)).unwrap();
        fs::write(copy.join("more"), "").unwrap();
        assert!(compare(&original, &copy).is_err());
        fs::remove_file(copy.join("more")).unwrap();
        compare(&original, &copy).unwrap();
        fs::remove_file(copy.join("sub/file")).unwrap();
        assert!(compare(&original, &copy).is_err());
    }

    #[test]
    fn tree_has_ten_thousand_files_of_4_kib() {
        let folder = tempfile::tempdir().unwrap();
        make_tree(folder.path()).unwrap();
        let mut files = 0;
        for sub in fs::read_dir(folder.path()).unwrap() {
            for file in fs::read_dir(sub.unwrap().path()).unwrap() {
                assert_eq!(file.unwrap().metadata().unwrap().len(), 4096);
                files += 1;
            }
        }
        assert_eq!(files, 10_000);
    }
}
