//! Running other pairs from now on: those that stay are not touched, and none ends for one that cannot be.

use super::advice;
use super::circles::{ResolvedPair, circle};
use super::pairs::{Pair, Pairs};
use super::plan::PairPlan;
use super::sockets::Sockets;
use super::urls::ListenUrl;
use crate::end::End;
use crate::errors::check_none;
use anyhow::anyhow;
use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;

/// A pair that is to run.
struct Wanted {
    plan: PairPlan,
    /// Addresses of the server, if there is nothing that speaks against the pair.
    prepared: anyhow::Result<Vec<SocketAddr>>,
    /// The pair that it is, or that it takes the place of.
    running: Option<Pair>,
    /// Whether the running pair is this one.
    stays: bool,
}

impl Wanted {
    /// Whether a running pair is this one. A name without an answer means what it meant before, and one
    /// that answers in another order means the same.
    fn is(&self, pair: &Pair) -> bool {
        let same = match &self.prepared {
            Ok(addrs) => {
                let set = |addrs: &[SocketAddr]| addrs.iter().copied().collect::<BTreeSet<_>>();
                set(addrs) == set(&pair.upstream)
            }
            Err(_) => true,
        };
        same && self.plan.is_same_but_for_clients(&pair.plan)
    }

    /// The pair, with the addresses of the server as far as they are known.
    fn resolved(&self, sockets: &Sockets) -> ResolvedPair<'_> {
        let before = self.running.as_ref().map(|pair| &pair.upstream[..]);
        ResolvedPair {
            plan: &self.plan,
            listening: sockets.listening_at(self.plan.listen.addr),
            upstream: match &self.prepared {
                Ok(addrs) => addrs,
                Err(_) => before.unwrap_or_default(),
            },
        }
    }

    /// Whether it cannot run beside a pair: both need a port, or say to rpcbind where they are.
    fn needs_the_end_of(&self, pair: &Pair) -> bool {
        self.plan.listeners().any(|addr| pair.has(addr)) || (self.plan.rpcbind && pair.plan.rpcbind)
    }
}

/// Changes of a replacement.
#[derive(Default)]
pub(super) struct Replaced {
    added: Vec<String>,
    removed: Vec<String>,
    anew: Vec<String>,
    /// Pairs that have other clients, with the number of connections that were closed.
    other_clients: Vec<(ListenUrl, usize)>,
    /// Pairs that could not be started.
    pub(super) failed: Vec<Failed>,
}

/// A pair that could not be started.
#[derive(Clone, Debug)]
pub(super) struct Failed {
    /// Its configuration.
    pub(super) plan: PairPlan,
    /// The reason.
    pub(super) why: String,
    /// The listener of the pair that it was to replace, as a URL, if that still runs.
    pub(super) kept: Option<String>,
    /// Attempts to start it.
    pub(super) attempts: u64,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.kept {
            Some(_) => "is not changed",
            None => "is not served, and tried again every 30 s",
        };
        write!(f, "{} {state}: {}", self.plan.listen, self.why)
    }
}

impl fmt::Display for Replaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clients = self.other_clients.iter();
        let clients = clients.map(|(listen, closed)| match closed {
            0 => format!("{listen} (connections kept)"),
            closed => {
                format!("{listen} (connections closed that are not allowed any more: {closed})")
            }
        });
        let kinds = [
            ("added", &self.added),
            ("removed", &self.removed),
            ("started anew", &self.anew),
            ("changed allow of", &clients.collect()),
        ];
        let said: Vec<String> = kinds
            .into_iter()
            .filter(|(_, names)| !names.is_empty())
            .map(|(kind, names)| format!("{kind} {}", names.join(", ")))
            .collect();
        match said.is_empty() {
            true => f.write_str("nothing has changed"),
            false => f.write_str(&said.join("; ")),
        }
    }
}

impl Replaced {
    fn starts(&mut self, plan: &PairPlan, before: Option<&PairPlan>) {
        match before {
            Some(before) if before.listen == plan.listen => {
                self.anew.push(plan.listen.to_string());
            }
            before => {
                self.removed
                    .extend(before.map(|before| before.listen.to_string()));
                self.added.push(plan.listen.to_string());
            }
        }
    }

    fn fails(&mut self, plan: &PairPlan, why: String, kept: Option<&Pair>) {
        self.failed.push(Failed {
            plan: plan.clone(),
            why,
            kept: kept.map(Pair::url),
            attempts: 1,
        });
    }
}

/// Refuses pairs that would lead back to themselves. Those that run stay.
fn refuse_circles(wanted: &mut [Wanted], sockets: &Sockets) {
    let known: Vec<_> = wanted.iter().map(|one| one.resolved(sockets)).collect();
    let ways: Vec<Option<String>> = (0..known.len()).map(|of| circle(&known, of)).collect();
    for (one, way) in wanted.iter_mut().zip(ways) {
        if let (false, Ok(_), Some(way)) = (one.stays, &one.prepared, way) {
            one.prepared = Err(leads_back(&way));
        }
    }
}

