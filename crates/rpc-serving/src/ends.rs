//! Ends of connections that a server brings about itself: who asks for one, and which request counts.
//!
//! One task owns a connection. Its end is asked for elsewhere: when the server stops, by a new connection that needs the
//! place, by the service, or by a thread on which the service failed. Each request is a flag, and wakes the owner, which
//! looks at the flags in its turns.

use oncrpc::{Caller, Closing, Connections, OpenConnection};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::atomic::{
    AtomicU8,
    Ordering::{AcqRel, Acquire},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Why a server ends a connection of its own accord. Those that wait for the client come first: the later one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum End {
    /// The server stops, and the calls in service are answered; or its client was dropped.
    #[error("the connection is closed")]
    Closed,
    /// The service closes it behind its replies ([`Closing::AfterReplies`]).
    #[error("the service closed it")]
    ByService,
    /// The service ends it at once ([`Closing::AtOnce`]).
    #[error("the service ended it at once")]
    Aborted,
    /// It gives way to a new connection.
    #[error("evicted for a new connection")]
    Evicted,
    /// The service panicked on a call, which therefore gets no reply. The connection ends, so that the client knows (RFC
    /// 8166 §4.5.4). Other connections go on.
    #[error("the service failed")]
    ServiceFailed,
}

impl End {
    /// All of them, each at the place of its flag.
    const ALL: [Self; 5] = [
        Self::Closed,
        Self::ByService,
        Self::Aborted,
        Self::Evicted,
        Self::ServiceFailed,
    ];

    fn flag(self) -> u8 {
        1 << self as u8
    }
}

impl From<Closing> for End {
    fn from(closing: Closing) -> Self {
        match closing {
            Closing::AfterReplies => Self::ByService,
            Closing::AtOnce => Self::Aborted,
        }
    }
}

/// Requests to end one connection, which any thread may add to. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct EndRequests(Arc<Requests>);

#[derive(Debug, Default)]
struct Requests {
    /// Flags of the requests so far.
    asked: AtomicU8,
    owner: Mutex<Option<Waker>>,
}

impl EndRequests {
    /// Asks for the end of the connection, and wakes its owner.
    pub fn ask(&self, end: End) {
        self.0.asked.fetch_or(end.flag(), AcqRel);
        let owner = self.owner().clone();
        owner.into_iter().for_each(Waker::wake);
    }

    /// Whether this was asked for.
    pub fn has(&self, end: End) -> bool {
        self.0.asked.load(Acquire) & end.flag() != 0
    }

    /// The request that counts.
    pub fn prevailing(&self) -> Option<End> {
        let last = self.0.asked.load(Acquire).checked_ilog2()?;
        Some(End::ALL[last as usize])
    }

    /// Adds the connection of this caller to a registry, from which the service closes it.
    pub fn register(&self, connections: &Connections, caller: &Caller) -> OpenConnection {
        let requests = self.clone();
        let close = move |when: Closing| requests.ask(when.into());
        let open = connections.add(caller.connection, close);
        open.of_peer(caller.addr)
    }

    fn owner(&self) -> MutexGuard<'_, Option<Waker>> {
        let owner = self.0.owner.lock();
        owner.unwrap_or_else(PoisonError::into_inner)
    }
}

/// The stop of a server, or of something else that tasks have to end with. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<Mutex<Joined>>);

#[derive(Debug, Default)]
struct Joined {
    is_set: bool,
    last: u64,
    all: BTreeMap<u64, EndRequests>,
}

impl Stop {
    /// Asks everything that has joined to [end](End::Closed), in the order in which it did, so that a run in virtual time is
    /// reproducible; and all that joins later.
    pub fn set(&self) {
        let mut joined = self.lock();
        joined.is_set = true;
        let all: Vec<_> = joined.all.values().cloned().collect();
        drop(joined);
        all.iter().for_each(|requests| requests.ask(End::Closed));
    }

