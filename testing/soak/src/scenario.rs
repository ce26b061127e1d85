//! The table of what is played.

use crate::echo::{EVERY_KIND, Kind, Mix};
use crate::weather::{CALM, Sizes, Weather};
use rpcrdma::{Design, Versions};

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// By which it is asked for.
    pub name: &'static str,
    /// What is called.
    pub load: Load,
    /// Clients, from so many to so many.
    pub clients: (usize, usize),
    /// Tasks that call at the same time, for each client.
    pub tasks: (usize, usize),
    /// Calls of each task, one after the other.
    pub calls: (usize, usize),
    /// What each client speaks, and each server: one of these.
    pub speak: (&'static [Versions], &'static [Versions]),
    /// What goes wrong below.
    pub weather: Weather,
    /// How much there is room for.
    pub sizes: Sizes,
    /// The largest message in one Send or Receive: one of these for each end and direction.
    pub inline: &'static [usize],
    /// The largest segment that a client offers: one of these; 0 for chunks of one segment.
    pub segments: &'static [usize],
    /// One call in so many is given up by its caller.
    pub cancel: u32,
    /// How long calls may take, in milliseconds: one of these.
    pub timeouts: &'static [u64],
    /// Times that the server ends, in good order or not, and another one, with other sizes, begins.
    pub restarts: (usize, usize),
    /// Times that somebody outside cuts, stalls or terminates a connection.
    pub blows: (usize, usize),
    /// Calls of the server to its clients.
    pub backward: Option<Backward>,
    /// Connections of each client, from so many to so many.
    pub connections: (usize, usize),
    /// Connections that the server takes; 0 for as many as there are.
    pub places: usize,
    /// One task in so many is a user of its own; 0 for one user.
    pub users: u32,
    /// One call in so many comes after a pause, of up to so many milliseconds.
    pub pauses: (u32, usize),
    /// Seconds without a call after which a client closes its connections: one of these; as usual if
    /// there are none.
    pub idle: &'static [u64],
    /// Whether peers that say nothing are asked whether they are there.
    pub health: bool,
    /// Whether a client says with each connection anew whether handles may be invalidated by the
    /// server.
    pub fickle: bool,
    /// Designs for remote invalidation beside R (reminv §4), of which each client offers some, and each
    /// server takes some in any order. With them one client in three has memory that stays registered.
    pub designs: &'static [Design],
    /// Whether both ends are told that version two lets any handle be invalidated (reminv §4.1).
    pub by_version: bool,
    /// Receives that there is room for: one of these; as usual if there are none.
    pub receives: &'static [usize],
    /// Credits that each end has for the other: one of these.
    pub credits: &'static [u32],
    /// Bytes that the server has for chunks: one of these; as usual if there are none.
    pub memory: &'static [usize],
    /// Whether each call that is not given up has to succeed.
    pub sure: bool,
}

/// What is called.
#[derive(Clone, Copy, Debug)]
pub enum Load {
    /// A service that gives back what it is told to.
    Calls(Mix),
    /// Files over NFS, which have to be as a model says.
    Files(Files),
}

/// What a server calls its clients with.
#[derive(Clone, Copy, Debug)]
pub struct Backward {
    /// The calls. They go inline: what is larger is not sent.
    pub mix: Mix,
    /// One call of a client in so many says that it is ready, and brings calls about.
    pub often: u32,
    /// How many, at most.
    pub most: usize,
    /// One client in so many has nothing to answer with.
    pub deaf: u32,
}

/// What is done with files.
#[derive(Clone, Copy, Debug)]
pub struct Files {
    /// Whether most of it is writing and reading, of few files.
    pub data: bool,
    /// Whether the server forgets each reply at once, which it must not: to see that this shows.
    pub forgetful: bool,
}

const EVERY_CALL: Load = Load::Calls(Mix {
    shapes: EVERY_KIND,
    later: (6, 200),
    never: 0,
});

const FILES: Load = Load::Files(Files {
    data: false,
    forgetful: false,
});

/// Each call has all the time in the world.
const PATIENT: &[u64] = &[600_000];

/// From what calls usually take to much more.
const ANY_TIME: &[u64] = &[1000, 5000, 20_000, 60_000];

