//! Files that an earlier copy did not finish: what is left of one that was killed is removed by the next one into
//! the same directory.
//!
//! A file is taken for left over if it has a name that copies give, is a regular file, belongs to the user that
//! this copy makes files as, has not been written to for [`OLD`], and no copy on this machine has it locked.

use super::entry::{About, Entry, join};
use super::root::Root;
use super::tree::{Tree, local};
use nfs_client::{Export, Fault};
use nfs_proto::{Attributes, FileHandle, FileType, Name, SetAttributes};
use rpcrdma::Client;
use rustix::fs::OFlags;
use std::collections::HashSet;
use std::fs::{OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::SystemTime;

/// How long an unfinished file was not written to that is removed, in seconds.
const OLD: u64 = 24 * 60 * 60;

/// Entries of a directory that are looked at for unfinished files, where only files are put into it.
const MAX_LOOKED_AT: usize = 4096;

/// Removes what is left over in directories into which files are copied that the user named. Of directories that
/// are copied, the walk finds it.
pub(crate) async fn remove_beside(roots: &[Root], dest: &Tree) {
    let mut seen = HashSet::new();
    for root in roots {
        let base = &root.base;
        if !root.source.about.is_directory() && base.about.is_directory() && seen.insert(&base.path)
        {
            let names = names_in(dest, base).await;
            remove(dest, base, &names).await;
        }
    }
}

/// Names of unfinished files in a directory, among its first entries. That it cannot be listed is no reason
/// not to copy into it.
async fn names_in(tree: &Tree, dir: &Entry) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    let Ok(mut entries) = tree.list_names(dir) else {
        return names;
    };
    for _ in 0..MAX_LOOKED_AT {
        match entries.next_name().await {
            Ok(Some(name)) if nfs_client::is_temporary_name(&name) => names.push(name),
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => break,
        }
    }
    names
}

/// Removes of these files in a directory those that are left over. It is done for what comes later: what fails
/// is left as it is.
pub(crate) async fn remove(tree: &Tree, dir: &Entry, names: &[Vec<u8>]) {
    match (tree, &dir.node) {
        (Tree::Local, _) => {
            for name in names {
                remove_locally(local(&join(&dir.path, name)));
            }
        }
        (Tree::Remote(export, _), Some(node)) if !names.is_empty() => {
            // What fails is left.
            let _ = remove_remotely(export, (node.handle, &dir.path), names).await;
        }
        (Tree::Remote(..), _) => {}
    }
}

fn remove_locally(path: &Path) {
    let nonblocking = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(nonblocking.bits().cast_signed())
        .open(path);
    let Ok(file) = file else { return };
    let Ok(about) = file.metadata() else { return };
    let modified = about.modified().ok();
    let age = modified.and_then(|modified| SystemTime::now().duration_since(modified).ok());
    let about = About::from(&about);
    if about.kind == FileType::Regular
        && about.uid == rustix::process::geteuid().as_raw()
        && age.is_some_and(|age| age.as_secs() >= OLD)
        // Where files cannot be locked, its age has to do.
        && !matches!(file.try_lock(), Err(TryLockError::WouldBlock))
    {
        let _ = std::fs::remove_file(path);
    }
}

/// The age is told by the clock of the server, as it sets the times: a file that is made now has them, and also
/// the owner that files of this user get there.
async fn remove_remotely(
    export: &Export<Client>,
    (dir, path): (FileHandle, &[u8]),
    names: &[Vec<u8>],
) -> Result<(), Fault> {
    let nothing = SetAttributes::default();
    let made = export.upload_in(dir, join(path, b"age"), nothing).await;
    let mut made = made.map_err(|error| error.fault)?;
    let now = export.nfs().get_attributes(made.stream().handle()).await;
    made.abandon().await.map_err(|error| error.fault)?;
    let now = now?;
    for name in names {
        let name = Name::new(name)?;
        let (handle, attributes) = export.nfs().lookup(dir, name).await?;
        let about = match attributes {
            Some(about) => about,
            None => export.nfs().get_attributes(handle).await?,
        };
        if is_left_over(&about, &now) {
            export.nfs().remove(dir, name).await?;
        }
    }
    Ok(())
}

fn is_left_over(about: &Attributes, now: &Attributes) -> bool {
    let age = u64::from(now.mtime.seconds).checked_sub(about.mtime.seconds.into());
    about.file_type == FileType::Regular
        && about.uid == now.uid
        && age.is_some_and(|age| age >= OLD)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, FileTimes};
    use std::time::Duration;

    /// Whether a file of this age, in seconds, is still there.
    fn stays(path: &Path, age: u64) -> bool {
        let file = File::options()
            .append(true)
            .create(true)
            .open(path)
            .unwrap();
        let modified = SystemTime::now() - Duration::from_secs(age);
        file.set_times(FileTimes::new().set_modified(modified))
            .unwrap();
        remove_locally(path);
        path.exists()
    }

    #[test]
    fn old_file_is_removed_unless_somebody_has_it_locked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".a.rpcrdma-0000000000000001");
        assert!(stays(&path, OLD - 60));
        let writer = File::options().append(true).open(&path).unwrap();
        writer.lock().unwrap();
        assert!(stays(&path, OLD + 60));
        drop(writer);
        assert!(!stays(&path, OLD + 60));
    }

    #[test]
    fn link_to_an_old_file_stays() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        assert!(stays(&file, 0));
        let link = dir.path().join(".a.rpcrdma-0000000000000001");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(stays(&link, OLD + 60));
        assert!(file.exists());
    }
}
