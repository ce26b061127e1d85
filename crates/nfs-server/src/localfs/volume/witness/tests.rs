//! Watches of directories of the kernel, and of a model of it.

use super::*;
use crate::fs::{FileKind, Time};
use rustix::fd::AsFd;
use rustix::fs::CWD;
use std::collections::{HashSet, VecDeque};
use std::fs::File;
use std::path::Path;

/// The kernel as the source of events of one directory.
#[derive(Clone, Default)]
pub(in crate::localfs) struct Model(Arc<Mutex<Queue>>);

#[derive(Default)]
struct Queue {
    /// Watches of the directory.
    watches: HashSet<i32>,
    last: i32,
    events: VecDeque<Vec<u8>>,
    /// Why it watches no more.
    refuses: Option<Errno>,
    readings: usize,
    /// Happens while it begins to watch.
    meanwhile: Option<Meanwhile>,
}

type Meanwhile = Box<dyn FnOnce(Result<i32, Errno>) + Send>;

impl Model {
    pub(in crate::localfs) fn witness(&self, in_flight: &Arc<InFlight>) -> Witness {
        let model = self.clone();
        let watches = Watches::new(move || Ok(Arc::new(Opened(model.clone()))));
        let witness = Witness::among(Some(Arc::new(watches)), Arc::clone(in_flight));
        witness.want();
        witness
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells all who watch the directory.
    pub(in crate::localfs) fn tell(&self, events: ReadFlags, name: &[u8]) {
        let watches: Vec<i32> = self.queue().watches.iter().copied().collect();
        for watch in watches {
            self.tell_one(watch, events, name);
        }
    }

    fn tell_one(&self, watch: i32, events: ReadFlags, name: &[u8]) {
        let mut padded = name.to_vec();
        if !name.is_empty() {
            padded.resize((name.len() + 1).next_multiple_of(EVENT), 0);
        }
        let len = u32::try_from(padded.len()).unwrap();
        let words = [watch.cast_unsigned(), events.bits(), 0, len];
        let mut event = words.map(u32::to_ne_bytes).concat();
        event.extend(padded);
        let mut queue = self.queue();
        // As the kernel does.
        if queue.events.back() != Some(&event) {
            queue.events.push_back(event);
        }
    }

    pub(in crate::localfs) fn overflow(&self) {
        self.tell_one(-1, ReadFlags::QUEUE_OVERFLOW, b"");
    }
}

/// An instance of it.
struct Opened(Model);

impl Drop for Opened {
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        queue.watches.clear();
        queue.events.clear();
    }
}

impl Source for Opened {
    fn watch(&self, _: BorrowedFd<'_>) -> Result<i32, Errno> {
        let meanwhile = self.0.queue().meanwhile.take();
        let watch = self.0.watch();
        if let Some(meanwhile) = meanwhile {
            meanwhile(watch);
        }
        watch
    }

    fn unwatch(&self, watch: i32) {
        self.0.queue().watches.remove(&watch);
        self.0.tell_one(watch, ReadFlags::IGNORED, b"");
    }

    fn read(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        self.0.read(buffer)
    }
}

impl Model {
    fn watch(&self) -> Result<i32, Errno> {
        let mut queue = self.queue();
        if let Some(errno) = queue.refuses {
            return Err(errno);
        }
        queue.last += 1;
        let watch = queue.last;
        queue.watches.insert(watch);
        Ok(watch)
    }

    fn read(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        let mut queue = self.queue();
        queue.readings += 1;
        let mut len = 0;
        while let Some(event) = queue.events.front()
            && len + event.len() <= buffer.len()
        {
            buffer[len..len + event.len()].copy_from_slice(event);
            len += event.len();
            queue.events.pop_front();
        }
        match len {
            0 => Err(Errno::AGAIN),
            len => Ok(len),
        }
    }
}

impl Witness {
    /// Ends all watches of the export.
    pub(in crate::localfs) fn end_watches(&self) {
        if let Some(watches) = &self.watches {
            watches.state().end_of_export(self.export);
        }
    }

    /// Number of directories that are watched.
    pub(in crate::localfs) fn len(&self) -> usize {
        (self.watches.as_ref()).map_or(0, |watches| watches.state().by_watch.len())
    }

