//! Sizes of the structures and offsets of their fields, as a C compiler finds them in the headers of rdma-core on a
//! machine with pointers of 64 bits.
//!
//! A structure without a size is declared here up to the last field that is used. `cargo xtask ibv-layout` compares
//! this table with the headers that are installed.

use super::cm::*;
use super::*;
use std::mem::offset_of;

macro_rules! layout {
    ($($name:ident $($size:literal)?: $($field:ident $offset:literal),+;)+) => {
        $(
            #[cfg(target_pointer_width = "64")]
            const _: () = {
                $(assert!(size_of::<$name>() == $size);)?
                $(assert!(offset_of!($name, $field) == $offset);)+
            };
        )+
    };
}

layout! {
    rdma_event_channel 4: fd 0;
    rdma_addr 296: src_storage 0, dst_storage 128;
    rdma_route 312: addr 0;
    rdma_cm_id 416: verbs 0, channel 8, context 16, qp 24, route 32, port_num 348;
    rdma_conn_param 24: private_data 0, private_data_len 8, responder_resources 9,
        initiator_depth 10, flow_control 11, retry_count 12, rnr_retry_count 13, srq 14, qp_num
        16;
    rdma_cm_event 80: id 0, listen_id 8, event 16, status 20, param 24;
    ibv_device: node_type 16, transport_type 20;
    ibv_context_ops 256: alloc_mw 56, dealloc_mw 72, poll_cq 88, req_notify_cq 96, post_send
        200, post_recv 208;
    ibv_context: device 0, ops 8, async_fd 268;
    ibv_device_attr 232: fw_ver 0, node_guid 64, sys_image_guid 72, max_mr_size 80,
        page_size_cap 88, vendor_id 96, vendor_part_id 100, hw_ver 104, max_qp 108, max_qp_wr
        112, device_cap_flags 116, max_sge 120, max_sge_rd 124, max_cq 128, max_cqe 132, max_mr
        136, max_pd 140, max_qp_rd_atom 144, max_ee_rd_atom 148, max_res_rd_atom 152,
        max_qp_init_rd_atom 156, max_ee_init_rd_atom 160, atomic_cap 164, max_ee 168, max_rdd
        172, max_mw 176, max_raw_ipv6_qp 180, max_raw_ethy_qp 184, max_mcast_grp 188,
        max_mcast_qp_attach 192, max_total_mcast_qp_attach 196, max_ah 200, max_fmr 204,
        max_map_per_fmr 208, max_srq 212, max_srq_wr 216, max_srq_sge 220, max_pkeys 224,
        local_ca_ack_delay 226, phys_port_cnt 227;
    ibv_port_attr 52: state 0, max_mtu 4, active_mtu 8, gid_tbl_len 12, port_cap_flags 16,
        max_msg_sz 20, bad_pkey_cntr 24, qkey_viol_cntr 28, pkey_tbl_len 32, lid 34, sm_lid 36,
        lmc 38, max_vl_num 39, sm_sl 40, subnet_timeout 41, init_type_reply 42, active_width 43,
        active_speed 44, phys_state 45, link_layer 46, flags 47, port_cap_flags2 48;
    ibv_gid 16: raw 0;
    ibv_gid_entry 32: gid 0, gid_index 16, port_num 20, gid_type 24, ndev_ifindex 28;
    ibv_pd 16: context 0;
    ibv_mw 32: context 0, pd 8, rkey 16, r#type 24;
    ibv_async_event 16: element 0, event_type 8;
    ibv_mr 48: context 0, pd 8, addr 16, length 24, lkey 36, rkey 40;
    ibv_comp_channel 16: context 0, fd 8;
    ibv_cq: context 0;
    ibv_qp: context 0, qp_num 52;
    ibv_qp_cap 20: max_send_wr 0, max_recv_wr 4, max_send_sge 8, max_recv_sge 12,
        max_inline_data 16;
    ibv_qp_init_attr 64: qp_context 0, send_cq 8, recv_cq 16, srq 24, cap 32, qp_type 52,
        sq_sig_all 56;
    ibv_qp_attr 144: qp_state 0, cur_qp_state 4;
    ibv_wc 48: wr_id 0, status 8, opcode 12, vendor_err 16, byte_len 20, invalidated_rkey 24,
        qp_num 28, src_qp 32, wc_flags 36, pkey_index 40, slid 42, sl 44, dlid_path_bits 45;
    ibv_sge 16: addr 0, length 8, lkey 12;
    ibv_recv_wr 32: wr_id 0, next 8, sg_list 16, num_sge 24;
    ibv_mw_bind_info 32: mr 0, addr 8, length 16, mw_access_flags 24;
    ibv_send_wr 128: wr_id 0, next 8, sg_list 16, num_sge 24, opcode 28, send_flags 32,
        invalidate_rkey 36, wr 40, qp_type 72, bind_mw 80;
}
