//! State shared by all actors of a run: the scenario, the network, the checkers and the counts.

use crate::Tally;
use crate::dice::Dice;
use crate::scenario::Scenario;
use rpcrdma_watch::Watch;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use verbs::Provider;

/// State shared by all actors of a run.
pub(crate) struct Stage {
    pub(crate) scenario: Scenario,
    pub(crate) watch: Watch,
    pub(crate) net: Box<dyn Net>,
    pub(crate) counts: Counts,
    /// Divisor of all pauses.
    pub(crate) pace: u32,
}

impl Stage {
    /// Waits for a random time of at most this many milliseconds.
    pub(crate) async fn pause(&self, dice: &mut Dice, most: usize) {
        tokio::time::sleep(dice.milliseconds(most) / self.pace).await;
    }
}

/// A network.
pub(crate) trait Net: Send + Sync {
    /// A provider for one more client, or for the server.
    fn provider(&self, dice: &mut Dice) -> Arc<dyn Provider>;

    /// Address at which the server is to listen.
    fn listen_at(&self) -> SocketAddr;

    /// Address to which clients of a server connect that listens here.
    fn reached_at(&self, listens: SocketAddr) -> Pin<Box<dyn Future<Output = SocketAddr> + '_>>;

    /// Time after which nothing that was sent can still arrive.
    fn quiet(&self) -> Duration;

    /// Cuts, stalls or terminates a connection.
    fn disturb(&self, dice: &mut Dice);
}

/// Counters of a run in progress.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) calls: AtomicU64,
    pub(crate) answered: AtomicU64,
    pub(crate) cancelled: AtomicU64,
    pub(crate) called_back: AtomicU64,
    pub(crate) connections: AtomicU64,
    pub(crate) restarts: AtomicU64,
    pub(crate) invalidated: AtomicU64,
    pub(crate) invalidated_between: AtomicU64,
}

impl Counts {
    pub(crate) fn tally(&self) -> Tally {
        Tally {
            calls: self.calls.load(Relaxed),
            answered: self.answered.load(Relaxed),
            cancelled: self.cancelled.load(Relaxed),
            called_back: self.called_back.load(Relaxed),
            connections: self.connections.load(Relaxed),
            restarts: self.restarts.load(Relaxed),
            invalidated: self.invalidated.load(Relaxed),
            invalidated_between: self.invalidated_between.load(Relaxed),
        }
    }
}

/// Adds one to a counter.
pub(crate) fn count(number: &AtomicU64) {
    number.fetch_add(1, Relaxed);
}
