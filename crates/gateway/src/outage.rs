//! Warnings of a server that is away: one for all its clients, and one line when it answers again.

use crate::config::Upstream;
use nfs_proto::{NFS_PORT, NFS_RDMA_PORT};
use oncrpc::Cause;
use oncrpc_tcp::ConnectionEnd;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long a call waits at a connected upstream before that is worth a warning.
pub(crate) const SLOW: Duration = Duration::from_secs(30);

/// How a server fails its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Symptom {
    /// It cannot be connected to, or does not answer.
    Away,
    /// It takes a connection in, and closes it before its first reply.
    Closes,
    /// It is connected, and does not answer a call for [`SLOW`].
    Slow,
}

/// The outage of a server, if there is one now.
#[derive(Debug, Default)]
pub(crate) struct Outages(Mutex<Option<Outage>>);

/// A time in which clients connected in vain, or lost their connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outage {
    pub(crate) since: Instant,
    /// Connections of clients that met it.
    pub(crate) clients: u64,
    is_away: bool,
    closes: bool,
    is_slow: bool,
}

impl Outages {
    /// Notes that the connection of one more client has met this, which began then. Returns whether it is the first.
    pub(crate) fn meet(&self, symptom: Symptom, since: Instant) -> bool {
        let mut outage = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let outage = outage.get_or_insert(Outage {
            since,
            clients: 0,
            is_away: false,
            closes: false,
            is_slow: false,
        });
        outage.clients += 1;
        let known = match symptom {
            Symptom::Away => &mut outage.is_away,
            Symptom::Closes => &mut outage.closes,
            Symptom::Slow => &mut outage.is_slow,
        };
        !std::mem::replace(known, true)
    }

    /// The server has answered on a new connection. Returns the outage that this ends.
    pub(crate) fn end(&self) -> Option<Outage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A time without any answer to clients that call, leave, and call again. Each of their calls waits anew: without this, a
/// server that stands still never seems slow to clients with little patience.
#[derive(Debug, Default)]
pub(crate) struct Silence {
    lasts: Mutex<Option<Lasting>>,
    /// Whether it does: all that an answer looks at otherwise.
    any: AtomicBool,
}

#[derive(Clone, Copy, Debug)]
struct Lasting {
    since: Instant,
    /// When a client left last.
    left: Instant,
}

impl Silence {
    /// Since when a call has waited that came then, with those before it that nobody waited out. Calls with a pause of
    /// [`SLOW`] between them do not belong together.
    pub(crate) fn waits_since(&self, call: Instant) -> Instant {
        let lasts = *self.lasting();
        let before = lasts.filter(|lasts| call.saturating_duration_since(lasts.left) < SLOW);
        before.map_or(call, |before| before.since.min(call))
    }

    /// Notes that nobody waits any more for a call that came then. Returns since when the server has been silent.
    pub(crate) fn client_left(&self, call: Instant) -> Instant {
        let since = self.waits_since(call);
        let left = Instant::now();
        let mut lasts = self.lasting();
        *lasts = Some(Lasting { since, left });
        self.any.store(true, Relaxed);
        since
    }

    /// The server has answered a call. Returns whether this ends a silence.
    pub(crate) fn end(&self) -> bool {
        if !self.any.load(Relaxed) {
            return false;
        }
        let mut lasts = self.lasting();
        self.any.store(false, Relaxed);
        lasts.take().is_some()
    }

    fn lasting(&self) -> MutexGuard<'_, Option<Lasting>> {
        self.lasts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Likely cause if a server over RDMA does not answer an attempt to connect.
pub(crate) fn hint_of_port(upstream: &Upstream) -> &'static str {
    let has_port = |port| upstream.addrs().iter().any(|addr| addr.port() == port);
    match upstream {
        Upstream::Rdma { .. } if has_port(NFS_PORT) => {
            "; is this the plain NFS/TCP port? Then write tcp:// for the upstream"
        }
        _ => "",
    }
}

/// Likely cause if a TCP server refuses connections at its port.
pub(crate) fn hint(upstream: &Upstream, error: &Cause) -> &'static str {
    let is_rdma_port = upstream
        .addrs()
        .iter()
        .any(|addr| addr.port() == NFS_RDMA_PORT);
    match upstream {
        Upstream::Tcp { .. } if is_rdma_port && is_refused(error) => {
            "; is it an NFS/RDMA port? Then write rdma:// for the upstream"
        }
        _ => "",
    }
}

/// Whether nobody listens there.
fn is_refused(error: &Cause) -> bool {
    let mut cause = Some(error.error() as &(dyn std::error::Error + 'static));
    while let Some(error) = cause {
        let by_system = error.downcast_ref::<io::Error>();
        let at_end = match error.downcast_ref::<ConnectionEnd>() {
            Some(ConnectionEnd::Io(error)) => Some(error.kind()),
            _ => None,
        };
        if by_system.map(io::Error::kind).or(at_end) == Some(io::ErrorKind::ConnectionRefused) {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn outage_is_new_once_for_each_symptom_and_counts_its_clients() {
        let (outages, start) = (Outages::default(), Instant::now());
        assert!(outages.meet(Symptom::Away, start));
        assert!(!outages.meet(Symptom::Away, start + Duration::from_secs(1)));
        assert!(outages.meet(Symptom::Closes, start + Duration::from_secs(2)));
        assert!(!outages.meet(Symptom::Closes, start + Duration::from_secs(3)));
        let outage = outages.end().expect("it lasted until now");
        assert_eq!((outage.clients, outage.since), (4, start));
        assert_eq!(outages.end(), None);
        assert!(outages.meet(Symptom::Away, start), "it is another one");
    }

    #[tokio::test(start_paused = true)]
    async fn silence_goes_on_while_clients_come_again_and_ends_with_an_answer() {
        let (silence, start) = (Silence::default(), Instant::now());
        let second = Duration::from_secs(1);
        for _ in 0..4 {
            let call = Instant::now();
            assert_eq!(silence.waits_since(call), start);
            tokio::time::advance(20 * second).await;
            assert_eq!(silence.client_left(call), start);
            tokio::time::advance(5 * second).await;
        }
        assert!(silence.end() && !silence.end());
        let call = Instant::now();
        assert_eq!(silence.client_left(call), call, "it was answered meanwhile");
        tokio::time::advance(SLOW).await;
        let later = Instant::now();
        assert_eq!(
            silence.waits_since(later),
            later,
            "nobody has called for long"
        );
        assert_eq!(silence.client_left(later), later);
    }

    #[test]
    fn refused_connection_to_the_rdma_port_has_a_hint() {
        let check = |addr: &str, kind: io::ErrorKind, expected: bool| {
            let upstream = Upstream::tcp(addr.parse().unwrap());
            let hint = hint(&upstream, &io::Error::from(kind).into());
            assert_eq!(hint.contains("rdma://"), expected, "{addr} {kind}");
        };
        check("192.0.2.1:20049", io::ErrorKind::ConnectionRefused, true);
        check("192.0.2.1:20049", io::ErrorKind::TimedOut, false);
        assert_eq!(
            hint_of_port(&Upstream::tcp(([192, 0, 2, 1], 2049).into())),
            ""
        );
        check("192.0.2.1:2049", io::ErrorKind::ConnectionRefused, false);
    }
}
