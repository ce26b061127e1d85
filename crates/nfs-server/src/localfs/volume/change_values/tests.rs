//! Values of the change attribute of a file or directory that a model of a kernel with coarse times changes.

use super::names::{Claim, Own};
use super::*;
use crate::fs::FileKind;
use crate::localfs::volume::witness::{Kind, Model};
use proptest::prelude::*;
use rustix::fs::CWD;
use rustix::fs::inotify::ReadFlags;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::atomic::Ordering::SeqCst;

const TICK: u64 = 4_000_000;
const INO: u64 = 7;
const DIRECTORY: DirectoryId = DirectoryId {
    device: (0, 0),
    ino: INO,
};

/// The clocks of a machine.
struct Clocks {
    /// Nanoseconds since the start.
    steady: AtomicU64,
    /// Nanoseconds to add for the time.
    ahead: AtomicU64,
}

impl Clocks {
    fn read(&self) -> (u64, u64) {
        let steady = self.steady.load(SeqCst) / TICK * TICK;
        (steady + self.ahead.load(SeqCst), steady)
    }
}

/// A file or directory of a machine with coarse times, and what clients were told of it.
struct World {
    kind: FileKind,
    /// Events of the directory.
    events: Model,
    clocks: Arc<Clocks>,
    steps: Steps,
    values: RefCell<ChangeValues>,
    ctime: Cell<u64>,
    mtime: Cell<i64>,
    version: Cell<u64>,
    told: RefCell<HashMap<u64, u64>>,
    alone: bool,
}

/// A state of the file, with its number.
#[derive(Clone, Copy)]
struct State(Attributes, u64);

impl Looked for State {
    fn attributes(&mut self) -> &mut Attributes {
        &mut self.0
    }

    fn device(&self) -> (u32, u32) {
        DIRECTORY.device
    }
}

impl World {
    fn new(grain: u64, alone: bool) -> Self {
        Self::of(FileKind::Regular, grain, alone)
    }

    fn directory(grain: u64) -> Self {
        Self::of(FileKind::Directory, grain, false)
    }

    fn of(kind: FileKind, grain: u64, alone: bool) -> Self {
        let clocks = Arc::new(Clocks {
            steady: AtomicU64::new(0),
            ahead: AtomicU64::new(1_000_000 * SECOND),
        });
        let steps = Steps {
            grain,
            tick: TICK.max(grain),
        };
        let events = Model::default();
        let world = Self {
            kind,
            values: RefCell::new(started(steps, &clocks, &events)),
            events,
            clocks,
            steps,
            ctime: Cell::new(1000 * SECOND),
            mtime: Cell::new(0),
            version: Cell::new(0),
            told: RefCell::default(),
            alone,
        };
        // The export is older than the changes of most tests.
        world.pass(2 * SECOND);
        world
    }

    fn restart(&self) {
        let started = started(self.steps, &self.clocks, &self.events);
        self.values.replace(started);
    }

    fn pass(&self, nanos: u64) {
        self.clocks.steady.fetch_add(nanos, SeqCst);
    }

    /// Changes the file as the kernel does it for any program.
    fn change(&self) {
        self.change_unseen();
        let name = self.version.get().to_string();
        self.events.tell(ReadFlags::CREATE, name.as_bytes());
    }

    /// Sets the modification time, of which there is no event.
    fn touch(&self) {
        self.change_unseen();
        self.mtime.set(self.mtime.get() + 1);
    }

    fn change_unseen(&self) {
        let now = self.clocks.read().0;
        self.ctime.set(now / self.steps.grain * self.steps.grain);
        self.version.set(self.version.get() + 1);
    }

    fn state(&self) -> State {
        let nanos = self.ctime.get();
        let attributes = Attributes {
            kind: self.kind,
            mode: 0o644,
            links: 1,
            uid: 0,
            gid: 0,
            size: 0,
            used: 0,
            device: (0, 0),
            fileid: INO,
            atime: Time::default(),
            mtime: Time {
                seconds: self.mtime.get(),
                nanos: 0,
            },
            ctime: Time {
                seconds: i64::try_from(nanos / SECOND).unwrap(),
                nanos: u32::try_from(nanos % SECOND).unwrap(),
            },
            change: 0,
        };
        State(attributes, self.version.get())
    }

