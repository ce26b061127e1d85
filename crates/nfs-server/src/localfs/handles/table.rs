//! Persistent table of the locations of files that cannot be found from their handle alone.
//!
//! A handle contains the inode of the file and of the directory in which it was first seen, its
//! home. That is enough for a file that stayed there. A row is needed for each directory, so that
//! its path from the root is known, and for files that left their home or have several names. Rows
//! are collected and committed in the background. Lookups may read the disk, and hold the lock
//! while a row is removed, so they are not for tasks that must not wait. A crash of the server or
//! the machine loses the rows of the last [`COMMIT_DELAY`], except those that a caller waited for
//! with [`Table::wait`]. If rows cannot be committed, for instance because the disk is full, all
//! operations that need one fail. A lost row of a file that was only looked up is restored by the
//! next lookup; for a client that holds the handle and does not look it up again, the handle is
//! stale.

use crate::fs::Error;
use redb::backends::InMemoryBackend;
use redb::{Builder, Database, ReadableDatabase, ReadableTableMetadata, TableDefinition};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

/// How long rows are collected before they are committed together.
const COMMIT_DELAY: Duration = Duration::from_millis(100);

/// Delay after a failed commit. The store fails permanently after a disk error, so it is reopened
/// for the next commit; rows are kept until then.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Memory for pages of the store, in bytes.
const STORE_CACHE: usize = 4 << 20;

/// Largest number of pending rows. A call that would add another one waits for a commit.
const MAX_PENDING: usize = 20_000;

const DIRECTORIES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("places of directories");
const FILES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("places of files");

/// Largest number of stored names of a file.
pub(in crate::localfs) const MAX_PLACES: usize = 16;

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::localfs) struct Place {
    /// Inode of the directory.
    pub(in crate::localfs) parent: u64,
    pub(in crate::localfs) name: Box<[u8]>,
}

/// Locations of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::localfs) struct Row {
    /// Hash of the birth time, to distinguish files that had the same inode number.
    pub(in crate::localfs) birth: u64,
    /// Inode number of the home directory in the handle.
    pub(in crate::localfs) home: u64,
    /// Known names, at most [`MAX_PLACES`], the most recently seen first.
    pub(in crate::localfs) places: Vec<Place>,
}

impl Place {
    pub(in crate::localfs) fn is(&self, parent: u64, name: &[u8]) -> bool {
        self.parent == parent && *self.name == *name
    }
}

impl Row {
    /// Creates a row without locations.
    pub(in crate::localfs) fn new(birth: u64, home: u64) -> Self {
        Self {
            birth,
            home,
            places: Vec::new(),
        }
    }

    /// Adds a name.
    pub(in crate::localfs) fn add(&mut self, place: Place) {
        self.places.insert(0, place);
        self.places.truncate(MAX_PLACES);
    }

    /// Removes a name.
    pub(in crate::localfs) fn forget(&mut self, parent: u64, name: &[u8]) {
        self.places.retain(|place| !place.is(parent, name));
    }

    fn emit(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64);
        for word in [self.birth, self.home] {
            bytes.extend_from_slice(&word.to_be_bytes());
        }
        for place in &self.places {
            let len = u16::try_from(place.name.len()).expect("a name has at most 255 bytes");
            bytes.extend_from_slice(&place.parent.to_be_bytes());
            bytes.extend_from_slice(&len.to_be_bytes());
            bytes.extend_from_slice(&place.name);
        }
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (birth, rest) = bytes.split_first_chunk()?;
        let (home, mut rest) = rest.split_first_chunk()?;
        let mut places = Vec::new();
        while !rest.is_empty() {
            let (parent, behind) = rest.split_first_chunk()?;
            let (len, behind) = behind.split_first_chunk()?;
            let (name, behind) = behind.split_at_checked(u16::from_be_bytes(*len).into())?;
            places.push(Place {
                parent: u64::from_be_bytes(*parent),
                name: name.into(),
            });
            rest = behind;
        }
        Some(Self {
            birth: u64::from_be_bytes(*birth),
            home: u64::from_be_bytes(*home),
            places,
        })
    }
}

