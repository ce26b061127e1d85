//! libibverbs, and the calls of a driver.

#![expect(
    unsafe_code,
    reason = "the callers of these functions pass pointers to objects that they were given"
)]

use super::{
    Binding, Outstanding, PostedRequest, Registered, begin, destroy, make, set_errno, with,
};
use crate::library::Ibverbs;
use crate::sys::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_MW_BIND, IBV_ACCESS_REMOTE_WRITE, IBV_LINK_LAYER_INFINIBAND,
    IBV_NODE_CA, IBV_PORT_ACTIVE, IBV_PORT_DOWN, IBV_QP_STATE, IBV_QPS_ERR, IBV_SEND_INLINE,
    IBV_SEND_SIGNALED, IBV_WR_BIND_MW, IBV_WR_LOCAL_INV, ibv_async_event, ibv_bind,
    ibv_comp_channel, ibv_context, ibv_cq, ibv_device, ibv_device_attr, ibv_gid_entry, ibv_mr,
    ibv_mw, ibv_pd, ibv_port_attr, ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_recv_wr, ibv_send_wr,
    ibv_sge, ibv_wc,
};
use libc::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

pub(super) const TABLE: Ibverbs = Ibverbs {
    ibv_get_device_list,
    ibv_free_device_list,
    ibv_get_device_name,
    ibv_open_device,
    ibv_close_device,
    ibv_query_device,
    ibv_query_port,
    _ibv_query_gid_table,
    ibv_alloc_pd,
    ibv_dealloc_pd,
    ibv_reg_mr,
    ibv_dereg_mr,
    ibv_create_comp_channel,
    ibv_destroy_comp_channel,
    ibv_create_cq,
    ibv_destroy_cq,
    ibv_get_cq_event,
    ibv_ack_cq_events,
    ibv_modify_qp,
    ibv_query_qp,
    ibv_wc_status_str,
    ibv_get_async_event,
    ibv_ack_async_event,
};

/// Largest completion queue.
const MAX_COMPLETIONS: c_int = 1024;

/// The list of devices, with its end.
type List = [*mut ibv_device; 2];

/// Completes a new context.
pub(super) fn open(context: *mut ibv_context, device: *mut ibv_device) {
    let fd = with(|model| model.descriptor(context as usize));
    // SAFETY: Both were just made, or live as long as the model.
    unsafe {
        (*device).node_type = IBV_NODE_CA;
        (*context).device = device;
        (*context).cmd_fd = -1;
        (*context).async_fd = fd;
        let ops = &mut (*context).ops;
        ops.alloc_mw = Some(alloc_mw);
        ops.dealloc_mw = Some(dealloc_mw);
        ops.poll_cq = Some(poll_cq);
        ops.req_notify_cq = Some(req_notify_cq);
        ops.post_send = Some(post_send);
        ops.post_recv = Some(post_recv);
    }
}

unsafe extern "C" fn ibv_get_device_list(length: *mut c_int) -> *mut *mut ibv_device {
    if begin("ibv_get_device_list").is_err() {
        return null_mut();
    }
    let list: *mut List = make("list of devices", &[]);
    let (has_device, device) = with(|model| (model.has_device, model.device));
    // SAFETY: The list was just made, and the caller gives a valid place.
    unsafe {
        *length = c_int::from(has_device);
        if has_device {
            (*list)[0] = device as *mut ibv_device;
        }
    }
    list.cast()
}

unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    destroy(list.cast::<List>(), "list of devices");
}

unsafe extern "C" fn ibv_get_device_name(_: *mut ibv_device) -> *const c_char {
    c"fake0".as_ptr()
}

unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    if begin("ibv_open_device").is_err() {
        return null_mut();
    }
    let context = make("context", &[device as usize]);
    open(context, device);
    context
}

unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    destroy(context, "context")
}

unsafe extern "C" fn ibv_query_device(_: *mut ibv_context, to: *mut ibv_device_attr) -> c_int {
    if let Err(error) = begin("ibv_query_device") {
        return error;
    }
    let capabilities = with(|model| model.capabilities);
    // SAFETY: The caller gives a valid structure.
    let to = unsafe { &mut *to };
    to.device_cap_flags = capabilities;
    to.max_mr_size = 1 << 32;
    to.phys_port_cnt = 1;
    (to.max_qp, to.max_qp_wr, to.max_sge) = (64, 1024, 16);
    (to.max_cq, to.max_cqe) = (64, MAX_COMPLETIONS);
    (to.max_mr, to.max_mw, to.max_pd) = (1024, 1024, 64);
    (to.max_qp_rd_atom, to.max_qp_init_rd_atom) = (16, 16);
    0
}

