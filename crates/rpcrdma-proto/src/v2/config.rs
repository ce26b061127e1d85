//! Configuration of one end of a connection, for version one and two.

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

/// Configuration of one end of a connection.
#[derive(Clone, Debug)]
pub struct Config {
    /// Role of this end.
    pub role: Role,
    /// Versions that this end speaks.
    pub versions: Versions,
    /// Dialect of version two.
    pub dialect: Dialect,
    /// XID source for control messages, shared with the calls of this end, because an error message
    /// names nothing but the XID.
    pub xids: Xids,
    /// Private data of this end.
    pub own: PrivateData,
    /// Characteristics of this end, for version two.
    pub characteristics: Characteristics,
    /// Credits to request, or the largest grant; clamped to 1 to
    /// [`MAX_CREDITS`](crate::limits::MAX_CREDITS), and requests also to the Receives of the
    /// provider.
    pub credits: u32,
    /// Credits that a server grants at first, with as many Receives, where each connection posts its own; more by
    /// [`set_grant`](crate::Connection::set_grant). At most [`credits`](Self::credits); 0 for as many.
    pub first_grant: u32,
    /// Credits of the backward direction (RFC 8167 §4.1): what a client grants, or a server
    /// requests. At most [`MAX_CREDITS`](crate::limits::MAX_CREDITS); 0 for no backward calls.
    pub backward_credits: u32,
    /// Whether a client reserves the last credit for liveness probes (RFC 8267 §6.7.2). A single
    /// credit is not reserved.
    pub reserve_credit: bool,
    /// Bytes of the largest chunk.
    pub max_chunk: usize,
    /// Bytes of the largest segment to offer; 0 for chunks of one segment.
    pub max_segment: usize,
    /// Kinds of memory exposed on this connection; R in `own` must match them.
    pub registrations: Registrations,
    /// Persistent memory for arguments, if any. With it, `registrations` must have
    /// [`Registration::Persistent`](crate::Registration::Persistent).
    pub persistent: Option<PersistentArguments>,
    /// Whether all memory of a call's chunks is registered under one handle (reminv §2.4), where the
    /// provider permits regions in [parts](verbs::Limits::parts). Otherwise, and for a call with
    /// more chunks than parts are permitted, each chunk has a handle of its own.
    pub one_region: bool,
    /// Source of Receives.
    pub receives: Receives,
    /// Source of memory.
    pub pool: Pool,
}

/// Characteristics of an end in version two (xcharext §3), beyond its private data, which they
/// repeat.
#[derive(Clone, Debug)]
pub struct Characteristics {
    /// Supported operations.
    pub supported: Supported,
    /// Size of Receives once version two is settled. The peer is notified when the initial ones are
    /// used up.
    pub raise_to: InlineThreshold,
    /// Largest size that Receives may ever have; at least `raise_to`.
    pub largest: InlineThreshold,
    /// Largest message to send, if the peer receives as much; at least `largest`.
    pub largest_sent: InlineThreshold,
    /// Backward direction support: what a client announces, or how far a server goes.
    pub backward: BackwardSupport,
    /// Remote invalidation designs to offer or accept, in the order of the server's preference;
    /// empty for cel-01 without extension.
    pub designs: Vec<Design>,
    /// Whether the use of version two permits remote invalidation of any handle of a call (reminv
    /// §4.1). Both ends need the same configuration. An end with this setting announces
    /// XCHAR_REQREMINV = true. A peer that announces characteristics is taken at its word there, or
    /// by the default; one that announces none needs to say nothing.
    pub remote_invalidation_by_version: bool,
    /// Known characteristics.
    pub registry: Registry,
    /// Values of the characteristics that the user has registered.
    pub registered: XcharSpec,
}

impl Default for Characteristics {
    /// The default: all operations, the sizes of the private data, and backward calls without
    /// chunks.
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
    /// Returns the settings for every version.
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
            first_grant: self.first_grant,
            backward_credits: self.backward_credits,
            reserve_credit: self.reserve_credit,
            max_chunk: self.max_chunk,
            max_segment: self.max_segment,
            registrations: self.registrations,
            persistent: self.persistent,
            one_region: self.one_region,
            receives: self.receives,
            counts_messages: self.may_count_messages(),
            receive_size: self.receive_size(),
            pool: self.pool.clone(),
        }
    }

    /// Returns the largest number of Receives posted at a time; 0 with a shared receive queue.
    ///
    /// # Panics
    ///
    /// If shared Receives are smaller than the size announced to the peer.
    pub fn posted_receives(&self) -> usize {
        self.settings().posted_receives()
    }

    /// Whether credits may turn out to count messages (ietf-07 §4.2.1).
    pub(crate) fn may_count_messages(&self) -> bool {
        self.dialect == Dialect::Ietf07 && self.versions.speak(Version::Two)
    }

    /// Returns the initial size of a Receive in bytes.
    pub fn receive_size(&self) -> usize {
        let size = self.versions.receive_size(self.own.receive);
        match self.may_count_messages() {
            // Properties are said once (ietf-07 §6.3.4), so Receives have the largest size at once.
            true => size.max(self.characteristics.raise_to).bytes(),
            false => size.bytes(),
        }
    }

    /// Returns the Receives to post before the connection is made (RFC 8166 §3.3.2).
    ///
    /// # Panics
    ///
    /// If shared Receives are smaller than the size announced to the peer.
    pub fn initial_receives(&self) -> Vec<WorkRequest> {
        self.settings().initial_receives()
    }

    /// Returns the largest size that Receives may ever have.
    pub fn largest_receive(&self) -> InlineThreshold {
        let size = self.versions.receive_size(self.own.receive);
        match self.versions.speak(Version::Two) {
            true => size
                .max(self.characteristics.raise_to)
                .max(self.characteristics.largest),
            false => size,
        }
    }

    /// Returns the designs that this end can agree to: with memory that must not be invalidated, or
    /// a provider without Send with Invalidate, the Requester must be the one who selects (reminv
    /// §2.3). Several handles at once need a provider that invalidates them.
    fn designs(&self, limits: &Limits) -> Vec<Design> {
        let select = !self.may_lose_any(limits);
        let several = limits.invalidations > 1;
        let designs = self.characteristics.designs.iter().copied();
        designs
            .filter(|design| !select || design.tolerates_persistent())
            .filter(|design| several || !design.needs_several())
            .collect()
    }

    /// Whether each handle that this end exposes may be invalidated remotely.
    fn may_lose_any(&self, limits: &Limits) -> bool {
        self.registrations.remote_invalidation(true, limits)
    }

    /// Whether the use of version two permits invalidation of any handle (reminv §4.1).
    pub(crate) fn by_version(&self, limits: &Limits) -> bool {
        self.characteristics.remote_invalidation_by_version && self.may_lose_any(limits)
    }

    /// Returns the session of a new connection, if it may use version two.
    ///
    /// # Panics
    ///
    /// If the characteristics are invalid, or do not fit a message.
    pub(crate) fn session(&self, limits: &Limits) -> Option<Session> {
        if !self.versions.speak(Version::Two) || self.dialect != Dialect::Cel01 {
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
