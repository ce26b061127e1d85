//! Software RNIC: iWARP over TCP sockets.

mod config;

pub use config::{Config, CrcMode, FpduPolicy};

/// A provider of iWARP connections over TCP.
#[derive(Clone, Debug, Default)]
pub struct Iwarp {
    config: Config,
}

impl Iwarp {
    /// A provider whose connections behave like this.
    pub fn new(config: Config) -> Self {
        Self { config }
    }

    /// How its connections behave.
    pub fn config(&self) -> &Config {
        &self.config
    }
}
