//! The queue pair of the device with its completion queue: what is called through the driver's table of functions.

#![expect(
    unsafe_code,
    reason = "work requests and completions are structures of C, passed by pointers"
)]

use crate::adapter::Adapter;
use crate::cm::CmId;
use crate::context::port_attributes;
use crate::device_events::{Attachment, DeviceEvents, News};
use crate::library::Libraries;
use crate::shortage::Object;
use crate::sys::{
    IBV_PORT_ACTIVE, IBV_QP_STATE, IBV_QPS_ERR, IBV_QPT_RC, ibv_comp_channel, ibv_context_ops,
    ibv_cq, ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_init_attr, ibv_recv_wr, ibv_send_wr, ibv_wc,
};
use libc::c_int;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::ffi::CStr;
use std::io;
use std::mem::zeroed;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::task::{Context, Poll};

/// Bytes that are copied into a work request instead of read from memory by the device; less where a device has no
/// room for it.
const INLINE: [u32; 3] = [256, 64, 0];

/// Completions taken at a time.
pub(crate) const BATCH: usize = 32;

/// How large the queues are.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) sends: u32,
    pub(crate) receives: u32,
    /// Pieces of a work request.
    pub(crate) pieces: u32,
}

/// A completion channel, whose descriptor is readable when a completion queue has news.
struct Channel {
    libraries: &'static Libraries,
    channel: NonNull<ibv_comp_channel>,
}

impl Channel {
    fn fd(&self) -> RawFd {
        // SAFETY: The channel is valid until it is dropped; its descriptor does not change.
        unsafe { (*self.channel.as_ptr()).fd }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: The channel came from the library, and its completion queue is gone.
        unsafe { (self.libraries.verbs.ibv_destroy_comp_channel)(self.channel.as_ptr()) };
    }
}

/// A completion queue.
struct Completions {
    libraries: &'static Libraries,
    queue: NonNull<ibv_cq>,
    /// Notifications that are not acknowledged yet.
    unacknowledged: u32,
    /// Dropped behind the queue.
    channel: Channel,
}

impl Completions {
    /// # Safety
    ///
    /// The device of the identifier stays open as long as the queue exists.
    unsafe fn new(id: &CmId, entries: u32) -> io::Result<Self> {
        let libraries = id.libraries();
        let context = id.context().ok_or(io::ErrorKind::NotConnected)?;
        // SAFETY: The device is open.
        let channel = unsafe { (libraries.verbs.ibv_create_comp_channel)(context.as_ptr()) };
        let channel = NonNull::new(channel);
        let channel = channel.ok_or_else(|| Object::CompletionChannel.refused_now())?;
        let channel = Channel { libraries, channel };
        // SAFETY: The descriptor is open as long as the channel is, which outlives this borrow.
        let fd = unsafe { BorrowedFd::borrow_raw(channel.fd()) };
        fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::NONBLOCK)?;
        let entries = c_int::try_from(entries).unwrap_or(c_int::MAX);
        // SAFETY: The device is open and the channel is one of it.
        let queue = unsafe {
            (libraries.verbs.ibv_create_cq)(
                context.as_ptr(),
                entries,
                null_mut(),
                channel.channel.as_ptr(),
                0,
            )
        };
        let queue = NonNull::new(queue).ok_or_else(|| Object::CompletionQueue.refused_now())?;
        Ok(Self {
            libraries,
            queue,
            unacknowledged: 0,
            channel,
        })
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        let verbs = &self.libraries.verbs;
        // SAFETY: The queue is valid, its queue pair is gone, and so many notifications were taken. Destroying it
        // would wait for those that are not acknowledged.
        unsafe {
            (verbs.ibv_ack_cq_events)(self.queue.as_ptr(), self.unacknowledged);
            (verbs.ibv_destroy_cq)(self.queue.as_ptr());
        }
    }
}

/// The device's part of one end of a connection.
///
/// Dropping it destroys the queue pair: afterwards the device touches no memory for it.
pub(crate) struct Hardware {
    queue_pair: NonNull<ibv_qp>,
    completions: Completions,
    pub(crate) adapter: Arc<Adapter>,
    events: Attachment,
    /// Owns the queue pair, which [`Drop`] destroys before the fields are dropped, and keeps the device open: it is
    /// the last to go.
    pub(crate) id: CmId,
    /// Largest number of bytes that are sent inline.
    pub(crate) inline: u32,
}

// SAFETY: All pointers are to values of this one owner, which may be on any thread.
unsafe impl Send for Hardware {}

