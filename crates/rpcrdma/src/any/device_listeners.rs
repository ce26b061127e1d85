//! RDMA devices on which a server listens beside software iWARP, at the same port.
//!
//! A wildcard address of the connection manager would be listened at over all devices, and over iWARP devices that
//! takes the port of TCP which software iWARP has. So each address that has an InfiniBand or RoCE device is listened at.

use super::providers::is_loopback;
use nix::ifaddrs::getifaddrs;
use oncrpc::Chain;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use verbs::{Provider, SetupError};

/// Addresses of this machine at which a server listens over devices, at most. Each takes a descriptor.
pub const MAX_DEVICE_ADDRESSES: usize = 64;

/// The listeners over devices beside software iWARP.
#[derive(Debug, Default)]
pub struct DeviceListeners {
    /// Addresses of the listeners.
    pub listening: Vec<SocketAddr>,
    /// Why there is no listener at other addresses.
    pub missing: Vec<NoListener>,
}

/// Why a server listens at an address over software iWARP, and not over devices too. Its text is one sentence.
#[derive(Debug, thiserror::Error)]
#[error("not listening over RDMA devices at {at}, but over software iWARP: {why}")]
pub struct NoListener {
    /// The address.
    pub at: SocketAddr,
    /// The reason.
    pub why: WhyNoListener,
}

/// Reason of a [`NoListener`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WhyNoListener {
    /// The kernel does not list the addresses of this machine.
    #[error("the addresses of this machine cannot be listed: {0}")]
    NotListed(io::Error),
    /// The address is not one of a device.
    #[error("no InfiniBand or RoCE device has the address {0}")]
    NoDevice(IpAddr),
    /// No device has an address, where all addresses of the machine were to be listened at.
    #[error("no InfiniBand or RoCE device has an IP address")]
    NoAddress,
    /// There are [as many](MAX_DEVICE_ADDRESSES) as there can be.
    #[error("there are {MAX_DEVICE_ADDRESSES} listeners, the most there can be")]
    TooMany,
    /// The device does not listen.
    #[error("{}", Chain(.0))]
    Setup(SetupError),
}

impl DeviceListeners {
    /// Finds out whether a server could listen over devices too, once one that `has` an address has ended.
    pub async fn try_out(
        at: &[SocketAddr],
        devices: &Arc<dyn Provider>,
        has: impl Fn(SocketAddr) -> bool,
    ) -> Self {
        let listen = async |at| match devices.listen(at).await {
            Ok(listener) => Ok(listener.local_addr()),
            Err(error) if is_in_use(&error) && has(at) => Ok(at),
            Err(error) => Err(error),
        };
        Self::listen(at, listen).await
    }

    /// Listens over devices too, by `listen`, where a server listens `at` addresses over software iWARP: at each address
    /// that a device may have.
    pub async fn listen(
        at: &[SocketAddr],
        listen: impl AsyncFn(SocketAddr) -> Result<SocketAddr, SetupError>,
    ) -> Self {
        let mut all = Self::default();
        for &at in at {
            all.listen_at(at, &listen).await;
        }
        all
    }

    /// The same where it listens at one address.
    async fn listen_at(
        &mut self,
        at: SocketAddr,
        listen: &impl AsyncFn(SocketAddr) -> Result<SocketAddr, SetupError>,
    ) {
        let addrs = match addresses(at) {
            Ok(addrs) => addrs,
            Err(error) => return self.without(at, WhyNoListener::NotListed(error)),
        };
        let missing = self.missing.len();
        let is_wildcard = at.ip().is_unspecified();
        for addr in addrs {
            // Sockets at all addresses of IPv4 and of IPv6 have some of them both.
            if self.listening.contains(&addr) {
                continue;
            }
            if self.listening.len() == MAX_DEVICE_ADDRESSES {
                self.without(addr, WhyNoListener::TooMany);
                break;
            }
            match listen(addr).await {
                Ok(local) => self.listening.push(local),
                // Of the addresses of a machine most have none.
                Err(SetupError::NoDevice(error)) if is_wildcard => {
                    tracing::debug!(%addr, %error, "not over an RDMA device");
                }
                Err(SetupError::NoDevice(_)) => {
                    self.without(at, WhyNoListener::NoDevice(at.ip()));
                }
                Err(error) => self.without(addr, WhyNoListener::Setup(error)),
            }
        }
        if is_wildcard && self.listening.is_empty() && self.missing.len() == missing {
            self.without(at, WhyNoListener::NoAddress);
        }
    }

