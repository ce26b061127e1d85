//! Local files that get their name only when they are complete.
//!
//! What is copied goes to a name of its own beside the final one, and is renamed at the end: a
//! file under the final name is never half of one, and an interrupted copy can simply be made
//! again.

use anyhow::Context;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A path beside `to` for it while it is not complete, which nobody else uses.
pub(crate) fn temporary(to: &Path) -> PathBuf {
    let name = to.file_name().unwrap_or_default();
    let number = RandomState::new().hash_one(0);
    let name = nfs_client::temporary_name(name.as_bytes(), number);
    to.with_file_name(OsStr::from_bytes(&name))
}

/// A local file on its way to completion. Dropped before [`finish`](Self::finish) it is removed.
#[derive(Debug)]
pub(crate) struct Partial {
    file: Arc<File>,
    at: PathBuf,
    /// Where it goes; none once it is there.
    to: Option<PathBuf>,
}

impl Partial {
    /// Begins the file `to`, which may exist and stays as it is for now.
    ///
    /// Of `mode` it gets the permissions that the umask of this process leaves, and never the
    /// right to run as its owner or group: that is the owner's to give.
    ///
    /// # Errors
    ///
    /// If no file can be made beside it.
    pub(crate) fn create(to: &Path, mode: u32) -> anyhow::Result<Self> {
        let at = temporary(to);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode & 0o777)
            .open(&at)
            .with_context(|| format!("cannot create {}", crate::show::path(to)))?;
        Ok(Self {
            file: Arc::new(file),
            at,
            to: Some(to.to_owned()),
        })
    }

    /// The file, to write to it at any offset.
    pub(crate) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Gives the complete file its name, in place of what had that name, once its data is on the
    /// disk: a crash must not leave the name with half a file. It waits for the disk.
    ///
    /// # Errors
    ///
    /// If that is not possible; the file is then removed.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        if let Some(to) = &self.to {
            std::fs::rename(&self.at, to)?;
        }
        self.to = None;
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if self.to.is_some() {
            // It may be gone already: then that is done.
            let _ = std::fs::remove_file(&self.at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileExt, PermissionsExt};

    fn names(dir: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(dir).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    #[test]
    fn complete_file_replaces_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("file");
        std::fs::write(&to, "before").unwrap();
        let partial = Partial::create(&to, 0o4500).unwrap();
        partial.file().write_all_at(b"after", 0).unwrap();
        assert_eq!(std::fs::read(&to).unwrap(), b"before");
        partial.finish().unwrap();
        assert_eq!(std::fs::read(&to).unwrap(), b"after");
        assert_eq!(to.metadata().unwrap().permissions().mode() & 0o7777, 0o500);
        assert_eq!(names(dir.path()), ["file"]);
    }

    #[test]
    fn incomplete_file_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        drop(Partial::create(&dir.path().join("file"), 0o600).unwrap());
        assert!(names(dir.path()).is_empty());
    }
}