impl Hardware {
    /// Creates a queue pair on an identifier with a device, in the domain of the adapter.
    pub(crate) fn new(mut id: CmId, adapter: Arc<Adapter>, sizes: Sizes) -> io::Result<Self> {
        // SAFETY: The device is open as long as the identifier, which is dropped behind the queue: by `Drop` and the
        // order of fields below, or at the end of this function.
        let completions = unsafe { Completions::new(&id, sizes.sends + sizes.receives + 1)? };
        let context = id.context().ok_or(io::ErrorKind::NotConnected)?;
        // SAFETY: As above.
        let events = unsafe { DeviceEvents::of(id.libraries(), context)? };
        let mut last = io::Error::from(io::ErrorKind::InvalidInput);
        for inline in INLINE {
            let mut attributes = ibv_qp_init_attr {
                qp_context: null_mut(),
                send_cq: completions.queue.as_ptr(),
                recv_cq: completions.queue.as_ptr(),
                srq: null_mut(),
                cap: ibv_qp_cap {
                    max_send_wr: sizes.sends,
                    max_recv_wr: sizes.receives,
                    max_send_sge: sizes.pieces,
                    max_recv_sge: 1,
                    max_inline_data: inline,
                },
                qp_type: IBV_QPT_RC,
                sq_sig_all: 0,
            };
            // SAFETY: Domain and completion queue are of the device of the identifier, and this value drops them when
            // it has destroyed the queue pair.
            match unsafe { id.create_qp(adapter.domain.as_ptr(), &mut attributes) } {
                Ok(queue_pair) => {
                    let events = events.attach(queue_pair, completions.queue, id.port());
                    return Ok(Self {
                        queue_pair,
                        id,
                        completions,
                        adapter,
                        events,
                        inline: attributes.cap.max_inline_data.min(inline),
                    });
                }
                Err(error) => {
                    let with_less = may_be_the_inline_size(&error);
                    last = error;
                    if !with_less {
                        break;
                    }
                }
            }
        }
        Err(Object::QueuePair.refused(&last))
    }

    fn ops(&self) -> &ibv_context_ops {
        // SAFETY: The queue pair is valid until this value is dropped, and so is its device; the table does not change.
        unsafe { &(*(*self.queue_pair.as_ptr()).context).ops }
    }

    /// Whether the port of the connection has a link now. One that cannot be asked has none.
    pub(crate) fn port_is_active(&self) -> bool {
        let Some(context) = self.id.context() else {
            return false;
        };
        let port = port_attributes(self.id.libraries(), context, self.id.port());
        port.is_ok_and(|port| port.state == IBV_PORT_ACTIVE)
    }

    /// A descriptor that is readable when the device has events.
    pub(crate) fn device_descriptor(&self) -> io::Result<OwnedFd> {
        self.events.descriptor()
    }

    /// Whether the device was removed.
    pub(crate) fn is_removed(&self) -> bool {
        self.events.is_removed()
    }

    /// Takes the events of the device, and tells those whom they concern.
    pub(crate) fn take_device_events(&self) {
        self.events.take_events();
    }

    /// Waits until there is [news](Self::device_news), or the device is removed.
    pub(crate) fn poll_device_news(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.events.poll_news(cx)
    }

    /// Takes the events of the device, and gives the next one that concerns this queue pair.
    pub(crate) fn device_news(&self) -> Option<News> {
        self.events.take()
    }

    /// The descriptor that is readable when there are completions, after [`arm`](Self::arm).
    pub(crate) fn completion_fd(&self) -> RawFd {
        self.completions.channel.fd()
    }

    /// Posts a chain of work requests to the send queue, which are linked here.
    ///
    /// # Safety
    ///
    /// The memory that the requests refer to stays valid, and unused by others where the device writes, until their
    /// completion or the end of this value. Pointers to pieces are valid during the call.
    pub(crate) unsafe fn post_sends(&mut self, chain: &mut [ibv_send_wr]) -> io::Result<()> {
        let mut next = null_mut();
        for request in chain.iter_mut().rev() {
            request.next = next;
            next = &raw mut *request;
        }
        let Some(post) = self.ops().post_send else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let mut bad = null_mut();
        // SAFETY: The queue pair is valid and the requests are linked to a list with an end; the caller answers for
        // the memory.
        posted(unsafe { post(self.queue_pair.as_ptr(), next, &raw mut bad) })
    }

