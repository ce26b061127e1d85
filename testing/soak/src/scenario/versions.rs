//! Version two, and both versions at a time.

use super::*;

pub(super) const FILES_CUT: Scenario = Scenario {
    name: "two-files",
    versions: TWO,
    faults: FaultRates {
        cuts: 3,
        ..files::CUTS.faults
    },
    ..files::CUTS
};

pub(super) const WILD: Scenario = Scenario {
    name: "two-wild",
    versions: TWO,
    backward: Some(BACKWARD_TWO),
    calls: (2, 20),
    connections: (1, 3),
    users: 3,
    health: true,
    varying_invalidation: true,
    ..calls::WILD
};

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
        disturbances: (0, 4),
        ..MAY_FAIL
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
        ..MAY_FAIL
    },
    FILES_CUT,
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
        ..backward::CUTS
    },
    WILD,
];
