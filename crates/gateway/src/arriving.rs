//! Memory of the replies of a TCP upstream, which is leased as they arrive.

use crate::held::Held;
use crate::pair::Pair;
use crate::reply_memory::{REPLY_COST, SMALL_REPLY};
use oncrpc_tcp::{Leasing, ReplyMemory};
use std::sync::{Arc, Weak};

/// The budget of the replies to one client.
pub(crate) struct Arriving {
    pub(crate) pair: Weak<Pair>,
}

impl ReplyMemory for Arriving {
    fn lease(&self, bytes: usize) -> Leasing {
        let Some(pair) = self.pair.upgrade() else {
            // Nobody waits for it.
            return Leasing::Free;
        };
        // Also one that goes inline to an RDMA client: its credits allow many of these, for each of its connections.
        if bytes <= SMALL_REPLY
            && let Some(small) = pair.small_replies.take()
        {
            return Leasing::Now(Box::new(Held::Small { _counted: small }));
        }
        let bytes = bytes + REPLY_COST;
        let memory = &pair.core.reply_memory;
        if let Some(lease) = memory.lease_at_once(pair.caller(), bytes) {
            return Leasing::Now(Box::new(Held::Lease(lease)));
        }
        let (memory, caller) = (memory.clone(), *pair.caller());
        let core = Arc::clone(&pair.core);
        Leasing::Later(Box::pin(async move {
            let lease = memory.lease(&caller, bytes, || core.watch_replies()).await;
            Box::new(Held::Lease(lease)) as Box<dyn oncrpc::Lease>
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{GatewayConfig, Listen, Upstream, tcp_limits};
    use crate::core::Core;
    use crate::reply_memory::SMALL_REPLIES;
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
            let core = Arc::new(Core::new(&listen, Upstream::tcp(addr), config));
            let pair = Pair::new(Arc::clone(&core), Caller::new(addr));
            let arriving = Arriving {
                pair: Arc::downgrade(&pair),
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
