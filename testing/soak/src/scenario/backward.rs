//! Calls of the server to its clients.

use super::*;

pub(super) const CUTS: Scenario = Scenario {
    name: "backward-cuts",
    backward: Some(BACKWARD),
    faults: FaultRates {
        cuts: 2,
        stalls: 8,
        failures: 12,
        posts: 8,
        ..NO_FAULTS
    },
    cancel: 8,
    disturbances: (0, 5),
    ..MAY_FAIL
};

pub(super) const ROWS: &[Scenario] = &[
    Scenario {
        name: "backward",
        backward: Some(BACKWARD),
        ..FIRST
    },
    // Many calls of both directions at once, so that neither has a credit left.
    Scenario {
        name: "backward-full",
        backward: Some(Backward {
            often: 1,
            most: 12,
            ..BACKWARD
        }),
        clients: (1, 2),
        tasks: (8, 40),
        calls: (1, 3),
        sizes: Sizes::Tiny,
        ..FIRST
    },
    Scenario {
        name: "backward-deadlines",
        backward: Some(Backward {
            mix: Mix {
                later: (3, 9000),
                never: 8,
                ..BACKWARD.mix
            },
            ..BACKWARD
        }),
        cancel: 6,
        timeouts: &[1000, 3000, 10_000],
        ..MAY_FAIL
    },
    CUTS,
    Scenario {
        name: "backward-restarts",
        backward: Some(BACKWARD),
        restarts: (1, 4),
        calls: (4, 12),
        health: true,
        ..MAY_FAIL
    },
    // A client that may be called keeps its connection while idle.
    Scenario {
        name: "backward-idle",
        backward: Some(Backward {
            without_service: 0,
            ..BACKWARD
        }),
        pauses: (2, 300_000),
        idle: &[1, 4, 30],
        health: true,
        ..FIRST
    },
    Scenario {
        name: "backward-wild",
        backward: Some(Backward {
            mix: Mix {
                never: 20,
                ..BACKWARD.mix
            },
            ..BACKWARD
        }),
        faults: ALL_AT_ONCE,
        sizes: Sizes::Tiny,
        cancel: 10,
        restarts: (0, 2),
        disturbances: (0, 4),
        calls: (2, 10),
        connections: (1, 3),
        users: 3,
        health: true,
        varying_invalidation: true,
        ..MAY_FAIL
    },
];
