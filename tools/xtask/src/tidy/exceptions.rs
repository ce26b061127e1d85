//! Where the rules of the house are not kept. An exception that is no longer needed is a fault.

/// Where this file is.
pub(super) const HERE: &str = "tools/xtask/src/tidy/exceptions.rs";

/// Where which rule is not kept.
#[derive(Clone, Copy, Default)]
pub(super) struct Exceptions {
    /// Crates with circles of imports, and how many files are part of one.
    pub(super) circles: &'static [(&'static str, usize)],
    /// Files of protocol cores, and the lock or waker that each names.
    pub(super) locks: &'static [(&'static str, &'static str)],
    /// Files of version one that name version two.
    pub(super) version_two: &'static [&'static str],
    /// Public items that nothing but tests uses, each with the reason why it is there.
    pub(super) api: &'static [(&'static str, &'static str)],
}

/// Those of this work tree.
pub(super) const EXCEPTIONS: Exceptions = Exceptions {
    circles: CIRCLES,
    locks: LOCKS,
    version_two: VERSION_TWO,
    api: API,
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
