//! RDMA devices on which a server listens beside software iWARP, at the same port.
//!
//! A wildcard address of the connection manager would be listened at over all devices, and over iWARP devices that
//! takes the port of TCP which software iWARP has. So each address that has an InfiniBand or RoCE device is listened at.

use nix::ifaddrs::getifaddrs;
use oncrpc::Chain;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use verbs::{Provider, SetupError};

/// Addresses of this machine at which a server listens over devices, at most. Each takes a descriptor.
const MAX_DEVICE_ADDRESSES: usize = 64;

/// The listeners over devices, and warnings for addresses without one.
#[derive(Debug, Default)]
pub(crate) struct DeviceListeners {
    /// Addresses of the listeners.
    pub(crate) listening: Vec<SocketAddr>,
    /// Reasons why there is no listener at other addresses, with advice, one sentence each.
    pub(crate) warnings: Vec<String>,
}

impl DeviceListeners {
    /// Whether a server could listen over devices too, once one that `has` an address has ended.
    pub(crate) async fn try_out(
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
    pub(crate) async fn listen(
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
            Err(error) => {
                let why = format!("the addresses of this machine cannot be listed: {error}");
                self.warnings.push(without(at, &why));
                return;
            }
        };
        let warned = self.warnings.len();
        let is_wildcard = at.ip().is_unspecified();
        for addr in addrs {
            // Sockets at all addresses of IPv4 and of IPv6 have some of them both.
            if self.listening.contains(&addr) {
                continue;
            }
            if self.listening.len() == MAX_DEVICE_ADDRESSES {
                let why = format!(
                    "there are {MAX_DEVICE_ADDRESSES} listeners, the most there can be: name addresses with --listen"
                );
                self.warnings.push(without(addr, &why));
                break;
            }
            match listen(addr).await {
                Ok(local) => self.listening.push(local),
                // Of the addresses of a machine most have none.
                Err(SetupError::NoDevice(error)) if is_wildcard => {
                    tracing::debug!(%addr, %error, "not over an RDMA device");
                }
                Err(SetupError::NoDevice(_)) => self.warnings.push(without(at, &no_device(at))),
                Err(error) => {
                    let why = Chain(&error).to_string();
                    self.warnings.push(without(addr, &why));
                }
            }
        }
        if is_wildcard && self.listening.is_empty() && self.warnings.len() == warned {
            let why = "no InfiniBand or RoCE device has an IP address (`rpcrdma devices` shows them and their \
                       interfaces; `ip address add` gives an interface one)";
            self.warnings.push(without(at, why));
        }
    }
}

/// Whether another server listens there.
pub(crate) fn is_in_use(error: &SetupError) -> bool {
    matches!(error, SetupError::Io(error) if error.kind() == ErrorKind::AddrInUse)
}

/// The addresses to listen at over devices: those of this machine for a wildcard, or the one. Loopback has no device.
fn addresses(at: SocketAddr) -> io::Result<Vec<SocketAddr>> {
    match at.ip() {
        ip if ip.to_canonical().is_loopback() => return Ok(Vec::new()),
        ip if ip.is_unspecified() => {}
        _ => return Ok(vec![at]),
    }
    let all = addresses_of_this_machine()?.into_iter();
    // A socket of IPv4 has no others.
    let all = all.filter(|ip| ip.is_ipv4() || at.is_ipv6());
    Ok(all.map(|ip| SocketAddr::new(ip, at.port())).collect())
}

/// Why a single address is not listened at.
fn no_device(at: SocketAddr) -> String {
    format!(
        "no InfiniBand or RoCE device has the address {} (`rpcrdma devices` shows the addresses of each; --provider \
         iwarp leaves devices alone)",
        at.ip()
    )
}

fn without(at: SocketAddr, why: &str) -> String {
    format!("not listening over RDMA devices at {at}, but over software iWARP: {why}")
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
    use crate::listen::parse;
    use std::collections::BTreeSet;
    use std::io::Error;

    fn no_device() -> SetupError {
        SetupError::NoDevice(ErrorKind::NotFound.into())
    }

    async fn tried(
        at: &str,
        listen: fn(SocketAddr) -> Result<SocketAddr, SetupError>,
    ) -> DeviceListeners {
        DeviceListeners::listen(&[parse(at).unwrap()], async |at| listen(at)).await
    }

    #[tokio::test]
    async fn loopback_is_left_to_software() {
        for at in ["127.0.0.1:7", "[::1]:7", "[::ffff:127.0.0.1]:7"] {
            let found = tried(at, |_| panic!("it is not listened at")).await;
            assert!(found.listening.is_empty() && found.warnings.is_empty());
        }
    }

    #[tokio::test]
    async fn address_without_a_device_is_a_warning_with_a_remedy() {
        let found = tried("192.0.2.1:7", |_| Err(no_device())).await;
        assert!(found.listening.is_empty());
        let [warning] = &found.warnings[..] else {
            panic!("{:?}", found.warnings);
        };
        assert!(warning.contains("at 192.0.2.1:7"), "{warning}");
        assert!(warning.contains("`rpcrdma devices`"), "{warning}");
    }

    #[tokio::test]
    async fn wildcard_is_each_address_that_has_a_device() {
        // A machine has at least an address of loopback, which has none.
        let found = tried("0.0.0.0:7", |_| Err(no_device())).await;
        assert_eq!(found.warnings.len(), 1, "{:?}", found.warnings);
        assert!(found.warnings[0].contains("has an IP address"));
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
    async fn port_that_another_server_has_is_a_warning() {
        let in_use =
            |_| Err(Error::new(ErrorKind::AddrInUse, "another server has this port").into());
        let found = tried("192.0.2.1:7", in_use).await;
        assert!(found.warnings[0].contains("another server has this port"));
    }
}
