//! The cache in isolation: eviction by age, and any order of calls, results and aborted executions.

use super::entry::MAX_AGE;
use super::*;
use nfs_proto::{NFS_PROGRAM, NFS_V3};
use oncrpc::xdr::Writer;
use oncrpc::{Caller, Credential, DeliveryQuery, OpenConnection, write_call};
use proptest::collection::vec;
use proptest::prelude::*;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

fn reply() -> Reply {
    let mut w = Writer::default();
    (0..7).for_each(|_| w.u32(0));
    Reply::Message(w.finish())
}

/// A connection from 127.0.0.`last` with so many credits.
fn connection(last: u8, credits: u32) -> Caller {
    Caller {
        credits,
        ..Caller::new(([127, 0, 0, last], 700).into())
    }
}

/// A cache whose time the test makes, and whose calls are named by their XIDs.
struct Cache(DuplicateRequestCache);

impl Cache {
    fn with_limit(limit: usize) -> Self {
        Self(DuplicateRequestCache::with_store(Store::with_limit(limit)))
    }

    /// The ticket for a call that is to be executed; none if it was or is. An error if there is no room.
    fn enter(&self, caller: &Caller, xid: u32, now: Instant) -> Result<Option<Ticket>, ()> {
        let mut w = Writer::default();
        let target = oncrpc::Procedure {
            prog: NFS_PROGRAM,
            vers: NFS_V3,
            proc: nfs_proto::Procedure::Remove as u32,
        };
        write_call(&mut w, xid, target, &Credential::None);
        let call = Call::parse(w.finish(), caller).expect("a good call");
        match self.0.enter(&call, now) {
            Entered::First(entry) => Ok(Some(Ticket {
                shared: Arc::clone(&self.0.shared),
                entry,
            })),
            Entered::Again(_) => Ok(None),
            Entered::Full => Err(()),
        }
    }

    /// Executes a call if it is not known; whether it was executed.
    fn execute(&self, caller: &Caller, xid: u32, now: Instant) -> bool {
        let ticket = self.enter(caller, xid, now).expect("there is room");
        let first = ticket.is_some();
        if let Some(ticket) = ticket {
            ticket.finish(&reply(), now);
        }
        first
    }
}

#[test]
fn old_replies_are_forgotten_beside_a_slow_call_and_recent_ones_are_kept() {
    let cache = Cache::with_limit(100);
    let start = Instant::now();
    let at = |after| start + Duration::from_secs(after);
    let caller = connection(1, 16);
    let slow = cache.enter(&caller, 1, start).expect("there is room");
    assert!(cache.execute(&caller, 2, start));
    assert!(cache.execute(&caller, 3, at(100)));
    assert!(!cache.execute(&caller, 2, at(120)), "it is remembered");
    assert!(cache.execute(&caller, 2, at(121)), "it was forgotten");
    assert!(!cache.execute(&caller, 3, at(121)), "it is young");
    assert!(!cache.execute(&caller, 1, at(1000)), "it is being executed");
    drop(slow);
}

#[test]
fn connection_keeps_the_results_of_as_many_calls_as_can_be_unanswered() {
    let cache = Cache::with_limit(1000);
    let now = Instant::now();
    let caller = connection(1, 40);
    for xid in 0..81 {
        assert!(cache.execute(&caller, xid, now));
    }
    for xid in 1..81 {
        assert!(!cache.execute(&caller, xid, now), "{xid} is remembered");
    }
    assert!(cache.execute(&caller, 0, now), "it was answered long ago");
}

#[test]
fn late_copy_of_a_call_finds_its_results_although_the_grant_is_small() {
    let cache = Cache::with_limit(1000);
    let now = Instant::now();
    let (given_up, next) = (connection(1, 1), connection(1, 1));
    for xid in 0..64 {
        assert!(cache.execute(&next, xid, now));
    }
    assert!(!cache.execute(&given_up, 0, now), "it is executed twice");
}

#[test]
fn results_of_a_lost_connection_outlast_many_calls_on_the_next() {
    let cache = Cache::with_limit(1000);
    let now = Instant::now();
    let lost = connection(1, 32);
    for xid in 0..64 {
        assert!(cache.execute(&lost, xid, now));
    }
    let next = connection(1, 32);
    for xid in 100..10_000 {
        assert!(cache.execute(&next, xid, now));
    }
    for xid in 0..64 {
        assert!(!cache.execute(&next, xid, now), "{xid} is remembered");
    }
    assert_eq!(cache.0.shared.store.check(), (128, 128));
}

