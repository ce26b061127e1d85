//! READs of 4 KiB at random places of one file, by our server over RDMA and over TCP, beside nfs-ganesha or the kernel's
//! server over TCP. One program reads from all of them.

mod table;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{requirements, scratch};
use crate::compared::{Compared, Spread};
use interop::GuestMachine;
use programs::command;
use table::{Ratios, Row};

pub(super) use table::RandomReads;

/// Numbers of connections.
const CONNECTIONS: [u16; 3] = [1, 4, 16];

/// Size of the file on the host.
const MIB: usize = 256;

/// How long all but the measurements may take, and each of those in times of what is measured.
const LIMIT: Duration = Duration::from_secs(120);
const FACTOR: u32 = 4;

/// Programs that are not ours, and the Debian packages that bring them.
const NEEDS: [(&str, &str); 4] = [
    ("ganesha.nfsd", "nfs-ganesha nfs-ganesha-vfs"),
    ("ip", "iproute2"),
    ("rpcbind", "rpcbind"),
    ("rpcinfo", "rpcbind"),
];

/// A way to the file: as scripts name it, and as people do.
type Way = (&'static str, &'static str);

/// Ways on the host and in a guest. The last one is that with which the others are compared.
const ON_HOST: [Way; 4] = [
    ("rdma", "ours, RDMA"),
    ("rdma-no-crc", "ours, RDMA, no CRC"),
    ("tcp", "ours, TCP"),
    ("ganesha", "nfs-ganesha, TCP"),
];
const IN_GUEST: [Way; 3] = [
    ("rdma-no-crc", "ours, RDMA, no CRC"),
    ("tcp", "ours, TCP"),
    ("knfsd", "knfsd, TCP"),
];

/// How much is measured.
#[derive(Clone, Copy)]
pub(super) struct Amount {
    pub(super) rounds: u8,
    /// Time of each measurement.
    pub(super) milliseconds: u32,
}

impl Amount {
    fn time(self) -> Duration {
        Duration::from_millis(self.milliseconds.into())
    }
}

/// Measures in namespaces of its own, which takes root.
///
/// # Errors
///
/// Something is missing, or cannot be measured.
pub(super) fn on_host(program: &Path, parent: &Path, amount: Amount) -> Result<RandomReads> {
    requirements::check(&NEEDS)?;
    let load = build_load()?;
    let scratch = scratch::make(parent)?;
    let measurements = CONNECTIONS.len() * ON_HOST.len() * usize::from(amount.rounds);
    let mut command = requirements::script("relay-load/random-reads.sh");
    command
        .env("PROGRAM", program)
        .env("LOAD", load)
        .env("WORK", scratch.path())
        .env("WAYS", keys(&ON_HOST).join(" "))
        .env("CONNECTIONS", CONNECTIONS.map(|n| n.to_string()).join(" "))
        .env("ROUNDS", amount.rounds.to_string())
        .env("TIME", amount.milliseconds.to_string())
        .env("MIB", MIB.to_string());
    let limit = LIMIT + amount.time() * FACTOR * u32::try_from(measurements)?;
    let said = command::within(&mut command, limit, scratch.path())?.stdout;
    let reads = reads(&ON_HOST, amount, said.lines(), None)?;
    scratch.close().context("cannot remove the file")?;
    Ok(reads)
}

/// Measures in a guest.
///
/// # Errors
///
/// It cannot be measured.
pub(super) fn in_guest(program: &Path, amount: Amount, install: bool) -> Result<RandomReads> {
    let what = interop::RandomReads {
        ways: &keys(&IN_GUEST),
        connections: &CONNECTIONS,
        rounds: amount.rounds,
        time: amount.time(),
    };
    let (guest, said) = interop::time_random_reads(program, &build_load()?, what, install)?;
    let lines = said.iter().map(String::as_str);
    reads(&IN_GUEST, amount, lines, Some(guest))
}

fn build_load() -> Result<std::path::PathBuf> {
    command::build(&[command::SHIPPED, "--package=relay-load"], "relay-load")
}

fn keys(ways: &[Way]) -> Vec<&'static str> {
    ways.iter().map(|(key, _)| *key).collect()
}

/// Figures of one measurement.
#[derive(Clone, Copy)]
struct Run {
    /// READs in a second.
    rate: f64,
    /// Microseconds of CPU for a READ: of the server, the client, and all of the machine.
    server: f64,
    client: f64,
    machine: f64,
}

/// Measurements by way and number of connections, those of each round behind each other.
type Runs = BTreeMap<(String, u64), Vec<Run>>;

