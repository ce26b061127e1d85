//! A provider that supports remote invalidation on some connections only.

use crate::dice::Dice;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use verbs::{
    BoxFuture, Connected, Invalidation, Limits, Provider, QpOptions, SetupError, WorkRequest,
    WrapProvider,
};

/// A provider that draws for each connection whether it supports remote invalidation, so that R
/// varies (RFC 8797 §4.1).
pub(crate) struct VaryingInvalidation {
    inner: Arc<dyn Provider>,
    dice: Mutex<Dice>,
    says: AtomicUsize,
}

impl VaryingInvalidation {
    pub(crate) fn new(inner: Arc<dyn Provider>, dice: Dice) -> Self {
        Self {
            inner,
            dice: Mutex::new(dice),
            says: AtomicUsize::new(0),
        }
    }

    fn change(&self) {
        let mut dice = self.dice.lock().unwrap_or_else(PoisonError::into_inner);
        self.says.store(dice.below(2), Relaxed);
    }
}

impl WrapProvider for VaryingInvalidation {
    type Inner = dyn Provider;

    fn inner(&self) -> &Self::Inner {
        &*self.inner
    }

    fn wrap_limits(&self) -> Limits {
        let mut limits = self.inner.limits();
        if self.says.load(Relaxed) == 1 {
            limits.remote_invalidation = Invalidation::None;
        }
        limits
    }

    fn wrap_connect<'a>(
        &'a self,
        to: SocketAddr,
        options: &'a QpOptions,
        private_data: &'a [u8],
        receives: Vec<WorkRequest>,
    ) -> BoxFuture<'a, Result<Connected, SetupError>> {
        self.change();
        self.inner.connect(to, options, private_data, receives)
    }
}
