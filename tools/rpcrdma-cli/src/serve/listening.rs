//! Where a server listens for RPC-over-RDMA, and over what.

use crate::control::ListenerStatus;
use crate::devices;
use crate::provider::name;
use rpcrdma_daemon::listen;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// Where RPC-over-RDMA is served, and over what.
#[derive(Clone, Debug)]
pub(crate) struct Listening {
    /// The addresses that were asked for, in order: one at least.
    pub(super) asked: Vec<SocketAddr>,
    /// Whether these are listened at over RDMA devices, and not over software iWARP.
    pub(super) asked_are_devices: bool,
    /// The addresses of RDMA devices that are listened at beside software iWARP.
    pub(super) devices: Vec<SocketAddr>,
    /// Name of the sockets of the service manager that the addresses asked for are those of, if they are.
    pub(super) socket: Option<&'static str>,
    /// The names of devices by their addresses.
    pub(super) names: BTreeMap<IpAddr, String>,
}

impl Listening {
    /// At addresses, over RDMA devices or over software iWARP, and at those of RDMA devices beside that.
    ///
    /// # Panics
    ///
    /// If no address was asked for.
    pub(crate) fn new(
        asked: Vec<SocketAddr>,
        asked_are_devices: bool,
        devices: Vec<SocketAddr>,
    ) -> Self {
        assert!(!asked.is_empty(), "a server listens somewhere");
        let names = match asked_are_devices || !devices.is_empty() {
            true => devices::names_by_address(),
            false => BTreeMap::new(),
        };
        Self {
            asked,
            asked_are_devices,
            devices,
            socket: None,
            names,
        }
    }

    /// The same with sockets of this name of the service manager at the addresses that were asked for.
    pub(super) fn with_socket(self, socket: Option<&'static str>) -> Self {
        Self { socket, ..self }
    }

    /// The first address, which stands for the server.
    pub(super) fn first(&self) -> SocketAddr {
        self.asked[0]
    }

    /// Each listener, for programs.
    pub(crate) fn listeners(&self) -> Vec<ListenerStatus> {
        let asked = self.asked.iter();
        let asked = asked.map(|addr| (self.asked_are_devices, addr, self.socket));
        let devices = self.devices.iter().map(|addr| (true, addr, None));
        let all = asked.chain(devices);
        all.map(|(over_devices, address, socket)| ListenerStatus {
            provider: name(over_devices).to_owned(),
            address: address.to_string(),
            device: self
                .names
                .get(&address.ip())
                .filter(|_| over_devices)
                .cloned(),
            socket: socket.map(str::to_owned),
        })
        .collect()
    }

    /// The addresses, in words.
    pub(super) fn addresses(&self) -> String {
        let asked = listen::shown(&self.asked);
        if self.devices.is_empty() {
            return format!("{asked} over RDMA");
        }
        let devices = listen::shown(&self.devices);
        format!("{asked} over software iWARP, {devices} over RDMA devices")
    }

    /// The addresses that clients are told to mount from: those that this machine alone reaches only if there are no others,
    /// as the software iWARP of Linux (siw) does not work there.
    pub(super) fn mounted_from(&self) -> Vec<SocketAddr> {
        let is_here = |addr: &SocketAddr| addr.ip().to_canonical().is_loopback();
        let all_are_here = self.asked.iter().all(is_here);
        let shown = self.asked.iter();
        let shown = shown.filter(|addr| all_are_here || !is_here(addr));
        shown.copied().collect()
    }

    /// What the data moves over, in words; `crc` is about the integrity checks of software iWARP.
    pub(super) fn provider(&self, crc: &str) -> String {
        match (self.asked_are_devices, self.devices.is_empty()) {
            (true, _) => "RDMA devices".to_owned(),
            (false, true) => format!("software iWARP over TCP, {crc}"),
            (false, false) => format!("RDMA devices, and software iWARP over TCP, {crc}"),
        }
    }
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
                ("verbs", "192.0.2.2:7", None)
            ]
        );
    }

    #[test]
    fn clients_mount_from_addresses_that_other_machines_reach() {
        let check = |asked: &[&str], expected: &[&str]| {
            let parse = |addr: &&str| addr.parse().unwrap();
            let listening = Listening::new(asked.iter().map(parse).collect(), false, Vec::new());
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