    /// Posts a chain of Receives, which are linked here.
    ///
    /// # Safety
    ///
    /// That of [`post_sends`](Self::post_sends).
    pub(crate) unsafe fn post_receives(&mut self, chain: &mut [ibv_recv_wr]) -> io::Result<()> {
        let mut next = null_mut();
        for request in chain.iter_mut().rev() {
            request.next = next;
            next = &raw mut *request;
        }
        let Some(post) = self.ops().post_recv else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let mut bad = null_mut();
        // SAFETY: The queue pair is valid and the requests are linked to a list with an end; the caller answers for
        // the memory.
        posted(unsafe { post(self.queue_pair.as_ptr(), next, &raw mut bad) })
    }

    /// Takes completions, at most as many as there is room for.
    pub(crate) fn poll<'a>(&mut self, room: &'a mut [ibv_wc; BATCH]) -> io::Result<&'a [ibv_wc]> {
        let Some(poll) = self.ops().poll_cq else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let most = c_int::try_from(room.len()).unwrap_or(c_int::MAX);
        // SAFETY: The completion queue is valid, and there is room for as many completions.
        let found = unsafe { poll(self.completions.queue.as_ptr(), most, room.as_mut_ptr()) };
        match usize::try_from(found) {
            Ok(found) => Ok(&room[..found.min(BATCH)]),
            Err(_) => Err(io::Error::other("the completion queue cannot be read")),
        }
    }

    /// Asks for a notification of the next completion.
    pub(crate) fn arm(&mut self) -> io::Result<()> {
        let Some(arm) = self.ops().req_notify_cq else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        // SAFETY: The completion queue is valid.
        posted(unsafe { arm(self.completions.queue.as_ptr(), 0) })
    }

    /// Takes a notification, if there is one.
    pub(crate) fn notification(&mut self) -> io::Result<bool> {
        let (mut queue, mut context) = (null_mut(), null_mut());
        // SAFETY: The channel is valid and the function writes to valid places. It does not wait.
        let failed = unsafe {
            (self.completions.libraries.verbs.ibv_get_cq_event)(
                self.completions.channel.channel.as_ptr(),
                &raw mut queue,
                &raw mut context,
            )
        };
        if failed == 0 {
            self.completions.unacknowledged += 1;
            return Ok(true);
        }
        match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            error => Err(error),
        }
    }

    /// Makes the queue pair fail all that is outstanding.
    pub(crate) fn fail(&mut self) {
        // SAFETY: The structure has numbers only, for which zero is valid.
        let mut attributes: ibv_qp_attr = unsafe { zeroed() };
        attributes.qp_state = IBV_QPS_ERR;
        let modify = self.completions.libraries.verbs.ibv_modify_qp;
        // SAFETY: The queue pair is valid; only the state is read.
        let failed = unsafe { modify(self.queue_pair.as_ptr(), &raw mut attributes, IBV_QP_STATE) };
        if failed != 0 {
            tracing::debug!(error = failed, "the queue pair cannot be stopped");
        }
    }

    /// Whether the queue pair has stopped because of an error.
    pub(crate) fn has_failed(&self) -> bool {
        // SAFETY: The structures have numbers and pointers only, for which zero is valid.
        let (mut attributes, mut initial): (ibv_qp_attr, ibv_qp_init_attr) = unsafe { zeroed() };
        let query = self.completions.libraries.verbs.ibv_query_qp;
        // SAFETY: The queue pair is valid, and the function writes structures of these layouts.
        let failed = unsafe {
            query(
                self.queue_pair.as_ptr(),
                &raw mut attributes,
                IBV_QP_STATE,
                &raw mut initial,
            )
        };
        failed == 0 && attributes.qp_state == IBV_QPS_ERR
    }

    /// Name of a status in the library.
    pub(crate) fn status_text(&self, status: c_int) -> String {
        // SAFETY: The function gives a constant string for any number.
        let text = unsafe { (self.completions.libraries.verbs.ibv_wc_status_str)(status) };
        if text.is_null() {
            return format!("status {status}");
        }
        // SAFETY: The string has an end and is constant.
        unsafe { CStr::from_ptr(text) }
            .to_string_lossy()
            .into_owned()
    }
}

impl Drop for Hardware {
    fn drop(&mut self) {
        // Before its completion queue and domain, which are dropped next, and before the identifier's device closes.
        self.id.destroy_qp();
    }
}

/// Whether a queue pair can have been refused for the bytes that it should take inline. Drivers say that they have no such
/// thing (`EINVAL`), or count them to the memory of the queue, for which there is no room (`ENOMEM`).
fn may_be_the_inline_size(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::ENOMEM | libc::EOPNOTSUPP)
    )
}

/// The result of a verb: 0, an error number, or with some drivers a negative one.
fn posted(result: c_int) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(result.abs()))
    }
}