#[test]
fn address_with_many_connections_takes_no_results_of_others() {
    let cache = Cache::with_limit(64);
    let now = Instant::now();
    let other = connection(2, 16);
    for xid in 0..16 {
        assert!(cache.execute(&other, xid, now));
    }
    for xid in 0..1000 {
        assert!(cache.execute(&connection(1, 16), xid, now));
    }
    for xid in 0..16 {
        assert!(!cache.execute(&other, xid, now), "{xid} is remembered");
    }
    let (known, _) = cache.0.shared.store.check();
    assert_eq!(known, 16 + 24, "half of what the other one left");
    assert!(
        cache.execute(&connection(3, 1), 0, now),
        "one more has room"
    );
}

#[test]
fn calls_in_flight_are_never_forgotten_for_others() {
    let cache = Cache::with_limit(8);
    let now = Instant::now();
    let caller = connection(1, 100);
    let in_flight: Vec<_> = (0..4)
        .map(|xid| cache.enter(&caller, xid, now).expect("there is room"))
        .collect();
    assert!(cache.enter(&caller, 4, now).is_err(), "half is for others");
    for xid in 0..4 {
        assert!(!cache.execute(&caller, xid, now), "{xid} is remembered");
    }
    drop(in_flight);
    assert_eq!(cache.0.shared.store.check(), (0, 0));
}

#[test]
fn results_of_clients_that_are_gone_are_forgotten_with_the_calls_of_others() {
    let cache = Cache::with_limit(10_000);
    let start = Instant::now();
    for last in 1..200 {
        assert!(cache.execute(&connection(last, 16), 1, start));
    }
    let later = start + MAX_AGE + Duration::from_secs(1);
    let one = connection(200, 1);
    for xid in 0..2000 {
        assert!(cache.execute(&one, xid, later));
    }
    assert_eq!(cache.0.shared.store.check(), (64, 64));
    let stats = cache.0.stats();
    assert_eq!(
        (stats.misses, stats.expired, stats.entries),
        (2199, 199, 64)
    );
}

/// A client's calls of names in one directory, and how many of them were executed.
struct Client {
    cache: DuplicateRequestCache,
    connections: Connections,
    executed: Arc<AtomicU32>,
}

/// A connection of it, open until this is dropped.
struct Connected {
    caller: Caller,
    /// Queries about the replies.
    queries: Arc<Mutex<Vec<DeliveryQuery>>>,
    _open: OpenConnection,
}

impl Connected {
    /// Answers the queries so far: the client has received all replies.
    fn delivered(&self) {
        let queries = std::mem::take(&mut *self.queries.lock().unwrap());
        queries.into_iter().for_each(DeliveryQuery::delivered);
    }
}

impl Client {
    fn new() -> Self {
        let cache = DuplicateRequestCache::new();
        let connections = Connections::default();
        cache.know_connections(connections.clone());
        let executed = Arc::default();
        Self {
            cache,
            connections,
            executed,
        }
    }

    fn connect(&self) -> Connected {
        let caller = connection(1, 16);
        let queries = Arc::new(Mutex::new(Vec::new()));
        let asked = Arc::clone(&queries);
        let open = self.connections.add(caller.connection, |_| ());
        let open = open.answering_queries(move |query| asked.lock().unwrap().push(query));
        Connected {
            caller,
            queries,
            _open: open,
        }
    }

    /// Makes a call of this procedure; it is executed by `answer`.
    fn answer(
        &self,
        on: &Connected,
        xid: u32,
        procedure: nfs_proto::Procedure,
        name: &[u8],
        answer: fn(Call) -> Answer,
    ) -> Answer {
        let mut w = Writer::default();
        let target = oncrpc::Procedure {
            prog: NFS_PROGRAM,
            vers: NFS_V3,
            proc: procedure as u32,
        };
        write_call(&mut w, xid, target, &Credential::None);
        w.opaque(b"directory");
        w.opaque(name);
        let call = Call::parse(w.finish(), &on.caller).expect("a good call");
        let execute = || {
            let executed = Arc::clone(&self.executed);
            move |call| {
                executed.fetch_add(1, SeqCst);
                answer(call)
            }
        };
        self.cache.once(call, execute(), || Box::new(execute()))
    }

