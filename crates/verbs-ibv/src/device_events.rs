//! Asynchronous events of a device: queue pairs and completion queues that it stopped, ports that lost their link, and
//! its own end.
//!
//! A device has one queue of events for all that a process does with it. Whoever is woken takes them all and keeps those
//! of others for them.

#![expect(
    unsafe_code,
    reason = "events are structures of a library in C, about values that it knows by pointers"
)]

use crate::cm;
use crate::context::device_name;
use crate::library::Libraries;
use crate::sys::{
    IBV_EVENT_CQ_ERR, IBV_EVENT_DEVICE_FATAL, IBV_EVENT_PORT_ERR, ibv_async_event, ibv_context,
    ibv_cq, ibv_qp,
};
use libc::c_int;
use rustix::event::epoll;
use rustix::fs::{FileType, Mode, OFlags, fcntl_getfl, fcntl_setfl, makedev};
use rustix::io::fcntl_dupfd_cloexec;
use slab::Slab;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

/// How often it is looked whether a device is still there. The kernel waits as long when it is removed, and for the end of
/// the connections.
const LOOK: Duration = Duration::from_millis(250);

/// File in place of the descriptors of a removed device, and its number.
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
    queues: Mutex<Queues>,
    /// None if the descriptor is none of a device, as in a model of the libraries.
    opened: Option<Opened>,
}

/// The device's file, as it was opened.
struct Opened {
    fd: c_int,
    /// The descriptor of its events, which is closed with the file.
    events: c_int,
    number: u64,
    /// Watches the file of the events, for nothing: an entry is of a descriptor and the file that it was opened with, and
    /// goes with the file, so that it tells whether both are still those of the device.
    witness: OwnedFd,
}

impl Opened {
    /// None if the descriptor is none of a device.
    fn of(fd: c_int, events: c_int) -> io::Result<Option<Self>> {
        let Some(number) = device_number(fd) else {
            return Ok(None);
        };
        // It was let go, which librdmacm may not know yet.
        if number == makedev(NOTHING.0, NOTHING.1) {
            return Err(removed());
        }
        let witness = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        // SAFETY: It is borrowed for this call, which fails if the descriptor is closed.
        let file = unsafe { BorrowedFd::borrow_raw(events) };
        let nothing = epoll::EventFlags::empty();
        epoll::add(&witness, file, epoll::EventData::new_u64(0), nothing)?;
        Ok(Some(Self {
            fd,
            events,
            number,
            witness,
        }))
    }

