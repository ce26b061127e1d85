//! The server's side of one connection, until it ends.

use super::asking::Asking;
use super::backchannel::BackEnd;
use super::deliveries::Deliveries;
use super::grants::Grants;
use super::kept::Kept;
use super::settings::Settings;
use super::stats::Tally;
use crate::driver::clock;
use crate::driver::close_reason::CloseReason;
use crate::driver::deadlines::{Deadline, Deadlines};
use crate::driver::dispatch::Dispatch;
use crate::driver::endpoint::Endpoint;
use crate::driver::outgoing::Outgoing;
use crate::driver::owner::Connection;
use crate::driver::spin::{Activity, Spinner};
use crate::driver::{Driver, Policy};
use oncrpc::OpenConnection;
use rpc_serving::admission::{Admitted, Use};
use rpc_serving::ends::{End, Ends};
use rpcrdma_proto::Oversized;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::Context;
use std::time::{Duration, Instant};
use tracing::warn;
use verbs::SharedReceiveQueue;

/// A connection in service. Boxed on its own, so that the memory of its setup is free by then.
pub(super) struct Serving {
    driver: Driver<Answering>,
    settings: Arc<Settings>,
    /// Resources of the connection.
    _kept: Option<Kept>,
    /// Entry in the registry for services that close connections.
    open: Option<OpenConnection>,
}

impl Serving {
    pub(super) fn new(
        endpoint: Endpoint,
        settings: Arc<Settings>,
        activity: Activity,
        tally: Tally,
        ends: Ends,
        admitted: Admitted,
        mut kept: Option<Kept>,
    ) -> Box<Self> {
        let config = &settings.config;
        let memory = kept.as_mut().and_then(|kept| kept.receive_memory.take());
        let turns = kept.as_mut().and_then(|kept| kept.turns.take());
        let sent = Arc::<AtomicU64>::default();
        let deliveries = Deliveries::default();
        let open = config.connections.as_ref().map(|connections| {
            let (sent, deliveries) = (Arc::clone(&sent), deliveries.clone());
            let open = ends.requests().register(connections, &endpoint.caller);
            let open = open.counting_accepted(move || sent.load(Relaxed));
            open.answering_queries(move |query| deliveries.ask(query))
        });
        let answering = Answering {
            back: BackEnd::open(config, &endpoint, &settings.backward_memory),
            grants: Grants::new(&endpoint.connection, memory, clock::now()),
            asking: Asking::new(clock::now()),
            has_oversized: false,
            settings: Arc::clone(&settings),
            tally,
            ends,
            receives: kept.as_ref().and_then(Kept::receives),
            admitted,
            drain_until: None,
            sent,
            deliveries,
            close_until: None,
        };
        let service = Arc::clone(&endpoint.service);
        let answers = Dispatch::sharing(service, endpoint.caller, &settings.jobs);
        let spinner = Spinner::new(config.spin, activity);
        let (health, pull_timeout) = (config.health, config.pull_timeout);
        Box::new(Self {
            driver: Driver::new(
                endpoint,
                answering,
                answers,
                spinner,
                turns,
                health,
                pull_timeout,
            ),
            settings,
            _kept: kept,
            open,
        })
    }

    /// Serves the connection until it ends.
    pub(super) async fn run(mut self: Box<Self>) {
        let over = self.driver.run().await;
        let Driver {
            endpoint,
            policy,
            answers,
            ..
        } = &mut self.driver;
        if over == CloseReason::Closed(verbs::CloseReason::Peer) && is_delivered(endpoint) {
            endpoint.service.closed_in_order(&endpoint.caller);
        }
        answers.end();
        drop(self.open.take());
        policy.deliveries.end();
        policy.tally.publish(endpoint, policy.drain_until.is_some());
        policy.tally.ended(&over);
        if !over.is_of_peer() || self.settings.log.may_warn(endpoint.caller.group) {
            endpoint.log_end(&over, self.settings.log.listener());
        }
        if let Some(back) = policy.back.take() {
            back.end(&over, &endpoint.connection);
        }
        // Nothing is to be expected of a peer that is over, or does not speak; others wait for the place
        // of one that was evicted, or for its memory.
        let at_once = policy.ends.requests().has(End::Aborted)
            || matches!(
                over,
                CloseReason::Closed(_)
                    | CloseReason::Silent(_)
                    | CloseReason::Evicted
                    | CloseReason::PullTimedOut(_)
                    | CloseReason::NoCredits(_)
                    | CloseReason::TooSlow
                    | CloseReason::GaveWay
            );
        if !at_once {
            endpoint.close().await;
        }
    }
}

