//! Incomplete files of an earlier copy: what is left of one that was killed is removed by the next one into the same
//! directory.
//!
//! Something is taken for left over if it has a name that copies give, is no directory, belongs to the user that
//! this copy makes files as, was neither written to nor changed for [`OLD`], and no copy on this machine has it locked.
//! Its ctime counts too: a file that is about to get its name may have the times of its source.

use super::directory::{LocalDir, LocalName};
use super::entry::{Entry, join};
use super::root::Root;
use super::tree::{Tree, local};
use crate::connection::Connection;
use nfs_client::{Export, Fault};
use nfs_proto::{Attributes, FileHandle, FileType, Name, SetAttributes};
use rustix::fs::{OFlags, Stat};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::os::unix::ffi::OsStrExt;
use std::time::{SystemTime, UNIX_EPOCH};

/// How long something unfinished was not changed that is removed, in seconds.
const OLD: i64 = 24 * 60 * 60;

/// Entries of a directory that are looked at for unfinished files, where only files are put into it.
const MAX_LOOKED_AT: usize = 4096;

/// Removes what is left over in directories into which single files are copied that were named. Of directories that
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

/// Removes of these names in a directory those of what is left over. It is done for what comes later: what fails
/// is left as it is.
pub(crate) async fn remove(tree: &Tree, dir: &Entry, names: &[Vec<u8>]) {
    match (tree, &dir.node) {
        _ if names.is_empty() => {}
        (Tree::Local, _) => {
            let Ok(dir) = LocalDir::open(local(&dir.path)) else {
                return;
            };
            for name in names {
                remove_locally(&dir.name(OsStr::from_bytes(name)), SystemTime::now());
            }
        }
        (Tree::Remote(export, _), Some(node)) => {
            // What fails is left.
            let _ = remove_remotely(export, (node.handle, &dir.path), names).await;
        }
        (Tree::Remote(..), None) => {}
    }
}

/// Attributes that tell age and owner.
struct About {
    is_directory: bool,
    uid: u32,
    /// The second of its last change, of any kind.
    changed: i64,
}

impl From<&Stat> for About {
    fn from(about: &Stat) -> Self {
        Self {
            is_directory: rustix::fs::FileType::from_raw_mode(about.st_mode).is_dir(),
            uid: about.st_uid,
            changed: about.st_mtime.max(about.st_ctime),
        }
    }
}

impl From<&Attributes> for About {
    fn from(about: &Attributes) -> Self {
        Self {
            is_directory: about.file_type == FileType::Directory,
            uid: about.uid,
            changed: about.mtime.seconds.max(about.ctime.seconds).into(),
        }
    }
}

impl About {
    /// Whether it is left over for a user at this second.
    fn is_left_over(&self, user: u32, now: i64) -> bool {
        let age = now.saturating_sub(self.changed);
        !self.is_directory && self.uid == user && age >= OLD
    }
}

fn remove_locally(at: &LocalName, now: SystemTime) {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let user = rustix::process::geteuid().as_raw();
    let Ok(mut about) = at.about() else { return };
    let mut file = None;
    if rustix::fs::FileType::from_raw_mode(about.st_mode).is_file() {
        // It is the one that was opened whose lock and age count.
        let Ok(opened) = at.open(OFlags::RDONLY, 0) else {
            return;
        };
        let Ok(found) = rustix::fs::fstat(&opened) else {
            return;
        };
        about = found;
        file = Some(opened);
    }
    let locked = file.as_ref().map(File::try_lock);
    if About::from(&about).is_left_over(user, now)
        // Where files cannot be locked, its age has to do.
        && !matches!(locked, Some(Err(TryLockError::WouldBlock)))
    {
        let _ = at.remove(false);
    }
}

/// The age is told by the clock of the server, as it sets the times: a file that is made now has them, and also
/// the owner that files of this user get there.
async fn remove_remotely(
    export: &Export<Connection>,
    (dir, path): (FileHandle, &[u8]),
    names: &[Vec<u8>],
) -> Result<(), Fault> {
    let nothing = SetAttributes::default();
    let made = export.upload_in(dir, join(path, b"age"), nothing).await;
    let mut made = made.map_err(|error| error.fault)?;
    let now = export.nfs().get_attributes(made.stream().handle()).await;
    made.abandon().await.map_err(|error| error.fault)?;
    let now = About::from(&now?);
    for name in names {
        match remove_one(export, dir, name, &now).await {
            // Another copy may have removed it, or it is somebody else's.
            Ok(()) | Err(Fault::Status(_)) => {}
            Err(fault) => return Err(fault),
        }
    }
    Ok(())
}

async fn remove_one(
    export: &Export<Connection>,
    dir: FileHandle,
    name: &[u8],
    now: &About,
) -> Result<(), Fault> {
    let name = Name::new(name)?;
    let (handle, attributes) = export.nfs().lookup(dir, name).await?;
    let about = match attributes {
        Some(about) => about,
        None => export.nfs().get_attributes(handle).await?,
    };
    if About::from(&about).is_left_over(now.uid, now.changed) {
        export.nfs().remove(dir, name).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, FileTimes};
    use std::os::unix::fs::symlink;
    use std::path::Path;
    use std::time::Duration;

    const NAME: &str = ".a.rpcrdma-0000000000000001";

    /// Whether what was changed just now is still there this many seconds after it was old enough.
    fn stays(dir: &Path, after: i64) -> bool {
        let at = LocalDir::open(dir).unwrap().name(NAME);
        let age = Duration::from_secs(u64::try_from(OLD + after).unwrap());
        remove_locally(&at, SystemTime::now() + age);
        at.about().is_ok()
    }

    #[test]
    fn what_is_old_is_removed_whatever_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        let special = |is_socket| {
            let at = LocalDir::open(dir.path()).unwrap().name(NAME);
            at.make_special(is_socket, 0o600).unwrap();
        };
        let file = dir.path().join("file");
        fs::write(&file, "content").unwrap();
        let make: [&dyn Fn(); 5] = [
            &|| fs::write(&path, "half").unwrap(),
            &|| special(false),
            &|| special(true),
            &|| symlink(&file, &path).unwrap(),
            &|| symlink("nowhere", &path).unwrap(),
        ];
        for make in make {
            make();
            assert!(stays(dir.path(), -60));
            assert!(!stays(dir.path(), 60));
        }
        assert_eq!(fs::read(&file).unwrap(), b"content");
        fs::create_dir(&path).unwrap();
        assert!(stays(dir.path(), 60), "no copy makes such a directory");
    }

    #[test]
    fn file_that_somebody_has_locked_stays() {
        let dir = tempfile::tempdir().unwrap();
        let writer = File::create(dir.path().join(NAME)).unwrap();
        writer.lock().unwrap();
        assert!(stays(dir.path(), 60));
        drop(writer);
        assert!(!stays(dir.path(), 60));
    }

    #[test]
    fn file_with_the_times_of_its_source_is_as_young_as_its_last_change() {
        let dir = tempfile::tempdir().unwrap();
        let file = File::create(dir.path().join(NAME)).unwrap();
        let times = FileTimes::new().set_modified(UNIX_EPOCH);
        file.set_times(times).unwrap();
        drop(file);
        assert!(stays(dir.path(), -60));
    }
}