    /// Whether the descriptors are still those of the device, and not of files that were opened later, be it the same
    /// device: librdmacm closes a device that is gone, or has come back, when it next looks for one.
    fn is_open(&self) -> bool {
        // SAFETY: It is borrowed for this call, which fails if the descriptor is closed.
        let file = unsafe { BorrowedFd::borrow_raw(self.events) };
        let nothing = epoll::EventFlags::empty();
        let known = epoll::modify(&self.witness, file, epoll::EventData::new_u64(0), nothing);
        known.is_ok() && device_number(self.fd) == Some(self.number)
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

/// Number of an entry that the kernel shows, in its file system. That of a device that was removed and has come back has the
/// old name and another number.
fn entry_number(entry: &Path) -> Option<u64> {
    Some(fs::symlink_metadata(entry).ok()?.ino())
}

/// The queue pairs whose events are kept.
type Queues = Slab<Attached>;

/// A queue pair whose events are kept.
struct Attached {
    /// Addresses of the queue pair and of its completion queue.
    queue_pair: usize,
    completion_queue: usize,
    port: u8,
    /// Events of the queue pair and of what it needs that were not told yet: a bit for the number of each.
    untold: u32,
    /// Task that waits for such an event, or for the end of the device.
    waker: Option<Waker>,
}

impl Attached {
    /// Whether an event concerns the queue pair. Which member of the union `element` is depends on the event: a pointer,
    /// or the number of a port.
    fn is_concerned(&self, event: c_int, element: usize) -> bool {
        match event {
            IBV_EVENT_DEVICE_FATAL => true,
            IBV_EVENT_PORT_ERR => usize::from(self.port) == element,
            IBV_EVENT_CQ_ERR => self.completion_queue == element,
            // Events of queue pairs. Others are about a port that has its link, or about a table of addresses, which
            // changes nothing for what is connected.
            _ => self.queue_pair == element,
        }
    }

    /// The next of what was not told yet: an end of the device first, which explains all else.
    fn tell(&mut self) -> Option<News> {
        if self.untold & bit(IBV_EVENT_DEVICE_FATAL) != 0 {
            self.untold = 0;
            return Some(News::DeviceFailed);
        }
        let event = c_int::try_from(self.untold.trailing_zeros()).ok()?;
        self.untold &= !bit(event);
        match event {
            // None is left.
            32 => None,
            IBV_EVENT_CQ_ERR => Some(News::CompletionQueueFailed),
            IBV_EVENT_PORT_ERR => Some(News::PortDown),
            event => Some(News::QueuePair(event)),
        }
    }
}

/// The bit of an event. Those with higher numbers, which libibverbs does not have, have none.
fn bit(event: c_int) -> u32 {
    let number = u32::try_from(event).ok();
    number.map_or(0, |number| 1_u32.checked_shl(number).unwrap_or(0))
}

// SAFETY: The verbs of libibverbs are thread-safe, and the state has a lock.
unsafe impl Send for DeviceEvents {}
// SAFETY: As above.
unsafe impl Sync for DeviceEvents {}

/// News of a device: about a queue pair, or of a need of its own.
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
        // Dropped behind the lock, which the last owner takes.
        let replaced;
        let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        let all = devices.get_or_insert_default();
        let address = context.as_ptr() as usize;
        // SAFETY: The device is open, and its descriptors do not change.
        let (fd, async_fd) = unsafe { ((*context.as_ptr()).cmd_fd, (*context.as_ptr()).async_fd) };
        let known = all.get(&address);
        let events = known.and_then(|known| known.events.upgrade());
        // Otherwise librdmacm has closed the known device, and opened another at its address.
        let is_known = events.as_ref().is_none_or(|events| events.is_of(fd));
        if is_known && known.is_some_and(|known| known.removed.load(Ordering::Acquire)) {
            // A new connection would keep it open, or have it taken away amid its work. This may be the last owner, which
            // lets go of the device, and takes the lock for that.
            drop(devices);
            drop(events);
            return Err(removed());
        }
        replaced = match events {
            Some(events) if is_known => return Ok(events),
            events => events,
        };
        let opened = Opened::of(fd, async_fd)?;
        // SAFETY: The device is open, and with it the descriptor.
        let descriptor = unsafe { BorrowedFd::borrow_raw(async_fd) };
        fcntl_setfl(descriptor, fcntl_getfl(descriptor)? | OFlags::NONBLOCK)?;
        let events = Arc::new(Self {
            libraries,
            context,
            removed: Arc::default(),
            queues: Mutex::default(),
            opened,
        });
        let in_use = InUse {
            events: Arc::downgrade(&events),
            removed: Arc::clone(&events.removed),
        };
        all.insert(address, in_use);
        Self::watch(&events);
        drop(devices);
        drop(replaced);
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
        let Some(number) = entry_number(&entry) else {
            return;
        };
        let name = device_name(events.libraries, events.context);
        let events = Arc::clone(events);
        let watching = thread::Builder::new()
            .name("rdma-device".into())
            .spawn(move || {
                while entry_number(&entry) == Some(number) {
                    thread::sleep(LOOK);
                }
                tracing::warn!(device = name, "the RDMA device was removed");
                events.end();
                drop_without_identifier(events);
            });
        if let Err(error) = watching {
            tracing::warn!(%error, "a device that is removed stays open");
        }
    }

