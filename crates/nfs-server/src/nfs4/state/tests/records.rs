//! Records of clients, restarts, and requests that are repeated.

use super::*;
use crate::captured_log::captured_log;
use crate::nfs4::records::FailingDisk;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A world over a disk that tests can make fail.
fn over(disk: &FailingDisk) -> World {
    World::over(disk.records(LEASE), LEASE)
}

#[test]
fn reclaim_complete_is_answered_when_the_record_is_durable() {
    let disk = FailingDisk::default();
    let mut world = over(&disk);
    let clients: Vec<Peer> = (0..20).map(|n| world.connect(&n.to_string(), n)).collect();
    let writes = disk.writes();
    let answers: Vec<_> = clients.iter().map(|peer| world.complete(peer)).collect();
    assert!(
        answers
            .iter()
            .all(|answer| answer.lock().unwrap().is_none())
    );
    let again = world.state.reclaim_complete(clients[0].client, false);
    assert!(matches!(again, Outcome::Ready(Err(Status::Delay))));
    let one_fs = world.state.reclaim_complete(clients[0].client, true);
    assert!(matches!(one_fs, Outcome::Ready(Ok(()))));
    world.work();
    for answer in answers {
        assert_eq!(*answer.lock().unwrap(), Some(Ok(())));
    }
    assert_eq!(disk.writes(), writes + 1, "all share one sync");
    assert_eq!(disk.owners().len(), 20);
}

#[test]
fn answer_is_kept_for_one_who_asks_late() {
    let mut world = World::new();
    let peer = world.connect("a", 1);
    let answer = world.state.reclaim_complete(peer.client, false);
    world.work();
    assert_eq!(answer.wait(), Ok(()));
}

#[test]
fn full_disk_refuses_new_clients_forgets_none_and_is_logged_once() {
    let disk = FailingDisk::default();
    let mut world = over(&disk);
    let known = world.peer("known", 1);
    let gone = world.peer("gone", 2);
    disk.fails(true);
    let log = captured_log(|| {
        world.state.expire_client(gone.client).unwrap();
        let new = world.connect("new", 3);
        for _ in 0..5 {
            let answer = world.complete(&new);
            world.pass(Duration::from_secs(2));
            assert_eq!(*answer.lock().unwrap(), Some(Err(Status::Delay)));
        }
        // Some time passes between two tries.
        let tries = disk.writes();
        let answer = world.complete(&new);
        world.work();
        assert_eq!((disk.writes(), *answer.lock().unwrap()), (tries, None));
        assert_eq!(disk.owners(), ["gone", "known"]);
        disk.fails(false);
        world.pass(Duration::from_secs(2));
        assert_eq!(*answer.lock().unwrap(), Some(Ok(())));
    });
    assert_eq!(
        disk.owners(),
        ["known", "new"],
        "the removal was tried until it succeeded"
    );
    assert_eq!(log.lines().count(), 2, "{log}");
    assert!(
        log.contains("state directory") && log.contains("saved again"),
        "{log}"
    );
    world.renew(&known, 1).unwrap();
}

#[test]
fn recorded_clients_reclaim_after_a_restart_and_others_wait_for_them() {
    let disk = FailingDisk::default();
    let mut world = over(&disk);
    world.peer("a", 1);
    world.connect("b", 2);
    drop(world);
    let mut world = over(&disk);
    assert!(world.state.is_in_grace());
    let [a, b] = [("a", 1), ("b", 2)].map(|(name, connection)| world.connect(name, connection));
    let files = Disk::default();
    let open =
        |world: &mut World, peer, reclaims| world.open_with(peer, b"o", 3, files.held(), reclaims);
    assert!(open(&mut world, &a, true).is_ok());
    assert_eq!(
        open(&mut world, &b, true),
        Err(Status::NoGrace),
        "it was not recorded"
    );
    let answers = [&a, &b].map(|peer| world.complete(peer));
    assert_eq!(
        *answers[0].lock().unwrap(),
        Some(Ok(())),
        "its record is there"
    );
    world.work();
    assert_eq!(*answers[1].lock().unwrap(), Some(Ok(())));
    assert!(!world.state.is_in_grace());
    assert!(open(&mut world, &b, false).is_ok());
}

