//! Whether the server answers, for those who tell a user that it does not.

use super::Client;
use crate::driver::clock;
use crate::driver::liveness::{Health, Liveness, heard};
use std::time::Duration;

/// Longest time between two looks at what a client has heard.
const LOOK_EVERY: Duration = Duration::from_millis(250);

impl Client {
    /// Waits until the server has left calls unanswered for `after`: all that time calls were pending, no
    /// reply came and no byte moved, or there was no connection. Calls go on being tried until their time is
    /// up; whoever waits for them may want to be told why.
    ///
    /// It is looked at every quarter of a second, and costs calls nothing. It never ends while nobody calls,
    /// and after the client was closed.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # async fn watch(client: rpcrdma::Client) {
    /// loop {
    ///     client.unresponsive(Duration::from_secs(5)).await;
    ///     eprintln!("server not responding, still trying");
    ///     client.responsive().await;
    ///     eprintln!("server OK");
    /// }
    /// # }
    /// ```
    pub async fn unresponsive(&self, after: Duration) {
        let shared = &self.handle.shared;
        let mut liveness = Liveness::new(clock::now(), after, Duration::MAX);
        loop {
            let io = self.io_counters();
            let signs = self.messages_heard() + io.bytes_in + io.bytes_out;
            if liveness.look(clock::now(), signs, shared.calls.pending()) == Health::Ask {
                return;
            }
            tokio::time::sleep(LOOK_EVERY.min(after)).await;
        }
    }

    /// Waits for the next message of the server.
    ///
    /// It never ends if none comes. See [`unresponsive`](Self::unresponsive).
    pub async fn responsive(&self) {
        let before = self.messages_heard();
        while self.messages_heard() == before {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Messages of the server so far.
    fn messages_heard(&self) -> u64 {
        heard(&self.counters())
    }
}
