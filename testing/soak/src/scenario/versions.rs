//! Version two, and both versions at a time.

use super::*;

pub(super) const ROWS: &[Scenario] = &[
    Scenario {
        name: "two",
        versions: TWO,
        ..FIRST
    },
    // A server answers each client in its own version.
    Scenario {
        name: "versions",
        clients: (2, 5),
        versions: (
            &[Versions::One, Versions::Auto, Versions::Two],
            &[Versions::Auto],
        ),
        ..FIRST
    },
    Scenario {
        name: "versions-refused",
        versions: (&[Versions::Auto], &[Versions::One]),
        connections: (1, 3),
        ..FIRST
    },
    // The next server may speak other versions than this one.
    Scenario {
        name: "versions-restarts",
        versions: (
            &[Versions::One, Versions::Auto],
            &[Versions::One, Versions::Auto],
        ),
        restarts: (1, 4),
        calls: (4, 12),
        faults: FaultRates {
            cuts: 3,
            setups: 4,
            stalls: 6,
            ..NO_FAULTS
        },
        timeouts: ANY_TIME,
        disturbances: (0, 4),
        must_succeed: false,
        ..FIRST
    },
    // So many calls that Receives of former sizes are used up, amid everything else.
    Scenario {
        name: "two-grows",
        versions: TWO,
        inline: &[1024, 4096, 8192, 20_000, 65_536],
        tasks: (4, 12),
        calls: (10, 60),
        pauses: (20, 200),
        ..FIRST
    },
    Scenario {
        name: "two-cuts",
        versions: TWO,
        inline: &[1024, 8192, 65_536],
        faults: FaultRates {
            cuts: 2,
            failures: 8,
            posts: 4,
            ..NO_FAULTS
        },
        tasks: (2, 10),
        calls: (4, 30),
        cancel: 12,
        timeouts: ANY_TIME,
        must_succeed: false,
        ..FIRST
    },
    Scenario {
        name: "two-files",
        load: FILES,
        versions: TWO,
        tasks: (1, 3),
        calls: (4, 16),
        faults: FaultRates {
            latency: 15,
            cuts: 3,
            stalls: 6,
            posts: 4,
            ..NO_FAULTS
        },
        disturbances: (0, 4),
        timeouts: &[20_000, 60_000],
        must_succeed: false,
        ..FIRST
    },
    // Calls of the server with chunks of every kind.
    Scenario {
        name: "two-backward",
        versions: TWO,
        backward: Some(BACKWARD_TWO),
        ..FIRST
    },
    Scenario {
        name: "two-backward-cuts",
        versions: TWO,
        backward: Some(BACKWARD_TWO),
        faults: FaultRates {
            cuts: 2,
            stalls: 8,
            failures: 12,
            posts: 8,
            ..NO_FAULTS
        },
        cancel: 8,
        timeouts: ANY_TIME,
        disturbances: (0, 5),
        must_succeed: false,
        ..FIRST
    },
    Scenario {
        name: "two-wild",
        versions: (&[Versions::Auto, Versions::Two], &[Versions::Auto]),
        backward: Some(BACKWARD_TWO),
        calls: (2, 20),
        connections: (1, 3),
        users: 3,
        health: true,
        varying_invalidation: true,
        ..calls::WILD
    },
];