unsafe extern "C" fn ibv_query_port(_: *mut ibv_context, _: u8, port: *mut ibv_port_attr) -> c_int {
    if let Err(error) = begin("ibv_query_port") {
        return error;
    }
    // SAFETY: The caller gives a valid structure.
    let port = unsafe { &mut *port };
    let is_active = with(|model| model.port_is_active);
    port.state = if is_active {
        IBV_PORT_ACTIVE
    } else {
        IBV_PORT_DOWN
    };
    (port.max_mtu, port.active_mtu) = (5, 5);
    port.max_msg_sz = 1 << 30;
    port.link_layer = IBV_LINK_LAYER_INFINIBAND;
    0
}

unsafe extern "C" fn _ibv_query_gid_table(
    _: *mut ibv_context,
    _: *mut ibv_gid_entry,
    _: usize,
    _: u32,
    _: usize,
) -> isize {
    0
}

unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    if begin("ibv_alloc_pd").is_err() {
        return null_mut();
    }
    let domain: *mut ibv_pd = make("protection domain", &[context as usize]);
    // SAFETY: It was just made.
    unsafe { (*domain).context = context };
    domain
}

unsafe extern "C" fn ibv_dealloc_pd(domain: *mut ibv_pd) -> c_int {
    destroy(domain, "protection domain")
}

unsafe extern "C" fn ibv_reg_mr(
    domain: *mut ibv_pd,
    start: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    if begin("ibv_reg_mr").is_err() {
        return null_mut();
    }
    let access = access.cast_unsigned();
    if access & IBV_ACCESS_REMOTE_WRITE != 0 && access & IBV_ACCESS_LOCAL_WRITE == 0 {
        set_errno(libc::EINVAL);
        return null_mut();
    }
    let region: *mut ibv_mr = make("memory region", &[domain as usize]);
    let start_of = start as u64;
    let key = with(|model| {
        model.keys += 1;
        let registered = Registered {
            start: start_of,
            length,
            access,
        };
        model.regions.insert(model.keys, registered);
        model.keys
    });
    // SAFETY: It was just made.
    let made = unsafe { &mut *region };
    (made.addr, made.length, made.pd) = (start, length, domain);
    (made.lkey, made.rkey) = (key, key);
    region
}

unsafe extern "C" fn ibv_dereg_mr(region: *mut ibv_mr) -> c_int {
    // As software RoCE and mlx4 do.
    if with(|model| model.has_windows(region as usize)) {
        return libc::EINVAL;
    }
    // SAFETY: The caller has it from `ibv_reg_mr`.
    let key = unsafe { (*region).lkey };
    with(|model| {
        if model
            .outstanding
            .iter()
            .any(|work| work.pieces.iter().any(|piece| piece.lkey == key))
        {
            model.violation("memory deregistered with work outstanding");
        }
        model.regions.remove(&key);
    });
    destroy(region, "memory region")
}

unsafe extern "C" fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    if begin("ibv_create_comp_channel").is_err() {
        return null_mut();
    }
    let channel: *mut ibv_comp_channel = make("completion channel", &[context as usize]);
    let fd = with(|model| model.descriptor(channel as usize));
    // SAFETY: It was just made.
    unsafe { (*channel).fd = fd };
    channel
}

unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    destroy(channel, "completion channel")
}

unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    entries: c_int,
    _: *mut c_void,
    channel: *mut ibv_comp_channel,
    _: c_int,
) -> *mut ibv_cq {
    if begin("ibv_create_cq").is_err() {
        return null_mut();
    }
    if entries > MAX_COMPLETIONS {
        set_errno(libc::EINVAL);
        return null_mut();
    }
    let queue: *mut ibv_cq = make("completion queue", &[channel as usize, context as usize]);
    // SAFETY: It was just made.
    unsafe { (*queue).context = context };
    with(|model| model.channels.insert(queue as usize, channel as usize));
    queue
}

unsafe extern "C" fn ibv_destroy_cq(queue: *mut ibv_cq) -> c_int {
    with(|model| {
        model.completions.remove(&(queue as usize));
        model.armed.remove(&(queue as usize));
        let notified = model.notifications.values_mut();
        notified.for_each(|queues| queues.retain(|of| *of != queue as usize));
    });
    destroy(queue, "completion queue")
}

unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    queue: *mut *mut ibv_cq,
    _: *mut *mut c_void,
) -> c_int {
    let taken = with(|model| {
        let waiting = model.notifications.get_mut(&(channel as usize))?;
        let taken = waiting.pop_front()?;
        model.took(channel as usize);
        model.unacknowledged(taken, 1);
        Some(taken)
    });
    let Some(taken) = taken else {
        set_errno(libc::EAGAIN);
        return -1;
    };
    // SAFETY: The caller gives a valid place.
    unsafe { *queue = taken as *mut ibv_cq };
    0
}

unsafe extern "C" fn ibv_ack_cq_events(queue: *mut ibv_cq, count: c_uint) {
    with(|model| {
        for _ in 0..count {
            model.unacknowledged(queue as usize, -1);
        }
    });
}

unsafe extern "C" fn ibv_modify_qp(
    queue_pair: *mut ibv_qp,
    attributes: *mut ibv_qp_attr,
    which: c_int,
) -> c_int {
    // SAFETY: The caller gives a valid structure.
    let state = unsafe { (*attributes).qp_state };
    if which == IBV_QP_STATE && state == IBV_QPS_ERR {
        with(|model| {
            model.abort(queue_pair as usize);
            model.flush(queue_pair as usize);
        });
    }
    0
}

unsafe extern "C" fn ibv_query_qp(
    queue_pair: *mut ibv_qp,
    attributes: *mut ibv_qp_attr,
    _: c_int,
    _: *mut ibv_qp_init_attr,
) -> c_int {
    let failed = with(|model| model.stopped.contains(&(queue_pair as usize)));
    // SAFETY: The caller gives a valid structure.
    unsafe { (*attributes).qp_state = if failed { IBV_QPS_ERR } else { 0 } };
    0
}

unsafe extern "C" fn ibv_wc_status_str(_: c_int) -> *const c_char {
    c"a status".as_ptr()
}

unsafe extern "C" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    let taken = with(|model| {
        let taken = model.device_events.pop_front()?;
        model.took(context as usize);
        model.unacknowledged(context as usize, 1);
        Some(taken)
    });
    let Some((event_type, element)) = taken else {
        set_errno(libc::EAGAIN);
        return -1;
    };
    // SAFETY: The caller gives a valid place.
    unsafe { ((*event).event_type, (*event).element) = (event_type, element as *mut c_void) };
    0
}

unsafe extern "C" fn ibv_ack_async_event(_: *mut ibv_async_event) {
    with(|model| model.unacknowledged(model.context, -1));
}

unsafe extern "C" fn alloc_mw(domain: *mut ibv_pd, _: c_int) -> *mut ibv_mw {
    if begin("ibv_alloc_mw").is_err() {
        return null_mut();
    }
    let window: *mut ibv_mw = make("memory window", &[domain as usize]);
    let key = with(|model| {
        model.keys += 1;
        model.keys
    });
    // SAFETY: It was just made.
    unsafe { (*window).rkey = key << 8 };
    window
}

unsafe extern "C" fn dealloc_mw(window: *mut ibv_mw) -> c_int {
    with(|model| model.bound.remove(&(window as usize)));
    destroy(window, "memory window")
}

unsafe extern "C" fn poll_cq(queue: *mut ibv_cq, most: c_int, room: *mut ibv_wc) -> c_int {
    let mut found = 0;
    while found < most {
        let waiting = |model: &mut super::Model| {
            let waiting = model.completions.get_mut(&(queue as usize))?;
            waiting.pop_front()
        };
        let Some(completion) = with(waiting) else {
            break;
        };
        // SAFETY: The caller has room for `most` completions.
        unsafe { *room.offset(found as isize) = completion };
        found += 1;
    }
    found
}

unsafe extern "C" fn req_notify_cq(queue: *mut ibv_cq, _: c_int) -> c_int {
    if let Err(error) = begin("ibv_req_notify_cq") {
        return error;
    }
    with(|model| {
        for message in std::mem::take(&mut model.before_arming) {
            model.complete_receive(&message, ibv_wc::default());
        }
        model.armed.insert(queue as usize);
    });
    0
}

/// Keeps a work request until it completes.
fn post(work: Outstanding) {
    with(|model| {
        work.pieces
            .iter()
            .for_each(|piece| model.check_piece(piece));
        model.outstanding.push(work);
    });
}

