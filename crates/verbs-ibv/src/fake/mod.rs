//! A model of libibverbs and librdmacm, for tests of what a device does not do when it is asked to.
//!
//! The model has one InfiniBand device. A test is its peer and its hardware: it lets connection requests, messages and
//! completions come, or stay away. Each thread has a model of its own, so that tests run beside each other. It
//! checks that objects are destroyed in order, that events are acknowledged, and that memory stays registered while
//! work with it is outstanding. It refuses what drivers refuse, and does what drivers do wrong. When a [`Fake`] is
//! dropped, all objects must be gone.

#![expect(
    unsafe_code,
    reason = "functions with the interface of a library in C take and give pointers"
)]

mod cm;
#[cfg(test)]
mod completions;
#[cfg(test)]
mod device_file;
#[cfg(test)]
mod events;
#[cfg(test)]
mod exhausted;
#[cfg(test)]
mod exposed;
#[cfg(test)]
mod iwarp;
#[cfg(test)]
mod listeners;
#[cfg(test)]
mod posts;
#[cfg(test)]
mod scene;
#[cfg(test)]
mod setup;
mod verbs;

pub(crate) use cm::Answer;

use crate::library::Libraries;
use crate::sys::cm::{
    RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_ROUTE_RESOLVED,
};
use crate::sys::{
    IBV_DEVICE_MEM_MGT_EXTENSIONS, IBV_DEVICE_MEM_WINDOW_TYPE_2B, IBV_NODE_RNIC,
    IBV_TRANSPORT_IWARP, IBV_WC_SUCCESS, IBV_WC_WITH_INV, IBV_WC_WR_FLUSH_ERR, ibv_context,
    ibv_device, ibv_qp, ibv_sge, ibv_wc,
};
use buffer::Pool;
use libc::{c_int, c_uint};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::mem::zeroed;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

/// Nothing that is waited for in real time takes as long.
const PATIENCE: Duration = Duration::from_secs(30);

thread_local! {
    static MODEL: RefCell<Model> = RefCell::default();
}

/// The table of functions of the model.
static LIBRARIES: Libraries = Libraries {
    verbs: verbs::TABLE,
    cm: cm::TABLE,
    device_entry,
};

/// A file for each device of a model, in place of what the kernel shows: it goes when the device does.
fn device_entry(fd: c_int, _: u64) -> PathBuf {
    std::env::temp_dir().join(format!("verbs-ibv-{}-{fd}", std::process::id()))
}

/// An object of the libraries that exists.
struct Object {
    kind: &'static str,
    /// Addresses of the objects that must be destroyed behind it.
    needs: Vec<usize>,
    /// Events about it that were taken and not acknowledged.
    unacknowledged: u32,
}

/// Action in a call of a function.
struct Hook {
    function: &'static str,
    what: Box<dyn FnOnce()>,
}

/// A work request, as it was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PostedRequest {
    pub(crate) opcode: c_int,
    pub(crate) flags: c_uint,
    pub(crate) pieces: usize,
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
    is_receive: bool,
    is_signalled: bool,
    /// Key of the window that it closes.
    invalidates: Option<u32>,
    /// The memory, but for what was copied into the work request.
    pieces: Vec<ibv_sge>,
}

/// Memory that is registered.
#[derive(Clone, Copy)]
struct Registered {
    start: u64,
    length: usize,
    access: c_uint,
}

/// A window that is bound.
struct Binding {
    queue_pair: usize,
    region: usize,
    key: u32,
}