/// Selects the table of a row: directories have their own, and most exports have no rows of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::localfs) enum Of {
    Directory,
    File,
}

/// Opens the store.
type Opener = Box<dyn Fn() -> Result<Database, redb::Error> + Send + Sync>;

/// Rows by inode number.
pub(in crate::localfs) struct Table {
    shared: Arc<Shared>,
    thread: Option<std::thread::JoinHandle<()>>,
}

struct Shared {
    /// The store; `None` after a disk error, until it can be reopened.
    database: RwLock<Option<Database>>,
    open: Opener,
    /// Path of the persistent file, if there is one.
    file: Option<PathBuf>,
    retry: Duration,
    has_files: AtomicBool,
    state: Mutex<State>,
    /// Signalled when rows are pending, or at the end.
    work: Condvar,
    /// Signalled when a commit ends.
    done: Condvar,
}

#[derive(Default)]
struct State {
    pending: Pending,
    /// Rows that are being committed. Lookups treat them as pending.
    committing: Arc<Pending>,
    /// Number of commits begun, and of commits ended, failed ones included.
    begun: u64,
    ended: u64,
    /// Whether a call waits for the pending rows.
    urgent: bool,
    /// Error of the last commit, if it failed.
    failing: Option<Error>,
    ending: bool,
}

type Pending = HashMap<u64, (Of, Option<Row>)>;

impl Table {
    /// Opens the table in this file, which is created if it is missing; without a file, a table in
    /// memory.
    ///
    /// # Errors
    ///
    /// If the file is in use by another server, is not a store, or cannot be created.
    pub(in crate::localfs) fn open(file: Option<&Path>) -> Result<Self, redb::Error> {
        let path = file.map(Path::to_owned);
        let open = move || {
            let mut builder = Builder::new();
            builder.set_cache_size(STORE_CACHE);
            Ok(match &path {
                Some(path) => builder.create(path)?,
                None => builder.create_with_backend(InMemoryBackend::new())?,
            })
        };
        Self::over(Box::new(open), file.map(Path::to_owned), RETRY_DELAY)
    }

    fn over(open: Opener, file: Option<PathBuf>, retry: Duration) -> Result<Self, redb::Error> {
        let database = open()?;
        let write = database.begin_write()?;
        write.open_table(DIRECTORIES)?;
        let has_files = !write.open_table(FILES)?.is_empty()?;
        write.commit()?;
        let shared = Arc::new(Shared {
            database: RwLock::new(Some(database)),
            open,
            file,
            retry,
            has_files: AtomicBool::new(has_files),
            state: Mutex::default(),
            work: Condvar::new(),
            done: Condvar::new(),
        });
        let thread = std::thread::Builder::new()
            .name("nfs-handles".into())
            .spawn({
                let shared = Arc::clone(&shared);
                move || shared.commit_until_the_end()
            })?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Whether there may be rows of files.
    pub(in crate::localfs) fn has_files(&self) -> bool {
        self.shared.has_files.load(Relaxed)
    }

    /// Returns the row of an inode of known type. For most files the answer is known without
    /// reading the store.
    pub(in crate::localfs) fn get_of(&self, ino: u64, of: Of) -> Result<Option<Row>, Error> {
        if of == Of::File && !self.has_files() {
            return Ok(None);
        }
        let row = self.get(ino)?.filter(|(found, _)| *found == of);
        Ok(row.map(|(_, row)| row))
    }

    /// Simulates the result of a commit.
    #[cfg(test)]
    pub(in crate::localfs) fn committed(&self, result: Result<(), Error>) {
        self.shared.lock().failing = result.err();
    }

    #[cfg(test)]
    pub(in crate::localfs) fn hold(&self) -> impl Drop + '_ {
        self.shared.lock()
    }