    /// Begins a change in a directory. Returns its window, and whether it was not watched before.
    fn changes(&self, dir: DirectoryId, fd: BorrowedFd<'_>) -> Option<(Window, bool)> {
        let is_new = self.watch(dir, fd)?;
        Some((self.begin(dir)?, is_new))
    }

    /// Ends the rest of all directories.
    fn end_rest(&self) {
        let mut state = self.watches.as_ref().unwrap().state();
        let all: Vec<u64> = state.directories.keys().collect();
        for id in all {
            state.directories.get(id).unwrap().rests_until = Instant::now();
        }
        state.asked_again = None;
    }
}

fn id(ino: u64) -> DirectoryId {
    DirectoryId {
        device: (8, 1),
        ino,
    }
}

/// Attributes of a directory with this time of change.
fn attributes(seconds: i64) -> Attributes {
    let time = Time { seconds, nanos: 0 };
    Attributes {
        kind: FileKind::Directory,
        mode: 0o755,
        links: 2,
        uid: 0,
        gid: 0,
        size: 0,
        used: 0,
        device: (0, 0),
        fileid: 1,
        atime: time,
        mtime: time,
        ctime: time,
        change: 0,
    }
}

/// Whether a change of one directory is seen as the only one, if something happens with it.
fn is_alone(witness: &Witness, own: &[Kind], happens: impl FnOnce()) -> Option<bool> {
    let (window, _) = witness.changes(id(1), CWD)?;
    happens();
    Some(window.end(own, || true))
}

fn model() -> (Model, Witness) {
    let model = Model::default();
    let witness = model.witness(&Arc::default());
    (model, witness)
}

#[test]
fn change_is_alone_if_its_events_are_the_only_ones() {
    let (model, witness) = model();
    let name = |events, name: &str| model.tell(events, name.as_bytes());
    let made = || name(ReadFlags::CREATE, "a");
    assert_eq!(is_alone(&witness, &[Kind::Made], made), Some(true));
    assert_eq!(is_alone(&witness, &[], || {}), Some(true));
    assert_eq!(is_alone(&witness, &[Kind::Made], || {}), Some(false));
    assert_eq!(is_alone(&witness, &[], made), Some(false));
    let renamed = [Kind::MovedFrom, Kind::MovedTo];
    let rename = || {
        name(ReadFlags::MOVED_FROM, "a");
        name(ReadFlags::MOVED_TO, "b");
    };
    assert_eq!(is_alone(&witness, &renamed, rename), Some(true));
    for other in [
        (ReadFlags::CREATE, "b"),
        (ReadFlags::DELETE | ReadFlags::ISDIR, "b"),
        (ReadFlags::MOVED_FROM, "b"),
        (ReadFlags::MOVED_TO, "b"),
        (ReadFlags::ATTRIB, ""),
        (ReadFlags::MOVE_SELF, ""),
        (ReadFlags::UNMOUNT, ""),
    ] {
        let before = is_alone(&witness, &[Kind::Made], || {
            name(other.0, other.1);
            made();
        });
        let after = is_alone(&witness, &[Kind::Made], || {
            made();
            name(other.0, other.1);
        });
        assert_eq!((before, after), (Some(false), Some(false)), "{other:?}");
    }
    // Attributes of the new file.
    let set = is_alone(&witness, &[Kind::Made], || {
        made();
        name(ReadFlags::ATTRIB, "a");
    });
    assert_eq!(set, Some(true));
}

#[test]
fn events_of_other_directories_change_nothing() {
    let (model, witness) = model();
    let (window, _) = witness.changes(id(1), CWD).unwrap();
    drop(witness.changes(id(2), CWD).unwrap());
    model.tell_one(2, ReadFlags::CREATE, b"other");
    model.tell_one(1, ReadFlags::CREATE, b"own");
    assert!(window.end(&[Kind::Made], || true));
}

#[test]
fn change_that_does_not_stand_is_not_alone() {
    let (model, witness) = model();
    let (window, _) = witness.changes(id(1), CWD).unwrap();
    model.tell(ReadFlags::CREATE, b"own");
    assert!(!window.end(&[Kind::Made], || false));
}