    fn tell(&self, state: State) -> u64 {
        let State(attributes, version) = state;
        let mut told = self.told.borrow_mut();
        let before = *told.entry(attributes.change).or_insert(version);
        assert_eq!(before, version, "{:#x} is told twice", attributes.change);
        attributes.change
    }

    /// Looks at the file, which is known before each second time.
    fn look(&self) -> u64 {
        let how = match self.told.borrow().len() % 2 {
            0 => How::Found,
            _ => How::Open,
        };
        self.look_while(how, |_| {})
    }

    /// Looks at the file, while something happens after each look of the server.
    fn look_while(&self, how: How, happens: impl Fn(u32)) -> u64 {
        let looks = Cell::new(0);
        let values = self.values.borrow();
        let look = || {
            if looks.get() == 0 {
                happens(0);
            }
            let state = self.state();
            looks.set(looks.get() + 1);
            happens(looks.get());
            Ok(state)
        };
        let state = match how {
            How::Found => values.of(self.alone, None, look),
            How::Open => {
                let place = Place::of(&mut self.state());
                values.of(self.alone, Some(place), look)
            }
            How::Glance => values.glance(self.alone, look),
        };
        self.tell(state.unwrap())
    }

    /// Changes a name in the directory through the server, while something happens at some moments. Returns the values before and
    /// after.
    fn serve_name(&self, succeeds: bool, happens: impl Fn(Moment)) -> (u64, u64, Claim) {
        let values = self.values.borrow();
        let changing = values.in_flight.begin(INO, true);
        let change = values.begin_names(self.alone, (DIRECTORY, CWD), changing, || true);
        happens(Moment::Begun);
        let before = values.before_names(&change, || Ok(self.state()));
        let State(before, version) = before.unwrap();
        happens(Moment::LookedBefore);
        let own: &[Kind] = match succeeds {
            true => {
                self.change();
                &[Kind::Made]
            }
            false => &[],
        };
        happens(Moment::Changed);
        let own = Own {
            events: own,
            stands: &|| true,
        };
        let first = Cell::new(true);
        let after = values.after_names(change, &own, CWD, || {
            let state = self.state();
            if first.replace(false) {
                happens(Moment::LookedAfter);
            }
            Ok(state)
        });
        let (after, claim) = after.unwrap();
        if claim.atomic {
            assert_eq!(after.1 - version, u64::from(succeeds));
        }
        if claim.before {
            self.tell(State(before, version));
        }
        self.tell(after);
        (before.change, after.0.change, claim)
    }

    fn end_watches(&self) {
        self.values.borrow().witness.end_watches();
    }

    /// Changes the file through the server; returns the values before and after.
    fn serve(&self, meanwhile: impl Fn()) -> (u64, u64) {
        let values = self.values.borrow();
        let is_directory = self.kind == FileKind::Directory;
        let changing = values.in_flight.begin(INO, is_directory);
        let look = |during| {
            let state = values.during(self.alone, (&changing, during), || Ok(self.state()));
            self.tell(state.unwrap())
        };
        let before = look(During::Before);
        meanwhile();
        self.change();
        let after = look(During::After);
        (before, after)
    }
}

fn started(steps: Steps, clocks: &Arc<Clocks>, events: &Model) -> ChangeValues {
    let clocks = Arc::clone(clocks);
    let in_flight = Arc::default();
    ChangeValues {
        coarse: Some(Coarse::new(steps, Box::new(move || clocks.read()))),
        fine_files: false,
        witness: events.witness(&in_flight),
        in_flight,
    }
}

/// The way in which a file is looked at.
#[derive(Clone, Copy, Debug)]
enum How {
    /// Which file it is turns out by the look.
    Found,
    /// It is known before.
    Open,
    /// With one look.
    Glance,
}

/// A moment in a change of a name through the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Begun,
    LookedBefore,
    Changed,
    LookedAfter,
}

/// One thing that happens.
#[derive(Clone, Debug)]
enum Event {
    Look(How),
    /// A look, with something else after the look of the server of this number, or before all of them.
    RacedLook(How, u32, Vec<Event>),
    Served,
    /// A change during which another one begins and ends.
    Overlapped,
    Local,
    Pass(u64),
    Restart,
    SetBack(u64),
    /// A change of a name, or the failure of one, with something else at some moment.
    Named(bool, Moment, Box<Event>),
    /// The modification time is set by a local program.
    Touched,
    Overflow,
    WatchEnds,
    RoundEnds,
}

