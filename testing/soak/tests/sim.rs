//! A few seeds of each scenario; `cargo xtask soak` plays as many as one likes.

use rpcrdma::Design::{Fixed, InterCall, PerCall, PerCallAll, PerCallSeveral};
use soak::{Files, Load, Report, SCENARIOS, Scenario, Tally, scenario};
use std::collections::BTreeSet;
use std::thread;

/// Seeds of each scenario.
const SEEDS: std::ops::Range<u64> = 1..9;

fn play(scenario: &Scenario, seed: u64) -> Report {
    let report = soak::run(scenario, seed, false);
    let name = scenario.name;
    let found = report.findings.join("\n");
    assert!(found.is_empty(), "{name}, seed {seed}:\n{found}");
    report
}

#[test]
fn no_scenario_has_findings() {
    let (mut designs, mut between) = (BTreeSet::new(), 0);
    // Each takes seconds of one CPU.
    let played: Vec<Vec<Report>> = thread::scope(|scope| {
        let all = SCENARIOS
            .iter()
            .map(|scenario| scope.spawn(|| SEEDS.map(|seed| play(scenario, seed)).collect()));
        let all: Vec<_> = all.collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    for (scenario, reports) in SCENARIOS.iter().zip(played) {
        let mut all = Tally::default();
        for report in reports {
            all += report.tally;
            designs.extend(report.designs.into_keys());
        }
        between += all.invalidated_between;
        // It was no empty promise.
        let name = scenario.name;
        assert!(all.answered > 50, "{name}: {all:?}");
        let back = all.called_back > 50;
        assert_eq!(back, scenario.backward.is_some(), "{name}: {all:?}");
    }
    let agreed_on = [Fixed, PerCall, PerCallSeveral, InterCall, PerCallAll];
    assert!(designs.into_iter().eq(agreed_on) && between > 0);
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for scenario in SCENARIOS {
        let name = scenario.name;
        let (first, again) = (play(scenario, 77), play(scenario, 77));
        assert_eq!(first.trace, again.trace, "{name}");
        assert_eq!(first.tally, again.tally, "{name}");
        let other = play(scenario, 78);
        // Without a network there is no trace of one.
        let (first, other) = ((first.trace, first.tally), (other.trace, other.tally));
        assert_ne!(first, other, "{name}");
    }
}

#[test]
fn recorded_lines_name_calls_and_work_requests() {
    let report = soak::run(&SCENARIOS[0], 5, true);
    let has = |what: &str| report.lines.iter().any(|line| line.contains(what));
    for what in [
        "wants call",
        "sends reply",
        "posts a Send of",
        "has the reply to",
    ] {
        assert!(has(what), "{what}");
    }
    let trace = soak::run(&SCENARIOS[0], 5, false).trace;
    assert_eq!(report.trace, trace, "looking changes nothing");
}

#[test]
fn calls_that_are_executed_twice_are_found() {
    let scenario = Scenario {
        load: Load::Files(Files {
            data: false,
            without_reply_cache: true,
        }),
        ..*scenario("files-cuts").expect("it is in the table")
    };
    let mut reports = (1..100).map(|seed| soak::run(&scenario, seed, false));
    assert!(reports.any(|report| !report.findings.is_empty()));
}
