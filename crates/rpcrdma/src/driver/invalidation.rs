//! Which of its configured remote invalidation designs an end can agree to on a connection.

use rpcrdma_proto::{Design, Registrations, Versions};
use std::io;
use verbs::{Limits, SetupError};

/// Remote invalidation designs (reminv §4) that an end can agree to.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    designs: Vec<Design>,
    /// Whether any exposed handle may be invalidated.
    any: bool,
    /// Whether one Send can invalidate several handles.
    several: bool,
}

impl Terms {
    /// Selects from `designs`, for the exposed memory and a provider with these limits. If the peer
    /// must not choose among all handles, only designs remain in which the Requester selects
    /// (reminv §2.3).
    pub(crate) fn new(designs: &[Design], exposed: Registrations, limits: &Limits) -> Self {
        Self {
            any: exposed.remote_invalidation(true, limits),
            several: limits.invalidations > 1,
            designs: designs.to_vec(),
        }
    }

    /// Selects from `designs` for a provider that does not do remote invalidation as it reports.
    pub(crate) fn without(designs: &[Design]) -> Self {
        // What needs no agreement still decides what is spoken.
        let needs_none = |design: &Design| *design == Design::PerVersion;
        Self {
            designs: designs.iter().copied().filter(needs_none).collect(),
            any: false,
            several: false,
        }
    }

    /// Returns the value for R and XCHAR_REQREMINV.
    pub(crate) fn announces(&self) -> bool {
        self.any && self.designs.contains(&Design::PerConnection)
    }

    /// Whether the use of version two permits invalidation of any handle (reminv §4.1).
    pub(crate) fn by_version(&self) -> bool {
        self.any && self.designs.contains(&Design::PerVersion)
    }

    /// Returns the designs to offer or accept, in order.
    pub(crate) fn designs(&self) -> Vec<Design> {
        let kept = |design: &Design| {
            (self.any || design.tolerates_persistent()) && (self.several || !design.needs_several())
        };
        self.designs.iter().copied().filter(kept).collect()
    }

    /// Restricts the versions: version two with [`Design::PerVersion`] is not for an end with
    /// handles that must not be invalidated (reminv §4.1.4).
    ///
    /// # Errors
    ///
    /// If no version remains.
    pub(crate) fn versions(&self, versions: Versions) -> Result<Versions, SetupError> {
        if self.any || !self.designs.contains(&Design::PerVersion) {
            return Ok(versions);
        }
        match versions {
            Versions::One | Versions::Auto => Ok(Versions::One),
            Versions::Two => Err(io::Error::other(
                "version two was to allow that any handle is invalidated remotely (per_version), \
                 which this end cannot have",
            )
            .into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rpcrdma_proto::Registration;
    use verbs::Invalidation;
    use verbs_sim::EndOptions;

    fn terms(
        designs: &[Design],
        remote_invalidation: Invalidation,
        exposed: Registrations,
    ) -> Terms {
        let limits = Limits {
            remote_invalidation,
            ..EndOptions::default().limits
        };
        Terms::new(designs, exposed, &limits)
    }

    fn able(designs: &[Design]) -> Terms {
        terms(designs, Invalidation::Region, Registrations::OF_CALLS)
    }

    /// Of ends in which nobody else may choose.
    fn choosy(designs: &[Design]) -> [Terms; 2] {
        let persistent = Registrations::OF_CALLS.with(Registration::Persistent);
        [
            terms(designs, Invalidation::None, Registrations::OF_CALLS),
            terms(designs, Invalidation::Region, persistent),
        ]
    }

    #[test]
    fn what_is_not_among_the_designs_is_not_agreed_to() {
        let all = able(&Design::ALL);
        assert!(all.announces() && all.by_version());
        assert_eq!(all.designs(), Design::ALL);
        let some = able(&[Design::PerCall, Design::Fixed]);
        assert!(!some.announces() && !some.by_version());
        assert_eq!(some.designs(), [Design::PerCall, Design::Fixed]);
    }

    #[test]
    fn end_whose_handles_must_not_all_go_chooses_itself() {
        for terms in choosy(&Design::ALL) {
            assert!(!terms.announces() && !terms.by_version());
            let kept = [Design::PerCall, Design::PerCallSeveral, Design::PerCallAll];
            assert_eq!(terms.designs(), kept);
        }
    }

    #[test]
    fn version_that_lets_any_handle_go_is_not_spoken_by_whom_that_would_harm() {
        let designs = [Design::PerVersion, Design::PerConnection];
        for versions in [Versions::One, Versions::Two, Versions::Auto] {
            let spoken = able(&designs).versions(versions);
            assert_eq!(spoken.expect("all of them"), versions);
            for terms in choosy(&designs[1..]) {
                let spoken = terms.versions(versions);
                assert_eq!(spoken.expect("all of them"), versions);
            }
            for terms in choosy(&designs) {
                let spoken = terms.versions(versions).ok();
                let one = (versions != Versions::Two).then_some(Versions::One);
                assert_eq!(spoken, one);
            }
        }
    }
}
