//! The listeners of a server for RPC-over-RDMA, by provider.

use crate::control::ListenerStatus;
use crate::listen;
use rpcrdma::any::devices::names_by_address;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// The addresses of RPC-over-RDMA, and their providers.
#[derive(Clone, Debug)]
pub struct Listening {
    /// The addresses that were asked for, in order: one at least.
    pub asked: Vec<SocketAddr>,
    /// Whether these are listened at over RDMA devices, and not over software iWARP.
    pub asked_are_devices: bool,
    /// The addresses of RDMA devices that are listened at beside software iWARP.
    pub devices: Vec<SocketAddr>,
    /// Name of the sockets of the service manager that the addresses asked for are those of, if they are.
    pub socket: Option<&'static str>,
    /// The addresses of TCP without RDMA.
    pub tcp: Vec<SocketAddr>,
    /// Name of the sockets of the service manager that those are, if they are.
    pub tcp_socket: Option<&'static str>,
    /// The names of devices by their addresses.
    pub names: BTreeMap<IpAddr, String>,
}

/// Name of TCP without RDMA in output, beside providers.
pub const TCP: &str = "tcp";

/// A listener for clients without RDMA.
pub fn over_tcp(addr: SocketAddr, socket: Option<&str>) -> ListenerStatus {
    ListenerStatus {
        provider: TCP.to_owned(),
        address: addr.to_string(),
        device: None,
        socket: socket.map(str::to_owned),
    }
}

/// Name of a provider in output: that of RDMA devices, or of software iWARP.
pub fn provider_name(over_devices: bool) -> &'static str {
    match over_devices {
        true => "verbs",
        false => "iwarp",
    }
}

impl Listening {
    /// At addresses, over RDMA devices or over software iWARP, and at those of RDMA devices beside that.
    ///
    /// # Panics
    ///
    /// If no address was asked for.
    pub fn new(asked: Vec<SocketAddr>, asked_are_devices: bool, devices: Vec<SocketAddr>) -> Self {
        assert!(!asked.is_empty(), "a server listens somewhere");
        let names = match asked_are_devices || !devices.is_empty() {
            true => names_by_address(),
            false => BTreeMap::new(),
        };
        Self {
            asked,
            asked_are_devices,
            devices,
            socket: None,
            tcp: Vec::new(),
            tcp_socket: None,
            names,
        }
    }

    /// The same with sockets of this name of the service manager at the addresses that were asked for.
    pub fn with_socket(self, socket: Option<&'static str>) -> Self {
        Self { socket, ..self }
    }

    /// The same with TCP without RDMA at these addresses, and the name of its sockets of the service manager.
    pub fn with_tcp(self, tcp: Vec<SocketAddr>, tcp_socket: Option<&'static str>) -> Self {
        Self {
            tcp,
            tcp_socket,
            ..self
        }
    }

    /// The first address, which stands for the server.
    pub fn first(&self) -> SocketAddr {
        self.asked[0]
    }

    /// Each listener, for programs.
    pub fn listeners(&self) -> Vec<ListenerStatus> {
        let asked = self.asked.iter();
        let asked = asked.map(|addr| (self.asked_are_devices, addr, self.socket));
        let devices = self.devices.iter().map(|addr| (true, addr, None));
        let all = asked.chain(devices);
        let over_rdma = all.map(|(over_devices, address, socket)| ListenerStatus {
            provider: provider_name(over_devices).to_owned(),
            address: address.to_string(),
            device: self
                .names
                .get(&address.ip())
                .filter(|_| over_devices)
                .cloned(),
            socket: socket.map(str::to_owned),
        });
        let tcp = self.tcp.iter();
        over_rdma
            .chain(tcp.map(|addr| over_tcp(*addr, self.tcp_socket)))
            .collect()
    }

    /// The addresses, in words.
    pub fn addresses(&self) -> String {
        let asked = listen::shown(&self.asked);
        let over_rdma = match self.devices.is_empty() {
            true => format!("{asked} over RDMA"),
            false => {
                let devices = listen::shown(&self.devices);
                format!("{asked} over software iWARP, {devices} over RDMA devices")
            }
        };
        match self.tcp.is_empty() {
            true => over_rdma,
            false => format!("{over_rdma}, {} over TCP", listen::shown(&self.tcp)),
        }
    }

