//! RDMA devices of this machine, and which of them connections use.

pub use super::device_info::{DeviceInfo, PortAddresses, Unusable};

use super::device_info::why_unlisted;
use super::interfaces::Interfaces;
use super::open_error::OpenError;
use super::options::Selection;
use crate::ibv::{self, Device, Ibv};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;

/// Folder in which the kernel lists its RDMA devices, whether or not programs can use them.
const KERNEL_DEVICES: &str = "/sys/class/infiniband";

/// All RDMA devices of this machine.
#[derive(Debug)]
pub struct Devices {
    /// Those that libibverbs lists.
    pub listed: Vec<DeviceInfo>,
    /// Names of others that the kernel has, and why programs cannot use these.
    pub unlisted: Vec<(String, Unusable)>,
}

/// Why the devices of this machine are not known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FindError {
    /// There are none, or libraries or kernel do not list them.
    #[error(transparent)]
    Devices(#[from] OpenError),
    /// The kernel does not list network interfaces.
    #[error(transparent)]
    Interfaces(#[from] io::Error),
}

/// Finds all RDMA devices, and whether they can be used.
///
/// # Errors
///
/// If there are none, or they cannot be listed.
pub fn find() -> Result<Devices, FindError> {
    let kernel = kernel_devices();
    let devices = match ibv::devices() {
        Ok(devices) if !devices.is_empty() || !kernel.is_empty() => devices,
        Ok(_) => return Err(OpenError::NoDevice { device: None }.into()),
        Err(error) => return Err(open_error(error, None).into()),
    };
    let unlisted = unlisted(&kernel, &devices)
        .map(|name| (name.clone(), why_unlisted(name)))
        .collect();
    let interfaces = Interfaces::read()?;
    let no_connections = match Ibv::open(ibv::Config::default()) {
        Err(ibv::OpenError::ConnectionManager { reason }) => Some(reason),
        _ => None,
    };
    let devices = devices.into_iter();
    let listed = devices
        .map(|device| DeviceInfo::new(device, &interfaces, no_connections.as_deref()))
        .collect();
    Ok(Devices { listed, unlisted })
}

/// Names of the kernel's RDMA devices, in order. A machine without the modules has none.
pub fn kernel_devices() -> Vec<String> {
    devices_in(Path::new(KERNEL_DEVICES))
}

/// The names of devices by the IP addresses of their ports, as far as ports tell these: those of InfiniBand do not.
pub fn names_by_address() -> BTreeMap<IpAddr, String> {
    let all = infos().into_iter().flat_map(|info| {
        let addresses = info.ports.into_iter().flat_map(|port| port.addresses);
        addresses.map(move |addr| (addr, info.device.name.clone()))
    });
    all.collect()
}

/// The names of devices that connections may use, as far as they are known.
pub fn usable_names(selection: &Selection) -> Vec<String> {
    let (device, beside_software) = match selection {
        Selection::Any(device) => (device.as_deref(), true),
        Selection::Devices(device) => (device.as_deref(), false),
        Selection::Software => return Vec::new(),
    };
    if beside_software && check_kernel(Path::new(KERNEL_DEVICES), device).is_err() {
        return Vec::new();
    }
    let usable = infos().into_iter().filter(|info| match beside_software {
        true => info.is_used_beside_software(),
        false => info.unusable.is_none(),
    });
    let names = usable.map(|info| info.device.name);
    names
        .filter(|name| device.is_none_or(|device| device == name))
        .collect()
}

/// All devices that libibverbs lists.
fn infos() -> Vec<DeviceInfo> {
    let (Ok(devices), Ok(interfaces)) = (ibv::devices(), Interfaces::read()) else {
        return Vec::new();
    };
    let devices = devices.into_iter();
    devices
        .map(|device| DeviceInfo::new(device, &interfaces, None))
        .collect()
}

/// The error of listing or opening devices, or the one that was named.
pub(super) fn open_error(error: ibv::OpenError, device: Option<&str>) -> OpenError {
    let device = device.map(str::to_owned);
    match error {
        ibv::OpenError::NoDevice => OpenError::NoDevice { device },
        // Without a device nobody has loaded the module that programs ask for one.
        ibv::OpenError::List { .. } if kernel_devices().is_empty() => {
            OpenError::NoDevice { device }
        }
        error => error.into(),
    }
}

/// The devices to use beside software iWARP, or the one of this name. The libraries are loaded only if the kernel has a
/// device that is not for iWARP: software iWARP reaches the peers of these, too.
///
/// # Errors
///
/// Why there are none.
pub(super) fn open_beside_software(device: Option<&str>) -> Result<Ibv, OpenError> {
    check_kernel(Path::new(KERNEL_DEVICES), device)?;
    let config = ibv::Config {
        device: device.map(str::to_owned),
        without_iwarp: true,
    };
    Ibv::open(config).map_err(|error| match error {
        ibv::OpenError::NoDevice => OpenError::NoDriver,
        error => error.into(),
    })
}

/// Whether the kernel has a device, of this name if there is one, that is not for iWARP. Of a name that it does not
/// know, the library can say more.
fn check_kernel(dir: &Path, device: Option<&str>) -> Result<(), OpenError> {
    let all = devices_in(dir);
    let named = || device.map(str::to_owned);
    if all.is_empty() {
        return Err(OpenError::NoDevice { device: named() });
    }
    let is_iwarp = |name: &String| {
        let kind = fs::read_to_string(dir.join(name).join("node_type"));
        kind.is_ok_and(|kind| kind.contains("RNIC"))
    };
    let mut asked_for = all
        .iter()
        .filter(|name| device.is_none_or(|device| device == *name))
        .peekable();
    match asked_for.peek().is_some() && asked_for.all(is_iwarp) {
        true => Err(OpenError::OnlyIwarp { device: named() }),
        false => Ok(()),
    }
}

fn devices_in(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    names
}

/// Devices of the kernel that libibverbs does not list.
fn unlisted<'a>(kernel: &'a [String], devices: &'a [Device]) -> impl Iterator<Item = &'a String> {
    kernel
        .iter()
        .filter(|name| devices.iter().all(|device| device.name != **name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ibv::{NodeType, Transport};
    use std::io::ErrorKind;

    #[test]
    fn kernel_tells_whether_there_is_a_device_that_is_not_for_iwarp() {
        let dir = tempfile::tempdir().unwrap();
        let check = |device: Option<&str>| match check_kernel(dir.path(), device) {
            Ok(()) => "one",
            Err(OpenError::NoDevice { device: named }) => {
                assert_eq!(named.as_deref(), device);
                "none"
            }
            Err(OpenError::OnlyIwarp { device: named }) => {
                assert_eq!(named.as_deref(), device);
                "iWARP"
            }
            Err(error) => panic!("{error}"),
        };
        let add = |name: &str, kind: &str| {
            let device = dir.path().join(name);
            fs::create_dir(&device).unwrap();
            fs::write(device.join("node_type"), kind).unwrap();
        };
        assert_eq!(check(None), "none");
        add("siw0", "4: RNIC\n");
        assert_eq!((check(None), check(Some("siw0"))), ("iWARP", "iWARP"));
        assert_eq!(
            check(Some("rxe0")),
            "one",
            "the library says which there are"
        );
        add("rxe0", "1: CA\n");
        assert_eq!((check(None), check(Some("rxe0"))), ("one", "one"));
        assert_eq!(check(Some("siw0")), "iWARP");
        assert!(check_kernel(Path::new("/nowhere"), None).is_err());
    }

    #[test]
    fn device_of_the_kernel_that_libibverbs_does_not_list_is_noticed() {
        let kernel = ["mlx5_0", "rxe0"].map(str::to_owned);
        let rxe = Device {
            name: "rxe0".to_owned(),
            node: NodeType::ChannelAdapter,
            transport: Transport::InfiniBand,
            attributes: Err(ErrorKind::NotFound.into()),
        };
        let listed = [rxe];
        let found: Vec<_> = unlisted(&kernel, &listed).collect();
        assert_eq!(found, ["mlx5_0"]);
    }
}
