//! Bindings to librdmacm.

use super::{ibv_context, ibv_qp};
use libc::{c_int, c_void, sockaddr_storage};

pub(crate) const RDMA_PS_TCP: c_int = 0x0106;

pub(crate) const RDMA_CM_EVENT_ADDR_RESOLVED: c_int = 0;
pub(crate) const RDMA_CM_EVENT_ADDR_ERROR: c_int = 1;
pub(crate) const RDMA_CM_EVENT_ROUTE_RESOLVED: c_int = 2;
pub(crate) const RDMA_CM_EVENT_ROUTE_ERROR: c_int = 3;
pub(crate) const RDMA_CM_EVENT_CONNECT_REQUEST: c_int = 4;
pub(crate) const RDMA_CM_EVENT_CONNECT_ERROR: c_int = 6;
pub(crate) const RDMA_CM_EVENT_UNREACHABLE: c_int = 7;
pub(crate) const RDMA_CM_EVENT_REJECTED: c_int = 8;
pub(crate) const RDMA_CM_EVENT_ESTABLISHED: c_int = 9;
pub(crate) const RDMA_CM_EVENT_DISCONNECTED: c_int = 10;
pub(crate) const RDMA_CM_EVENT_DEVICE_REMOVAL: c_int = 11;
pub(crate) const RDMA_CM_EVENT_ADDR_CHANGE: c_int = 14;

#[repr(C)]
pub(crate) struct rdma_event_channel {
    pub(crate) fd: c_int,
}

#[repr(C)]
pub(crate) struct rdma_addr {
    pub(crate) src_storage: sockaddr_storage,
    pub(crate) dst_storage: sockaddr_storage,
    _ibaddr: [u64; 5],
}

#[repr(C)]
pub(crate) struct rdma_route {
    pub(crate) addr: rdma_addr,
    path_rec: *mut c_void,
    num_paths: c_int,
}

#[repr(C)]
pub(crate) struct rdma_cm_id {
    pub(crate) verbs: *mut ibv_context,
    pub(crate) channel: *mut rdma_event_channel,
    pub(crate) context: *mut c_void,
    pub(crate) qp: *mut ibv_qp,
    pub(crate) route: rdma_route,
    ps: c_int,
    pub(crate) port_num: u8,
    event: *mut rdma_cm_event,
    send_cq_channel: *mut c_void,
    send_cq: *mut c_void,
    recv_cq_channel: *mut c_void,
    recv_cq: *mut c_void,
    srq: *mut c_void,
    pd: *mut c_void,
    qp_type: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct rdma_conn_param {
    pub(crate) private_data: *const c_void,
    pub(crate) private_data_len: u8,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) flow_control: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    pub(crate) srq: u8,
    pub(crate) qp_num: u32,
}

#[repr(C)]
pub(crate) struct rdma_cm_event {
    pub(crate) id: *mut rdma_cm_id,
    pub(crate) listen_id: *mut rdma_cm_id,
    pub(crate) event: c_int,
    pub(crate) status: c_int,
    /// In a union with the parameters of datagrams, which are larger.
    pub(crate) param: rdma_conn_param,
    _rest: [u64; 4],
}