/// The end of a watch may be among them, and another directory get the number.
#[test]
fn lost_events_end_all_watches_and_they_begin_anew() {
    let (model, witness) = model();
    // One that nobody understands.
    let broken = || model.queue().events.push_back(vec![0; EVENT - 1]);
    // More than a look reads.
    let flood = || {
        for n in 0..=MAX_READINGS * EVENTS_BUFFER / (EVENT + 16) {
            model.tell(ReadFlags::CREATE, n.to_string().as_bytes());
        }
    };
    let losses: [&dyn Fn(); 3] = [&|| model.overflow(), &broken, &flood];
    for lose in losses {
        is_alone(&witness, &[], || {});
        model.queue().readings = 0;
        assert_eq!(is_alone(&witness, &[], lose), Some(false));
        assert!(model.queue().readings <= MAX_READINGS);
        assert_eq!(witness.len(), 0);
        assert_eq!(is_alone(&witness, &[], || {}), None, "the old one is open");
        witness.end_round();
        witness.end_rest();
        let (window, is_new) = witness.changes(id(1), CWD).unwrap();
        assert!(is_new);
        assert!(window.end(&[], || true));
    }
}

#[test]
fn watch_that_does_not_tell_of_a_change_is_none() {
    let (model, witness) = model();
    assert_eq!(is_alone(&witness, &[], || {}), Some(true));
    model.queue().watches.clear();
    assert_eq!(is_alone(&witness, &[Kind::Made], || {}), Some(false));
    assert!(witness.changes(id(1), CWD).unwrap().1);
}

#[test]
fn watch_of_a_directory_that_was_removed_when_it_began_is_none() {
    let (model, witness) = model();
    drop(witness.changes(id(2), CWD));
    let (kernel, reader) = (model.clone(), witness.watches.clone().unwrap());
    model.queue().meanwhile = Some(Box::new(move |watch| {
        kernel.tell_one(watch.unwrap(), ReadFlags::IGNORED, b"");
        // Nobody waits for the one who begins to watch.
        reader.state().read_events();
    }));
    assert!(witness.changes(id(1), CWD).is_none());
    assert!(witness.changes(id(1), CWD).unwrap().1);
}

#[test]
fn change_that_comes_while_a_watch_begins_does_not_wait_for_its_own() {
    let (_, witness) = model();
    drop(witness.changes(id(1), CWD));
    let watches = witness.watches.clone().unwrap();
    let _beginning = watches.beginning.lock().unwrap();
    assert!(witness.changes(id(2), CWD).is_none());
    assert!(witness.begin(id(1)).is_some());
}

#[test]
fn directory_whose_files_have_other_attributes_all_the_time_is_not_watched_for_some_time() {
    let (model, witness) = model();
    let changes = |count: u32| {
        for n in 0..count {
            model.tell(ReadFlags::ATTRIB, (n % 2).to_string().as_bytes());
        }
        witness.end_round();
    };
    for _ in 0..2 {
        // A change by a client alone begins the count anew.
        assert_eq!(
            is_alone(&witness, &[], || changes(MAX_ATTRIBUTES)),
            Some(true)
        );
    }
    changes(MAX_ATTRIBUTES);
    assert_eq!(witness.len(), 1);
    changes(1);
    assert_eq!((witness.len(), model.queue().watches.len()), (0, 0));
    assert_eq!(is_alone(&witness, &[], || {}), None);
}

/// Of names as long as these, a look does not read as many events as there may be attributes.
#[test]
fn directory_for_which_events_were_lost_is_not_watched_for_some_time_and_others_begin_anew() {
    let (model, witness) = model();
    for ino in [1, 2] {
        drop(witness.changes(id(ino), CWD).unwrap());
    }
    let names = [[b'a'; 255], [b'b'; 255]];
    for n in 0..=MAX_READINGS * EVENTS_BUFFER / (EVENT + names[0].len()) {
        model.tell_one(1, ReadFlags::ATTRIB, &names[n % 2]);
    }
    assert!(!witness.waits_for_round());
    assert_eq!(is_alone(&witness, &[], || {}), Some(false));
    assert!(witness.waits_for_round());
    witness.end_round();
    assert!(!witness.waits_for_round());
    assert!(witness.changes(id(1), CWD).is_none());
    assert!(witness.changes(id(2), CWD).unwrap().1);
}

