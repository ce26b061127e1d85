//! What one end of a connection is to say about itself.

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

/// What one end is to be.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which end.
    pub role: Role,
    /// The operations it supports.
    pub supported: Supported,
    /// Bytes of each Receive that is posted at first: what is told as Receive Buffer Size.
    pub receive_size: ReceiveSize,
    /// Bytes of the largest Receive there may ever be. Taken to be at least `receive_size`.
    pub max_receive_size: ReceiveSize,
    /// Bytes of the largest message that is sent. Taken to be at least those of the largest Receive,
    /// as each end sends as much as it receives.
    pub max_send_size: ReceiveSize,
    /// Whether each handle may be invalidated with a reply that this end exposes as a Requester
    /// (xcharext §3.2). A server says it only if its calls may have chunks, as nothing else is exposed
    /// by it.
    pub remote_invalidation: bool,
    /// What this end can do in the backward direction: on a client what it says, on a server how far it
    /// goes itself.
    pub backward: BackwardSupport,
    /// The designs for remote invalidation that may be agreed on, those first that a server would
    /// rather have; none for the texts as they are. Those that are not agreed on by a characteristic
    /// of their own (reminv §4.1, §4.2) are left out.
    pub designs: Vec<Design>,
    /// The characteristics that are understood.
    pub registry: Registry,
    /// Values of those that a user has added. They are [`FIXED`](Characteristic::FIXED), or this end
    /// tells the peer when they change.
    pub registered: XcharSpec,
}

/// Why a configuration is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Everybody takes messages of 4096 bytes.
    #[error("Receives have {0} bytes, of at least 4096 (cel-01 §2.3)")]
    SmallReceives(ReceiveSize),
    /// A value is given for what nobody has registered, or for what has a field of its own.
    #[error("characteristic {0} is not one that was registered")]
    NotRegistered(XcharId),
    /// A value is none.
    #[error("{0}")]
    Value(#[from] SpecError),
    /// The id for designs of remote invalidation has another meaning.
    #[error("designs for remote invalidation cannot be agreed on: {0}")]
    Designs(#[from] RegisterError),
    /// It all has to fit the first message.
    #[error("characteristics take {0} bytes of a first message of {FIRST_MESSAGE} (cel-01 §5)")]
    TooLong(usize),
}

/// Characteristics that a session looks after itself.
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
    /// What a connection has that is told nothing else: default sizes, and no design.
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

    /// Leaves out the designs for which there is nothing to say.
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

    /// Whether Receives may become larger by our own will, or another size by that of the peer.
    fn receive_size_changes(&self) -> bool {
        match self.supported {
            Supported::None | Supported::InitXch | Supported::InitRespXch => false,
            Supported::InitUpdXch => self.max_receive_size > self.receive_size,
            Supported::All => true,
        }
    }
}
