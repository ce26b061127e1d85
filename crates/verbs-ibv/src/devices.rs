//! RDMA devices of this machine: what they are, their ports and addresses, and what they can do.

use crate::context::{Context, DeviceList};
use crate::error::OpenError;
use crate::library::Libraries;
use crate::sys::{
    IBV_DEVICE_MEM_MGT_EXTENSIONS, IBV_DEVICE_MEM_WINDOW, IBV_DEVICE_MEM_WINDOW_TYPE_2A,
    IBV_DEVICE_MEM_WINDOW_TYPE_2B, IBV_GID_TYPE_IB, IBV_GID_TYPE_ROCE_V1, IBV_GID_TYPE_ROCE_V2,
    IBV_LINK_LAYER_ETHERNET, IBV_LINK_LAYER_INFINIBAND, IBV_NODE_CA, IBV_NODE_RNIC,
    IBV_NODE_ROUTER, IBV_NODE_SWITCH, IBV_PORT_ACTIVE, IBV_PORT_ARMED, IBV_PORT_DOWN,
    IBV_PORT_INIT, IBV_TRANSPORT_IB, IBV_TRANSPORT_IWARP, ibv_device_attr, ibv_gid_entry,
    ibv_port_attr,
};
use std::fmt;
use std::io;
use std::net::Ipv6Addr;

/// Addresses of one port that are listed.
const MAX_GIDS: usize = 256;

/// An RDMA device of this machine.
#[derive(Debug)]
pub struct Device {
    /// Name of the device, as in `/sys/class/infiniband`.
    pub name: String,
    /// Type of the device.
    pub node: NodeType,
    /// Its transport protocol.
    pub transport: Transport,
    /// Its attributes; the error if it cannot be opened, for instance for lack of permission.
    pub attributes: Result<Attributes, io::Error>,
}

/// Kind of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeType {
    /// Channel adapter: InfiniBand or RoCE.
    ChannelAdapter,
    /// InfiniBand switch.
    Switch,
    /// InfiniBand router.
    Router,
    /// RDMA network interface: iWARP.
    Rnic,
    /// Anything else.
    Other,
}

impl fmt::Display for NodeType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ChannelAdapter => "channel adapter",
            Self::Switch => "switch",
            Self::Router => "router",
            Self::Rnic => "RNIC",
            Self::Other => "other",
        })
    }
}

/// Transport protocol of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transport {
    /// InfiniBand, over InfiniBand links or over Ethernet (RoCE).
    InfiniBand,
    /// iWARP, over TCP.
    Iwarp,
    /// Anything else, which this crate does not use.
    Other,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InfiniBand => "InfiniBand",
            Self::Iwarp => "iWARP",
            Self::Other => "other",
        })
    }
}

/// Attributes of a device, as it states them.
#[derive(Clone, Debug)]
pub struct Attributes {
    /// Version of the firmware.
    pub firmware: String,
    /// GUID of the device.
    pub node_guid: Guid,
    /// GUID shared by the devices of one card.
    pub system_image_guid: Guid,
    /// Vendor, an IEEE OUI.
    pub vendor_id: u32,
    /// Part number of the vendor.
    pub part_id: u32,
    /// Version of the hardware.
    pub hardware_version: u32,
    /// Limits of the device.
    pub limits: DeviceLimits,
    /// Memory windows that it has.
    pub windows: Windows,
    /// Whether it has the memory management extensions, of which Send with Invalidate is one.
    pub memory_management_extensions: bool,
    /// Its ports.
    pub ports: Vec<Port>,
}