    /// Makes a MKDIR.
    fn mkdir(&self, on: &Connected, xid: u32) -> Answer {
        self.answer(on, xid, nfs_proto::Procedure::MkDir, b"x", succeed)
    }

    /// How many calls were executed since the last time.
    fn executed(&self) -> u32 {
        self.executed.swap(0, SeqCst)
    }
}

/// Executes a call.
fn succeed(call: Call) -> Answer {
    let mut w = call.into_success();
    w.u32(0);
    Answer::Now(Reply::Message(w.finish()))
}

/// Executes a call on a thread.
fn succeed_by_job(call: Call) -> Answer {
    Answer::Blocking(Box::new(move || match succeed(call) {
        Answer::Now(reply) => reply,
        _ => unreachable!("it succeeds at once"),
    }))
}

/// The wait of a call for what is known later.
fn waits(answer: Answer) -> Wait {
    match answer {
        Answer::Later(mut wait) => {
            let mut cx = Context::from_waker(Waker::noop());
            assert!(wait.as_mut().poll(&mut cx).is_pending());
            wait
        }
        Answer::Now(reply) => panic!("{reply:?}"),
        Answer::Blocking(_) | Answer::Deferred(_) => panic!("it is executed"),
    }
}

/// The reply to a call whose wait ends now, or on another thread.
fn ends(mut wait: Wait) -> Reply {
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(reply) = wait.as_mut().poll(&mut cx) {
            return reply;
        }
        std::thread::yield_now();
    }
}

#[track_caller]
fn is_answered(answer: &Answer) {
    assert!(matches!(answer, Answer::Now(Reply::Message(_))));
}

#[test]
fn reply_that_was_received_answers_no_other_open_connection() {
    let client = Client::new();
    let (first, second) = (client.connect(), client.connect());
    is_answered(&client.mkdir(&first, 5));
    let wait = waits(client.mkdir(&second, 5));
    assert_eq!(client.executed(), 1);
    first.delivered();
    assert!(matches!(ends(wait), Reply::Message(_)));
    assert_eq!(client.executed(), 1, "it is another call");
    // It has an entry of its own.
    is_answered(&client.mkdir(&second, 5));
    assert_eq!(client.executed(), 0);
    let stats = client.cache.stats();
    assert_eq!((stats.misses, stats.hits), (2, 1));
}

#[test]
fn reply_that_was_not_received_answers_another_connection() {
    let client = Client::new();
    let (first, second) = (client.connect(), client.connect());
    is_answered(&client.mkdir(&first, 5));
    let wait = waits(client.mkdir(&second, 5));
    // The server does not know in time.
    first.queries.lock().unwrap().clear();
    assert!(matches!(ends(wait), Reply::Message(_)));
    assert_eq!(client.executed(), 1);
    // It breaks.
    let wait = waits(client.mkdir(&second, 5));
    drop(first);
    assert!(matches!(ends(wait), Reply::Message(_)));
    is_answered(&client.mkdir(&client.connect(), 5));
    assert_eq!(client.executed(), 0);
}

/// Two clients contend for the same name.
#[test]
fn equal_calls_at_the_same_time_are_both_executed_if_both_connections_live_on() {
    let client = Client::new();
    let (first, second) = (client.connect(), client.connect());
    let mkdir = |on, answer| client.answer(on, 5, nfs_proto::Procedure::MkDir, b"x", answer);
    let Answer::Blocking(job) = mkdir(&first, succeed_by_job) else {
        panic!("it is a job")
    };
    let mut wait = waits(mkdir(&second, succeed_by_job));
    job();
    let mut cx = Context::from_waker(Waker::noop());
    assert!(wait.as_mut().poll(&mut cx).is_pending(), "it is asked");
    first.delivered();
    assert!(matches!(ends(wait), Reply::Message(_)));
    assert_eq!(client.executed(), 2);
}

