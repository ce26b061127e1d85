//! Owned values around librdmacm: event channels, identifiers and their events.

#![expect(
    unsafe_code,
    reason = "the connection manager is a library in C, which is called through pointers"
)]

use crate::address::{from_storage, to_storage};
use crate::library::Libraries;
use crate::shortage::Object;
use crate::sys::cm::{
    RDMA_CM_EVENT_ADDR_CHANGE, RDMA_CM_EVENT_ADDR_ERROR, RDMA_CM_EVENT_ADDR_RESOLVED,
    RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_DEVICE_REMOVAL,
    RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_REJECTED,
    RDMA_CM_EVENT_ROUTE_ERROR, RDMA_CM_EVENT_ROUTE_RESOLVED, RDMA_CM_EVENT_UNREACHABLE,
    RDMA_PS_TCP, rdma_cm_id, rdma_conn_param, rdma_event_channel,
};
use crate::sys::{ibv_context, ibv_pd, ibv_qp, ibv_qp_init_attr};
use libc::{c_int, sockaddr};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr::{NonNull, null_mut};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};
use std::time::Duration;

/// Times that a packet is sent again before the peer is given up, at both ends: the request of a connection names it. One
/// less than the most that InfiniBand has, as Linux' NFS has it: with 7, software RoCE never gives up.
const RETRIES: u8 = 6;

/// Times that the peer sends a message again for which this end had no Receive. RFC 8166 §3.3.1 leaves no room for
/// that: each credit has its Receive.
const RNR_RETRIES: u8 = 0;

/// Is shared by calls in which librdmacm may close a device: it does so with the last identifier of a device that is gone,
/// and when it looks for one that it does not know. They set up and end connections: nothing on the way of a call of a
/// connection takes it.
static CALLS: RwLock<()> = RwLock::new(());

fn in_call() -> RwLockReadGuard<'static, ()> {
    CALLS.read().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps librdmacm from closing devices, as long as the value exists. None while it is in a call, which may take seconds
/// where it waits for a peer (the end of an iWARP connection that is being set up).
pub(crate) fn between_calls() -> Option<RwLockWriteGuard<'static, ()>> {
    match CALLS.try_write() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// A channel for events of the connection manager. Reading from it does not wait.
struct EventChannel {
    libraries: &'static Libraries,
    channel: NonNull<rdma_event_channel>,
}

// SAFETY: A channel is a descriptor in allocated memory; the library uses it from any thread.
unsafe impl Send for EventChannel {}
// SAFETY: As above.
unsafe impl Sync for EventChannel {}

impl EventChannel {
    fn new(libraries: &'static Libraries) -> io::Result<Self> {
        // SAFETY: The function has no arguments and gives a channel or null.
        let channel = unsafe { (libraries.cm.rdma_create_event_channel)() };
        let channel = NonNull::new(channel).ok_or_else(|| Object::EventChannel.refused_now())?;
        let channel = Self { libraries, channel };
        // SAFETY: The descriptor is open as long as the channel is, which outlives this borrow.
        let fd = unsafe { BorrowedFd::borrow_raw(channel.fd()) };
        fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::NONBLOCK)?;
        Ok(channel)
    }

    fn fd(&self) -> RawFd {
        // SAFETY: The channel is valid until it is dropped; its descriptor does not change.
        unsafe { (*self.channel.as_ptr()).fd }
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        // SAFETY: The channel came from the library, and all identifiers with it are gone: each owns its channel.
        unsafe { (self.libraries.cm.rdma_destroy_event_channel)(self.channel.as_ptr()) };
    }
}

/// An event of the connection manager.
pub(crate) struct Event {
    pub(crate) kind: EventKind,
    /// Status of the event: 0, a negative error number, or a reason of InfiniBand.
    pub(crate) status: c_int,
    /// Private data of the peer.
    pub(crate) private_data: Vec<u8>,
    /// Reads that the peer is willing to serve, for this end to have outstanding.
    pub(crate) outstanding_reads: u8,
    /// Reads that the peer wants to have outstanding, for this end to serve.
    pub(crate) inbound_reads: u8,
}

