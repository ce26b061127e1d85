//! Calls of MOUNT, which most servers do not answer at their NFS port.

use crate::mount_service::MountOutcome;
use crate::relay::Relay;
use crate::tcp_replies::TcpReplies;
use nfs_proto::scan::ScannedCall;
use oncrpc::xdr::{Payload, Reader};
use oncrpc::{AcceptStatus, Caller, Reply, ReplyHeader, ReplyStatus};
use std::sync::Arc;
use tokio::time::timeout;

/// Largest call of MOUNT in bytes that is passed to a
/// [`MountService`](crate::MountService): the header with two long
/// credentials, and the longest path.
const MAX_MOUNT_CALL: usize = 4096;

impl Relay {
    /// Answers a call of MOUNT: by the upstream if it has MOUNT, otherwise by the service that the
    /// configuration names.
    pub(crate) async fn forward_mount(
        self: &Arc<Self>,
        call: Payload,
        scanned: &ScannedCall,
        caller: &Caller,
    ) -> Reply {
        let mount = self.gateway.config.mount.as_ref();
        let Some(mount) = mount.filter(|_| call.stream_len() <= MAX_MOUNT_CALL) else {
            return self.forward(call, scanned, caller).await;
        };
        // The call is small, and the upstream takes the first copy.
        let mut again = buffer::Buffer::default();
        call.copy_stream_into(&mut again);
        if !mount.is_elsewhere() {
            let Some(upstream) = self.upstream_client().await else {
                return Reply::Nothing;
            };
            match self.ask(&upstream, call, scanned, caller).await {
                Ok((reply, _)) if is_prog_unavail(&reply) => {}
                outcome => return self.conclude(&upstream, outcome, scanned, caller),
            }
        }
        let memory = Arc::new(TcpReplies {
            relay: Arc::downgrade(self),
        });
        let call = mount.call(Payload::new(again, 0), caller, memory);
        let outcome = timeout(self.gateway.config.call_timeout, call).await;
        match outcome.unwrap_or(MountOutcome::Unanswered) {
            MountOutcome::Answered(reply) => self.deliver(reply, scanned, caller),
            // PROG_UNAVAIL of the upstream would have clients ask MOUNT of this host, which can be that
            // of another server: its file handles would lead to other files here.
            MountOutcome::Unanswered => {
                self.system_error(scanned.xid, scanned.flavor, self.gateway.downstream_kind)
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
