//! Asynchronous events of a device: queue pairs and completion queues that it stopped, ports that lost their link, and
//! its own end.
//!
//! A device has one queue of events for all that a process does with it. Whoever is woken takes them all and keeps those
//! of others for them.

#![expect(
    unsafe_code,
    reason = "events are structures of a library in C, about values that it knows by pointers"
)]

use crate::context::device_name;
use crate::library::Libraries;
use crate::sys::{
    IBV_EVENT_CQ_ERR, IBV_EVENT_DEVICE_FATAL, IBV_EVENT_PORT_ERR, ibv_async_event, ibv_context,
    ibv_cq, ibv_qp,
};
use libc::c_int;
use rustix::fs::{FileType, Mode, OFlags, fcntl_getfl, fcntl_setfl, makedev};
use rustix::io::fcntl_dupfd_cloexec;
use std::collections::HashMap;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

/// How often it is looked whether a device is still there. The kernel waits as long when it is removed, and for the end of
/// the connections.
const LOOK: Duration = Duration::from_millis(250);

/// What the descriptors of a removed device are replaced with, and its number.
const NOTHING_PATH: &str = "/dev/null";
const NOTHING: (u32, u32) = (1, 3);

/// Events of the devices in use, by the address of the device. The lock is held while a removed device is let go.
static DEVICES: Mutex<Option<HashMap<usize, InUse>>> = Mutex::new(None);

/// A device in use.
struct InUse {
    events: Weak<DeviceEvents>,
    removed: Arc<AtomicBool>,
}

/// Events of one device.
pub(crate) struct DeviceEvents {
    libraries: &'static Libraries,
    context: NonNull<ibv_context>,
    /// The device was removed, and the kernel waits until nobody has it open. Connections at work look at it in each
    /// turn; others are woken.
    removed: Arc<AtomicBool>,
    state: Mutex<State>,
    /// None if the descriptor is none of a device, as in a model of the libraries.
    opened: Option<Opened>,
}

/// The device's file, as it was opened.
struct Opened {
    fd: c_int,
    /// The descriptor of its events, which is closed with the file.
    events: c_int,
    number: u64,
}

impl Opened {
    /// None if the descriptor is none of a device.
    fn of(fd: c_int, events: c_int) -> Option<Self> {
        let number = device_number(fd)?;
        Some(Self { fd, events, number })
    }

    /// Whether the device was removed and [let go](DeviceEvents::drop), which librdmacm may not know yet.
    fn is_let_go(&self) -> bool {
        self.number == makedev(NOTHING.0, NOTHING.1)
    }

    /// Whether the descriptor is still the one of the device, and not of somebody who opened a file later.
    fn is_open(&self) -> bool {
        device_number(self.fd) == Some(self.number)
    }
}

fn removed() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "the RDMA device was removed")
}

/// The number of the device whose file this is.
fn device_number(fd: c_int) -> Option<u64> {
    if fd < 0 {
        return None;
    }
    // SAFETY: It is borrowed for this call, which fails if the descriptor is closed.
    let status = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(fd) }).ok()?;
    let is_device = FileType::from_raw_mode(status.st_mode) == FileType::CharacterDevice;
    is_device.then_some(status.st_rdev)
}

#[derive(Default)]
struct State {
    /// The device does not work any more.
    fatal: bool,
    /// What concerns each queue pair that somebody asks about, by its address.
    queue_pairs: HashMap<usize, Attached>,
}

/// A queue pair whose events are kept.
struct Attached {
    completion_queue: usize,
    port: u8,
    /// What was said last about the queue pair itself, or else about what it needs.
    news: Option<News>,
    /// Who waits for the end of the device.
    waker: Option<Waker>,
}

// SAFETY: The verbs of libibverbs are thread-safe, and the state has a lock.
unsafe impl Send for DeviceEvents {}
// SAFETY: As above.
unsafe impl Sync for DeviceEvents {}

/// What a device says about a queue pair, or what it needs.
#[derive(Clone, Copy)]
pub(crate) enum News {
    /// This event of the queue pair, `IBV_EVENT_QP_...`.
    QueuePair(c_int),
    /// Its completion queue has failed: completions are lost.
    CompletionQueueFailed,
    /// Its port had no link when that was said, which may be long ago.
    PortDown,
    DeviceFailed,
}

