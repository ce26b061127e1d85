//! Replacement of groups: for which users, by which groups, and how often the database is asked.

use super::*;
use oncrpc::xdr::Writer;
use oncrpc::{Caller, Procedure, write_call};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

/// Users below 1000 are in as many groups as their number says, from 5000 on; 1000 makes it fail.
#[derive(Clone, Default)]
struct Database {
    asked: Arc<AtomicUsize>,
}

impl UserDatabase for Database {
    fn user(&self, uid: u32) -> io::Result<Option<UserEntry>> {
        self.asked.fetch_add(1, SeqCst);
        match uid {
            1000 => Err(io::ErrorKind::TimedOut.into()),
            1.. if uid < 1000 => Ok(Some(UserEntry {
                gid: 5000,
                groups: (5000..5000 + uid).collect(),
            })),
            _ => Ok(None),
        }
    }
}

fn call(local_uid: Option<u32>, uid: u32, gid: u32) -> Call {
    let caller = Caller {
        local_uid,
        ..Caller::new(([127, 0, 0, 1], 700).into())
    };
    call_of(&caller, uid, gid)
}

/// A call of user `uid` of the machine with this number.
fn call_from(machine: u8, uid: u32) -> Call {
    call_of(&Caller::new(([127, 0, 0, machine], 700).into()), uid, 9)
}

fn group(machine: u8) -> PeerGroup {
    PeerGroup::of([127, 0, 0, machine].into())
}

fn call_of(caller: &Caller, uid: u32, gid: u32) -> Call {
    let mut w = Writer::default();
    let cred = Credential::Sys(AuthSys {
        uid,
        gid,
        gids: [0, 27].into_iter().collect(),
        ..AuthSys::default()
    });
    let procedure = Procedure {
        prog: 1,
        vers: 1,
        proc: 1,
    };
    write_call(&mut w, 1, procedure, &cred);
    Call::parse(w.finish(), caller).unwrap()
}

/// The group and the other groups of the caller when both steps were done.
fn groups(users: &UserGroups, mut call: Call) -> (u32, Vec<u32>) {
    if !users.settle(&mut call) {
        assert!(users.look_up(&mut call));
    }
    match call.cred {
        Credential::Sys(sys) => (sys.gid, sys.gids.to_vec()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn identified_users_have_the_groups_of_the_database() {
    let users = UserGroups::new(Database::default());
    let all: Vec<u32> = (5000..5040).collect();
    assert_eq!(
        groups(&users, call(Some(40), 40, 5007)),
        (5007, all.clone())
    );
    assert_eq!(groups(&users, call(Some(40), 40, 0)), (5000, all));
    assert_eq!(
        groups(&users, call(Some(2000), 2000, 0)),
        (ANONYMOUS, vec![])
    );
    assert_eq!(
        groups(&users, call(Some(1000), 1000, 0)),
        (ANONYMOUS, vec![])
    );
    // Those of others are believed, and what root's own processes say.
    assert_eq!(groups(&users, call(None, 40, 9)), (9, vec![0, 27]));
    assert_eq!(groups(&users, call(Some(0), 40, 9)), (9, vec![0, 27]));
}

#[test]
fn callers_on_other_machines_keep_their_first_group_only() {
    let users = UserGroups::new(Database::default()).of_everybody();
    let (gid, all) = groups(&users, call(None, 40, 9));
    assert_eq!((gid, all.len()), (9, 40), "more than AUTH_SYS has room for");
    assert_eq!(groups(&users, call(None, 2000, 9)), (9, vec![]));
    assert_eq!(groups(&users, call(Some(0), 3, 9)).1.len(), 3);
}

#[test]
fn database_is_asked_once_for_a_user_also_where_it_has_none() {
    let database = Database::default();
    let users = UserGroups::new(database.clone()).of_everybody();
    for uid in [40, 2000, 1000] {
        let mut first = call(None, uid, 9);
        assert!(!users.settle(&mut first), "it has to wait");
        assert!(users.look_up(&mut first));
        assert!(users.settle(&mut call(None, uid, 9)));
    }
    assert_eq!(database.asked.load(SeqCst), 3);
}

#[test]
fn those_who_come_while_the_database_is_asked_wait_for_its_answer() {
    let database = Database::default();
    let users = UserGroups::new(database.clone()).of_everybody();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(groups(&users, call(None, 40, 9)).1.len(), 40));
        }
    });
    assert_eq!(database.asked.load(SeqCst), 1);
}

/// Answers for user 40 at once, and for others when it is told to.
#[derive(Clone, Default)]
struct Hanging {
    asked: Arc<AtomicUsize>,
    released: Arc<(Mutex<bool>, Condvar)>,
}

impl UserDatabase for Hanging {
    fn user(&self, uid: u32) -> io::Result<Option<UserEntry>> {
        self.asked.fetch_add(1, SeqCst);
        let (released, changed) = &*self.released;
        let held = released.lock().unwrap();
        let hangs = |released: &mut bool| uid != 40 && !*released;
        drop(changed.wait_while(held, hangs).unwrap());
        Ok(None)
    }
}

