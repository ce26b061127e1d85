//! Local files that get their name only when they are complete.
//!
//! A file that is copied goes to a name of its own beside the final one, and is renamed at the end: a
//! file under the final name is never half of one, and an interrupted copy can simply be made
//! again.

use crate::attributes::{Kept, Wanted};
use crate::directory::LocalName;
use crate::error::{Context, Result};
use crate::made_names::{Collision, Made};
use crate::replaced_attributes::{Replaced, remove_list};
use crate::resume::RESUME_WINDOW;
use crate::unkept::Unkept;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{File, Permissions, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Arc;

/// How something that is complete gets its name.
#[derive(Clone, Debug)]
pub(crate) struct Naming {
    /// Whether it takes the place of what has the name.
    pub(crate) replaces: bool,
    /// Things that the same copy has made in the directory, whose place it does not take.
    pub(crate) made: Arc<Made>,
    /// Whether the copy has made something there under a name that a file system may take for this one.
    pub(crate) may_collide: bool,
}

impl Naming {
    /// Whether what has the name is of the same copy, by these numbers or by another spelling.
    fn is_of_copy(&self, there: (u64, u64), to: &LocalName) -> bool {
        // Where the directory cannot be listed, the numbers decide.
        self.made.has(there) || (self.may_collide && !to.is_listed().unwrap_or(true))
    }
}

#[cfg(test)]
impl Naming {
    /// That of what is made first in its directory.
    pub(crate) fn first(replaces: bool) -> Self {
        Self {
            replaces,
            made: Arc::new(Made::new()),
            may_collide: false,
        }
    }
}

/// A name beside `to` for it while it is not complete, which nobody else uses.
pub(crate) fn temporary(to: &LocalName) -> LocalName {
    numbered(to, RandomState::new().hash_one(0))
}

/// Gives a file with these numbers of device and inode another name, as [`complete`] does.
///
/// # Errors
///
/// If that is not possible, as on a file system without links, or between two;
/// [`NotFound`](io::ErrorKind::NotFound) if another file has the name by now, and
/// [`AlreadyExists`](io::ErrorKind::AlreadyExists) if something has the new name and is not replaced.
pub(crate) fn link(
    file: &LocalName,
    id: (u64, u64),
    to: &LocalName,
    naming: &Naming,
) -> io::Result<()> {
    let at = temporary(to);
    file.link(&at)?;
    let named = at.id().and_then(|linked| match linked == id {
        true => complete(&at, to, naming),
        false => Err(io::ErrorKind::NotFound.into()),
    });
    // It is left there on failure, and where both were names of one file before: renaming does nothing then.
    let _ = at.remove(false);
    named
}

/// Gives what is complete its name, in place of what has that name if it is to replace that.
///
/// # Errors
///
/// As [`link`] has them; [`Collision`] if what has the name was made by the same copy: the file system takes two names
/// for one.
pub(crate) fn complete(at: &LocalName, to: &LocalName, naming: &Naming) -> io::Result<()> {
    complete_after(at, to, naming, || ())
}

/// The same; `prepare` is done before something is replaced.
fn complete_after(
    at: &LocalName,
    to: &LocalName,
    naming: &Naming,
    prepare: impl FnOnce(),
) -> io::Result<()> {
    // Whoever finds it under its name knows of it.
    let id = at.id()?;
    naming.made.note(id);
    let named = match naming.replaces {
        true => at.rename_new(to),
        false => at.name_new(to),
    };
    match named {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists || is_unknown(&error) => {
            match to.id() {
                // Another name of the same file, which it has already, takes the place of nothing.
                Ok(there) if there != id && naming.is_of_copy(there, to) => {
                    Err(io::Error::other(Collision))
                }
                Ok(_) | Err(_) if naming.replaces => {
                    prepare();
                    at.replace(to)
                }
                Ok(_) | Err(_) => Err(error),
            }
        }
        named => named,
    }
}

/// Whether a file system does not know how to do something.
fn is_unknown(error: &io::Error) -> bool {
    let error = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(error, Some(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP))
}

fn numbered(to: &LocalName, number: u64) -> LocalName {
    let name = nfs_client::temporary_name(to.name().as_bytes(), number);
    to.beside(OsStr::from_bytes(&name))
}

/// Whether something has the name; what has got it from this copy in a directory of its own does not count.
fn is_there(name: &LocalName) -> bool {
    name.may_be_taken() && name.about().is_ok()
}

/// Whether something was not done because the name for it is taken.
fn is_taken<T>(done: &io::Result<T>) -> bool {
    matches!(done, Err(error) if error.kind() == io::ErrorKind::AlreadyExists)
}

/// Permissions without which a file could not be continued, and that are for its owner alone.
const WRITABLE: u32 = 0o600;

/// Whether something was not done because the same copy has made what has the name.
fn is_collision<T>(done: &io::Result<T>) -> bool {
    let error = done.as_ref().err().and_then(io::Error::get_ref);
    error.is_some_and(|error| error.is::<Collision>())
}

/// Whether a file cannot be opened because it is not one of this user.
fn is_of_another(error: &io::Error) -> bool {
    let is_link = error.raw_os_error() == Some(Errno::LOOP.raw_os_error());
    is_link || error.kind() == io::ErrorKind::PermissionDenied
}

/// A local file on its way to completion. Dropped before [`finish`](Self::finish) it is removed, unless it
/// [can be continued](Self::resume).
#[derive(Debug)]
pub(crate) struct Partial {
    file: Arc<File>,
    at: LocalName,
    /// The name that it gets; none once it has it.
    to: Option<LocalName>,
    /// Attributes of the source that it gets at the end.
    kept: Option<Kept>,
    /// Whether it stays where it is when it is cut off.
    stays: bool,
    /// Permissions that it gets when it is complete, if it was made with others and replaces nothing.
    last_mode: Option<u32>,
}

impl Partial {
    /// Begins the file `to`, which may exist and stays as it is for now.
    ///
    /// It is locked while it is written, so that no other copy takes it for one that was left behind.
    ///
    /// # Errors
    ///
    /// If no file can be made beside it.
    pub(crate) fn create(to: &LocalName, wanted: &Wanted) -> Result<Self> {
        let at = temporary(to);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        // What is replaced may be for fewer users than the source.
        let is_private = wanted.kept.is_some() || is_there(to);
        let mode = if is_private { WRITABLE } else { wanted.mode };
        let file = at
            .open(flags, mode)
            .with_context(|| format!("{}: cannot create", crate::show::path(&to.path())))?;
        // Not all file systems have locks; its age protects it there.
        let _ = file.try_lock();
        Ok(Self {
            file: Arc::new(file),
            at,
            to: Some(to.clone()),
            kept: wanted.kept,
            stays: false,
            last_mode: is_private.then_some(wanted.mode),
        })
    }

    /// The same under a name that this number is part of, so that it can be continued when it is cut off: what is
    /// there already, and how much of it is on the disk. None if somebody else has it.
    ///
    /// # Errors
    ///
    /// If no file can be made beside it.
    pub(crate) fn resume(
        to: &LocalName,
        wanted: &Wanted,
        number: u64,
    ) -> Result<Option<(Self, u64)>> {
        let is_private = wanted.kept.is_some() || is_there(to);
        let mode = if is_private { WRITABLE } else { wanted.mode };
        let cannot = || format!("{}: cannot create", crate::show::path(&to.path()));
        let at = numbered(to, number);
        let flags = OFlags::RDWR | OFlags::CREATE;
        let file = match at.open(flags, mode | WRITABLE) {
            // What another user has put there is none of ours.
            Err(error) if is_of_another(&error) => return Ok(None),
            opened => opened.with_context(cannot)?,
        };
        if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
            return Ok(None);
        }
        let about = file.metadata().with_context(cannot)?;
        let is_ours = about.is_file()
            && about.uid() == rustix::process::geteuid().as_raw()
            && about.nlink() == 1;
        // Before it was locked, another process may have completed it.
        if !is_ours || at.id().ok() != Some((about.dev(), about.ino())) {
            return Ok(None);
        }
        let partial = Self {
            file: Arc::new(file),
            at,
            to: Some(to.clone()),
            kept: wanted.kept,
            stays: true,
            last_mode: (about.mode() & 0o777 != wanted.mode).then_some(wanted.mode),
        };
        Ok(Some((partial, about.len().saturating_sub(RESUME_WINDOW))))
    }

    /// Has it removed when it is dropped.
    pub(crate) fn discard(mut self) {
        self.stays = false;
    }

    /// The file, to write to it at any offset.
    pub(crate) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Gives the complete file its name, once its data is on the disk: a crash must not leave the name with half a file.
    /// It waits for the disk.
    ///
    /// # Errors
    ///
    /// If that is not possible, and those of [`complete`]; the file is then removed. [`Unkept`] if the file has its
    /// name, and lacks an attribute. What the file system says when the file is closed comes after all that.
    pub(crate) fn finish(mut self, naming: &Naming) -> io::Result<()> {
        let mut set = self.set_attributes();
        let synced = match self.file.sync_all() {
            // There are file systems that cannot do that: the data is in the file all the same.
            Err(error) if is_unknown(&error) => Err(Unkept::new("place on the disk", error)),
            synced => Ok(synced?),
        };
        if let Some(to) = &self.to {
            let named = complete_after(&self.at, to, naming, || {
                // Somebody else has put it there meanwhile.
                if !to.may_be_taken()
                    && self.kept.is_none()
                    && let Some(replaced) = Replaced::of(to)
                {
                    set = replaced.give_to(&self.file);
                }
            });
            // Nobody goes on with it.
            self.stays &= !is_taken(&named) && !is_collision(&named);
            named?;
        }
        self.to = None;
        // It is locked up to here.
        self.close()?;
        set.and(synced).map_err(io::Error::other)
    }

    /// Sets the attributes of the source, of what is replaced, or those of a new file.
    fn set_attributes(&self) -> Result<(), Unkept> {
        if let Some(kept) = &self.kept {
            remove_list(&self.file);
            return kept.set(&self.file);
        }
        let to = self.to.as_ref().filter(|to| to.may_be_taken());
        if let Some(replaced) = to.and_then(Replaced::of) {
            return replaced.give_to(&self.file);
        }
        let Some(mode) = self.last_mode else {
            return Ok(());
        };
        let set = self.file.set_permissions(Permissions::from_mode(mode));
        set.map_err(|error| Unkept::new("mode", error))
    }

    /// Closes the file: some file systems tell then what was not written (close(2)).
    fn close(self) -> io::Result<()> {
        let file = Arc::clone(&self.file);
        drop(self);
        match Arc::into_inner(file) {
            Some(file) => Ok(nix::unistd::close(file)?),
            // Who still has it has nothing left to write.
            None => Ok(()),
        }
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if self.to.is_some() && !self.stays {
            // It may be gone already: then that is done.
            let _ = self.at.remove(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::LocalDir;
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    fn wanted(mode: u32) -> Wanted {
        Wanted {
            mode,
            owner: None,
            replaced: None,
            kept: None,
        }
    }

    fn name(path: &Path) -> LocalName {
        let dir = LocalDir::open(path.parent().unwrap()).unwrap();
        dir.name(path.file_name().unwrap())
    }

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
        let partial = Partial::create(&name(&to), &wanted(0o500)).unwrap();
        partial.file().write_all_at(b"after", 0).unwrap();
        assert_eq!(std::fs::read(&to).unwrap(), b"before");
        partial.finish(&Naming::first(true)).unwrap();
        assert_eq!(std::fs::read(&to).unwrap(), b"after");
        assert_eq!(names(dir.path()), ["file"]);
    }

    #[test]
    fn file_that_was_cut_off_is_continued_by_its_number_and_by_one_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("file");
        let resume = |number| Partial::resume(&name(&to), &wanted(0o440), number).unwrap();
        let (partial, there) = resume(1).unwrap();
        assert_eq!(there, 0);
        assert!(resume(1).is_none(), "it is locked");
        partial.file().set_len(RESUME_WINDOW + 7).unwrap();
        drop(partial);
        let (other, there) = resume(2).unwrap();
        assert_eq!(there, 0, "it is another version");
        other.discard();
        let (partial, there) = resume(1).unwrap();
        assert_eq!(there, 7);
        partial.file().set_len(3).unwrap();
        partial.finish(&Naming::first(true)).unwrap();
        assert_eq!(to.metadata().unwrap().len(), 3);
        assert_eq!(to.metadata().unwrap().permissions().mode() & 0o7777, 0o440);
        assert_eq!(names(dir.path()), ["file"]);
    }

    #[test]
    fn file_that_may_not_be_ours_is_not_continued() {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("file");
        let at = numbered(&name(&to), 1).path();
        let resume = || Partial::resume(&name(&to), &wanted(0o600), 1).unwrap();
        std::fs::write(dir.path().join("elsewhere"), "").unwrap();
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), &at).unwrap();
        assert!(resume().is_none(), "a symbolic link");
        std::fs::remove_file(&at).unwrap();
        std::fs::hard_link(dir.path().join("elsewhere"), &at).unwrap();
        assert!(resume().is_none(), "it has another name");
        std::fs::remove_file(&at).unwrap();
        assert!(resume().is_some());
    }

    #[test]
    fn link_replaces_what_has_the_name() {
        let dir = tempfile::tempdir().unwrap();
        let (file, to) = (dir.path().join("a"), dir.path().join("b"));
        std::fs::write(&file, "file").unwrap();
        std::fs::write(&to, "other").unwrap();
        let id = name(&file).id().unwrap();
        for _ in 0..2 {
            link(&name(&file), id, &name(&to), &Naming::first(true)).unwrap();
            assert_eq!(to.metadata().unwrap().ino(), file.metadata().unwrap().ino());
            assert_eq!(names(dir.path()).len(), 2);
        }
        let absent = name(&dir.path().join("absent"));
        assert!(link(&absent, id, &name(&to), &Naming::first(true)).is_err());
        let other = link(
            &name(&file),
            (id.0, id.1 + 1),
            &name(&to),
            &Naming::first(true),
        );
        assert_eq!(other.unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(is_taken(&link(
            &name(&file),
            id,
            &name(&to),
            &Naming::first(false)
        )));
        assert_eq!(names(dir.path()).len(), 2);
    }

    #[test]
    fn complete_file_whose_name_was_taken_meanwhile_replaces_nothing_and_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("file");
        let partial = Partial::create(&name(&to), &wanted(0o600)).unwrap();
        std::fs::write(&to, "meanwhile").unwrap();
        assert!(is_taken(&partial.finish(&Naming::first(false))));
        let (partial, _) = Partial::resume(&name(&to), &wanted(0o600), 1)
            .unwrap()
            .unwrap();
        assert!(is_taken(&partial.finish(&Naming::first(false))));
        assert_eq!(std::fs::read(&to).unwrap(), b"meanwhile");
        assert_eq!(names(dir.path()), ["file"]);
    }

    #[test]
    fn what_the_same_copy_has_made_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let to = name(&dir.path().join("Makefile"));
        for replaces in [true, false] {
            let naming = Naming::first(replaces);
            let first = Partial::create(&to, &wanted(0o600)).unwrap();
            first.file().write_all_at(b"first", 0).unwrap();
            first.finish(&naming).unwrap();
            // Where the file system takes both for one name, it is this file that the other one leads to.
            let second = Partial::create(&to, &wanted(0o600)).unwrap();
            assert!(is_collision(&second.finish(&naming)));
            let (second, _) = Partial::resume(&to, &wanted(0o600), 1).unwrap().unwrap();
            assert!(is_collision(&second.finish(&naming)));
            assert_eq!(std::fs::read(to.path()).unwrap(), b"first");
            assert_eq!(names(dir.path()), ["Makefile"]);
            std::fs::remove_file(to.path()).unwrap();
        }
    }

    #[test]
    fn replaced_file_keeps_its_mode_and_nobody_else_reads_the_new_one_before() {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("file");
        std::fs::write(&to, "private").unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o7777;
        std::fs::set_permissions(&to, Permissions::from_mode(0o4660)).unwrap();
        let resumed = || Partial::resume(&name(&to), &wanted(0o644), 1).unwrap();
        for partial in [
            Partial::create(&name(&to), &wanted(0o644)).unwrap(),
            resumed().unwrap().0,
        ] {
            assert_eq!(mode(&partial.at.path()), 0o600);
            partial.finish(&Naming::first(true)).unwrap();
            assert_eq!(mode(&to), 0o660);
        }
        let (partial, _) = resumed().unwrap();
        std::fs::remove_file(&to).unwrap();
        partial.finish(&Naming::first(true)).unwrap();
        assert_eq!(mode(&to), 0o644);
    }

    #[test]
    fn file_of_somebody_else_in_a_new_directory_is_replaced_and_its_mode_kept() {
        let dir = tempfile::tempdir().unwrap();
        let new = name(&dir.path().join("new"));
        new.make_directory(0o700).unwrap();
        let to = new.enter_new().unwrap().name("file");
        let partial = Partial::create(&to, &wanted(0o644)).unwrap();
        std::fs::write(to.path(), "private").unwrap();
        std::fs::set_permissions(to.path(), Permissions::from_mode(0o600)).unwrap();
        partial.file().write_all_at(b"copied", 0).unwrap();
        partial.finish(&Naming::first(true)).unwrap();
        assert_eq!(std::fs::read(to.path()).unwrap(), b"copied");
        let mode = to.path().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
    }

    #[test]
    fn incomplete_file_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        drop(Partial::create(&name(&dir.path().join("file")), &wanted(0o600)).unwrap());
        assert!(names(dir.path()).is_empty());
    }
}
