//! Two connected ends, driven together.

use crate::fixture::Blame;
use crate::peer::Peer;
use std::task::{Context, Poll};
use std::time::Duration;
use verbs::{
    BoxFuture, Buffer, CloseReason, Completion, Handle, Invalidated, Memory, Segment, WrId,
};

/// Rounds of progress before the runtime gets its turn.
const ROUNDS: usize = 64;

/// Which end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The one that acts.
    Near,
    /// The one that is acted upon.
    Far,
}

impl At {
    fn other(self) -> Self {
        match self {
            Self::Near => Self::Far,
            Self::Far => Self::Near,
        }
    }
}

/// Two connected ends.
pub struct Pair<'a> {
    /// The one that acts.
    pub near: Peer,
    /// The one that is acted upon.
    pub far: Peer,
    blame: Blame,
    sleep: &'a dyn Fn(Duration) -> BoxFuture<'static, ()>,
    time_limit: Duration,
}

impl<'a> Pair<'a> {
    pub(crate) fn new(
        near: Peer,
        far: Peer,
        blame: Blame,
        sleep: &'a dyn Fn(Duration) -> BoxFuture<'static, ()>,
        time_limit: Duration,
    ) -> Self {
        Self {
            near,
            far,
            blame,
            sleep,
            time_limit,
        }
    }

    /// Lets the ends change their parts.
    pub(crate) fn swap(&mut self) {
        std::mem::swap(&mut self.near, &mut self.far);
    }

    pub(crate) fn at(&mut self, at: At) -> &mut Peer {
        match at {
            At::Near => &mut self.near,
            At::Far => &mut self.far,
        }
    }

