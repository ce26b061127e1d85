//! NFS operations.

use super::*;

pub(super) const PLAIN: Scenario = Scenario {
    name: "files",
    load: FILES,
    tasks: (1, 3),
    calls: (4, 16),
    ..FIRST
};

/// A scenario in which operations may fail.
pub(super) const MAY_FAIL: Scenario = Scenario {
    timeouts: &[20_000, 60_000],
    must_succeed: false,
    ..PLAIN
};

pub(super) const CUTS: Scenario = Scenario {
    name: "files-cuts",
    faults: FaultRates {
        latency: 15,
        cuts: 2,
        stalls: 6,
        posts: 4,
        ..NO_FAULTS
    },
    disturbances: (0, 4),
    ..MAY_FAIL
};

pub(super) const ROWS: &[Scenario] = &[
    PLAIN,
    CUTS,
    // Calls that stall on the way and arrive after their retransmission.
    Scenario {
        name: "files-late",
        load: FILE_DATA,
        tasks: (1, 2),
        calls: (8, 24),
        faults: FaultRates {
            latency: 3,
            cuts: 2,
            stalls: 1,
            ..NO_FAULTS
        },
        disturbances: (0, 6),
        ..MAY_FAIL
    },
    Scenario {
        name: "files-restarts",
        faults: FaultRates {
            cuts: 6,
            ..NO_FAULTS
        },
        restarts: (1, 3),
        ..MAY_FAIL
    },
];
