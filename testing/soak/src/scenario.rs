//! The table of scenarios.

mod relayed;

use crate::echo::{EVERY_KIND, Kind, Mix};
use crate::faults::{FaultRates, NO_FAULTS, Sizes};
use rpcrdma::{Design, Versions};

/// One scenario: what is called, with which settings, under which faults.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Name, as `--scenario` takes it.
    pub name: &'static str,
    /// Which calls the clients make.
    pub load: Load,
    /// Smallest and largest number of clients.
    pub clients: (usize, usize),
    /// Smallest and largest number of concurrent tasks of each client.
    pub tasks: (usize, usize),
    /// Smallest and largest number of calls of each task, which are made one after the other.
    pub calls: (usize, usize),
    /// Protocol versions: each client draws from the first list, each server from the second.
    pub versions: (&'static [Versions], &'static [Versions]),
    /// Faults of the provider.
    pub faults: FaultRates,
    /// Limits of the provider.
    pub sizes: Sizes,
    /// Inline thresholds; each end draws one for each direction.
    pub inline: &'static [usize],
    /// Largest segments, of which each client draws one; 0 for chunks of one segment.
    pub segments: &'static [usize],
    /// One call in this many is cancelled by its caller; 0 for none.
    pub cancel: u32,
    /// Call timeouts in milliseconds, of which each client draws one.
    pub timeouts: &'static [u64],
    /// Smallest and largest number of server restarts, with or without a shutdown, each with newly
    /// drawn settings.
    pub restarts: (usize, usize),
    /// Smallest and largest number of times that a connection is cut, stalled or terminated from
    /// outside.
    pub disturbances: (usize, usize),
    /// Calls in the backward direction, if any.
    pub backward: Option<Backward>,
    /// Smallest and largest number of connections of each client.
    pub connections: (usize, usize),
    /// Largest number of connections of the server; 0 for its default.
    pub max_connections: usize,
    /// One task in this many has a queue of its own at the client (`Client::new_user`); 0 for none.
    pub users: u32,
    /// One call in this many comes after a pause, and the longest pause in milliseconds.
    pub pauses: (u32, usize),
    /// Idle timeouts in seconds, of which each client draws one; empty for the default.
    pub idle: &'static [u64],
    /// Whether silent peers are probed.
    pub health: bool,
    /// Whether a client decides anew for each connection if the server may invalidate its handles.
    pub varying_invalidation: bool,
    /// Designs for remote invalidation beside R (reminv §4). Each client offers some of them, and each
    /// server accepts some, in any order. With them one client in three has persistent registrations.
    pub designs: &'static [Design],
    /// Whether both ends are configured to invalidate any handle in version two (reminv §4.1).
    pub by_version: bool,
    /// Receive queue sizes, of which each provider draws one; empty for the default.
    pub receives: &'static [usize],
    /// Credits, of which each end draws its own.
    pub credits: &'static [u32],
    /// Bytes of chunk memory, of which each server draws one; empty for the default.
    pub memory: &'static [usize],
    /// Whether each call that is not cancelled has to succeed.
    pub must_succeed: bool,
}

/// Which calls the clients make.
#[derive(Clone, Copy, Debug)]
pub enum Load {
    /// Calls to an echo service.
    Calls(Mix),
    /// NFS operations, whose results are compared with a model.
    Files(Files),
    /// Calls over TCP through two gateways, with RPC-over-RDMA between them.
    Relayed(Relayed),
}

/// Calls through two gateways.
#[derive(Clone, Copy, Debug)]
pub enum Relayed {
    /// Calls to an echo program.
    Calls(Mix),
    /// NFS operations.
    Files(Files),
}

/// Calls of a server to its clients (RFC 8167).
#[derive(Clone, Copy, Debug)]
pub struct Backward {
    /// The calls. They go inline: what is larger is not sent.
    pub mix: Mix,
    /// One call of a client in this many says that the client is ready, and triggers calls to it.
    pub often: u32,
    /// Most calls that are triggered at once.
    pub most: usize,
    /// One client in this many has no service to answer them.
    pub without_service: u32,
}