/// The server's policy for one connection.
struct Answering {
    /// Bytes that the client has accepted, for the registry of connections.
    sent: Arc<AtomicU64>,
    /// Queries of the service about replies.
    deliveries: Deliveries,
    settings: Arc<Settings>,
    tally: Tally,
    /// Calls to the client.
    back: Option<BackEnd>,
    admitted: Admitted,
    /// The part of the shared receive queue for connections of this address.
    receives: Option<SharedReceiveQueue>,
    ends: Ends,
    /// When draining ends; `None` before the server stops.
    drain_until: Option<Instant>,
    /// When a connection that the service closes ends at the latest.
    close_until: Option<Instant>,
    grants: Grants,
    asking: Asking,
    /// Whether a message that was longer than announced was logged.
    has_oversized: bool,
}

impl Answering {
    /// Whether no call is in flight, in either direction.
    fn is_idle(&self, connection: &Connection) -> bool {
        let calls_back = self.back.as_ref().is_some_and(|back| !back.is_idle());
        connection.calls_in() == 0 && connection.calls_out() == 0 && !calls_back
    }

    /// The use of the connection.
    fn current_use(&self, connection: &Connection) -> Use {
        let ready = self.back.as_ref().is_some_and(BackEnd::is_ready);
        Use::of(self.is_idle(connection), ready)
    }

    /// Ends a connection that the service has closed, once the replies that it gave are sent unless
    /// it ends at once.
    fn check_closed(&mut self, now: Instant, endpoint: &Endpoint) -> Result<(), CloseReason> {
        let requests = self.ends.requests();
        if requests.has(End::Aborted) {
            return Err(End::Aborted.into());
        }
        if !requests.has(End::ByService) {
            return Ok(());
        }
        let Some(until) = self.close_until else {
            // Replies that the service gave before may not have been taken over yet: one more turn.
            self.close_until = Some(now + self.settings.config.drain_timeout);
            return Ok(());
        };
        match now >= until || endpoint.connection.is_quiet() {
            true => Err(End::ByService.into()),
            false => Ok(()),
        }
    }

    /// Logs a message that was longer than announced, once a connection, or ends the connection. It
    /// would be lost, and the connection with it, at a server whose Receives are no larger.
    fn check_oversized(&mut self, endpoint: &Endpoint) -> Result<(), CloseReason> {
        let Some(Oversized { bytes, limit }) = endpoint.connection.oversized() else {
            return Ok(());
        };
        if self.settings.config.strict {
            return Err(CloseReason::Oversized { bytes, limit });
        }
        let logged = std::mem::replace(&mut self.has_oversized, true);
        if !logged {
            let peer = endpoint.qp.peer_addr();
            self.settings.log.warn_of(endpoint.caller.group, |listen| {
                warn!(listen, %peer, bytes, limit, "a message is longer than was announced; other servers close the connection");
            });
        }
        Ok(())
    }

    /// Tells admission control of the use of the connection, unless it was evicted by then.
    fn set_use(&mut self, now: Use) -> Result<(), CloseReason> {
        match self.admitted.set_use(now) {
            true => Ok(()),
            false => Err(End::Evicted.into()),
        }
    }
}

impl Policy for Answering {
    fn outgoing(&mut self) -> Option<&mut Outgoing> {
        self.back.as_mut().and_then(BackEnd::outgoing)
    }

    fn may_call(&mut self, connection: &mut Connection) -> bool {
        let back = self.back.as_mut();
        back.is_some_and(|back| back.may_call(connection))
    }

    /// Publishes the client's grant before replies wake their callers.
    fn before_replies(&mut self, endpoint: &Endpoint) {
        if let Some(back) = &mut self.back {
            back.publish(&endpoint.connection);
        }
    }

    /// The liveness probe is for clients that are ready for calls only.
    fn expects_peer(&self, _: &Connection) -> bool {
        self.back.as_ref().is_some_and(BackEnd::is_ready)
    }

    fn waits_for_peer(&self, _: &Connection) -> bool {
        true
    }

    fn others_wait(&self) -> bool {
        let receives = self.receives.as_ref();
        receives.is_some_and(SharedReceiveQueue::others_wait)
    }

    fn usage(&self, connection: &Connection) -> (u64, bool) {
        let calls = connection.counters().calls_received;
        (calls, self.current_use(connection) != Use::Idle)
    }

