//! Kinds of registered memory, and what they mean for remote invalidation.

use verbs::{Invalidation, Limits};

/// How memory is exposed to the peer (draft-cel-nfsv4-reminv-design-03 §2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registration {
    /// Its handle is made for one call and is dead when that call is over. The peer may kill it
    /// too, if the provider can take that.
    Dynamic,
    /// Its handle lives longer than a call, and nobody but its owner may kill it.
    Persistent,
}

/// The kinds of registrations that one end exposes on one connection.
///
/// A peer cannot tell by which kind a handle was made, so one that must not be invalidated remotely
/// is enough for none to be (RFC 8797 §3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registrations {
    dynamic: bool,
    persistent: bool,
}

impl Registrations {
    /// What a [`Connection`](crate::Connection) exposes by itself: memory of calls, for as long as
    /// they last.
    pub const OF_CALLS: Self = Self {
        dynamic: true,
        persistent: false,
    };

    /// The same and one more kind.
    #[must_use]
    pub const fn with(mut self, kind: Registration) -> Self {
        match kind {
            Registration::Dynamic => self.dynamic = true,
            Registration::Persistent => self.persistent = true,
        }
        self
    }

    /// Whether this kind is among them.
    pub const fn has(self, kind: Registration) -> bool {
        match kind {
            Registration::Dynamic => self.dynamic,
            Registration::Persistent => self.persistent,
        }
    }

    /// What to say in R (RFC 8797 §4.1): whether it is `wanted`, the provider can take it, and each
    /// handle that is exposed may be invalidated remotely.
    pub fn remote_invalidation(self, wanted: bool, limits: &Limits) -> bool {
        wanted
            && limits.remote_invalidation == Invalidation::Region
            && !self.has(Registration::Persistent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(remote_invalidation: Invalidation) -> Limits {
        Limits {
            remote_invalidation,
            ..verbs_sim::EndOptions::default().limits
        }
    }

    #[test]
    fn r_needs_the_will_the_provider_and_nothing_but_dynamic_registrations() {
        let able = limits(Invalidation::Region);
        let of_calls = Registrations::OF_CALLS;
        assert!(of_calls.remote_invalidation(true, &able));
        assert!(!of_calls.remote_invalidation(false, &able));
        assert!(!of_calls.remote_invalidation(true, &limits(Invalidation::None)));
        let mixed = of_calls.with(Registration::Persistent);
        assert!(!mixed.remote_invalidation(true, &able));
        let none = Registrations::default();
        assert!(none.remote_invalidation(true, &able));
        assert!(
            !none
                .with(Registration::Persistent)
                .remote_invalidation(true, &able)
        );
    }
}
