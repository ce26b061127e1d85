//! Designs for remote invalidation (reminv §4).

use super::*;

pub(super) const ROWS: &[Scenario] = &[
    // Ends that agree on any design for remote invalidation, or on none.
    Scenario {
        name: "designs",
        versions: TWO,
        designs: DESIGNS,
        backward: Some(BACKWARD_TWO),
        ..FIRST
    },
    // Many calls at a time, as small as can be, some of which nobody waits for.
    Scenario {
        name: "designs-full",
        versions: TWO,
        designs: &[Design::PerCall, Design::PerCallSeveral],
        inline: &[1024, 4096, 8192, 20_000],
        sizes: Sizes::Tiny,
        faults: FaultRates {
            posts: 4,
            ..NO_FAULTS
        },
        credits: &[2, 8, 32],
        clients: (1, 2),
        tasks: (8, 30),
        calls: (3, 12),
        cancel: 4,
        ..FIRST
    },
    // Calls take long, so that the replies to others can take handles of theirs along.
    Scenario {
        name: "designs-between",
        load: Load::Calls(Mix {
            shapes: &[Kind::Null, Kind::Inline, Kind::Read, Kind::Both],
            later: (2, 300),
            never: 0,
        }),
        versions: TWO,
        designs: &[Design::InterCall],
        inline: &[1024, 4096],
        credits: &[8, 32],
        clients: (1, 2),
        tasks: (4, 16),
        calls: (3, 12),
        ..FIRST
    },
    Scenario {
        name: "designs-cuts",
        versions: TWO,
        designs: DESIGNS,
        inline: &[1024, 8192, 65_536],
        backward: Some(BACKWARD_TWO),
        faults: FaultRates {
            cuts: 2,
            stalls: 8,
            failures: 8,
            posts: 4,
            ..NO_FAULTS
        },
        tasks: (2, 10),
        calls: (4, 20),
        cancel: 12,
        disturbances: (0, 5),
        ..MAY_FAIL
    },
    Scenario {
        name: "designs-files",
        designs: DESIGNS,
        restarts: (0, 2),
        ..versions::FILES_CUT
    },
    // What a client, and each server after the other, can have and is ready for changes.
    Scenario {
        name: "designs-vary",
        versions: (&[Versions::Auto], &[Versions::Auto]),
        designs: DESIGNS,
        by_version: true,
        backward: Some(BACKWARD_TWO),
        connections: (1, 3),
        ..connections::VARIES
    },
    // It is the same for clients of version one and for those that offer nothing.
    Scenario {
        name: "designs-by-version",
        versions: (&[Versions::One, Versions::Auto], &[Versions::Auto]),
        by_version: true,
        backward: Some(BACKWARD_TWO),
        clients: (2, 4),
        ..FIRST
    },
    Scenario {
        name: "designs-wild",
        designs: DESIGNS,
        ..versions::WILD
    },
];
