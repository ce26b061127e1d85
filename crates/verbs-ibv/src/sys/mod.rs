//! Bindings to libibverbs and librdmacm, as far as this crate uses them.
//!
//! The structures and constants are those of `infiniband/verbs.h` and `rdma/rdma_cma.h` of rdma-core 44, whose
//! interface is stable since version 1.1 of both libraries. They were written by hand; `layout.rs` holds the sizes and
//! offsets that a C compiler finds in the headers, checked when this crate is compiled. `cargo xtask ibv-layout`
//! compares those, and the constants, with the headers that are installed.
//!
//! Structures that the libraries allocate and that end in locks ([`ibv_context`], for example) are declared
//! up to the last field that is used here. They are only used behind pointers.
//!
//! The headers carry this notice. Of the two licences, the second (BSD, in its MIT variant) applies here:
//!
//! ```text
//! Copyright (c) 2004, 2005 Topspin Communications.  All rights reserved.
//! Copyright (c) 2004, 2011-2012 Intel Corporation.  All rights reserved.
//! Copyright (c) 2005, 2006, 2007 Cisco Systems, Inc.  All rights reserved.
//! Copyright (c) 2005 PathScale, Inc.  All rights reserved.
//! Copyright (c) 2020 Intel Corporation.  All rights reserved.
//! Copyright (c) 2005 Voltaire Inc.  All rights reserved.
//! Copyright (c) 2005-2014 Intel Corporation.  All rights reserved.
//!
//! This software is available to you under a choice of one of two
//! licenses.  You may choose to be licensed under the terms of the GNU
//! General Public License (GPL) Version 2, available from the file
//! COPYING in the main directory of this source tree, or the
//! OpenIB.org BSD license below:
//!
//!     Redistribution and use in source and binary forms, with or
//!     without modification, are permitted provided that the following
//!     conditions are met:
//!
//!      - Redistributions of source code must retain the above
//!        copyright notice, this list of conditions and the following
//!        disclaimer.
//!
//!      - Redistributions in binary form must reproduce the above
//!        copyright notice, this list of conditions and the following
//!        disclaimer in the documentation and/or other materials
//!        provided with the distribution.
//!
//! THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND,
//! EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF
//! MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
//! NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS
//! BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN
//! ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN
//! CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
//! SOFTWARE.
//! ```

mod layout;

use libc::{c_char, c_int, c_uint, c_void};

pub(crate) const IBV_NODE_CA: c_int = 1;
pub(crate) const IBV_NODE_SWITCH: c_int = 2;
pub(crate) const IBV_NODE_ROUTER: c_int = 3;
pub(crate) const IBV_NODE_RNIC: c_int = 4;
pub(crate) const IBV_TRANSPORT_IB: c_int = 0;
pub(crate) const IBV_TRANSPORT_IWARP: c_int = 1;

pub(crate) const IBV_DEVICE_MEM_WINDOW: c_uint = 1 << 17;
pub(crate) const IBV_DEVICE_MEM_MGT_EXTENSIONS: c_uint = 1 << 21;
pub(crate) const IBV_DEVICE_MEM_WINDOW_TYPE_2A: c_uint = 1 << 23;
pub(crate) const IBV_DEVICE_MEM_WINDOW_TYPE_2B: c_uint = 1 << 24;

pub(crate) const IBV_PORT_DOWN: c_int = 1;
pub(crate) const IBV_PORT_INIT: c_int = 2;
pub(crate) const IBV_PORT_ARMED: c_int = 3;
pub(crate) const IBV_PORT_ACTIVE: c_int = 4;
pub(crate) const IBV_LINK_LAYER_INFINIBAND: u8 = 1;
pub(crate) const IBV_LINK_LAYER_ETHERNET: u8 = 2;

pub(crate) const IBV_GID_TYPE_IB: u32 = 0;
pub(crate) const IBV_GID_TYPE_ROCE_V1: u32 = 1;
pub(crate) const IBV_GID_TYPE_ROCE_V2: u32 = 2;

pub(crate) const IBV_MW_TYPE_2: c_int = 2;

/// Opaque: a device, as the list of devices has it, up to its transport.
#[repr(C)]
pub(crate) struct ibv_device {
    _ops: [*mut c_void; 2],
    pub(crate) node_type: c_int,
    pub(crate) transport_type: c_int,
}

