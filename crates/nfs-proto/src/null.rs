//! The NFS program where no file is served.

use crate::{NFS_PROGRAM, NFS_V3};
use oncrpc::{Answer, Call, Program};
use std::ops::RangeInclusive;

/// NFS version 3 with the procedure NULL only, for a server of MOUNT over TCP: some clients ask there whether the server is
/// alive before they mount over RDMA.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullOnly;

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

#[cfg(test)]
mod tests {
    use super::*;
    use oncrpc::xdr::{Payload, Reader, Writer};
    use oncrpc::{
        AcceptStatus, Caller, Credential, Procedure, Programs, Reply, ReplyHeader, ReplyStatus,
        Service, write_call,
    };

    fn status_of(proc: u32) -> AcceptStatus {
        let mut w = Writer::default();
        let procedure = Procedure {
            prog: NFS_PROGRAM,
            vers: NFS_V3,
            proc,
        };
        write_call(&mut w, 1, procedure, &Credential::None);
        let caller = Caller::new(([127, 0, 0, 1], 1).into());
        let programs = Programs::new().with(NullOnly);
        let Answer::Now(Reply::Message(reply)) = programs.call(w.finish(), &caller) else {
            panic!("it is answered at once");
        };
        let reply: Payload = reply;
        match ReplyHeader::parse(&mut Reader::from(&reply))
            .unwrap()
            .status
        {
            ReplyStatus::Accepted { status, .. } => status,
            ReplyStatus::Denied(_) => panic!("it is accepted"),
        }
    }

    #[test]
    fn null_is_answered_and_no_other_procedure() {
        assert_eq!(status_of(0), AcceptStatus::Success);
        assert_eq!(status_of(1), AcceptStatus::ProcUnavail);
    }
}
