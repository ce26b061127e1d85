//! The designs for remote invalidation of draft-cel-nfsv4-reminv-design-03 ("reminv") §4.

/// A design for remote invalidation (reminv §4): who selects the handle to invalidate, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Design {
    /// Use of the version implies permission; nothing is announced (reminv §4.1).
    PerVersion,
    /// Each end announces once per connection whether it permits remote invalidation (reminv §4.2).
    PerConnection,
    /// Only the first handle of a call may be invalidated (reminv §4.3).
    Fixed,
    /// Each call names the one handle that may be invalidated, or none (reminv §4.4, §5.3).
    PerCall,
    /// Each call names the handles of which one may be invalidated (reminv §4.5).
    PerCallSeveral,
    /// A reply may also invalidate a handle that another call exposed for reading, once it was read
    /// (reminv §4.6).
    InterCall,
    /// Each call names the handles that may be invalidated, and its reply invalidates all of them at
    /// once (reminv §4.5, with the work request of §2.4).
    PerCallAll,
}

/// The party that selects the handle (reminv §2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The protocol.
    FixedProtocol,
    /// The Responder, among all handles; so all must permit it.
    RespondersChoice,
    /// The Requester, which can therefore expose memory that must not be invalidated.
    RequestersChoice,
}

impl Design {
    /// All designs, in the order of reminv §4, with what needs a work request of §2.4 at the end.
    pub const ALL: [Self; 7] = [
        Self::PerVersion,
        Self::PerConnection,
        Self::Fixed,
        Self::PerCall,
        Self::PerCallSeveral,
        Self::InterCall,
        Self::PerCallAll,
    ];

    /// Returns the name used in tables and options.
    pub fn name(self) -> &'static str {
        match self {
            Self::PerVersion => "per_version",
            Self::PerConnection => "per_connection",
            Self::Fixed => "fixed",
            Self::PerCall => "per_call",
            Self::PerCallSeveral => "per_call_several",
            Self::InterCall => "inter_call",
            Self::PerCallAll => "per_call_all",
        }
    }

    /// Returns who selects the handle.
    pub fn selection(self) -> Selection {
        match self {
            Self::Fixed => Selection::FixedProtocol,
            Self::PerVersion | Self::PerConnection | Self::InterCall => Selection::RespondersChoice,
            Self::PerCall | Self::PerCallSeveral | Self::PerCallAll => Selection::RequestersChoice,
        }
    }

    /// Whether a Requester may also expose memory that must not be invalidated remotely on the same
    /// connection: only if the Requester selects (reminv §2.3).
    pub fn tolerates_persistent(self) -> bool {
        match self.selection() {
            Selection::RequestersChoice => true,
            Selection::FixedProtocol | Selection::RespondersChoice => false,
        }
    }
}

impl Design {
    /// Whether both providers must be able to invalidate several handles with one Send
    /// ([`Limits::invalidations`](verbs::Limits::invalidations)).
    pub fn needs_several(self) -> bool {
        self == Self::PerCallAll
    }
}

impl std::fmt::Display for Design {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// No design has this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown design; known designs are {}", Design::ALL.map(Design::name).join(", "))]
pub struct UnknownDesign;

impl std::str::FromStr for Design {
    type Err = UnknownDesign;

    /// Parses a [name](Self::name).
    fn from_str(name: &str) -> Result<Self, UnknownDesign> {
        let mut all = Self::ALL.into_iter();
        all.find(|design| design.name() == name)
            .ok_or(UnknownDesign)
    }
}

/// A set of designs, for instance those that an end supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Designs(u32);

impl Designs {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// Returns the known designs among these bits, of which bit 0 is [`Design::PerVersion`], in the
    /// order of [`Design::ALL`].
    pub fn from_bits(bits: u32) -> Self {
        Self(bits & Design::ALL.map(bit).iter().sum::<u32>())
    }

    /// Returns the set as bits, one per design.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Adds a design.
    #[must_use]
    pub fn with(self, design: Design) -> Self {
        Self(self.0 | bit(design))
    }

    /// Whether the set contains the design.
    pub fn has(self, design: Design) -> bool {
        self.0 & bit(design) != 0
    }

    /// Returns the intersection of both sets.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the design if the set has exactly one.
    pub fn only(self) -> Option<Design> {
        let mut all = self.iter();
        all.next().filter(|_| all.next().is_none())
    }

    /// Returns the designs in the order of reminv §4.
    pub fn iter(self) -> impl Iterator<Item = Design> {
        Design::ALL
            .into_iter()
            .filter(move |&design| self.has(design))
    }
}

impl FromIterator<Design> for Designs {
    fn from_iter<I: IntoIterator<Item = Design>>(designs: I) -> Self {
        designs.into_iter().fold(Self::NONE, Self::with)
    }
}

fn bit(design: Design) -> u32 {
    1 << design as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_designs_keep_what_we_know() {
        let all: Designs = Design::ALL.into_iter().collect();
        assert_eq!(Designs::from_bits(u32::MAX), all);
        assert_eq!(all.bits(), 0b111_1111);
        assert!(all.iter().eq(Design::ALL));
        assert_eq!(all.only(), None);
        assert_eq!(Designs::NONE.only(), None);
        let some = Designs::NONE.with(Design::Fixed).with(Design::PerCall);
        assert_eq!(
            some.and(Designs::from_bits(0b1000)).only(),
            Some(Design::PerCall)
        );
        assert!(some.has(Design::Fixed) && !some.has(Design::InterCall));
    }

    #[test]
    fn designs_are_found_by_their_names_alone() {
        for design in Design::ALL {
            assert_eq!(design.to_string().parse(), Ok(design));
        }
        let none = "none".parse::<Design>().unwrap_err().to_string();
        assert!(
            none.ends_with(
                "per_version, per_connection, fixed, per_call, per_call_several, inter_call, \
                 per_call_all"
            ),
            "{none}"
        );
    }

    #[test]
    fn persistent_registrations_need_a_requester_who_selects() {
        let tolerant = Design::ALL.into_iter().filter(|d| d.tolerates_persistent());
        assert!(tolerant.eq([Design::PerCall, Design::PerCallSeveral, Design::PerCallAll]));
    }
}
