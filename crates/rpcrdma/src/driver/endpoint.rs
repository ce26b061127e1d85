//! A queue pair with its protocol state.

use super::budget::Account;
use super::clock;
use super::close_reason::CloseReason;
use super::job_replies::JobCounts;
use super::owner::Connection;
use oncrpc::xdr::padded;
use oncrpc::{Caller, Chain, ReceivedCall, Service};
use rpcrdma_proto::{MemoryNeed, Version};
use smallvec::SmallVec;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tracing::{debug, error, warn};
use verbs::{Completion, PostError, QueuePair};

/// Time limit for a graceful close. Providers have a shorter one of their own.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// One connection, owned by one task.
pub(crate) struct Endpoint {
    /// That of the provider: `IwarpQp`, or that of an RDMA device.
    pub(crate) qp: Box<dyn QueuePair>,
    pub(crate) connection: Connection,
    /// The caller that the service sees.
    pub(crate) caller: Caller,
    /// Service for calls of the peer, which also bounds the size of replies.
    pub(crate) service: Arc<dyn Service>,
    /// Account for the chunk memory of the peer's calls.
    pub(crate) account: Account,
    /// Job counters at the last look around.
    pub(crate) jobs: JobCounts,
    impossible: bool,
    /// Whether a reply to no call was logged.
    has_strays: bool,
}

/// Events of one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// None.
    Nothing,
    /// Messages and Writes have gone out, which brings no further work.
    Sent,
    /// Something moved, after which the next turn may find more.
    Moved,
}

impl Endpoint {
    pub(crate) fn new(
        qp: Box<dyn QueuePair>,
        connection: Connection,
        service: Arc<dyn Service>,
        account: Account,
    ) -> Self {
        Self {
            caller: Caller {
                credits: connection.grant(),
                ..Caller::new(qp.peer_addr())
            },
            qp,
            connection,
            service,
            account,
            jobs: JobCounts::default(),
            impossible: false,
            has_strays: false,
        }
    }

    /// Posts pending work requests, makes progress on the queue pair, and passes completions to the
    /// protocol. Returns what happened.
    ///
    /// Work requests in reaction to these completions go out with the next turn, together with
    /// those of the user, in one write.
    pub(crate) fn turn(&mut self) -> Turn {
        self.post();
        let mut turn = match self.qp.progress() {
            true => Turn::Moved,
            false => Turn::Nothing,
        };
        let mut only_sent = true;
        while let Some(completion) = self.qp.poll_cq() {
            let is_sent = matches!(
                completion,
                Completion::Send { .. } | Completion::Write { .. }
            );
            only_sent &= is_sent;
            self.connection.handle_completion(completion);
            if !is_sent {
                self.lend_memory(Waker::noop());
            }
            turn = match only_sent {
                true => Turn::Sent,
                false => Turn::Moved,
            };
        }
        if !self.has_strays && self.connection.counters().unknown_replies > 0 {
            self.has_strays = true;
            warn!(peer = %self.qp.peer_addr(), "RFC 5531 §9: a reply to no call; dropped");
        }
        turn
    }

    /// Leases memory to the peer's calls that need it. Returns whether one got some. If one still
    /// waits, `waker` is woken when memory is available.
    pub(crate) fn lend_memory(&mut self, waker: &Waker) -> bool {
        let mut lent = false;
        while let Some(need) = self.connection.poll_memory() {
            let bytes = need.pulls + self.for_reply(&need);
            let Some(lease) = self.account.take(bytes, waker) else {
                self.connection.handle_no_memory();
                break;
            };
            self.connection.handle_memory(lease);
            lent = true;
        }
        lent
    }

    /// Returns the bytes of chunk memory that the reply to a call may need: the bound by its
    /// arguments, limited by what the peer offers.
    fn for_reply(&self, need: &MemoryNeed<'_>) -> usize {
        if need.offered == 0 {
            return 0;
        }
        // A Long call has nothing in its Send; a service may know the bound all the same.
        let items: SmallVec<[(usize, usize); 1]> = match need.message {
            Some(_) => need.items().collect(),
            None => SmallVec::new(),
        };
        let (bytes, items) = (need.message.unwrap_or_default(), &items[..]);
        let bound = self.service.reply_bound(ReceivedCall { bytes, items });
        bound.map_or(need.offered, |bound| {
            let results = bound.results.iter().map(|&len| padded(len));
            need.offered.min(bound.fixed + results.sum::<usize>())
        })
    }