fn looks() -> impl Strategy<Value = How> {
    prop_oneof![Just(How::Found), Just(How::Open), Just(How::Glance)]
}

fn events() -> impl Strategy<Value = Event> {
    let change = prop_oneof![Just(Event::Served), Just(Event::Local)];
    let raced = (looks(), 0..=2_u32, change);
    prop_oneof![
        4 => looks().prop_map(Event::Look),
        1 => raced.prop_map(|(how, at, change)| Event::RacedLook(how, at, vec![change])),
        3 => Just(Event::Served),
        1 => Just(Event::Overlapped),
        3 => Just(Event::Local),
        2 => (0..TICK).prop_map(Event::Pass),
        2 => (0..4 * TICK).prop_map(Event::Pass),
        1 => (0..3 * SECOND).prop_map(Event::Pass),
    ]
}

/// Things that happen to a directory whose names clients change.
fn events_of_directory() -> impl Strategy<Value = Event> {
    let moment = prop_oneof![
        Just(Moment::Begun),
        Just(Moment::LookedBefore),
        Just(Moment::Changed),
        Just(Moment::LookedAfter),
    ];
    let meanwhile = prop_oneof![
        6 => Just(Event::Pass(0)),
        2 => looks().prop_map(Event::Look),
        3 => Just(Event::Local),
        1 => (0..4 * TICK).prop_map(Event::Pass),
        1 => Just(Event::Overflow),
        1 => Just(Event::WatchEnds),
    ];
    let named = (any::<bool>(), moment, meanwhile);
    let raced = (looks(), 0..=2_u32, any::<bool>());
    prop_oneof![
        12 => events(),
        1 => raced.prop_map(|(how, at, changes)| {
            let change = changes.then_some(Event::Local);
            let meanwhile = [Event::WatchEnds].into_iter().chain(change);
            Event::RacedLook(how, at, meanwhile.collect())
        }),
        8 => named.prop_map(|(succeeds, moment, event)| {
            Event::Named(succeeds, moment, Box::new(event))
        }),
        2 => Just(Event::Touched),
        1 => Just(Event::Overflow),
        1 => Just(Event::WatchEnds),
        3 => Just(Event::RoundEnds),
    ]
}

fn run(world: &World, events: Vec<Event>) {
    for event in events {
        match event {
            Event::Named(succeeds, at, event) => {
                world.serve_name(succeeds, |moment| {
                    if moment == at {
                        run(world, vec![(*event).clone()]);
                    }
                });
            }
            Event::Touched => world.touch(),
            Event::Overflow => world.events.overflow(),
            Event::WatchEnds => world.end_watches(),
            Event::RoundEnds => world.values.borrow().end_round(),
            Event::Look(how) => {
                world.look_while(how, |_| {});
            }
            Event::RacedLook(how, at, meanwhile) => {
                world.look_while(how, |look| {
                    if look == at {
                        run(world, meanwhile.clone());
                    }
                });
            }
            Event::Served => {
                world.serve(|| {});
            }
            Event::Overlapped => {
                world.serve(|| {
                    world.look();
                    world.serve(|| {
                        world.look();
                    });
                });
            }
            Event::Local => world.change(),
            Event::Pass(nanos) => world.pass(nanos),
            Event::Restart => world.restart(),
            Event::SetBack(ticks) => {
                world.clocks.ahead.fetch_sub(ticks * TICK, SeqCst);
            }
        }
    }
}