fn reads<'a>(
    ways: &[Way],
    amount: Amount,
    lines: impl Iterator<Item = &'a str>,
    guest: Option<GuestMachine>,
) -> Result<RandomReads> {
    let runs = parse(lines)?;
    let mut rows = Vec::new();
    for connections in CONNECTIONS {
        let of = |key: &str| {
            let found = runs.get(&(key.to_owned(), connections.into()));
            let found = found.map_or(&[][..], Vec::as_slice);
            ensure!(
                found.len() == usize::from(amount.rounds),
                "{} measurements of {key} with {connections} connections",
                found.len()
            );
            Ok(found)
        };
        let (beside, _) = ways.last().context("no way")?;
        let beside = of(beside)?;
        for (number, (key, name)) in ways.iter().enumerate() {
            let is_beside = number + 1 == ways.len();
            rows.push(row(
                connections,
                name,
                of(key)?,
                (!is_beside).then_some(beside),
            ));
        }
    }
    Ok(RandomReads {
        rounds: amount.rounds.into(),
        guest,
        rows,
    })
}

fn parse<'a>(lines: impl Iterator<Item = &'a str>) -> Result<Runs> {
    let mut runs = Runs::new();
    for line in lines {
        let (way, said) = line.split_once(' ').with_context(|| line.to_owned())?;
        let said: Value = serde_json::from_str(said).with_context(|| line.to_owned())?;
        let of = |name: &str| {
            said[name]
                .as_f64()
                .with_context(|| format!("no {name}: {line}"))
        };
        let operations = of("operations")?;
        let each = |name: &str| Ok::<_, anyhow::Error>(of(name)? * 1e6 / operations);
        let run = Run {
            rate: operations / of("seconds")?,
            server: each("server_seconds")?,
            client: each("client_seconds")?,
            machine: each("machine_seconds")?,
        };
        let connections = said["connections"].as_u64().context("no connections")?;
        let key = (way.to_owned(), connections);
        runs.entry(key).or_default().push(run);
    }
    Ok(runs)
}

fn row(connections: u16, name: &'static str, runs: &[Run], beside: Option<&[Run]>) -> Row {
    let spread = |figure: fn(&Run) -> f64| Spread::of(runs.iter().map(figure));
    let ratios = beside.map(|beside| {
        let ratio = |figure: fn(&Run) -> f64| {
            let rounds = beside.iter().map(figure).zip(runs.iter().map(figure));
            Compared::of(&rounds.collect::<Vec<_>>()).ratio
        };
        Ratios {
            rate: ratio(|run| run.rate),
            server: ratio(|run| run.server),
        }
    });
    Row {
        connections,
        name,
        rate: spread(|run| run.rate),
        server: spread(|run| run.server),
        client: spread(|run| run.client),
        machine: spread(|run| run.machine),
        ratios,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AMOUNT: Amount = Amount {
        rounds: 2,
        milliseconds: 10,
    };

    /// Output of the guest's script: of ours, operations are `ours` times as many as of the kernel's, at one CPU.
    fn said(ours: [u32; 2]) -> Vec<String> {
        let mut said = Vec::new();
        for times in ours {
            for connections in CONNECTIONS {
                for (key, _) in IN_GUEST {
                    let times = if key == "knfsd" { 1 } else { times };
                    let operations = 1000 * times;
                    said.push(format!(
                        "{key} {{\"connections\":{connections},\"operations\":{operations},\"seconds\":0.5,\
                         \"server_seconds\":0.25,\"client_seconds\":0.5,\"machine_seconds\":1.0}}"
                    ));
                }
            }
        }
        said
    }

    fn parsed(said: &[String]) -> Result<RandomReads> {
        let lines = said.iter().map(String::as_str);
        reads(&IN_GUEST, AMOUNT, lines, None)
    }

    #[test]
    fn figures_are_of_an_operation_and_ratios_of_a_round() {
        let reads = parsed(&said([2, 4])).unwrap();
        assert_eq!(reads.rows.len(), CONNECTIONS.len() * IN_GUEST.len());
        let ours = &reads.rows[0];
        assert_eq!((ours.rate.lowest, ours.rate.highest), (4000.0, 8000.0));
        assert_eq!((ours.server.lowest, ours.server.highest), (62.5, 125.0));
        assert_eq!((ours.client.highest, ours.machine.highest), (250.0, 500.0));
        let ratios = ours.ratios.unwrap();
        assert_eq!((ratios.rate.lowest, ratios.rate.highest), (2.0, 4.0));
        assert_eq!((ratios.server.lowest, ratios.server.highest), (0.25, 0.5));
        assert!(reads.rows[2].ratios.is_none());
    }

    #[test]
    fn missing_measurement_is_an_error() {
        let said = said([1, 1]);
        assert!(parsed(&said[1..]).is_err());
        let without = said
            .iter()
            .map(|line| line.replace("server_seconds", "other"));
        assert!(parsed(&without.collect::<Vec<_>>()).is_err());
        assert!(parsed(&["tcp".to_owned()]).is_err());
    }
}