    /// The addresses that clients are told to mount from: those that this machine alone reaches only if there are no others,
    /// as the software iWARP of Linux (siw) does not work there.
    pub fn mounted_from(&self) -> Vec<SocketAddr> {
        reached(&self.asked)
    }

    /// The same over TCP without RDMA: none if that is not served.
    pub fn mounted_from_over_tcp(&self) -> Vec<SocketAddr> {
        reached(&self.tcp)
    }

    /// The providers that move the data, in words; `crc` is about the integrity checks of software iWARP.
    pub fn provider(&self, crc: &str) -> String {
        match (self.asked_are_devices, self.devices.is_empty()) {
            (true, _) => "RDMA devices".to_owned(),
            (false, true) => format!("software iWARP over TCP, {crc}"),
            (false, false) => format!("RDMA devices, and software iWARP over TCP, {crc}"),
        }
    }
}

/// Those of some addresses that other machines reach, or all if there are none.
fn reached(addrs: &[SocketAddr]) -> Vec<SocketAddr> {
    let is_here = |addr: &SocketAddr| addr.ip().to_canonical().is_loopback();
    let all_are_here = addrs.iter().all(is_here);
    let shown = addrs.iter().filter(|addr| all_are_here || !is_here(addr));
    shown.copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_providers_are_named_where_both_listen() {
        let mut listening = Listening {
            asked: vec!["0.0.0.0:7".parse().unwrap()],
            asked_are_devices: false,
            devices: Vec::new(),
            socket: None,
            tcp: Vec::new(),
            tcp_socket: None,
            names: [("192.0.2.1".parse().unwrap(), "rxe0".to_owned())].into(),
        };
        assert_eq!(listening.addresses(), "0.0.0.0:7 over RDMA");
        assert_eq!(
            listening.provider("CRC on"),
            "software iWARP over TCP, CRC on"
        );
        listening.devices = vec![
            "192.0.2.1:7".parse().unwrap(),
            "192.0.2.2:7".parse().unwrap(),
        ];
        assert_eq!(
            listening.addresses(),
            "0.0.0.0:7 over software iWARP, 192.0.2.1:7, 192.0.2.2:7 over RDMA devices"
        );
        assert_eq!(
            listening.provider("CRC on"),
            "RDMA devices, and software iWARP over TCP, CRC on"
        );
        listening.tcp = vec!["0.0.0.0:2049".parse().unwrap()];
        assert!(
            listening
                .addresses()
                .ends_with(" over RDMA devices, 0.0.0.0:2049 over TCP")
        );
        let listeners = listening.listeners();
        let listeners: Vec<_> = listeners
            .iter()
            .map(|listener| {
                let device = listener.device.as_deref();
                (&*listener.provider, &*listener.address, device)
            })
            .collect();
        assert_eq!(
            listeners,
            [
                ("iwarp", "0.0.0.0:7", None),
                ("verbs", "192.0.2.1:7", Some("rxe0")),
                ("verbs", "192.0.2.2:7", None),
                ("tcp", "0.0.0.0:2049", None)
            ]
        );
    }

    #[test]
    fn clients_mount_from_addresses_that_other_machines_reach() {
        let check = |asked: &[&str], expected: &[&str]| {
            let parse = |addr: &&str| addr.parse().unwrap();
            let asked_for = asked.iter().map(parse).collect();
            let listening = Listening::new(asked_for, false, Vec::new());
            let expected: Vec<SocketAddr> = expected.iter().map(parse).collect();
            assert_eq!(listening.mounted_from(), expected, "{asked:?}");
        };
        let (here, here_too) = ("127.0.0.1:7", "[::1]:7");
        let (one, other) = ("192.0.2.1:7", "[2001:db8::1]:8");
        check(&[here, here_too], &[here, here_too]);
        check(&[here, one, other], &[one, other]);
        check(&["0.0.0.0:7"], &["0.0.0.0:7"]);
        check(&[here, "0.0.0.0:8"], &["0.0.0.0:8"]);
    }
}
