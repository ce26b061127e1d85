//! A device with its addresses, and why programs cannot use it.

use super::interfaces::Interfaces;
use super::open_error::NO_DRIVER;
use crate::ibv::{Device, GidKind, LinkLayer, Port, PortState, Transport};
use oncrpc::plain;
use std::collections::BTreeSet;
use std::fs::{self, DirEntry, File};
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Advice where the file of a device cannot be opened.
const NO_PERMISSION: &str =
    "`ls -l /dev/infiniband` shows whom it permits; rdma_cm beside it is needed too";
const NO_FILE: &str =
    "`modprobe ib_uverbs` and udev make it; a container has to be given it, and rdma_cm beside it";

/// An RDMA device of this machine that libibverbs lists, with what connections need to know of it.
#[derive(Debug)]
pub struct DeviceInfo {
    /// The device.
    pub device: Device,
    /// Addresses of its ports, in their order; empty if the device could not be opened.
    pub ports: Vec<PortAddresses>,
    /// Why programs cannot use it now, if they cannot.
    pub unusable: Option<Unusable>,
}

/// The IP addresses of a port of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortAddresses {
    /// Names of the network interfaces that have them.
    pub interfaces: BTreeSet<String>,
    /// Addresses by which connections use the port, without those of one link (fe80::). InfiniBand ports do not tell theirs,
    /// which are those of IPoIB.
    pub addresses: Vec<IpAddr>,
}

/// Why programs cannot use a device. Its text is one line, with a remedy if one is known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unusable {
    /// libibverbs has no driver for it.
    #[error("{NO_DRIVER}")]
    NoDriver,
    /// There is no file to open it by.
    #[error("there is no {} ({NO_FILE})", .0.display())]
    NoFile(PathBuf),
    /// This process may not open its file.
    #[error("{}: {} ({NO_PERMISSION})", .0.display(), plain(.1))]
    NoPermission(PathBuf, io::Error),
    /// It cannot be opened for another reason.
    #[error("cannot open it: {}", plain(.0))]
    NotOpened(String),
    /// Connections cannot be made over it.
    #[error("its transport is neither InfiniBand nor iWARP")]
    Transport,
    /// No link is up.
    #[error("no port is active")]
    NoActivePort,
    /// No active port has an address.
    #[error("its interface has no IP address (`ip address add` gives it one)")]
    NoAddress,
    /// No device of this machine can make connections.
    #[error("{0}")]
    ConnectionManager(String),
}

impl DeviceInfo {
    /// `no_connections` is why no device of this machine can make connections, if none can.
    pub(super) fn new(
        device: Device,
        interfaces: &Interfaces,
        no_connections: Option<&str>,
    ) -> Self {
        let found = device.attributes.as_ref().ok();
        let ports = found.iter().flat_map(|found| &found.ports);
        let ports: Vec<_> = ports
            .map(|port| PortAddresses::new(device.transport, port, interfaces))
            .collect();
        let no_connections = || no_connections.map(str::to_owned);
        let unusable = why_unusable(&device, &ports)
            .or_else(|| no_connections().map(Unusable::ConnectionManager));
        Self {
            device,
            ports,
            unusable,
        }
    }

    /// Whether connections use it beside software iWARP, which reaches the peers of an iWARP device too.
    pub fn is_used_beside_software(&self) -> bool {
        self.unusable.is_none() && self.device.transport != Transport::Iwarp
    }
}

impl PortAddresses {
    fn new(transport: Transport, port: &Port, interfaces: &Interfaces) -> Self {
        let mut names = BTreeSet::new();
        let mut addresses = BTreeSet::new();
        for gid in &port.gids {
            names.extend(gid.interface.clone());
            match transport {
                // Its table has no IP addresses.
                Transport::Iwarp => {
                    names.extend(interfaces.of_iwarp(gid.address).map(str::to_owned));
                }
                _ if matches!(gid.kind, GidKind::RoceV1 | GidKind::RoceV2) => {
                    addresses.insert(gid.address.to_canonical());
                }
                _ => {}
            }
        }
        if transport == Transport::Iwarp {
            addresses.extend(names.iter().flat_map(|name| interfaces.addresses(name)));
        }
        Self {
            interfaces: names,
            addresses: addresses
                .into_iter()
                .filter(|address| !is_link_local(*address))
                .collect(),
        }
    }
}

/// Whether an address says nothing without the name of an interface.
pub(super) fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

fn why_unusable(device: &Device, ports: &[PortAddresses]) -> Option<Unusable> {
    let found = match &device.attributes {
        Ok(found) => found,
        Err(error) => return Some(why_not_open(device_file(&device.name), error)),
    };
    if !matches!(device.transport, Transport::InfiniBand | Transport::Iwarp) {
        return Some(Unusable::Transport);
    }
    let mut active = (found.ports.iter().zip(ports))
        .filter(|(port, _)| port.state == PortState::Active)
        .peekable();
    if active.peek().is_none() {
        return Some(Unusable::NoActivePort);
    }
    // Those of InfiniBand are of interfaces that its table does not name (IPoIB).
    let no_address = |(port, has): (&Port, &PortAddresses)| {
        port.link_layer != LinkLayer::InfiniBand && has.addresses.is_empty()
    };
    active.all(no_address).then_some(Unusable::NoAddress)
}

/// Why libibverbs does not list a device of the kernel.
pub(super) fn why_unlisted(name: &str) -> Unusable {
    explain_unlisted(device_file(name))
}

