//! NFS operations.

use super::*;

pub(super) const PLAIN: Scenario = Scenario {
    name: "files",
    load: FILES,
    tasks: (1, 3),
    calls: (4, 16),
    ..FIRST
};

pub(super) const CUTS: Scenario = Scenario {
    name: "files-cuts",
    load: FILES,
    tasks: (1, 3),
    calls: (4, 16),
    faults: FaultRates {
        latency: 15,
        cuts: 2,
        stalls: 6,
        posts: 4,
        ..NO_FAULTS
    },
    disturbances: (0, 4),
    timeouts: &[20_000, 60_000],
    must_succeed: false,
    ..FIRST
};

pub(super) const ROWS: &[Scenario] = &[
    PLAIN,
    CUTS,
    // Calls that stall on the way and arrive after their retransmission.
    Scenario {
        name: "files-late",
        load: Load::Files(Files {
            data: true,
            without_reply_cache: false,
        }),
        tasks: (1, 2),
        calls: (8, 24),
        faults: FaultRates {
            latency: 3,
            cuts: 2,
            stalls: 1,
            ..NO_FAULTS
        },
        disturbances: (0, 6),
        timeouts: &[20_000, 60_000],
        must_succeed: false,
        ..FIRST
    },
    Scenario {
        name: "files-restarts",
        load: FILES,
        tasks: (1, 3),
        calls: (4, 16),
        faults: FaultRates {
            cuts: 6,
            ..NO_FAULTS
        },
        restarts: (1, 3),
        timeouts: &[20_000, 60_000],
        must_succeed: false,
        ..FIRST
    },
];
