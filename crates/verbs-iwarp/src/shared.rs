//! Configuration and memory that all connections of a provider share.

use crate::config::Config;
use buffer::Pool;

/// Bytes of staging and framing memory that a provider keeps for reuse, at most. Connections borrow
/// it while there is something to receive or to send.
const POOL_KEEP: usize = 16 << 20;

/// State that all connections of a provider share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    /// Lends staging and framing memory.
    pub(crate) pool: Pool,
}

impl Shared {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            config,
            pool: Pool::new(POOL_KEEP),
        }
    }
}