/// Error of a pair that leads back to itself.
pub(super) fn leads_back(way: &str) -> anyhow::Error {
    anyhow!("its server is the gateway itself: {way}")
}

impl Pairs {
    /// Runs these from now on. Pairs that stay the same are not touched, nor those in which only the
    /// allowed clients differ, but for these. One that cannot be started is reported, and the one that it
    /// was to replace goes on. Returns `None` if the end comes before all is done: no further pair is started then, and each
    /// that ran runs or is ending.
    pub(super) async fn replace(
        &mut self,
        plans: Vec<PairPlan>,
        end: &mut End<'_>,
    ) -> Option<Replaced> {
        let before = self.running.iter().map(|pair| &pair.plan);
        let all: Vec<PairPlan> = plans.iter().chain(before).cloned().collect();
        end.before(self.look_up_clients(&all)).await?;
        let prepared = end.before(self.prepare_all(&plans)).await?;
        let wanted = plans.into_iter().zip(prepared);
        let mut wanted: Vec<Wanted> = wanted
            .map(|(plan, prepared)| Wanted {
                plan,
                prepared,
                running: None,
                stays: false,
            })
            .collect();
        let mut leaving = match_up(&mut wanted, std::mem::take(&mut self.running));
        refuse_circles(&mut wanted, &self.sockets);
        let mut replaced = Replaced::default();
        replaced
            .removed
            .extend(leaving.iter().map(|pair| pair.plan.listen.to_string()));
        let all = self.start_beside(wanted, &mut leaving, &mut replaced, end);
        let all = all.await;
        // Their ports have to be free before others can have them.
        self.begin_end(leaving);
        end.before(self.ended()).await;
        let mut running = Vec::new();
        for next in all {
            match next {
                Next::Runs(pair) => running.push(pair),
                Next::Starts { .. } if end.has_come().await => {}
                Next::Starts {
                    plan,
                    upstream,
                    before,
                } => {
                    let started = self.start_or_go_back(plan, upstream, before, &mut replaced);
                    let started = started.await;
                    running.extend(started);
                }
            }
        }
        self.run(running).await;
        for (listen, closed) in &mut replaced.other_clients {
            for pair in self
                .running
                .iter()
                .filter(|pair| pair.plan.listen == *listen)
            {
                *closed += end.before(pair.close_those_not_allowed()).await?;
            }
        }
        match end.has_come().await {
            true => None,
            false => Some(replaced),
        }
    }

    /// Starts what needs no port of another pair. Says what runs, and what is to be started once all
    /// that is leaving has ended. Once the end has come, it starts nothing more.
    async fn start_beside(
        &self,
        wanted: Vec<Wanted>,
        leaving: &mut Vec<Pair>,
        replaced: &mut Replaced,
        end: &mut End<'_>,
    ) -> Vec<Next> {
        let mut ending: Vec<&Pair> = leaving.iter().collect();
        let replaceable = wanted.iter().filter(|one| !one.stays);
        ending.extend(replaceable.filter_map(|one| one.running.as_ref()));
        let has = |addr| ending.iter().any(|pair| pair.has(addr));
        let can_wait: Vec<Option<anyhow::Result<()>>> = wanted
            .iter()
            .map(|one| {
                let waits = ending.iter().any(|pair| one.needs_the_end_of(pair));
                waits.then(|| check_none(self.try_out(&one.plan, has)))
            })
            .collect();
        let mut next = Vec::new();
        for (one, can_wait) in wanted.into_iter().zip(can_wait) {
            let Wanted {
                plan,
                prepared,
                running,
                stays,
            } = one;
            if end.has_come().await {
                next.extend(running.map(Next::Runs));
                continue;
            }
            let waits = can_wait.is_some();
            let prepared = prepared.and_then(|addrs| can_wait.unwrap_or(Ok(())).map(|()| addrs));
            let runs = match (stays, prepared, running) {
                (true, _, Some(mut pair)) => {
                    if pair.plan.allow != plan.allow {
                        replaced.other_clients.push((plan.listen, 0));
                        advice::log(&plan);
                    }
                    pair.plan = plan;
                    Some(pair)
                }
                (_, Err(error), before) => {
                    replaced.fails(&plan, format!("{error:#}"), before.as_ref());
                    before
                }
                (_, Ok(upstream), before) if waits => {
                    next.push(Next::Starts {
                        plan,
                        upstream,
                        before: before
                            .as_ref()
                            .map(|pair| (pair.plan.clone(), pair.upstream.clone())),
                    });
                    leaving.extend(before);
                    None
                }
                (_, Ok(upstream), before) => match self.start(plan.clone(), upstream).await {
                    Ok(pair) => {
                        replaced.starts(&plan, before.as_ref().map(|pair| &pair.plan));
                        leaving.extend(before);
                        Some(pair)
                    }
                    Err(error) => {
                        replaced.fails(&plan, format!("{error:#}"), before.as_ref());
                        before
                    }
                },
            };
            next.extend(runs.map(Next::Runs));
        }
        next
    }

