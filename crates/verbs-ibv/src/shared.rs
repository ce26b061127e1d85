//! State that connections of one provider share.

#![expect(
    unsafe_code,
    reason = "the order in which connections drop what they have of a device is theirs to keep"
)]

use crate::adapter::{Adapter, Adapters};
use crate::cm::CmId;
use crate::context::{device_name, transport_of};
use crate::device_events::DeviceEvents;
use crate::devices::{Transport, transport};
use crate::library::Libraries;
use buffer::Pool;
use std::io;
use std::sync::Arc;
use verbs::{Invalidation, SetupError};

/// Configuration of an [`Ibv`](crate::Ibv) provider.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Name of the only device to use, as `rdma dev` shows it. By default any device that has a way to the address.
    pub device: Option<String>,
    /// Whether iWARP devices are left alone, for programs that reach the peers of these over software iWARP.
    pub without_iwarp: bool,
}

/// State that connections of one provider share.
pub(crate) struct Shared {
    pub(crate) libraries: &'static Libraries,
    pub(crate) pool: Pool,
    pub(crate) config: Config,
    /// Handles that peers may invalidate, whichever device a connection uses.
    pub(crate) remote_invalidation: Invalidation,
    pub(crate) adapters: Adapters,
}

impl Shared {
    /// The adapter for a connection with this identifier, which takes both.
    pub(crate) fn adapter(&self, id: &CmId) -> Result<Arc<Adapter>, SetupError> {
        let promised = self.remote_invalidation == Invalidation::Region;
        // SAFETY: The caller makes an `IbvQp` of both, whose `Hardware` drops the adapter before the identifier; or it
        // drops the adapter, which it got later, first.
        Ok(unsafe { self.adapters.of(id, promised)? })
    }

    /// Whether the device of an identifier is one that may be used. One without a device has none yet.
    pub(crate) fn check_device(&self, id: &CmId) -> io::Result<()> {
        let Some(context) = id.context() else {
            return Ok(());
        };
        // From here on librdmacm has it open, also when no connection comes of this: a removal must not wait for that.
        // SAFETY: The identifier keeps the device open until the end of this function, and librdmacm does further on.
        drop(unsafe { DeviceEvents::of(self.libraries, context)? });
        if self.config.without_iwarp && transport(transport_of(context)) == Transport::Iwarp {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the address is reached by an iWARP device, and these are not to be used",
            ));
        }
        let Some(wanted) = &self.config.device else {
            return Ok(());
        };
        let name = device_name(self.libraries, context);
        if name == *wanted {
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("the address is reached by the RDMA device {name}, and not by {wanted}"),
        ))
    }
}
