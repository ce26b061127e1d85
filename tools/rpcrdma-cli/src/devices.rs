//! `rpcrdma devices`: lists the RDMA devices of this machine.

mod line;
mod text;

pub(crate) use self::line::Line;

use crate::failure::Ended;
use crate::output;
use anyhow::{anyhow, bail};
use clap::Args;
use nfs_client::printable;
use printing::json;
use rpcrdma::any::devices::{self, DeviceInfo};
use std::io::Write;

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

/// Runs the command.
pub(crate) fn run(args: &DevicesArgs) -> anyhow::Result<Ended> {
    let found = devices::find()?;
    let unlisted = found.unlisted.iter();
    let unlisted = unlisted.filter(|(name, _)| is_named(name, &args.names));
    let mut ended = Ended::Well;
    for (name, why) in unlisted {
        ended.failed(&anyhow!("{}: {why}", printable(name.as_bytes())));
    }
    let kernel: Vec<_> = found.unlisted.into_iter().map(|(name, _)| name).collect();
    let devices = named(found.listed, &kernel, &args.names)?;
    let mut lines = Vec::with_capacity(devices.len());
    for device in &devices {
        let line = Line::new(device);
        if let (None, Some(why)) = (&line.attributes, &line.unusable_because) {
            let name = printable(line.name.as_bytes());
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

/// Whether a device is asked for.
fn is_named(name: &str, names: &[String]) -> bool {
    names.is_empty() || names.iter().any(|one| one == name)
}

/// The devices that are asked for, of those that libibverbs lists. `unlisted` are others that there are.
fn named(
    mut listed: Vec<DeviceInfo>,
    unlisted: &[String],
    names: &[String],
) -> anyhow::Result<Vec<DeviceInfo>> {
    let is_listed = |name: &String| listed.iter().any(|info| info.device.name == *name);
    let known = |name: &String| unlisted.contains(name) || is_listed(name);
    if let Some(name) = names.iter().find(|name| !known(name)) {
        let known: Vec<_> = listed.iter().map(|info| &*info.device.name).collect();
        let (name, known) = (name.as_bytes(), known.join(", "));
        let (name, known) = (printable(name), printable(known.as_bytes()));
        bail!("{name}: no such RDMA device; there are: {known}");
    }
    listed.retain(|info| is_named(&info.device.name, names));
    Ok(listed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::line::tests::{device, info};

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    #[test]
    fn named_devices_are_selected_and_unknown_names_are_refused() {
        let all = || vec![info(device("rxe0")), info(device("siw0"))];
        let unlisted = texts(&["mlx5_0"]);
        let named = |names: &[&str]| named(all(), &unlisted, &texts(names));
        let selected = named(&["siw0"]).unwrap();
        assert_eq!(selected.len(), 1);
        assert_eq!(selected[0].device.name, "siw0");
        assert_eq!(named(&[]).unwrap().len(), 2);
        assert!(named(&["mlx5_0"]).unwrap().is_empty());
        let error = named(&["siw0", "mlx5\n"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "mlx5\\x0a: no such RDMA device; there are: rxe0, siw0"
        );
    }
}