/// The calls of a driver that do not enter the kernel.
#[repr(C)]
pub(crate) struct ibv_context_ops {
    _compat_begin: [*mut c_void; 7],
    pub(crate) alloc_mw: Option<unsafe extern "C" fn(*mut ibv_pd, c_int) -> *mut ibv_mw>,
    bind_mw: *mut c_void,
    pub(crate) dealloc_mw: Option<unsafe extern "C" fn(*mut ibv_mw) -> c_int>,
    _compat_create_cq: *mut c_void,
    poll_cq: *mut c_void,
    req_notify_cq: *mut c_void,
    _compat_cq: [*mut c_void; 7],
    post_srq_recv: *mut c_void,
    _compat_qp: [*mut c_void; 4],
    post_send: *mut c_void,
    post_recv: *mut c_void,
    _compat_end: [*mut c_void; 5],
}

/// Up to the number of completion vectors.
#[repr(C)]
pub(crate) struct ibv_context {
    pub(crate) device: *mut ibv_device,
    pub(crate) ops: ibv_context_ops,
    cmd_fd: c_int,
    pub(crate) async_fd: c_int,
    num_comp_vectors: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_device_attr {
    pub(crate) fw_ver: [c_char; 64],
    /// In network byte order, as all GUIDs.
    pub(crate) node_guid: u64,
    pub(crate) sys_image_guid: u64,
    pub(crate) max_mr_size: u64,
    pub(crate) page_size_cap: u64,
    pub(crate) vendor_id: u32,
    pub(crate) vendor_part_id: u32,
    pub(crate) hw_ver: u32,
    pub(crate) max_qp: c_int,
    pub(crate) max_qp_wr: c_int,
    pub(crate) device_cap_flags: c_uint,
    pub(crate) max_sge: c_int,
    pub(crate) max_sge_rd: c_int,
    pub(crate) max_cq: c_int,
    pub(crate) max_cqe: c_int,
    pub(crate) max_mr: c_int,
    pub(crate) max_pd: c_int,
    pub(crate) max_qp_rd_atom: c_int,
    pub(crate) max_ee_rd_atom: c_int,
    pub(crate) max_res_rd_atom: c_int,
    pub(crate) max_qp_init_rd_atom: c_int,
    pub(crate) max_ee_init_rd_atom: c_int,
    pub(crate) atomic_cap: c_int,
    pub(crate) max_ee: c_int,
    pub(crate) max_rdd: c_int,
    pub(crate) max_mw: c_int,
    pub(crate) max_raw_ipv6_qp: c_int,
    pub(crate) max_raw_ethy_qp: c_int,
    pub(crate) max_mcast_grp: c_int,
    pub(crate) max_mcast_qp_attach: c_int,
    pub(crate) max_total_mcast_qp_attach: c_int,
    pub(crate) max_ah: c_int,
    pub(crate) max_fmr: c_int,
    pub(crate) max_map_per_fmr: c_int,
    pub(crate) max_srq: c_int,
    pub(crate) max_srq_wr: c_int,
    pub(crate) max_srq_sge: c_int,
    pub(crate) max_pkeys: u16,
    pub(crate) local_ca_ack_delay: u8,
    pub(crate) phys_port_cnt: u8,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_port_attr {
    pub(crate) state: c_int,
    pub(crate) max_mtu: c_int,
    pub(crate) active_mtu: c_int,
    pub(crate) gid_tbl_len: c_int,
    pub(crate) port_cap_flags: u32,
    pub(crate) max_msg_sz: u32,
    pub(crate) bad_pkey_cntr: u32,
    pub(crate) qkey_viol_cntr: u32,
    pub(crate) pkey_tbl_len: u16,
    pub(crate) lid: u16,
    pub(crate) sm_lid: u16,
    pub(crate) lmc: u8,
    pub(crate) max_vl_num: u8,
    pub(crate) sm_sl: u8,
    pub(crate) subnet_timeout: u8,
    pub(crate) init_type_reply: u8,
    pub(crate) active_width: u8,
    pub(crate) active_speed: u8,
    pub(crate) phys_state: u8,
    pub(crate) link_layer: u8,
    pub(crate) flags: u8,
    pub(crate) port_cap_flags2: u16,
}

#[repr(C, align(8))]
#[derive(Clone, Copy, Default)]
pub(crate) struct ibv_gid {
    pub(crate) raw: [u8; 16],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ibv_gid_entry {
    pub(crate) gid: ibv_gid,
    pub(crate) gid_index: u32,
    pub(crate) port_num: u32,
    pub(crate) gid_type: u32,
    pub(crate) ndev_ifindex: u32,
}

#[repr(C)]
pub(crate) struct ibv_pd {
    pub(crate) context: *mut ibv_context,
    handle: u32,
}

#[repr(C)]
pub(crate) struct ibv_mw {
    pub(crate) context: *mut ibv_context,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) rkey: u32,
    handle: u32,
    pub(crate) r#type: c_int,
}
