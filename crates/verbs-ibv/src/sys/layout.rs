//! Sizes of the structures and offsets of their fields, as a C compiler finds them in the headers of rdma-core on a
//! machine with pointers of 64 bits.
//!
//! A structure without a size is declared here up to the last field that is used. `cargo xtask ibv-layout` compares
//! this table with the headers that are installed.

use std::mem::offset_of;

macro_rules! layout {
    ($($name:ident $($size:literal)?: $($field:ident $offset:literal),+;)+) => {
        $(
            #[cfg(target_pointer_width = "64")]
            const _: () = {
                $(assert!(size_of::<super::$name>() == $size);)?
                $(assert!(offset_of!(super::$name, $field) == $offset);)+
            };
        )+
    };
}

layout! {
    ibv_device: node_type 16, transport_type 20;
    ibv_context_ops 256: alloc_mw 56, dealloc_mw 72;
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
}