impl DeviceEvents {
    /// The events of an open device, shared by all that use it.
    ///
    /// # Safety
    ///
    /// The device is open until the caller has dropped what it got. Somebody else who has the same device open may still
    /// use the rest.
    ///
    /// # Errors
    ///
    /// The device was removed.
    pub(crate) unsafe fn of(
        libraries: &'static Libraries,
        context: NonNull<ibv_context>,
    ) -> io::Result<Arc<Self>> {
        let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        let all = devices.get_or_insert_default();
        let address = context.as_ptr() as usize;
        let known = all.get(&address);
        let events = known.and_then(|known| known.events.upgrade());
        if known.is_some_and(|known| known.removed.load(Ordering::Acquire)) {
            // A new connection would keep it open, or have it taken away amid its work. This may be the last owner, which
            // lets go of the device, and takes the lock for that.
            drop(devices);
            drop(events);
            return Err(removed());
        }
        if let Some(events) = events {
            return Ok(events);
        }
        // SAFETY: The device is open, and its descriptors do not change.
        let opened = unsafe {
            let context = context.as_ptr();
            Opened::of((*context).cmd_fd, (*context).async_fd)
        };
        if opened.as_ref().is_some_and(Opened::is_let_go) {
            return Err(removed());
        }
        let events = Arc::new(Self {
            libraries,
            context,
            removed: Arc::default(),
            state: Mutex::default(),
            opened,
        });
        let in_use = InUse {
            events: Arc::downgrade(&events),
            removed: Arc::clone(&events.removed),
        };
        all.insert(address, in_use);
        Self::watch(&events);
        Ok(events)
    }

