//! Encoder of operations.

use super::Operation;
use crate::v2::header::{Direction, Optional, emit_optional, optional_len};
use buffer::Buffer;
use oncrpc::xdr::Writer;

impl Operation {
    /// Appends the message of the operation: an RDMA2_OPTIONAL with nothing behind it.
    pub fn emit(&self, out: &mut Buffer, xid: u32, credits: u32, direction: Direction) {
        let info = self.info();
        emit_optional(out, xid, credits, direction, self.code(), &info);
    }

    /// Returns the operation as the content of an RDMA2_OPTIONAL.
    pub fn to_optional(&self, direction: Direction) -> Optional {
        Optional {
            direction,
            operation: self.code(),
            info: self.info(),
        }
    }

    /// Returns the bytes of the message of the operation.
    pub fn emitted_len(&self) -> usize {
        optional_len(self.info().len())
    }

    /// Encodes `rdma_optinfo` into a buffer of its own, because its length comes first.
    fn info(&self) -> Vec<u8> {
        let mut w = Writer::default();
        match self {
            Self::InitXch(init) => {
                init.start.emit(&mut w);
                init.nochg.emit(&mut w);
            }
            Self::ReqXch(request) => request.want.emit(&mut w),
            Self::RespXch(answer) => {
                answer.done.emit(&mut w);
                answer.rejected.emit(&mut w);
                answer.pending.emit(&mut w);
            }
            Self::UpdXch(update) => {
                update.now.emit(&mut w);
                w.bool(update.pendclr);
            }
        }
        w.finish().head().to_vec()
    }
}