/// Limits of a device, for all its users together unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceLimits {
    /// Queue pairs.
    pub queue_pairs: u32,
    /// Work requests in each queue of a queue pair.
    pub work_requests: u32,
    /// Pieces of one work request.
    pub pieces: u32,
    /// Pieces of one RDMA Read.
    pub read_pieces: u32,
    /// Completion queues.
    pub completion_queues: u32,
    /// Entries of one completion queue.
    pub completions: u32,
    /// Memory regions.
    pub regions: u32,
    /// Bytes of the largest memory region.
    pub region_bytes: u64,
    /// Memory windows.
    pub windows: u32,
    /// Protection domains.
    pub protection_domains: u32,
    /// RDMA Reads of the peer that one queue pair serves at a time (IRD).
    pub inbound_reads: u32,
    /// RDMA Reads that one queue pair has outstanding at a time (ORD).
    pub outstanding_reads: u32,
    /// Shared receive queues.
    pub shared_receive_queues: u32,
}

/// Memory windows of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Windows {
    /// It has none.
    None,
    /// It has windows of type 1 only, which are not bound to a connection. This crate does not use them.
    Type1,
    /// It has windows of type 2A, bound to a queue pair by its number.
    Type2A,
    /// It has windows of type 2B, bound to a queue pair and its protection domain.
    Type2B,
    /// It claims windows of type 2, but none is allocated: it refuses to, or its peers could not invalidate them.
    Refused {
        /// Message of the system, or what the device lacks.
        reason: String,
    },
}

impl Windows {
    /// Whether memory can be exposed to one connection by a window, and invalidated by its peer.
    pub fn usable(&self) -> bool {
        matches!(self, Self::Type2A | Self::Type2B)
    }
}

impl fmt::Display for Windows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Type1 => f.write_str("type 1"),
            Self::Type2A => f.write_str("type 2A"),
            Self::Type2B => f.write_str("type 2B"),
            Self::Refused { reason } => write!(f, "type 2, but none is allocated: {reason}"),
        }
    }
}

/// A port of a device.
#[derive(Clone, Debug)]
pub struct Port {
    /// Number of the port, from 1.
    pub number: u8,
    /// Link layer of its packets.
    pub link_layer: LinkLayer,
    /// State of the link.
    pub state: PortState,
    /// MTU in use, in bytes; 0 if the device names none.
    pub active_mtu: u16,
    /// Largest MTU, in bytes; 0 if the device names none.
    pub max_mtu: u16,
    /// Bytes of the largest message.
    pub max_message: u32,
    /// Local identifier on InfiniBand; 0 elsewhere.
    pub lid: u16,
    /// Its addresses, at most 256.
    pub gids: Vec<Gid>,
}

/// Link layer of the packets of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkLayer {
    /// InfiniBand.
    InfiniBand,
    /// Ethernet: RoCE or iWARP.
    Ethernet,
    /// The device does not say.
    Unspecified,
}

impl fmt::Display for LinkLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InfiniBand => "InfiniBand",
            Self::Ethernet => "Ethernet",
            Self::Unspecified => "unspecified",
        })
    }
}

/// State of the link of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PortState {
    /// No link.
    Down,
    /// The link is there; on InfiniBand a subnet manager has not configured it yet.
    Init,
    /// Configured, and not in use yet.
    Armed,
    /// In use.
    Active,
    /// Anything else.
    Other,
}

impl fmt::Display for PortState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Down => "down",
            Self::Init => "initializing",
            Self::Armed => "armed",
            Self::Active => "active",
            Self::Other => "other",
        })
    }
}

/// An address of a port (GID). On Ethernet it contains an IP address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gid {
    /// Index in the table of the port.
    pub index: u32,
    /// The address; one of IPv4 is mapped.
    pub address: Ipv6Addr,
    /// Kind of network that it is an address in.
    pub kind: GidKind,
    /// Name of the network interface that it belongs to, if there is one.
    pub interface: Option<String>,
}

/// Protocol of packets with an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GidKind {
    /// InfiniBand, or the only kind of an iWARP device.
    InfiniBand,
    /// RoCE version 1, over Ethernet.
    RoceV1,
    /// RoCE version 2, over UDP.
    RoceV2,
    /// Anything else.
    Other,
}

impl fmt::Display for GidKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InfiniBand => "IB",
            Self::RoceV1 => "RoCE v1",
            Self::RoceV2 => "RoCE v2",
            Self::Other => "other",
        })
    }
}

