//! The cache in isolation: eviction by age, and any order of calls, results and aborted executions.

use super::*;
use nfs_proto::{NFS_PROGRAM, NFS_V3};
use oncrpc::xdr::Writer;
use oncrpc::{Caller, write_call};
use proptest::collection::vec;
use proptest::prelude::*;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

fn reply() -> Reply {
    let mut w = Writer::default();
    (0..7).for_each(|_| w.u32(0));
    Reply::Message(w.finish())
}

#[test]
fn old_replies_are_evicted_behind_a_slow_call_and_recent_ones_are_kept() {
    let shared = DuplicateRequestCache::new().shared;
    let start = Instant::now();
    let connection = Caller::new((CLIENT, 1).into()).connection;
    let enter = |key, after: u64| {
        let now = start + Duration::from_secs(after);
        match shared.enter(CLIENT, connection, key, now) {
            Entered::First(ticket) => Some(ticket),
            Entered::Again(_) => None,
            Entered::Full => panic!("there is room"),
        }
    };
    let slow = enter(1, 0).expect("it is new");
    enter(2, 0).expect("it is new").finish(&reply());
    enter(3, 100).expect("it is new").finish(&reply());
    assert!(enter(2, 120).is_none(), "it is remembered");
    assert!(enter(2, 121).is_some(), "it was forgotten");
    assert!(enter(3, 121).is_none(), "it is young");
    assert!(enter(1, 1000).is_none(), "it is being executed");
    drop(slow);
}

/// How many different calls there are, and how many connections.
const CALLS: usize = 3;
const CONNECTIONS: usize = 3;

/// What happens next. Numbers are taken modulo how many there are.
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
        let answer = self.duplicates.once(call, |call| {
            Answer::Blocking(Box::new(move || {
                let times = executed.fetch_add(1, SeqCst) + 1;
                let mut w = call.into_success();
                w.u32(0);
                w.u32(times);
                Reply::Message(w.finish())
            }))
        });
        match answer {
            Answer::Blocking(job) => {
                assert_eq!(self.executed(number), 0, "it was executed before");
                self.jobs.push((number, job));
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
        let state = world.duplicates.shared.lock();
        let ordered: usize = state.clients.values().map(VecDeque::len).sum();
        prop_assert_eq!(ordered, state.entries.len());
        let done = (0..CALLS).filter(|&call| world.executed(call) > 0).count();
        prop_assert_eq!(state.entries.len(), done, "nothing is left of what was not executed");
    }
}
