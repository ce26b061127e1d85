//! librdmacm, as far as the initiator of connections uses it.

#![expect(
    unsafe_code,
    reason = "the callers of these functions pass pointers to objects that they were given"
)]

use super::{begin, destroy, make, set_errno, with};
use crate::library::Rdmacm;
use crate::sys::cm::{rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_channel};
use crate::sys::{ibv_context, ibv_pd, ibv_qp, ibv_qp_init_attr};
use libc::{c_int, c_void, sockaddr};
use std::mem::zeroed;
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
    event: c_int,
    status: c_int,
    private_data: Vec<u8>,
}

impl Answer {
    pub(crate) fn new(event: c_int) -> Self {
        Self {
            event,
            ..Self::default()
        }
    }

    pub(crate) fn with(event: c_int, status: c_int, private_data: &[u8]) -> Self {
        Self {
            event,
            status,
            private_data: private_data.to_vec(),
        }
    }
}

/// An event with what it points to.
#[repr(C)]
pub(super) struct Event {
    event: rdma_cm_event,
    private_data: Vec<u8>,
}

/// Lets an event follow a call with this identifier.
fn answer(id: *mut rdma_cm_id, answer: Answer) {
    // SAFETY: The structure has numbers and pointers, for which zero is valid.
    let mut event: rdma_cm_event = unsafe { zeroed() };
    (event.id, event.event, event.status) = (id, answer.event, answer.status);
    event.param.private_data = answer.private_data.as_ptr().cast();
    event.param.private_data_len = u8::try_from(answer.private_data.len()).unwrap_or(u8::MAX);
    (event.param.initiator_depth, event.param.responder_resources) = (16, 16);
    let event = Box::new(Event {
        event,
        private_data: answer.private_data,
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

/// Connections of others are not in the model.
fn no_listeners() -> c_int {
    set_errno(libc::ENOSYS);
    -1
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
    0
}

unsafe extern "C" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: The identifier is valid.
    let (channel, has_device) = unsafe { ((*id).channel, !(*id).verbs.is_null()) };
    with(|model| {
        if let Some(events) = model.cm_events.get_mut(&(channel as usize)) {
            events.retain(|event| event.event.id != id);
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

unsafe extern "C" fn rdma_bind_addr(_: *mut rdma_cm_id, _: *mut sockaddr) -> c_int {
    no_listeners()
}

unsafe extern "C" fn rdma_listen(_: *mut rdma_cm_id, _: c_int) -> c_int {
    no_listeners()
}

unsafe extern "C" fn rdma_accept(_: *mut rdma_cm_id, _: *mut rdma_conn_param) -> c_int {
    no_listeners()
}

unsafe extern "C" fn rdma_reject(_: *mut rdma_cm_id, _: *const c_void, _: u8) -> c_int {
    no_listeners()
}

unsafe extern "C" fn rdma_migrate_id(_: *mut rdma_cm_id, _: *mut rdma_event_channel) -> c_int {
    no_listeners()
}

unsafe extern "C" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    _: *mut sockaddr,
    _: *mut sockaddr,
    _: c_int,
) -> c_int {
    let begun = begin("rdma_resolve_addr");
    if begun.is_ok() {
        let (address, context) = with(|model| (model.address.clone(), model.context));
        if address.status == 0 {
            with(|model| model.users += 1);
            // SAFETY: The identifier is valid.
            unsafe { ((*id).verbs, (*id).port_num) = (context as *mut ibv_context, 1) };
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
    let queue = unsafe { (*attributes).send_cq } as usize;
    let needs = [id as usize, domain as usize, queue];
    let queue_pair: *mut ibv_qp = make("queue pair", &needs);
    with(|model| model.queues.insert(queue_pair as usize, queue));
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
    with(|model| {
        let gone = queue_pair as usize;
        model.outstanding.retain(|work| work.queue_pair != gone);
        model.stopped.remove(&gone);
        model.queues.remove(&gone);
    });
    destroy(queue_pair, "queue pair");
}

unsafe extern "C" fn rdma_connect(id: *mut rdma_cm_id, _: *mut rdma_conn_param) -> c_int {
    let begun = begin("rdma_connect");
    if begun.is_ok() {
        answer(id, with(|model| model.connection.clone()));
    }
    done(begun)
}

unsafe extern "C" fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: The identifier is valid.
    let queue_pair = unsafe { (*id).qp } as usize;
    with(|model| model.flush(queue_pair));
    0
}

unsafe extern "C" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    let taken = with(|model| {
        let waiting = model.cm_events.get_mut(&(channel as usize))?;
        let taken = waiting.pop_front()?;
        model.took(channel as usize);
        model.unacknowledged(taken.event.id as usize, 1);
        Some(taken)
    });
    let Some(taken) = taken else {
        set_errno(libc::EAGAIN);
        return -1;
    };
    // SAFETY: The caller gives a valid place. The structure begins with the event.
    unsafe { *event = Box::into_raw(taken).cast() };
    0
}

unsafe extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    // SAFETY: `rdma_get_cm_event` has given it, and it is acknowledged once.
    let event = unsafe { Box::from_raw(event.cast::<Event>()) };
    with(|model| model.unacknowledged(event.event.id as usize, -1));
    0
}
