//! Addresses of hosts that rules name.
//!
//! The system's resolver may take as long as it likes, and cannot be told to stop. It is asked on threads
//! of our own, of which there are few, and not waited for longer than a deadline: the addresses that a
//! name had before are kept then.

use crate::clients::{Addresses, HostName};
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

/// How often names are looked up again.
pub(crate) const REFRESH: Duration = Duration::from_secs(60);

/// How long all names together may take.
const DEADLINE: Duration = Duration::from_secs(5);

/// Names that are looked up at a time.
const MAX_LOOKUPS: usize = 16;

/// Addresses that a name may have.
const MAX_ADDRESSES: usize = 64;

/// The resolver of the system, with a limit on lookups at a time.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    deadline: Duration,
    ask: fn(&str) -> io::Result<Vec<IpAddr>>,
    lookups: Arc<Semaphore>,
    /// Those that had no answer last time, about which the operator was told.
    failing: BTreeSet<HostName>,
}

impl Default for Names {
    fn default() -> Self {
        Self::new(DEADLINE, |name| {
            let found = (name, 0).to_socket_addrs()?;
            Ok(found.map(|addr| addr.ip().to_canonical()).collect())
        })
    }
}

impl Names {
    fn new(deadline: Duration, ask: fn(&str) -> io::Result<Vec<IpAddr>>) -> Self {
        Self {
            deadline,
            ask,
            lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)),
            failing: BTreeSet::new(),
        }
    }

    /// Asks the system for the addresses of hosts. A name without an answer in time has an error.
    pub(crate) async fn ask(
        &self,
        names: BTreeSet<HostName>,
    ) -> Vec<(HostName, io::Result<Vec<IpAddr>>)> {
        let until = Instant::now() + self.deadline;
        let mut asked = JoinSet::new();
        for name in names {
            let (lookups, ask) = (Arc::clone(&self.lookups), self.ask);
            asked.spawn(async move {
                let answer = timeout_at(until, async {
                    let permit = lookups.acquire_owned().await.map_err(io::Error::other)?;
                    on_a_thread(permit, ask, name.clone()).await
                });
                let answer = answer
                    .await
                    .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
                let answer = answer.map(|mut found| {
                    found.sort();
                    found.dedup();
                    found.truncate(MAX_ADDRESSES);
                    found
                });
                (name, answer)
            });
        }
        asked.join_all().await
    }

    /// The addresses of hosts. One for which there is no answer keeps those that are known of it.
    pub(crate) async fn look_up(
        &mut self,
        names: BTreeSet<HostName>,
        known: &Addresses,
    ) -> Addresses {
        let mut addresses = Addresses::new();
        let mut failing = BTreeSet::new();
        for (name, answer) in self.ask(names).await {
            let found = match answer {
                Ok(found) => found,
                Err(error) => {
                    let known = known.get(&name).cloned().unwrap_or_default();
                    if !self.failing.contains(&name) {
                        let then = match known.len() {
                            0 => "this host is not served",
                            _ => "it keeps the addresses that it had",
                        };
                        tracing::warn!(host = name.as_str(), %error, "cannot look up a host: {then}");
                    }
                    failing.insert(name.clone());
                    known
                }
            };
            addresses.insert(name, found);
        }
        self.failing = failing;
        addresses
    }
}

/// Asks on a thread that nobody waits for at the end of the process.
async fn on_a_thread(
    permit: OwnedSemaphorePermit,
    ask: fn(&str) -> io::Result<Vec<IpAddr>>,
    name: HostName,
) -> io::Result<Vec<IpAddr>> {
    let (answer, answered) = oneshot::channel();
    std::thread::Builder::new()
        .name("rpcrdma-names".to_owned())
        .spawn(move || {
            let _permit = permit;
            // Nobody may wait for it any more.
            let _ = answer.send(ask(name.as_str()));
        })?;
    answered.await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::Clients;

    fn name(text: &str) -> HostName {
        match text.parse().unwrap() {
            Clients::Host(name) => name,
            Clients::Network(_) => panic!("{text} is no name"),
        }
    }

    #[tokio::test]
    async fn addresses_of_a_host_are_those_of_the_system() {
        let mut names = Names::default();
        let found = names
            .look_up([name("localhost")].into(), &Addresses::new())
            .await;
        assert!(found[&name("localhost")].iter().all(IpAddr::is_loopback));
        assert!(!found[&name("localhost")].is_empty());
    }

    #[tokio::test]
    async fn host_without_an_answer_keeps_its_addresses() {
        let here: IpAddr = "192.0.2.7".parse().unwrap();
        let known = Addresses::from([(name("a"), vec![here])]);
        let ask = [name("a"), name("b")];
        let mut names = Names::new(DEADLINE, |_| Err(io::ErrorKind::NotFound.into()));
        let found = names.look_up(ask.clone().into(), &known).await;
        assert_eq!(
            (&found[&name("a")][..], &found[&name("b")][..]),
            (&[here][..], &[][..])
        );
        let mut names = Names::new(DEADLINE, |_| Ok(Vec::new()));
        let found = names.look_up(ask.into(), &known).await;
        assert!(found[&name("a")].is_empty(), "it has none any more");
    }

    #[tokio::test]
    async fn resolver_that_never_answers_is_not_waited_for() {
        let never = |_: &str| loop {
            std::thread::park();
        };
        let mut names = Names::new(Duration::ZERO, never);
        let many: BTreeSet<HostName> = (0..100).map(|n| name(&format!("h{n}"))).collect();
        let found = names.look_up(many, &Addresses::new()).await;
        assert_eq!(found.len(), 100);
    }
}