/// NFS operations of the clients.
#[derive(Clone, Copy, Debug)]
pub struct Files {
    /// Whether most of them are WRITE and READ, on few files.
    pub data: bool,
    /// Whether the server has no duplicate request cache, which the checkers must find.
    pub without_reply_cache: bool,
}

const EVERY_CALL: Load = Load::Calls(Mix {
    shapes: EVERY_KIND,
    later: (6, 200),
    never: 0,
});

const FILES: Load = Load::Files(Files {
    data: false,
    without_reply_cache: false,
});

/// A deadline that no call reaches.
const NO_DEADLINE: &[u64] = &[600_000];

/// Deadlines from what calls usually take to much more.
const ANY_TIME: &[u64] = &[1000, 5000, 20_000, 60_000];

const FIRST: Scenario = Scenario {
    name: "no-faults",
    load: EVERY_CALL,
    clients: (1, 3),
    tasks: (1, 6),
    calls: (1, 8),
    versions: (&[Versions::One], &[Versions::Auto]),
    faults: NO_FAULTS,
    sizes: Sizes::Usual,
    inline: &[1024, 1024, 2048, 4096, 4096, 8192, 65_536],
    // With headers of 1024 bytes there is not room for many.
    segments: &[0, 0, 50_000, 99_999],
    cancel: 0,
    timeouts: NO_DEADLINE,
    restarts: (0, 0),
    disturbances: (0, 0),
    backward: None,
    connections: (1, 1),
    max_connections: 0,
    users: 0,
    pauses: (6, 2000),
    idle: &[],
    health: false,
    varying_invalidation: false,
    designs: &[],
    by_version: false,
    receives: &[],
    credits: &[1, 2, 3, 8, 32],
    memory: &[],
    must_succeed: true,
};

const BACKWARD: Backward = Backward {
    mix: Mix {
        shapes: &[
            Kind::Null,
            Kind::Inline,
            Kind::Inline,
            Kind::Inline,
            Kind::Read,
            Kind::LongReply,
            Kind::Outgrown,
        ],
        later: (5, 300),
        never: 0,
    },
    often: 2,
    most: 4,
    without_service: 4,
};

const ALL_AT_ONCE: FaultRates = FaultRates {
    latency: 20,
    cuts: 4,
    stalls: 6,
    failures: 10,
    setups: 8,
    posts: 3,
    registrations: 12,
};

/// Version two at both ends.
const TWO: (&[Versions], &[Versions]) = (&[Versions::Auto, Versions::Two], &[Versions::Auto]);

/// Backward calls with chunks, as version two has them.
const BACKWARD_TWO: Backward = Backward {
    mix: Mix {
        shapes: EVERY_KIND,
        ..BACKWARD.mix
    },
    ..BACKWARD
};

/// Designs that two ends agree on by a message.
const DESIGNS: &[Design] = &[
    Design::Fixed,
    Design::PerCall,
    Design::PerCallSeveral,
    Design::InterCall,
];

