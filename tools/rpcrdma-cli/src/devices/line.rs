//! A device as `--json` shows it.

use rpcrdma::any::devices::{DeviceInfo, PortAddresses};
use serde::Serialize;
use verbs_ibv::{Attributes, Gid, GidKind, LinkLayer, Port, Transport, Windows};

/// An RDMA device; sizes in bytes.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Line {
    /// Name of the device, as in `/sys/class/infiniband`.
    pub(super) name: String,
    /// Kind of the device: `channel adapter` (InfiniBand, RoCE), `RNIC` (iWARP) or another.
    pub(super) node_type: String,
    /// Its transport: `InfiniBand` (over InfiniBand links or, as RoCE, over Ethernet), `iWARP` or `other`.
    pub(super) transport: String,
    /// Whether this program can use it now.
    pub(super) usable: bool,
    /// Why not, if it cannot.
    pub(super) unusable_because: Option<String>,
    /// Whether it is used without `--provider` (`auto`). An iWARP device is used with `--provider verbs` only, because
    /// software iWARP reaches the same peers.
    pub(super) used_by_auto: bool,
    /// Attributes that the device reports; null if it could not be opened.
    pub(super) attributes: Option<AttributesLine>,
}

/// Attributes that a device reports.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct AttributesLine {
    /// Version of the firmware.
    pub(super) firmware: String,
    /// GUID of the device.
    pub(super) node_guid: String,
    /// GUID shared by the devices of one card.
    pub(super) system_image_guid: String,
    /// Vendor, an IEEE OUI.
    pub(super) vendor_id: u32,
    /// Part number of the vendor.
    pub(super) part_id: u32,
    /// Version of the hardware.
    pub(super) hardware_version: u32,
    /// Memory windows: `none`, `type 1`, `type 2`, `type 2A` or `type 2B`.
    pub(super) memory_windows: String,
    /// Why no window could be allocated, if the device claims to have some of type 2.
    pub(super) memory_windows_error: Option<String>,
    /// How this program gives the peer access to the memory of a call: `windows` (of memory) or `registration`, one for
    /// each call.
    pub(super) remote_access: String,
    /// Whether the peer can invalidate that access with its reply (Send with Invalidate).
    pub(super) remote_invalidation: bool,
    /// Whether the device has the memory management extensions of the InfiniBand specification.
    pub(super) memory_management_extensions: bool,
    /// Limits of the device, for all its users together unless said otherwise.
    pub(super) limits: LimitsLine,
    /// Its ports.
    pub(super) ports: Vec<PortLine>,
}

/// Limits of a device.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct LimitsLine {
    /// Queue pairs.
    pub(super) queue_pairs: u32,
    /// Work requests in each queue of a queue pair.
    pub(super) work_requests: u32,
    /// Pieces of memory of one work request.
    pub(super) pieces: u32,
    /// Pieces of memory of one RDMA Read.
    pub(super) read_pieces: u32,
    /// RDMA Reads of the peer that one queue pair serves at a time (IRD).
    pub(super) inbound_reads: u32,
    /// RDMA Reads that one queue pair has outstanding at a time (ORD).
    pub(super) outstanding_reads: u32,
    /// Completion queues.
    pub(super) completion_queues: u32,
    /// Entries of one completion queue.
    pub(super) completions: u32,
    /// Memory regions.
    pub(super) regions: u32,
    /// Bytes of the largest memory region.
    pub(super) region_bytes: u64,
    /// Memory windows.
    pub(super) memory_windows: u32,
    /// Protection domains.
    pub(super) protection_domains: u32,
    /// Shared receive queues.
    pub(super) shared_receive_queues: u32,
}

/// A port of a device.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct PortLine {
    /// Number of the port, from 1.
    pub(super) number: u8,
    /// State of the link: `down`, `initializing`, `armed`, `active` or `other`.
    pub(super) state: String,
    /// Link layer of its packets: `InfiniBand`, `Ethernet` or `unspecified`.
    pub(super) link_layer: String,
    /// Protocol on the wire: `InfiniBand`, `RoCE v1`, `RoCE v2`, `RoCE v1, v2`, `RoCE`, `iWARP` or `unknown`.
    pub(super) protocol: String,
    /// MTU in use, in bytes; null if the device names none.
    pub(super) active_mtu: Option<u16>,
    /// Largest MTU, in bytes; null if the device names none.
    pub(super) max_mtu: Option<u16>,
    /// Bytes of the largest message.
    pub(super) max_message_bytes: u32,
    /// Local identifier on InfiniBand; null elsewhere.
    pub(super) lid: Option<u16>,
    /// Network interfaces of its addresses.
    pub(super) interfaces: Vec<String>,
    /// IP addresses by which connections use this port, without those of one link (fe80::).
    pub(super) addresses: Vec<String>,
    /// Its table of addresses (GIDs).
    pub(super) gids: Vec<GidLine>,
}

