//! Scenarios with two gateways back to back.

use super::{ALL_AT_ONCE, ANY_TIME, FIRST, Files, Load, Relayed, Scenario};
use crate::echo::{EVERY_KIND, Mix};
use crate::faults::{FaultRates, NO_FAULTS, Sizes};
use rpcrdma::Versions;

const RELAYED: Load = Load::Relayed(Relayed::Calls(Mix {
    shapes: EVERY_KIND,
    later: (6, 200),
    never: 0,
}));

/// Between gateways any version is spoken.
const RELAYED_VERSIONS: (&[Versions], &[Versions]) = (
    &[Versions::One, Versions::Auto, Versions::Two],
    &[Versions::Auto],
);

pub(super) const PLAIN: Scenario = Scenario {
    name: "relayed",
    load: RELAYED,
    versions: RELAYED_VERSIONS,
    ..FIRST
};

pub(super) const TINY: Scenario = Scenario {
    name: "relayed-tiny",
    load: RELAYED,
    versions: RELAYED_VERSIONS,
    sizes: Sizes::Tiny,
    faults: FaultRates {
        posts: 2,
        ..NO_FAULTS
    },
    cancel: 6,
    ..FIRST
};

/// Connections end on either side of either gateway, and so do the gateways and the server.
pub(super) const FAULTS: Scenario = Scenario {
    name: "relayed-faults",
    load: Load::Relayed(Relayed::Calls(Mix {
        shapes: EVERY_KIND,
        later: (4, 3000),
        never: 40,
    })),
    versions: RELAYED_VERSIONS,
    faults: FaultRates {
        cuts: 8,
        stalls: 12,
        ..ALL_AT_ONCE
    },
    sizes: Sizes::Tiny,
    cancel: 10,
    timeouts: ANY_TIME,
    restarts: (0, 2),
    disturbances: (0, 4),
    calls: (2, 10),
    health: true,
    must_succeed: false,
    ..FIRST
};

pub(super) const FILES: Scenario = Scenario {
    name: "relayed-files",
    load: Load::Relayed(Relayed::Files(Files {
        data: false,
        without_reply_cache: false,
    })),
    versions: RELAYED_VERSIONS,
    tasks: (1, 3),
    calls: (4, 16),
    ..FIRST
};

pub(super) const FILES_FAULTS: Scenario = Scenario {
    name: "relayed-files-faults",
    load: Load::Relayed(Relayed::Files(Files {
        data: true,
        without_reply_cache: false,
    })),
    versions: RELAYED_VERSIONS,
    tasks: (1, 3),
    calls: (4, 16),
    faults: FaultRates {
        latency: 15,
        cuts: 4,
        stalls: 8,
        posts: 4,
        ..NO_FAULTS
    },
    restarts: (0, 2),
    disturbances: (0, 4),
    timeouts: &[20_000, 60_000],
    must_succeed: false,
    ..FIRST
};