/// All scenarios, from the simplest to those with every fault.
pub const SCENARIOS: &[Scenario] = &[
    FIRST,
    Scenario {
        name: "tiny",
        sizes: Sizes::Tiny,
        faults: FaultRates {
            posts: 2,
            ..NO_FAULTS
        },
        ..FIRST
    },
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
        must_succeed: false,
        ..FIRST
    },
    Scenario {
        name: "cuts",
        faults: FaultRates {
            cuts: 2,
            failures: 8,
            ..NO_FAULTS
        },
        cancel: 12,
        timeouts: ANY_TIME,
        must_succeed: false,
        ..FIRST
    },
    Scenario {
        name: "stalls",
        faults: FaultRates {
            stalls: 2,
            cuts: 8,
            ..NO_FAULTS
        },
        timeouts: ANY_TIME,
        must_succeed: false,
        ..FIRST
    },
    Scenario {
        name: "refusals",
        faults: FaultRates {
            setups: 3,
            posts: 2,
            registrations: 3,
            ..NO_FAULTS
        },
        timeouts: ANY_TIME,
        sizes: Sizes::Tiny,
        must_succeed: false,
        ..FIRST
    },
    Scenario {
        name: "restarts",
        restarts: (1, 4),
        calls: (4, 12),
        timeouts: ANY_TIME,
        must_succeed: false,
        ..FIRST
    },
    Scenario {
        name: "disturbances",
        disturbances: (1, 8),
        calls: (4, 12),
        timeouts: ANY_TIME,
        cancel: 10,
        must_succeed: false,
        ..FIRST
    },
    Scenario {
        name: "wild",
        load: Load::Calls(Mix {
            shapes: EVERY_KIND,
            later: (4, 3000),
            never: 40,
        }),
        faults: ALL_AT_ONCE,
        sizes: Sizes::Tiny,
        cancel: 10,
        timeouts: ANY_TIME,
        restarts: (0, 2),
        disturbances: (0, 4),
        calls: (2, 10),
        must_succeed: false,
        ..FIRST
    },
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
    Scenario {
        name: "files",
        load: FILES,
        tasks: (1, 3),
        calls: (4, 16),
        ..FIRST
    },
    Scenario {
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
    },
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
    Scenario {
        name: "backward",
        backward: Some(BACKWARD),
        ..FIRST
    },
    // Many calls of both directions at once, so that neither has a credit left.
    Scenario {
        name: "backward-full",
        backward: Some(Backward {
            often: 1,
            most: 12,
            ..BACKWARD
        }),
        clients: (1, 2),
        tasks: (8, 40),
        calls: (1, 3),
        sizes: Sizes::Tiny,
        ..FIRST
    },
    Scenario {
        name: "backward-deadlines",
        backward: Some(Backward {
            mix: Mix {
                later: (3, 9000),
                never: 8,
                ..BACKWARD.mix
            },
            ..BACKWARD
        }),
        cancel: 6,
        timeouts: &[1000, 3000, 10_000],
        must_succeed: false,
        ..FIRST
    },
    Scenario {
        name: "backward-cuts",
        backward: Some(BACKWARD),
        faults: FaultRates {
            cuts: 2,
            stalls: 8,
            failures: 12,
            posts: 8,
            ..NO_FAULTS
        },
        cancel: 8,
        timeouts: ANY_TIME,
        disturbances: (0, 5),
        must_succeed: false,
        ..FIRST
    },
    Scenario {
        name: "backward-restarts",
        backward: Some(BACKWARD),
        restarts: (1, 4),
        calls: (4, 12),
        timeouts: ANY_TIME,
        health: true,
        must_succeed: false,
        ..FIRST
    },
    // A client that may be called keeps its connection while idle.
    Scenario {
        name: "backward-idle",
        backward: Some(Backward {
            without_service: 0,
            ..BACKWARD
        }),
        pauses: (2, 300_000),
        idle: &[1, 4, 30],
        health: true,
        ..FIRST
    },
    Scenario {
        name: "backward-wild",
        backward: Some(Backward {
            mix: Mix {
                never: 20,
                ..BACKWARD.mix
            },
            ..BACKWARD
        }),
        faults: ALL_AT_ONCE,
        sizes: Sizes::Tiny,
        cancel: 10,
        timeouts: ANY_TIME,
        restarts: (0, 2),
        disturbances: (0, 4),
        calls: (2, 10),
        connections: (1, 3),
        users: 3,
        health: true,
        varying_invalidation: true,
        must_succeed: false,
        ..FIRST
    },
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
        timeouts: ANY_TIME,
        disturbances: (0, 6),
        restarts: (0, 2),
        must_succeed: false,
        ..FIRST
    },
    // Retransmitted calls arrive over one connection while others go on.
    Scenario {
        name: "connections-files",
        load: Load::Files(Files {
            data: true,
            without_reply_cache: false,
        }),
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
        timeouts: &[20_000, 60_000],
        must_succeed: false,
        ..FIRST
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
        must_succeed: false,
        ..FIRST
    },
    // R, and what the server says of itself, changes with each connection.
    Scenario {
        name: "invalidation-varies",
        varying_invalidation: true,
        faults: FaultRates {
            cuts: 2,
            ..NO_FAULTS
        },
        timeouts: ANY_TIME,
        restarts: (0, 3),
        disturbances: (0, 4),
        calls: (4, 12),
        must_succeed: false,
        ..FIRST
    },
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
        timeouts: ANY_TIME,
        disturbances: (0, 4),
        must_succeed: false,
        ..FIRST
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
        timeouts: ANY_TIME,
        must_succeed: false,
        ..FIRST
    },
    Scenario {
        name: "two-files",
        load: FILES,
        versions: TWO,
        tasks: (1, 3),
        calls: (4, 16),
        faults: FaultRates {
            latency: 15,
            cuts: 3,
            stalls: 6,
            posts: 4,
            ..NO_FAULTS
        },
        disturbances: (0, 4),
        timeouts: &[20_000, 60_000],
        must_succeed: false,
        ..FIRST
    },
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
        faults: FaultRates {
            cuts: 2,
            stalls: 8,
            failures: 12,
            posts: 8,
            ..NO_FAULTS
        },
        cancel: 8,
        timeouts: ANY_TIME,
        disturbances: (0, 5),
        must_succeed: false,
        ..FIRST
    },
    Scenario {
        name: "two-wild",
        load: Load::Calls(Mix {
            shapes: EVERY_KIND,
            later: (4, 3000),
            never: 40,
        }),
        versions: (&[Versions::Auto, Versions::Two], &[Versions::Auto]),
        backward: Some(BACKWARD_TWO),
        faults: ALL_AT_ONCE,
        sizes: Sizes::Tiny,
        cancel: 10,
        timeouts: ANY_TIME,
        restarts: (0, 2),
        disturbances: (0, 4),
        calls: (2, 20),
        connections: (1, 3),
        users: 3,
        health: true,
        varying_invalidation: true,
        must_succeed: false,
        ..FIRST
    },
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
        timeouts: ANY_TIME,
        disturbances: (0, 5),
        must_succeed: false,
        ..FIRST
    },
    Scenario {
        name: "designs-files",
        load: FILES,
        versions: TWO,
        designs: DESIGNS,
        tasks: (1, 3),
        calls: (4, 16),
        faults: FaultRates {
            latency: 15,
            cuts: 3,
            stalls: 6,
            posts: 4,
            ..NO_FAULTS
        },
        restarts: (0, 2),
        disturbances: (0, 4),
        timeouts: &[20_000, 60_000],
        must_succeed: false,
        ..FIRST
    },
    // What a client, and each server after the other, can have and is ready for changes.
    Scenario {
        name: "designs-vary",
        versions: (&[Versions::Auto], &[Versions::Auto]),
        designs: DESIGNS,
        by_version: true,
        backward: Some(BACKWARD_TWO),
        varying_invalidation: true,
        connections: (1, 3),
        faults: FaultRates {
            cuts: 2,
            ..NO_FAULTS
        },
        timeouts: ANY_TIME,
        restarts: (0, 3),
        disturbances: (0, 4),
        calls: (4, 12),
        must_succeed: false,
        ..FIRST
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
        load: Load::Calls(Mix {
            shapes: EVERY_KIND,
            later: (4, 3000),
            never: 40,
        }),
        versions: TWO,
        designs: DESIGNS,
        backward: Some(BACKWARD_TWO),
        faults: ALL_AT_ONCE,
        sizes: Sizes::Tiny,
        cancel: 10,
        timeouts: ANY_TIME,
        restarts: (0, 2),
        disturbances: (0, 4),
        calls: (2, 20),
        connections: (1, 3),
        users: 3,
        health: true,
        varying_invalidation: true,
        must_succeed: false,
        ..FIRST
    },
    relayed::PLAIN,
    relayed::TINY,
    relayed::FAULTS,
    relayed::FILES,
    relayed::FILES_FAULTS,
];

/// The scenario with this name.
pub fn scenario(name: &str) -> Option<&'static Scenario> {
    SCENARIOS.iter().find(|scenario| scenario.name == name)
}
