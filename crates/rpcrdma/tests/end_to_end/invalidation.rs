//! A provider that takes in remote invalidation and does not say so, and the test for it.

use crate::echo::{self, exchange};
use crate::run;
use crate::stage::{Stage, sim};
use oncrpc::Transport;
use rpcrdma::{Client, ClientConfig, ServerConfig, Spin};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use verbs::{
    BoxFuture, Completion, Connected, Provider, QpOptions, QueuePair, SetupError, WorkRequest,
    WrapProvider, WrapQueuePair,
};

/// Keeps to itself which handle came with a message.
pub(crate) struct Silent(pub(crate) Arc<dyn Provider>);

struct SilentQp(Box<dyn QueuePair>);

impl WrapProvider for Silent {
    type Inner = dyn Provider;

    fn inner(&self) -> &Self::Inner {
        &*self.0
    }

    fn wrap_connect<'a>(
        &'a self,
        to: SocketAddr,
        options: &'a QpOptions,
        private_data: &'a [u8],
        receives: Vec<WorkRequest>,
    ) -> BoxFuture<'a, Result<Connected, SetupError>> {
        Box::pin(async move {
            let connected = self.0.connect(to, options, private_data, receives);
            let Connected { qp, private_data } = connected.await?;
            Ok(Connected {
                qp: Box::new(SilentQp(qp)),
                private_data,
            })
        })
    }
}

impl WrapQueuePair for SilentQp {
    type Inner = dyn QueuePair;

    fn inner(&self) -> &Self::Inner {
        &*self.0
    }

    fn inner_mut(&mut self) -> &mut Self::Inner {
        &mut *self.0
    }

    fn wrap_poll_cq(&mut self) -> Option<Completion> {
        let mut completion = self.0.poll_cq()?;
        if let Completion::Receive { invalidated, .. } = &mut completion {
            *invalidated = None;
        }
        Some(completion)
    }
}

fn config(test: bool) -> ClientConfig {
    ClientConfig::default()
        .with_test_remote_invalidation(test)
        .with_reconnect_first(Duration::from_millis(1))
        .with_spin(Spin::Park)
}

#[test]
fn test_at_the_beginning_finds_a_provider_that_does_not_tell() {
    run(async {
        let stage = Stage::new(sim().1, ServerConfig::default()).await;
        let silent = Arc::new(Silent(Arc::clone(&stage.provider)));
        let client = Client::connect(silent, stage.server.local_addr(), config(true)).await;
        let client = client.expect("it connects, in the end without");
        exchange(&client, &[60_000], &[60_000]).await;
        let counters = client.counters();
        assert_eq!((counters.calls_sent, counters.remote_invalidations), (1, 0));
        assert_eq!(stage.service.calls(), 1, "no call was made twice");
        client.close().await;
        assert_eq!(stage.server.shutdown().await.accepted, 2);
    });
}

#[test]
fn test_of_a_provider_that_tells_changes_nothing() {
    run(async {
        let stage = Stage::new(sim().1, ServerConfig::default()).await;
        let client = stage.client(config(true)).await;
        exchange(&client, &[60_000], &[60_000]).await;
        // Those of the test and of the call.
        assert_eq!(client.counters().remote_invalidations, 2);
        client.close().await;
        assert_eq!(stage.server.shutdown().await.accepted, 1);
    });
}

#[test]
fn provider_that_does_not_tell_is_found_out_by_a_call_too() {
    run(async {
        let stage = Stage::new(sim().1, ServerConfig::default()).await;
        let silent = Arc::new(Silent(Arc::clone(&stage.provider)));
        let client = Client::connect(silent, stage.server.local_addr(), config(false)).await;
        let client = client.expect("it connects");
        // Its reply came, but its memory did not come back: it is made again.
        let call = echo::call(client.next_xid(), echo::NOW, &[60_000], &[60_000]);
        let reply = client.call(call, echo::bound(&[60_000])).await;
        echo::check(&reply.expect("answered"), &[60_000]);
        let info = client.connection().expect("connected");
        assert!(
            info.peer_private_data
                .is_some_and(|peer| peer.remote_invalidation)
        );
        for _ in 0..3 {
            exchange(&client, &[60_000], &[60_000]).await;
        }
        client.close().await;
        assert_eq!(stage.server.shutdown().await.accepted, 2);
    });
}
