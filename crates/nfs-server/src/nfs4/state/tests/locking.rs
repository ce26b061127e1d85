//! Files and locks of clients.

use super::*;
use nfs4_state::lock::LockKind;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

const ALL: Range = Range::ALL;

fn bytes(first: u64, last: u64) -> Range {
    Range::of_bytes(first, last).unwrap()
}

fn new<'a>(open: StateId, owner: &'a [u8]) -> Locker<'a> {
    Locker::New { open, owner }
}

/// A world that looks that no file is closed while it is locked, and its disk.
fn world() -> (World, Disk) {
    let (world, disk) = (World::new(), Disk::default());
    disk.0.lock().unwrap().state = Some(Arc::downgrade(&world.state.0));
    (world, disk)
}

fn entries(world: &World) -> usize {
    world.state.with(|locked| locked.files.entries())
}

#[test]
fn files_are_held_as_long_as_their_opens_and_closed_by_the_thread() {
    let (mut world, disk) = world();
    let a = world.peer("a", 1);
    let open = world.open(&a, b"o", 1, disk.held()).unwrap();
    let held = |world: &World, state| world.state.with(|locked| locked.held(state).is_some());
    assert!(held(&world, open));
    assert!(!held(&world, StateId::default()));
    // One for reading, one for writing, and one for both.
    world.open(&a, b"o", 2, disk.held()).unwrap();
    world.open(&a, b"o", 1, disk.held()).unwrap();
    world.work();
    assert_eq!(disk.open_files(), 2);
    world.open(&a, b"o", 3, disk.held()).unwrap();
    world.work();
    assert_eq!(disk.open_files(), 1);
    let refused = world.open(&a, b"o", 0, disk.held());
    assert_eq!(refused, Err(Status::Invalid));
    world.close(&a, open);
    assert_eq!(disk.open_files(), 2, "nothing is closed in a call");
    world.work();
    assert_eq!((disk.open_files(), entries(&world)), (0, 0));
}

/// A held file, and whether it waits for nothing when it ends.
struct Ending {
    _file: Arc<dyn HeldFile>,
    at_once: bool,
}

impl HeldFile for Ending {
    fn open_for_locks(&self) -> Outcome<Result<Arc<dyn LockFile>, Error>> {
        unreachable!("nothing is locked")
    }

    fn end_at_once(&mut self) -> bool {
        self.at_once
    }
}

#[test]
fn file_that_ends_at_once_is_closed_by_the_call_unless_somebody_uses_it() {
    let (mut world, disk) = world();
    let a = world.peer("a", 1);
    let ending = |at_once| {
        let _file = disk.held();
        Arc::new(Ending { _file, at_once })
    };
    for (at_once, is_used, left) in [(true, false, 0), (true, true, 1), (false, false, 1)] {
        let held: Arc<dyn HeldFile> = ending(at_once);
        let used = is_used.then(|| Arc::clone(&held));
        let open = world.open(&a, b"o", 1, held).unwrap();
        world.close(&a, open);
        assert_eq!(disk.open_files(), left);
        drop(used);
        world.work();
        assert_eq!(disk.open_files(), 0);
    }
}

#[test]
fn lock_of_a_local_program_is_in_the_way_and_nobody_waits_behind_who_waits_for_it() {
    let (mut world, disk) = world();
    let a = world.peer("a", 1);
    let open = world.open(&a, b"o", 3, disk.held()).unwrap();
    assert!(disk.lock_locally(Some((4, 4)), LockMode::Shared));
    let file = Some(disk.lock_file());
    let denied = world.lock(&a, new(open, b"l"), LockType::WriteWait, ALL, file);
    let Err(LockError::Denied(denied)) = denied else {
        panic!("{denied:?}");
    };
    let found = (denied.range, denied.kind, denied.client, denied.owner.len());
    assert_eq!(found, (bytes(4, 4), LockKind::Shared, ClientId(0), 0));
    assert_eq!(world.state.usage().waiters, 0);
    assert_eq!(world.state.usage().locks, 0);
    let file = Some(disk.lock_file());
    let denied = world.lock(&a, new(open, b"m"), LockType::Write, ALL, file);
    assert!(matches!(denied, Err(LockError::Denied(_))), "{denied:?}");
    world.work();
    assert_eq!(
        disk.open_files(),
        2,
        "the file of an owner that has no locks and waits for none is closed"
    );
    let tested = |world: &World, kind| {
        let file = disk.lock_file();
        let found = world.state.with(|locked| {
            let lock = (bytes(0, 9), kind);
            locked.test_lock(a.client, &key(), lock, b"l", Some(&*file))
        });
        found.is_ok()
    };
    assert!(tested(&world, LockKind::Shared) && !tested(&world, LockKind::Exclusive));
    disk.lock_locally(None, LockMode::Shared);
    assert!(tested(&world, LockKind::Exclusive));
    let file = Some(disk.lock_file());
    world
        .lock(&a, new(open, b"l"), LockType::Write, ALL, file)
        .unwrap();
    assert!(!disk.lock_locally(Some((0, 0)), LockMode::Shared));
}

