//! Configuration of a session.

use super::own::Own;
use crate::invalidation::design::Design;
use crate::limits::FIRST_MESSAGE;
use crate::role::Role;
use crate::v2::characteristics::{
    BackwardRequestSupport, BackwardSupport, Characteristic, Descriptor, DesignBits,
    InvalidationDesigns, ReceiveBufferSize, ReceiveSize, RegisterError, Registry,
    RequesterRemoteInvalidation, SpecError, XcharId, XcharSpec,
};
use crate::v2::operations::{InitXch, Supported, code};

/// Configuration of one end of a session.
#[derive(Clone, Debug)]
pub struct Config {
    /// Role of this end.
    pub role: Role,
    /// Supported operations.
    pub supported: Supported,
    /// Initial size of each Receive in bytes, announced as Receive Buffer Size.
    pub receive_size: ReceiveSize,
    /// Largest size that Receives may ever have, in bytes; at least `receive_size`.
    pub max_receive_size: ReceiveSize,
    /// Largest message to send, in bytes; at least the largest Receive, because each end sends as
    /// much as it receives.
    pub max_send_size: ReceiveSize,
    /// Whether every handle that this end exposes as a Requester may be invalidated by a reply
    /// (xcharext §3.2). A server announces it only if its calls may have chunks; otherwise it
    /// exposes nothing.
    pub remote_invalidation: bool,
    /// Backward direction support: what a client announces, or how far a server goes.
    pub backward: BackwardSupport,
    /// Remote invalidation designs to offer or accept, in the order of the server's preference;
    /// empty for cel-01 without extension. Designs without the experimental characteristic (reminv
    /// §4.1, §4.2) are ignored.
    pub designs: Vec<Design>,
    /// Known characteristics.
    pub registry: Registry,
    /// Values of the characteristics that the user has registered. Each is
    /// [`FIXED`](Characteristic::FIXED), or this end announces its changes.
    pub registered: XcharSpec,
}

/// Why a configuration is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Receives are below 4096 bytes, which every end of version two must accept.
    #[error("Receives have {0} bytes, less than the minimum of 4096 (cel-01 §2.3)")]
    SmallReceives(ReceiveSize),
    /// A value is given for a characteristic that is not registered, or that has its own field.
    #[error("characteristic {0} is not registered")]
    NotRegistered(XcharId),
    /// A value is invalid.
    #[error(transparent)]
    Value(#[from] SpecError),
    /// The id of the remote invalidation designs is registered for something else.
    #[error("designs for remote invalidation cannot be agreed on")]
    Designs(#[from] RegisterError),
    /// The characteristics do not fit the first message.
    #[error("characteristics take {0} bytes of a first message of {FIRST_MESSAGE} (cel-01 §5)")]
    TooLong(usize),
}

/// Whether the session itself handles the characteristic.
pub(super) fn is_builtin(id: XcharId) -> bool {
    [
        ReceiveBufferSize::ID,
        RequesterRemoteInvalidation::ID,
        BackwardRequestSupport::ID,
        InvalidationDesigns::ID,
    ]
    .contains(&id)
}

impl Config {
    /// Creates a configuration with default sizes and no designs.
    pub fn new(role: Role) -> Self {
        Self {
            role,
            supported: Supported::All,
            receive_size: ReceiveSize::DEFAULT,
            max_receive_size: ReceiveSize::DEFAULT,
            max_send_size: ReceiveSize::DEFAULT,
            remote_invalidation: false,
            backward: BackwardSupport::Inline,
            designs: Vec::new(),
            registry: Registry::standard(),
            registered: XcharSpec::default(),
        }
    }

    /// Removes the designs that are not agreed by characteristic.
    pub(super) fn keep_agreeable_designs(&mut self) {
        let said = |&design: &Design| DesignBits::answer(design).bits() != 0;
        self.designs.retain(said);
    }

    pub(super) fn into_own(mut self) -> Result<Own, ConfigError> {
        if self.receive_size < ReceiveSize::DEFAULT {
            return Err(ConfigError::SmallReceives(self.receive_size));
        }
        let known = self.registry.get(InvalidationDesigns::ID);
        let known = known.is_some_and(|known| known.name() == InvalidationDesigns::NAME);
        if !self.designs.is_empty() && !known {
            self.registry.register::<InvalidationDesigns>()?;
        }
        for value in self.registered.values() {
            let known = self.registry.get(value.which).is_some();
            if !known || is_builtin(value.which) {
                return Err(ConfigError::NotRegistered(value.which));
            }
        }
        self.registry.check(&self.registered)?;
        let said = self.initial();
        let own = Own::new(self, said);
        match own.initial_len(None) {
            0..=FIRST_MESSAGE => Ok(own),
            len => Err(ConfigError::TooLong(len)),
        }
    }

    fn initial(&self) -> InitXch {
        let mut said = InitXch::default().with::<ReceiveBufferSize>(&self.receive_size);
        if !self.receive_size_changes() {
            said.nochg.insert(0);
        }
        // A server that exposes nothing has nothing to say, and backward requests are what a client is
        // asked about (xcharext §3.2, §3.3).
        let client = self.role == Role::Client;
        let exposes = self.backward == BackwardSupport::General;
        if client || (exposes && self.remote_invalidation) {
            said = said.with::<RequesterRemoteInvalidation>(&self.remote_invalidation);
        }
        if client {
            said = said.with::<BackwardRequestSupport>(&self.backward);
        }
        if client && !self.designs.is_empty() {
            let offered = DesignBits::offer(self.designs.iter().copied().collect());
            said = said.with::<InvalidationDesigns>(&offered);
        }
        let updates = self.supported.takes(code::UPDXCH);
        for value in self.registered.values() {
            let known = self.registry.get(value.which);
            said.start.put(value.clone());
            if !updates || known.is_some_and(Descriptor::is_fixed) {
                said.nochg.insert(said.start.len() - 1);
            }
        }
        said
    }

    /// Whether the size of Receives may change, on this end's decision or at the peer's request.
    fn receive_size_changes(&self) -> bool {
        match self.supported {
            Supported::None | Supported::InitXch | Supported::InitRespXch => false,
            Supported::InitUpdXch => self.max_receive_size > self.receive_size,
            Supported::All => true,
        }
    }
}