/// The pieces of a work request.
///
/// # Safety
///
/// There are as many.
unsafe fn pieces(first: *mut ibv_sge, number: c_int) -> Vec<ibv_sge> {
    let number = usize::try_from(number).unwrap_or(0);
    // SAFETY: The caller says so.
    (0..number).map(|at| unsafe { *first.add(at) }).collect()
}

/// Binds a window of type 2, as a work request says. What a device refuses is a violation.
///
/// # Safety
///
/// Window and region exist.
unsafe fn bind(queue_pair: usize, request: &ibv_bind) {
    let (window, region) = (request.mw, request.bind_info.mr);
    // SAFETY: The caller says so.
    let (last_key, region_key) = unsafe { ((*window).rkey, (*region).lkey) };
    let access = request.bind_info.mw_access_flags;
    with(|model| {
        let registered = model.regions.get(&region_key);
        let rights = registered.map_or(0, |registered| registered.access);
        let writes_only_remotely =
            access & IBV_ACCESS_REMOTE_WRITE != 0 && rights & IBV_ACCESS_LOCAL_WRITE == 0;
        if rights & IBV_ACCESS_MW_BIND == 0 || writes_only_remotely {
            model.violation("a window bound to a region that does not permit it");
        }
        if request.rkey & 0xff == last_key & 0xff {
            model.violation("a window bound with the key that it had");
        }
        let binding = Binding {
            queue_pair,
            region: region as usize,
            key: request.rkey,
        };
        if model.bound.insert(window as usize, binding).is_some() {
            model.violation("a window bound that is bound");
        }
    });
}

/// The bytes of inline data that are sent: those of the first piece, by irdma of rdma-core 32 to 43.
///
/// # Safety
///
/// They are there.
unsafe fn first_of(pieces: &[ibv_sge]) -> Vec<u8> {
    let Some(piece) = pieces.first() else {
        return Vec::new();
    };
    // SAFETY: The caller says so.
    unsafe { std::slice::from_raw_parts(piece.addr as *const u8, piece.length as usize) }.to_vec()
}

unsafe extern "C" fn post_send(
    queue_pair: *mut ibv_qp,
    mut work: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    if let Err(error) = begin("ibv_post_send") {
        // SAFETY: The caller gives a valid place.
        unsafe { *bad = work };
        return error;
    }
    let mut chain = Vec::new();
    while !work.is_null() {
        // SAFETY: The caller gives a list of valid requests.
        let (request, mut pieces) = unsafe { (&*work, pieces((*work).sg_list, (*work).num_sge)) };
        chain.push(PostedRequest {
            opcode: request.opcode,
            flags: request.send_flags,
            pieces: pieces.len(),
        });
        if request.opcode == IBV_WR_BIND_MW {
            // SAFETY: The caller gives a window and a region that exist.
            unsafe { bind(queue_pair as usize, &request.bind_mw) };
        }
        if request.send_flags & IBV_SEND_INLINE != 0 {
            let length: u32 = pieces.iter().map(|piece| piece.length).sum();
            if length > with(|model| model.max_inline) {
                // SAFETY: The caller gives a valid place.
                unsafe { *bad = work };
                return libc::EINVAL;
            }
            // SAFETY: The caller has as many bytes there.
            with(|model| model.inline.push(unsafe { first_of(&pieces) }));
            pieces.clear();
        }
        post(Outstanding {
            queue_pair: queue_pair as usize,
            wr: request.wr_id,
            is_receive: false,
            is_signalled: request.send_flags & IBV_SEND_SIGNALED != 0,
            invalidates: (request.opcode == IBV_WR_LOCAL_INV).then_some(request.invalidate_rkey),
            pieces,
        });
        work = request.next;
    }
    with(|model| model.chains.push(chain));
    0
}

unsafe extern "C" fn post_recv(
    queue_pair: *mut ibv_qp,
    mut work: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    if let Err(error) = begin("ibv_post_recv") {
        // SAFETY: The caller gives a valid place.
        unsafe { *bad = work };
        return error;
    }
    while !work.is_null() {
        // SAFETY: The caller gives a list of valid requests.
        let (request, pieces) = unsafe { (&*work, pieces((*work).sg_list, (*work).num_sge)) };
        post(Outstanding {
            queue_pair: queue_pair as usize,
            wr: request.wr_id,
            is_receive: true,
            is_signalled: true,
            invalidates: None,
            pieces,
        });
        work = request.next;
    }
    0
}