pub(crate) enum EventKind {
    AddressResolved,
    AddressError,
    RouteResolved,
    RouteError,
    /// A peer wants to connect to a listener.
    Request(CmId),
    /// A peer wanted to connect, but what belongs to it could not be made.
    LostRequest(io::Error),
    ConnectError,
    Unreachable,
    Rejected,
    Established,
    Disconnected,
    DeviceRemoval,
    /// The network interface has another hardware address, and so its IP addresses are those of another device or port:
    /// a bond has changed to its other link.
    AddressChange,
    /// Anything else, which changes nothing.
    Other,
}

/// Parameters of a connection.
pub(crate) struct Parameters<'a> {
    pub(crate) private_data: &'a [u8],
    pub(crate) inbound_reads: u8,
    pub(crate) outstanding_reads: u8,
}

impl Parameters<'_> {
    fn to_c(&self) -> rdma_conn_param {
        rdma_conn_param {
            private_data: self.private_data.as_ptr().cast(),
            private_data_len: u8::try_from(self.private_data.len()).unwrap_or(u8::MAX),
            responder_resources: self.inbound_reads,
            initiator_depth: self.outstanding_reads,
            flow_control: 1,
            retry_count: RETRIES,
            rnr_retry_count: RNR_RETRIES,
            srq: 0,
            qp_num: 0,
        }
    }
}

/// One end of a connection in the connection manager, or a listener, with its own channel for events.
pub(crate) struct CmId {
    libraries: &'static Libraries,
    id: NonNull<rdma_cm_id>,
    /// Dropped behind the identifier.
    channel: EventChannel,
}

// SAFETY: An identifier may be used from any thread; the library locks what its threads share.
unsafe impl Send for CmId {}
// SAFETY: What changes an identifier takes `&mut self`, or is a system call.
unsafe impl Sync for CmId {}

impl CmId {
    pub(crate) fn new(libraries: &'static Libraries) -> io::Result<Self> {
        let channel = EventChannel::new(libraries)?;
        let mut id = null_mut();
        // SAFETY: The channel is valid, and the function writes the identifier to a valid place.
        check(unsafe {
            (libraries.cm.rdma_create_id)(
                channel.channel.as_ptr(),
                &raw mut id,
                null_mut(),
                RDMA_PS_TCP,
            )
        })
        .map_err(|error| Object::Identifier.refused(&error))?;
        let id = NonNull::new(id).ok_or_else(io::Error::last_os_error)?;
        Ok(Self {
            libraries,
            id,
            channel,
        })
    }

