//! A run over software iWARP on loopback, in real time, through a proxy.

use crate::actors::gone;
use crate::dice::Dice;
use crate::proxy::Proxy;
use crate::scenario::Scenario;
use crate::sim::play;
use crate::stage::{Counts, Net, Stage};
use crate::{Report, panics};
use rpcrdma_watch::Watch;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Builder;
use verbs::Provider;
use verbs_iwarp::{Config, CrcMode, Iwarp};

/// Time within which every run has to end.
const LIMIT: Duration = Duration::from_secs(90);

/// Time within which all tasks have to end after that.
const SETTLED: Duration = Duration::from_secs(10);

/// How much shorter pauses are than in virtual time.
const PACE: u32 = 20;

/// Streams of random numbers.
const PLAY: u64 = 1;
const PROXY: u64 = 3;

/// Plays a scenario from a seed. The same seed makes the same calls, and cuts, delays and splits at
/// the same bytes, but what that meets depends on the scheduling of the system. Of the faults, only
/// cuts are played.
pub fn run(scenario: &Scenario, seed: u64) -> Report {
    let proxy = Arc::new(Proxy::new(scenario.faults, Dice::new(seed, PROXY)));
    let stage = Arc::new(Stage {
        scenario: *scenario,
        watch: Watch::default(),
        net: Box::new(Loopback {
            proxy: Arc::clone(&proxy),
        }),
        counts: Counts::default(),
        pace: PACE,
    });
    let start = Instant::now();
    panics::begin();
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let dice = Dice::new(seed, PLAY);
        match tokio::time::timeout(LIMIT, play(&stage, dice)).await {
            Ok(leaks) => {
                proxy.end().await;
                gone(&stage, 0, SETTLED, leaks).await;
            }
            Err(_) => stage.watch.finding("a call or a shutdown never ends"),
        }
    });
    drop(runtime);
    for panic in panics::end() {
        stage.watch.finding(panic);
    }
    Report {
        findings: stage.watch.findings(),
        trace: None,
        lines: Vec::new(),
        tally: stage.counts.tally(),
        designs: stage.watch.designs(),
        time: start.elapsed(),
    }
}

struct Loopback {
    proxy: Arc<Proxy>,
}

impl Net for Loopback {
    fn provider(&self, dice: &mut Dice) -> Arc<dyn Provider> {
        let crc = dice.of(&[CrcMode::On, CrcMode::Off, CrcMode::Strict]);
        let config = Config::default().with_crc(crc);
        Arc::new(Iwarp::new(config.with_several_invalidations(true)))
    }

    fn listen_at(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    fn reached_at(&self, listens: SocketAddr) -> Pin<Box<dyn Future<Output = SocketAddr> + '_>> {
        Box::pin(async move {
            let at = self.proxy.lead_to(listens).await;
            at.expect("loopback has room for a listener")
        })
    }

    fn quiet(&self) -> Duration {
        Duration::from_millis(700)
    }

    fn disturb(&self, dice: &mut Dice) {
        self.proxy.cut(dice);
    }
}