proptest! {
    #[test]
    fn no_two_states_have_a_value_whoever_changes_the_file_and_whenever_the_server_starts(
        events in prop::collection::vec(
            prop_oneof![20 => events(), 1 => Just(Event::Restart)],
            1..200,
        ),
        grain in prop_oneof![Just(1), Just(SECOND)],
    ) {
        run(&World::new(grain, false), events);
    }

    #[test]
    fn no_two_states_have_a_value_when_the_clock_is_set_back(
        events in prop::collection::vec(
            prop_oneof![20 => events(), 1 => (1..50_u64).prop_map(Event::SetBack)],
            1..200,
        ),
        grain in prop_oneof![Just(1), Just(SECOND)],
    ) {
        run(&World::new(grain, false), events);
    }

    #[test]
    fn no_two_states_of_a_directory_have_a_value_whoever_watches_it_and_when(
        events in prop::collection::vec(
            prop_oneof![40 => events_of_directory(), 1 => Just(Event::Restart)],
            1..200,
        ),
        grain in prop_oneof![Just(1), Just(SECOND)],
    ) {
        run(&World::directory(grain), events);
    }

    #[test]
    fn no_two_states_of_a_directory_have_a_value_when_the_clock_is_set_back(
        events in prop::collection::vec(
            prop_oneof![
                20 => events_of_directory(),
                1 => (1..50_u64).prop_map(Event::SetBack),
            ],
            1..200,
        ),
        grain in prop_oneof![Just(1), Just(SECOND)],
    ) {
        run(&World::directory(grain), events);
    }
}

#[test]
fn changes_of_names_are_told_without_a_gap_while_nobody_else_changes_the_directory() {
    for grain in [1, SECOND] {
        let world = World::directory(grain);
        let (_, mut last, _) = world.serve_name(true, |_| {});
        for n in 0..200 {
            // Also when it settles.
            world.pass(world.steps.tick * (n % 4));
            assert_eq!(world.look(), last);
            let (before, after, claim) = world.serve_name(true, |_| {});
            assert!(claim.atomic);
            assert_eq!(before, last);
            assert_ne!(after, before);
            last = after;
        }
    }
}

#[test]
fn change_of_a_local_program_is_told_of_a_directory_within_the_tick_and_its_value_stays() {
    let world = World::directory(1);
    let (_, first, _) = world.serve_name(true, |_| {});
    world.change();
    let second = world.look();
    assert_ne!(first, second);
    assert_eq!(world.look(), second);
    world.pass(10 * TICK);
    assert_eq!(world.look(), second, "it settles");
    world.end_watches();
    let settled = world.look();
    world.restart();
    assert_eq!(world.look(), settled);
}

#[test]
fn change_of_a_local_program_amid_one_of_a_client_is_not_taken_for_its_own() {
    for at in [
        Moment::Begun,
        Moment::LookedBefore,
        Moment::Changed,
        Moment::LookedAfter,
    ] {
        let world = World::directory(1);
        world.serve_name(true, |_| {});
        let (.., claim) = world.serve_name(true, |moment| {
            if moment == at {
                world.change();
            }
        });
        assert_eq!(claim, Claim::default(), "{at:?}");
        let (.., claim) = world.serve_name(true, |_| {});
        assert!(claim.atomic && claim.before);
    }
}

#[test]
fn local_change_without_an_event_is_told_by_the_attributes() {
    let world = World::directory(1);
    let (_, first, _) = world.serve_name(true, |_| {});
    world.touch();
    let second = world.look();
    assert_ne!(first, second);
    world.touch();
    let (before, ..) = world.serve_name(false, |_| {});
    assert_ne!(before, second);
    world.pass(10 * TICK);
    world.look();
}

/// It held the lock of the directory for long after it had set the ctime.
#[test]
fn change_whose_event_is_late_is_seen_at_the_end_of_the_round() {
    let world = World::directory(1);
    let (_, first, _) = world.serve_name(true, |_| {});
    world.pass(10 * TICK);
    assert_eq!(world.look(), first);
    world.events.tell(ReadFlags::CREATE, b"name");
    assert_eq!(world.look(), first, "the queue is not read");
    world.values.borrow().end_round();
    assert_ne!(world.look(), first);
}

/// It held the lock longer than it takes a state to settle.
#[test]
fn change_whose_event_is_late_is_told_though_the_state_has_settled() {
    let world = World::directory(1);
    world.serve_name(true, |_| {});
    world.pass(10 * TICK);
    world.change_unseen();
    world.pass(10 * TICK);
    let old_names = world.look();
    world.events.tell(ReadFlags::CREATE, b"name");
    world.values.borrow().end_round();
    let new_names = world.look();
    assert_ne!(new_names, old_names);
    assert_eq!(world.look(), new_names);
}

