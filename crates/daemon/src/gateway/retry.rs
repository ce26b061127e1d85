//! Pairs of the file that could not be started at a reload: they are tried again.

use super::circles::{ResolvedPair, circle};
use super::pairs::{Pair, Pairs};
use super::plan::PairPlan;
use super::replace::{Failed, leads_back};
use crate::end::End;
use std::future::pending;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// Pause before pairs that are not served are tried again.
pub(super) const RETRY: Duration = Duration::from_secs(30);

impl Failed {
    /// Whether it is tried again. One that another pair still serves in its place is not: that would lose its connections
    /// each time.
    pub(super) fn is_retried(&self) -> bool {
        self.kept.is_none()
    }
}

/// Pairs of the file that could not be started, and the times at which they are tried again.
pub(super) struct Retries {
    /// The pairs of the file, in order.
    order: Vec<PairPlan>,
    failed: Vec<Failed>,
    times: Interval,
}

impl Retries {
    /// Those of a file with these pairs, in this order. The first time is after the pause.
    pub(super) fn of(order: Vec<PairPlan>, failed: Vec<Failed>) -> Self {
        let mut times = interval(RETRY);
        times.reset();
        times.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            order,
            failed,
            times,
        }
    }

    /// The pairs that could not be started so far.
    pub(super) fn failed(&self) -> &[Failed] {
        &self.failed
    }

    /// Waits for the next time, if a pair is tried again.
    pub(super) async fn due(&mut self) {
        match self.failed.iter().any(Failed::is_retried) {
            true => drop(self.times.tick().await),
            false => pending().await,
        }
    }

    /// Tries pairs once more that are not served, until the end comes. Keeps those that still are not as the file says. No
    /// running pair is touched.
    pub(super) async fn try_again(&mut self, pairs: &mut Pairs, end: &mut End<'_>) {
        let retried = self.failed.iter().filter(|one| one.is_retried());
        let plans: Vec<PairPlan> = retried.map(|one| one.plan.clone()).collect();
        let running = pairs.running.iter().map(|pair| &pair.plan);
        let all: Vec<PairPlan> = plans.iter().chain(running).cloned().collect();
        if end.before(pairs.look_up_clients(&all)).await.is_none() {
            return;
        }
        let Some(prepared) = end.before(pairs.prepare_all(&plans)).await else {
            return;
        };
        let mut prepared = prepared.into_iter();
        let mut still = Vec::new();
        for mut one in std::mem::take(&mut self.failed) {
            let prepared = one.is_retried().then(|| prepared.next()).flatten();
            let prepared = match end.has_come().await {
                true => None,
                false => prepared,
            };
            let Some(prepared) = prepared else {
                still.push(one);
                continue;
            };
            one.attempts += 1;
            let started = match prepared.and_then(|to| leads_elsewhere(pairs, &one.plan, to)) {
                Ok(upstream) => pairs.start(one.plan.clone(), upstream).await,
                Err(error) => Err(error),
            };
            match started {
                Ok(pair) => {
                    let listen = pair.url();
                    tracing::info!(target: "gateway", listen, "the pair is served now, at attempt {}", one.attempts);
                    pairs.running.push(pair);
                }
                Err(error) => {
                    let why = format!("{error:#}");
                    if one.why != why {
                        one.why = why;
                        tracing::warn!(target: "gateway", "{one}");
                    }
                    still.push(one);
                }
            }
        }
        self.failed = still;
        let place = |pair: &Pair| {
            let mut order = self.order.iter();
            order.position(|plan| plan.listen == pair.plan.listen)
        };
        pairs
            .running
            .sort_by_key(|pair| place(pair).unwrap_or(usize::MAX));
        pairs.are_running().await;
    }
}

