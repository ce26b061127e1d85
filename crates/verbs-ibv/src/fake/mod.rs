//! A model of libibverbs and librdmacm, for tests of what a device does not do when it is asked to.
//!
//! The model has one InfiniBand device. Each thread has a model of its own, so that tests run beside each other. It
//! checks that objects are destroyed in order, that events are acknowledged, and that memory stays registered while
//! work with it is outstanding. When a [`Fake`] is dropped, all objects must be gone.

#![expect(
    unsafe_code,
    reason = "functions with the interface of a library in C take and give pointers"
)]

mod cm;
#[cfg(test)]
mod setup;
mod verbs;

pub(crate) use cm::Answer;

use crate::library::Libraries;
use crate::sys::cm::{
    RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_ROUTE_RESOLVED,
};
use crate::sys::{
    IBV_DEVICE_MEM_MGT_EXTENSIONS, IBV_DEVICE_MEM_WINDOW_TYPE_2B, ibv_context, ibv_device,
};
use libc::c_int;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::mem::zeroed;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

thread_local! {
    static MODEL: RefCell<Model> = RefCell::default();
}

/// The table of functions of the model.
static LIBRARIES: Libraries = Libraries {
    verbs: verbs::TABLE,
    cm: cm::TABLE,
};

/// An object of the libraries that exists.
struct Object {
    kind: &'static str,
    /// Addresses of the objects that must be destroyed behind it.
    needs: Vec<usize>,
    /// Events about it that were taken and not acknowledged.
    unacknowledged: u32,
}

/// A call that is to fail.
#[derive(Clone, Copy)]
enum Failure {
    /// The call of this number, from 1.
    Nth(usize),
    /// Each call of this function.
    Function(&'static str),
}

/// Work that a queue pair has.
struct Outstanding {
    queue_pair: usize,
    wr: u64,
    /// Keys of the memory.
    keys: Vec<u32>,
}

/// What the model knows. All addresses are those of objects that were given to the caller.
#[derive(Default)]
struct Model {
    objects: HashMap<usize, Object>,
    /// What the caller did wrong.
    violations: Vec<String>,
    calls: usize,
    failure: Option<(Failure, c_int)>,
    /// Functions that failed as they were told to.
    failed: Vec<&'static str>,
    device: usize,
    context: usize,
    has_device: bool,
    capabilities: u32,
    address: Answer,
    route: Answer,
    connection: Answer,
    /// Descriptors of channels and devices, by their addresses.
    descriptors: HashMap<usize, OwnedFd>,
    /// Events of the connection manager, by the address of their channel.
    cm_events: HashMap<usize, VecDeque<Box<cm::Event>>>,
    outstanding: Vec<Outstanding>,
    /// Identifiers of work that was flushed, by the address of the completion queue.
    completions: HashMap<usize, VecDeque<u64>>,
    /// Channels of completion queues, and completion queues of queue pairs.
    channels: HashMap<usize, usize>,
    queues: HashMap<usize, usize>,
    armed: HashSet<usize>,
    /// Queue pairs in the error state.
    stopped: HashSet<usize>,
    /// Identifiers with a device.
    users: usize,
    /// Completion queues with a notification, by the address of the channel.
    notifications: HashMap<usize, VecDeque<usize>>,
    device_events: VecDeque<c_int>,
    keys: u32,
}

fn with<T>(change: impl FnOnce(&mut Model) -> T) -> T {
    MODEL.with_borrow_mut(change)
}

/// Sets the error number of the thread.
fn set_errno(error: c_int) {
    // SAFETY: The place is the thread's own.
    unsafe { *libc::__errno_location() = error };
}

/// Counts a call. Gives the error number, which is also set, if it is to fail.
fn begin(function: &'static str) -> Result<(), c_int> {
    let failed = with(|model| {
        model.calls += 1;
        let (failure, error) = model.failure?;
        let now = match failure {
            Failure::Nth(number) => number == model.calls,
            Failure::Function(name) => name == function,
        };
        now.then(|| {
            model.failed.push(function);
            error
        })
    });
    match failed {
        None => Ok(()),
        Some(error) => {
            set_errno(error);
            Err(error)
        }
    }
}

/// Makes an object of numbers, pointers and functions that may be null, all of which are zero.
fn make<T>(kind: &'static str, needs: &[usize]) -> *mut T {
    // SAFETY: The callers use it for structures of `sys` only, for whose fields zero is valid.
    let object: *mut T = Box::into_raw(Box::new(unsafe { zeroed() }));
    with(|model| {
        for needed in needs {
            if !model.objects.contains_key(needed) {
                model.violations.push(format!("{kind} made of nothing"));
            }
        }
        let needs = needs.to_vec();
        let made = Object {
            kind,
            needs,
            unacknowledged: 0,
        };
        model.objects.insert(object as usize, made);
    });
    object
}

/// Destroys an object that [`make`] has made. One that does not exist, or is in use, is left alone.
fn destroy<T>(object: *mut T, kind: &'static str) -> c_int {
    let address = object as usize;
    let allowed = with(|model| {
        let found = model.objects.get(&address).map(|object| object.kind);
        if found != Some(kind) {
            let text = format!("{kind} destroyed that does not exist");
            model.violations.push(text);
            return false;
        }
        let mut users = model.objects.values();
        if let Some(user) = users.find(|user| user.needs.contains(&address)) {
            let text = format!("{kind} destroyed in use by {}", user.kind);
            model.violations.push(text);
            return false;
        }
        if model.objects[&address].unacknowledged > 0 {
            let text = format!("{kind} destroyed with events that are not acknowledged");
            model.violations.push(text);
            return false;
        }
        model.objects.remove(&address);
        model.descriptors.remove(&address);
        true
    });
    if !allowed {
        return libc::EBUSY;
    }
    // SAFETY: `make` has made it with this type, as its kind says, and it was in the table until now.
    drop(unsafe { Box::from_raw(object) });
    0
}

impl Model {
    /// A descriptor for an object, which counts its events.
    fn descriptor(&mut self, object: usize) -> c_int {
        // SAFETY: The call has no pointers; the descriptor is new and owned by nobody.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_SEMAPHORE) };
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        // SAFETY: As above.
        let owned = unsafe { OwnedFd::from_raw_fd(fd) };
        self.descriptors.insert(object, owned);
        fd
    }

