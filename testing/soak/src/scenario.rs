//! The table of scenarios.

mod backward;
mod calls;
mod connections;
mod designs;
mod files;
mod ietf07;
mod nfs4;
mod relayed;
mod versions;

use crate::echo::{EVERY_KIND, Kind, Mix};
use crate::faults::{FaultRates, NO_FAULTS, Sizes};
use rpcrdma::proto::v2::Dialect;
use rpcrdma::{Design, Versions};

/// One scenario: what is called, with which settings, under which faults.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Name, as `--scenario` takes it.
    pub name: &'static str,
    /// Which calls the clients make.
    pub load: Load,
    /// Whether they go over TCP through two gateways, with RPC-over-RDMA between these.
    pub relayed: bool,
    /// Smallest and largest number of clients.
    pub clients: (usize, usize),
    /// Smallest and largest number of concurrent tasks of each client.
    pub tasks: (usize, usize),
    /// Smallest and largest number of calls of each task, which are made one after the other.
    pub calls: (usize, usize),
    /// Protocol versions: each client draws from the first list, each server from the second.
    pub versions: (&'static [Versions], &'static [Versions]),
    /// Draft of version two, at both ends.
    pub dialect: Dialect,
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
    /// server accepts some, in any order. With them one client in three has persistent registrations,
    /// and if there are several, one in three registers all memory of a call under one handle.
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
    /// State of NFS version 4 in one process, without a network: the server's clock is the simulation's, `calls` are its steps.
    Nfs4 {
        /// Whether the files are in a directory of this machine, so that operations are jobs; else they are in memory.
        local: bool,
    },
}

/// Calls of a server to its clients (RFC 8167).
#[derive(Clone, Copy, Debug)]
pub struct Backward {
    /// The calls. Without chunks they go inline: what is larger is not sent.
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

const FILE_DATA: Load = Load::Files(Files {
    data: true,
    without_reply_cache: false,
});

/// A deadline that no call reaches.
const NO_DEADLINE: &[u64] = &[600_000];

/// Deadlines from what calls usually take to much more.
const ANY_TIME: &[u64] = &[1000, 5000, 20_000, 60_000];

const FIRST: Scenario = Scenario {
    name: "no-faults",
    load: EVERY_CALL,
    relayed: false,
    clients: (1, 3),
    tasks: (1, 6),
    calls: (1, 8),
    versions: (&[Versions::One], &[Versions::Auto]),
    dialect: Dialect::Cel01,
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

/// A scenario in which calls may fail.
const MAY_FAIL: Scenario = Scenario {
    timeouts: ANY_TIME,
    must_succeed: false,
    ..FIRST
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
    Design::PerCallAll,
];

/// The tables, from the simplest scenarios to those with every fault.
const TABLES: &[&[Scenario]] = &[
    calls::ROWS,
    files::ROWS,
    backward::ROWS,
    connections::ROWS,
    versions::ROWS,
    designs::ROWS,
    ietf07::ROWS,
    relayed::ROWS,
    nfs4::ROWS,
];

/// All scenarios.
pub const SCENARIOS: &[Scenario] = &joined::<{ rows(TABLES) }>(TABLES);

/// Number of rows of all tables.
const fn rows(tables: &[&[Scenario]]) -> usize {
    let (mut rows, mut table) = (0, 0);
    while table < tables.len() {
        rows += tables[table].len();
        table += 1;
    }
    rows
}

/// The rows of all tables, one after the other.
const fn joined<const ROWS: usize>(tables: &[&[Scenario]]) -> [Scenario; ROWS] {
    let mut all = [FIRST; ROWS];
    let (mut filled, mut table) = (0, 0);
    while table < tables.len() {
        let mut row = 0;
        while row < tables[table].len() {
            all[filled] = tables[table][row];
            filled += 1;
            row += 1;
        }
        table += 1;
    }
    all
}

/// The scenario with this name.
pub fn scenario(name: &str) -> Option<&'static Scenario> {
    SCENARIOS.iter().find(|scenario| scenario.name == name)
}