    /// Drives both ends until `done` has a result.
    pub(crate) async fn until<R>(
        &mut self,
        what: &str,
        mut done: impl FnMut(&mut Self) -> Option<R>,
    ) -> R {
        let mut time_limit = (self.sleep)(self.time_limit);
        std::future::poll_fn(|cx| {
            for _ in 0..ROUNDS {
                self.near.collect();
                self.far.collect();
                if let Some(result) = done(self) {
                    return Poll::Ready(result);
                }
                if !(self.near.qp.progress() | self.far.qp.progress()) {
                    return self.wait(what, &mut time_limit, cx);
                }
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await
    }

    fn wait<R>(
        &mut self,
        what: &str,
        time_limit: &mut BoxFuture<'static, ()>,
        cx: &mut Context<'_>,
    ) -> Poll<R> {
        let (near, far) = (&mut self.near, &mut self.far);
        assert!(
            time_limit.as_mut().poll(cx).is_pending(),
            "waited for {what} in vain; {} closed: {:?}, {} closed: {:?}",
            near.name(),
            near.qp.closed(),
            far.name(),
            far.qp.closed(),
        );
        for peer in [near, far] {
            if peer.qp.closed().is_none() && peer.qp.poll_ready(cx).is_ready() {
                cx.waker().wake_by_ref();
            }
        }
        Poll::Pending
    }

    /// Drives until this work has completed.
    pub(crate) async fn completion(&mut self, at: At, wr: WrId) -> Completion {
        self.until(&format!("{wr:?} at {at:?}"), |pair| pair.at(at).take(wr))
            .await
    }

    /// Drives until this work has completed, which it must do well.
    pub(crate) async fn success(&mut self, at: At, wr: WrId) -> Completion {
        match self.completion(at, wr).await {
            Completion::Failed { error, .. } => {
                let reason = self.at(at).qp.closed();
                panic!("{wr:?} at {at:?} failed: {error}; closed: {reason:?}")
            }
            completion => completion,
        }
    }

    /// The message that this Receive takes in.
    pub(crate) async fn message(&mut self, at: At, wr: WrId) -> (Buffer, Option<Invalidated>) {
        match self.success(at, wr).await {
            Completion::Receive {
                buffer,
                invalidated,
                ..
            } => (buffer, invalidated),
            other => panic!("expected a message, got {other:?}"),
        }
    }

    /// Data of this Read.
    pub(crate) async fn sink_of(&mut self, at: At, wr: WrId) -> Buffer {
        match self.success(at, wr).await {
            Completion::Read { sink, .. } => sink,
            other => panic!("expected a Read, got {other:?}"),
        }
    }

    /// Invalidates a handle of this end, and gives its memory.
    pub(crate) async fn take_back(&mut self, at: At, handle: Handle) -> Memory {
        let wr = self.at(at).invalidate(handle);
        match self.success(at, wr).await {
            Completion::Invalidate { invalidated, .. } => {
                assert_eq!(invalidated.handle, handle);
                invalidated.memory
            }
            other => panic!("expected an invalidation, got {other:?}"),
        }
    }

    /// The whole memory of a sink of this end, which loses its handle.
    pub(crate) async fn contents(&mut self, at: At, handle: Handle) -> Vec<u8> {
        whole(self.take_back(at, handle).await)
    }

    /// Sends a message from one end to the other and sees it arrive there: a proof that the
    /// connection works, and that what was sent before has arrived.
    pub(crate) async fn exchange(&mut self, from: At) {
        let to = from.other();
        let receive = self.at(to).receive_one();
        let send = self.at(from).send(b"still here?");
        let (message, _) = self.message(to, receive).await;
        assert_eq!(&*message, b"still here?");
        self.success(from, send).await;
    }

    /// Registers memory of one end, and announces it to the other by a message.
    ///
    /// A handle must not be used before that message has arrived: opening memory is work of the queue
    /// pair, and it may be executed later than what the peer does that knows the handle by another way.
    pub(crate) async fn register(&mut self, at: At, memory: Memory) -> Handle {
        let handle = self.at(at).register(memory);
        self.announce(at, handle).await;
        handle
    }

    /// Registers memory of at least `capacity` zeros for the other end to write, and announces it.
    pub(crate) async fn sink(&mut self, at: At, capacity: usize) -> Handle {
        let handle = self.at(at).sink(capacity);
        self.announce(at, handle).await;
        handle
    }

    /// Registers these bytes for the other end to read, and announces them.
    pub(crate) async fn source(&mut self, at: At, bytes: &[u8]) -> Handle {
        let handle = self.at(at).source(bytes);
        self.announce(at, handle).await;
        handle
    }

    async fn announce(&mut self, owner: At, handle: Handle) {
        let peer = owner.other();
        let receive = self.at(peer).receive_one();
        let announcement = self.at(owner).announcement(handle);
        let send = self.at(owner).send(&announcement);
        let (message, _) = self.message(peer, receive).await;
        assert_eq!(self.at(peer).learn(&message), handle);
        self.success(owner, send).await;
    }

    /// The first message of a connection, from the one who connected.
    pub(crate) async fn greet(&mut self) {
        self.exchange(At::Near).await;
    }

    /// A message each way.
    pub(crate) async fn works(&mut self) {
        self.exchange(At::Near).await;
        self.exchange(At::Far).await;
    }

    /// Drives until all that was posted at both ends has completed.
    pub(crate) async fn idle(&mut self) {
        self.until("all work to complete", |pair| {
            (pair.near.is_idle() && pair.far.is_idle()).then_some(())
        })
        .await;
    }

    /// Drives until this end is over.
    pub(crate) async fn over_at(&mut self, at: At) -> CloseReason {
        let reason = self
            .until("the end of the connection", |pair| {
                pair.at(at).qp.closed().cloned()
            })
            .await;
        self.at(at).collect();
        reason
    }

    /// Drives until both ends are over.
    pub(crate) async fn over(&mut self) {
        self.until("the end of the connection", |pair| {
            let over = pair.near.qp.closed().is_some() && pair.far.qp.closed().is_some();
            over.then_some(())
        })
        .await;
        self.near.collect();
        self.far.collect();
    }

    /// Asserts that the near end has broken a rule: the far end ends the connection, blames the
    /// near end and tells it so, and all that was posted completes.
    pub(crate) async fn offence(&mut self) {
        self.ended_by_offence(self.blame != Blame::Never).await;
    }

    /// The same for a rule that no device checks by itself, or does not tell its owner of.
    pub(crate) async fn offence_beyond_devices(&mut self) {
        self.ended_by_offence(self.blame == Blame::Always).await;
    }

    async fn ended_by_offence(&mut self, blamed: bool) {
        self.over().await;
        let (near, far) = (self.near.qp.closed(), self.far.qp.closed());
        assert!(
            matches!(far, Some(CloseReason::PeerError(_))) || !blamed,
            "the end whose peer broke a rule says {far:?}"
        );
        assert!(
            matches!(near, Some(CloseReason::Terminated(_))) || !blamed,
            "the end that broke a rule says {near:?}"
        );
        for reason in [near, far] {
            assert_ne!(reason, Some(&CloseReason::Local), "nobody has closed it");
        }
        self.near.assert_nothing_owed();
        self.far.assert_nothing_owed();
    }

    /// Closes what is still open, and checks that nothing is left.
    pub(crate) async fn finish(mut self) {
        self.near.qp.close();
        self.far.qp.close();
        self.over().await;
        self.retire();
    }

    /// Drops both ends, which are over, and checks that nothing is left.
    pub(crate) fn retire(self) {
        for peer in [self.near, self.far] {
            peer.assert_nothing_owed();
            peer.retire();
        }
    }
}

/// All bytes of memory that came back, whatever of them are data.
pub(crate) fn whole(memory: Memory) -> Vec<u8> {
    match memory {
        Memory::Sink(buffer) | Memory::Persistent(_, buffer) => buffer.memory().to_vec(),
        Memory::Source(pieces) => pieces.concat(),
        Memory::Parts(parts) => parts
            .into_iter()
            .flat_map(|part| whole(part.into()))
            .collect(),
    }
}

/// A stretch of memory.
pub(crate) fn segment(handle: Handle, offset: u64, length: usize) -> Segment {
    Segment {
        handle,
        length: u32::try_from(length).expect("test data is short"),
        offset,
    }
}

/// Bytes that look alike nowhere near each other, and differ from seed to seed.
pub(crate) fn pattern(seed: usize, length: usize) -> Vec<u8> {
    let mut state = (seed as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut byte = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state.to_be_bytes()[0]
    };
    std::iter::repeat_with(&mut byte).take(length).collect()
}