    fn before_calls(&mut self, endpoint: &Endpoint) -> Result<(), CloseReason> {
        self.check_oversized(endpoint)?;
        self.tally
            .before_calls(endpoint, self.drain_until.is_some());
        self.set_use(Use::InUse)
    }

    fn idle_timeout(&self) -> Option<(Duration, CloseReason)> {
        let limit = self.settings.config.idle_timeout?;
        Some((limit, CloseReason::Idle(limit)))
    }

    fn look_around(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        deadlines: &mut Deadlines,
    ) -> Result<(), CloseReason> {
        self.check_oversized(endpoint)?;
        self.set_use(self.current_use(&endpoint.connection))?;
        self.sent
            .store(endpoint.qp.io_counters().bytes_out, Relaxed);
        let draining = self.drain_until.is_some();
        let publish = self.tally.look(now, endpoint, draining);
        deadlines.set(Deadline::Publish, publish);
        if publish.is_none() && endpoint.connection.calls_in() == 0 {
            // A moment after its last call, and now and then between two calls.
            endpoint.connection.trim();
        }
        self.before_replies(endpoint);
        if let Some(back) = &self.back {
            back.look_around(now, &endpoint.connection)?;
        }
        self.grants.adjust(now, &mut endpoint.connection);
        self.asking.look(now, &mut endpoint.connection);
        if self.drain_until.is_none() && self.ends.requests().has(End::Closed) {
            self.drain_until = Some(now + self.settings.config.drain_timeout);
        }
        self.check_closed(now, endpoint)?;
        if self.deliveries.is_asked() || deadlines.is_set(Deadline::Delivery) {
            let next = self.deliveries.look(now, || is_delivered(endpoint));
            deadlines.set(Deadline::Delivery, next);
        }
        deadlines.set(Deadline::Drain, earlier(self.drain_until, self.close_until));
        let done = self.is_idle(&endpoint.connection) && endpoint.connection.is_quiet();
        match self.drain_until {
            Some(until) if now >= until || done => Err(End::Closed.into()),
            Some(_) | None => Ok(()),
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>, endpoint: &Endpoint) -> bool {
        if self.ends.listen(cx) {
            self.deliveries.set_owner(cx.waker());
            let back = self.back.as_ref();
            back.inspect(|back| back.set_owner(cx.waker()));
        }
        let back = self.back.as_ref();
        let work = back.is_some_and(|back| back.poll(cx, endpoint));
        let requests = self.ends.requests();
        let stops = self.drain_until.is_none() && requests.has(End::Closed);
        let next_step = self.close_until.is_none() || endpoint.connection.is_quiet();
        let closes = next_step && requests.has(End::ByService);
        let asked = self.deliveries.is_asked();
        let at_once = requests.has(End::Aborted) || self.admitted.is_evicted();
        work | stops | closes | asked | at_once
    }
}

/// Whether the client has received the reply to every call: no call is in service, every Send has
/// completed, and TCP has acknowledged its bytes.
fn is_delivered(endpoint: &Endpoint) -> bool {
    let connection = &endpoint.connection;
    connection.calls_in() == 0 && connection.is_quiet() && endpoint.qp.unacknowledged() == 0
}

fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ServerConfig;
    use crate::driver::budget::Budget;
    use crate::driver::failed::FailedCalls;
    use crate::driver::owner::ConnectionOwner;
    use crate::driver::{AROUND, CALLS, PIECE};
    use crate::server::addresses::Addresses;
    use crate::server::backward_memory::BackwardMemory;
    use crate::server::receive_memory::ReceiveMemory;
    use crate::server::stats::State;
    use buffer::{Buffer, Pool};
    use oncrpc::PeerGroup;
    use oncrpc::xdr::Payload;
    use oncrpc::{Answer, Caller, Reply, Service};
    use rpc_serving::admission::Admission;
    use rpc_serving::ends::Stop;
    use rpc_serving::jobs::Jobs;
    use rpc_serving::warning_log::WarningLog;
    use rpcrdma_proto::v2::Dialect;
    use rpcrdma_proto::{
        Characteristics, Config, InlineThreshold, PrivateData, Receives, Registrations, Role,
        Versions, Xids,
    };
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    use std::sync::{Mutex, PoisonError};
    use std::task::Poll;
    use verbs::{Gather, QueuePair, WorkRequest, WrId};
    use verbs_sim::{EndOptions, Fabric, PairOptions};

