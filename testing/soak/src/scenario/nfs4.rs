//! State of NFS version 4.

use super::*;

const IN_MEMORY: Scenario = Scenario {
    name: "nfs4",
    load: Load::Nfs4 { local: false },
    clients: (2, 4),
    calls: (300, 1200),
    restarts: (0, 3),
    ..FIRST
};

pub(super) const ROWS: &[Scenario] = &[
    IN_MEMORY,
    // Operations are jobs, which others overtake and which end with their connections.
    Scenario {
        name: "nfs4-local",
        load: Load::Nfs4 { local: true },
        ..IN_MEMORY
    },
];
