//! What is said of a server that is away: once for all its clients, and once when it answers again.

use crate::config::Upstream;
use nfs_proto::{NFS_PORT, NFS_RDMA_PORT};
use oncrpc::Cause;
use oncrpc_tcp::ConnectionEnd;
use std::io;
use std::sync::{Mutex, PoisonError};
use tokio::time::Instant;

/// How a server fails its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Symptom {
    /// It cannot be connected to, or does not answer.
    Away,
    /// It takes a connection in, and closes it before its first reply.
    Closes,
    /// It is connected, and does not answer a call for [`SLOW`](crate::retry::SLOW).
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

/// What may be wrong if a server over RDMA does not answer an attempt to connect.
pub(crate) fn hint_of_port(upstream: &Upstream) -> &'static str {
    let has_port = |port| upstream.addrs().iter().any(|addr| addr.port() == port);
    match upstream {
        Upstream::Rdma { .. } if has_port(NFS_PORT) => {
            "; is this the plain NFS/TCP port? Then write tcp:// for the upstream"
        }
        _ => "",
    }
}

/// What may be wrong if a TCP server refuses connections at its port.
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
