//! librdmacm: identifiers, listeners and their events.

#![expect(
    unsafe_code,
    reason = "the callers of these functions pass pointers to objects that they were given"
)]

use super::{
    Fake, Model, Outstanding, begin, destroy, destroy_queue_pair, make, make_queue_pair, run_hook,
    set_errno, with,
};
use crate::address::{from_storage, to_storage};
use crate::library::Rdmacm;
use crate::sys::cm::{
    RDMA_CM_EVENT_ADDR_CHANGE, RDMA_CM_EVENT_ADDR_ERROR, RDMA_CM_EVENT_ADDR_RESOLVED,
    RDMA_CM_EVENT_DEVICE_REMOVAL, RDMA_CM_EVENT_DISCONNECTED, rdma_cm_event, rdma_cm_id,
    rdma_conn_param, rdma_event_channel,
};
use crate::sys::{ibv_context, ibv_pd, ibv_qp_init_attr};
use libc::{c_int, c_void, sockaddr, sockaddr_storage};
use std::mem::zeroed;
use std::net::SocketAddr;
use std::ptr::null_mut;

pub(super) const TABLE: Rdmacm = Rdmacm {
    rdma_create_event_channel,
    rdma_destroy_event_channel,
    rdma_create_id,
    rdma_destroy_id,
    rdma_bind_addr,
    rdma_resolve_addr,
    rdma_resolve_route,
    rdma_create_qp,
    rdma_destroy_qp,
    rdma_connect,
    rdma_listen,
    rdma_accept,
    rdma_reject,
    rdma_disconnect,
    rdma_migrate_id,
    rdma_get_cm_event,
    rdma_ack_cm_event,
};

/// The event that follows a call.
#[derive(Clone, Default)]
pub(crate) struct Answer {
    /// None for a peer that is silent.
    event: Option<c_int>,
    status: c_int,
    private_data: Vec<u8>,
    /// Reads that the peer serves, and those that it wants to have outstanding.
    depths: (u8, u8),
}

impl Answer {
    pub(crate) fn new(event: c_int) -> Self {
        Self::with(event, 0, &[])
    }

    pub(crate) fn with(event: c_int, status: c_int, private_data: &[u8]) -> Self {
        Self {
            event: Some(event),
            status,
            private_data: private_data.to_vec(),
            depths: (16, 16),
        }
    }

    pub(crate) fn with_depths(mut self, served: u8, wanted: u8) -> Self {
        self.depths = (served, wanted);
        self
    }

    /// Nothing follows.
    pub(crate) fn silence() -> Self {
        Self::default()
    }
}

/// Parameters that this end sent with a connection request, or with its acceptance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) private_data: Vec<u8>,
    pub(crate) inbound_reads: u8,
    pub(crate) outstanding_reads: u8,
    pub(crate) retries: u8,
    pub(crate) rnr_retries: u8,
    /// Receives that were posted before.
    pub(crate) receives: usize,
}

/// An identifier that listens.
pub(super) struct Listening {
    backlog: usize,
    /// Requests that nobody has taken.
    waiting: usize,
    /// Its address is that of another device now: no requests come.
    has_moved: bool,
}

/// An event with what it points to.
#[repr(C)]
pub(super) struct Event {
    event: rdma_cm_event,
    private_data: Vec<u8>,
    /// Address of the peer that wants to connect.
    peer: Option<SocketAddr>,
}

impl Event {
    /// The identifier that waits for its acknowledgement: a listener for requests.
    fn about(&self) -> usize {
        if self.event.listen_id.is_null() {
            self.event.id as usize
        } else {
            self.event.listen_id as usize
        }
    }
}

/// Lets an event follow a call with this identifier.
fn answer(id: *mut rdma_cm_id, answer: Answer) {
    let Some(number) = answer.event else {
        return;
    };
    // SAFETY: The structure has numbers and pointers, for which zero is valid.
    let mut event: rdma_cm_event = unsafe { zeroed() };
    (event.id, event.event, event.status) = (id, number, answer.status);
    event.param.private_data = answer.private_data.as_ptr().cast();
    event.param.private_data_len = u8::try_from(answer.private_data.len()).unwrap_or(u8::MAX);
    (event.param.initiator_depth, event.param.responder_resources) = answer.depths;
    let event = Box::new(Event {
        event,
        private_data: answer.private_data,
        peer: None,
    });
    // SAFETY: The identifier is valid.
    let channel = unsafe { (*id).channel } as usize;
    with(|model| {
        model.cm_events.entry(channel).or_default().push_back(event);
        model.wake(channel);
    });
}

/// The result of a call that gives -1 and sets the error number.
fn done(result: Result<(), c_int>) -> c_int {
    if result.is_ok() { 0 } else { -1 }
}