    /// There is one event more for an object with a descriptor.
    fn wake(&self, object: usize) {
        let fd = self.descriptors[&object].as_raw_fd();
        // SAFETY: The descriptor is open, and eight octets are read from a value of that size.
        unsafe { libc::eventfd_write(fd, 1) };
    }

    /// One event was taken.
    fn took(&self, object: usize) {
        let fd = self.descriptors[&object].as_raw_fd();
        let mut count = 0;
        // SAFETY: The descriptor is open, and the number is written to a valid place.
        unsafe { libc::eventfd_read(fd, &raw mut count) };
    }

    fn unacknowledged(&mut self, object: usize, change: i32) {
        let known = self.objects.get_mut(&object);
        let count = known.and_then(|object| {
            object.unacknowledged = object.unacknowledged.checked_add_signed(change)?;
            Some(())
        });
        if count.is_none() {
            let text = "an event was acknowledged that nobody has taken";
            self.violations.push(text.into());
        }
    }

    /// A queue pair stops: all that it has completes.
    fn flush(&mut self, queue_pair: usize) {
        let Some(queue) = self.queues.get(&queue_pair).copied() else {
            return;
        };
        self.stopped.insert(queue_pair);
        let all = std::mem::take(&mut self.outstanding);
        let of_this = |work: &Outstanding| work.queue_pair == queue_pair;
        let (flushed, others): (Vec<_>, _) = all.into_iter().partition(of_this);
        self.outstanding = others;
        let completions = self.completions.entry(queue).or_default();
        completions.extend(flushed.iter().map(|work| work.wr));
        if !completions.is_empty() && self.armed.remove(&queue) {
            let channel = self.channels[&queue];
            self.notifications
                .entry(channel)
                .or_default()
                .push_back(queue);
            self.wake(channel);
        }
    }

    fn violation(&mut self, text: &str) {
        self.violations.push(text.into());
    }
}

/// The model of this thread, from its beginning to the check that nothing is left.
pub(crate) struct Fake(());

impl Fake {
    /// A device with windows of type 2, and a peer that accepts connections.
    pub(crate) fn new() -> Self {
        with(|model| {
            *model = Model {
                has_device: true,
                capabilities: IBV_DEVICE_MEM_MGT_EXTENSIONS | IBV_DEVICE_MEM_WINDOW_TYPE_2B,
                address: Answer::new(RDMA_CM_EVENT_ADDR_RESOLVED),
                route: Answer::new(RDMA_CM_EVENT_ROUTE_RESOLVED),
                connection: Answer::new(RDMA_CM_EVENT_ESTABLISHED),
                ..Model::default()
            };
        });
        // Neither is the caller's: a device is there, and librdmacm keeps it open.
        let device: *mut ibv_device = make("device", &[]);
        let context: *mut ibv_context = make("context of librdmacm", &[]);
        verbs::open(context, device);
        with(|model| {
            model.device = device as usize;
            model.context = context as usize;
        });
        Self(())
    }

    pub(crate) fn libraries(&self) -> &'static Libraries {
        &LIBRARIES
    }

    pub(crate) fn without_device(&self) {
        with(|model| model.has_device = false);
    }

    pub(crate) fn without_windows(&self) {
        with(|model| model.capabilities = 0);
    }

    /// The call of this number, from 1, fails.
    pub(crate) fn fail_nth(&self, number: usize, error: c_int) {
        with(|model| model.failure = Some((Failure::Nth(number), error)));
    }

    /// All calls of a function fail.
    pub(crate) fn fail(&self, function: &'static str, error: c_int) {
        with(|model| model.failure = Some((Failure::Function(function), error)));
    }

    /// Functions that failed as they were told to.
    pub(crate) fn failed(&self) -> Vec<&'static str> {
        with(|model| model.failed.clone())
    }

    pub(crate) fn answer_address(&self, answer: Answer) {
        with(|model| model.address = answer);
    }

    pub(crate) fn answer_route(&self, answer: Answer) {
        with(|model| model.route = answer);
    }

    pub(crate) fn answer_connection(&self, answer: Answer) {
        with(|model| model.connection = answer);
    }

    /// The device has an event, which is about itself.
    pub(crate) fn device_event(&self, event: c_int) {
        with(|model| {
            model.device_events.push_back(event);
            model.wake(model.context);
        });
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let (device, context) = with(|model| (model.device, model.context));
        destroy(context as *mut ibv_context, "context of librdmacm");
        destroy(device as *mut ibv_device, "device");
        let model = MODEL.take();
        if std::thread::panicking() {
            return;
        }
        let left: Vec<_> = model.objects.values().map(|object| object.kind).collect();
        assert_eq!(left, [""; 0], "left behind");
        assert_eq!(model.violations, [""; 0]);
    }
}