    /// Notes how many turns others have had at each call, and answers with so many bytes.
    struct Notes {
        reply: usize,
        others: Arc<AtomicU32>,
        notes: Mutex<Vec<u32>>,
    }

    impl Service for Notes {
        fn call(&self, _: Payload, _: &Caller) -> Answer {
            let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
            notes.push(self.others.load(SeqCst));
            match self.reply {
                0 => Answer::Now(Reply::Nothing),
                bytes => Answer::message(Payload::new(Buffer::from(vec![0; bytes]), 0)),
            }
        }
    }

    /// How many of the first of many calls are answered, with so many bytes, before others have a turn.
    async fn answered_in_a_turn(reply: usize) -> usize {
        const ALL: usize = 128;
        let end = EndOptions::default();
        let fabric = Fabric::new(3);
        let (mut qp, mut peer) = fabric.pair(&PairOptions::both(end));
        let budget = Budget::new(0);
        let config = Config {
            role: Role::Server,
            versions: Versions::One,
            dialect: Dialect::default(),
            xids: Xids::starting_at(1),
            characteristics: Characteristics::default(),
            own: PrivateData {
                send: InlineThreshold::DEFAULT,
                receive: InlineThreshold::DEFAULT,
                remote_invalidation: false,
            },
            credits: 128,
            first_grant: 0,
            backward_credits: 0,
            reserve_credit: false,
            max_chunk: 0,
            max_segment: 0,
            receives: Receives::Posted,
            registrations: Registrations::OF_CALLS,
            persistent: None,
            one_region: false,
            pool: Pool::new(0),
        };
        for receive in config.initial_receives() {
            qp.post(receive).expect("there is room");
        }
        for xid in 0..u32::try_from(ALL).expect("a small number") {
            let words = [xid, 1, 128, 0, 0, 0, 0, xid, 0];
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            let send = WorkRequest::Send {
                wr: WrId(0),
                buffer: Buffer::from(bytes),
                rest: Gather::new(),
                invalidate: None,
            };
            peer.post(send).expect("there is room");
        }
        while peer.progress() {}
        let connection = Connection::new(
            &config,
            ConnectionOwner::new(FailedCalls::new()),
            None,
            qp.limits(),
        );
        let local = PeerGroup::of([127, 0, 0, 1].into());
        let account = budget.account(local);
        let others = Arc::new(AtomicU32::new(0));
        let notes = Arc::new(Notes {
            reply,
            others: Arc::clone(&others),
            notes: Mutex::default(),
        });
        let admission = Admission::new(ServerConfig::default().connection_limits());
        let settings = Settings {
            service: Arc::clone(&notes) as Arc<dyn Service>,
            config: ServerConfig::default(),
            admission: admission.clone(),
            receive_memory: ReceiveMemory::new(0),
            addresses: Addresses::default(),
            log: WarningLog::default(),
            jobs: Jobs::new(1),
            backward_memory: BackwardMemory::new(0),
            budget,
        };
        let mut admitted = admission.admit(local, || {}).expect("there is room");
        admitted.set_up();
        let state = Arc::new(State::default());
        let mut serving = std::pin::pin!(
            Serving::new(
                Endpoint::new(
                    Box::new(qp),
                    connection,
                    Arc::clone(&notes) as Arc<dyn Service>,
                    account
                ),
                Arc::new(settings),
                Activity::default(),
                Tally::new(
                    state,
                    ([127, 0, 0, 1], 1).into(),
                    ([127, 0, 0, 1], 2).into()
                ),
                Stop::default().join(),
                admitted,
                None,
            )
            .run()
        );
        // Each time that it pauses is a turn for others.
        let noted = || notes.notes.lock().unwrap_or_else(PoisonError::into_inner);
        while noted().len() < ALL {
            std::future::poll_fn(|cx| {
                others.fetch_add(1, SeqCst);
                assert!(serving.as_mut().poll(cx).is_pending());
                Poll::Ready(())
            })
            .await;
        }
        let noted = noted();
        noted.iter().filter(|&&turns| turns == noted[0]).count()
    }

    #[tokio::test]
    async fn others_have_their_turn_while_one_connection_has_many_calls() {
        assert_eq!(answered_in_a_turn(0).await, CALLS);
    }

    #[tokio::test]
    async fn small_replies_of_a_turn_go_out_in_one_piece() {
        let read_of_4k = 4096 + 128;
        let replies = answered_in_a_turn(read_of_4k).await;
        assert_eq!(replies, PIECE / (read_of_4k + AROUND));
    }
}