#[test]
fn kernel_without_room_is_not_asked_for_each_directory() {
    let (model, witness) = model();
    drop(witness.changes(id(1), CWD).unwrap());
    model.queue().refuses = Some(Errno::NOSPC);
    assert!(witness.changes(id(2), CWD).is_none());
    assert!(!witness.may_watch(id(3)));
    assert!(witness.begin(id(1)).is_some());
    model.queue().refuses = None;
    witness.end_rest();
    assert!(witness.may_watch(id(3)));
}

#[test]
fn state_is_not_kept_nor_settled_while_a_change_is_in_flight_and_kept_after_one_that_failed() {
    let (_, witness) = model();
    let (window, _) = witness.changes(id(1), CWD).unwrap();
    let look = || {
        let before = witness.before_look(id(1)).unwrap();
        let mut may_settle = None;
        witness.after_look(before, &attributes(5), true, |number| {
            may_settle = Some(number.may_settle);
            1
        });
        may_settle
    };
    let known = || witness.known(id(1), &attributes(5));
    assert_eq!((look(), known()), (Some(false), Known::Watched));
    drop(window);
    assert_eq!((look(), known()), (None, Known::Kept(1)));
    let window = witness.begin(id(1)).unwrap();
    window.before(&attributes(5), |_| 2);
    window.end_telling(&[], || true, &attributes(5), |_| 3);
    assert_eq!(known(), Known::Kept(1));
}

#[test]
fn changes_by_others_and_refusals_keep_no_directory_from_being_the_least_recently_used() {
    let (model, witness) = model();
    for ino in 0..MAX_WATCHES as u64 {
        drop(witness.changes(id(ino), CWD));
    }
    model.queue().refuses = Some(Errno::ACCESS);
    assert!(witness.changes(id(u64::MAX), CWD).is_none());
    assert_eq!(witness.len(), MAX_WATCHES);
    model.queue().refuses = None;
    // Of the first one.
    model.tell_one(1, ReadFlags::CREATE, b"a");
    witness.end_round();
    assert!(witness.changes(id(u64::MAX), CWD).is_some());
    assert!(witness.begin(id(0)).is_none() && witness.begin(id(1)).is_some());
}

/// The kernel reads no event of which the whole does not fit.
#[test]
fn event_with_the_longest_name_is_not_taken_for_the_end_of_the_queue() {
    let (model, witness) = model();
    let long = [b'a'; 1023];
    let short = EVENT + 16;
    let count = EVENTS_BUFFER / short - 1;
    let both = || {
        for n in 0..count {
            model.tell(ReadFlags::ATTRIB, n.to_string().as_bytes());
        }
        model.tell(ReadFlags::CREATE, &long);
    };
    assert_eq!(is_alone(&witness, &[], both), Some(false));
    // With room for a name of 255 bytes, but not for this one.
    let both = || {
        for n in 0..count - 15 {
            model.tell(ReadFlags::ATTRIB, n.to_string().as_bytes());
        }
        model.tell(ReadFlags::CREATE, &long);
    };
    assert_eq!(is_alone(&witness, &[], both), Some(false));
}

/// The end of the queue is known by the room that is left.
#[test]
fn queue_is_read_once_if_all_of_it_fits() {
    let (model, witness) = model();
    let made = || model.tell(ReadFlags::CREATE, b"a");
    is_alone(&witness, &[Kind::Made], made);
    model.queue().readings = 0;
    assert_eq!(is_alone(&witness, &[Kind::Made], made), Some(true));
    assert_eq!(model.queue().readings, 1);
}

#[test]
fn directory_that_others_change_all_the_time_is_not_watched_for_some_time() {
    let (model, witness) = model();
    let changes = |count: u32| {
        for n in 0..count {
            model.tell(ReadFlags::CREATE, n.to_string().as_bytes());
        }
    };
    is_alone(&witness, &[], || changes(MAX_FOREIGN));
    assert_eq!(witness.len(), 1);
    // A change by a client alone begins the count anew.
    assert_eq!(is_alone(&witness, &[], || {}), Some(true));
    is_alone(&witness, &[], || changes(MAX_FOREIGN));
    assert_eq!(witness.len(), 1);
    is_alone(&witness, &[], || changes(1));
    assert_eq!((witness.len(), model.queue().watches.len()), (0, 0));
    assert_eq!(is_alone(&witness, &[], || {}), None);
    witness.end_rest();
    assert_eq!(is_alone(&witness, &[], || {}), Some(true));
}