/// A global identifier of 64 bits, shown as in `rdma dev`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guid(pub u64);

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d] = [48, 32, 16, 0].map(|shift| (self.0 >> shift) & 0xffff);
        write!(f, "{a:04x}:{b:04x}:{c:04x}:{d:04x}")
    }
}

/// Lists the RDMA devices of this machine. None is no error.
///
/// # Errors
///
/// If the libraries of rdma-core are missing or too old, or the kernel has no interface for programs.
pub fn devices() -> Result<Vec<Device>, OpenError> {
    devices_of(Libraries::get()?)
}

/// [`devices`] over these libraries.
pub(crate) fn devices_of(libraries: &'static Libraries) -> Result<Vec<Device>, OpenError> {
    let list = DeviceList::new(libraries)?;
    let describe = |index| Device {
        name: list.name(index),
        node: match list.node_type(index) {
            IBV_NODE_CA => NodeType::ChannelAdapter,
            IBV_NODE_SWITCH => NodeType::Switch,
            IBV_NODE_ROUTER => NodeType::Router,
            IBV_NODE_RNIC => NodeType::Rnic,
            _ => NodeType::Other,
        },
        transport: transport(list.transport_type(index)),
        attributes: list.open(index).and_then(|context| attributes(&context)),
    };
    Ok((0..list.len()).map(describe).collect())
}

pub(crate) fn transport(number: i32) -> Transport {
    match number {
        IBV_TRANSPORT_IB => Transport::InfiniBand,
        IBV_TRANSPORT_IWARP => Transport::Iwarp,
        _ => Transport::Other,
    }
}

fn attributes(context: &Context) -> io::Result<Attributes> {
    let found = context.attributes()?;
    let ports = (1..=found.phys_port_cnt).map(|number| {
        let port = context.port(number)?;
        Ok(describe_port(number, &port, context.gids(number, &port)))
    });
    let ports = ports.collect::<io::Result<_>>()?;
    let text = found.fw_ver.iter().map(|byte| byte.cast_unsigned());
    let text: Vec<u8> = text.take_while(|byte| *byte != 0).collect();
    Ok(Attributes {
        firmware: String::from_utf8_lossy(&text).into_owned(),
        node_guid: Guid(u64::from_be(found.node_guid)),
        system_image_guid: Guid(u64::from_be(found.sys_image_guid)),
        vendor_id: found.vendor_id,
        part_id: found.vendor_part_id,
        hardware_version: found.hw_ver,
        limits: limits(&found),
        windows: windows(context, &found),
        memory_management_extensions: found.device_cap_flags & IBV_DEVICE_MEM_MGT_EXTENSIONS != 0,
        ports,
    })
}

