//! Values that settings name by words.

use crate::providers::ProviderKind;
use nfs_server::{Changes, Squash};
use rpcrdma::iwarp::CrcMode;
use rpcrdma::proto::v2::Dialect;
use rpcrdma::{Spin, Versions};

/// A value that a setting names by one of some words.
pub trait Word: Copy + Send + Sync + 'static {
    /// The words, in order.
    const WORDS: &'static [Named<Self>];
}

/// A word and its value.
#[derive(Clone, Copy, Debug)]
pub struct Named<T> {
    /// The word.
    pub word: &'static str,
    /// The value that it names.
    pub value: T,
    /// Meaning of the value, for users; empty if the word says it.
    pub about: &'static str,
}

/// A word and its value, with the meaning.
pub(crate) const fn named<T: Copy>(word: &'static str, value: T, about: &'static str) -> Named<T> {
    Named { word, value, about }
}

/// Parses a word.
///
/// # Errors
///
/// If it is none of those of the value.
pub(crate) fn word<T: Word>(text: &str) -> Result<T, String> {
    let found = T::WORDS.iter().find(|named| named.word == text);
    let value = found.map(|named| named.value);
    value.ok_or_else(|| {
        let words: Vec<&str> = T::WORDS.iter().map(|named| named.word).collect();
        format!("it is one of {}", words.join(", "))
    })
}

/// Versions of RPC-over-RDMA that are used, and the draft of version two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VersionSetting {
    /// The versions.
    pub versions: Versions,
    /// The draft of version two.
    pub dialect: Dialect,
}

const fn version(versions: Versions, dialect: Dialect) -> VersionSetting {
    VersionSetting { versions, dialect }
}

impl Word for VersionSetting {
    const WORDS: &'static [Named<Self>] = &[
        named("auto", version(Versions::Auto, Dialect::Cel01), ""),
        named("1", version(Versions::One, Dialect::Cel01), ""),
        named("2", version(Versions::Two, Dialect::Cel01), ""),
        named(
            "auto:ietf-07",
            version(Versions::Auto, Dialect::Ietf07),
            "Both, and of version two the draft ietf-07",
        ),
        named(
            "2:ietf-07",
            version(Versions::Two, Dialect::Ietf07),
            "Version two as draft-ietf-nfsv4-rpcrdma-version-two-07 has it",
        ),
    ];
}

impl Word for CrcMode {
    const WORDS: &'static [Named<Self>] = &[
        named("on", Self::On, ""),
        named("off", Self::Off, ""),
        named("strict", Self::Strict, ""),
    ];
}

impl Word for Spin {
    const WORDS: &'static [Named<Self>] = &[
        named("park", Self::Park, "Sleep"),
        named("adaptive", Self::Adaptive, "Poll for 50 µs, then sleep"),
        named("always", Self::Always, "Poll: lowest latency, one busy CPU"),
    ];
}

impl Word for ProviderKind {
    const WORDS: &'static [Named<Self>] = &[
        named(
            "auto",
            Self::Auto,
            "Devices for InfiniBand and RoCE, where there are any, and software iWARP: a client tries the devices first, \
             `serve` and `gateway` listen over both",
        ),
        named(
            "iwarp",
            Self::Iwarp,
            "Software iWARP over TCP: needs no hardware, works with siw of Linux",
        ),
        named(
            "verbs",
            Self::Verbs,
            "RDMA devices of this machine, in hardware or in software (rxe, siw), through rdma-core",
        ),
    ];
}

impl Word for Changes {
    const WORDS: &'static [Named<Self>] = &[
        named(
            "durable",
            Self::Durable,
            "Before the reply, as RFC 1813 requires",
        ),
        named(
            "cached",
            Self::Cached,
            "Later, which is faster, but a crash of this machine can lose acknowledged changes",
        ),
    ];
}

impl Word for Squash {
    const WORDS: &'static [Named<Self>] = &[
        named(
            "remote-root",
            Self::RemoteRoot,
            "Root of other machines; with --trust-local also root of this machine",
        ),
        named("root", Self::Root, "Root of any machine"),
        named("all", Self::All, "Everybody"),
        named("none", Self::None, "No user"),
    ];
}