    /// The row of an inode.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the store cannot be read: that is not to be taken for a file that is gone.
    pub(in crate::localfs) fn get(&self, ino: u64) -> Result<Option<(Of, Row)>, Error> {
        if let Some((of, row)) = self.shared.lock().get(ino) {
            return Ok(row.clone().map(|row| (*of, row)));
        }
        self.shared.read_or_warn(ino)
    }

    /// Changes the row of a file, which is told from others of its inode number by its birth.
    ///
    /// # Errors
    ///
    /// If there are as many rows to be committed as there may be, and they cannot be.
    pub(in crate::localfs) fn update(
        &self,
        ino: u64,
        of: Of,
        birth: u64,
        change: impl FnOnce(Option<Row>) -> Option<Row>,
    ) -> Result<(), Error> {
        let mut state = self.room(ino)?;
        let old = match state.get(ino) {
            Some((of, row)) => row.clone().map(|row| (*of, row)),
            None if of == Of::File && !self.has_files() => None,
            None => self.shared.read_or_warn(ino).unwrap_or(None),
        };
        let old = old.filter(|(found, row)| *found == of && row.birth == birth);
        let old = old.map(|(_, row)| row);
        let new = change(old.clone());
        if new != old {
            if of == Of::File {
                self.shared.has_files.store(true, Relaxed);
            }
            if state.pending.is_empty() {
                self.shared.work.notify_one();
            }
            state.pending.insert(ino, (of, new));
        }
        Ok(())
    }

    /// Removes the row of a file, if it has one. Where that cannot be done, a row is left that leads
    /// nowhere.
    pub(in crate::localfs) fn remove(&self, ino: u64, of: Of, birth: u64) {
        if of == Of::Directory || self.has_files() {
            let _ = self.update(ino, of, birth, |_| None);
        }
    }

    /// Whether rows can be committed, as far as is known.
    ///
    /// # Errors
    ///
    /// Why the last commit failed.
    pub(in crate::localfs) fn check(&self) -> Result<(), Error> {
        self.shared.lock().failing.map_or(Ok(()), Err)
    }

    /// Waits until what was changed so far is on the disk.
    ///
    /// # Errors
    ///
    /// If it could not be brought there. It is tried again later.
    pub(in crate::localfs) fn wait(&self) -> Result<(), Error> {
        if self.shared.file.is_none() {
            return Ok(());
        }
        let mut state = self.shared.lock();
        let goal = if state.pending.is_empty() {
            state.begun
        } else {
            state.urgent = true;
            self.shared.work.notify_one();
            state.begun + 1
        };
        while state.ended < goal && state.failing.is_none() && !state.ending {
            state = self
                .shared
                .done
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        match state.failing {
            Some(error) => Err(error),
            None if state.ended < goal => Err(Error::Io),
            None => Ok(()),
        }
    }

    /// The rows to be committed, when there is room for the one of this inode.
    fn room(&self, ino: u64) -> Result<MutexGuard<'_, State>, Error> {
        let mut state = self.shared.lock();
        while state.held() >= MAX_PENDING && state.get(ino).is_none() {
            if let Some(error) = state.failing {
                return Err(error);
            }
            if state.ending {
                return Err(Error::Io);
            }
            self.shared.work.notify_one();
            state = self
                .shared
                .done
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        Ok(state)
    }
}

impl State {
    /// Rows to be committed. What is being committed may come back, if the last commit failed.
    fn held(&self) -> usize {
        let committing = self.failing.map_or(0, |_| self.committing.len());
        self.pending.len() + committing
    }