/// Connection 1 makes a directory, connection 2 removes it, connection 3 makes it again; each begins with
/// the same XID.
#[test]
fn call_with_a_used_xid_is_executed_if_its_name_was_changed_since_an_orderly_close() {
    let client = Client::new();
    let first = client.connect();
    is_answered(&client.mkdir(&first, 5));
    client.cache.close(&first.caller);
    drop(first);
    // The reply may have got lost in a relay.
    is_answered(&client.mkdir(&client.connect(), 5));
    assert_eq!(client.executed(), 1);
    let rmdir = |name| {
        let procedure = nfs_proto::Procedure::RmDir;
        is_answered(&client.answer(&client.connect(), 6, procedure, name, succeed));
    };
    rmdir(b"y");
    is_answered(&client.mkdir(&client.connect(), 5));
    assert_eq!(client.executed(), 1, "that is another name");
    rmdir(b"x");
    is_answered(&client.mkdir(&client.connect(), 5));
    assert_eq!(client.executed(), 2);
}

/// Other changes of the name say nothing after a break: a client makes its calls on the next connection in
/// any order.
#[test]
fn call_is_repeated_after_a_break_whatever_else_was_changed() {
    let client = Client::new();
    let first = client.connect();
    is_answered(&client.mkdir(&first, 5));
    drop(first);
    let procedure = nfs_proto::Procedure::RmDir;
    is_answered(&client.answer(&client.connect(), 6, procedure, b"x", succeed));
    is_answered(&client.mkdir(&client.connect(), 5));
    assert_eq!(client.executed(), 2);
}

/// The client has given the older connection up, and repeats its calls on the younger one.
#[test]
fn copy_that_comes_late_on_a_connection_at_its_end_is_not_executed() {
    let client = Client::new();
    let (older, younger) = (client.connect(), client.connect());
    is_answered(&client.mkdir(&younger, 5));
    let mut wait = waits(client.mkdir(&older, 5));
    younger.delivered();
    let mut cx = Context::from_waker(Waker::noop());
    assert!(wait.as_mut().poll(&mut cx).is_pending());
    drop(older);
    assert!(matches!(ends(wait), Reply::Nothing));
    assert_eq!(client.executed(), 1);
    // Otherwise it is a call of another client.
    let older = client.connect();
    let younger = client.connect();
    is_answered(&client.mkdir(&younger, 7));
    let mut wait = waits(client.mkdir(&older, 7));
    younger.delivered();
    assert!(wait.as_mut().poll(&mut cx).is_pending());
    older.queries.lock().unwrap().clear();
    assert!(matches!(ends(wait), Reply::Message(_)));
    assert_eq!(client.executed(), 2);
}

/// How many different calls there are, and how many connections.
const CALLS: usize = 3;
const CONNECTIONS: usize = 3;

/// The next step of a run. Numbers are taken modulo how many there are.
#[derive(Clone, Debug)]
enum Step {
    /// A call comes, for the first time or again.
    Call { call: usize, connection: usize },
    /// A thread is free for a call.
    Execute(usize),
    /// A connection ends before a thread was free for a call.
    Forget(usize),
    /// A connection ends on which somebody waits for results.
    GiveUp(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..CALLS, 0..CONNECTIONS).prop_map(|(call, connection)| Step::Call { call, connection }),
        2 => any::<usize>().prop_map(Step::Execute),
        1 => any::<usize>().prop_map(Step::Forget),
        1 => any::<usize>().prop_map(Step::GiveUp),
    ]
}

type Job = Box<dyn FnOnce() -> Reply + Send>;
type Wait = Pin<Box<dyn Future<Output = Reply> + Send>>;

/// A cache and what a server holds of the calls in it.
struct World {
    duplicates: DuplicateRequestCache,
    connections: [Caller; CONNECTIONS],
    executed: [Arc<AtomicU32>; CALLS],
    jobs: Vec<(usize, Job)>,
    waits: Vec<(usize, Wait)>,
}

impl World {
    fn new() -> Self {
        Self {
            duplicates: DuplicateRequestCache::new(),
            connections: [1, 2, 3].map(|port| Caller::new((CLIENT, port).into())),
            executed: Default::default(),
            jobs: Vec::new(),
            waits: Vec::new(),
        }
    }

    fn executed(&self, call: usize) -> u32 {
        self.executed[call].load(SeqCst)
    }