fn explain_unlisted(file: Option<PathBuf>) -> Unusable {
    match file {
        Some(file) if !file.exists() => Unusable::NoFile(file),
        _ => Unusable::NoDriver,
    }
}

/// The file by which programs use a device.
fn device_file(name: &str) -> Option<PathBuf> {
    let entries = fs::read_dir("/sys/class/infiniband_verbs").ok()?;
    let of_device = |entry: &DirEntry| {
        let device = fs::read_to_string(entry.path().join("ibdev"));
        device.is_ok_and(|device| device.trim_end() == name)
    };
    let entry = entries.flatten().find(of_device)?;
    Some(Path::new("/dev/infiniband").join(entry.file_name()))
}

/// The error of libibverbs is another one if there is no permission for the file, so the file is opened.
fn why_not_open(file: Option<PathBuf>, error: &io::Error) -> Unusable {
    let opened = file.map(|file| {
        let opened = File::options().read(true).write(true).open(&file);
        (file, opened)
    });
    match opened {
        Some((file, Err(error))) if error.kind() == ErrorKind::PermissionDenied => {
            Unusable::NoPermission(file, error)
        }
        _ => Unusable::NotOpened(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::any::interfaces::tests::interfaces;
    use crate::ibv::{Attributes, DeviceLimits, Gid, Guid, NodeType, Windows};

    /// A device as rxe is.
    fn device(name: &str) -> Device {
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
        let limits = DeviceLimits {
            queue_pairs: 1,
            work_requests: 1,
            pieces: 1,
            read_pieces: 1,
            completion_queues: 1,
            completions: 1,
            regions: 1,
            region_bytes: 1,
            windows: 1,
            protection_domains: 1,
            inbound_reads: 1,
            outstanding_reads: 1,
            shared_receive_queues: 1,
        };
        let attributes = Attributes {
            firmware: String::new(),
            node_guid: Guid(1),
            system_image_guid: Guid(2),
            vendor_id: 0,
            part_id: 0,
            hardware_version: 0,
            limits,
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

    /// A device with other attributes.
    fn changed(change: impl FnOnce(&mut Attributes)) -> Device {
        let mut device = device("rxe0");
        if let Ok(found) = &mut device.attributes {
            change(found);
        }
        device
    }

    fn info(device: Device) -> DeviceInfo {
        DeviceInfo::new(device, &interfaces(), None)
    }

    fn why(device: Device) -> Option<String> {
        info(device).unusable.map(|why| why.to_string())
    }

    #[test]
    fn device_is_usable_if_one_of_its_ports_is_active() {
        assert_eq!(why(device("rxe0")), None);
        let down = changed(|found| found.ports[0].state = PortState::Down);
        assert_eq!(why(down).as_deref(), Some("no port is active"));
        let denied = Device {
            attributes: Err(io::Error::from(ErrorKind::PermissionDenied)),
            ..device("rxe0")
        };
        let denied = info(denied);
        assert!(denied.unusable.is_some() && denied.ports.is_empty());
        let other = Device {
            transport: Transport::Other,
            ..device("usnic_0")
        };
        assert!(matches!(info(other).unusable, Some(Unusable::Transport)));
    }

    #[test]
    fn device_without_an_address_or_a_connection_manager_is_not_usable() {
        let without = info(changed(|found| found.ports[0].gids.truncate(1)));
        assert!(!without.is_used_beside_software());
        let text = without.unusable.unwrap().to_string();
        assert!(text.contains("no IP address (`ip address add`"), "{text}");
        let infiniband = changed(|found| {
            found.ports[0].gids.truncate(1);
            found.ports[0].link_layer = LinkLayer::InfiniBand;
        });
        assert_eq!(why(infiniband), None, "by an address of IPoIB");
        let none = DeviceInfo::new(device("rxe0"), &interfaces(), Some("load rdma_ucm"));
        assert_eq!(none.unusable.unwrap().to_string(), "load rdma_ucm");
    }

    #[test]
    fn addresses_are_those_of_the_table_or_of_the_interface_of_an_iwarp_device() {
        let ports = |interface: &str, address: &str| PortAddresses {
            interfaces: [interface.to_owned()].into(),
            addresses: vec![address.parse().unwrap()],
        };
        let roce = info(device("rxe0"));
        assert!(roce.is_used_beside_software());
        assert_eq!(roce.ports, [ports("eth0", "192.0.2.1")]);
        let siw = changed(|found| {
            found.ports[0].gids = vec![Gid {
                index: 0,
                address: "5254:0:1::".parse().unwrap(),
                kind: GidKind::InfiniBand,
                interface: None,
            }];
        });
        let siw = info(Device {
            transport: Transport::Iwarp,
            ..siw
        });
        assert!(siw.unusable.is_none() && !siw.is_used_beside_software());
        assert_eq!(siw.ports, [ports("eth0", "192.0.2.7")]);
    }

    #[test]
    fn device_without_its_file_is_reported_with_a_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let (missing, there) = (dir.path().join("uverbs0"), dir.path().join("uverbs1"));
        File::create(&there).unwrap();
        let text = explain_unlisted(Some(missing.clone())).to_string();
        let expected = format!("there is no {} (`modprobe ib_uverbs`", missing.display());
        assert!(text.starts_with(&expected), "{text}");
        for file in [None, Some(there.clone())] {
            assert_eq!(explain_unlisted(file).to_string(), NO_DRIVER);
        }
        let error = io::Error::from_raw_os_error(12);
        for file in [None, Some(there)] {
            let text = why_not_open(file, &error).to_string();
            assert_eq!(text, "cannot open it: Cannot allocate memory");
        }
    }
}
