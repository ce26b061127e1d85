//! `rpcrdma devices`: lists the RDMA devices of this machine.

mod interfaces;
mod line;
mod opening;
mod text;

use self::interfaces::Interfaces;
pub(crate) use self::line::Line;

use crate::failure::Ended;
use crate::output;
use anyhow::{anyhow, bail};
use clap::Args;
use nfs_client::printable;
use printing::json;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::path::Path;
use verbs_ibv::{Device, Ibv, OpenError};

/// List the RDMA devices of this machine, and how this program would use them
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  rpcrdma devices
      a table of all ports
  rpcrdma devices -l rxe0
      everything about one device
  rpcrdma devices --json
      the same for programs, one JSON object per line

`access by` tells how the peer gets access to the memory of a call: by memory windows, which it can \
invalidate together with its reply, or by a registration for each call, which is slower and which \
it cannot invalidate.

Exit codes: 0 there is a device and every one could be opened, with an active port or without, 1 \
otherwise, 2 wrong command line.")]
pub(crate) struct DevicesArgs {
    /// Show only these
    #[arg(value_name = "DEVICE")]
    names: Vec<String>,

    /// Show everything about each device: addresses, limits, identifiers
    #[arg(short, long, conflicts_with = "json")]
    long: bool,

    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// Advice where there is no device.
const REMEDY: &str = "(the driver of a card makes one; without a card, `rdma link add rxe0 type rxe netdev eth0` makes \
                      a RoCE device of network card eth0, and type siw an iWARP device)";

/// Folder in which the kernel lists its RDMA devices, whether or not programs can use them.
const KERNEL_DEVICES: &str = "/sys/class/infiniband";

/// Runs the command.
pub(crate) fn run(args: &DevicesArgs) -> anyhow::Result<Ended> {
    let kernel = kernel_devices();
    let devices = match verbs_ibv::devices() {
        Ok(devices) if !devices.is_empty() || !kernel.is_empty() => devices,
        Ok(_) => return Err(none(None)),
        Err(error) => return Err(explain(error, None)),
    };
    let mut ended = Ended::Well;
    for name in unlisted(&kernel, &devices, &args.names) {
        let why = opening::why_unlisted(name);
        ended.failed(&anyhow!("{}: {why}", printable(name.as_bytes())));
    }
    let devices = named(devices, &kernel, &args.names)?;
    let interfaces = Interfaces::read()?;
    let no_connections = match Ibv::open(verbs_ibv::Config::default()) {
        Err(OpenError::ConnectionManager { reason }) => Some(reason),
        _ => None,
    };
    let mut lines = Vec::with_capacity(devices.len());
    for device in &devices {
        let line = Line::new(device, &interfaces, no_connections.as_deref());
        if let (None, Some(why)) = (&line.attributes, &line.unusable_because) {
            let name = printable(device.name.as_bytes());
            ended.failed(&anyhow!("{name}: {why}"));
        }
        lines.push(line);
    }
    if !lines.is_empty() {
        ended.check(print(&lines, args))?;
    }
    Ok(ended)
}

fn print(lines: &[Line], args: &DevicesArgs) -> anyhow::Result<()> {
    let mut out = output::stdout();
    match (args.json, args.long) {
        (true, _) => {
            for line in lines {
                writeln!(out, "{}", json::line(line)?)?;
            }
        }
        (false, true) => write!(out, "{}", text::long(lines))?,
        (false, false) => write!(out, "{}", text::table(lines))?,
    }
    Ok(())
}

/// Why RDMA devices, or the one that was named, cannot be listed or used, and what to do.
pub(crate) fn explain(error: OpenError, device: Option<&str>) -> anyhow::Error {
    match error {
        OpenError::NoDevice => none(device),
        // Without a device nobody has loaded the module that programs ask for one.
        OpenError::List { .. } if kernel_devices().is_empty() => none(device),
        error => error.into(),
    }
}

/// That there is no device, and so not the one that was named.
pub(crate) fn none(device: Option<&str>) -> anyhow::Error {
    match device {
        None => anyhow!("no RDMA device on this machine {REMEDY}"),
        Some(name) => {
            let name = printable(name.as_bytes());
            anyhow!("no RDMA device {name}: this machine has none {REMEDY}")
        }
    }
}

/// Why no RDMA device is used beside software iWARP.
pub(crate) enum NoDevices {
    /// The kernel has none.
    Absent,
    /// They are for iWARP.
    OnlyIwarp,
    /// The kernel has some, but programs cannot use them.
    Unusable(anyhow::Error),
}

/// The devices to use beside software iWARP, or the one of this name. The libraries are loaded only if the kernel has a
/// device that is not for iWARP: software iWARP reaches the peers of these, too.
///
/// # Errors
///
/// Why there are none.
pub(crate) fn open_beside_software(device: Option<&str>) -> Result<Ibv, NoDevices> {
    check_kernel(Path::new(KERNEL_DEVICES), device)?;
    let config = verbs_ibv::Config {
        device: device.map(str::to_owned),
        without_iwarp: true,
    };
    Ibv::open(config).map_err(|error| {
        NoDevices::Unusable(match error {
            OpenError::NoDevice => anyhow!(opening::NO_DRIVER),
            error => error.into(),
        })
    })
}

/// Whether the kernel has a device, of this name if there is one, that is not for iWARP. Of a name that it does not
/// know, the library can say more.
fn check_kernel(dir: &Path, device: Option<&str>) -> Result<(), NoDevices> {
    let all = devices_in(dir);
    if all.is_empty() {
        return Err(NoDevices::Absent);
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
        true => Err(NoDevices::OnlyIwarp),
        false => Ok(()),
    }
}

/// The names of devices by the IP addresses of their ports, as far as ports tell these: those of InfiniBand do not.
pub(crate) fn names_by_address() -> BTreeMap<IpAddr, String> {
    let addresses = |line: &Line| -> Vec<IpAddr> {
        let ports = line.attributes.iter().flat_map(|found| &found.ports);
        let addresses = ports.flat_map(|port| &port.addresses);
        addresses.filter_map(|text| text.parse().ok()).collect()
    };
    let all = lines().into_iter().flat_map(|line| {
        let addresses = addresses(&line).into_iter();
        addresses.map(move |addr| (addr, line.name.clone()))
    });
    all.collect()
}

/// The names of devices that can be used, or of the one of this name.
pub(crate) fn usable_names(device: Option<&str>, without_iwarp: bool) -> Vec<String> {
    if check_kernel(Path::new(KERNEL_DEVICES), device).is_err() && without_iwarp {
        return Vec::new();
    }
    let usable = lines().into_iter().filter(|line| match without_iwarp {
        true => line.used_by_auto,
        false => line.usable,
    });
    let names = usable.map(|line| line.name);
    names
        .filter(|name| device.is_none_or(|device| device == name))
        .collect()
}

/// All devices that libibverbs lists.
fn lines() -> Vec<Line> {
    let (Ok(devices), Ok(interfaces)) = (verbs_ibv::devices(), Interfaces::read()) else {
        return Vec::new();
    };
    let lines = devices
        .iter()
        .map(|device| Line::new(device, &interfaces, None));
    lines.collect()
}

/// Names of the kernel's RDMA devices, in order. A machine without the modules has none.
pub(crate) fn kernel_devices() -> Vec<String> {
    devices_in(Path::new(KERNEL_DEVICES))
}

fn devices_in(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    names
}

/// Whether a device is asked for.
fn is_named(name: &str, names: &[String]) -> bool {
    names.is_empty() || names.iter().any(|one| one == name)
}

/// Devices of the kernel that libibverbs does not list, of those that are asked for.
fn unlisted<'a>(
    kernel: &'a [String],
    devices: &'a [Device],
    names: &'a [String],
) -> impl Iterator<Item = &'a String> {
    kernel
        .iter()
        .filter(|name| is_named(name, names))
        .filter(|name| devices.iter().all(|device| device.name != **name))
}