    pub(crate) fn libraries(&self) -> &'static Libraries {
        self.libraries
    }

    fn id(&self) -> &rdma_cm_id {
        // SAFETY: The identifier is valid until it is dropped. The library changes it only in calls that are made
        // through this value, and none of them runs while the reference is used: each use is one expression.
        unsafe { self.id.as_ref() }
    }

    /// The device of the identifier, once an address is resolved. It is open as long as the identifier.
    pub(crate) fn context(&self) -> Option<NonNull<ibv_context>> {
        NonNull::new(self.id().verbs)
    }

    /// Port of the device, from 1.
    pub(crate) fn port(&self) -> u8 {
        self.id().port_num
    }

    pub(crate) fn peer_addr(&self) -> Option<SocketAddr> {
        from_storage(&self.id().route.addr.dst_storage)
    }

    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        from_storage(&self.id().route.addr.src_storage)
    }

    /// Resolves an address to a device of this machine. The answer is an event.
    pub(crate) fn resolve_address(&self, to: SocketAddr, timeout: Duration) -> io::Result<()> {
        let mut to = to_storage(to);
        let to = (&raw mut to).cast::<sockaddr>();
        // SAFETY: The identifier is valid, and the address is read during the call only.
        check(unsafe {
            (self.libraries.cm.rdma_resolve_addr)(
                self.id.as_ptr(),
                null_mut(),
                to,
                milliseconds(timeout),
            )
        })
    }

    /// Resolves the way to the address. The answer is an event.
    pub(crate) fn resolve_route(&self, timeout: Duration) -> io::Result<()> {
        // SAFETY: The identifier is valid and its address resolved, so that it has a device.
        check(unsafe {
            (self.libraries.cm.rdma_resolve_route)(self.id.as_ptr(), milliseconds(timeout))
        })
    }

    /// Binds to an address. One that is not a wildcard has a device then.
    pub(crate) fn bind(&self, on: SocketAddr) -> io::Result<()> {
        let mut on = to_storage(on);
        let on = (&raw mut on).cast::<sockaddr>();
        let _in_call = in_call();
        // SAFETY: The identifier is valid, and the address is read during the call only.
        check(unsafe { (self.libraries.cm.rdma_bind_addr)(self.id.as_ptr(), on) })
    }

    /// Listens on the address to which it is bound.
    pub(crate) fn listen(&self, backlog: c_int) -> io::Result<()> {
        let _in_call = in_call();
        // SAFETY: The identifier is valid.
        check(unsafe { (self.libraries.cm.rdma_listen)(self.id.as_ptr(), backlog) })
    }

    /// Creates the queue pair of the identifier, in a state in which Receives can be posted.
    ///
    /// # Safety
    ///
    /// The protection domain and the completion queue in `attributes` are valid and of the same device, until the
    /// queue pair is destroyed.
    pub(crate) unsafe fn create_qp(
        &mut self,
        domain: NonNull<ibv_pd>,
        attributes: &mut ibv_qp_init_attr,
    ) -> io::Result<NonNull<ibv_qp>> {
        // SAFETY: The identifier is valid; the caller answers for the rest.
        check(unsafe {
            (self.libraries.cm.rdma_create_qp)(
                self.id.as_ptr(),
                domain.as_ptr(),
                &raw mut *attributes,
            )
        })?;
        NonNull::new(self.id().qp).ok_or_else(|| io::ErrorKind::Other.into())
    }

    /// Destroys the queue pair, if there is one.
    pub(crate) fn destroy_qp(&mut self) {
        if !self.id().qp.is_null() {
            // SAFETY: The identifier is valid and has a queue pair.
            unsafe { (self.libraries.cm.rdma_destroy_qp)(self.id.as_ptr()) };
        }
    }

    /// Asks the peer for the connection. On iWARP this waits for TCP.
    pub(crate) fn connect(&mut self, parameters: &Parameters<'_>) -> io::Result<()> {
        let mut parameters = parameters.to_c();
        // SAFETY: The identifier is valid and its route resolved; the parameters are read during the call only.
        check(unsafe { (self.libraries.cm.rdma_connect)(self.id.as_ptr(), &raw mut parameters) })
    }

    /// Accepts the connection of a request.
    pub(crate) fn accept(&mut self, parameters: &Parameters<'_>) -> io::Result<()> {
        let mut parameters = parameters.to_c();
        // SAFETY: The identifier is valid; the parameters are read during the call only.
        check(unsafe { (self.libraries.cm.rdma_accept)(self.id.as_ptr(), &raw mut parameters) })
    }

    /// Rejects the connection of a request, with at most 255 bytes of private data.
    pub(crate) fn reject(&self, private_data: &[u8]) -> io::Result<()> {
        let length = u8::try_from(private_data.len()).unwrap_or(u8::MAX);
        // SAFETY: The identifier is valid; as many bytes are read as there are, during the call only.
        check(unsafe {
            (self.libraries.cm.rdma_reject)(self.id.as_ptr(), private_data.as_ptr().cast(), length)
        })
    }

    /// Ends the connection. On InfiniBand the queue pair fails all that is outstanding.
    pub(crate) fn disconnect(&mut self) -> io::Result<()> {
        // SAFETY: The identifier is valid.
        check(unsafe { (self.libraries.cm.rdma_disconnect)(self.id.as_ptr()) })
    }

    /// The next event, if there is one.
    pub(crate) fn event(&mut self) -> io::Result<Option<Event>> {
        let mut event = null_mut();
        let in_call = in_call();
        // SAFETY: The channel is valid, and the function writes the event to a valid place.
        let got = check(unsafe {
            (self.libraries.cm.rdma_get_cm_event)(self.channel.channel.as_ptr(), &raw mut event)
        });
        drop(in_call);
        match got {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
        // SAFETY: The call succeeded, so that there is an event, valid until it is acknowledged.
        let found = unsafe { &*event };
        let has_parameters = matches!(
            found.event,
            RDMA_CM_EVENT_CONNECT_REQUEST | RDMA_CM_EVENT_ESTABLISHED | RDMA_CM_EVENT_REJECTED
        );
        let parameters = found.param;
        let private_data = if has_parameters && !parameters.private_data.is_null() {
            // SAFETY: An event of this kind has so many bytes of private data, until it is acknowledged.
            unsafe {
                std::slice::from_raw_parts(
                    parameters.private_data.cast::<u8>(),
                    parameters.private_data_len.into(),
                )
            }
            .to_vec()
        } else {
            Vec::new()
        };
        let (number, status, id) = (found.event, found.status, found.id);
        tracing::debug!(
            number,
            status,
            initiator_depth = parameters.initiator_depth,
            responder_resources = parameters.responder_resources,
            "event of the connection manager"
        );
        // SAFETY: The event is not acknowledged yet, and nothing refers to it any more.
        unsafe { (self.libraries.cm.rdma_ack_cm_event)(event) };
        let kind = match number {
            RDMA_CM_EVENT_ADDR_RESOLVED => EventKind::AddressResolved,
            RDMA_CM_EVENT_ADDR_ERROR => EventKind::AddressError,
            RDMA_CM_EVENT_ROUTE_RESOLVED => EventKind::RouteResolved,
            RDMA_CM_EVENT_ROUTE_ERROR => EventKind::RouteError,
            RDMA_CM_EVENT_CONNECT_REQUEST => match self.adopt(id) {
                Ok(id) => EventKind::Request(id),
                Err(error) => EventKind::LostRequest(error),
            },
            RDMA_CM_EVENT_CONNECT_ERROR => EventKind::ConnectError,
            RDMA_CM_EVENT_UNREACHABLE => EventKind::Unreachable,
            RDMA_CM_EVENT_REJECTED => EventKind::Rejected,
            RDMA_CM_EVENT_ESTABLISHED => EventKind::Established,
            RDMA_CM_EVENT_DISCONNECTED => EventKind::Disconnected,
            RDMA_CM_EVENT_DEVICE_REMOVAL => EventKind::DeviceRemoval,
            RDMA_CM_EVENT_ADDR_CHANGE => EventKind::AddressChange,
            _ => EventKind::Other,
        };
        let depths = if has_parameters {
            (parameters.initiator_depth, parameters.responder_resources)
        } else {
            (0, 0)
        };
        Ok(Some(Event {
            kind,
            status,
            private_data,
            outstanding_reads: depths.0,
            inbound_reads: depths.1,
        }))
    }

    /// Takes the identifier of a request over, onto a channel of its own.
    fn adopt(&self, id: *mut rdma_cm_id) -> io::Result<Self> {
        let id = NonNull::new(id).ok_or(io::ErrorKind::NotConnected)?;
        let moved = EventChannel::new(self.libraries).and_then(|channel| {
            // SAFETY: The identifier is that of a new connection, which nobody else has, and its event is
            // acknowledged; the channel is valid.
            check(unsafe {
                (self.libraries.cm.rdma_migrate_id)(id.as_ptr(), channel.channel.as_ptr())
            })?;
            Ok(channel)
        });
        match moved {
            Ok(channel) => Ok(Self {
                libraries: self.libraries,
                id,
                channel,
            }),
            Err(error) => {
                let _in_call = in_call();
                // SAFETY: The identifier is valid, and nobody else has it.
                unsafe { (self.libraries.cm.rdma_destroy_id)(id.as_ptr()) };
                Err(error)
            }
        }
    }
}

impl AsRawFd for CmId {
    fn as_raw_fd(&self) -> RawFd {
        self.channel.fd()
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        self.destroy_qp();
        let _in_call = in_call();
        // SAFETY: The identifier is valid, has no queue pair, and all its events are acknowledged: each is in the
        // function that takes it.
        unsafe { (self.libraries.cm.rdma_destroy_id)(self.id.as_ptr()) };
    }
}

fn check(failed: c_int) -> io::Result<()> {
    if failed == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn milliseconds(time: Duration) -> c_int {
    c_int::try_from(time.as_millis()).unwrap_or(c_int::MAX)
}