    /// Looks whether the device is still there, until it is not, and lets go of it then.
    ///
    /// The connection manager may not say that the device was removed: the kernel takes a device from its parts in the
    /// reverse order of their loading, and where `ib_uverbs` came behind `rdma_cm`, it waits for programs before it tells
    /// the connection manager. Besides, nobody hears of it while there is no connection, and a listener on all addresses
    /// belongs to no device. The kernel shows the device no more as soon as it begins to take it from programs.
    fn watch(events: &Arc<Self>) {
        let Some(opened) = &events.opened else {
            return;
        };
        let entry = (events.libraries.device_entry)(opened.fd, opened.number);
        if !entry.exists() {
            return;
        }
        let name = device_name(events.libraries, events.context);
        let events = Arc::clone(events);
        let watching = thread::Builder::new()
            .name("rdma-device".into())
            .spawn(move || {
                while entry.exists() {
                    thread::sleep(LOOK);
                }
                tracing::warn!(device = name, "the RDMA device was removed");
                events.end();
            });
        if let Err(error) = watching {
            tracing::warn!(%error, "a device that is removed stays open");
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to keep the events of a queue pair, its completion queue and its port.
    pub(crate) fn attach(&self, queue_pair: NonNull<ibv_qp>, queue: NonNull<ibv_cq>, port: u8) {
        let address = queue_pair.as_ptr() as usize;
        let attached = Attached {
            completion_queue: queue.as_ptr() as usize,
            port,
            news: None,
            waker: None,
        };
        self.state().queue_pairs.insert(address, attached);
    }

    /// Ends that.
    pub(crate) fn detach(&self, queue_pair: NonNull<ibv_qp>) {
        let address = queue_pair.as_ptr() as usize;
        self.state().queue_pairs.remove(&address);
    }

    /// Ends all that uses the device.
    fn end(&self) {
        let mut state = self.state();
        self.removed.store(true, Ordering::Release);
        let all = state.queue_pairs.values_mut();
        let wakers: Vec<_> = all.filter_map(|attached| attached.waker.take()).collect();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Whether the device was removed.
    pub(crate) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    /// Waits until the device is removed. One task waits for each queue pair.
    pub(crate) fn poll_removal(
        &self,
        queue_pair: NonNull<ibv_qp>,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let mut state = self.state();
        if self.is_removed() {
            return Poll::Ready(());
        }
        let address = queue_pair.as_ptr() as usize;
        if let Some(attached) = state.queue_pairs.get_mut(&address) {
            match &mut attached.waker {
                Some(waker) => waker.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            }
        }
        Poll::Pending
    }

    /// A descriptor that is readable when there are events. Reading events does not wait from now on.
    pub(crate) fn descriptor(&self) -> io::Result<OwnedFd> {
        // SAFETY: The device is open, and with it the descriptor, which does not change.
        let fd = unsafe { BorrowedFd::borrow_raw((*self.context.as_ptr()).async_fd) };
        fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::NONBLOCK)?;
        Ok(fcntl_dupfd_cloexec(fd, 0)?)
    }

    /// Takes all events of the device, and gives what concerns this queue pair.
    pub(crate) fn take(&self, queue_pair: NonNull<ibv_qp>) -> Option<News> {
        let verbs = &self.libraries.verbs;
        let mut state = self.state();
        loop {
            // SAFETY: The structure has a pointer and a number, for which zero is valid.
            let mut event: ibv_async_event = unsafe { zeroed() };
            // SAFETY: The device is open, and the function writes one event to a valid place. It does not wait.
            let failed =
                unsafe { (verbs.ibv_get_async_event)(self.context.as_ptr(), &raw mut event) };
            if failed != 0 {
                break;
            }
            state.note(event.event_type, event.element as usize);
            // SAFETY: The event was just taken, and is acknowledged once. What it is about is only destroyed when it is.
            unsafe { (verbs.ibv_ack_async_event)(&raw mut event) };
        }
        if state.fatal || self.is_removed() {
            return Some(News::DeviceFailed);
        }
        let address = queue_pair.as_ptr() as usize;
        state.queue_pairs.get_mut(&address)?.news.take()
    }
}

impl State {
    /// Keeps an event for those whom it concerns. Which member of the union `element` is depends on the event: a pointer,
    /// or the number of a port.
    fn note(&mut self, event: c_int, element: usize) {
        let all = self.queue_pairs.values_mut();
        match event {
            IBV_EVENT_DEVICE_FATAL => self.fatal = true,
            IBV_EVENT_PORT_ERR => all
                .filter(|attached| usize::from(attached.port) == element)
                .for_each(|attached| {
                    attached.news.get_or_insert(News::PortDown);
                }),
            IBV_EVENT_CQ_ERR => all
                .filter(|attached| attached.completion_queue == element)
                .for_each(|attached| {
                    attached.news.get_or_insert(News::CompletionQueueFailed);
                }),
            // Events of queue pairs. Others are about a port that has its link, or about a table of addresses, which
            // changes nothing for what is connected.
            event => {
                if let Some(attached) = self.queue_pairs.get_mut(&element) {
                    attached.news = Some(News::QueuePair(event));
                }
            }
        }
    }
}

impl DeviceEvents {
    /// Lets go of a device that was removed. librdmacm has it open until the process ends, or until its last identifier
    /// is gone, and some drivers, of which those of the software devices are two, cannot take a device away from a
    /// process: its removal would wait.
    fn let_go(&self) {
        // One without a file is in a model of the libraries. What librdmacm has closed is no matter of ours: its context is
        // freed memory, and the numbers of its descriptors may be those of other files.
        let Some(opened) = self.opened.as_ref().filter(|_| self.is_removed()) else {
            return;
        };
        if !opened.is_open() {
            return;
        }
        let nothing =
            match rustix::fs::open(NOTHING_PATH, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
                Ok(nothing) => nothing,
                Err(error) => {
                    tracing::warn!(%error, "a removed device stays open");
                    return;
                }
            };
        // SAFETY: The device was open a moment ago, and nothing of this process works with it any more. Its descriptors
        // keep their numbers, so that the library closes what is its own; what it tries with them until then fails, as
        // with any removed device.
        unsafe {
            libc::dup3(nothing.as_raw_fd(), opened.fd, libc::O_CLOEXEC);
            libc::dup3(nothing.as_raw_fd(), opened.events, libc::O_CLOEXEC);
        }
    }
}

impl Drop for DeviceEvents {
    fn drop(&mut self) {
        let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        self.let_go();
        let all = devices.get_or_insert_default();
        let address = self.context.as_ptr() as usize;
        // Others may have begun to use it since, if it was not removed.
        if { all.get(&address) }.is_some_and(|in_use| ptr::eq(in_use.events.as_ptr(), self)) {
            all.remove(&address);
        }
    }
}