const FIRST: Scenario = Scenario {
    name: "calm",
    load: EVERY_CALL,
    clients: (1, 3),
    tasks: (1, 6),
    calls: (1, 8),
    speak: (&[Versions::One], &[Versions::Auto]),
    weather: CALM,
    sizes: Sizes::Usual,
    inline: &[1024, 1024, 2048, 4096, 4096, 8192, 65_536],
    // With headers of 1024 bytes there is not room for many.
    segments: &[0, 0, 50_000, 99_999],
    cancel: 0,
    timeouts: PATIENT,
    restarts: (0, 0),
    blows: (0, 0),
    backward: None,
    connections: (1, 1),
    places: 0,
    users: 0,
    pauses: (6, 2000),
    idle: &[],
    health: false,
    fickle: false,
    designs: &[],
    by_version: false,
    receives: &[],
    credits: &[1, 2, 3, 8, 32],
    memory: &[],
    sure: true,
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
    deaf: 4,
};

const ALL_AT_ONCE: Weather = Weather {
    latency: 20,
    cuts: 4,
    stalls: 6,
    failures: 10,
    setups: 8,
    posts: 3,
    registrations: 12,
};

/// Both ends, from the first message on.
const TWO: (&[Versions], &[Versions]) = (&[Versions::Auto, Versions::Two], &[Versions::Auto]);

/// Of a server with chunks.
const BACKWARD_TWO: Backward = Backward {
    mix: Mix {
        shapes: EVERY_KIND,
        ..BACKWARD.mix
    },
    ..BACKWARD
};

/// Those that two ends agree on by a message.
const DESIGNS: &[Design] = &[
    Design::Fixed,
    Design::PerCall,
    Design::PerCallSeveral,
    Design::InterCall,
];