#[test]
fn changes_of_clients_alone_are_told_without_a_gap() {
    let world = World::new(1, true);
    let (_, mut last) = world.serve(|| {});
    for _ in 0..1000 {
        world.pass(TICK / 10);
        assert_eq!(world.look(), last);
        let (before, after) = world.serve(|| {});
        assert_eq!(before, last);
        assert!(after > before);
        last = after;
    }
}

#[test]
fn settled_state_keeps_its_value_over_a_restart() {
    for grain in [1, SECOND] {
        let world = World::new(grain, false);
        world.change();
        let fresh = world.look();
        world.pass(3 * world.steps.tick);
        let settled = world.look();
        assert_ne!(fresh, settled);
        world.restart();
        assert_eq!(world.look(), settled);
    }
}

/// As ext4 with small inodes.
#[test]
fn change_in_the_second_in_which_the_one_before_settles_has_a_later_value() {
    let world = World::new(SECOND, false);
    world.change();
    world.pass(2 * SECOND + SECOND / 2);
    world.look();
    world.change();
    world.pass(SECOND);
    world.look();
}

/// A clock that is set back by little is as good as one that is set back by much.
#[test]
fn change_after_a_small_step_back_is_told_where_times_are_in_seconds() {
    let world = World::new(SECOND, false);
    world.pass(SECOND / 100);
    world.serve(|| {});
    world.pass(SECOND);
    world.look();
    world.clocks.ahead.fetch_sub(5 * TICK, SeqCst);
    world.change();
    world.pass(SECOND);
    world.look();
}

#[test]
fn local_change_within_the_tick_is_told_by_the_next_look() {
    let world = World::new(1, false);
    world.change();
    let first = world.look();
    world.change();
    let second = world.look();
    assert_ne!(first, second);
    world.pass(TICK);
    let third = world.look();
    assert_eq!(world.look(), third, "no change has this ctime any more");
}

#[test]
fn probe_tells_fine_times_from_coarse_ones() {
    let at = |nanos: [u64; 3]| nanos.map(|nanos| 1_700_000_000 * SECOND + nanos);
    let steps = |nanos| steps_of(&at(nanos), TICK);
    assert_eq!(steps([1, 700, 1500]), None);
    let ticks = Steps {
        grain: 1,
        tick: TICK,
    };
    assert_eq!(steps([123, 123, 123]), Some(ticks));
    assert_eq!(steps([123, 123, 123 + TICK]), Some(ticks));
    let seconds = Steps {
        grain: SECOND,
        tick: SECOND,
    };
    assert_eq!(steps([0, 0, 0]), Some(seconds));
}

#[test]
fn file_system_that_cannot_be_probed_is_taken_for_the_coarsest() {
    let proc = std::fs::File::open("/proc/self").unwrap();
    for kind in [FsKind::Disk, FsKind::Memory, FsKind::Other] {
        let in_flight = Arc::default();
        let witness = Witness::new(false, Arc::clone(&in_flight));
        let values = ChangeValues::probe(proc.as_fd(), kind, in_flight, witness);
        assert_eq!(values.kind(), ChangeKind::Undefined);
        let steps = values.coarse.map(|coarse| coarse.steps);
        assert_eq!(steps.map(|steps| steps.grain), Some(SECOND));
    }
}

/// On tmpfs the ctime of a directory from which a name is removed may be the same.
#[test]
fn directories_in_memory_are_told_apart_where_only_files_have_fine_times() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        eprintln!("no tmpfs: skipped");
        return;
    };
    let root = std::fs::File::open(dir.path()).unwrap();
    let in_flight = Arc::default();
    let witness = Witness::new(true, Arc::clone(&in_flight));
    let values = ChangeValues::probe(root.as_fd(), FsKind::Memory, in_flight, witness);
    assert_eq!(values.kind(), ChangeKind::Undefined);
    let of = |fd: BorrowedFd<'_>| {
        let seen = values.of(false, None, || sys::attributes_on_device(fd));
        seen.unwrap().attributes
    };
    let mut told = std::collections::HashSet::new();
    for n in 0..50 {
        let path = dir.path().join(n.to_string());
        let file = std::fs::File::create_new(&path).unwrap();
        assert!(told.insert(of(root.as_fd()).change));
        std::fs::remove_file(path).unwrap();
        assert!(told.insert(of(root.as_fd()).change), "{n}");
        let file = of(file.as_fd());
        assert!(!values.fine_files || file.change == file.ctime.as_change());
    }
}