/// Tells all identifiers with a device that it is gone.
pub(super) fn removal() {
    for id in with(|model| model.identifiers.clone()) {
        let id = id as *mut rdma_cm_id;
        // SAFETY: The identifier exists.
        if !unsafe { (*id).verbs }.is_null() {
            answer(id, Answer::new(RDMA_CM_EVENT_DEVICE_REMOVAL));
        }
    }
}

impl Fake {
    /// A peer wants to connect to the listener of the test: one at this address, or one of InfiniBand without IP. Says
    /// whether the request is kept.
    pub(crate) fn request(&self, peer: Option<SocketAddr>, request: Answer) -> bool {
        let (listener, is_full) = with(|model| {
            let mut all = model.listeners.iter_mut();
            let asked = all.find(|(_, listening)| !listening.has_moved);
            let (listener, listening) = asked.expect("somebody listens");
            let is_full = listening.waiting >= listening.backlog;
            listening.waiting += usize::from(!is_full);
            (*listener, is_full)
        });
        if is_full {
            return false;
        }
        let listener = listener as *mut rdma_cm_id;
        answer(listener, request);
        // SAFETY: The listener exists.
        let channel = unsafe { (*listener).channel } as usize;
        with(|model| {
            let events = model.cm_events.get_mut(&channel).expect("its channel");
            let event = events.back_mut().expect("it was just entered");
            event.event.listen_id = listener;
            event.event.id = null_mut();
            event.peer = peer;
        });
        true
    }

    /// An event of the connection of the test.
    pub(crate) fn connection_event(&self, event: c_int) {
        let identifiers = with(|model| model.identifiers.clone());
        let ids = identifiers.iter().map(|id| *id as *mut rdma_cm_id);
        // SAFETY: The identifiers exist.
        let mut connected = ids.filter(|id| unsafe { !(**id).qp.is_null() });
        let id = connected.next().expect("a connection");
        if event == RDMA_CM_EVENT_DISCONNECTED {
            // SAFETY: As above.
            with(|model| model.closed.insert(unsafe { (*id).qp } as usize));
        }
        answer(id, Answer::new(event));
    }

    /// The address of the listener becomes that of another device.
    pub(crate) fn move_listener(&self) {
        let listener = with(|model| {
            let mut all = model.listeners.iter_mut();
            let (listener, listening) = all.next().expect("somebody listens");
            listening.has_moved = true;
            *listener
        });
        answer(
            listener as *mut rdma_cm_id,
            Answer::new(RDMA_CM_EVENT_ADDR_CHANGE),
        );
    }

    /// Private data of the requests that were rejected.
    pub(crate) fn rejections(&self) -> Vec<Vec<u8>> {
        with(|model| model.rejections.clone())
    }

    /// Parameters that this end sent with connection requests and acceptances.
    pub(crate) fn sent(&self) -> Vec<Sent> {
        with(|model| model.parameters.clone())
    }
}

/// Gives an identifier the device.
fn attach(id: *mut rdma_cm_id) {
    let context = with(|model| {
        model.users += 1;
        model.context
    });
    // SAFETY: The identifier is valid.
    unsafe { ((*id).verbs, (*id).port_num) = (context as *mut ibv_context, 1) };
}

/// An identifier of a request that somebody takes.
fn requested(listener: *mut rdma_cm_id, peer: Option<SocketAddr>) -> *mut rdma_cm_id {
    // SAFETY: The listener exists.
    let (channel, local) = unsafe { ((*listener).channel, (*listener).route.addr.src_storage) };
    let id: *mut rdma_cm_id = make("identifier", &[channel as usize]);
    with(|model| {
        model.identifiers.push(id as usize);
        if let Some(listening) = model.listeners.get_mut(&(listener as usize)) {
            listening.waiting -= 1;
        }
    });
    // SAFETY: It was just made.
    unsafe {
        (*id).channel = channel;
        // A listener on all addresses is asked at one of them.
        (*id).route.addr.src_storage = match from_storage(&local) {
            Some(all) if all.ip().is_unspecified() => {
                to_storage(SocketAddr::from(([192, 0, 2, 2], all.port())))
            }
            _ => local,
        };
        if let Some(peer) = peer {
            (*id).route.addr.dst_storage = to_storage(peer);
        }
    }
    attach(id);
    id
}

/// Notes what a request or an acceptance has in it.
///
/// # Safety
///
/// There is as much private data.
unsafe fn note(id: *const rdma_cm_id, parameters: *const rdma_conn_param) {
    // SAFETY: The identifier is valid.
    let queue_pair = unsafe { (*id).qp } as usize;
    // SAFETY: The caller says so.
    let (parameters, private_data) = unsafe {
        let length = (*parameters).private_data_len.into();
        let bytes = std::slice::from_raw_parts((*parameters).private_data.cast::<u8>(), length);
        (*parameters, bytes.to_vec())
    };
    let sent = Sent {
        private_data,
        inbound_reads: parameters.responder_resources,
        outstanding_reads: parameters.initiator_depth,
        retries: parameters.retry_count,
        rnr_retries: parameters.rnr_retry_count,
        receives: with(|model| model.posted_receives(queue_pair)),
    };
    with(|model| model.parameters.push(sent));
}

