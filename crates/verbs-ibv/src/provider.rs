//! The provider.

use crate::adapter::{Adapters, upper_limits};
use crate::cm::CmId;
use crate::context::DeviceList;
use crate::devices::{Transport, transport, windows};
use crate::error::OpenError;
use crate::library::Libraries;
use crate::shared::{Config, Shared};
use crate::{connect, listen};
use buffer::Pool;
use std::net::SocketAddr;
use std::sync::Arc;
use verbs::{
    BoxFuture, Connected, Invalidation, Limits, Listener, Provider, QpOptions, SetupError,
    WorkRequest,
};

/// Bytes of memory for copies that a provider keeps for reuse.
const KEEP: usize = 8 << 20;

/// A provider of connections over RDMA devices. Clones share their memory.
///
/// Requires a tokio runtime with I/O and time.
#[derive(Clone)]
pub struct Ibv {
    shared: Arc<Shared>,
}

impl Ibv {
    /// Loads the libraries of rdma-core and looks for devices.
    ///
    /// # Errors
    ///
    /// If a library is missing, the kernel has no interface for programs, or there is no device, or not the one that is
    /// to be used. The text is one line with a remedy.
    pub fn open(config: Config) -> Result<Self, OpenError> {
        Self::over(Libraries::get()?, config)
    }

    /// [`open`](Self::open) over these libraries.
    pub(crate) fn over(libraries: &'static Libraries, config: Config) -> Result<Self, OpenError> {
        let devices = DeviceList::new(libraries)?;
        let names: Vec<String> = (0..devices.len())
            .map(|index| devices.name(index))
            .collect();
        if names.is_empty() {
            return Err(OpenError::NoDevice);
        }
        if let Some(wanted) = config
            .device
            .as_ref()
            .filter(|wanted| !names.contains(wanted))
        {
            return Err(OpenError::NoSuchDevice {
                device: wanted.clone(),
                devices: names.join(", "),
            });
        }
        // Private data says whether a peer may invalidate, and is sent before it is known which device is used.
        let used = (0..names.len()).filter(|index| {
            let wanted = config.device.as_ref();
            let is_iwarp = || transport(devices.transport_type(*index)) == Transport::Iwarp;
            wanted.is_none_or(|wanted| names[*index] == *wanted)
                && !(config.without_iwarp && is_iwarp())
        });
        let mut used = used.peekable();
        if used.peek().is_none() {
            return Err(OpenError::NoDevice);
        }
        let remote_invalidation = if used.all(|index| has_windows(&devices, index)) {
            Invalidation::Region
        } else {
            Invalidation::None
        };
        // Whether the connection manager can be used is known before anybody waits for it.
        CmId::new(libraries).map_err(|error| OpenError::ConnectionManager {
            reason: error.to_string(),
        })?;
        Ok(Self {
            shared: Arc::new(Shared {
                libraries,
                pool: Pool::new(KEEP),
                config,
                remote_invalidation,
                adapters: Adapters::default(),
            }),
        })
    }
}

#[cfg(test)]
impl Ibv {
    /// Memory for copies.
    pub(crate) fn pool(&self) -> &Pool {
        &self.shared.pool
    }
}

/// Whether connections over a device expose memory by windows. One that cannot be opened is not used either.
fn has_windows(devices: &DeviceList, index: usize) -> bool {
    let looked = devices.open(index).and_then(|context| {
        let attributes = context.attributes()?;
        Ok(windows(&context, &attributes).usable())
    });
    looked.unwrap_or_else(|error| {
        tracing::debug!(device = devices.name(index), %error, "the device cannot be opened");
        true
    })
}

impl std::fmt::Debug for Ibv {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ibv")
            .field("config", &self.shared.config)
            .finish_non_exhaustive()
    }
}

impl Provider for Ibv {
    fn limits(&self) -> Limits {
        Limits {
            remote_invalidation: self.shared.remote_invalidation,
            ..upper_limits()
        }
    }

    fn connect<'a>(
        &'a self,
        to: SocketAddr,
        options: &'a QpOptions,
        private_data: &'a [u8],
        receives: Vec<WorkRequest>,
    ) -> BoxFuture<'a, Result<Connected, SetupError>> {
        Box::pin(connect::connect(
            &self.shared,
            to,
            options,
            private_data,
            receives,
        ))
    }

    fn listen<'a>(
        &'a self,
        on: SocketAddr,
    ) -> BoxFuture<'a, Result<Box<dyn Listener>, SetupError>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move { listen::listen(shared, on) })
    }
}
