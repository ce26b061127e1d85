//! Persistent memory: memory for arguments that stays registered between calls.

use buffer::{Buffer, Gather};
use verbs::{Access, Limits, Memory, QueuePair, RegisterError, RemoteAddress};

/// Regions reserved for memory registered per call, if there are as many: the largest call needs
/// one for itself, and one for its reply.
const LEFT_FOR_A_CALL: usize = 2;

/// Persistent memory of a Requester (reminv §2.2). Small arguments are copied into it, which is
/// cheaper than registering their memory.
///
/// Contrary to RFC 8166 §4.4.1 the peer can access this memory between calls: it can read the
/// arguments sent before, and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PersistentArguments {
    /// Largest number of regions per connection. If all are in use, or an argument is larger,
    /// memory is registered for the call. At most half of the regions of the provider are used,
    /// because the rest is needed for that.
    pub regions: usize,
    /// Bytes of each region, at most what the provider allows.
    pub bytes: usize,
}

/// The persistent regions of one connection.
#[derive(Debug)]
pub(crate) struct PersistentPool {
    limits: Option<PersistentArguments>,
    made: usize,
    free: Vec<RemoteAddress>,
}

impl PersistentPool {
    /// Creates a pool with the wanted regions, within the limits of the provider.
    pub(crate) fn new(wanted: Option<PersistentArguments>, limits: &Limits) -> Self {
        let spare = limits.regions.saturating_sub(LEFT_FOR_A_CALL);
        let most = spare.min(limits.regions / 2);
        let limits = wanted.map(|wanted| PersistentArguments {
            regions: wanted.regions.min(most),
            bytes: wanted.bytes.min(limits.max_region),
        });
        Self {
            limits,
            made: 0,
            free: Vec::new(),
        }
    }

    /// Returns the largest number of regions.
    pub(crate) fn most(&self) -> usize {
        self.limits.map_or(0, |limits| limits.regions)
    }

    /// Returns the number of registered regions.
    pub(crate) fn made(&self) -> usize {
        self.made
    }

    /// Returns the number of regions that may still be registered.
    pub(crate) fn unmade(&self) -> usize {
        self.most() - self.made
    }

    /// Lends a region with a copy of these bytes, if one is free and large enough. Registers it on
    /// first use.
    pub(crate) fn lend(
        &mut self,
        bytes: &Gather,
        qp: &mut dyn QueuePair,
    ) -> Result<Option<RemoteAddress>, RegisterError> {
        let Some(limits) = self.limits else {
            return Ok(None);
        };
        if buffer::gather_len(bytes) > limits.bytes {
            return Ok(None);
        }
        let region = match self.free.pop() {
            Some(region) => region,
            None if self.made < limits.regions => {
                let buffer = Buffer::with_capacity(limits.bytes);
                let region = qp.register(Memory::Persistent(Access::Read, buffer))?;
                self.made += 1;
                region
            }
            None => return Ok(None),
        };
        let mut at = 0;
        for piece in bytes {
            qp.copy_in(region.handle, at, piece)
                .expect("it was registered with so many bytes, and nobody else can invalidate it");
            at += piece.len();
        }
        Ok(Some(region))
    }

    /// Returns regions of calls that have their reply.
    pub(crate) fn give_back(&mut self, regions: impl IntoIterator<Item = RemoteAddress>) {
        self.free.extend(regions);
    }
}