    /// Returns the change of the row of an inode that is not in the store yet, if there is one.
    fn get(&self, ino: u64) -> Option<&(Of, Option<Row>)> {
        self.pending.get(&ino).or_else(|| self.committing.get(&ino))
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        self.shared.lock().ending = true;
        self.shared.work.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic there was reported by the panic itself.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_or_warn(&self, ino: u64) -> Result<Option<(Of, Row)>, Error> {
        self.read(ino).map_err(|error| {
            tracing::warn!(%error, "the table of file handles cannot be read");
            Error::Io
        })
    }

    fn read(&self, ino: u64) -> Result<Option<(Of, Row)>, redb::Error> {
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        let database = database.as_ref().ok_or(redb::Error::PreviousIo)?;
        let read = database.begin_read()?;
        if let Some(row) = read.open_table(DIRECTORIES)?.get(ino)? {
            return Ok(Row::parse(row.value()).map(|row| (Of::Directory, row)));
        }
        if self.has_files.load(Relaxed)
            && let Some(row) = read.open_table(FILES)?.get(ino)?
        {
            return Ok(Row::parse(row.value()).map(|row| (Of::File, row)));
        }
        Ok(None)
    }

    fn commit_until_the_end(&self) {
        let mut state = self.lock();
        loop {
            while state.pending.is_empty() && !state.ending {
                state = self
                    .work
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            state = self.collect(state);
            let ending = state.ending;
            let batch = Arc::new(std::mem::take(&mut state.pending));
            state.committing = Arc::clone(&batch);
            state.begun += 1;
            state.urgent = false;
            drop(state);
            // After an error of the disk the store says nothing but that there was one.
            let committed = self.commit(&batch).or_else(|_| {
                self.open_anew()?;
                self.commit(&batch)
            });
            state = self.lock();
            state.committing = Arc::default();
            state.ended = state.begun;
            let before = state.failing;
            state.failing = committed.as_ref().err().map(|error| cause(error, before));
            if let Err(error) = committed {
                self.tell_unsaved(&error, batch.len());
                // What was changed since is newer. In all they are at most two batches.
                for (&ino, change) in &*batch {
                    state.pending.entry(ino).or_insert_with(|| change.clone());
                }
            }
            self.done.notify_all();
            if ending && (state.failing.is_some() || state.pending.is_empty()) {
                return;
            }
        }
    }

    /// Logs that rows could not be committed. Clients are told what the disk of the state says, as that there
    /// is no space, and take it for that of the export.
    fn tell_unsaved(&self, error: &redb::Error, rows: usize) {
        let file = self.file.as_deref().unwrap_or(Path::new("memory"));
        tracing::warn!(
            file = %file.display(),
            %error,
            rows,
            "file handles could not be saved to the state directory: in the export, directories cannot be \
             made, nor files moved"
        );
    }

    /// Waits for more rows to come behind the first. Neither somebody who waits for them nor the end
    /// of the server does.
    fn collect<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let delay = match state.failing {
            Some(_) => self.retry,
            None => COMMIT_DELAY,
        };
        self.work
            .wait_timeout_while(state, delay, |state| {
                let wanted = state.pending.len() >= MAX_PENDING || state.urgent;
                let ready = wanted && state.failing.is_none();
                !ready && !state.ending
            })
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }

    /// Opens the store once more, which does nothing after an error of the disk.
    fn open_anew(&self) -> Result<(), redb::Error> {
        if self.file.is_none() {
            return Err(redb::Error::PreviousIo);
        }
        let mut database = self
            .database
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        // It is locked as long as it is open.
        *database = None;
        *database = Some((self.open)()?);
        Ok(())
    }

    fn commit(&self, batch: &Pending) -> Result<(), redb::Error> {
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        let database = database.as_ref().ok_or(redb::Error::PreviousIo)?;
        let write = database.begin_write()?;
        {
            let mut directories = write.open_table(DIRECTORIES)?;
            let mut files = write.open_table(FILES)?;
            for (&ino, (of, row)) in batch {
                let (table, other) = match of {
                    Of::Directory => (&mut directories, &mut files),
                    Of::File => (&mut files, &mut directories),
                };
                match row {
                    Some(row) => {
                        table.insert(ino, &*row.emit())?;
                        // The inode number may have been that of another kind of file before.
                        other.remove(ino)?;
                    }
                    None => {
                        table.remove(ino)?;
                    }
                }
            }
        }
        write.commit()?;
        Ok(())
    }
}

/// Message for a client about a store that fails, with the cause of an earlier failure.
fn cause(error: &redb::Error, before: Option<Error>) -> Error {
    match error {
        redb::Error::Io(error) => match error.kind() {
            io::ErrorKind::StorageFull => Error::NoSpace,
            io::ErrorKind::QuotaExceeded => Error::Quota,
            _ => Error::Io,
        },
        // What comes of the first error.
        _ => before.unwrap_or(Error::Io),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str) -> Row {
        Row {
            birth: 1,
            home: 2,
            places: vec![Place {
                parent: 3,
                name: name.as_bytes().into(),
            }],
        }
    }

    impl Table {
        fn put(&self, ino: u64, of: Of, row: Row) {
            self.update(ino, of, row.birth, |_| Some(row)).unwrap();
        }
    }

    #[test]
    fn rows_are_read_as_they_were_written() {
        let mut row = row("a");
        for n in 0..20_u8 {
            row.add(Place {
                parent: n.into(),
                name: [n; 255].into(),
            });
        }
        assert_eq!(row.places.len(), MAX_PLACES);
        row.forget(19, &[19; 255]);
        assert_eq!(row.places[0].parent, 18);
        let bytes = row.emit();
        assert_eq!(Row::parse(&bytes), Some(row));
        for len in 0..bytes.len() {
            if let Some(part) = Row::parse(&bytes[..len]) {
                assert!(part.places.len() < MAX_PLACES);
            }
        }
    }

    #[test]
    fn rows_are_there_at_once_and_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("table");
        let table = Table::open(Some(&file)).unwrap();
        table.put(7, Of::Directory, row("a"));
        table.put(8, Of::File, row("b"));
        table.put(9, Of::Directory, row("c"));
        table.remove(9, Of::Directory, 2);
        assert!(table.get(9).unwrap().is_some(), "it is another one");
        table.remove(9, Of::Directory, 1);
        assert_eq!(table.get(7).unwrap(), Some((Of::Directory, row("a"))));
        drop(table);
        let table = Table::open(Some(&file)).unwrap();
        assert_eq!(table.get(7).unwrap(), Some((Of::Directory, row("a"))));
        assert_eq!(table.get(8).unwrap(), Some((Of::File, row("b"))));
        assert_eq!(table.get(9).unwrap(), None);
    }

