//! The suite that every provider passes, over a device of this machine.
//!
//! It needs a device, so that it is run by name, with the name of the device and the address of its
//! interface:
//!
//! ```text
//! VERBS_IBV_DEVICE=rxe0 VERBS_IBV_ADDRESS=10.0.0.1 cargo test -p verbs-ibv --test conformance
//! ```
//!
//! `cargo xtask interop` runs it in a virtual machine, over the kernel's software devices.

use std::env;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use verbs::{BoxFuture, Provider};
use verbs_conformance::{Blame, Fixture};
use verbs_ibv::{Config, Ibv, Transport};

/// The variable with the address of a device of this machine.
const ADDRESS: &str = "VERBS_IBV_ADDRESS";

/// The variable with the name of the device.
const DEVICE: &str = "VERBS_IBV_DEVICE";

struct Device {
    provider: Ibv,
    address: IpAddr,
    transport: Transport,
}

impl Device {
    fn new() -> Self {
        let Ok(address) = env::var(ADDRESS) else {
            panic!("{ADDRESS} has to be the address of an interface that an RDMA device has");
        };
        let Ok(device) = env::var(DEVICE) else {
            panic!("{DEVICE} has to be the name of that device");
        };
        let devices = verbs_ibv::devices().expect("a list of devices");
        let found = devices.iter().find(|found| found.name == device);
        let device = Some(device);
        Self {
            transport: found.expect("the device is there").transport,
            provider: Ibv::open(Config {
                device,
                ..Config::default()
            })
            .expect("an RDMA device"),
            address: address.parse().expect("an IP address"),
        }
    }
}

impl Fixture for Device {
    fn connector(&self) -> Arc<dyn Provider> {
        Arc::new(self.provider.clone())
    }

    fn acceptor(&self) -> Arc<dyn Provider> {
        Arc::new(self.provider.clone())
    }

    fn listen_on(&self) -> SocketAddr {
        SocketAddr::new(self.address, 0)
    }

    fn blame(&self) -> Blame {
        match self.transport {
            Transport::Iwarp => Blame::Never,
            _ => Blame::Refusals,
        }
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        Box::pin(async move { tokio::time::sleep(time).await })
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        // What is said is shown with a test that fails; RUST_LOG says how much. Another test may have been first.
        let _ = tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .with_test_writer()
            .try_init();
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime")
            .block_on(future)
    }
}

verbs_conformance::suite!(Device::new());
