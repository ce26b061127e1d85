//! Threads on which operations wait.

use super::*;
use crate::fs::{
    Attributes, Changed, DirBudget, DirFrom, DirPage, Error, FileId, Found, Identity, Make, Name,
    Outcome, ReadOut, Seen, Step,
};
use nfs_proto::v4::directory::{CreateArgs, CreateType};
use std::sync::Mutex;
use std::thread::{self, ThreadId};

/// Files whose attributes are on a disk, and whose directories are synced together by a thread that others wait for too.
struct OnDisk {
    inner: MemFs,
    synced_by: Mutex<Vec<ThreadId>>,
    read_by: Arc<Mutex<Vec<ThreadId>>>,
}

impl FileSystem for OnDisk {
    fn root(&self) -> FileId {
        self.inner.root()
    }

    fn attributes(&self, file: FileId) -> Outcome<Result<Attributes, Error>> {
        let found = self.inner.attributes(file).wait();
        let read_by = Arc::clone(&self.read_by);
        Outcome::Slow(Box::new(move || {
            read_by.lock().unwrap().push(thread::current().id());
            found
        }))
    }

    fn lookup(&self, who: &Identity, dir: FileId, step: Step<'_>) -> Outcome<Seen<Found>> {
        self.inner.lookup(who, dir, step)
    }

    fn read(&self, who: &Identity, file: FileId, at: u64, count: u32) -> Outcome<Seen<ReadOut>> {
        self.inner.read(who, file, at, count)
    }

    fn make(
        &self,
        who: &Identity,
        dir: FileId,
        name: Name<'_>,
        what: Make,
    ) -> Outcome<Changed<Found>> {
        let made = self.inner.make(who, dir, name, what).wait();
        let (begin, begun) = std::sync::mpsc::channel::<crate::fs::Then<Changed<Found>>>();
        let sync = thread::spawn(move || {
            if let Ok(then) = begun.recv() {
                then(made);
            }
        });
        self.synced_by.lock().unwrap().push(sync.thread().id());
        Outcome::Deferred(Box::new(move |then| drop(begin.send(then))))
    }

    fn read_directory(
        &self,
        who: &Identity,
        dir: FileId,
        from: DirFrom,
        budget: DirBudget,
        plus: bool,
    ) -> Outcome<Seen<DirPage>> {
        self.inner.read_directory(who, dir, from, budget, plus)
    }
}

#[test]
fn thread_that_syncs_for_many_waits_for_the_disk_of_none() {
    let fs = Arc::new(OnDisk {
        inner: MemFs::new(1 << 20),
        synced_by: Mutex::default(),
        read_by: Arc::default(),
    });
    let site = Site::over(Arc::clone(&fs) as _, None);
    let client = site.client(b"one");
    let make = ArgOp::Create(CreateArgs {
        kind: CreateType::Directory,
        name: name("d"),
        attributes: v4::fattr::Fattr::default(),
    });
    let wanted = [AttributeNumber::Type];
    let made = client.at(&[], vec![make, get(&wanted)]);
    assert_eq!(
        made.attributes(),
        [Attribute::Type(v4::FileType::Directory)]
    );
    let (synced, read) = (fs.synced_by.lock().unwrap(), fs.read_by.lock().unwrap());
    assert_eq!((synced.len(), read.len()), (1, 1));
    assert_ne!(*synced, *read);
}
