//! The scenarios over software iWARP on loopback, through a proxy that cuts, delays and splits.

use soak::{Scenario, over_iwarp, scenario};

fn play(name: &str, seeds: std::ops::Range<u64>) {
    let scenario: &Scenario = scenario(name).expect("it is in the table");
    for seed in seeds {
        let report = over_iwarp::run(scenario, seed);
        let found = report.findings.join("\n");
        assert!(found.is_empty(), "{name}, seed {seed}:\n{found}");
        let back = report.tally.called_back > 0;
        assert_eq!(back, scenario.backward.is_some(), "{name}, seed {seed}");
    }
}

#[test]
fn calls_of_every_kind_are_answered() {
    play("no-faults", 1..4);
}

#[test]
fn chunks_of_several_segments_are_whole() {
    play("segments", 1..4);
}

#[test]
fn calls_survive_connections_that_are_cut_at_any_byte() {
    play("cuts", 1..5);
}

#[test]
fn calls_survive_server_restarts() {
    play("restarts", 1..4);
}

#[test]
fn calls_survive_disturbances() {
    play("disturbances", 1..4);
}

#[test]
fn cancelled_calls_disturb_no_others() {
    play("cancelled", 1..4);
}

#[test]
fn files_are_as_their_model_says() {
    play("files", 1..4);
}

#[test]
fn files_are_as_their_model_says_while_connections_are_cut() {
    play("files-cuts", 1..4);
}

#[test]
fn backward_calls_use_the_connections_of_forward_calls() {
    play("backward", 1..4);
}

#[test]
fn neither_direction_holds_up_the_other_when_it_has_no_credit_left() {
    play("backward-full", 1..4);
}

#[test]
fn backward_calls_survive_cut_connections() {
    play("backward-cuts", 1..5);
}

#[test]
fn backward_calls_survive_server_restarts() {
    play("backward-restarts", 1..4);
}

#[test]
fn calls_are_spread_over_several_connections() {
    play("connections", 1..4);
}

#[test]
fn calls_move_to_connections_that_are_not_cut() {
    play("connections-cuts", 1..5);
}

#[test]
fn connections_that_are_refused_cost_no_calls() {
    play("connections-refused", 1..4);
}
