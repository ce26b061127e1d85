//! A few seeds of each scenario; `cargo xtask soak` plays as many as one likes.

use soak::{Files, Load, Report, SCENARIOS, Scenario, scenario};

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
fn nothing_is_found_in_any_scenario() {
    for scenario in SCENARIOS {
        let reports = SEEDS.map(|seed| play(scenario, seed));
        let answered: u64 = reports.map(|report| report.tally.answered).sum();
        // It was no empty promise.
        assert!(answered > 50, "{} calls answered", answered);
    }
}

#[test]
fn seed_is_a_run_to_the_last_event() {
    for scenario in SCENARIOS {
        let name = scenario.name;
        let (first, again) = (play(scenario, 77), play(scenario, 77));
        assert_eq!(first.trace, again.trace, "{name}");
        assert_eq!(first.tally, again.tally, "{name}");
        let other = play(scenario, 78);
        assert_ne!(first.trace, other.trace, "{name}");
    }
}

#[test]
fn what_is_recorded_tells_of_calls_and_of_work() {
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
fn calls_that_are_executed_twice_show() {
    let scenario = Scenario {
        load: Load::Files(Files {
            data: false,
            forgetful: true,
        }),
        ..*scenario("files-cuts").expect("it is in the table")
    };
    let mut reports = (1..100).map(|seed| soak::run(&scenario, seed, false));
    assert!(reports.any(|report| !report.findings.is_empty()));
}