/// Owners of locks that are to be called.
fn called(world: &World) -> Vec<Vec<u8>> {
    let mut owners = Vec::new();
    world.state.with(|locked| {
        while let Some((client, call)) = locked.calls().take() {
            match call {
                Callback::NotifyLock { owner, .. } => owners.push(owner.to_vec()),
                other @ (Callback::Null { .. } | Callback::RecallSlots { .. }) => {
                    panic!("{other:?}")
                }
            }
            locked.calls().done(client);
        }
    });
    owners
}

#[test]
fn client_that_waits_for_a_local_program_is_called_when_its_lock_is_gone() {
    const SOON: Duration = Duration::from_millis(200);
    let (mut world, disk) = world();
    let a = world.peer("a", 1);
    let open = world.open(&a, b"o", 3, disk.held()).unwrap();
    assert!(disk.lock_locally(Some((4, 4)), LockMode::Exclusive));
    let lock = |world: &mut World, owner, kind, (first, last)| {
        let file = Some(disk.lock_file());
        let range = bytes(first, last);
        world.lock(&a, new(open, owner), kind, range, file).is_ok()
    };
    assert!(!lock(&mut world, b"waits", LockType::WriteWait, (0, 9)));
    assert!(!lock(&mut world, b"polls", LockType::Write, (0, 9)));
    // It waits once, however often it asks.
    assert!(!lock(&mut world, b"waits", LockType::WriteWait, (0, 9)));
    world.pass(SOON);
    assert!(called(&world).is_empty(), "it is still locked");
    disk.lock_locally(None, LockMode::Shared);
    world.pass(SOON);
    assert_eq!(called(&world), [b"waits"]);
    assert!(lock(&mut world, b"waits", LockType::WriteWait, (0, 9)));
    world.pass(SOON);
    assert!(called(&world).is_empty(), "it waits no more");
    assert_eq!(disk.open_files(), 2);
}

#[test]
fn client_that_has_closed_the_file_waits_for_no_local_program() {
    let (mut world, disk) = world();
    let a = world.peer("a", 1);
    let open = world.open(&a, b"o", 3, disk.held()).unwrap();
    assert!(disk.lock_locally(Some((4, 4)), LockMode::Exclusive));
    let file = Some(disk.lock_file());
    let denied = world.lock(&a, new(open, b"l"), LockType::WriteWait, ALL, file);
    assert!(matches!(denied, Err(LockError::Denied(_))), "{denied:?}");
    world.close(&a, open);
    world.work();
    assert_eq!(disk.open_files(), 0);
    disk.lock_locally(None, LockMode::Shared);
    world.pass(Duration::from_secs(1));
    assert!(called(&world).is_empty());
}

#[test]
fn error_of_the_file_system_makes_no_lock() {
    let (mut world, disk) = world();
    let a = world.peer("a", 1);
    let open = world.open(&a, b"o", 3, disk.held()).unwrap();
    disk.0.lock().unwrap().error = Some(Error::Stale);
    let file = Some(disk.lock_file());
    let failed = world.lock(&a, new(open, b"l"), LockType::Write, ALL, file);
    assert_eq!(failed, Err(Status::Stale.into()));
    assert_eq!(
        (world.state.usage().locks, world.state.usage().states),
        (0, 1)
    );
}

