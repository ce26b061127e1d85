//! MOUNT of the upstream, which most servers do not answer at their NFS port.

use crate::arriving::Arriving;
use crate::pair::Pair;
use nfs_proto::scan::ScannedCall;
use oncrpc::xdr::{Payload, Reader};
use oncrpc::{AcceptStatus, Caller, Reply, ReplyHeader, ReplyStatus};
use oncrpc_tcp::ReplyMemory;
use std::fmt;
use std::sync::Arc;
use verbs::BoxFuture;

/// Largest call of MOUNT in bytes that is passed to a [`MountService`]: the header with two long
/// credentials, and the longest path.
const MAX_MOUNT_CALL: usize = 4096;

/// The MOUNT service of an upstream, where that is not at the port of NFS.
///
/// A client that gets PROG_UNAVAIL may ask the MOUNT service of the gateway's own host, which can be
/// that of another server.
pub trait MountService: fmt::Debug + Send + Sync {
    /// Whether MOUNT is known to be elsewhere, so that the upstream is not asked first.
    fn is_elsewhere(&self) -> bool;

    /// Passes a call of MOUNT on. The reply has its memory from this budget.
    fn call(
        &self,
        call: Payload,
        caller: &Caller,
        memory: Arc<dyn ReplyMemory>,
    ) -> BoxFuture<'static, MountOutcome>;
}

/// The outcome of a call of MOUNT.
#[derive(Debug)]
pub enum MountOutcome {
    /// The reply of the server.
    Answered(Payload),
    /// The server cannot be reached, or does not answer.
    Unanswered,
    /// Where MOUNT of the server is, is not known.
    Unknown,
}

impl Pair {
    /// Answers a call of MOUNT: by the upstream if it has MOUNT, otherwise by the service that the
    /// configuration names.
    pub(crate) async fn forward_mount(
        self: &Arc<Self>,
        call: Payload,
        scanned: ScannedCall,
        caller: &Caller,
    ) -> Reply {
        let mount = self.core.config.mount.as_ref();
        let Some(mount) = mount.filter(|_| call.stream_len() <= MAX_MOUNT_CALL) else {
            return self.forward(call, scanned, caller).await;
        };
        // The call is small, and the upstream takes the first copy.
        let mut again = buffer::Buffer::default();
        call.copy_stream_into(&mut again);
        let mut unavailable = None;
        if !mount.is_elsewhere() {
            let Some(link) = self.link().await else {
                return Reply::Nothing;
            };
            match self.ask(&link, call, &scanned, caller).await {
                Ok((reply, held)) if is_prog_unavail(&reply) => {
                    unavailable = Some((link, Ok((reply, held))));
                }
                outcome => return self.conclude(&link, outcome, &scanned, caller),
            }
        }
        let memory = Arc::new(Arriving {
            pair: Arc::downgrade(self),
        });
        let call = mount.call(Payload::new(again, 0), caller, memory);
        match (call.await, unavailable) {
            (MountOutcome::Answered(reply), _) => self.deliver(reply, &scanned, caller),
            (MountOutcome::Unknown, Some((link, reply))) => {
                self.conclude(&link, reply, &scanned, caller)
            }
            (MountOutcome::Unanswered | MountOutcome::Unknown, _) => {
                self.system_error(scanned.xid, scanned.flavor, self.core.downstream)
            }
        }
    }
}

/// Whether a reply says that the program is not there.
fn is_prog_unavail(reply: &Payload) -> bool {
    let header = ReplyHeader::parse(&mut Reader::from(reply));
    matches!(
        header.map(|header| header.status),
        Ok(ReplyStatus::Accepted {
            status: AcceptStatus::ProgUnavail,
            ..
        })
    )
}