/// State of the model. All addresses are those of objects that were given to the caller.
#[derive(Default)]
struct Model {
    objects: HashMap<usize, Object>,
    /// Rules that the caller broke.
    violations: Vec<String>,
    calls: usize,
    failure: Option<(Failure, c_int)>,
    /// Functions that failed as they were told to.
    failed: Vec<&'static str>,
    device: usize,
    context: usize,
    /// Device file that the context has open.
    device_file: Option<OwnedFd>,
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
    /// Completions that were not taken, by the address of the completion queue.
    completions: HashMap<usize, VecDeque<ibv_wc>>,
    /// A queue pair that stops gives nothing back.
    keeps_work: bool,
    /// A pool whose memory is counted when a queue pair is destroyed.
    pool: Option<Pool>,
    lent_at_the_end: Vec<usize>,
    /// Messages that arrive just before a completion queue is armed.
    before_arming: VecDeque<Vec<u8>>,
    /// Chains of the send queues, in the order of posting.
    chains: Vec<Vec<PostedRequest>>,
    /// Data that was copied into work requests.
    inline: Vec<Vec<u8>>,
    regions: HashMap<u32, Registered>,
    /// Windows that are bound, by their addresses.
    bound: HashMap<usize, Binding>,
    /// Bytes that a queue pair takes inline.
    max_inline: u32,
    port_is_active: bool,
    /// Identifiers that exist, in the order in which they were made.
    identifiers: Vec<usize>,
    listeners: HashMap<usize, cm::Listening>,
    acceptance: Answer,
    /// Private data of rejections.
    rejections: Vec<Vec<u8>>,
    /// Parameters of connection requests and acceptances.
    parameters: Vec<cm::Sent>,
    /// Channels of completion queues, and completion queues of queue pairs.
    channels: HashMap<usize, usize>,
    queues: HashMap<usize, usize>,
    armed: HashSet<usize>,
    /// Queue pairs in the error state.
    stopped: HashSet<usize>,
    /// The memory of a queue pair that was destroyed, which the next one gets.
    freed_queue_pair: usize,
    is_iwarp: bool,
    /// Queue pairs whose TCP connection is closed, and those whose was reset.
    closed: HashSet<usize>,
    reset: HashSet<usize>,
    /// Action in the next call of a function.
    hook: Option<Hook>,
    /// Identifiers with a device.
    users: usize,
    /// Completion queues with a notification, by the address of the channel.
    notifications: HashMap<usize, VecDeque<usize>>,
    /// Events of the device, with what they are about.
    device_events: VecDeque<(c_int, usize)>,
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

/// Lets happen what a test wants to happen in a call.
fn run_hook(function: &'static str) {
    let hook = with(|model| model.hook.take_if(|hook| hook.function == function));
    if let Some(hook) = hook {
        (hook.what)();
    }
}

/// Makes an object of numbers, pointers and functions that may be null, all of which are zero.
fn make<T>(kind: &'static str, needs: &[usize]) -> *mut T {
    // SAFETY: The callers use it for structures of `sys` only, for whose fields zero is valid.
    let object: *mut T = Box::into_raw(Box::new(unsafe { zeroed() }));
    enter(object, kind, needs);
    object
}

/// Makes a queue pair: where one was that is destroyed, as an allocator may do.
fn make_queue_pair(needs: &[usize]) -> *mut ibv_qp {
    let freed = with(|model| std::mem::take(&mut model.freed_queue_pair)) as *mut ibv_qp;
    if freed.is_null() {
        return make("queue pair", needs);
    }
    // SAFETY: The memory is that of a queue pair, and nobody else has it. Zero is valid for its fields.
    unsafe { freed.write(zeroed()) };
    enter(freed, "queue pair", needs);
    freed
}

/// Enters an object that was made.
fn enter<T>(object: *mut T, kind: &'static str, needs: &[usize]) {
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
}

/// Destroys an object that [`make`] has made. One that does not exist, or is in use, is left alone.
fn destroy<T>(object: *mut T, kind: &'static str) -> c_int {
    if !leave(object as usize, kind) {
        return libc::EBUSY;
    }
    // SAFETY: `make` has made it with this type, as its kind says, and it was in the table until now.
    drop(unsafe { Box::from_raw(object) });
    0
}

/// Destroys a queue pair, whose memory the next one gets.
fn destroy_queue_pair(queue_pair: *mut ibv_qp) {
    if leave(queue_pair as usize, "queue pair") {
        with(|model| {
            let before = std::mem::replace(&mut model.freed_queue_pair, queue_pair as usize);
            free_queue_pair(before);
        });
    }
}

fn free_queue_pair(freed: usize) {
    if freed != 0 {
        // SAFETY: `make` has made it, and it is in no table any more.
        drop(unsafe { Box::from_raw(freed as *mut ibv_qp) });
    }
}

/// Takes an object out of the table. Says whether that is allowed.
fn leave(address: usize, kind: &'static str) -> bool {
    with(|model| {
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
    })
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
        if self.keeps_work {
            return;
        }
        let all = std::mem::take(&mut self.outstanding);
        let of_this = |work: &Outstanding| work.queue_pair == queue_pair;
        let (flushed, others): (Vec<_>, _) = all.into_iter().partition(of_this);
        self.outstanding = others;
        for work in flushed {
            let completion = ibv_wc {
                wr_id: work.wr,
                status: IBV_WC_WR_FLUSH_ERR,
                ..ibv_wc::default()
            };
            self.completed(queue, completion);
        }
    }

    /// Enters a completion, and notifies of it if that was asked for.
    fn completed(&mut self, queue: usize, completion: ibv_wc) {
        let completions = self.completions.entry(queue).or_default();
        completions.push_back(completion);
        if self.armed.remove(&queue) {
            self.notify(queue);
        }
    }

    fn notify(&mut self, queue: usize) {
        let channel = self.channels[&queue];
        let notifications = self.notifications.entry(channel).or_default();
        notifications.push_back(queue);
        self.wake(channel);
    }

