//! Which versions an end is willing to speak (cel-01 §5).

use crate::version::Version;
use crate::wire::threshold::InlineThreshold;

/// The versions that one end is willing to speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Versions {
    /// Version one alone (RFC 8166).
    One,
    /// Version two alone (cel-01).
    Two,
    /// Either. A client offers version two; a server takes what its client begins with.
    #[default]
    Auto,
}

impl Versions {
    /// Whether this version is spoken.
    pub fn speak(self, version: Version) -> bool {
        match self {
            Self::One => version == Version::One,
            Self::Two => version == Version::Two,
            Self::Auto => true,
        }
    }

    /// The size of Receives that are announced with `own` in private data. Whatever is said there, a
    /// peer may turn out to speak version two, and then it sends as much as that has by default
    /// (cel-01 §2.3).
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

/// The largest message of version two in either direction as long as nobody has said otherwise
/// (cel-01 §2.3, xcharext §3.1).
pub const DEFAULT_INLINE: InlineThreshold = InlineThreshold::DEFAULT;
