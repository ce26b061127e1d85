//! Why providers cannot be opened.

use crate::ibv;

/// Advice where there is no device.
const REMEDY: &str = "(the driver of a card makes one; without a card, `rdma link add rxe0 type rxe netdev eth0` makes \
                      a RoCE device of network card eth0, and type siw an iWARP device)";

/// Advice where libibverbs does not know a device of the kernel.
pub(super) const NO_DRIVER: &str = "libibverbs has no driver for it (install ibverbs-providers on Debian and Ubuntu, \
                                    libibverbs on Fedora and RHEL)";

/// Why the selected providers cannot be opened. Its text is one line, and names the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// This machine has no RDMA device, and so not the one that was named.
    #[error("{} {REMEDY}", none(.device.as_deref()))]
    NoDevice {
        /// The name that was asked for.
        device: Option<String>,
    },
    /// All devices of this machine, or the one that was named, are for iWARP, and so are not used beside software iWARP.
    #[error("{}: software iWARP reaches the same peers; select devices alone to use it", only_iwarp(.device.as_deref()))]
    OnlyIwarp {
        /// The name that was asked for.
        device: Option<String>,
    },
    /// The kernel has a device, and libibverbs has no driver for it.
    #[error("{NO_DRIVER}")]
    NoDriver,
    /// RDMA devices alone cannot listen with a socket, which is one of TCP.
    #[error(
        "RDMA devices cannot listen with a socket of TCP: select software iWARP too, or leave the socket out"
    )]
    TakesNoSocket,
    /// The thread that opened them panicked, or the runtime ends.
    #[error("{reason}")]
    Aborted {
        /// Message of the runtime.
        reason: String,
    },
    /// Libraries or kernel do not give access to RDMA devices.
    #[error(transparent)]
    Devices(#[from] ibv::OpenError),
}

fn none(device: Option<&str>) -> String {
    match device {
        None => "no RDMA device on this machine".to_owned(),
        Some(name) => format!("no RDMA device {name}: this machine has none"),
    }
}

fn only_iwarp(device: Option<&str>) -> String {
    match device {
        None => "this machine has iWARP devices alone".to_owned(),
        Some(name) => format!("{name} is an iWARP device"),
    }
}