unsafe extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    if begin("rdma_create_event_channel").is_err() {
        return null_mut();
    }
    let channel: *mut rdma_event_channel = make("event channel", &[]);
    let fd = with(|model| model.descriptor(channel as usize));
    // SAFETY: It was just made.
    unsafe { (*channel).fd = fd };
    channel
}

unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    with(|model| model.cm_events.remove(&(channel as usize)));
    destroy(channel, "event channel");
}

unsafe extern "C" fn rdma_create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    _: *mut c_void,
    _: c_int,
) -> c_int {
    if begin("rdma_create_id").is_err() {
        return -1;
    }
    let made: *mut rdma_cm_id = make("identifier", &[channel as usize]);
    // SAFETY: It was just made, and the caller gives a valid place.
    unsafe {
        (*made).channel = channel;
        *id = made;
    }
    with(|model| model.identifiers.push(made as usize));
    0
}

unsafe extern "C" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    run_hook("rdma_destroy_id");
    // SAFETY: The identifier is valid.
    let (channel, has_device) = unsafe { ((*id).channel, !(*id).verbs.is_null()) };
    with(|model| {
        model.identifiers.retain(|of| *of != id as usize);
        model.listeners.remove(&(id as usize));
        if let Some(events) = model.cm_events.get_mut(&(channel as usize)) {
            events.retain(|event| event.event.id != id && event.event.listen_id != id);
        }
        // librdmacm closes a device at the last identifier, for all that its users know.
        model.users -= usize::from(has_device);
        let (users, context) = (model.users, model.context);
        let mut objects = model.objects.values();
        if users == 0 && objects.any(|object| object.needs.contains(&context)) {
            model.violation("the last identifier destroyed before what was made of its device");
        }
    });
    destroy(id, "identifier")
}

unsafe extern "C" fn rdma_bind_addr(id: *mut rdma_cm_id, on: *mut sockaddr) -> c_int {
    let begun = begin("rdma_bind_addr");
    if begun.is_ok() {
        if !with(|model| model.has_device) {
            set_errno(libc::ENODEV);
            return -1;
        }
        // SAFETY: The caller has an address in the storage for any, and the identifier is valid.
        let on = unsafe {
            (*id).route.addr.src_storage = *on.cast::<sockaddr_storage>();
            from_storage(&(*id).route.addr.src_storage)
        };
        if !on.is_some_and(|on| on.ip().is_unspecified()) {
            attach(id);
        }
    }
    done(begun)
}

unsafe extern "C" fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    let begun = begin("rdma_listen");
    if begun.is_ok() {
        let listening = Listening {
            backlog: usize::try_from(backlog).unwrap_or(0),
            waiting: 0,
            has_moved: false,
        };
        with(|model| model.listeners.insert(id as usize, listening));
    }
    done(begun)
}

unsafe extern "C" fn rdma_accept(id: *mut rdma_cm_id, parameters: *mut rdma_conn_param) -> c_int {
    let begun = begin("rdma_accept");
    if begun.is_ok() {
        // SAFETY: The caller gives valid parameters.
        unsafe { note(id, parameters) };
        answer(id, with(|model| model.acceptance.clone()));
    }
    done(begun)
}

unsafe extern "C" fn rdma_reject(_: *mut rdma_cm_id, data: *const c_void, length: u8) -> c_int {
    let begun = begin("rdma_reject");
    if begun.is_ok() {
        // SAFETY: The caller has as many bytes.
        let data = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length.into()) };
        with(|model| model.rejections.push(data.to_vec()));
    }
    done(begun)
}

unsafe extern "C" fn rdma_migrate_id(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> c_int {
    let begun = begin("rdma_migrate_id");
    if begun.is_ok() {
        with(|model| {
            let object = model.objects.get_mut(&(id as usize));
            object.expect("it exists").needs = vec![channel as usize];
        });
        // SAFETY: The identifier is valid.
        unsafe { (*id).channel = channel };
    }
    done(begun)
}

unsafe extern "C" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    _: *mut sockaddr,
    _: *mut sockaddr,
    _: c_int,
) -> c_int {
    let begun = begin("rdma_resolve_addr");
    if begun.is_ok() {
        let address = match with(|model| (model.has_device, model.address.clone())) {
            (true, address) => address,
            (false, _) => Answer::with(RDMA_CM_EVENT_ADDR_ERROR, -libc::ENODEV, &[]),
        };
        if address.event == Some(RDMA_CM_EVENT_ADDR_RESOLVED) {
            attach(id);
        }
        answer(id, address);
    }
    done(begun)
}

