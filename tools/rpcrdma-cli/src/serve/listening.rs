//! Where a server listens for RPC-over-RDMA, and over what.

use crate::control::ListenerStatus;
use crate::devices;
use crate::provider::name;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// Where RPC-over-RDMA is served, and over what.
#[derive(Clone, Debug)]
pub(crate) struct Listening {
    /// The address that was asked for.
    pub(super) first: SocketAddr,
    /// Whether that is listened at over RDMA devices, and not over software iWARP.
    pub(super) first_is_devices: bool,
    /// The addresses of RDMA devices that are listened at beside software iWARP.
    pub(super) devices: Vec<SocketAddr>,
    /// Name of the socket of the service manager that the first address is that of, if it is.
    pub(super) socket: Option<&'static str>,
    /// The names of devices by their addresses.
    pub(super) names: BTreeMap<IpAddr, String>,
}

impl Listening {
    /// At an address, over RDMA devices or over software iWARP, and at those of RDMA devices beside that.
    pub(crate) fn new(first: SocketAddr, first_is_devices: bool, devices: Vec<SocketAddr>) -> Self {
        let names = match first_is_devices || !devices.is_empty() {
            true => devices::names_by_address(),
            false => BTreeMap::new(),
        };
        Self {
            first,
            first_is_devices,
            devices,
            socket: None,
            names,
        }
    }

    /// The same with this socket of the service manager at the first address.
    pub(super) fn with_socket(self, socket: Option<&'static str>) -> Self {
        Self { socket, ..self }
    }

    /// Each listener, for programs.
    pub(crate) fn listeners(&self) -> Vec<ListenerStatus> {
        let devices = self.devices.iter().map(|addr| (true, addr, None));
        let all = [(self.first_is_devices, &self.first, self.socket)]
            .into_iter()
            .chain(devices);
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
        if self.devices.is_empty() {
            return format!("{} over RDMA", self.first);
        }
        let devices: Vec<_> = self.devices.iter().map(ToString::to_string).collect();
        let devices = devices.join(", ");
        format!(
            "{} over software iWARP, {devices} over RDMA devices",
            self.first
        )
    }

    /// What the data moves over, in words; `crc` is about the integrity checks of software iWARP.
    pub(super) fn provider(&self, crc: &str) -> String {
        match (self.first_is_devices, self.devices.is_empty()) {
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
            first: "0.0.0.0:7".parse().unwrap(),
            first_is_devices: false,
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
}