    fn call(&mut self, number: usize, connection: usize) {
        let mut w = Writer::default();
        let target = oncrpc::Procedure {
            prog: NFS_PROGRAM,
            vers: NFS_V3,
            proc: nfs_proto::Procedure::Remove as u32,
        };
        let xid = u32::try_from(number).expect("a small number");
        write_call(&mut w, xid, target, &Credential::None);
        let call = Call::parse(w.finish(), &self.connections[connection]).expect("a good call");
        let executed = Arc::clone(&self.executed[number]);
        let answer = self.duplicates.once(
            call,
            |call| {
                let execute = move || {
                    let times = executed.fetch_add(1, SeqCst) + 1;
                    let mut w = call.into_success();
                    w.u32(0);
                    w.u32(times);
                    Reply::Message(w.finish())
                };
                match number.is_multiple_of(2) {
                    true => Answer::Blocking(Box::new(execute)),
                    false => Answer::Deferred(Box::new(move |respond| respond.with(execute()))),
                }
            },
            || Box::new(|_| unreachable!("all connections are lost")),
        );
        match answer {
            Answer::Blocking(job) => {
                assert_eq!(self.executed(number), 0, "it was executed before");
                self.jobs.push((number, job));
            }
            Answer::Deferred(job) => {
                assert_eq!(self.executed(number), 0, "it was executed before");
                let job = || Respond::wait(job).expect("it responds");
                self.jobs.push((number, Box::new(job)));
            }
            Answer::Later(wait) => self.waits.push((number, wait)),
            Answer::Now(Reply::Nothing) => assert!(self.is_running(number)),
            Answer::Now(reply) => self.check_results(number, &reply),
        }
    }

    fn is_running(&self, call: usize) -> bool {
        self.jobs.iter().any(|(number, _)| *number == call)
    }

    /// Results say which execution they are of: there is one.
    fn check_results(&self, call: usize, reply: &Reply) {
        assert_eq!(self.executed(call), 1);
        assert_eq!(results_of(reply), Some(&[0, 0, 0, 0, 0, 0, 0, 1][..]));
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Call { call, connection } => self.call(call, connection),
            Step::Execute(job) if !self.jobs.is_empty() => {
                let (call, job) = self.jobs.remove(job % self.jobs.len());
                self.check_results(call, &job());
            }
            Step::Forget(job) if !self.jobs.is_empty() => {
                drop(self.jobs.remove(job % self.jobs.len()));
            }
            Step::GiveUp(wait) if !self.waits.is_empty() => {
                drop(self.waits.remove(wait % self.waits.len()));
            }
            Step::Execute(_) | Step::Forget(_) | Step::GiveUp(_) => {}
        }
        self.look_after_waits();
        for call in 0..CALLS {
            let running = self.jobs.iter().filter(|(number, _)| *number == call);
            assert!(running.count() <= 1, "a call is executed by one");
            let waiting = self.waits.iter().filter(|(number, _)| *number == call);
            assert!(waiting.count() <= 1, "the last one waits, and no other");
        }
    }

    /// Everybody who waits gets the results when they are there, and goes when there will be none.
    fn look_after_waits(&mut self) {
        for (call, mut wait) in std::mem::take(&mut self.waits) {
            let mut cx = Context::from_waker(Waker::noop());
            match wait.as_mut().poll(&mut cx) {
                Poll::Pending => {
                    assert!(self.is_running(call), "there is something to wait for");
                    self.waits.push((call, wait));
                }
                Poll::Ready(Reply::Nothing) => {}
                Poll::Ready(reply) if self.executed(call) > 0 => self.check_results(call, &reply),
                Poll::Ready(reply) => {
                    assert!(
                        matches!(reply, Reply::Message(_)),
                        "it is told to come again"
                    );
                    assert_eq!(results_of(&reply), None);
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn no_call_is_executed_twice_and_no_waiter_is_left_behind(steps in vec(step(), 1..60)) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
        }
        world.jobs.clear();
        world.look_after_waits();
        prop_assert!(world.waits.is_empty());
        let done = (0..CALLS).filter(|&call| world.executed(call) > 0).count();
        let kept = world.duplicates.shared.store.check();
        prop_assert_eq!(kept, (done, done), "nothing is left of what was not executed");
    }
}