unsafe extern "C" fn rdma_resolve_route(id: *mut rdma_cm_id, _: c_int) -> c_int {
    let begun = begin("rdma_resolve_route");
    if begun.is_ok() {
        answer(id, with(|model| model.route.clone()));
    }
    done(begun)
}

unsafe extern "C" fn rdma_create_qp(
    id: *mut rdma_cm_id,
    domain: *mut ibv_pd,
    attributes: *mut ibv_qp_init_attr,
) -> c_int {
    if begin("rdma_create_qp").is_err() {
        return -1;
    }
    // SAFETY: The caller gives a valid structure.
    let (queue, inline) = unsafe {
        (
            (*attributes).send_cq as usize,
            (*attributes).cap.max_inline_data,
        )
    };
    if inline > with(|model| model.max_inline) {
        set_errno(libc::EINVAL);
        return -1;
    }
    let needs = [id as usize, domain as usize, queue];
    let queue_pair = make_queue_pair(&needs);
    with(|model| {
        model.closed.remove(&(queue_pair as usize));
        model.queues.insert(queue_pair as usize, queue);
    });
    // SAFETY: It was just made, and the identifier is valid.
    unsafe {
        (*queue_pair).context = (*id).verbs;
        (*id).qp = queue_pair;
    }
    0
}

unsafe extern "C" fn rdma_destroy_qp(id: *mut rdma_cm_id) {
    // SAFETY: The identifier is valid.
    let queue_pair = unsafe { std::mem::replace(&mut (*id).qp, null_mut()) };
    // It may return memory of others, whose regions are those of this model.
    let lent = with(|model| model.pool.clone()).map(|pool| pool.stats().out);
    with(|model| {
        let gone = queue_pair as usize;
        model.abort(gone);
        if model.bound.values().any(|bound| bound.queue_pair == gone) {
            model.violation("queue pair destroyed before windows, for which software RoCE waits");
        }
        let of_this = |work: &&Outstanding| work.queue_pair == gone;
        let pieces = model.outstanding.iter().filter(of_this);
        let pieces: Vec<_> = pieces.flat_map(|work| work.pieces.clone()).collect();
        pieces.iter().for_each(|piece| model.check_piece(piece));
        model.lent_at_the_end.extend(lent);
        model.outstanding.retain(|work| work.queue_pair != gone);
        model.stopped.remove(&gone);
        model.queues.remove(&gone);
    });
    destroy_queue_pair(queue_pair);
    run_hook("rdma_destroy_qp");
}

unsafe extern "C" fn rdma_connect(id: *mut rdma_cm_id, parameters: *mut rdma_conn_param) -> c_int {
    let begun = begin("rdma_connect");
    if begun.is_ok() {
        // SAFETY: The caller gives valid parameters.
        unsafe { note(id, parameters) };
        answer(id, with(|model| model.connection.clone()));
    }
    done(begun)
}

unsafe extern "C" fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: The identifier is valid.
    let queue_pair = unsafe { (*id).qp } as usize;
    done(with(|model| {
        if !model.is_iwarp {
            model.flush(queue_pair);
        } else if model.stopped.contains(&queue_pair) || model.closed.contains(&queue_pair) {
            return Err(libc::EINVAL);
        }
        Ok(())
    }))
}

impl Model {
    /// A queue pair fails, or is destroyed: an iWARP card resets its connection, if that is not closed.
    pub(super) fn abort(&mut self, queue_pair: usize) {
        if self.is_iwarp && !self.closed.contains(&queue_pair) {
            self.reset.insert(queue_pair);
        }
    }
}

unsafe extern "C" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    let taken = with(|model| {
        let waiting = model.cm_events.get_mut(&(channel as usize))?;
        let taken = waiting.pop_front()?;
        model.took(channel as usize);
        model.unacknowledged(taken.about(), 1);
        Some(taken)
    });
    let Some(mut taken) = taken else {
        set_errno(libc::EAGAIN);
        return -1;
    };
    if !taken.event.listen_id.is_null() {
        taken.event.id = requested(taken.event.listen_id, taken.peer);
    }
    // SAFETY: The caller gives a valid place. The structure begins with the event.
    unsafe { *event = Box::into_raw(taken).cast() };
    0
}

unsafe extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    // SAFETY: `rdma_get_cm_event` has given it, and it is acknowledged once.
    let event = unsafe { Box::from_raw(event.cast::<Event>()) };
    with(|model| model.unacknowledged(event.about(), -1));
    0
}
