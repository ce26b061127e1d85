//! Calls in version one, from no fault to all of them.

use super::*;

pub(super) const TINY: Scenario = Scenario {
    name: "tiny",
    sizes: Sizes::Tiny,
    faults: FaultRates {
        posts: 2,
        ..NO_FAULTS
    },
    ..FIRST
};

pub(super) const WILD: Scenario = Scenario {
    name: "wild",
    load: Load::Calls(Mix {
        shapes: EVERY_KIND,
        later: (4, 3000),
        never: 40,
    }),
    faults: ALL_AT_ONCE,
    sizes: Sizes::Tiny,
    cancel: 10,
    restarts: (0, 2),
    disturbances: (0, 4),
    calls: (2, 10),
    ..MAY_FAIL
};

pub(super) const ROWS: &[Scenario] = &[
    FIRST,
    TINY,
    Scenario {
        name: "segments",
        inline: &[8192, 10_000, 65_536],
        segments: &[4099, 9999, 30_001],
        ..FIRST
    },
    Scenario {
        name: "cancelled",
        cancel: 3,
        sizes: Sizes::Tiny,
        ..FIRST
    },
    Scenario {
        name: "deadlines",
        load: Load::Calls(Mix {
            shapes: EVERY_KIND,
            later: (3, 9000),
            never: 12,
        }),
        cancel: 8,
        timeouts: &[1000, 3000, 10_000],
        ..MAY_FAIL
    },
    Scenario {
        name: "cuts",
        faults: FaultRates {
            cuts: 2,
            failures: 8,
            ..NO_FAULTS
        },
        cancel: 12,
        ..MAY_FAIL
    },
    Scenario {
        name: "stalls",
        faults: FaultRates {
            stalls: 2,
            cuts: 8,
            ..NO_FAULTS
        },
        ..MAY_FAIL
    },
    Scenario {
        name: "refusals",
        faults: FaultRates {
            setups: 3,
            posts: 2,
            registrations: 3,
            ..NO_FAULTS
        },
        sizes: Sizes::Tiny,
        ..MAY_FAIL
    },
    Scenario {
        name: "restarts",
        restarts: (1, 4),
        calls: (4, 12),
        ..MAY_FAIL
    },
    Scenario {
        name: "disturbances",
        disturbances: (1, 8),
        calls: (4, 12),
        cancel: 10,
        ..MAY_FAIL
    },
    WILD,
    Scenario {
        name: "null",
        load: Load::Calls(Mix {
            shapes: &[Kind::Null],
            later: (0, 0),
            never: 0,
        }),
        calls: (10, 40),
        ..FIRST
    },
];
