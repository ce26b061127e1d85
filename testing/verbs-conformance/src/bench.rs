//! Creates connections for the tests.

use crate::fixture::Blame;
use crate::pair::Pair;
use crate::peer::Peer;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use verbs::{
    BoxFuture, Connected, Incoming, Listener, Provider, QpOptions, QueuePair, SetupError,
    SharedReceiveQueue,
};

/// How long the suite waits for what should come at once.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// Two providers, one of which connects to the other.
pub struct Bench<'a> {
    connector: Arc<dyn Provider>,
    acceptor: Arc<dyn Provider>,
    listen_on: SocketAddr,
    shared_receives: bool,
    blame: Blame,
    sleep: &'a dyn Fn(Duration) -> BoxFuture<'static, ()>,
}

impl<'a> Bench<'a> {
    pub(crate) fn new(
        connector: Arc<dyn Provider>,
        acceptor: Arc<dyn Provider>,
        listen_on: SocketAddr,
        shared_receives: bool,
        blame: Blame,
        sleep: &'a dyn Fn(Duration) -> BoxFuture<'static, ()>,
    ) -> Self {
        Self {
            connector,
            acceptor,
            listen_on,
            shared_receives,
            blame,
            sleep,
        }
    }

    /// Whether Receives are posted on its connections.
    pub(crate) fn posts_receives(&self) -> bool {
        !self.shared_receives
    }

    /// These options, with a shared receive queue of its own if that is how connections are made.
    fn with_queue(&self, options: &QpOptions) -> QpOptions {
        let mut options = options.clone();
        if self.shared_receives && options.shared_receives.is_none() {
            let queue = SharedReceiveQueue::new(options.receives, options.receive_size);
            options.shared_receives = Some(queue);
        }
        options
    }

    pub(crate) fn connector(&self) -> &dyn Provider {
        &*self.connector
    }

    pub(crate) fn acceptor(&self) -> &dyn Provider {
        &*self.acceptor
    }

    /// A listener of the accepting provider.
    pub(crate) async fn listen(&self) -> Box<dyn Listener> {
        let listening = self.acceptor.listen(self.listen_on);
        let listener = self.soon("to listen", listening).await;
        listener.unwrap_or_else(|error| panic!("could not listen: {error}"))
    }

    /// Runs a behaviour on a new pair twice: with the connecting end near, then with the
    /// accepting one.
    pub(crate) async fn both_ways(&self, behaviour: impl AsyncFn(&mut Pair<'_>)) {
        self.both_ways_with(&QpOptions::default(), behaviour).await;
    }

    /// The same, with options for both ends.
    pub(crate) async fn both_ways_with(
        &self,
        options: &QpOptions,
        behaviour: impl AsyncFn(&mut Pair<'_>),
    ) {
        for connector_is_near in [true, false] {
            let mut pair = self.pair_with(options, options).await;
            if !connector_is_near {
                pair.swap();
            }
            behaviour(&mut pair).await;
            pair.finish().await;
        }
    }

    /// The same, for a behaviour that ends the connection itself.
    pub(crate) async fn both_ways_to_the_end(&self, behaviour: impl AsyncFn(Pair<'_>)) {
        for connector_is_near in [true, false] {
            let mut pair = self.pair().await;
            if !connector_is_near {
                pair.swap();
            }
            behaviour(pair).await;
        }
    }

    /// A connected pair, the connecting end near, on which a first message has gone its way.
    pub(crate) async fn pair(&self) -> Pair<'a> {
        let options = QpOptions::default();
        self.pair_with(&options, &options).await
    }

    /// The same, with options for the connecting and for the accepting end.
    pub(crate) async fn pair_with(&self, near: &QpOptions, far: &QpOptions) -> Pair<'a> {
        let mut listener = self.listen().await;
        let mut pair = self.pair_over(&mut *listener, near, far).await;
        // An iWARP responder says nothing before it was spoken to (RFC 5044 §7.1.2).
        pair.greet().await;
        pair
    }

    /// A connected pair of this listener, on which nothing has been said.
    pub(crate) async fn pair_over(
        &self,
        listener: &mut dyn Listener,
        near: &QpOptions,
        far: &QpOptions,
    ) -> Pair<'a> {
        let addr = listener.local_addr();
        let (near, far) = (&self.with_queue(near), &self.with_queue(far));
        let connecting = self.connector.connect(addr, near, &[], Vec::new());
        let accepting = async {
            let mut incoming = listener.accept().await?;
            incoming.request(TIME_LIMIT).await?;
            incoming.accept(far, &[], Vec::new()).await
        };
        let (connected, accepted) = self.soon("a connection", both(connecting, accepting)).await;
        let connected = connected.unwrap_or_else(|error| panic!("could not connect: {error}"));
        let accepted = accepted.unwrap_or_else(|error| panic!("could not accept: {error}"));
        let mut pair = self.pair_of(connected.qp, accepted);
        pair.near.take_from(near.shared_receives.clone());
        pair.far.take_from(far.shared_receives.clone());
        pair
    }

    /// A pair of these ends, which take posted Receives.
    pub(crate) fn pair_of(&self, near: Box<dyn QueuePair>, far: Box<dyn QueuePair>) -> Pair<'a> {
        Pair::new(
            Peer::new("connector", near),
            Peer::new("acceptor", far),
            self.blame,
            self.sleep,
            TIME_LIMIT,
        )
    }

    /// Connects, while `answer` does what it does with the connection on the other end.
    pub(crate) async fn meet<R>(
        &self,
        private_data: &[u8],
        answer: impl AsyncFnOnce(Box<dyn Incoming>) -> R,
    ) -> (Result<Connected, SetupError>, R) {
        let mut listener = self.listen().await;
        let addr = listener.local_addr();
        let options = QpOptions::default();
        let connecting = self
            .connector
            .connect(addr, &options, private_data, Vec::new());
        let answering = async move {
            let incoming = listener.accept().await;
            let incoming = incoming.unwrap_or_else(|error| panic!("could not accept: {error}"));
            let answer = answer(incoming).await;
            // A connector may try again in another way: it shall not wait for an answer.
            drop(listener);
            answer
        };
        self.soon("an answer", both(connecting, answering)).await
    }

    /// Waits, but not for ever.
    pub(crate) async fn soon<R>(&self, what: &str, future: impl Future<Output = R>) -> R {
        let mut future = pin!(future);
        let mut time_limit = (self.sleep)(TIME_LIMIT);
        std::future::poll_fn(|cx| {
            if let Poll::Ready(result) = future.as_mut().poll(cx) {
                return Poll::Ready(result);
            }
            assert!(
                time_limit.as_mut().poll(cx).is_pending(),
                "waited for {what} in vain"
            );
            Poll::Pending
        })
        .await
    }
}

/// Runs two futures side by side to the end of both.
pub(crate) async fn both<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut of_a, mut of_b) = (None, None);
    std::future::poll_fn(|cx| {
        if of_a.is_none()
            && let Poll::Ready(result) = a.as_mut().poll(cx)
        {
            of_a = Some(result);
        }
        if of_b.is_none()
            && let Poll::Ready(result) = b.as_mut().poll(cx)
        {
            of_b = Some(result);
        }
        match (of_a.take(), of_b.take()) {
            (Some(a), Some(b)) => Poll::Ready((a, b)),
            (a, b) => {
                (of_a, of_b) = (a, b);
                Poll::Pending
            }
        }
    })
    .await
}