    fn without(&mut self, at: SocketAddr, why: WhyNoListener) {
        self.missing.push(NoListener { at, why });
    }
}

/// Whether another server listens there.
pub fn is_in_use(error: &SetupError) -> bool {
    matches!(error, SetupError::Io(error) if error.kind() == ErrorKind::AddrInUse)
}

/// The addresses to listen at over devices: those of this machine for a wildcard, or the one. Loopback has no device.
fn addresses(at: SocketAddr) -> io::Result<Vec<SocketAddr>> {
    match at.ip() {
        _ if is_loopback(at) => return Ok(Vec::new()),
        ip if ip.is_unspecified() => {}
        _ => return Ok(vec![at]),
    }
    let all = addresses_of_this_machine()?.into_iter();
    // A socket of IPv4 has no others.
    let all = all.filter(|ip| ip.is_ipv4() || at.is_ipv6());
    Ok(all.map(|ip| SocketAddr::new(ip, at.port())).collect())
}

/// The IP addresses of all interfaces of this machine, without those of loopback and of one link (fe80::).
fn addresses_of_this_machine() -> io::Result<Vec<IpAddr>> {
    let ip = |address: nix::sys::socket::SockaddrStorage| -> Option<IpAddr> {
        let v4 = address.as_sockaddr_in().map(|address| address.ip().into());
        v4.or_else(|| Some(address.as_sockaddr_in6()?.ip().into()))
    };
    let of_one_link = |ip: &IpAddr| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    let mut all: Vec<IpAddr> = getifaddrs()?
        .filter_map(|found| ip(found.address?))
        .filter(|ip| !ip.is_loopback() && !of_one_link(ip))
        .collect();
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::io::Error;

    fn no_device() -> SetupError {
        SetupError::NoDevice(ErrorKind::NotFound.into())
    }

    async fn tried(
        at: &str,
        listen: fn(SocketAddr) -> Result<SocketAddr, SetupError>,
    ) -> DeviceListeners {
        DeviceListeners::listen(&[at.parse().unwrap()], async |at| listen(at)).await
    }

    #[tokio::test]
    async fn loopback_is_left_to_software() {
        for at in ["127.0.0.1:7", "[::1]:7", "[::ffff:127.0.0.1]:7"] {
            let found = tried(at, |_| panic!("it is not listened at")).await;
            assert!(found.listening.is_empty() && found.missing.is_empty());
        }
    }

    #[tokio::test]
    async fn address_without_a_device_is_named() {
        let found = tried("192.0.2.1:7", |_| Err(no_device())).await;
        assert!(found.listening.is_empty());
        let [missing] = &found.missing[..] else {
            panic!("{:?}", found.missing);
        };
        assert_eq!(
            missing.to_string(),
            "not listening over RDMA devices at 192.0.2.1:7, but over software iWARP: no InfiniBand or RoCE device has \
             the address 192.0.2.1"
        );
    }

    #[tokio::test]
    async fn wildcard_is_each_address_that_has_a_device() {
        // A machine has at least an address of loopback, which has none.
        let found = tried("0.0.0.0:7", |_| Err(no_device())).await;
        assert_eq!(found.missing.len(), 1, "{:?}", found.missing);
        assert!(matches!(found.missing[0].why, WhyNoListener::NoAddress));
        let addrs = addresses("0.0.0.0:7".parse().unwrap()).unwrap();
        assert!(addrs.iter().all(|addr| addr.is_ipv4() && addr.port() == 7));
        assert!(addrs.iter().all(|addr| !addr.ip().is_loopback()));
        let found = tried("0.0.0.0:7", Ok).await;
        assert_eq!(found.listening, addrs);
    }

    #[tokio::test]
    async fn address_that_two_wildcards_have_is_listened_at_once() {
        let all = ["0.0.0.0:7", "[::]:7"].map(|at| at.parse().unwrap());
        let found = DeviceListeners::listen(&all, async |at| Ok(at)).await;
        let once: BTreeSet<_> = found.listening.iter().collect();
        assert_eq!(once.len(), found.listening.len(), "{:?}", found.listening);
    }

    #[tokio::test]
    async fn port_that_another_server_has_is_the_reason() {
        let in_use =
            |_| Err(Error::new(ErrorKind::AddrInUse, "another server has this port").into());
        let found = tried("192.0.2.1:7", in_use).await;
        let text = found.missing[0].to_string();
        assert!(text.ends_with(": another server has this port"), "{text}");
    }
}
