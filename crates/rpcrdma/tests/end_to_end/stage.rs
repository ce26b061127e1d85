//! A server that can call its clients, and those.

use crate::echo::{Echo, Shared};
use crate::test_server::TestServer;
use oncrpc::xdr::{Payload, Reader};
use oncrpc::{Answer, Caller, ConnectionId, Programs, Service};
use rpcrdma::{
    Backchannels, BackwardClient, Client, ClientConfig, ConnectError, ServerConfig, Spin,
};
use rpcrdma_watch::Watched;
use std::env;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use verbs::Provider;
use verbs_iwarp::Iwarp;
use verbs_sim::{EndOptions, Fabric};

/// An echo that notes over which connections it was called, and takes RPC messages too.
pub(crate) struct Noting {
    pub(crate) echo: Arc<Echo>,
    callers: Mutex<Vec<Caller>>,
}

impl Noting {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            echo: Arc::default(),
            callers: Mutex::default(),
        })
    }

    /// Calls so far.
    pub(crate) fn calls(&self) -> usize {
        self.callers.lock().expect("no panic holds it").len()
    }

    /// The connection of the last call.
    pub(crate) fn last(&self) -> ConnectionId {
        let callers = self.callers.lock().expect("no panic holds it");
        callers.last().expect("it was called").connection
    }

    /// Users of this machine that were found for the calls.
    pub(crate) fn local_uids(&self) -> Vec<Option<u32>> {
        let callers = self.callers.lock().expect("no panic holds it");
        callers.iter().map(|caller| caller.local_uid).collect()
    }

    /// The credits that the last caller has.
    pub(crate) fn last_credits(&self) -> u32 {
        let callers = self.callers.lock().expect("no panic holds it");
        callers.last().expect("it was called").credits
    }

    /// Connections over which calls came.
    pub(crate) fn connections(&self) -> usize {
        let callers = self.callers.lock().expect("no panic holds it");
        let mut seen = Vec::new();
        for caller in callers.iter() {
            if !seen.contains(&caller.connection) {
                seen.push(caller.connection);
            }
        }
        seen.len()
    }
}

impl Service for Noting {
    fn call(&self, call: Payload, caller: &Caller) -> Answer {
        if is_rpc(&call) {
            return Programs::new().call(call, caller);
        }
        self.callers
            .lock()
            .expect("no panic holds it")
            .push(*caller);
        Shared(Arc::clone(&self.echo)).call(call, caller)
    }
}

/// Whether it is an RPC call without arguments, and not one for the echo.
fn is_rpc(call: &Payload) -> bool {
    let mut r = Reader::from(call);
    let words: Vec<u32> = std::iter::from_fn(|| r.u32().ok()).collect();
    words.len() == 10 && words[2] == 2 && words[3] > 1000
}

/// A server and the way to it.
pub(crate) struct Stage {
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) service: Arc<Noting>,
    pub(crate) backchannels: Backchannels,
    pub(crate) server: TestServer,
}

impl Stage {
    /// A server that can call back, on this runtime.
    pub(crate) async fn new(provider: Arc<dyn Provider>, config: ServerConfig) -> Self {
        let (service, backchannels) = (Noting::new(), Backchannels::default());
        let config = calling_back(config, &backchannels);
        let shared = Arc::clone(&service) as Arc<dyn Service>;
        let server = TestServer::bind(Arc::clone(&provider), anywhere(), shared, config).await;
        Self {
            provider,
            service,
            backchannels,
            server,
        }
    }

    /// Shuts the server down, and has another listen where it did.
    pub(crate) async fn begin_anew(&mut self, config: ServerConfig) {
        self.service = Noting::new();
        let config = calling_back(config, &self.backchannels);
        let shared = Arc::clone(&self.service) as Arc<dyn Service>;
        let provider = Arc::clone(&self.provider);
        self.server.begin_anew(provider, shared, config).await;
    }

    pub(crate) async fn client(&self, config: ClientConfig) -> Watched<Client> {
        self.connect(config).await.expect("it connects")
    }

    pub(crate) async fn connect(
        &self,
        config: ClientConfig,
    ) -> Result<Watched<Client>, ConnectError> {
        let config = config.with_spin(Spin::Park);
        self.server.client(Arc::clone(&self.provider), config).await
    }

    /// Calls the client that called last, which is said to be ready.
    pub(crate) fn back(&self) -> Watched<BackwardClient> {
        let backchannel = self.backchannels.get(self.service.last());
        let back = backchannel.expect("it is connected").client_is_ready();
        self.server.party().transport(back)
    }
}

fn calling_back(config: ServerConfig, backchannels: &Backchannels) -> ServerConfig {
    config
        .with_workers(0)
        .with_spin(Spin::Park)
        .with_backchannels(backchannels.clone())
}

/// A client that answers calls with this service.
pub(crate) fn answering(service: &Arc<Noting>) -> ClientConfig {
    ClientConfig::default().with_callbacks(Arc::clone(service))
}

/// Address at which servers listen: on loopback, or on the RDMA device that the environment names.
pub(crate) fn anywhere() -> SocketAddr {
    let on = match device() {
        Some(device) => device.address,
        None => IpAddr::from([127, 0, 0, 1]),
    };
    SocketAddr::new(on, 0)
}

/// A provider over a fabric of its own, and that.
pub(crate) fn sim() -> (Fabric, Arc<dyn Provider>) {
    let fabric = Fabric::new(17);
    let provider = Arc::new(fabric.provider(EndOptions::default()));
    (fabric, provider)
}

/// A simulation in which each connection posts its own Receives.
pub(crate) fn sim_with_posted_receives() -> Arc<dyn Provider> {
    let mut end = EndOptions::default();
    end.limits.shared_receives = false;
    Arc::new(Fabric::new(17).provider(end))
}

/// The providers that there are; where the environment names an RDMA device, that alone.
pub(crate) fn providers() -> Vec<Arc<dyn Provider>> {
    let Some(device) = device() else {
        let config = verbs_iwarp::Config::default().with_several_invalidations(true);
        return vec![sim().1, Arc::new(Iwarp::new(config))];
    };
    let config = verbs_ibv::Config {
        device: Some(device.name),
        ..verbs_ibv::Config::default()
    };
    let opened = verbs_ibv::Ibv::open(config);
    vec![Arc::new(opened.expect("the device is there"))]
}

/// An RDMA device of this machine.
struct Device {
    name: String,
    address: IpAddr,
}

/// The device that the environment names with `VERBS_IBV_DEVICE` and `VERBS_IBV_ADDRESS`, which `cargo xtask interop` sets
/// in its virtual machine.
fn device() -> Option<Device> {
    let name = env::var("VERBS_IBV_DEVICE").ok()?;
    let address = env::var("VERBS_IBV_ADDRESS").expect("the address of the device");
    let address = address.parse().expect("an IP address");
    Some(Device { name, address })
}