    /// The queue pair of the test, with its completion queue.
    fn only_queue_pair(&self) -> (usize, usize) {
        let mut all = self.queues.iter();
        match (all.next(), all.next()) {
            (Some((queue_pair, queue)), None) => (*queue_pair, *queue),
            _ => panic!("{} queue pairs", self.queues.len()),
        }
    }

    /// Completes the oldest Receive, with this in its memory and the rest of the completion.
    fn complete_receive(&mut self, message: &[u8], completion: ibv_wc) {
        let (queue_pair, queue) = self.only_queue_pair();
        let of_this = |work: &Outstanding| work.queue_pair == queue_pair && work.is_receive;
        let at = self.outstanding.iter().position(of_this);
        let work = self.outstanding.remove(at.expect("a Receive is posted"));
        if let Some(piece) = work.pieces.first() {
            self.check_piece(piece);
            let fits = message.len().min(piece.length as usize);
            // SAFETY: The piece is registered memory that nobody looks at until the completion, and is as long.
            unsafe {
                std::ptr::copy_nonoverlapping(message.as_ptr(), piece.addr as *mut u8, fits);
            }
        }
        if completion.status == IBV_WC_SUCCESS && completion.wc_flags & IBV_WC_WITH_INV != 0 {
            self.unbind(completion.invalidated_rkey);
        }
        let byte_len = u32::try_from(message.len()).expect("a short message");
        let wr_id = work.wr;
        let completion = ibv_wc {
            wr_id,
            byte_len,
            ..completion
        };
        self.completed(queue, completion);
    }

    /// Completes the oldest work of the send queue whose completion is asked for, and with it all before it; a failure
    /// is reported in any case.
    fn complete_send(&mut self, status: c_int) {
        let (queue_pair, queue) = self.only_queue_pair();
        loop {
            let of_this = |work: &Outstanding| work.queue_pair == queue_pair && !work.is_receive;
            let at = self.outstanding.iter().position(of_this);
            let work = self.outstanding.remove(at.expect("work is posted"));
            work.pieces.iter().for_each(|piece| self.check_piece(piece));
            if let Some(key) = work.invalidates
                && status == IBV_WC_SUCCESS
            {
                self.unbind(key);
            }
            if work.is_signalled || status != IBV_WC_SUCCESS {
                let wr_id = work.wr;
                let completion = ibv_wc {
                    wr_id,
                    status,
                    ..ibv_wc::default()
                };
                return self.completed(queue, completion);
            }
        }
    }

    fn posted_receives(&self, queue_pair: usize) -> usize {
        let all = self.outstanding.iter();
        let of_this = all.filter(|work| work.is_receive && work.queue_pair == queue_pair);
        of_this.count()
    }

    /// Memory of work that the device has is registered.
    fn check_piece(&mut self, piece: &ibv_sge) {
        let end = piece.addr + u64::from(piece.length);
        let known = self.regions.get(&piece.lkey);
        if !known.is_some_and(|region| {
            piece.addr >= region.start && end <= region.start + region.length as u64
        }) {
            self.violation("work with memory that is not registered");
        }
    }

    /// A window is invalidated, by this end or by the peer.
    fn unbind(&mut self, key: u32) {
        self.bound.retain(|_, bound| bound.key != key);
    }