#[test]
fn owner_has_one_file_through_all_its_opens() {
    let (mut world, disk) = world();
    let a = world.peer("a", 1);
    let needs = |world: &World, locker| {
        (world.state).with(|locked| locked.needs_lock_file(a.client, &key(), locker))
    };
    let [first, second] = [b"o", b"p"].map(|owner| world.open(&a, owner, 3, disk.held()).unwrap());
    assert!(needs(&world, new(first, b"l")));
    let missing = world.lock(&a, new(first, b"l"), LockType::Write, ALL, None);
    assert_eq!(
        missing,
        Err(Status::Delay.into()),
        "its file was closed since"
    );
    let file = Some(disk.lock_file());
    let one = world
        .lock(&a, new(first, b"l"), LockType::Write, bytes(0, 5), file)
        .unwrap();
    assert!(!needs(&world, new(second, b"l")) && !needs(&world, Locker::Existing(one)));
    assert!(needs(&world, new(second, b"m")));
    // Two files would be in each other's way.
    let two = world
        .lock(&a, new(second, b"l"), LockType::Write, bytes(4, 9), None)
        .unwrap();
    let held = world.state.with(|locked| locked.held(two).is_some());
    assert!(held, "the file of its open");
    world.close(&a, first);
    assert!(disk.lock_locally(Some((0, 3)), LockMode::Exclusive));
    assert!(
        !disk.lock_locally(Some((4, 4)), LockMode::Shared),
        "locked through the other open"
    );
    world.close(&a, second);
    assert!(
        disk.lock_locally(Some((0, 11)), LockMode::Exclusive),
        "before the file is closed"
    );
    world.work();
    assert_eq!((disk.open_files(), entries(&world)), (0, 0));
}

#[test]
fn lock_that_is_gone_from_the_table_is_gone_from_the_file_for_the_next_in_the_same_turn() {
    let (mut world, disk) = world();
    let [a, b] = [("a", 1), ("b", 2)].map(|(name, connection)| world.peer(name, connection));
    let [of_a, of_b] = [a, b].map(|peer| world.open(&peer, b"o", 3, disk.held()).unwrap());
    let file = Some(disk.lock_file());
    world
        .lock(&a, new(of_a, b"l"), LockType::Write, ALL, file)
        .unwrap();
    let file = disk.lock_file();
    let locked = world.state.with(|locked| {
        let now = locked.now;
        locked.server.close(now, a.client, &key(), of_a).unwrap();
        let request = LockRequest {
            client: b.client,
            file: &key(),
            range: ALL,
            kind: LockType::Write,
            locker: new(of_b, b"l"),
            reclaims: false,
        };
        locked.lock(&request, Some(file))
    });
    assert!(locked.is_ok(), "{locked:?}");
}

#[test]
fn locks_of_a_client_that_is_gone_are_free_when_its_record_is() {
    let (mut world, disk) = world();
    let [a, b] = [("a", 1), ("b", 2)].map(|(name, connection)| world.peer(name, connection));
    let [of_a, of_b] = [a, b].map(|peer| world.open(&peer, b"o", 3, disk.held()).unwrap());
    let file = Some(disk.lock_file());
    world
        .lock(&a, new(of_a, b"l"), LockType::Write, ALL, file)
        .unwrap();
    for sequence in 1..4 {
        world.pass(LEASE * 2 / 3);
        world.renew(&b, sequence).unwrap();
    }
    let lock = |world: &mut World| {
        let file = Some(disk.lock_file());
        world.lock(&b, new(of_b, b"l"), LockType::Write, ALL, file)
    };
    assert_eq!(lock(&mut world), Err(Status::Delay.into()));
    world.work();
    lock(&mut world).unwrap();
    world.state.expire_client(b.client).unwrap();
    world.work();
    assert_eq!((disk.open_files(), entries(&world)), (0, 0));
    assert!(disk.lock_locally(Some((0, 11)), LockMode::Exclusive));
}

