//! Version two as draft-ietf-nfsv4-rpcrdma-version-two-07 has it.

use super::*;

/// Both ends speak it, and small messages make most calls and replies come in parts.
const LATER: Scenario = Scenario {
    name: "ietf",
    versions: TWO,
    dialect: Dialect::Ietf07,
    inline: &[1024, 4096, 4096, 8192],
    ..FIRST
};

pub(super) const ROWS: &[Scenario] = &[
    LATER,
    Scenario {
        name: "ietf-many",
        tasks: (4, 12),
        calls: (10, 60),
        pauses: (20, 200),
        ..LATER
    },
    // A server of the dialect has clients of version one, too, and a client finds no version two.
    Scenario {
        name: "ietf-versions",
        clients: (2, 5),
        versions: (
            &[Versions::One, Versions::Auto, Versions::Two],
            &[Versions::Auto],
        ),
        ..LATER
    },
    Scenario {
        name: "ietf-refused",
        versions: (&[Versions::Auto], &[Versions::One]),
        connections: (1, 3),
        ..LATER
    },
    Scenario {
        name: "ietf-cuts",
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
        ..LATER
    },
    Scenario {
        name: "ietf-files",
        dialect: Dialect::Ietf07,
        ..versions::FILES_CUT
    },
    Scenario {
        name: "ietf-backward",
        backward: Some(BACKWARD_TWO),
        ..LATER
    },
    Scenario {
        name: "ietf-backward-cuts",
        versions: TWO,
        dialect: Dialect::Ietf07,
        backward: Some(BACKWARD_TWO),
        ..backward::CUTS
    },
    Scenario {
        name: "ietf-wild",
        dialect: Dialect::Ietf07,
        ..versions::WILD
    },
];