    /// Whether the events are those of the device that has this descriptor now.
    fn is_of(&self, fd: c_int) -> bool {
        match &self.opened {
            Some(opened) => opened.fd == fd && opened.is_open(),
            None => device_number(fd).is_none(),
        }
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to keep the events of a queue pair, its completion queue and its port.
    pub(crate) fn attach(
        self: Arc<Self>,
        queue_pair: NonNull<ibv_qp>,
        queue: NonNull<ibv_cq>,
        port: u8,
    ) -> Attachment {
        let mut queues = self.queues();
        // What the device said before is not about this queue pair: it may have recovered since.
        let wakers = self.take_all(&mut queues);
        let key = queues.insert(Attached {
            queue_pair: queue_pair.as_ptr() as usize,
            completion_queue: queue.as_ptr() as usize,
            port,
            untold: 0,
            waker: None,
        });
        drop(queues);
        wakers.into_iter().for_each(Waker::wake);
        Attachment { events: self, key }
    }

    /// Ends all that uses the device.
    fn end(&self) {
        let mut queues = self.queues();
        self.removed.store(true, Ordering::Release);
        let all = queues.iter_mut();
        let wakers: Vec<_> = all
            .filter_map(|(_, attached)| attached.waker.take())
            .collect();
        drop(queues);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    /// Takes all events of the device, and keeps each for those whom it concerns, who are to be woken.
    fn take_all(&self, queues: &mut Queues) -> Vec<Waker> {
        let verbs = &self.libraries.verbs;
        let mut wakers = Vec::new();
        loop {
            // SAFETY: The structure has a pointer and a number, for which zero is valid.
            let mut event: ibv_async_event = unsafe { zeroed() };
            // SAFETY: The device is open, and the function writes one event to a valid place. It does not wait.
            let failed =
                unsafe { (verbs.ibv_get_async_event)(self.context.as_ptr(), &raw mut event) };
            if failed != 0 {
                return wakers;
            }
            let (number, element) = (event.event_type, event.element as usize);
            for (_, attached) in queues.iter_mut() {
                if attached.is_concerned(number, element) {
                    attached.untold |= bit(number);
                    wakers.extend(attached.waker.take());
                }
            }
            // SAFETY: The event was just taken, and is acknowledged once. What it is about is only destroyed when it is.
            unsafe { (verbs.ibv_ack_async_event)(&raw mut event) };
        }
    }
}

/// Whether the device at this address was removed, if it is in use.
#[cfg(test)]
pub(crate) fn is_removed(context: usize) -> Option<bool> {
    let devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    let in_use = devices.as_ref()?.get(&context)?;
    Some(in_use.removed.load(Ordering::Acquire))
}

/// Drops the events of a removed device where no identifier keeps librdmacm from closing it: the last owner lets go of it,
/// and does so between the calls of librdmacm, so that a descriptor is not closed, and used for another file, between
/// the look at it and its replacement. Calls of other code in the process are not known here.
fn drop_without_identifier(events: Arc<DeviceEvents>) {
    let Some(last) = Arc::into_inner(events) else {
        // Another owner is the last, who has an identifier of the device.
        return;
    };
    let between_calls = loop {
        match cm::between_calls() {
            Some(between_calls) => break between_calls,
            None => thread::sleep(LOOK),
        }
    };
    drop(last);
    drop(between_calls);
}

/// A queue pair whose events are kept, as long as this exists. It is told apart from others by this value, and not by its
/// address, which may be that of another queue pair as soon as it is destroyed.
pub(crate) struct Attachment {
    events: Arc<DeviceEvents>,
    key: usize,
}

impl Attachment {
    /// A descriptor that is readable when there are events. Reading them does not wait.
    pub(crate) fn descriptor(&self) -> io::Result<OwnedFd> {
        // SAFETY: The device is open, and with it the descriptor, which does not change.
        let fd = unsafe { BorrowedFd::borrow_raw((*self.events.context.as_ptr()).async_fd) };
        Ok(fcntl_dupfd_cloexec(fd, 0)?)
    }

    /// Whether the device was removed.
    pub(crate) fn is_removed(&self) -> bool {
        self.events.is_removed()
    }

    /// Waits until there is something to [take](Self::take), or the device is removed. One task waits for each queue pair.
    pub(crate) fn poll_news(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut queues = self.events.queues();
        let attached = &mut queues[self.key];
        if self.is_removed() || attached.untold != 0 {
            return Poll::Ready(());
        }
        match &mut attached.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Takes all events of the device, and tells those whom they concern.
    pub(crate) fn take_events(&self) {
        let wakers = self.events.take_all(&mut self.events.queues());
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The same, and gives the next event that concerns this queue pair.
    pub(crate) fn take(&self) -> Option<News> {
        self.take_events();
        self.events.queues()[self.key].tell()
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.events.queues().remove(self.key);
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
        // SAFETY: The device is open, and stays so until here: librdmacm does not close it as long as the last owner has an
        // identifier of it, and is not called where it has none. Nothing of this process works with the device any more.
        // Its descriptors keep their numbers, so that the library closes what is its own; what it tries with them until
        // then fails, as with any removed device.
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
        if { all.get(&address) }.is_some_and(|in_use| Arc::ptr_eq(&in_use.removed, &self.removed)) {
            all.remove(&address);
        }
    }
}