#[test]
fn directory_that_was_not_used_for_longest_is_watched_no_more() {
    let (model, witness) = model();
    let watch = |ino| witness.changes(id(ino), CWD).unwrap().1;
    for ino in 0..MAX_WATCHES as u64 {
        assert!(watch(ino));
    }
    assert!(!watch(0));
    assert!(watch(u64::MAX), "one more");
    assert_eq!(witness.len(), MAX_WATCHES);
    assert_eq!(model.queue().watches.len(), MAX_WATCHES);
    assert!(!watch(0) && watch(1));
}

/// As limits, rights and seccomp do.
#[test]
fn nothing_is_claimed_where_the_kernel_refuses_and_it_is_asked_again_later() {
    let (model, witness) = model();
    model.queue().refuses = Some(Errno::NOSPC);
    assert_eq!(is_alone(&witness, &[], || {}), None);
    model.queue().refuses = None;
    assert_eq!(is_alone(&witness, &[], || {}), None, "it rests");
    witness.end_rest();
    assert_eq!(is_alone(&witness, &[], || {}), Some(true));
    let tries = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&tries);
    let watches = Watches::new(move || match counted.fetch_add(1, Relaxed) {
        0 => Err(Errno::MFILE),
        _ => Ok(Arc::new(Opened(Model::default()))),
    });
    let witness = Witness::among(Some(Arc::new(watches)), Arc::default());
    for _ in 0..2 {
        assert_eq!(is_alone(&witness, &[], || {}), None);
    }
    assert_eq!(tries.load(Relaxed), 1);
    witness.end_rest();
    assert_eq!(is_alone(&witness, &[], || {}), Some(true));
    let blind = Witness::new(false, Arc::default());
    assert_eq!(is_alone(&blind, &[], || {}), None);
}

#[test]
fn second_window_at_a_time_is_none() {
    let (_, witness) = model();
    let (window, _) = witness.changes(id(1), CWD).unwrap();
    assert!(witness.changes(id(1), CWD).is_none());
    drop(window);
    assert!(witness.changes(id(1), CWD).is_some());
}

#[test]
fn watches_of_an_export_end_with_it() {
    let (model, witness) = model();
    let watches = witness.watches.clone();
    let other = Witness::among(watches, Arc::default());
    drop(witness.changes(id(1), CWD));
    drop(other.changes(id(2), CWD));
    drop(witness);
    assert_eq!((other.len(), model.queue().watches.len()), (1, 1));
    assert!(!other.changes(id(2), CWD).unwrap().1);
    drop(other);
    assert_eq!(model.queue().watches.len(), 0);
}

#[test]
fn number_of_a_directory_is_raised_by_the_end_of_its_watch() {
    let model = Model::default();
    let in_flight = Arc::<InFlight>::default();
    let witness = model.witness(&in_flight);
    drop(witness.changes(id(1), CWD));
    let seen = || in_flight.seen(1);
    let (first, watch) = (seen(), model.queue().last);
    witness.end_watches();
    assert_eq!(seen(), first + 1);
    drop(witness.changes(id(1), CWD));
    // It was removed.
    model.tell_one(watch + 1, ReadFlags::IGNORED, b"");
    assert!(witness.before_look(id(1)).is_none());
    assert_eq!(seen(), first + 2);
    let (window, _) = witness.changes(id(1), CWD).unwrap();
    drop(window);
    witness.rest(id(1));
    assert_eq!(seen(), first + 3);
}