#[test]
fn grace_lasts_as_long_as_the_longest_lease_of_the_clients() {
    let disk = FailingDisk::default();
    World::over(disk.records(LEASE), LEASE).peer("a", 1);
    let short = LEASE / 9;
    let mut world = World::over(disk.records(short), short);
    world.pass(LEASE - Duration::from_secs(1));
    assert!(world.state.is_in_grace());
    assert_eq!(disk.lease(), LEASE, "the server may restart once more");
    world.pass(Duration::from_secs(2));
    world.work();
    assert!(!world.state.is_in_grace());
    assert_eq!((disk.owners().len(), disk.lease()), (0, short));
}

#[test]
fn administrator_ends_grace_and_clients() {
    let disk = FailingDisk::default();
    over(&disk).peer("a", 1);
    let mut world = over(&disk);
    world.state.end_grace();
    world.state.end_grace();
    assert!(world.state.is_in_grace(), "until its record is gone");
    world.work();
    assert!(!world.state.is_in_grace() && disk.owners().is_empty());
    let b = world.peer("b", 2);
    world.state.expire_client(b.client).unwrap();
    assert_eq!(
        world.state.expire_client(b.client),
        Err(Status::StaleClientId)
    );
    world.work();
    assert_eq!((world.state.usage().clients, disk.owners().len()), (0, 0));
}

#[test]
fn retry_of_a_request_goes_on_when_that_is_finished() {
    let mut world = World::new();
    let peer = world.peer("a", 1);
    let count = Arc::new(AtomicUsize::new(0));
    let retry = |by: usize| {
        let count = Arc::clone(&count);
        Box::new(move || {
            count.fetch_add(by, Relaxed);
        })
    };
    let slot = SlotId(0);
    world.state.when_finished(peer.session, slot, retry(1));
    assert_eq!(count.load(Relaxed), 1, "nothing is in progress");
    let Ok(Sequenced::New(request)) = world.sequence(&peer, 1) else {
        panic!("it is new");
    };
    assert!(matches!(
        world.sequence(&peer, 1),
        Ok(Sequenced::InProgress)
    ));
    world.state.when_finished(peer.session, slot, retry(10));
    world.state.when_finished(peer.session, slot, retry(100));
    assert_eq!(count.load(Relaxed), 1);
    world
        .state
        .finish(request, Some(Bytes::from_static(b"reply")));
    assert_eq!(count.load(Relaxed), 101, "the last that came");
    assert!(matches!(world.sequence(&peer, 1), Ok(Sequenced::Replay(_))));
}

#[test]
fn retry_goes_on_when_its_session_is_gone() {
    let mut world = World::new();
    let peer = world.peer("a", 1);
    let state = world.state.clone();
    let Ok(Sequenced::New(request)) = world.sequence(&peer, 1) else {
        panic!("it is new");
    };
    let found = Arc::new(Mutex::new(None));
    let (then, session) = (Arc::clone(&found), peer.session);
    let retry = Box::new(move || {
        let is_there = state.with(|locked| locked.server.is_in_progress(session, SlotId(0)));
        *then.lock().unwrap() = Some(is_there);
    });
    world.state.when_finished(peer.session, SlotId(0), retry);
    world.state.expire_client(peer.client).unwrap();
    assert_eq!(*found.lock().unwrap(), Some(false));
    world.state.finish(request, None);
}

#[test]
fn last_owner_ends_the_thread_with_what_it_still_has_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let settings = || Nfs4Settings {
        state_dir: Some(dir.path().into()),
        ..Nfs4Settings::default()
    };
    let state = Nfs4State::open(settings()).unwrap();
    let identity = *state.identity();
    let refused = Nfs4State::open(settings());
    assert!(matches!(refused, Err(Nfs4StateError::InUse { .. })));
    let clone = state.clone();
    drop(state);
    let now = clone.0.shared.lock().server.usage();
    assert_eq!(now, Usage::default());
    let mut world = World {
        // Only its methods are used, not its thread.
        worker: World::new().worker,
        state: clone,
        now: Arc::new(Mutex::new(Instant::now())),
    };
    let peer = world.connect("a", 1);
    assert_eq!(
        world.state.reclaim_complete(peer.client, false).wait(),
        Ok(())
    );
    drop(world);
    let state = Nfs4State::open(settings()).unwrap();
    assert!(state.is_in_grace() && *state.identity() == identity);
}

#[test]
fn lease_takes_time() {
    let refused = Nfs4State::open(Nfs4Settings {
        lease: Duration::ZERO,
        ..Nfs4Settings::default()
    });
    assert!(matches!(refused, Err(Nfs4StateError::NoLease)));
}
