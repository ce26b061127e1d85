//! NFS over TCP, which answers NULL only.

use nfs_proto::{NFS_PROGRAM, NFS_V3};
use oncrpc::{Answer, Call, Program};
use std::ops::RangeInclusive;

/// NFS version 3 with the procedure NULL only.
///
/// Some clients ask over TCP whether a server is alive before they mount over RDMA.
pub(crate) struct NullOnly;

impl Program for NullOnly {
    fn number(&self) -> u32 {
        NFS_PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        NFS_V3..=NFS_V3
    }

    fn call(&self, call: Call) -> Answer {
        match call.proc {
            0 => call.void().into(),
            _ => call.proc_unavail().into(),
        }
    }
}
