//! Pairs of the file that could not be started at a reload: they are tried again.

use super::circles::{ResolvedPair, circle};
use super::pairs::{Pair, Pairs};
use super::plan::PairPlan;
use super::replace::{Failed, leads_back};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// Pause before pairs that are not served are tried again.
pub(super) const RETRY: Duration = Duration::from_secs(30);

/// The times at which pairs are tried again; the first one is after the pause.
pub(super) fn retries() -> Interval {
    let mut retries = interval(RETRY);
    retries.reset();
    retries.set_missed_tick_behavior(MissedTickBehavior::Delay);
    retries
}

impl Failed {
    /// Whether it is tried again. One that another pair still serves in its place is not: that would lose its connections
    /// each time.
    pub(super) fn is_retried(&self) -> bool {
        self.kept.is_none()
    }
}

impl Pairs {
    /// Tries pairs once more that are not served, of a file with these pairs in this order. Returns those that still are not
    /// as the file says. No running pair is touched.
    pub(super) async fn start_failed(
        &mut self,
        failed: Vec<Failed>,
        order: &[PairPlan],
    ) -> Vec<Failed> {
        let retried = failed.iter().filter(|one| one.is_retried());
        let plans: Vec<PairPlan> = retried.map(|one| one.plan.clone()).collect();
        let running = self.running.iter().map(|pair| &pair.plan);
        let all: Vec<PairPlan> = plans.iter().chain(running).cloned().collect();
        self.look_up_clients(&all).await;
        let mut prepared = self.prepare_all(&plans).await.into_iter();
        let mut still = Vec::new();
        for mut one in failed {
            let Some(prepared) = one.is_retried().then(|| prepared.next()).flatten() else {
                still.push(one);
                continue;
            };
            one.attempts += 1;
            let started = match prepared.and_then(|to| self.leads_elsewhere(&one.plan, to)) {
                Ok(upstream) => self.start(one.plan.clone(), upstream).await,
                Err(error) => Err(error),
            };
            match started {
                Ok(pair) => {
                    let listen = pair.url();
                    tracing::info!(target: "gateway", listen, "the pair is served now, at attempt {}", one.attempts);
                    self.running.push(pair);
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
        let place = |pair: &Pair| {
            order
                .iter()
                .position(|plan| plan.listen == pair.plan.listen)
        };
        self.running
            .sort_by_key(|pair| place(pair).unwrap_or(usize::MAX));
        self.are_running().await;
        still
    }

    /// Checks that a pair would not lead back to itself through those that run. Returns the addresses of its server.
    fn leads_elsewhere(
        &self,
        plan: &PairPlan,
        upstream: Vec<SocketAddr>,
    ) -> anyhow::Result<Vec<SocketAddr>> {
        let running = self.running.iter().map(|pair| ResolvedPair {
            plan: &pair.plan,
            listening: pair.listening,
            upstream: &pair.upstream,
        });
        let this = ResolvedPair {
            plan,
            listening: self.sockets.listening_at(plan.listen.addr),
            upstream: &upstream,
        };
        let known: Vec<_> = [this].into_iter().chain(running).collect();
        match circle(&known, 0) {
            Some(way) => Err(leads_back(&way)),
            None => Ok(upstream),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::circles::tests::plan;
    use crate::gateway::observed::Observed;
    use crate::gateway::operation::{Administration, Operation, Reread};
    use crate::gateway::pairs::GatewayOptions;
    use crate::gateway::sockets::Sockets;
    use crate::reports::Tells;
    use rpcrdma::{ClientConfig, ServerConfig, iwarp};
    use std::net::TcpListener;
    use std::path::Path;

    /// A command line without a file.
    struct NoFile;

    impl Administration for NoFile {
        fn file(&self) -> Option<&Path> {
            None
        }

        fn reread(&self) -> anyhow::Result<Reread> {
            anyhow::bail!("there is no file")
        }

        fn log_statistics(&self, _: &Observed) {}
    }

    fn pairs() -> Pairs {
        let options = GatewayOptions {
            trust_local: true,
            max_connections: 1024,
            idle_timeout: None,
            call_timeout: Duration::from_secs(300),
            in_file: false,
            server: ServerConfig::default(),
            client: ClientConfig::default(),
            iwarp: iwarp::Config::default(),
        };
        Pairs::new(options, Sockets::default())
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
        let failed = pairs.replace(order.to_vec()).await.failed;
        assert_eq!((failed.len(), listening(&pairs).len()), (1, 1));
        let failed = pairs.start_failed(failed, &order).await;
        assert_eq!(failed[0].attempts, 2);
        assert!(failed[0].why.contains("is in use"), "{}", failed[0].why);
        drop(taken);
        let failed = pairs.start_failed(failed, &order).await;
        assert!(failed.is_empty());
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
        let failed = pairs.replace(order.clone()).await.failed;
        let observed = Observed::new(&pairs);
        observed.record_reload(Err(failed[0].to_string()));
        observed.set_failed(failed.clone());
        let mut operation = Operation {
            administration: &NoFile,
            pairs: &mut pairs,
            order,
            failed,
            retries: retries(),
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
        operation.retry().await;
        shows(0.0, 0.0);
        drop(taken);
        operation.retry().await;
        shows(1.0, 1.0);
        assert!(operation.failed.is_empty());
        assert_eq!(operation.retries.period(), RETRY);
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
        let failed = pairs.start_failed(vec![failed], &[changed]).await;
        assert_eq!((failed.len(), failed[0].attempts), (1, 1));
        assert!(listening(&pairs).is_empty());
    }

    #[tokio::test]
    async fn pair_that_would_lead_back_through_a_running_one_is_not_started() {
        let mut pairs = pairs();
        let (one, _) = plan("tcp://127.0.0.1:0", "rdma://127.0.0.1:1");
        assert!(pairs.replace(vec![one]).await.failed.is_empty());
        let at = listening(&pairs)[0];
        pairs.running[0].upstream = vec!["127.0.0.1:1".parse().unwrap()];
        let (other, to) = plan("rdma://127.0.0.1:1", &format!("tcp://{at}"));
        let refused = pairs.leads_elsewhere(&other, to).unwrap_err().to_string();
        assert!(
            refused.starts_with("its server is the gateway itself"),
            "{refused}"
        );
        pairs.end().await;
    }
}
