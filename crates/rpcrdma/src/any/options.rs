//! The selection of providers.

use crate::Iwarp;

/// The providers to open.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Kinds of providers, and the device if there is to be only one.
    pub selection: Selection,
    /// Software iWARP, with its configuration.
    pub iwarp: Iwarp,
}

impl Options {
    /// A selection, with software iWARP in this configuration.
    pub fn new(selection: Selection, iwarp: Iwarp) -> Self {
        Self { selection, iwarp }
    }
}

/// Kinds of providers. Devices are those of the kernel, in hardware or in software (rxe, siw); a name is that of the only one to
/// use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// RDMA devices for InfiniBand and RoCE, if there are any, and software iWARP. A device that is named has to be there.
    Any(Option<String>),
    /// RDMA devices alone, those for iWARP included.
    Devices(Option<String>),
    /// Software iWARP alone.
    Software,
}

impl Default for Selection {
    fn default() -> Self {
        Self::Any(None)
    }
}