/// A limit that a device gives as a number with a sign.
pub(crate) fn count(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

fn limits(found: &ibv_device_attr) -> DeviceLimits {
    DeviceLimits {
        queue_pairs: count(found.max_qp),
        work_requests: count(found.max_qp_wr),
        pieces: count(found.max_sge),
        read_pieces: count(found.max_sge_rd),
        completion_queues: count(found.max_cq),
        completions: count(found.max_cqe),
        regions: count(found.max_mr),
        region_bytes: found.max_mr_size,
        windows: count(found.max_mw),
        protection_domains: count(found.max_pd),
        inbound_reads: count(found.max_qp_rd_atom),
        outstanding_reads: count(found.max_qp_init_rd_atom),
        shared_receive_queues: count(found.max_srq),
    }
}

/// Which windows a device has. What it claims is tried, with a window that is not bound to anything.
pub(crate) fn windows(context: &Context, found: &ibv_device_attr) -> Windows {
    let claimed = claimed_windows(found.device_cap_flags);
    if !claimed.usable() {
        return claimed;
    }
    match context.try_window() {
        Ok(()) => claimed,
        Err(error) => Windows::Refused {
            reason: error.to_string(),
        },
    }
}

/// Which windows a device claims to have by its capabilities. Whether connections over it use windows, and so whether a
/// peer is told that it may invalidate, is concluded from this alone, and from whether one is allocated.
pub(crate) fn claimed_windows(flags: u32) -> Windows {
    let type_2 = IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
    // Send with Invalidate, and the invalidation of a window by this end, are among the extensions.
    if flags & type_2 != 0 && flags & IBV_DEVICE_MEM_MGT_EXTENSIONS == 0 {
        let reason = "the device has no memory management extensions".into();
        return Windows::Refused { reason };
    }
    if flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B != 0 {
        Windows::Type2B
    } else if flags & IBV_DEVICE_MEM_WINDOW_TYPE_2A != 0 {
        Windows::Type2A
    } else if flags & IBV_DEVICE_MEM_WINDOW != 0 {
        Windows::Type1
    } else {
        Windows::None
    }
}

fn describe_port(number: u8, port: &ibv_port_attr, gids: Vec<ibv_gid_entry>) -> Port {
    Port {
        number,
        link_layer: match port.link_layer {
            IBV_LINK_LAYER_INFINIBAND => LinkLayer::InfiniBand,
            IBV_LINK_LAYER_ETHERNET => LinkLayer::Ethernet,
            _ => LinkLayer::Unspecified,
        },
        state: match port.state {
            IBV_PORT_DOWN => PortState::Down,
            IBV_PORT_INIT => PortState::Init,
            IBV_PORT_ARMED => PortState::Armed,
            IBV_PORT_ACTIVE => PortState::Active,
            _ => PortState::Other,
        },
        active_mtu: mtu(port.active_mtu),
        max_mtu: mtu(port.max_mtu),
        max_message: port.max_msg_sz,
        lid: port.lid,
        gids: gids.into_iter().take(MAX_GIDS).map(describe_gid).collect(),
    }
}

/// Bytes of an MTU, of which the headers number five.
pub(crate) fn mtu(number: i32) -> u16 {
    match number {
        1..=5 => 128 << number,
        _ => 0,
    }
}

fn describe_gid(entry: ibv_gid_entry) -> Gid {
    Gid {
        index: entry.gid_index,
        address: Ipv6Addr::from(entry.gid.raw),
        kind: match entry.gid_type {
            IBV_GID_TYPE_IB => GidKind::InfiniBand,
            IBV_GID_TYPE_ROCE_V1 => GidKind::RoceV1,
            IBV_GID_TYPE_ROCE_V2 => GidKind::RoceV2,
            _ => GidKind::Other,
        },
        interface: crate::context::interface_name(entry.ndev_ifindex),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mtu_numbers_are_powers_of_two_from_256() {
        assert_eq!([1, 2, 3, 4, 5].map(mtu), [256, 512, 1024, 2048, 4096]);
        assert_eq!([0, 6, -1].map(mtu), [0; 3]);
    }

    #[test]
    fn windows_of_type_2b_come_first() {
        let type_2a = IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_MGT_EXTENSIONS;
        let both = type_2a | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
        assert_eq!(claimed_windows(both), Windows::Type2B);
        assert_eq!(claimed_windows(type_2a), Windows::Type2A);
        assert_eq!(claimed_windows(IBV_DEVICE_MEM_WINDOW), Windows::Type1);
        assert!(!claimed_windows(0).usable());
    }

    #[test]
    fn guid_is_shown_in_four_groups() {
        assert_eq!(
            Guid(0x0002_c903_0000_1f2a).to_string(),
            "0002:c903:0000:1f2a"
        );
    }

    /// On a machine with the libraries there is a list, which may be empty; elsewhere an error names the packages.
    #[test]
    fn devices_are_listed_or_the_error_names_a_remedy() {
        match devices() {
            Ok(devices) => {
                for device in devices {
                    assert!(!device.name.is_empty());
                }
            }
            Err(error) => {
                let text = error.to_string();
                assert!(
                    text.contains("install ") || text.contains("modprobe"),
                    "{text}"
                );
                assert!(!text.contains('\n'), "{text}");
            }
        }
    }
}