    /// Whether windows are bound to this region.
    fn has_windows(&self, region: usize) -> bool {
        self.bound.values().any(|bound| bound.region == region)
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
                acceptance: Answer::new(RDMA_CM_EVENT_ESTABLISHED),
                max_inline: 1024,
                port_is_active: true,
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

    /// The device has windows of type 2, and no peer can invalidate them.
    pub(crate) fn without_extensions(&self) {
        with(|model| model.capabilities &= !IBV_DEVICE_MEM_MGT_EXTENSIONS);
    }

    /// The device is an iWARP card, which resets the TCP connection of a queue pair that is told to fail.
    pub(crate) fn be_iwarp(&self) {
        with(|model| {
            model.is_iwarp = true;
            // SAFETY: The device lives as long as the model.
            let device = unsafe { &mut *(model.device as *mut ibv_device) };
            (device.node_type, device.transport_type) = (IBV_NODE_RNIC, IBV_TRANSPORT_IWARP);
        });
    }

    /// Connections of the iWARP card that were reset.
    pub(crate) fn resets(&self) -> usize {
        with(|model| model.reset.len())
    }

    /// This happens in the next call of `rdma_destroy_qp`, when the queue pair is gone, or of `rdma_destroy_id`, while the
    /// identifier is there.
    pub(crate) fn during(&self, function: &'static str, what: impl FnOnce() + 'static) {
        let what = Box::new(what);
        with(|model| model.hook = Some(Hook { function, what }));
    }

    /// The call of this number, from 1, fails.
    pub(crate) fn fail_nth(&self, number: usize, error: c_int) {
        with(|model| model.failure = Some((Failure::Nth(number), error)));
    }

    /// The call of this number from now on, from 1, fails.
    pub(crate) fn fail_next(&self, number: usize, error: c_int) {
        with(|model| {
            let number = model.calls + number;
            model.failure = Some((Failure::Nth(number), error));
        });
    }

    /// Nothing fails from now on.
    pub(crate) fn heal(&self) {
        with(|model| model.failure = None);
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

    /// Event that follows when a connection request is accepted.
    pub(crate) fn answer_acceptance(&self, answer: Answer) {
        with(|model| model.acceptance = answer);
    }

    /// The device has an event, which is about itself.
    pub(crate) fn device_event(&self, event: c_int) {
        self.event_about(event, 0);
    }

    /// The device has an event about the queue pair.
    pub(crate) fn queue_pair_event(&self, event: c_int) {
        self.event_about(event, with(|model| model.only_queue_pair().0));
    }

    /// The device has an event about the completion queue.
    pub(crate) fn completion_queue_event(&self, event: c_int) {
        self.event_about(event, with(|model| model.only_queue_pair().1));
    }

    /// The device has an event about a port, whose state is this from now on.
    pub(crate) fn port_event(&self, event: c_int, port: usize, is_active: bool) {
        with(|model| model.port_is_active = is_active);
        self.event_about(event, port);
    }

    fn event_about(&self, event: c_int, element: usize) {
        with(|model| {
            model.device_events.push_back((event, element));
            model.wake(model.context);
        });
    }

    /// A queue pair that stops gives no work back from now on.
    pub(crate) fn keep_work(&self) {
        with(|model| model.keeps_work = true);
    }

    /// Counts the bytes of this pool that are lent whenever a queue pair is destroyed.
    pub(crate) fn watch(&self, pool: &Pool) {
        with(|model| model.pool = Some(pool.clone()));
    }

    pub(crate) fn lent_at_the_end(&self) -> Vec<usize> {
        with(|model| model.lent_at_the_end.clone())
    }

    /// Bytes that a queue pair takes inline.
    pub(crate) fn take_inline(&self, most: u32) {
        with(|model| model.max_inline = most);
    }

    /// A message arrives.
    pub(crate) fn message(&self, message: &[u8]) {
        with(|model| model.complete_receive(message, ibv_wc::default()));
    }

    /// A Receive completes with this status, flags and handle.
    pub(crate) fn complete_receive(&self, message: &[u8], completion: ibv_wc) {
        with(|model| model.complete_receive(message, completion));
    }

    /// A message arrives between the last look at the completion queue and its arming.
    pub(crate) fn message_before_arming(&self, message: &[u8]) {
        with(|model| model.before_arming.push_back(message.to_vec()));
    }

    /// The completion queue notifies, and has nothing.
    pub(crate) fn notify_of_nothing(&self) {
        with(|model| {
            let (_, queue) = model.only_queue_pair();
            assert!(model.armed.remove(&queue), "nobody waits");
            model.notify(queue);
        });
    }

    /// The oldest signalled work of the send queue completes. After a failure the queue pair is in the error state.
    pub(crate) fn complete_send(&self, status: c_int) {
        with(|model| {
            model.complete_send(status);
            if status != IBV_WC_SUCCESS {
                model.flush(model.only_queue_pair().0);
            }
        });
    }

    /// The queue pair enters the error state, without a word about why.
    pub(crate) fn stop_queue_pair(&self) {
        with(|model| model.flush(model.only_queue_pair().0));
    }

    /// Work requests that the send queue was given, by chain.
    pub(crate) fn chains(&self) -> Vec<Vec<PostedRequest>> {
        with(|model| model.chains.clone())
    }

    /// Data that was copied into work requests, as the device sends it.
    pub(crate) fn inline_data(&self) -> Vec<Vec<u8>> {
        with(|model| model.inline.clone())
    }

    /// Objects of a kind that exist.
    pub(crate) fn objects(&self, kind: &str) -> usize {
        with(|model| {
            let all = model.objects.values();
            all.filter(|object| object.kind == kind).count()
        })
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let (device, context) = with(|model| (model.device, model.context));
        destroy(context as *mut ibv_context, "context of librdmacm");
        destroy(device as *mut ibv_device, "device");
        let model = MODEL.take();
        free_queue_pair(model.freed_queue_pair);
        if let Some(file) = &model.device_file {
            // It is there if the device is.
            let _ = std::fs::remove_file(device_entry(file.as_raw_fd(), 0));
        }
        if std::thread::panicking() {
            return;
        }
        let left: Vec<_> = model.objects.values().map(|object| object.kind).collect();
        assert_eq!(left, [""; 0], "left behind");
        assert_eq!(model.violations, [""; 0]);
    }
}