#[test]
fn calls_that_change_no_state_allocate_nothing() {
    let (mut world, disk) = world();
    let a = world.peer("a", 1);
    let open = world.open(&a, b"o", 3, disk.held()).unwrap();
    world.work();
    world.renew(&a, 1).unwrap();
    let count = allocation_counter::measure(|| {
        world.renew(&a, 2).unwrap();
        let checked = world
            .state
            .with(|locked| (locked.server).check_io(locked.now, a.client, &key(), open, true));
        assert!(checked.is_ok());
    });
    assert_eq!(count.count_total, 0);
}

/// A step of a random run.
#[derive(Clone, Debug)]
enum Step {
    Open {
        peer: usize,
        owner: u8,
    },
    Close {
        at: usize,
    },
    Lock {
        at: usize,
        owner: u8,
        range: (u64, u64),
        kind: LockType,
        keeps: bool,
    },
    Unlock {
        at: usize,
        range: (u64, u64),
    },
    Free {
        at: usize,
    },
    Local {
        range: Option<(u64, u64)>,
        mode: LockMode,
    },
    Fail(bool),
    Expire {
        peer: usize,
    },
    Revoke,
}

fn step() -> impl Strategy<Value = Step> {
    let range = || {
        let ends = (0..BYTES, 0..BYTES);
        ends.prop_map(|(a, b)| match a.max(b) == BYTES - 1 {
            true => (a.min(b), u64::MAX),
            false => (a.min(b), a.max(b)),
        })
    };
    let kind = prop_oneof![
        Just(LockType::Read),
        Just(LockType::Write),
        Just(LockType::ReadWait),
        Just(LockType::WriteWait),
    ];
    let mode = prop_oneof![Just(LockMode::Shared), Just(LockMode::Exclusive)];
    let local = (0..BYTES, 0..BYTES).prop_map(|(a, b)| (a.min(b), a.max(b)));
    prop_oneof![
        3 => (0..3_usize, 0..2_u8).prop_map(|(peer, owner)| Step::Open { peer, owner }),
        2 => any::<usize>().prop_map(|at| Step::Close { at }),
        12 => (any::<usize>(), 0..2_u8, range(), kind, any::<bool>()).prop_map(
            |(at, owner, range, kind, keeps)| Step::Lock { at, owner, range, kind, keeps }
        ),
        4 => (any::<usize>(), range()).prop_map(|(at, range)| Step::Unlock { at, range }),
        2 => any::<usize>().prop_map(|at| Step::Free { at }),
        2 => (prop::option::of(local), mode).prop_map(|(range, mode)| Step::Local { range, mode }),
        1 => any::<bool>().prop_map(Step::Fail),
        1 => (0..3_usize).prop_map(|peer| Step::Expire { peer }),
        1 => Just(Step::Revoke),
    ]
}

/// A random run, with all opens and states of locks that there were.
struct Run {
    world: World,
    disk: Disk,
    peers: Vec<Peer>,
    opens: Vec<(Peer, StateId)>,
    locks: Vec<(Peer, StateId)>,
}

fn pick<T: Copy>(of: &[T], at: usize) -> Option<T> {
    at.checked_rem(of.len()).map(|at| of[at])
}