/// The devices that are asked for.
fn named(
    mut devices: Vec<Device>,
    kernel: &[String],
    names: &[String],
) -> anyhow::Result<Vec<Device>> {
    let known =
        |name: &String| kernel.contains(name) || devices.iter().any(|device| device.name == *name);
    if let Some(name) = names.iter().find(|name| !known(name)) {
        let known: Vec<_> = devices.iter().map(|device| &*device.name).collect();
        let (name, known) = (name.as_bytes(), known.join(", "));
        let (name, known) = (printable(name), printable(known.as_bytes()));
        bail!("{name}: no such RDMA device; there are: {known}");
    }
    devices.retain(|device| is_named(&device.name, names));
    Ok(devices)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::line::tests::device;

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    #[test]
    fn named_devices_are_selected_and_unknown_names_are_refused() {
        let all = || vec![device("rxe0"), device("siw0")];
        let kernel = texts(&["mlx5_0", "rxe0", "siw0"]);
        let named = |names: &[&str]| named(all(), &kernel, &texts(names));
        let selected = named(&["siw0"]).unwrap();
        assert_eq!(selected.len(), 1);
        assert_eq!(selected[0].name, "siw0");
        assert_eq!(named(&[]).unwrap().len(), 2);
        assert!(named(&["mlx5_0"]).unwrap().is_empty());
        let error = named(&["siw0", "mlx5\n"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "mlx5\\x0a: no such RDMA device; there are: rxe0, siw0"
        );
    }

    #[test]
    fn kernel_tells_whether_there_is_a_device_that_is_not_for_iwarp() {
        let dir = tempfile::tempdir().unwrap();
        let check = |device: Option<&str>| match check_kernel(dir.path(), device) {
            Ok(()) => "one",
            Err(NoDevices::Absent) => "none",
            Err(NoDevices::OnlyIwarp) => "iWARP",
            Err(NoDevices::Unusable(_)) => "unusable",
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
        let kernel = texts(&["mlx5_0", "rxe0"]);
        let check = |names: &[&str], expected: &[&str]| {
            let (devices, names) = ([device("rxe0")], texts(names));
            let found: Vec<_> = unlisted(&kernel, &devices, &names).collect();
            assert_eq!(found, expected);
        };
        check(&[], &["mlx5_0"]);
        check(&["rxe0"], &[]);
        check(&["mlx5_0"], &["mlx5_0"]);
    }
}
