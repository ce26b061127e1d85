//! What an end of a connection is to be: for version one, and for version two where that may be
//! spoken.

use super::characteristics::{BackwardSupport, ReceiveSize, Registry, XcharSpec};
use super::dialect::Dialect;
use super::operations::Supported;
use super::session::Session;
use super::session::config as session;
use super::versions::Versions;
use crate::connection::Settings;
use crate::invalidation::design::Design;
use crate::invalidation::persistent::PersistentArguments;
use crate::invalidation::registration::Registrations;
use crate::receives::Receives;
use crate::role::Role;
use crate::version::Version;
use crate::wire::private_data::PrivateData;
use crate::wire::threshold::InlineThreshold;
use crate::xid::Xids;
use buffer::Pool;
use verbs::{Limits, WorkRequest};

/// What this end of a connection is to be.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which end.
    pub role: Role,
    /// What it speaks.
    pub versions: Versions,
    /// What both ends mean by version two.
    pub dialect: Dialect,
    /// XID source for messages that are not calls, in the direction in which this end calls: that of
    /// its calls, as an error says nothing but the XID.
    pub xids: Xids,
    /// What we say about ourselves.
    pub own: PrivateData,
    /// The same where version two is spoken.
    pub characteristics: Characteristics,
    /// Credits to ask for, or to grant at most; taken to be within 1 and
    /// [`MAX_CREDITS`](crate::limits::MAX_CREDITS). No more are asked for than the provider has room
    /// for Receives.
    pub credits: u32,
    /// The same for calls of the server to the client (RFC 8167 §4.1): what a client grants, or a
    /// server asks for. At most [`MAX_CREDITS`](crate::limits::MAX_CREDITS); 0 for no such calls.
    pub backward_credits: u32,
    /// Whether a client keeps the last credit back for health checks (RFC 8267 §6.7.2). If it is
    /// granted a single one, that is for all calls.
    pub reserve_credit: bool,
    /// Bytes of the largest chunk.
    pub max_chunk: usize,
    /// Bytes of the largest segment that we offer; 0 for chunks of one segment.
    pub max_segment: usize,
    /// What is exposed on this connection: R in `own` has to be in keeping with it.
    pub registrations: Registrations,
    /// Memory that stays registered for arguments, if there is to be any. Then `registrations` has
    /// [`Registration::Persistent`](crate::Registration::Persistent).
    pub persistent: Option<PersistentArguments>,
    /// Where Receives come from.
    pub receives: Receives,
    /// Where memory comes from.
    pub pool: Pool,
}

/// What an end says about itself where version two is spoken, beside what its private data says:
/// that is said again (xcharext §3).
#[derive(Clone, Debug)]
pub struct Characteristics {
    /// The operations it supports.
    pub supported: Supported,
    /// Bytes of the Receives that are posted once it is known that version two is spoken. The peer
    /// is told when those of its beginning are used up.
    pub raise_to: InlineThreshold,
    /// Bytes of the largest Receive there may ever be; at least that of `raise_to`.
    pub largest: InlineThreshold,
    /// Bytes of the largest message that is sent, to a peer that receives as much; at least that of
    /// the largest Receive.
    pub largest_sent: InlineThreshold,
    /// What this end can do in the backward direction: on a client what it says, on a server how far
    /// it goes itself.
    pub backward: BackwardSupport,
    /// The designs for remote invalidation that may be agreed on, those first that a server would
    /// rather have; none for the texts as they are.
    pub designs: Vec<Design>,
    /// Whether version two itself is taken to allow that any handle of a call is invalidated (reminv
    /// §4.1). It is a matter of configuration, and both ends have to have it. An end that has it says
    /// so with XCHAR_REQREMINV, and goes by what its peer says there, or else by the default of that.
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
            raise_to: InlineThreshold::MIN,
            largest: InlineThreshold::MIN,
            largest_sent: InlineThreshold::MIN,
            backward: BackwardSupport::Inline,
            designs: Vec::new(),
            remote_invalidation_by_version: false,
            registry: Registry::standard(),
            registered: XcharSpec::default(),
        }
    }
}

impl From<InlineThreshold> for ReceiveSize {
    fn from(size: InlineThreshold) -> Self {
        let bytes = u32::try_from(size.bytes()).expect("it is at most 256 KiB");
        Self::new(bytes).expect("it is at least 1 KiB")
    }
}

impl Config {
    /// What holds for every version.
    pub(crate) fn settings(&self) -> Settings {
        if let Receives::Shared { size } = self.receives {
            assert!(
                self.largest_receive().bytes() <= size,
                "no Receive size is told to the peer that the shared Receives do not have"
            );
        }
        Settings {
            role: self.role,
            own: self.own,
            credits: self.credits,
            backward_credits: self.backward_credits,
            reserve_credit: self.reserve_credit,
            max_chunk: self.max_chunk,
            max_segment: self.max_segment,
            registrations: self.registrations,
            persistent: self.persistent,
            receives: self.receives,
            receive_size: self.receive_size(),
            pool: self.pool.clone(),
        }
    }

    /// Receives that are posted at a time, at most; none where they are shared.
    ///
    /// # Panics
    ///
    /// If shared Receives are smaller than what may be told to the peer.
    pub fn posted_receives(&self) -> usize {
        self.settings().posted_receives()
    }

    /// Bytes of each Receive at first.
    pub fn receive_size(&self) -> usize {
        self.versions.receive_size(self.own.receive).bytes()
    }

    /// The Receives to post before the connection is made (RFC 8166 §3.3.2).
    ///
    /// # Panics
    ///
    /// If shared Receives are smaller than what may be told to the peer.
    pub fn initial_receives(&self) -> Vec<WorkRequest> {
        self.settings().initial_receives()
    }

    /// The largest Receive there may ever be.
    pub fn largest_receive(&self) -> InlineThreshold {
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
            // Where the version allows it by itself, each end says so all the same, and may say no
            // (xcharext §3.2).
            remote_invalidation: self.own.remote_invalidation || self.by_version(limits),
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