#[test]
fn value_of_a_state_stays_until_it_changes() {
    let (model, witness) = model();
    drop(witness.changes(id(1), CWD));
    let next = std::cell::Cell::new(0);
    let look = |seconds: i64, is_over: bool| {
        let before = witness.before_look(id(1)).unwrap();
        let value = |_| {
            next.set(next.get() + 1);
            next.get()
        };
        let told = witness.after_look(before, &attributes(seconds), is_over, value);
        told.unwrap()
    };
    let known = |seconds| witness.known(id(1), &attributes(seconds));
    assert_eq!((look(5, false), look(5, false)), (1, 1));
    assert_eq!(known(5), Known::Watched);
    assert_eq!((look(5, true), known(5)), (1, Known::Kept(1)));
    assert_eq!(known(6), Known::Watched);
    assert_eq!(witness.known(id(2), &attributes(5)), Known::Unwatched);
    model.tell(ReadFlags::DELETE, b"a");
    assert_eq!(look(5, true), 2);
    let mut touched = attributes(5);
    touched.mtime.seconds = 1;
    assert_eq!(witness.known(id(1), &touched), Known::Watched);
    let before = witness.before_look(id(1)).unwrap();
    model.tell(ReadFlags::DELETE, b"b");
    let raced = witness.after_look(before, &attributes(5), true, |_| 9);
    assert_eq!(raced, None);
    witness.end_watches();
    assert_eq!(known(5), Known::Unwatched);
}

/// A directory and its watches by the kernel.
struct Watched {
    dir: tempfile::TempDir,
    open: File,
    witness: Witness,
}

impl Watched {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self {
            open: File::open(dir.path()).unwrap(),
            witness: Witness::new(true, Arc::default()),
            dir,
        }
    }

    fn is_alone(&self, own: &[Kind], change: impl FnOnce(&Path)) -> bool {
        let (window, _) = self.witness.changes(id(1), self.open.as_fd()).unwrap();
        change(self.dir.path());
        window.end(own, || true)
    }
}

#[test]
fn kernel_tells_of_each_change_of_names_by_one_event() {
    use std::fs;
    let watched = Watched::new();
    fs::create_dir(watched.dir.path().join("other")).unwrap();
    let is_alone = |own: &[Kind], change: fn(&Path)| watched.is_alone(own, change);
    for _ in 0..2 {
        assert!(is_alone(&[Kind::Made], |dir| drop(
            File::create_new(dir.join("file")).unwrap()
        )));
        assert!(is_alone(&[Kind::Made], |dir| fs::create_dir(
            dir.join("dir")
        )
        .unwrap()));
        assert!(is_alone(&[Kind::Made], |dir| {
            std::os::unix::fs::symlink("text", dir.join("symlink")).unwrap();
        }));
        assert!(is_alone(&[Kind::Made], |dir| {
            fs::hard_link(dir.join("file"), dir.join("link")).unwrap();
        }));
        let renamed = [Kind::MovedFrom, Kind::MovedTo];
        assert!(is_alone(&renamed, |dir| {
            fs::rename(dir.join("link"), dir.join("renamed")).unwrap();
        }));
        // One replaces another.
        assert!(is_alone(&renamed, |dir| {
            fs::rename(dir.join("symlink"), dir.join("renamed")).unwrap();
        }));
        assert!(is_alone(&[Kind::MovedFrom], |dir| {
            fs::rename(dir.join("renamed"), dir.join("other/renamed")).unwrap();
        }));
        assert!(is_alone(&[Kind::MovedTo], |dir| {
            fs::rename(dir.join("other/renamed"), dir.join("file")).unwrap();
        }));
        assert!(is_alone(&[Kind::Gone], |dir| fs::remove_file(
            dir.join("file")
        )
        .unwrap()));
        assert!(is_alone(&[Kind::Gone], |dir| fs::remove_dir(
            dir.join("dir")
        )
        .unwrap()));
        // In a directory below, and in a file.
        assert!(is_alone(&[], |dir| fs::write(dir.join("other/f"), b"data").unwrap()));
        assert!(!is_alone(&[], |dir| {
            use std::os::unix::fs::PermissionsExt;
            fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).unwrap();
        }));
    }
}

#[test]
fn watch_ends_with_its_directory() {
    let watched = Watched::new();
    let inner = watched.dir.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    let open = File::open(&inner).unwrap();
    drop(watched.witness.changes(id(2), open.as_fd()));
    assert_eq!(watched.witness.len(), 1);
    drop(open);
    std::fs::remove_dir(&inner).unwrap();
    watched.witness.end_round();
    assert_eq!(watched.witness.len(), 0);
}
