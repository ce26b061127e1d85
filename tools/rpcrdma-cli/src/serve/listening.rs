//! Where a server listens for RPC-over-RDMA, and over what.

use crate::control::ListenerStatus;
use crate::provider::name;
use std::net::SocketAddr;

/// Where RPC-over-RDMA is served, and over what.
#[derive(Clone, Debug)]
pub(super) struct Listening {
    /// The address that was asked for.
    pub(super) first: SocketAddr,
    /// Whether that is listened at over RDMA devices, and not over software iWARP.
    pub(super) first_is_devices: bool,
    /// The addresses of RDMA devices that are listened at beside software iWARP.
    pub(super) devices: Vec<SocketAddr>,
}

impl Listening {
    /// Each listener, for programs.
    pub(super) fn listeners(&self) -> Vec<ListenerStatus> {
        let devices = self.devices.iter().map(|addr| (true, addr));
        let all = [(self.first_is_devices, &self.first)]
            .into_iter()
            .chain(devices);
        all.map(|(over_devices, address)| ListenerStatus {
            provider: name(over_devices).to_owned(),
            address: address.to_string(),
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
            .map(|listener| (&*listener.provider, &*listener.address))
            .collect();
        assert_eq!(
            listeners,
            [
                ("iwarp", "0.0.0.0:7"),
                ("verbs", "192.0.2.1:7"),
                ("verbs", "192.0.2.2:7")
            ]
        );
    }
}
