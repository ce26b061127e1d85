//! Clients and a server over TCP, with two gateways back to back between them.

use super::*;

/// A scenario through gateways, between which any version is spoken.
const fn relayed(name: &'static str, direct: Scenario) -> Scenario {
    Scenario {
        name,
        relayed: true,
        versions: (
            &[Versions::One, Versions::Auto, Versions::Two],
            &[Versions::Auto],
        ),
        ..direct
    }
}

pub(super) const ROWS: &[Scenario] = &[
    Scenario {
        backward: Some(BACKWARD),
        ..relayed("relayed", FIRST)
    },
    Scenario {
        backward: Some(BACKWARD),
        cancel: 6,
        ..relayed("relayed-tiny", calls::TINY)
    },
    // Connections end on either side of either gateway, and so do the gateways and the server.
    Scenario {
        backward: Some(Backward {
            mix: Mix {
                never: 20,
                ..BACKWARD.mix
            },
            ..BACKWARD
        }),
        faults: FaultRates {
            cuts: 8,
            stalls: 12,
            ..ALL_AT_ONCE
        },
        health: true,
        ..relayed("relayed-faults", calls::WILD)
    },
    relayed("relayed-files", files::PLAIN),
    Scenario {
        load: FILE_DATA,
        faults: FaultRates {
            cuts: 4,
            stalls: 8,
            ..files::CUTS.faults
        },
        restarts: (0, 2),
        ..relayed("relayed-files-faults", files::CUTS)
    },
];
