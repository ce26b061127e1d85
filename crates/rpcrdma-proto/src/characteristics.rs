//! What an end is told to say about itself where version two is spoken.

use crate::connection::Config;
use crate::inline::InlineSize;
use crate::invalidation::Design;
use crate::receives::Receives;
use crate::v2::characteristics::{BackwardSupport, ReceiveSize, Registry, XcharSpec};
use crate::v2::operations::Supported;
use crate::v2::session::{self, Session};
use crate::version::Version;
use verbs::Limits;

/// What an end says about itself where version two is spoken, beside what its private data says:
/// that is said again (xcharext §3).
#[derive(Clone, Debug)]
pub struct Characteristics {
    /// The operations it supports.
    pub supported: Supported,
    /// Octets of the Receives that are posted once it is known that version two is spoken. The peer
    /// is told when those of its beginning are used up.
    pub raise_to: InlineSize,
    /// Octets of the largest Receive there may ever be; at least that of `raise_to`.
    pub largest: InlineSize,
    /// Octets of the largest message that is sent, to a peer that receives as much; at least that of
    /// the largest Receive.
    pub largest_sent: InlineSize,
    /// What this end can do in the backward direction: on a client what it says, on a server how far
    /// it goes itself.
    pub backward: BackwardSupport,
    /// The designs for remote invalidation that may be agreed on, those first that a server would
    /// rather have; none for the texts as they are.
    pub designs: Vec<Design>,
    /// Whether each end of version two is taken to allow that any handle of a call is invalidated,
    /// without a word about it (reminv §4.1). It is a matter of configuration: both ends have to have
    /// it, and neither announces it.
    pub remote_invalidation_by_version: bool,
    /// The characteristics that are understood.
    pub registry: Registry,
    /// Values of those that a user has added.
    pub registered: XcharSpec,
}

impl Default for Characteristics {
    /// All operations, the sizes of the private data, and calls of a server without chunks.
    fn default() -> Self {
        Self {
            supported: Supported::All,
            raise_to: InlineSize::MIN,
            largest: InlineSize::MIN,
            largest_sent: InlineSize::MIN,
            backward: BackwardSupport::Inline,
            designs: Vec::new(),
            remote_invalidation_by_version: false,
            registry: Registry::standard(),
            registered: XcharSpec::default(),
        }
    }
}

impl From<InlineSize> for ReceiveSize {
    fn from(size: InlineSize) -> Self {
        let octets = u32::try_from(size.octets()).expect("it is at most 256 KiB");
        Self::new(octets).expect("it is at least 1 KiB")
    }
}

impl Config {
    /// The largest Receive there may ever be.
    pub fn largest_receive(&self) -> InlineSize {
        let size = self.versions.receive_size(self.own.receive);
        match self.versions.speak(Version::Two) {
            true => size
                .max(self.characteristics.raise_to)
                .max(self.characteristics.largest),
            false => size,
        }
    }

    /// The designs that this end can keep to: with memory that must not be invalidated, or a provider
    /// that takes no Send with Invalidate, a Requester has to be the one who selects (reminv §2.3).
    fn designs(&self, limits: &Limits) -> Vec<Design> {
        let select = !self.may_lose_any(limits);
        let designs = self.characteristics.designs.iter().copied();
        designs
            .filter(|design| !select || design.tolerates_persistent())
            .collect()
    }

    /// Whether each handle that this end exposes may be invalidated remotely.
    fn may_lose_any(&self, limits: &Limits) -> bool {
        self.registrations.remote_invalidation(true, limits)
    }

    /// Whether the version that is spoken says that any handle may go (reminv §4.1).
    pub(crate) fn by_version(&self, limits: &Limits) -> bool {
        self.characteristics.remote_invalidation_by_version && self.may_lose_any(limits)
    }

    /// The session of a new connection, if version two may be spoken on it.
    ///
    /// # Panics
    ///
    /// If the characteristics contradict themselves, or do not fit a message.
    pub(crate) fn session(&self, limits: &Limits) -> Option<Session> {
        if !self.versions.speak(Version::Two) {
            return None;
        }
        let said = self.characteristics.clone();
        let receive = self.versions.receive_size(self.own.receive);
        let receive = match self.receives {
            // There are none of another size to be used up first.
            Receives::Shared { .. } => receive.max(said.raise_to),
            Receives::Posted => receive,
        };
        let config = session::Config {
            role: self.role,
            supported: said.supported,
            receive_size: receive.into(),
            max_receive_size: self.largest_receive().into(),
            max_send_size: said.largest_sent.into(),
            remote_invalidation: self.own.remote_invalidation,
            backward: match limits.outstanding_reads {
                // Chunks of a call have to be read.
                0 => said.backward.min(BackwardSupport::Inline),
                1.. => said.backward,
            },
            designs: self.designs(limits),
            registry: said.registry,
            registered: said.registered,
        };
        Some(Session::new(config).unwrap_or_else(|error| panic!("{error}")))
    }
}