/// What is played, from the simple to the wild.
pub const SCENARIOS: &[Scenario] = &[
    FIRST,
    Scenario {
        name: "tiny",
        sizes: Sizes::Tiny,
        weather: Weather { posts: 2, ..CALM },
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
        sure: false,
        ..FIRST
    },
    Scenario {
        name: "cuts",
        weather: Weather {
            cuts: 2,
            failures: 8,
            ..CALM
        },
        cancel: 12,
        timeouts: ANY_TIME,
        sure: false,
        ..FIRST
    },
    Scenario {
        name: "stalls",
        weather: Weather {
            stalls: 2,
            cuts: 8,
            ..CALM
        },
        timeouts: ANY_TIME,
        sure: false,
        ..FIRST
    },
    Scenario {
        name: "refusals",
        weather: Weather {
            setups: 3,
            posts: 2,
            registrations: 3,
            ..CALM
        },
        timeouts: ANY_TIME,
        sizes: Sizes::Tiny,
        sure: false,
        ..FIRST
    },
    Scenario {
        name: "restarts",
        restarts: (1, 4),
        calls: (4, 12),
        timeouts: ANY_TIME,
        sure: false,
        ..FIRST
    },
    Scenario {
        name: "blows",
        blows: (1, 8),
        calls: (4, 12),
        timeouts: ANY_TIME,
        cancel: 10,
        sure: false,
        ..FIRST
    },
    Scenario {
        name: "wild",
        load: Load::Calls(Mix {
            shapes: EVERY_KIND,
            later: (4, 3000),
            never: 40,
        }),
        weather: ALL_AT_ONCE,
        sizes: Sizes::Tiny,
        cancel: 10,
        timeouts: ANY_TIME,
        restarts: (0, 2),
        blows: (0, 4),
        calls: (2, 10),
        sure: false,
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
        weather: Weather {
            latency: 15,
            cuts: 2,
            stalls: 6,
            posts: 4,
            ..CALM
        },
        blows: (0, 4),
        timeouts: &[20_000, 60_000],
        sure: false,
        ..FIRST
    },
    // Copies of calls that stand still on the way and arrive after their repetition.
    Scenario {
        name: "files-late",
        load: Load::Files(Files {
            data: true,
            forgetful: false,
        }),
        tasks: (1, 2),
        calls: (8, 24),
        weather: Weather {
            latency: 3,
            cuts: 2,
            stalls: 1,
            ..CALM
        },
        blows: (0, 6),
        timeouts: &[20_000, 60_000],
        sure: false,
        ..FIRST
    },
    Scenario {
        name: "files-restarts",
        load: FILES,
        tasks: (1, 3),
        calls: (4, 16),
        weather: Weather { cuts: 6, ..CALM },
        restarts: (1, 3),
        timeouts: &[20_000, 60_000],
        sure: false,
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
        sure: false,
        ..FIRST
    },
    Scenario {
        name: "backward-cuts",
        backward: Some(BACKWARD),
        weather: Weather {
            cuts: 2,
            stalls: 8,
            failures: 12,
            posts: 8,
            ..CALM
        },
        cancel: 8,
        timeouts: ANY_TIME,
        blows: (0, 5),
        sure: false,
        ..FIRST
    },
    Scenario {
        name: "backward-restarts",
        backward: Some(BACKWARD),
        restarts: (1, 4),
        calls: (4, 12),
        timeouts: ANY_TIME,
        health: true,
        sure: false,
        ..FIRST
    },
    // Who may be called keeps its connection, however long nobody calls.
    Scenario {
        name: "backward-idle",
        backward: Some(Backward {
            deaf: 0,
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
        weather: ALL_AT_ONCE,
        sizes: Sizes::Tiny,
        cancel: 10,
        timeouts: ANY_TIME,
        restarts: (0, 2),
        blows: (0, 4),
        calls: (2, 10),
        connections: (1, 3),
        users: 3,
        health: true,
        fickle: true,
        sure: false,
        ..FIRST
    },
    Scenario {
        name: "lines",
        connections: (2, 5),
        users: 2,
        tasks: (2, 12),
        ..FIRST
    },
    Scenario {
        name: "lines-cuts",
        connections: (2, 5),
        users: 2,
        tasks: (2, 8),
        weather: Weather {
            cuts: 2,
            stalls: 6,
            setups: 6,
            ..CALM
        },
        cancel: 12,
        timeouts: ANY_TIME,
        blows: (0, 6),
        restarts: (0, 2),
        sure: false,
        ..FIRST
    },
    // Copies of calls arrive over one connection while others go on.
    Scenario {
        name: "lines-files",
        load: Load::Files(Files {
            data: true,
            forgetful: false,
        }),
        connections: (2, 4),
        tasks: (1, 4),
        calls: (8, 24),
        weather: Weather {
            latency: 5,
            cuts: 2,
            stalls: 2,
            ..CALM
        },
        blows: (0, 6),
        timeouts: &[20_000, 60_000],
        sure: false,
        ..FIRST
    },
    // Connections that the server does not take cost nothing but their attempts.
    Scenario {
        name: "lines-refused",
        clients: (1, 1),
        connections: (2, 6),
        places: 2,
        tasks: (2, 8),
        calls: (2, 12),
        users: 3,
        ..FIRST
    },
    // Either end closes what is not used, and the next call makes it anew.
    Scenario {
        name: "idle",
        pauses: (2, 1_200_000),
        idle: &[1, 4, 30],
        connections: (1, 3),
        health: true,
        ..FIRST
    },
    // Who stands still is found out, however long calls may take.
    Scenario {
        name: "silent",
        weather: Weather { stalls: 2, ..CALM },
        timeouts: &[600_000],
        health: true,
        idle: &[3, 300],
        calls: (2, 12),
        sure: false,
        ..FIRST
    },
    // R, and what the server says of itself, changes with each connection.
    Scenario {
        name: "fickle",
        fickle: true,
        weather: Weather { cuts: 2, ..CALM },
        timeouts: ANY_TIME,
        restarts: (0, 3),
        blows: (0, 4),
        calls: (4, 12),
        sure: false,
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
        weather: Weather {
            latency: 20,
            posts: 4,
            ..CALM
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
        speak: TWO,
        ..FIRST
    },
    // Whoever a server has, it answers each in its own version.
    Scenario {
        name: "versions",
        clients: (2, 5),
        speak: (
            &[Versions::One, Versions::Auto, Versions::Two],
            &[Versions::Auto],
        ),
        ..FIRST
    },
    Scenario {
        name: "versions-refused",
        speak: (&[Versions::Auto], &[Versions::One]),
        connections: (1, 3),
        ..FIRST
    },
    // The next server may speak other versions than this one.
    Scenario {
        name: "versions-restarts",
        speak: (
            &[Versions::One, Versions::Auto],
            &[Versions::One, Versions::Auto],
        ),
        restarts: (1, 4),
        calls: (4, 12),
        weather: Weather {
            cuts: 3,
            setups: 4,
            stalls: 6,
            ..CALM
        },
        timeouts: ANY_TIME,
        blows: (0, 4),
        sure: false,
        ..FIRST
    },
    // So many calls that Receives of former sizes are used up, amid everything else.
    Scenario {
        name: "two-grows",
        speak: TWO,
        inline: &[1024, 4096, 8192, 20_000, 65_536],
        tasks: (4, 12),
        calls: (10, 60),
        pauses: (20, 200),
        ..FIRST
    },
    Scenario {
        name: "two-cuts",
        speak: TWO,
        inline: &[1024, 8192, 65_536],
        weather: Weather {
            cuts: 2,
            failures: 8,
            posts: 4,
            ..CALM
        },
        tasks: (2, 10),
        calls: (4, 30),
        cancel: 12,
        timeouts: ANY_TIME,
        sure: false,
        ..FIRST
    },
    Scenario {
        name: "two-files",
        load: FILES,
        speak: TWO,
        tasks: (1, 3),
        calls: (4, 16),
        weather: Weather {
            latency: 15,
            cuts: 3,
            stalls: 6,
            posts: 4,
            ..CALM
        },
        blows: (0, 4),
        timeouts: &[20_000, 60_000],
        sure: false,
        ..FIRST
    },
    // Calls of the server with chunks of every kind.
    Scenario {
        name: "two-backward",
        speak: TWO,
        backward: Some(BACKWARD_TWO),
        ..FIRST
    },
    Scenario {
        name: "two-backward-cuts",
        speak: TWO,
        backward: Some(BACKWARD_TWO),
        weather: Weather {
            cuts: 2,
            stalls: 8,
            failures: 12,
            posts: 8,
            ..CALM
        },
        cancel: 8,
        timeouts: ANY_TIME,
        blows: (0, 5),
        sure: false,
        ..FIRST
    },
    Scenario {
        name: "two-wild",
        load: Load::Calls(Mix {
            shapes: EVERY_KIND,
            later: (4, 3000),
            never: 40,
        }),
        speak: (&[Versions::Auto, Versions::Two], &[Versions::Auto]),
        backward: Some(BACKWARD_TWO),
        weather: ALL_AT_ONCE,
        sizes: Sizes::Tiny,
        cancel: 10,
        timeouts: ANY_TIME,
        restarts: (0, 2),
        blows: (0, 4),
        calls: (2, 20),
        connections: (1, 3),
        users: 3,
        health: true,
        fickle: true,
        sure: false,
        ..FIRST
    },
    // Ends that agree on any design for remote invalidation, or on none.
    Scenario {
        name: "designs",
        speak: TWO,
        designs: DESIGNS,
        backward: Some(BACKWARD_TWO),
        ..FIRST
    },
    // Many calls at a time, as small as can be, some of which nobody waits for.
    Scenario {
        name: "designs-full",
        speak: TWO,
        designs: &[Design::PerCall, Design::PerCallSeveral],
        inline: &[1024, 4096, 8192, 20_000],
        sizes: Sizes::Tiny,
        weather: Weather { posts: 4, ..CALM },
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
        speak: TWO,
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
        speak: TWO,
        designs: DESIGNS,
        inline: &[1024, 8192, 65_536],
        backward: Some(BACKWARD_TWO),
        weather: Weather {
            cuts: 2,
            stalls: 8,
            failures: 8,
            posts: 4,
            ..CALM
        },
        tasks: (2, 10),
        calls: (4, 20),
        cancel: 12,
        timeouts: ANY_TIME,
        blows: (0, 5),
        sure: false,
        ..FIRST
    },
    Scenario {
        name: "designs-files",
        load: FILES,
        speak: TWO,
        designs: DESIGNS,
        tasks: (1, 3),
        calls: (4, 16),
        weather: Weather {
            latency: 15,
            cuts: 3,
            stalls: 6,
            posts: 4,
            ..CALM
        },
        restarts: (0, 2),
        blows: (0, 4),
        timeouts: &[20_000, 60_000],
        sure: false,
        ..FIRST
    },
    // What a client, and each server after the other, can have and is ready for changes.
    Scenario {
        name: "designs-fickle",
        speak: (&[Versions::Auto], &[Versions::Auto]),
        designs: DESIGNS,
        by_version: true,
        backward: Some(BACKWARD_TWO),
        fickle: true,
        connections: (1, 3),
        weather: Weather { cuts: 2, ..CALM },
        timeouts: ANY_TIME,
        restarts: (0, 3),
        blows: (0, 4),
        calls: (4, 12),
        sure: false,
        ..FIRST
    },
    // It is the same for clients of version one and for those that offer nothing.
    Scenario {
        name: "designs-by-version",
        speak: (&[Versions::One, Versions::Auto], &[Versions::Auto]),
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
        speak: TWO,
        designs: DESIGNS,
        backward: Some(BACKWARD_TWO),
        weather: ALL_AT_ONCE,
        sizes: Sizes::Tiny,
        cancel: 10,
        timeouts: ANY_TIME,
        restarts: (0, 2),
        blows: (0, 4),
        calls: (2, 20),
        connections: (1, 3),
        users: 3,
        health: true,
        fickle: true,
        sure: false,
        ..FIRST
    },
];

/// The row of this name.
pub fn scenario(name: &str) -> Option<&'static Scenario> {
    SCENARIOS.iter().find(|scenario| scenario.name == name)
}
