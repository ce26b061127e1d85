//! Wrappers: a queue pair around a queue pair, a provider around a provider.
//!
//! A wrapper names what it wraps and overrides the methods that it changes. All other calls go to
//! what it wraps.

use crate::{
    BoxFuture, CloseReason, Completion, Connected, Handle, IoCounters, Limits, Listener, Memory,
    NotPersistent, PostError, Provider, QpOptions, QueuePair, RegisterError, RemoteAddress,
    SetupError, WorkRequest,
};
use std::net::SocketAddr;
use std::task::{Context, Poll};

/// A queue pair around another one. It implements [`QueuePair`]: methods overridden here replace
/// those of the inner queue pair.
#[allow(clippy::missing_errors_doc)] // Those of the method of `QueuePair`.
pub trait WrapQueuePair: Send {
    /// Type of the wrapped value.
    type Inner: QueuePair + ?Sized;

    /// Returns the wrapped queue pair.
    fn inner(&self) -> &Self::Inner;

    /// Returns the wrapped queue pair, mutably.
    fn inner_mut(&mut self) -> &mut Self::Inner;

    /// Overrides a method; by default it calls [`QueuePair::limits`].
    fn wrap_limits(&self) -> &Limits {
        self.inner().limits()
    }

    /// Overrides a method; by default it calls [`QueuePair::post`].
    fn wrap_post(&mut self, work: WorkRequest) -> Result<(), PostError> {
        self.inner_mut().post(work)
    }

    /// Overrides a method; by default it calls [`QueuePair::register`].
    fn wrap_register(&mut self, memory: Memory) -> Result<RemoteAddress, RegisterError> {
        self.inner_mut().register(memory)
    }

    /// Overrides a method; by default it calls [`QueuePair::copy_in`].
    fn wrap_copy_in(
        &mut self,
        handle: Handle,
        offset: usize,
        bytes: &[u8],
    ) -> Result<(), NotPersistent> {
        self.inner_mut().copy_in(handle, offset, bytes)
    }

    /// Overrides a method; by default it calls [`QueuePair::copy_out`].
    fn wrap_copy_out(
        &mut self,
        handle: Handle,
        offset: usize,
        bytes: &mut [u8],
    ) -> Result<(), NotPersistent> {
        self.inner_mut().copy_out(handle, offset, bytes)
    }

    /// Overrides a method; by default it calls [`QueuePair::poll_cq`].
    fn wrap_poll_cq(&mut self) -> Option<Completion> {
        self.inner_mut().poll_cq()
    }

    /// Overrides a method; by default it calls [`QueuePair::progress`].
    fn wrap_progress(&mut self) -> bool {
        self.inner_mut().progress()
    }

    /// Overrides a method; by default it calls [`QueuePair::poll_ready`].
    fn wrap_poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.inner_mut().poll_ready(cx)
    }

    /// Overrides a method; by default it calls [`QueuePair::closed`].
    fn wrap_closed(&self) -> Option<&CloseReason> {
        self.inner().closed()
    }

    /// Overrides a method; by default it calls [`QueuePair::close`].
    fn wrap_close(&mut self) {
        self.inner_mut().close();
    }

    /// Overrides a method; by default it calls [`QueuePair::peer_addr`].
    fn wrap_peer_addr(&self) -> SocketAddr {
        self.inner().peer_addr()
    }

    /// Overrides a method; by default it calls [`QueuePair::io_counters`].
    fn wrap_io_counters(&self) -> IoCounters {
        self.inner().io_counters()
    }

    /// Overrides a method; by default it calls [`QueuePair::unacknowledged`].
    fn wrap_unacknowledged(&self) -> usize {
        self.inner().unacknowledged()
    }

    /// Overrides a method; by default it calls [`QueuePair::describe`].
    fn wrap_describe(&self) -> String {
        self.inner().describe()
    }

    /// Overrides a method; by default it calls [`QueuePair::device`].
    fn wrap_device(&self) -> Option<&str> {
        self.inner().device()
    }
}

impl<W: WrapQueuePair> QueuePair for W {
    fn limits(&self) -> &Limits {
        self.wrap_limits()
    }

    fn post(&mut self, work: WorkRequest) -> Result<(), PostError> {
        self.wrap_post(work)
    }

    fn register(&mut self, memory: Memory) -> Result<RemoteAddress, RegisterError> {
        self.wrap_register(memory)
    }

    fn copy_in(
        &mut self,
        handle: Handle,
        offset: usize,
        bytes: &[u8],
    ) -> Result<(), NotPersistent> {
        self.wrap_copy_in(handle, offset, bytes)
    }

    fn copy_out(
        &mut self,
        handle: Handle,
        offset: usize,
        bytes: &mut [u8],
    ) -> Result<(), NotPersistent> {
        self.wrap_copy_out(handle, offset, bytes)
    }

    fn poll_cq(&mut self) -> Option<Completion> {
        self.wrap_poll_cq()
    }

    fn progress(&mut self) -> bool {
        self.wrap_progress()
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.wrap_poll_ready(cx)
    }

    fn closed(&self) -> Option<&CloseReason> {
        self.wrap_closed()
    }

    fn close(&mut self) {
        self.wrap_close();
    }

    fn peer_addr(&self) -> SocketAddr {
        self.wrap_peer_addr()
    }

    fn io_counters(&self) -> IoCounters {
        self.wrap_io_counters()
    }

    fn unacknowledged(&self) -> usize {
        self.wrap_unacknowledged()
    }

    fn describe(&self) -> String {
        self.wrap_describe()
    }

    fn device(&self) -> Option<&str> {
        self.wrap_device()
    }
}

impl<Q: QueuePair + ?Sized> WrapQueuePair for Box<Q> {
    type Inner = Q;

    fn inner(&self) -> &Q {
        self
    }

    fn inner_mut(&mut self) -> &mut Q {
        self
    }
}

/// A provider around another one. It implements [`Provider`], as [`WrapQueuePair`] does for queue
/// pairs.
pub trait WrapProvider: Send + Sync {
    /// Type of the wrapped value.
    type Inner: Provider + ?Sized;

    /// Returns the wrapped provider.
    fn inner(&self) -> &Self::Inner;

    /// Overrides a method; by default it calls [`Provider::limits`].
    fn wrap_limits(&self) -> Limits {
        self.inner().limits()
    }

    /// Overrides a method; by default it calls [`Provider::connect`].
    fn wrap_connect<'a>(
        &'a self,
        to: SocketAddr,
        options: &'a QpOptions,
        private_data: &'a [u8],
        receives: Vec<WorkRequest>,
    ) -> BoxFuture<'a, Result<Connected, SetupError>> {
        self.inner().connect(to, options, private_data, receives)
    }

    /// Overrides a method; by default it calls [`Provider::listen`].
    fn wrap_listen<'a>(
        &'a self,
        on: SocketAddr,
    ) -> BoxFuture<'a, Result<Box<dyn Listener>, SetupError>> {
        self.inner().listen(on)
    }
}

impl<W: WrapProvider> Provider for W {
    fn limits(&self) -> Limits {
        self.wrap_limits()
    }

    fn connect<'a>(
        &'a self,
        to: SocketAddr,
        options: &'a QpOptions,
        private_data: &'a [u8],
        receives: Vec<WorkRequest>,
    ) -> BoxFuture<'a, Result<Connected, SetupError>> {
        self.wrap_connect(to, options, private_data, receives)
    }

    fn listen<'a>(
        &'a self,
        on: SocketAddr,
    ) -> BoxFuture<'a, Result<Box<dyn Listener>, SetupError>> {
        self.wrap_listen(on)
    }
}
