//! A wrapper that observes the delivery of replies.

use super::party::Party;
use oncrpc::xdr::{Payload, Reader};
use oncrpc::{ReplyBound, Transport, TransportError};
use std::ops::Deref;
use std::sync::Arc;

impl Party {
    /// The same transport, watched. It is one over this party's provider.
    pub fn transport<T>(&self, transport: T) -> Watched<T> {
        Watched {
            party: self.clone(),
            inner: transport,
            times: None,
        }
    }

    /// A transport that leads to this party, a gateway, watched. `times` tells how often a call with
    /// an XID was sent.
    pub fn transport_to_gateway<T>(
        &self,
        transport: T,
        times: impl Fn(u32) -> u32 + Send + Sync + 'static,
    ) -> Watched<T> {
        Watched {
            times: Some(Arc::new(times)),
            ..self.transport(transport)
        }
    }
}

/// A transport over a watched provider. Other methods of the transport are not observed.
#[derive(Clone)]
pub struct Watched<T> {
    party: Party,
    inner: T,
    /// How often a call was sent, if it is to a gateway.
    times: Option<Arc<dyn Fn(u32) -> u32 + Send + Sync>>,
}

impl<T> Watched<T> {
    /// The party that is watched.
    pub fn party(&self) -> &Party {
        &self.party
    }
}

impl<T> Deref for Watched<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: Transport + Sync> Transport for Watched<T> {
    fn next_xid(&self) -> u32 {
        self.inner.next_xid()
    }

    async fn call(&self, call: Payload, bound: ReplyBound) -> Result<Payload, TransportError> {
        let xid = Reader::from(&call).u32().unwrap_or(0);
        self.party.note(|| format!("wants call {xid:#010x}"));
        let reply = self.inner.call(call, bound).await;
        match &reply {
            Ok(reply) => {
                let found = Reader::from(reply).u32();
                if found != Ok(xid) {
                    let shared = &self.party.shared;
                    shared.finding(format_args!("call {xid:#010x} got the reply of {found:x?}"));
                }
                match &self.times {
                    Some(times) => self.party.delivered_by_gateway(xid, times(xid)),
                    None => self.party.delivered(xid),
                }
                self.party.note(|| format!("has the reply to {xid:#010x}"));
            }
            Err(error) => self
                .party
                .note(|| format!("has no reply to {xid:#010x}: {error}")),
        }
        reply
    }

    fn depth(&self) -> usize {
        self.inner.depth()
    }

    fn connections_ended(&self) -> u64 {
        self.inner.connections_ended()
    }
}