    /// Starts a pair, or else the one again that has ended for it.
    async fn start_or_go_back(
        &self,
        plan: PairPlan,
        upstream: Vec<SocketAddr>,
        before: Option<(PairPlan, Vec<SocketAddr>)>,
        replaced: &mut Replaced,
    ) -> Option<Pair> {
        let error = match self.start(plan.clone(), upstream).await {
            Ok(pair) => {
                replaced.starts(&plan, before.as_ref().map(|(before, _)| before));
                return Some(pair);
            }
            Err(error) => error,
        };
        let Some((before, addrs)) = before else {
            replaced.fails(&plan, format!("{error:#}"), None);
            return None;
        };
        match self.start(before, addrs).await {
            Ok(pair) => {
                replaced.fails(&plan, format!("{error:#}"), Some(&pair));
                Some(pair)
            }
            Err(again) => {
                let why = format!("{error:#}; nor can it be as before: {again:#}");
                replaced.fails(&plan, why, None);
                None
            }
        }
    }
}

/// Outcome for a pair that is to run.
enum Next {
    Runs(Pair),
    Starts {
        plan: PairPlan,
        upstream: Vec<SocketAddr>,
        /// The pair that ends for it, with the addresses of its server.
        before: Option<(PairPlan, Vec<SocketAddr>)>,
    },
}

/// Gives each pair that is to run the running one that it is, or that it takes the place of: the one with
/// its listening address, or else with its server. Returns those that have no place any more.
fn match_up(wanted: &mut [Wanted], running: Vec<Pair>) -> Vec<Pair> {
    let mut left = Vec::new();
    for pair in running {
        let mut free = wanted.iter_mut().filter(|one| one.running.is_none());
        match free.find(|one| one.is(&pair)) {
            Some(one) => {
                one.running = Some(pair);
                one.stays = true;
            }
            None => left.push(pair),
        }
    }
    let same_listen = |one: &PairPlan, other: &PairPlan| one.listen == other.listen;
    let same_server = |one: &PairPlan, other: &PairPlan| {
        one.upstream == other.upstream && one.listen.scheme == other.listen.scheme
    };
    let likenesses: [fn(&PairPlan, &PairPlan) -> bool; 2] = [same_listen, same_server];
    for alike in likenesses {
        for one in wanted.iter_mut().filter(|one| one.running.is_none()) {
            let at = left.iter().position(|pair| alike(&one.plan, &pair.plan));
            one.running = at.map(|at| left.remove(at));
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::circles::tests::plan;
    use crate::gateway::retry::tests::pairs;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    /// An end that comes when it is asked for so many times.
    struct AfterPolls(usize);

    impl Future for AfterPolls {
        type Output = ();

        fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            match self.0 {
                0 => Poll::Ready(()),
                _ => {
                    self.0 -= 1;
                    Poll::Pending
                }
            }
        }
    }

    fn to(listen: &str, upstream_port: u16) -> PairPlan {
        let (plan, _) = plan(listen, &format!("rdma://127.0.0.1:{upstream_port}"));
        plan
    }

    fn urls(pairs: &Pairs) -> Vec<String> {
        pairs.running.iter().map(Pair::url).collect()
    }

    #[tokio::test]
    async fn pairs_run_or_end_in_order_at_whatever_step_of_a_reload_the_end_comes() {
        let any = "tcp://127.0.0.1:0";
        let (mut steps, mut kept_all, mut after_the_end) = (0, 0, 0);
        loop {
            let mut pairs = pairs();
            let before = vec![to(any, 1), to(any, 2), to(any, 3)];
            let replaced = pairs.replace(before, &mut End::never()).await;
            assert!(replaced.unwrap().failed.is_empty());
            let [stays, changes, leaves] = &urls(&pairs)[..] else {
                panic!("three pairs");
            };
            // The second needs the port of its predecessor, and the last one is new.
            let wanted = vec![to(any, 1), to(changes, 4), to(any, 5)];
            let mut end = End::at(AfterPolls(steps));
            let replaced = pairs.replace(wanted, &mut end).await;
            let now = urls(&pairs);
            assert!(now.contains(stays), "step {steps}: {now:?}");
            let unchanged = now.contains(changes) && now.contains(leaves) && now.len() == 3;
            match (&replaced, unchanged) {
                (Some(replaced), _) => assert_eq!((now.len(), replaced.failed.len()), (3, 0)),
                (None, true) => kept_all += 1,
                // Those that run no more have ended, or are ending and waited for.
                (None, false) => after_the_end += 1,
            }
            pairs.end().await;
            if replaced.is_some() {
                break;
            }
            steps += 1;
        }
        assert!(kept_all > 0 && after_the_end > 0, "{steps} steps");
    }
}
