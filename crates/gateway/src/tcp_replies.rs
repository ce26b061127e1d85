//! Memory of the replies of a TCP upstream, which is leased as they arrive.

use crate::relay::Relay;
use crate::reply_lease::ReplyLease;
use crate::reply_memory::{REPLY_COST, SMALL_REPLY};
use oncrpc_tcp::{Leasing, ReplyMemory};
use std::sync::{Arc, Weak};

/// The budget of the replies to one client.
pub(crate) struct TcpReplies {
    pub(crate) relay: Weak<Relay>,
}

impl ReplyMemory for TcpReplies {
    fn lease(&self, bytes: usize) -> Leasing {
        let Some(relay) = self.relay.upgrade() else {
            // Nobody waits for it.
            return Leasing::Free;
        };
        // Also one that goes inline to an RDMA client: its credits allow many of these, for each of its connections.
        if bytes <= SMALL_REPLY
            && let Some(small) = relay.small_replies.take()
        {
            return Leasing::Now(Box::new(ReplyLease::Small { _counted: small }));
        }
        let bytes = bytes + REPLY_COST;
        let memory = &relay.gateway.reply_memory;
        if let Some(lease) = memory.lease_at_once(relay.caller(), bytes) {
            return Leasing::Now(Box::new(ReplyLease::Lease(lease)));
        }
        let (memory, caller) = (memory.clone(), *relay.caller());
        let gateway = Arc::clone(&relay.gateway);
        Leasing::Later(Box::pin(async move {
            let lease = memory
                .lease(&caller, bytes, || gateway.watch_replies())
                .await;
            Box::new(ReplyLease::Lease(lease)) as Box<dyn oncrpc::Lease>
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{GatewayConfig, Listen, Upstream, tcp_limits};
    use crate::reply_memory::SMALL_REPLIES;
    use crate::state::GatewayState;
    use oncrpc::Caller;
    use rpcrdma::ServerConfig;
    use std::net::SocketAddr;
    use std::task::{Context, Waker};
    use tokio::sync::mpsc;
    use verbs_sim::{EndOptions, Fabric};

    /// Small replies for which there is memory of the budget.
    const MORE: usize = 8;

    #[tokio::test(start_paused = true)]
    async fn small_replies_of_a_tcp_server_have_memory_of_the_budget_whatever_their_client_speaks()
    {
        let addr = SocketAddr::from(([192, 0, 2, 1], 700));
        let provider = Arc::new(Fabric::new(1).provider(EndOptions::default()));
        let listens = [
            Listen::rdma(provider, addr, ServerConfig::default()),
            Listen::Streams {
                streams: mpsc::channel(1).1,
                addr,
                limits: tcp_limits(),
            },
        ];
        for listen in listens {
            let config =
                GatewayConfig::default().with_reply_memory(2 * MORE * (SMALL_REPLY + REPLY_COST));
            let gateway = Arc::new(GatewayState::new(&listen, Upstream::tcp(addr), config));
            let relay = Relay::new(Arc::clone(&gateway), Caller::new(addr));
            let arriving = TcpReplies {
                relay: Arc::downgrade(&relay),
            };
            let mut unread = Vec::new();
            let last = loop {
                match arriving.lease(SMALL_REPLY) {
                    Leasing::Free => panic!("nothing bounds these"),
                    Leasing::Now(lease) => unread.push(lease),
                    Leasing::Later(lease) => break lease,
                }
            };
            assert_eq!(unread.len(), SMALL_REPLIES + MORE);
            let mut last = std::pin::pin!(last);
            let mut cx = Context::from_waker(Waker::noop());
            assert!(last.as_mut().poll(&mut cx).is_pending());
            // One is read.
            unread.pop();
            assert!(last.as_mut().poll(&mut cx).is_ready());
        }
    }
}
