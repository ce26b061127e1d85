//! Kinds of registered memory, and what they mean for remote invalidation.

use verbs::{Invalidation, Limits};

/// How memory is registered for the peer (draft-cel-nfsv4-reminv-design-03 §2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registration {
    /// The handle is made for one call and is invalid after it. The peer may invalidate it too, if
    /// the provider supports that.
    Dynamic,
    /// The handle outlives a call, and only its owner may invalidate it.
    Persistent,
}

/// The kinds of registrations that one end exposes on one connection.
///
/// A peer cannot tell the kind of a handle, so a single kind that must not be invalidated remotely
/// rules out remote invalidation (RFC 8797 §3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registrations {
    dynamic: bool,
    persistent: bool,
}

impl Registrations {
    /// The kinds that every [`Connection`](crate::Connection) uses: memory of calls, for as long as
    /// they last.
    pub const OF_CALLS: Self = Self {
        dynamic: true,
        persistent: false,
    };

    /// Adds a kind.
    #[must_use]
    pub const fn with(mut self, kind: Registration) -> Self {
        match kind {
            Registration::Dynamic => self.dynamic = true,
            Registration::Persistent => self.persistent = true,
        }
        self
    }

    /// Whether the set contains the kind.
    pub const fn has(self, kind: Registration) -> bool {
        match kind {
            Registration::Dynamic => self.dynamic,
            Registration::Persistent => self.persistent,
        }
    }

    /// Returns the value for R (RFC 8797 §4.1): true if it is `wanted`, the provider supports it,
    /// and each exposed handle may be invalidated remotely.
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