impl Run {
    fn take(&mut self, step: &Step) {
        match *step {
            Step::Open { peer, owner } => {
                let peer = self.peers[peer];
                let opened = self.world.open(&peer, &[owner], 3, self.disk.held());
                self.opens.extend(opened.ok().map(|open| (peer, open)));
            }
            Step::Close { at } => {
                if let Some((peer, open)) = pick(&self.opens, at) {
                    let open = StateId { seqid: 0, ..open };
                    // It may be closed already.
                    let _ = self.world.state.with(|locked| {
                        (locked.server).close(locked.now, peer.client, &key(), open)
                    });
                }
            }
            Step::Lock {
                at,
                owner,
                range: (first, last),
                kind,
                keeps,
            } => {
                let known = pick(&self.locks, at).filter(|_| keeps);
                let Some((peer, state)) = known.or_else(|| pick(&self.opens, at)) else {
                    return;
                };
                let owner = [owner];
                let state = StateId { seqid: 0, ..state };
                let locker = match known.is_some() {
                    true => Locker::Existing(state),
                    false => new(state, &owner),
                };
                let needs = (self.world.state)
                    .with(|locked| locked.needs_lock_file(peer.client, &key(), locker));
                let file = needs.then(|| self.disk.lock_file());
                let range = bytes(first, last);
                let locked = self.world.lock(&peer, locker, kind, range, file);
                self.locks.extend(locked.ok().map(|state| (peer, state)));
            }
            Step::Unlock {
                at,
                range: (first, last),
            } => {
                if let Some((peer, state)) = pick(&self.locks, at) {
                    let state = StateId { seqid: 0, ..state };
                    let range = bytes(first, last);
                    let _ = (self.world.state)
                        .with(|locked| locked.unlock(peer.client, &key(), state, range));
                }
            }
            Step::Free { at } => {
                if let Some((peer, state)) = pick(&self.locks, at) {
                    let state = StateId { seqid: 0, ..state };
                    let _ = (self.world.state)
                        .with(|locked| locked.server.free_state(peer.client, state));
                }
            }
            Step::Local { range, mode } => drop(self.disk.lock_locally(range, mode)),
            Step::Fail(fails) => {
                self.disk.0.lock().unwrap().error = fails.then_some(Error::Busy);
            }
            Step::Expire { peer } => {
                let client = self.peers[peer].client;
                self.world.state.expire_client(client).unwrap();
                self.world.work();
                self.peers[peer] = self.world.peer(&peer.to_string(), peer as u64);
            }
            Step::Revoke => {
                (self.world.state).with(|locked| locked.server.revoke_file(locked.now, &key()));
            }
        }
    }

    /// Returns the locks on the file and those in the table, by byte, without an order of owners.
    fn locks(&self) -> [Vec<(u64, LockMode)>; 2] {
        let disk = self.disk.0.lock().unwrap();
        let on_file = disk.locks.iter().filter(|&(&(owner, _), _)| owner != 0);
        let on_file = on_file.map(|(&(_, byte), &mode)| (byte, mode)).collect();
        drop(disk);
        let in_table = self.world.state.with(|locked| {
            // Each owner once, by any of its states that is there.
            let mut owners = HashMap::default();
            for &(peer, state) in &self.locks {
                let state = StateId { seqid: 0, ..state };
                let locks: Vec<_> = locked.server.locks_of_owner(peer.client, state).collect();
                if let Some(file) = locked.files.of_state(state) {
                    owners.insert(Arc::as_ptr(file).cast::<()>(), locks);
                } else {
                    assert!(locks.is_empty(), "locks without a file");
                }
            }
            let locks = owners.into_values().flatten();
            let bytes = locks.flat_map(|(range, kind)| {
                let mode = super::super::files::mode(kind);
                bytes_of(super::super::files::bytes(range)).map(move |byte| (byte, mode))
            });
            bytes.collect()
        });
        [on_file, in_table].map(|mut locks: Vec<(u64, LockMode)>| {
            locks.sort_by_key(|&(byte, mode)| (byte, mode == LockMode::Exclusive));
            locks
        })
    }
}

#[test]
fn lock_is_in_the_table_and_on_the_file_or_in_neither() {
    let steps = prop::collection::vec(step(), 1..80);
    let (mut locks, mut denied) = (0, 0);
    let tally = Mutex::new((&mut locks, &mut denied));
    TestRunner::default()
        .run(&steps, |steps| {
            let (mut world, disk) = world();
            let peers = (0..3).map(|n: u64| world.peer(&n.to_string(), n)).collect();
            let mut run = Run {
                world,
                disk,
                peers,
                opens: Vec::new(),
                locks: Vec::new(),
            };
            for step in &steps {
                let before = run.locks.len();
                run.take(step);
                let [on_file, in_table] = run.locks();
                prop_assert_eq!(on_file, in_table, "after {:?}", step);
                if matches!(step, Step::Lock { .. }) {
                    let mut tally = tally.lock().unwrap();
                    match run.locks.len() > before {
                        true => *tally.0 += 1,
                        false => *tally.1 += 1,
                    }
                }
                run.world.work();
            }
            for peer in run.peers.clone() {
                run.world.state.expire_client(peer.client).unwrap();
            }
            run.world.work();
            prop_assert_eq!((run.disk.open_files(), entries(&run.world)), (0, 0));
            Ok(())
        })
        .unwrap();
    assert!(locks > 500 && denied > 500, "{locks} {denied}");
}