    #[test]
    fn inode_number_that_is_another_kind_of_file_now_has_one_row() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("table");
        drop({
            let table = Table::open(Some(&file)).unwrap();
            table.put(7, Of::Directory, row("a"));
            table
        });
        drop({
            let table = Table::open(Some(&file)).unwrap();
            table.put(7, Of::File, row("b"));
            table
        });
        let table = Table::open(Some(&file)).unwrap();
        assert_eq!(table.get(7).unwrap(), Some((Of::File, row("b"))));
    }

    #[test]
    fn more_rows_than_are_collected_are_all_kept() {
        let table = Table::open(None).unwrap();
        for ino in 0..MAX_PENDING as u64 + 10 {
            table.put(ino, Of::Directory, row("x"));
        }
        assert!(table.get(0).unwrap().is_some());
        assert!(table.get(MAX_PENDING as u64 + 9).unwrap().is_some());
    }

    #[test]
    fn second_server_on_the_same_table_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("table");
        let _first = Table::open(Some(&file)).unwrap();
        assert!(matches!(
            Table::open(Some(&file)),
            Err(redb::Error::DatabaseAlreadyOpen)
        ));
    }

    /// A disk that is full at times.
    #[derive(Clone, Debug, Default)]
    struct Disk {
        bytes: Arc<Mutex<Vec<u8>>>,
        is_full: Arc<AtomicBool>,
    }

    impl Disk {
        fn use_it(&self) -> Result<MutexGuard<'_, Vec<u8>>, io::Error> {
            if self.is_full.load(Relaxed) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            Ok(self.bytes.lock().unwrap())
        }

        /// A table on it, which is opened anew at once after an error.
        fn table(&self) -> Table {
            let disk = self.clone();
            let open = move || {
                let mut builder = Builder::new();
                let database = builder.set_cache_size(0).create_with_backend(disk.clone());
                Ok(database?)
            };
            let file = Some("/state/handles.redb".into());
            Table::over(Box::new(open), file, Duration::ZERO).unwrap()
        }
    }

    impl redb::StorageBackend for Disk {
        fn len(&self) -> Result<u64, io::Error> {
            Ok(self.use_it()?.len() as u64)
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
            let at = usize::try_from(offset).unwrap();
            out.copy_from_slice(&self.use_it()?[at..at + out.len()]);
            Ok(())
        }

        fn set_len(&self, len: u64) -> Result<(), io::Error> {
            self.use_it()?.resize(usize::try_from(len).unwrap(), 0);
            Ok(())
        }

        fn sync_data(&self) -> Result<(), io::Error> {
            self.use_it().map(drop)
        }

        fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
            let at = usize::try_from(offset).unwrap();
            self.use_it()?[at..at + data.len()].copy_from_slice(data);
            Ok(())
        }
    }

    #[test]
    fn rows_that_cannot_be_saved_are_an_error_and_known_until_they_can() {
        let disk = Disk::default();
        let table = disk.table();
        assert_eq!(table.check(), Ok(()));
        disk.is_full.store(true, Relaxed);
        table.put(7, Of::Directory, row("a"));
        assert_eq!(table.wait(), Err(Error::NoSpace));
        assert_eq!(table.check(), Err(Error::NoSpace));
        assert_eq!(table.get(7).unwrap(), Some((Of::Directory, row("a"))));
        table.put(8, Of::Directory, row("b"));
        assert_eq!(table.wait(), Err(Error::NoSpace));
        assert!(table.get(7).unwrap().is_some() && table.get(8).unwrap().is_some());
        assert_eq!(table.get(9), Err(Error::Io), "nobody knows");

        disk.is_full.store(false, Relaxed);
        while table.check().is_err() {
            std::hint::spin_loop();
        }
        assert_eq!(table.wait(), Ok(()));
        assert_eq!(table.get(9), Ok(None));
        drop(table);
        let table = disk.table();
        assert_eq!(table.get(7).unwrap(), Some((Of::Directory, row("a"))));
        assert_eq!(table.get(8).unwrap(), Some((Of::Directory, row("b"))));
    }

    #[test]
    fn rows_that_cannot_be_saved_are_refused_when_they_are_too_many() {
        let disk = Disk::default();
        let table = disk.table();
        disk.is_full.store(true, Relaxed);
        let put = |ino| table.update(ino, Of::Directory, 1, |_| Some(row("x")));
        let refused = (0..3 * MAX_PENDING as u64).find_map(|ino| Some((ino, put(ino).err()?)));
        let (ino, error) = refused.unwrap();
        assert_eq!(error, Error::NoSpace);
        assert!(ino >= MAX_PENDING as u64);
        // What is known of stays so, and can be changed.
        assert!((0..ino).all(|ino| table.get(ino).unwrap().is_some()));
        assert_eq!(put(0), Ok(()));
    }

    #[test]
    fn rows_that_cannot_be_saved_are_told_of_with_their_file() {
        let table = Disk::default().table();
        let error = redb::Error::Io(io::ErrorKind::StorageFull.into());
        let said = crate::captured_log::captured_log(|| table.shared.tell_unsaved(&error, 3));
        assert!(said.contains("saved to the state directory"), "{said}");
        assert!(said.contains("file=/state/handles.redb"), "{said}");
    }
}
