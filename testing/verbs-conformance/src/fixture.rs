//! The fixture that the tests of a provider supply.

use crate::bench::Bench;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use verbs::{BoxFuture, Provider};

/// Cause that the ends of a connection report when it ended for a fault of one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// Both always know: the one that found the fault tells the other.
    Always,
    /// Both know of what a device refuses by itself. An owner that ends a connection cannot tell the peer why, and a
    /// device without a Receive for a message tells nobody but the sender.
    Refusals,
    /// Neither knows more than that the connection has ended.
    Never,
}

/// How to make connections of a provider, and how to run what uses them.
pub trait Fixture {
    /// The provider that connects.
    fn connector(&self) -> Arc<dyn Provider>;

    /// The provider that listens; the same one, where one can do both.
    fn acceptor(&self) -> Arc<dyn Provider>;

    /// Address to listen at; port 0 for one that is free.
    fn listen_on(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
    }

    /// Whether connections are made with a shared receive queue, where a behaviour is not about
    /// posted Receives.
    fn shared_receives(&self) -> bool {
        false
    }

    /// Cause that the ends report of a connection that ended for a fault.
    fn blame(&self) -> Blame {
        Blame::Always
    }

    /// A timer of the runtime, with which the suite ends a wait for something that never comes.
    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()>;

    /// Runs a future to its end on this thread, on whatever runtime the provider needs.
    fn block_on<F: Future>(&self, future: F) -> F::Output;
}

/// Runs one behaviour.
///
/// # Panics
///
/// If the provider does not behave like that.
pub fn run<F: Fixture>(fixture: F, behaviour: impl AsyncFnOnce(&Bench<'_>)) {
    let sleep = |time| fixture.sleep(time);
    let bench = Bench::new(
        fixture.connector(),
        fixture.acceptor(),
        fixture.listen_on(),
        fixture.shared_receives(),
        fixture.blame(),
        &sleep,
    );
    fixture.block_on(behaviour(&bench));
}
