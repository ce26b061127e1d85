//! Turns on the CPU, between addresses.

use crate::echo::{self, ask, check};
use crate::run;
use crate::stage::{Stage, sim};
use oncrpc::Programs;
use rpc_serving::turns::TURNS;
use rpcrdma::{ClientConfig, Server, ServerConfig, Spin};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::task::JoinSet;
use verbs::{
    BoxFuture, Incoming, Listener, ProtocolMismatch, QpOptions, QueuePair, SetupError, WorkRequest,
    WrapProvider,
};
use verbs_sim::{EndOptions, SimProvider};

/// Connections of the busy address.
const BUSY: usize = 32;

/// Calls that a connection answers in a turn.
const CALLS: usize = 16;

#[test]
fn address_with_many_busy_connections_leaves_another_its_turns() {
    leaves_another_its_turns(CALLS);
}

#[test]
fn calls_that_wait_on_busy_connections_wait_for_turns() {
    leaves_another_its_turns(4 * CALLS);
}

/// Checks how many calls are answered before one of another address, with so many in flight on each busy connection.
fn leaves_another_its_turns(depth: usize) {
    run(async move {
        let (fabric, provider) = sim();
        let mut stage = Stage::new(provider, ServerConfig::default()).await;
        let mut busy = JoinSet::new();
        for _ in 0..BUSY {
            let client = stage.client(ClientConfig::default()).await;
            for _ in 0..depth {
                let client = client.clone();
                busy.spawn(async move { while ask(&client, echo::NOW).await.is_ok() {} });
            }
        }
        let end = EndOptions {
            address: IpAddr::from([127, 0, 0, 2]),
            ..EndOptions::default()
        };
        let config = ClientConfig::default().with_spin(Spin::Park);
        let other = stage.server.client(Arc::new(fabric.provider(end)), config);
        let other = other.await.expect("it connects");
        let mut before = Vec::new();
        for _ in 0..9 {
            let calls = stage.service.calls();
            check(&ask(&other, echo::NOW).await.expect("answered"), &[]);
            before.push(stage.service.calls() - calls);
        }
        before.sort_unstable();
        // Those of a round. Without turns it would be all.
        assert!(before[4] < (TURNS + 1) * CALLS, "{before:?}");
        busy.shutdown().await;
        stage.server.has_lawless_peer();
    });
}

/// A provider to which peers connect without a pause, and leave. It counts them.
struct Crowded {
    sim: SimProvider,
    accepted: Arc<AtomicUsize>,
}

impl WrapProvider for Crowded {
    type Inner = SimProvider;

    fn inner(&self) -> &SimProvider {
        &self.sim
    }

    fn wrap_listen<'a>(
        &'a self,
        on: SocketAddr,
    ) -> BoxFuture<'a, Result<Box<dyn Listener>, SetupError>> {
        let accepted = Arc::clone(&self.accepted);
        Box::pin(async move { Ok(Box::new(Crowd { on, accepted }) as Box<dyn Listener>) })
    }
}

struct Crowd {
    on: SocketAddr,
    accepted: Arc<AtomicUsize>,
}

impl Listener for Crowd {
    fn local_addr(&self) -> SocketAddr {
        self.on
    }

    fn accept(&mut self) -> BoxFuture<'_, Result<Box<dyn Incoming>, SetupError>> {
        self.accepted.fetch_add(1, Relaxed);
        let leaving = Leaving(self.on);
        Box::pin(async move { Ok(Box::new(leaving) as Box<dyn Incoming>) })
    }
}

struct Leaving(SocketAddr);

impl Incoming for Leaving {
    fn peer_addr(&self) -> SocketAddr {
        self.0
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn request<'a>(&'a mut self, _: Duration) -> BoxFuture<'a, Result<Vec<u8>, SetupError>> {
        let left = SetupError::NotOurProtocol(ProtocolMismatch::NoMessage.into());
        Box::pin(async { Err(left) })
    }

    fn accept<'a>(
        self: Box<Self>,
        _: &'a QpOptions,
        _: &'a [u8],
        _: Vec<WorkRequest>,
    ) -> BoxFuture<'a, Result<Box<dyn QueuePair>, SetupError>>
    where
        Self: 'a,
    {
        unreachable!("it has left")
    }

    fn reject<'a>(self: Box<Self>, _: &'a [u8]) -> BoxFuture<'a, ()>
    where
        Self: 'a,
    {
        Box::pin(async {})
    }
}

#[test]
fn peers_that_connect_without_a_pause_leave_others_their_turns() {
    run(async {
        let (fabric, _) = sim();
        let accepted = Arc::<AtomicUsize>::default();
        let provider = Crowded {
            sim: fabric.provider(EndOptions::default()),
            accepted: Arc::clone(&accepted),
        };
        // Its event loop is that of this task.
        let config = ServerConfig::default().with_workers(0_usize);
        let addr = SocketAddr::from(([127, 0, 0, 1], 20049));
        let server = Server::bind(Arc::new(provider), addr, Arc::new(Programs::new()), config);
        let server = server.await.expect("it listens");
        let mut before = 0;
        for _ in 0..16 {
            let now = accepted.load(Relaxed);
            assert!(now - before <= TURNS, "{now} behind {before}");
            before = now;
            tokio::task::yield_now().await;
        }
        assert!(accepted.load(Relaxed) > TURNS && server.stats().refused > 0);
    });
}