/// An address of a port (GID).
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct GidLine {
    /// Index in the table of the port.
    pub(super) index: u32,
    /// The address, as an IP address where it contains one.
    pub(super) address: String,
    /// Protocol of packets with this address: `IB`, `RoCE v1`, `RoCE v2` or `other`.
    pub(super) kind: String,
    /// Network interface that it belongs to, if there is one.
    pub(super) interface: Option<String>,
}

/// How the peer gets access to memory.
pub(super) const WINDOWS: &str = "windows";
pub(super) const REGISTRATION: &str = "registration";

impl Line {
    pub(super) fn new(info: &DeviceInfo) -> Self {
        let DeviceInfo {
            device,
            ports,
            unusable,
        } = info;
        let attributes = device.attributes.as_ref().ok();
        Self {
            name: device.name.clone(),
            node_type: device.node.to_string(),
            transport: device.transport.to_string(),
            usable: unusable.is_none(),
            unusable_because: unusable.as_ref().map(ToString::to_string),
            used_by_auto: info.is_used_beside_software(),
            attributes: attributes.map(|found| AttributesLine::new(device.transport, found, ports)),
        }
    }
}

impl AttributesLine {
    fn new(transport: Transport, found: &Attributes, ports: &[PortAddresses]) -> Self {
        let limits = &found.limits;
        let windows = found.windows.usable();
        let (memory_windows, memory_windows_error) = match &found.windows {
            Windows::Refused { reason } => ("type 2".to_owned(), Some(reason.clone())),
            usual => (usual.to_string(), None),
        };
        Self {
            firmware: found.firmware.clone(),
            node_guid: found.node_guid.to_string(),
            system_image_guid: found.system_image_guid.to_string(),
            vendor_id: found.vendor_id,
            part_id: found.part_id,
            hardware_version: found.hardware_version,
            memory_windows,
            memory_windows_error,
            remote_access: if windows { WINDOWS } else { REGISTRATION }.to_owned(),
            remote_invalidation: windows,
            memory_management_extensions: found.memory_management_extensions,
            limits: LimitsLine {
                queue_pairs: limits.queue_pairs,
                work_requests: limits.work_requests,
                pieces: limits.pieces,
                read_pieces: limits.read_pieces,
                inbound_reads: limits.inbound_reads,
                outstanding_reads: limits.outstanding_reads,
                completion_queues: limits.completion_queues,
                completions: limits.completions,
                regions: limits.regions,
                region_bytes: limits.region_bytes,
                memory_windows: limits.windows,
                protection_domains: limits.protection_domains,
                shared_receive_queues: limits.shared_receive_queues,
            },
            ports: found
                .ports
                .iter()
                .zip(ports)
                .map(|(port, has)| PortLine::new(transport, port, has))
                .collect(),
        }
    }
}

impl PortLine {
    fn new(transport: Transport, port: &Port, has: &PortAddresses) -> Self {
        Self {
            number: port.number,
            state: port.state.to_string(),
            link_layer: port.link_layer.to_string(),
            protocol: protocol(transport, port).to_owned(),
            active_mtu: Some(port.active_mtu).filter(|mtu| *mtu > 0),
            max_mtu: Some(port.max_mtu).filter(|mtu| *mtu > 0),
            max_message_bytes: port.max_message,
            lid: Some(port.lid).filter(|_| port.link_layer == LinkLayer::InfiniBand),
            interfaces: has.interfaces.iter().cloned().collect(),
            addresses: has.addresses.iter().map(ToString::to_string).collect(),
            gids: port.gids.iter().map(GidLine::new).collect(),
        }
    }
}

impl GidLine {
    fn new(gid: &Gid) -> Self {
        Self {
            index: gid.index,
            address: gid.address.to_canonical().to_string(),
            kind: gid.kind.to_string(),
            interface: gid.interface.clone(),
        }
    }
}

