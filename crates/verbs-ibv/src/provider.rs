//! The provider.

use crate::adapter::{Adapters, upper_limits};
use crate::cm::CmId;
use crate::context::DeviceList;
use crate::error::OpenError;
use crate::library::Libraries;
use crate::shared::{Config, Shared};
use crate::{connect, listen};
use buffer::Pool;
use std::net::SocketAddr;
use std::sync::Arc;
use verbs::{BoxFuture, Connected, Limits, Listener, Provider, QpOptions, SetupError, WorkRequest};

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
        let libraries = Libraries::get()?;
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
        // Whether the connection manager can be used is known before anybody waits for it.
        CmId::new(libraries).map_err(|error| OpenError::ConnectionManager {
            reason: error.to_string(),
        })?;
        Ok(Self {
            shared: Arc::new(Shared {
                libraries,
                pool: Pool::new(KEEP),
                config,
                adapters: Adapters::default(),
            }),
        })
    }
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
        upper_limits()
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
