//! Several connections of a client, idle ones, and what connections share.

use super::*;

/// R, and what the server says of itself, changes with each connection.
pub(super) const VARIES: Scenario = Scenario {
    name: "invalidation-varies",
    varying_invalidation: true,
    faults: FaultRates {
        cuts: 2,
        ..NO_FAULTS
    },
    restarts: (0, 3),
    disturbances: (0, 4),
    calls: (4, 12),
    ..MAY_FAIL
};

pub(super) const ROWS: &[Scenario] = &[
    Scenario {
        name: "connections",
        connections: (2, 5),
        users: 2,
        tasks: (2, 12),
        ..FIRST
    },
    Scenario {
        name: "connections-cuts",
        connections: (2, 5),
        users: 2,
        tasks: (2, 8),
        faults: FaultRates {
            cuts: 2,
            stalls: 6,
            setups: 6,
            ..NO_FAULTS
        },
        cancel: 12,
        disturbances: (0, 6),
        restarts: (0, 2),
        ..MAY_FAIL
    },
    // Retransmitted calls arrive over one connection while others go on.
    Scenario {
        name: "connections-files",
        load: FILE_DATA,
        connections: (2, 4),
        tasks: (1, 4),
        calls: (8, 24),
        faults: FaultRates {
            latency: 5,
            cuts: 2,
            stalls: 2,
            ..NO_FAULTS
        },
        disturbances: (0, 6),
        ..files::MAY_FAIL
    },
    // Connections that the server refuses cost no calls.
    Scenario {
        name: "connections-refused",
        clients: (1, 1),
        connections: (2, 6),
        max_connections: 2,
        tasks: (2, 8),
        calls: (2, 12),
        users: 3,
        ..FIRST
    },
    // Either end closes idle connections, and the next call reconnects.
    Scenario {
        name: "idle",
        pauses: (2, 1_200_000),
        idle: &[1, 4, 30],
        connections: (1, 3),
        health: true,
        ..FIRST
    },
    // Stalled peers are detected, however long calls may take.
    Scenario {
        name: "silent",
        faults: FaultRates {
            stalls: 2,
            ..NO_FAULTS
        },
        timeouts: &[600_000],
        health: true,
        idle: &[3, 300],
        calls: (2, 12),
        ..MAY_FAIL
    },
    VARIES,
    Scenario {
        name: "receives",
        receives: &[6, 7, 9, 12, 20, 40],
        backward: Some(BACKWARD),
        tasks: (2, 12),
        ..FIRST
    },
    // Calls wait for memory, and their clients are granted less meanwhile.
    Scenario {
        name: "scarce",
        faults: FaultRates {
            latency: 20,
            posts: 4,
            ..NO_FAULTS
        },
        credits: &[8, 32, 64, 128],
        memory: &[300_000, 2_000_000],
        backward: Some(BACKWARD),
        tasks: (10, 60),
        calls: (1, 4),
        pauses: (30, 2000),
        ..FIRST
    },
];