    /// Posts pending work requests. Returns whether there were any.
    pub(crate) fn post(&mut self) -> bool {
        if self.connection.calls_waiting() > 0 {
            self.connection.send_waiting(clock::now(), self.qp.as_mut());
        }
        let mut posted = false;
        while let Some(work) = self.connection.poll_post() {
            match self.qp.post(work) {
                Ok(()) => posted = true,
                // The protocol keeps to the limits by itself; this is for a provider that does not
                // keep to its own.
                Err(PostError::Full(work)) => {
                    self.connection.handle_refused(work);
                    break;
                }
                Err(PostError::Invalid(work)) => {
                    warn!(?work, peer = %self.qp.peer_addr(), "work that cannot be done");
                    self.impossible = true;
                }
            }
        }
        posted
    }

    /// Checks whether the connection can go on.
    pub(crate) fn check(&self) -> Result<(), CloseReason> {
        self.over().map_or(Ok(()), Err)
    }

    /// Returns why the connection cannot go on, if it cannot.
    pub(crate) fn over(&self) -> Option<CloseReason> {
        if let Some(violation) = self.connection.violation() {
            return Some(CloseReason::Violation(violation));
        }
        if self.impossible {
            return Some(CloseReason::Impossible);
        }
        self.qp.closed().cloned().map(CloseReason::Closed)
    }

