//! Descriptors of the libraries, watched by the runtime.

#![expect(
    unsafe_code,
    reason = "descriptors of a library in C have no owner that Rust knows"
)]

use crate::cm::{CmId, Event};
use crate::hardware::Hardware;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::task::{Context, Poll, ready};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A descriptor of somebody else.
struct Borrowed(RawFd);

impl AsRawFd for Borrowed {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

fn register(fd: RawFd) -> io::Result<AsyncFd<Borrowed>> {
    // SAFETY: The values of this module own what owns the descriptor, and drop it last.
    Ok(unsafe { AsyncFd::register_with_interest(Borrowed(fd), Interest::READABLE)? })
}

/// An identifier of the connection manager whose events are waited for.
pub(crate) struct WatchedId {
    /// Dropped first: the identifier closes the descriptor.
    events: AsyncFd<Borrowed>,
    id: CmId,
}

impl WatchedId {
    /// On the runtime that waits.
    pub(crate) fn new(id: CmId) -> io::Result<Self> {
        let events = register(id.as_raw_fd())?;
        Ok(Self { events, id })
    }

    pub(crate) fn id(&self) -> &CmId {
        &self.id
    }

    /// Waits for an event.
    pub(crate) async fn event(&mut self) -> io::Result<Event> {
        next_event(&self.events, &mut self.id).await
    }

    /// The identifier, no longer watched.
    pub(crate) fn into_id(self) -> CmId {
        let Self { events, id } = self;
        drop(events);
        id
    }
}

/// Waits for an event of the connection manager.
async fn next_event(events: &AsyncFd<Borrowed>, id: &mut CmId) -> io::Result<Event> {
    loop {
        if let Some(event) = id.event()? {
            return Ok(event);
        }
        // Cleared before it is looked again: an event that comes now makes it ready again.
        events.readable().await?.clear_ready();
    }
}

/// The device's part of a connection, whose events and completions are waited for.
pub(crate) struct Live {
    /// Dropped first, as are the notifications: the hardware closes the descriptors.
    events: AsyncFd<Borrowed>,
    notifications: AsyncFd<Borrowed>,
    device: AsyncFd<OwnedFd>,
    pub(crate) hardware: Hardware,
}

impl Live {
    /// On the runtime that drives the connection.
    pub(crate) fn new(hardware: Hardware) -> io::Result<Self> {
        Ok(Self {
            events: register(hardware.id.as_raw_fd())?,
            notifications: register(hardware.completion_fd())?,
            device: {
                let descriptor = hardware.device_descriptor()?;
                // SAFETY: It belongs to the value that is registered.
                unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE)? }
            },
            hardware,
        })
    }

    /// Waits for an event of the connection manager.
    pub(crate) async fn event(&mut self) -> io::Result<Event> {
        next_event(&self.events, &mut self.hardware.id).await
    }

    /// Waits until there are events of the connection manager. All of them are to be taken then.
    pub(crate) fn poll_events(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Cleared before the events are taken: one that comes then makes it ready again.
        ready!(self.events.poll_read_ready(cx))?.clear_ready();
        Poll::Ready(Ok(()))
    }

    /// Waits until the device has had events, which somebody else may have taken.
    pub(crate) fn poll_device(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Cleared before the events are taken: one that comes then makes it ready again.
        ready!(self.device.poll_read_ready(cx))?.clear_ready();
        Poll::Ready(Ok(()))
    }

    /// Waits until the device may have notified, after it was asked to.
    pub(crate) fn poll_notifications(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // There is one notification at most: it comes once for each time that it is asked for.
        ready!(self.notifications.poll_read_ready(cx))?.clear_ready();
        Poll::Ready(Ok(()))
    }
}
