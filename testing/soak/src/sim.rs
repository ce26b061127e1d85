//! A run in virtual time, on one thread.

use crate::actors::{Leaks, gone, leaks};
use crate::dice::Dice;
use crate::faults::FaultRates;
use crate::scenario::{Load, Scenario};
use crate::stage::{Counts, Net, Stage};
use crate::{Report, calls, files, nfs4, panics, relayed};
use rpcrdma_watch::{Notes, Watch};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::time::{Instant, timeout};
use verbs::{Invalidation, Limits, ProtocolError, Provider};
use verbs_sim::{Fabric, Outstanding, Side, Way};

/// Virtual time within which every run has to end.
const LIMIT: Duration = Duration::from_secs(24 * 3600);

/// Virtual time within which all tasks have to end after that.
const SETTLED: Duration = Duration::from_secs(120);

/// Streams of random numbers.
const PLAY: u64 = 1;
const NET: u64 = 2;

/// Plays a scenario from a seed; with `record`, the report has a line for each event.
pub fn run(scenario: &Scenario, seed: u64, record: bool) -> Report {
    let fabric = Fabric::new(seed);
    let watch = if record {
        fabric.record();
        let fabric = fabric.clone();
        let notes: Notes = Arc::new(move |line| fabric.note(|| line));
        Watch::with_notes(notes)
    } else {
        Watch::default()
    };
    let stage = Arc::new(Stage {
        scenario: *scenario,
        watch,
        net: Box::new(Simulated {
            fabric: fabric.clone(),
            scenario: *scenario,
        }),
        counts: Counts::default(),
        pace: 1,
    });
    panics::begin();
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let start = Instant::now();
        let keeping = fabric.keep_time(move || start.elapsed(), tokio::time::sleep);
        let keeper = tokio::spawn(async move {
            keeping.await;
        });
        let dice = Dice::new(seed, PLAY);
        match timeout(LIMIT, play(&stage, dice)).await {
            Ok(leaks) => settle(&stage, &fabric, leaks).await,
            Err(_) => stage.watch.finding("a call or a shutdown never ends"),
        }
        keeper.abort();
    });
    drop(runtime);
    for panic in panics::end() {
        stage.watch.finding(panic);
    }
    Report {
        findings: stage.watch.findings(),
        trace: Some(fabric.trace()),
        lines: fabric.take_lines(),
        tally: stage.counts.tally(),
        designs: stage.watch.designs(),
        time: fabric.now(),
    }
}

/// Plays the calls of a scenario.
pub(crate) async fn play(stage: &Arc<Stage>, dice: Dice) -> Leaks {
    match stage.scenario.load {
        load if stage.scenario.relayed => relayed::play(stage, load, dice).await,
        Load::Calls(mix) => {
            let (server, clients) = calls::play(stage, mix, dice).await;
            leaks(server, clients)
        }
        Load::Files(files) => {
            let (server, clients) = files::play(stage, files, dice).await;
            leaks(server, clients)
        }
        Load::Nfs4 { local } => {
            nfs4::play(stage, local, dice);
            leaks_nothing()
        }
    }
}

/// No checks: there is no connection that could be left.
fn leaks_nothing() -> Leaks {
    Box::new(|_| {})
}

/// Checks that no task, connection, region or buffer is left.
async fn settle(stage: &Stage, fabric: &Fabric, leaks: Leaks) {
    // The one that keeps the time is left.
    gone(stage, 1, SETTLED, leaks).await;
    let left = fabric.outstanding();
    if left != Outstanding::default() {
        stage
            .watch
            .finding(format_args!("left on the fabric: {left:?}"));
    }
    let counts = [
        ("connections", fabric.connections().len()),
        ("handshakes", fabric.handshakes()),
        ("timers", fabric.timers()),
    ];
    for (what, many) in counts {
        if many > 0 {
            stage
                .watch
                .finding(format_args!("{many} {what} are left on the fabric"));
        }
    }
}

struct Simulated {
    fabric: Fabric,
    scenario: Scenario,
}

impl Net for Simulated {
    fn provider(&self, dice: &mut Dice) -> Arc<dyn Provider> {
        let Scenario {
            faults,
            sizes,
            receives,
            ..
        } = self.scenario;
        let mut limits: Limits = FaultRates::limits(sizes, receives, dice);
        if !self.scenario.designs.is_empty() && dice.coin() {
            // There are few designs for those that can do nothing.
            limits.remote_invalidation = Invalidation::Region;
        }
        let mut dice = Dice::new(dice.any(), NET);
        let of_all = limits.clone();
        let draw = move || faults.end(&of_all, sizes, &mut dice);
        Arc::new(self.fabric.drawn_provider(limits, draw))
    }

    fn listen_at(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    fn reached_at(&self, listens: SocketAddr) -> Pin<Box<dyn Future<Output = SocketAddr> + '_>> {
        Box::pin(std::future::ready(listens))
    }

    fn quiet(&self) -> Duration {
        Duration::from_secs(120)
    }

    fn disturb(&self, dice: &mut Dice) {
        let connections = self.fabric.connections();
        if connections.is_empty() {
            return;
        }
        let connection = dice.of(&connections);
        let side = dice.of(&[Side::Left, Side::Right]);
        match dice.below(4) {
            0 | 1 => self.fabric.cut(connection),
            2 => {
                let way = dice.of(&[Way::In, Way::Out, Way::Both]);
                let lasting = match dice.once_in(4) {
                    true => Duration::MAX,
                    false => dice.milliseconds(10_000),
                };
                self.fabric.stall(connection, side, way, lasting);
            }
            _ => self
                .fabric
                .terminate(connection, side, ProtocolError::Unspecified),
        }
    }
}
