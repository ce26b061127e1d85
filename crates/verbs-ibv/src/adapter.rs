//! A device as connections use it: its limits, how it exposes memory, and its protection domain.

#![expect(
    unsafe_code,
    reason = "the device belongs to the connection manager, which opened it"
)]

use crate::cm::CmId;
use crate::context::{device_attributes, device_name, port_attributes, transport_of};
use crate::devices::{Transport, claimed_windows, count, mtu, transport};
use crate::hardware::Sizes;
use crate::memory::Domain;
use crate::port_mapper;
use crate::sys::{IBV_LINK_LAYER_INFINIBAND, ibv_device_attr, ibv_port_attr};
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use verbs::{Invalidation, Limits, PrivateDataCapacity, QpOptions};

/// Work requests other than Receives that can be posted at a time on one connection.
pub(crate) const MAX_SENDS: usize = 1024;

/// Work requests in the device's send queue of one connection.
const SEND_QUEUE: u32 = 256;

/// Receives that can be posted at a time on one connection, whatever its options ask for.
const MAX_RECEIVES: usize = 1 << 14;

/// Regions that can be registered at a time on one connection.
const MAX_REGIONS: usize = 1024;

/// Bytes of the largest region.
const MAX_REGION: usize = 1 << 30;

/// Bytes of the largest message.
const MAX_MESSAGE: u32 = 1 << 30;

/// Pieces of one work request.
const MAX_PIECES: u32 = 16;

/// Read requests at a time, in each direction: the connection manager has 8 bits for them, and the last value has
/// another meaning.
const MAX_READS: u32 = 128;

/// Private data that the connection manager of InfiniBand and RoCE has room for, beside its own. iWARP has room for more
/// (in MPA 512 bytes, of which the interface counts 255), but a connection request is made before its device is known.
pub(crate) const PRIVATE_DATA: PrivateDataCapacity = PrivateDataCapacity {
    request: 56,
    accept: 196,
    reject: 148,
};

/// Vendor of the kernel's software RoCE device.
const SOFT_ROCE: u32 = 0x00ff_ffff;

/// Vendor of the kernel's software iWARP device.
const SOFT_IWARP: u32 = 0x0062_6d74;

/// A device, and the protection domain for connections over it.
pub(crate) struct Adapter {
    pub(crate) domain: Domain,
    pub(crate) name: String,
    pub(crate) transport: Transport,
    /// Whether memory is exposed by windows of type 2. Otherwise it is registered for each use, in a domain that
    /// belongs to one connection.
    pub(crate) windows: bool,
    /// The kernel's software RoCE, which differs in some ways from what the specification of InfiniBand asks for.
    pub(crate) is_soft_roce: bool,
    attributes: ibv_device_attr,
    port: ibv_port_attr,
}