    /// Adds a connection, or another task that ends with the server.
    pub fn join(&self) -> Ends {
        let requests = EndRequests::default();
        let mut joined = self.lock();
        if joined.is_set {
            requests.ask(End::Closed);
        }
        joined.last += 1;
        let number = joined.last;
        joined.all.insert(number, requests.clone());
        drop(joined);
        Ends {
            stop: self.clone(),
            number,
            requests,
            told: None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Joined> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The requests to end one connection, at its owner.
#[derive(Debug)]
pub struct Ends {
    stop: Stop,
    number: u64,
    requests: EndRequests,
    /// The waker that the requests wake.
    told: Option<Waker>,
}

impl Ends {
    /// The requests, for those who ask and for the owner.
    pub fn requests(&self) -> &EndRequests {
        &self.requests
    }

    /// Has the task woken by each request from now on. Cheap if that does not change, as in each turn of a connection: to
    /// note the task each time cost a driver with a thousand busy connections a fifth of its time. Returns whether it
    /// changed.
    pub fn listen(&mut self, cx: &Context<'_>) -> bool {
        let same = |told: &Waker| told.will_wake(cx.waker());
        if self.told.as_ref().is_some_and(same) {
            return false;
        }
        let task = Some(cx.waker().clone());
        self.requests.owner().clone_from(&task);
        self.told = task;
        true
    }

    /// Waits for a request, and returns the one that counts.
    pub async fn asked(&mut self) -> End {
        poll_fn(|cx| {
            self.listen(cx);
            self.requests
                .prevailing()
                .map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        let requests = self.stop.lock().all.remove(&self.number);
        // Its waker may be the last that refers to a task.
        drop(requests);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::task::Wake;

    #[tokio::test]
    async fn tasks_end_in_the_order_in_which_they_joined() {
        let stop = Stop::default();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..20 {
            let (mut ends, heard) = (stop.join(), Arc::clone(&heard));
            tasks.spawn(async move {
                assert_eq!(ends.asked().await, End::Closed);
                heard.lock().expect("no panic holds it").push(number);
            });
        }
        tokio::task::yield_now().await;
        stop.set();
        tasks.join_all().await;
        assert!(stop.lock().all.is_empty());
        assert_eq!(stop.join().asked().await, End::Closed, "it comes too late");
        let heard = heard.lock().expect("no panic holds it");
        assert!(heard.is_sorted() && heard.len() == 20);
    }

    #[test]
    fn request_that_waits_for_nobody_counts_before_those_that_do() {
        let ends = Stop::default().join();
        let requests = ends.requests();
        let mut counts = Vec::new();
        for end in End::ALL {
            requests.ask(end);
            counts.push(requests.prevailing());
        }
        requests.ask(End::Closed);
        counts.push(requests.prevailing());
        let expected = End::ALL.into_iter().chain([End::ServiceFailed]);
        assert_eq!(counts, Vec::from_iter(expected.map(Some)));
        assert!(requests.has(End::Aborted));
    }

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn each_request_wakes_the_owner_that_listens_last() {
        let mut ends = Stop::default().join();
        let [before, now] = [(); 2].map(|()| Arc::new(Wakes::default()));
        for (owner, changes) in [(&before, true), (&now, true), (&now, false)] {
            let waker = Waker::from(Arc::clone(owner));
            assert_eq!(ends.listen(&Context::from_waker(&waker)), changes);
        }
        let connections = Connections::default();
        let caller = Caller::new(([192, 0, 2, 1], 700).into());
        let open = ends.requests().register(&connections, &caller);
        assert!(connections.close(caller.connection));
        assert_eq!(ends.requests().prevailing(), Some(End::ByService));
        assert!(connections.abort(caller.connection));
        assert_eq!(ends.requests().prevailing(), Some(End::Aborted));
        assert_eq!((before.0.load(Relaxed), now.0.load(Relaxed)), (0, 2));
        drop(open);
    }
}
