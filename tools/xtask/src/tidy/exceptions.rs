//! Exceptions from the rules of the house. An exception that is no longer needed is a fault.

/// Path of this file.
pub(super) const HERE: &str = "tools/xtask/src/tidy/exceptions.rs";

/// Exceptions of each rule.
#[derive(Clone, Copy, Default)]
pub(super) struct Exceptions {
    /// Crates with circles of imports, and how many files are part of one.
    pub(super) circles: &'static [(&'static str, usize)],
    /// Files of protocol cores, and the lock or waker that each names.
    pub(super) locks: &'static [(&'static str, &'static str)],
    /// Files of version one that name version two.
    pub(super) version_two: &'static [&'static str],
    /// Public items that nothing but tests uses, or folders of such, each with the reason why it is there.
    pub(super) api: &'static [(&'static str, &'static str)],
    /// Files with a map whose key is the address of a peer.
    pub(super) maps_by_address: &'static [&'static str],
    /// Structs with too many fields, by file and name, with their number.
    pub(super) large_types: &'static [(&'static str, usize)],
    /// Types with methods in too many files, by crate and name, with the number of files.
    pub(super) spread_types: &'static [(&'static str, usize)],
    /// Most lines of code of a folder, without comments and tests.
    pub(super) lines: &'static [(&'static str, usize)],
    /// Number of items whose documentation begins with a question word.
    pub(super) questions: usize,
}

/// Those of this work tree.
pub(super) const EXCEPTIONS: Exceptions = Exceptions {
    circles: CIRCLES,
    locks: LOCKS,
    version_two: VERSION_TWO,
    api: API,
    maps_by_address: MAPS_BY_ADDRESS,
    large_types: LARGE_TYPES,
    spread_types: SPREAD_TYPES,
    lines: LINES,
    questions: 0,
};

const CIRCLES: &[(&str, usize)] = &[];

const LOCKS: &[(&str, &str)] = &[];

const VERSION_TWO: &[&str] = &[];

const API: &[(&str, &str)] = &[
    (
        "connect_mute",
        "a peer that says nothing, for tests of other crates",
    ),
    (
        "expected_size",
        "for programs that show how far a download is",
    ),
    (
        "folding_by",
        "a server on which two forms of a name are one, for tests of other crates",
    ),
    (
        "folding_case",
        "a server on which names of two cases are one, for tests of other crates",
    ),
    (
        "is_experimental",
        "for users who register a characteristic of their own",
    ),
    (
        "keeping_times_in_steps_of",
        "a server with times as coarse as those of other file systems, for tests of other crates",
    ),
    (
        "scripted_provider",
        "connections with different faults, for tests of other crates",
    ),
    (
        "settle_request",
        "for users who register a characteristic of their own",
    ),
    (
        "tell_peer",
        "for users who register a characteristic of their own",
    ),
    (
        "with_tuning",
        "sizes and depth of an export, for users of the library",
    ),
];

const MAPS_BY_ADDRESS: &[&str] = &[];

const LARGE_TYPES: &[(&str, usize)] = &[
    ("crates/nfs-proto/src/binding/scan/machine.rs::Scan", 18),
    ("crates/rpcrdma-proto/src/v2/session/mod.rs::Session", 16),
    ("crates/verbs-ibv/src/fake/mod.rs::Model", 45),
    ("crates/verbs-sim/src/end.rs::End", 23),
    ("testing/fuzz/src/rpcrdma/ietf07.rs::Stage", 16),
    ("testing/rpcrdma-watch/src/rules/mod.rs::Rules", 17),
];

const SPREAD_TYPES: &[(&str, usize)] = &[
    ("crates/gateway::Relay", 5),
    ("crates/iwarp-proto::Endpoint", 4),
    ("crates/nfs-client::Export", 4),
    ("crates/nfs-server::Nfs3", 5),
    ("crates/nfs-server::Nfs4", 14),
    ("crates/nfs-server::Outcome", 4),
    ("crates/rpcrdma-proto::Connection", 4),
    ("crates/rpcrdma-proto::Header", 4),
    ("crates/verbs-ibv::IbvQp", 4),
    ("testing/lab::Report", 4),
    ("testing/rpcrdma-watch::Party", 6),
];

const LINES: &[(&str, usize)] = &[
    ("tools/rpcrdma-cli/src", 12_461),
    ("tools/xtask/src", 5_150),
];