impl Adapter {
    /// The adapter behind an identifier whose address is resolved. With `promised_windows`, peers are told that they may
    /// invalidate, so that a device that has windows is not used without.
    ///
    /// # Safety
    ///
    /// The identifier lives until the domain of the adapter, and all that is in it, is dropped.
    unsafe fn new(id: &CmId, promised_windows: bool) -> io::Result<Self> {
        let libraries = id.libraries();
        let context = id.context().ok_or_else(no_device)?;
        let attributes = device_attributes(libraries, context)?;
        let port = port_attributes(libraries, context, id.port())?;
        let transport = transport(transport_of(context));
        if transport == Transport::Other {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the device is neither InfiniBand, RoCE nor iWARP",
            ));
        }
        if transport == Transport::Iwarp && attributes.vendor_id != SOFT_IWARP {
            port_mapper::look_once(&device_name(libraries, context));
        }
        // SAFETY: The caller keeps the identifier, and with it the device open.
        let new_domain = |windows| unsafe { Domain::new(libraries, context, windows) };
        let claims_windows = claimed_windows(attributes.device_cap_flags).usable();
        let mut domain = new_domain(claims_windows)?;
        let mut windows = claims_windows;
        if claims_windows && let Err(error) = domain.window() {
            if promised_windows {
                return Err(error);
            }
            tracing::debug!(%error, "the device allocates no memory windows");
            windows = false;
            domain = new_domain(false)?;
        }
        Ok(Self {
            domain,
            name: device_name(libraries, context),
            transport,
            windows,
            is_soft_roce: attributes.vendor_id == SOFT_ROCE,
            attributes,
            port,
        })
    }

    /// Sizes of the queues of a connection with these options.
    pub(crate) fn sizes(&self, options: &QpOptions) -> Sizes {
        let most = count(self.attributes.max_qp_wr).max(1);
        let receives = u32::try_from(options.receives.clamp(1, MAX_RECEIVES)).unwrap_or(most);
        let sends = SEND_QUEUE.min(most);
        // One completion queue has room for all that can complete.
        let completions = count(self.attributes.max_cqe).saturating_sub(sends + 1);
        Sizes {
            sends,
            receives: receives.min(most).min(completions).max(1),
            pieces: MAX_PIECES.min(count(self.attributes.max_sge).max(1)),
        }
    }

    /// Upper bounds for the limits of connections over this device.
    pub(crate) fn upper_limits(&self) -> Limits {
        let options = QpOptions::default()
            .with_receives(MAX_RECEIVES)
            .with_outstanding_reads(MAX_READS as usize)
            .with_inbound_reads(MAX_READS as usize);
        self.limits(&options)
    }

    /// Limits of a connection with these options, before the depths are negotiated.
    pub(crate) fn limits(&self, options: &QpOptions) -> Limits {
        let depth = |wanted: usize, most: i32| wanted.min(count(most).min(MAX_READS) as usize);
        let regions = if self.windows {
            self.attributes.max_mw
        } else {
            self.attributes.max_mr
        };
        let region = usize::try_from(self.attributes.max_mr_size).unwrap_or(usize::MAX);
        Limits {
            receives: self.sizes(options).receives as usize,
            outstanding_reads: depth(
                options.outstanding_reads,
                self.attributes.max_qp_init_rd_atom,
            ),
            inbound_reads: depth(options.inbound_reads, self.attributes.max_qp_rd_atom),
            max_message: self.port.max_msg_sz.min(MAX_MESSAGE),
            regions: MAX_REGIONS.min(count(regions) as usize),
            max_region: MAX_REGION.min(region),
            remote_invalidation: if self.windows {
                Invalidation::Region
            } else {
                Invalidation::None
            },
            ..upper_limits()
        }
    }

    /// Description of the device for people.
    pub(crate) fn describe(&self) -> String {
        let protocol = match self.transport {
            Transport::Iwarp => "iWARP",
            _ if self.port.link_layer == IBV_LINK_LAYER_INFINIBAND => "InfiniBand",
            _ => "RoCE",
        };
        let exposes = if self.windows {
            "memory windows of type 2"
        } else {
            "a registration per use"
        };
        let mtu = match (self.transport, mtu(self.port.active_mtu)) {
            (Transport::Iwarp, _) | (_, 0) => String::new(),
            (_, mtu) => format!(", MTU {mtu}"),
        };
        format!("{protocol} on {}{mtu}, {exposes}", self.name)
    }
}

fn no_device() -> io::Error {
    io::Error::new(
        io::ErrorKind::NotFound,
        "no RDMA device has a way to this address; `rdma link` lists devices and their interfaces",
    )
}

/// Upper bounds for the limits of connections over any device.
pub(crate) fn upper_limits() -> Limits {
    Limits {
        private_data: PRIVATE_DATA,
        private_data_exact: false,
        receives: MAX_RECEIVES,
        shared_receives: false,
        holds_peer_back: false,
        sends: MAX_SENDS,
        outstanding_reads: MAX_READS as usize,
        inbound_reads: MAX_READS as usize,
        max_message: MAX_MESSAGE,
        regions: MAX_REGIONS,
        max_region: MAX_REGION,
        // A window of type 2 is bound to one registration, which is one range of addresses.
        parts: 0,
        remote_invalidation: Invalidation::Region,
        invalidations: 1,
        keepalive: false,
    }
}

/// The adapters in use. Connections over a device with windows share its protection domain, and so the registrations
/// of pooled memory.
#[derive(Default)]
pub(crate) struct Adapters(Mutex<HashMap<usize, Weak<Adapter>>>);

impl Adapters {
    /// The adapter of an identifier whose address is resolved.
    ///
    /// # Safety
    ///
    /// The caller drops the identifier behind the adapter and all that belongs to it.
    pub(crate) unsafe fn of(&self, id: &CmId, promised_windows: bool) -> io::Result<Arc<Adapter>> {
        let context = id.context().ok_or_else(no_device)?.as_ptr() as usize;
        let mut adapters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        adapters.retain(|_, adapter| adapter.strong_count() > 0);
        if let Some(adapter) = adapters.get(&context).and_then(Weak::upgrade) {
            return Ok(adapter);
        }
        // SAFETY: All users of the adapter hold identifiers of the same device, and drop them behind it: the last of
        // them keeps the device open.
        let adapter = Arc::new(unsafe { Adapter::new(id, promised_windows)? });
        if adapter.windows {
            adapters.insert(context, Arc::downgrade(&adapter));
        }
        Ok(adapter)
    }
}
