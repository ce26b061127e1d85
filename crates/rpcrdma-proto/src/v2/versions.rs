//! Versions that an end supports (cel-01 §5).

use crate::version::Version;
use crate::wire::threshold::InlineThreshold;

/// Versions that one end supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Versions {
    /// Only version one (RFC 8166).
    One,
    /// Only version two (cel-01).
    Two,
    /// Both. A client offers version two; a server uses the version of its client's first message.
    #[default]
    Auto,
}

impl Versions {
    /// Whether this version is supported.
    pub fn speak(self, version: Version) -> bool {
        match self {
            Self::One => version == Version::One,
            Self::Two => version == Version::Two,
            Self::Auto => true,
        }
    }

    /// Returns the size of Receives of an end that announces `own` in private data. A peer may turn
    /// out to use version two, and then sends messages of that version's default size (cel-01
    /// §2.3).
    pub fn receive_size(self, own: InlineThreshold) -> InlineThreshold {
        match self.speak(Version::Two) {
            true => own.max(DEFAULT_INLINE),
            false => own,
        }
    }

    /// The lowest and the highest, for an ERR_VERS.
    pub(crate) fn range(self) -> (Version, Version) {
        match self {
            Self::One => (Version::One, Version::One),
            Self::Two => (Version::Two, Version::Two),
            Self::Auto => (Version::One, Version::Two),
        }
    }
}

/// Default size of the largest message of version two, in either direction (cel-01 §2.3, xcharext
/// §3.1).
pub const DEFAULT_INLINE: InlineThreshold = InlineThreshold::DEFAULT;