/// Checks that a pair would not lead back to itself through those that run. Returns the addresses of its server.
fn leads_elsewhere(
    pairs: &Pairs,
    plan: &PairPlan,
    upstream: Vec<SocketAddr>,
) -> anyhow::Result<Vec<SocketAddr>> {
    let running = pairs.running.iter().map(|pair| ResolvedPair {
        plan: &pair.plan,
        listening: pair.listening,
        upstream: &pair.upstream,
    });
    let this = ResolvedPair {
        plan,
        listening: pairs.sockets.listening_at(plan.listen.addr),
        upstream: &upstream,
    };
    let known: Vec<_> = [this].into_iter().chain(running).collect();
    match circle(&known, 0) {
        Some(way) => Err(leads_back(&way)),
        None => Ok(upstream),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::config::Given;
    use crate::gateway::circles::tests::plan;
    use crate::gateway::configuration::{Configuration, PairsFrom, Source};
    use crate::gateway::observed::Observed;
    use crate::gateway::operation::Operation;
    use crate::gateway::pairs::GatewayOptions;
    use crate::gateway::settings::GatewaySettings;
    use crate::gateway::sockets::Sockets;
    use crate::reports::Tells;
    use rpcrdma::{ClientConfig, ServerConfig, iwarp};
    use std::net::TcpListener;

    /// That of a command line.
    fn configuration() -> Configuration {
        let (pair, _) = plan("tcp://127.0.0.1:0", "rdma://127.0.0.1:1");
        let source = Source {
            settings: GatewaySettings::default(),
            given: Given::default(),
            pairs: PairsFrom::CommandLine(Vec::new(), Box::new(pair)),
        };
        source.read().unwrap().0
    }

    pub(in crate::gateway) fn pairs() -> Pairs {
        let options = GatewayOptions {
            trust_local: true,
            call_timeout: Duration::from_secs(300),
            in_file: false,
            server: ServerConfig::default().with_idle_timeout(None),
            client: ClientConfig::default(),
            iwarp: iwarp::Config::default(),
        };
        Pairs::new(options, Sockets::default())
    }

    /// Runs these, and returns those that cannot be started.
    async fn replace(pairs: &mut Pairs, plans: &[PairPlan]) -> Vec<Failed> {
        let replaced = pairs.replace(plans.to_vec(), &mut End::never()).await;
        replaced.unwrap().failed
    }

    fn listening(pairs: &Pairs) -> Vec<SocketAddr> {
        pairs.running().iter().map(|pair| pair.listening).collect()
    }

    #[tokio::test]
    async fn pair_is_started_once_its_port_is_free_and_comes_to_its_place() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap();
        let (first, _) = plan(&format!("tcp://{port}"), "rdma://127.0.0.1:1");
        let (second, _) = plan("tcp://127.0.0.1:0", "rdma://127.0.0.1:1");
        let order = [first, second];
        let mut pairs = pairs();
        let failed = replace(&mut pairs, &order).await;
        assert_eq!((failed.len(), listening(&pairs).len()), (1, 1));
        let mut retries = Retries::of(order.to_vec(), failed);
        let end = &mut End::never();
        retries.try_again(&mut pairs, end).await;
        let failed = retries.failed();
        assert_eq!(failed[0].attempts, 2);
        assert!(failed[0].why.contains("is in use"), "{}", failed[0].why);
        drop(taken);
        retries.try_again(&mut pairs, end).await;
        assert!(retries.failed().is_empty());
        assert_eq!((listening(&pairs)[0], listening(&pairs).len()), (port, 2));
        pairs.end().await;
    }

    #[tokio::test]
    async fn pair_that_could_not_be_started_is_shown_and_served_later_without_a_reload() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap();
        let (first, _) = plan("tcp://127.0.0.1:0", "rdma://127.0.0.1:1");
        let (second, _) = plan(&format!("tcp://{port}"), "rdma://127.0.0.1:1");
        let order = vec![first, second];
        let mut pairs = pairs();
        let failed = replace(&mut pairs, &order).await;
        let observed = Observed::new(&pairs);
        observed.record_reload(Err(failed[0].to_string()));
        observed.set_failed(failed.clone());
        let mut operation = Operation {
            configuration: &configuration(),
            log_statistics: |_| {},
            pairs: &mut pairs,
            retries: Retries::of(order, failed),
            observed: &observed,
        };
        let shows = |up: f64, reloaded: f64| {
            let metrics = observed.metrics();
            let values = |name: &str, listen: &str| -> Vec<f64> {
                let family = metrics.iter().find(|family| family.name() == name);
                let all = family.unwrap().get_metric().iter();
                let those = all.filter(|one| {
                    let labels = one.get_label();
                    listen.is_empty() || labels.iter().any(|label| label.value() == listen)
                });
                those.map(|one| one.get_gauge().get_value()).collect()
            };
            let listen = format!("tcp://{port}");
            assert_eq!(values("rpcrdma_gateway_pair_up", &listen), [up]);
            assert_eq!(values("rpcrdma_last_reload_successful", ""), [reloaded]);
        };
        shows(0.0, 0.0);
        let end = &mut End::never();
        operation.retry(end).await;
        shows(0.0, 0.0);
        drop(taken);
        operation.retry(end).await;
        shows(1.0, 1.0);
        assert!(operation.retries.failed().is_empty());
        assert_eq!(operation.retries.times.period(), RETRY);
        pairs.end().await;
    }

    #[tokio::test]
    async fn pair_that_is_served_as_before_is_not_tried() {
        let (changed, _) = plan("tcp://127.0.0.1:0", "rdma://127.0.0.1:1");
        let failed = Failed {
            plan: changed.clone(),
            why: "a reason".to_owned(),
            kept: Some("tcp://127.0.0.1:7".to_owned()),
            attempts: 1,
        };
        let mut pairs = pairs();
        let mut retries = Retries::of(vec![changed], vec![failed]);
        retries.try_again(&mut pairs, &mut End::never()).await;
        let failed = retries.failed();
        assert_eq!((failed.len(), failed[0].attempts), (1, 1));
        assert!(listening(&pairs).is_empty());
    }

    #[tokio::test]
    async fn pair_that_would_lead_back_through_a_running_one_is_not_started() {
        let mut pairs = pairs();
        let (one, _) = plan("tcp://127.0.0.1:0", "rdma://127.0.0.1:1");
        assert!(replace(&mut pairs, &[one]).await.is_empty());
        let at = listening(&pairs)[0];
        pairs.running[0].upstream = vec!["127.0.0.1:1".parse().unwrap()];
        let (other, to) = plan("rdma://127.0.0.1:1", &format!("tcp://{at}"));
        let refused = leads_elsewhere(&pairs, &other, to).unwrap_err().to_string();
        assert!(
            refused.starts_with("its server is the gateway itself"),
            "{refused}"
        );
        pairs.end().await;
    }
}
