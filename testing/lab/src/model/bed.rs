//! Bed of a measurement: a provider, and the time it takes.

use anyhow::{Context, Result};
use rpcrdma_proto::Config;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use verbs::{Provider, QpOptions, QueuePair};
use verbs_ibv::{Device, GidKind, Ibv, PortState};
use verbs_iwarp::{Config as IwarpConfig, CrcMode, Iwarp};
use verbs_sim::{Costs, EndOptions, Fabric, PairOptions, SimQp};

/// A provider of this machine, and an address of it at which both ends are.
pub(crate) struct Over {
    provider: Arc<dyn Provider>,
    address: IpAddr,
}

impl Over {
    /// Software iWARP on loopback, without CRC.
    pub(crate) fn software() -> Self {
        let config = IwarpConfig::default()
            .with_crc(CrcMode::Off)
            .with_several_invalidations(true);
        Self {
            provider: Arc::new(Iwarp::new(config)),
            address: Ipv4Addr::LOCALHOST.into(),
        }
    }

    /// The RDMA device of this name, or the first that can be used.
    ///
    /// # Errors
    ///
    /// If there is none, or none with an address.
    pub(crate) fn device(asked: Option<&str>) -> Result<Self> {
        let devices = verbs_ibv::devices()?;
        let mut named = devices
            .iter()
            .filter(|device| asked.is_none_or(|name| device.name == name));
        let found = named.find_map(|device| Some((device.name.clone(), address(device)?)));
        let (name, address) = found.with_context(|| match asked {
            Some(name) => {
                format!("no RDMA device {name} with an active port that has an IP address")
            }
            None => "no RDMA device with an active port that has an IP address".to_owned(),
        })?;
        let config = verbs_ibv::Config {
            device: Some(name),
            ..verbs_ibv::Config::default()
        };
        let opened = Ibv::open(config)?;
        Ok(Self {
            provider: Arc::new(opened),
            address,
        })
    }
}

/// The first IP address among the GIDs of an active port. Those of an iWARP device are none.
fn address(device: &Device) -> Option<IpAddr> {
    let ports = &device.attributes.as_ref().ok()?.ports;
    let active = ports.iter().filter(|port| port.state == PortState::Active);
    let gids = active.flat_map(|port| &port.gids);
    let mut addresses = gids
        .filter(|gid| gid.kind == GidKind::RoceV2)
        .map(|gid| gid.address.to_canonical());
    addresses.find(|address| !matches!(address, IpAddr::V6(ip) if ip.is_unicast_link_local()))
}

/// How long the request of a connection in this machine may take.
const SETUP_TIMEOUT: Duration = Duration::from_secs(10);

/// A provider with a clock.
pub(crate) trait Bed {
    type Qp: QueuePair;

    /// The time.
    fn now(&self) -> Duration;

    /// Until when the host of this end is busy.
    fn busy_until(&self, qp: &Self::Qp) -> Duration;

    /// Times that a completion woke the host of this end, where that is known.
    fn wakeups(&self, qp: &Self::Qp) -> u64;

    /// Lets time pass: until something happens, or at most until then.
    fn wait(&mut self, until: Option<Duration>);
}

/// Both ends in virtual time, with what work costs an RNIC and its host.
pub(crate) struct Simulated {
    fabric: Fabric,
}

impl Simulated {
    /// A bed, and both ends of a connection with their Receives posted.
    ///
    /// # Errors
    ///
    /// If there is no room for the Receives.
    pub(crate) fn connect(
        costs: Costs,
        seed: u64,
        client: &Config,
        server: &Config,
    ) -> Result<(Self, SimQp, SimQp)> {
        let fabric = Fabric::new(seed);
        // The two ends do not vary alike.
        let end = |number: u64| EndOptions {
            costs: Costs {
                seed: seed.wrapping_mul(2).wrapping_add(number),
                ..costs
            },
            ..EndOptions::default()
        };
        let (mut left, mut right) = fabric.pair(&PairOptions {
            left: end(0),
            right: end(1),
        });
        for (qp, config) in [(&mut left, client), (&mut right, server)] {
            for receive in config.initial_receives() {
                qp.post(receive).context("there is no room for Receives")?;
            }
        }
        Ok((Self { fabric }, left, right))
    }
}

impl Bed for Simulated {
    type Qp = SimQp;

    fn now(&self) -> Duration {
        self.fabric.now()
    }

    fn busy_until(&self, qp: &SimQp) -> Duration {
        qp.busy_until()
    }

    fn wakeups(&self, qp: &SimQp) -> u64 {
        qp.traffic().wakeups
    }

    fn wait(&mut self, until: Option<Duration>) {
        let next = [self.fabric.next_event(), until];
        if let Some(next) = next.into_iter().flatten().min() {
            self.fabric.advance_to(next);
        }
    }
}

/// Both ends in this machine over a provider, driven by one thread.
pub(crate) struct Loopback {
    begun: Instant,
}

impl Loopback {
    /// A bed, and both ends of a connection with their Receives posted.
    ///
    /// # Errors
    ///
    /// If the connection is not made.
    pub(crate) async fn connect(
        Over { provider, address }: &Over,
        client: &Config,
        server: &Config,
    ) -> Result<(Self, Box<dyn QueuePair>, Box<dyn QueuePair>)> {
        let any = SocketAddr::from((*address, 0));
        let mut listener = provider.listen(any).await.context("cannot listen")?;
        let to = listener.local_addr();
        let options = |config: &Config| {
            QpOptions::default()
                .with_receives(config.posted_receives() + config.initial_receives().len())
                .with_receive_size(config.largest_receive().bytes())
        };
        let (of_client, of_server) = (options(client), options(server));
        let accept = async {
            let mut incoming = listener.accept().await?;
            incoming.request(SETUP_TIMEOUT).await?;
            incoming
                .accept(&of_server, &[], server.initial_receives())
                .await
        };
        let connect = provider.connect(to, &of_client, &[], client.initial_receives());
        let (connected, accepted) = tokio::join!(connect, accept);
        let bed = Self {
            begun: Instant::now(),
        };
        Ok((
            bed,
            connected.context("cannot connect")?.qp,
            accepted.context("cannot accept")?,
        ))
    }
}

impl Bed for Loopback {
    type Qp = Box<dyn QueuePair>;

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    fn busy_until(&self, _: &Self::Qp) -> Duration {
        Duration::ZERO
    }

    fn wakeups(&self, _: &Self::Qp) -> u64 {
        0
    }

    fn wait(&mut self, _: Option<Duration>) {
        std::thread::yield_now();
    }
}