    pub(crate) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.qp.poll_ready(cx)
    }

    /// Waits until there may be work. After progress it only yields to other tasks and timeouts: a
    /// peer that keeps sending must not starve them.
    pub(crate) async fn pause(&mut self, moved: bool) {
        if moved {
            tokio::task::yield_now().await;
        } else {
            std::future::poll_fn(|cx| self.poll_ready(cx)).await;
        }
    }

    /// Runs until the version is settled.
    pub(crate) async fn settle(&mut self) -> Result<Version, CloseReason> {
        loop {
            if let Some(version) = self.connection.version() {
                return Ok(version);
            }
            let moved = self.turn() != Turn::Nothing;
            if let Some(over) = self.over() {
                return Err(over);
            }
            self.pause(moved).await;
        }
    }

    /// Logs why the connection ended; `listen` is the name of the server, if this is the end of one.
    pub(crate) fn log_end(&self, over: &CloseReason, listen: Option<&str>) {
        let peer = self.qp.peer_addr();
        let reason = Chain(over);
        match over {
            CloseReason::Violation(violation) if !violation.is_of_peer() => {
                error!(listen, %peer, over = %reason, "this end cannot go on");
            }
            over if over.is_of_peer() => {
                warn!(listen, %peer, over = %reason, "the peer broke a rule")
            }
            _ => debug!(listen, %peer, over = %reason, "connection ends"),
        }
    }

    /// Closes the connection gracefully, if the peer cooperates. Further received data is ignored.
    pub(crate) async fn close(&mut self) {
        self.connection.withhold_calls();
        self.post();
        self.qp.close();
        let closing = async {
            while self.qp.closed().is_none() {
                let moved = self.qp.progress();
                self.pause(moved).await;
                while self.qp.poll_cq().is_some() {}
            }
        };
        if tokio::time::timeout(CLOSE_TIMEOUT, closing).await.is_err() {
            debug!(peer = %self.qp.peer_addr(), "the connection did not end in time");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::budget::Budget;
    use crate::driver::failed::FailedCalls;
    use crate::driver::owner::ConnectionOwner;
    use buffer::{Buffer, Pool};
    use rpcrdma_proto::v2::Dialect;
    use rpcrdma_proto::{
        Characteristics, Config, InlineThreshold, PrivateData, Receives, Registrations, Role,
        Versions, Xids,
    };
    use std::net::SocketAddr;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    use verbs::{
        Handle, Limits, Memory, NotPersistent, RegisterError, RemoteAddress, WorkRequest, WrId,
    };

    /// A queue pair whose peer sends without a pause, until it is told that it is over.
    struct Flooded {
        limits: Limits,
        over: Arc<AtomicBool>,
        turns: u32,
        done: Vec<Completion>,
    }

    impl QueuePair for Flooded {
        fn limits(&self) -> &Limits {
            &self.limits
        }

        fn post(&mut self, _: WorkRequest) -> Result<(), PostError> {
            Ok(())
        }

        fn register(&mut self, memory: Memory) -> Result<RemoteAddress, RegisterError> {
            Err(RegisterError::Closed(memory))
        }

        fn copy_in(&mut self, handle: Handle, _: usize, _: &[u8]) -> Result<(), NotPersistent> {
            Err(NotPersistent(handle))
        }

        fn copy_out(
            &mut self,
            handle: Handle,
            _: usize,
            _: &mut [u8],
        ) -> Result<(), NotPersistent> {
            Err(NotPersistent(handle))
        }

        fn poll_cq(&mut self) -> Option<Completion> {
            self.done.pop()
        }

        fn progress(&mut self) -> bool {
            self.turns += 1;
            assert!(self.turns < 1000, "nobody else has a turn");
            true
        }

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<()> {
            Poll::Ready(())
        }

        fn closed(&self) -> Option<&verbs::CloseReason> {
            self.over.load(SeqCst).then_some(&verbs::CloseReason::Local)
        }

        fn close(&mut self) {}

        fn peer_addr(&self) -> SocketAddr {
            "127.0.0.1:1".parse().expect("an address")
        }

        fn describe(&self) -> String {
            String::new()
        }
    }

    /// A connection whose peer sends without a pause, until another task has had its turn.
    fn flooded(role: Role, versions: Versions) -> Endpoint {
        let over = Arc::new(AtomicBool::new(false));
        tokio::spawn({
            let over = Arc::clone(&over);
            async move { over.store(true, SeqCst) }
        });
        endpoint(role, versions, over, Vec::new())
    }

    fn endpoint(
        role: Role,
        versions: Versions,
        over: Arc<AtomicBool>,
        done: Vec<Completion>,
    ) -> Endpoint {
        let limits = verbs_sim::EndOptions::default().limits;
        let config = Config {
            role,
            versions,
            dialect: Dialect::default(),
            xids: Xids::starting_at(1),
            characteristics: Characteristics::default(),
            own: PrivateData {
                send: InlineThreshold::DEFAULT,
                receive: InlineThreshold::DEFAULT,
                remote_invalidation: false,
            },
            credits: 1,
            first_grant: 0,
            backward_credits: 0,
            reserve_credit: false,
            max_chunk: 0,
            max_segment: 0,
            registrations: Registrations::OF_CALLS,
            persistent: None,
            one_region: false,
            receives: Receives::Posted,
            pool: Pool::new(0),
        };
        let owner = ConnectionOwner::new(FailedCalls::new());
        let connection = Connection::new(&config, owner, None, &limits);
        let qp = Flooded {
            limits,
            over,
            turns: 0,
            done,
        };
        let local = oncrpc::PeerGroup::of([127, 0, 0, 1].into());
        Endpoint::new(
            Box::new(qp),
            connection,
            Arc::new(oncrpc::Programs::new()),
            Budget::new(0).account(local),
        )
    }

    #[tokio::test]
    async fn others_have_their_turn_while_a_connection_ends_whose_peer_keeps_sending() {
        let mut endpoint = flooded(Role::Server, Versions::One);
        endpoint.close().await;
    }

    #[tokio::test]
    async fn others_have_their_turn_before_it_is_settled_what_is_spoken() {
        let mut endpoint = flooded(Role::Client, Versions::Auto);
        let settled = endpoint.settle().await;
        assert!(matches!(
            settled,
            Err(CloseReason::Closed(verbs::CloseReason::Local))
        ));
    }

    #[test]
    fn turn_in_which_only_sends_are_done_brings_no_work() {
        let send = || Completion::Send { wr: WrId(0) };
        let receive = || Completion::Receive {
            wr: WrId(0),
            buffer: Buffer::default(),
            invalidated: None,
        };
        let cases = [
            (vec![], Turn::Moved),
            (vec![send(), send()], Turn::Sent),
            (vec![send(), receive()], Turn::Moved),
            (vec![receive(), send()], Turn::Moved),
        ];
        for (done, expected) in cases {
            let what = format!("{done:?}");
            let mut endpoint = endpoint(Role::Server, Versions::One, Arc::default(), done);
            assert_eq!(endpoint.turn(), expected, "{what}");
        }
    }
}