/// The protocol on the wire of a port.
fn protocol(transport: Transport, port: &Port) -> &'static str {
    let has = |kind| port.gids.iter().any(|gid| gid.kind == kind);
    match (transport, port.link_layer) {
        (Transport::Iwarp, _) => "iWARP",
        (Transport::InfiniBand, LinkLayer::InfiniBand) => "InfiniBand",
        (Transport::InfiniBand, LinkLayer::Ethernet) => {
            match (has(GidKind::RoceV1), has(GidKind::RoceV2)) {
                (true, true) => "RoCE v1, v2",
                (true, false) => "RoCE v1",
                (false, true) => "RoCE v2",
                (false, false) => "RoCE",
            }
        }
        _ => "unknown",
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use rpcrdma::any::devices::Unusable;
    use std::io::{self, ErrorKind};
    use verbs_ibv::{Device, DeviceLimits, Guid, NodeType, PortState};

    /// A device as rxe is.
    pub(in crate::devices) fn device(name: &str) -> Device {
        let gid = |index, address: &str| Gid {
            index,
            address: address.parse().unwrap(),
            kind: GidKind::RoceV2,
            interface: Some("eth0".to_owned()),
        };
        let port = Port {
            number: 1,
            link_layer: LinkLayer::Ethernet,
            state: PortState::Active,
            active_mtu: 1024,
            max_mtu: 4096,
            max_message: 1 << 23,
            lid: 0,
            gids: vec![gid(0, "fe80::1"), gid(1, "::ffff:192.0.2.1")],
        };
        let attributes = Attributes {
            firmware: "0.0.0".to_owned(),
            node_guid: Guid(1),
            system_image_guid: Guid(2),
            vendor_id: 0xff_ffff,
            part_id: 3,
            hardware_version: 4,
            limits: DeviceLimits {
                queue_pairs: 1000,
                work_requests: 2000,
                pieces: 32,
                read_pieces: 31,
                completion_queues: 3000,
                completions: 32767,
                regions: 4000,
                region_bytes: u64::MAX,
                windows: 5000,
                protection_domains: 6000,
                inbound_reads: 128,
                outstanding_reads: 127,
                shared_receive_queues: 7000,
            },
            windows: Windows::Type2B,
            memory_management_extensions: true,
            ports: vec![port],
        };
        Device {
            name: name.to_owned(),
            node: NodeType::ChannelAdapter,
            transport: Transport::InfiniBand,
            attributes: Ok(attributes),
        }
    }

    /// A device that cannot be opened.
    pub(in crate::devices) fn unopened(name: &str, why: ErrorKind) -> Device {
        Device {
            attributes: Err(io::Error::from(why)),
            ..device(name)
        }
    }

    /// A device with other attributes.
    pub(in crate::devices) fn changed(change: impl FnOnce(&mut Attributes)) -> Device {
        let mut device = device("rxe0");
        if let Ok(attributes) = &mut device.attributes {
            change(attributes);
        }
        device
    }

    /// A device on a machine with an interface `eth0`.
    pub(in crate::devices) fn info(device: Device) -> DeviceInfo {
        let ports = device
            .attributes
            .as_ref()
            .map_or(0, |found| found.ports.len());
        let has = PortAddresses {
            interfaces: ["eth0".to_owned()].into(),
            addresses: vec!["192.0.2.1".parse().unwrap()],
        };
        let unusable = match device.attributes {
            Ok(_) => None,
            Err(_) => Some(Unusable::NoDriver),
        };
        DeviceInfo {
            device,
            ports: vec![has; ports],
            unusable,
        }
    }

    pub(in crate::devices) fn line(device: Device) -> Line {
        Line::new(&info(device))
    }

    #[test]
    fn output_is_what_the_schema_says() {
        let schema = serde_json::to_value(schemars::schema_for!(Line)).unwrap();
        let validator = jsonschema::draft202012::new(&schema).unwrap();
        for device in [device("rxe0"), unopened("mlx5_0", ErrorKind::NotFound)] {
            let printed = printing::json::line(&line(device)).unwrap();
            let printed = serde_json::from_str(&printed).unwrap();
            assert!(validator.is_valid(&printed), "{printed}");
        }
    }

    #[test]
    fn line_says_whether_the_device_is_used_and_why_not() {
        let usable = line(device("rxe0"));
        assert!(usable.usable && usable.used_by_auto);
        let mut siw = device("siw0");
        siw.transport = Transport::Iwarp;
        let siw = line(siw);
        assert!(siw.usable && !siw.used_by_auto);
        let mut down = info(device("rxe0"));
        down.unusable = Some(Unusable::NoActivePort);
        let down = Line::new(&down);
        assert!(!down.usable && !down.used_by_auto);
        assert_eq!(down.unusable_because.as_deref(), Some("no port is active"));
    }

    #[test]
    fn peer_can_invalidate_only_what_is_exposed_by_windows() {
        let check = |windows: Windows, exposure: &str| {
            let line = line(changed(|found| found.windows = windows));
            let found = line.attributes.unwrap();
            assert_eq!(found.remote_access, exposure);
            assert_eq!(found.remote_invalidation, exposure == WINDOWS);
        };
        check(Windows::Type2A, WINDOWS);
        check(Windows::Type2B, WINDOWS);
        check(Windows::Type1, REGISTRATION);
        check(Windows::None, REGISTRATION);
        let reason = "Cannot allocate memory".to_owned();
        check(Windows::Refused { reason }, REGISTRATION);
    }

    #[test]
    fn protocol_is_named_by_transport_link_and_addresses() {
        let protocol = |change: &dyn Fn(&mut Port)| {
            let line = line(changed(|found| change(&mut found.ports[0])));
            line.attributes.unwrap().ports.remove(0).protocol
        };
        assert_eq!(protocol(&|_| {}), "RoCE v2");
        assert_eq!(
            protocol(&|port| port.gids[0].kind = GidKind::RoceV1),
            "RoCE v1, v2"
        );
        assert_eq!(protocol(&|port| port.gids.clear()), "RoCE");
        assert_eq!(
            protocol(&|port| port.link_layer = LinkLayer::InfiniBand),
            "InfiniBand"
        );
    }

    #[test]
    fn port_is_shown_with_its_interfaces_and_addresses() {
        let port = line(device("rxe0")).attributes.unwrap().ports.remove(0);
        assert_eq!(port.addresses, ["192.0.2.1"]);
        assert_eq!(port.interfaces, ["eth0"]);
    }
}