#[test]
fn database_that_hangs_holds_so_many_threads_and_no_more() {
    let database = Hanging::default();
    let mut users = UserGroups::new(database.clone()).of_everybody();
    Arc::get_mut(&mut users.shared).unwrap().wait = Duration::ZERO;
    let most = u32::try_from(MAX_LOOKUPS).unwrap();
    // Each user on a machine of its own.
    let look_up = |uid| users.look_up(&mut call_from(u8::try_from(uid).unwrap(), uid));
    thread::scope(|scope| {
        let look_up = &look_up;
        let hung: Vec<_> = (1..most)
            .map(|uid| scope.spawn(move || look_up(uid)))
            .collect();
        while database.asked.load(SeqCst) + 1 < MAX_LOOKUPS {
            thread::yield_now();
        }
        assert!(!look_up(1), "it is being looked up already");
        assert!(look_up(40), "there is one place left");
        let last = scope.spawn(move || look_up(most));
        while database.asked.load(SeqCst) <= MAX_LOOKUPS {
            thread::yield_now();
        }
        assert!(!look_up(most + 1));
        assert!(look_up(40), "it is remembered");
        *database.released.0.lock().unwrap() = true;
        database.released.1.notify_all();
        assert!(
            hung.into_iter()
                .chain([last])
                .all(|call| call.join().unwrap())
        );
    });
    assert!(look_up(most + 1));
}

#[test]
fn machine_that_claims_many_users_leaves_lookups_to_others() {
    let database = Hanging::default();
    let mut users = UserGroups::new(database.clone()).of_everybody();
    Arc::get_mut(&mut users.shared).unwrap().wait = Duration::ZERO;
    let refused = AtomicUsize::new(0);
    thread::scope(|scope| {
        for uid in (100..).take(2 * MAX_LOOKUPS) {
            let (users, refused) = (&users, &refused);
            scope.spawn(move || {
                let is_known = users.look_up(&mut call_from(1, uid));
                refused.fetch_add(usize::from(!is_known), SeqCst);
            });
        }
        while database.asked.load(SeqCst) + refused.load(SeqCst) < 2 * MAX_LOOKUPS {
            thread::yield_now();
        }
        let asked = database.asked.load(SeqCst);
        let others = [2, 3].map(|machine| users.look_up(&mut call_from(machine, 40)));
        *database.released.0.lock().unwrap() = true;
        database.released.1.notify_all();
        assert_eq!((asked, others), (MAX_LOOKUPS / 2, [true; 2]));
    });
}

#[test]
fn machine_that_claims_many_users_takes_the_place_of_its_own_in_the_cache() {
    let now = Instant::now();
    let mut state = State::default();
    for uid in 0..100 {
        state.remember(uid, group(1), None, now);
    }
    let most = u32::try_from(MAX_USERS).unwrap();
    for uid in 100..3 * most {
        state.remember(uid, group(2), None, now);
    }
    assert_eq!(state.users.len(), MAX_USERS);
    assert!((0..100).all(|uid| state.users.contains_key(&uid)));
    assert!(state.users.contains_key(&(3 * most - 1)));
}

#[test]
fn groups_are_asked_for_again_after_a_while() {
    let now = Instant::now();
    let mut state = State::default();
    let entry = UserEntry {
        gid: 1,
        groups: vec![1],
    };
    state.remember(1, group(1), Some(Arc::new(entry)), now);
    state.remember(2, group(1), None, now);
    let second = Duration::from_secs(1);
    assert!(state.known(1, now + GROUPS_MAX_AGE - second).is_some());
    assert!(state.known(1, now + GROUPS_MAX_AGE).is_none());
    assert!(state.known(2, now + NO_GROUPS_MAX_AGE - second).is_some());
    assert!(state.known(2, now + NO_GROUPS_MAX_AGE).is_none());
}

#[test]
fn so_many_users_are_remembered_and_no_more() {
    let now = Instant::now();
    let mut state = State::default();
    let most = u32::try_from(MAX_USERS).unwrap();
    for uid in 0..most {
        state.remember(uid, group(1), None, now);
    }
    // One that was asked for again is as young as it looks.
    state.remember(0, group(1), None, now + Duration::from_secs(1));
    state.remember(most, group(1), None, now + Duration::from_secs(1));
    assert_eq!(state.users.len(), MAX_USERS);
    assert!(state.users.contains_key(&0) && state.users.contains_key(&most));
    assert!(!state.users.contains_key(&1));
}

#[test]
fn users_of_the_system_have_their_groups() {
    let root = SystemUsers.user(0).unwrap().unwrap();
    assert_eq!(root.gid, 0);
    assert!(root.groups.contains(&0));
    assert_eq!(SystemUsers.user(4_000_000_001).unwrap(), None);
}
