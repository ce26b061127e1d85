//! Memory of the replies of a TCP upstream, which is leased as they arrive.

use crate::held::Held;
use crate::pair::Pair;
use crate::reply_memory::{REPLY_COST, SMALL_REPLY};
use crate::side::Side;
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
        let is_small = bytes <= SMALL_REPLY;
        if is_small && pair.core.downstream == Side::Rdma {
            // It goes inline, and the credits of the client limit how many there are.
            return Leasing::Free;
        }
        if is_small && let Some(small) = pair.small_replies.take() {
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
