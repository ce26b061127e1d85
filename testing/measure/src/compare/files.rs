//! Small files on our server beside nfs-ganesha, all changes on the disk before they are answered.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::requirements;
use super::table::{Bounds, Row};
use crate::compared::Compared;
use programs::command;

/// How long a round may take.
const LIMIT: Duration = Duration::from_secs(300);

/// Programs that are not ours, and the Debian packages that bring them.
const NEEDS: [(&str, &str); 5] = [
    ("chattr", "e2fsprogs"),
    ("ganesha.nfsd", "nfs-ganesha nfs-ganesha-vfs"),
    ("rpcbind", "rpcbind"),
    ("rpcinfo", "rpcbind"),
    ("ip", "iproute2"),
];

/// A piece of work beside that of another way.
struct Phase {
    name: &'static str,
    /// As `file-load` says it: what is done, and how many files are in flight.
    key: (&'static str, u64),
    beside: &'static str,
    bounds: Bounds,
}

const fn phase(
    name: &'static str,
    key: (&'static str, u64),
    beside: &'static str,
    must: f64,
) -> Phase {
    Phase {
        name,
        key,
        beside,
        bounds: Bounds { must, aim: must },
    }
}

/// ganesha as it comes: no change of names is synced.
const GANESHA: &str = "ganesha";

/// ganesha in a directory whose names the file system syncs: both servers keep the same promise.
const SYNCED: &str = "synced";

/// Files in flight.
const DEPTH: u64 = 32;

const PHASES: [Phase; 13] = [
    phase("create, one by one", ("create", 1), SYNCED, 1.0),
    phase("create, 32 in flight", ("create", DEPTH), SYNCED, 0.5),
    phase("put, 32 in flight", ("put", DEPTH), SYNCED, 1.0),
    phase("remove, one by one", ("remove", 1), SYNCED, 1.0),
    phase("remove, 32 in flight", ("remove", DEPTH), SYNCED, 1.0),
    phase("create, one by one", ("create", 1), GANESHA, 1.0),
    phase("create, 32 in flight", ("create", DEPTH), GANESHA, 0.5),
    phase("put, 32 in flight", ("put", DEPTH), GANESHA, 1.0),
    phase("list", ("list", 1), GANESHA, 1.0),
    phase("get, 32 in flight", ("get", DEPTH), GANESHA, 1.0),
    phase("remove, one by one", ("remove", 1), GANESHA, 1.0),
    phase("remove, 32 in flight", ("remove", DEPTH), GANESHA, 1.0),
    phase("put, 32 in flight", ("put", DEPTH), "local", 1.5),
];

/// Seconds by server and phase; those of each round behind each other.
type Times = BTreeMap<(String, String, u64), Vec<f64>>;

/// Measures in namespaces of its own, which takes root.
///
/// # Errors
///
/// Something is missing, or cannot be measured.
pub(super) fn measure(
    program: &Path,
    disk: &Path,
    files: u32,
    rounds: usize,
    selects: &dyn Fn(&str) -> bool,
) -> Result<Vec<Row>> {
    requirements::check(&NEEDS)?;
    let load = command::build(&[command::SHIPPED, "--package=file-load"], "file-load")?;
    let scratch = tempfile::Builder::new()
        .prefix("rpcrdma-compare-")
        .tempdir_in(disk)
        .with_context(|| format!("cannot make a directory in {}", disk.display()))?;
    let mut command = requirements::script("file-load/beside-ganesha.sh");
    command
        .env("PROGRAM", program)
        .env("LOAD", load)
        .env("DISK", scratch.path())
        .env("ROUNDS", rounds.to_string())
        .env("FILES", files.to_string())
        .env("ALONE", (files / 10).max(1).to_string());
    let limit = LIMIT.saturating_mul(u32::try_from(rounds)?);
    let said = command::within(&mut command, limit, scratch.path())?.stdout;
    let times = parse(&said)?;
    let rows = PHASES.iter().filter(|phase| selects(phase.name));
    rows.map(|phase| row(phase, &times)).collect()
}

fn parse(said: &str) -> Result<Times> {
    let mut server = None;
    let mut times = Times::new();
    for line in said.lines() {
        let value: Value = serde_json::from_str(line).context("file-load prints no JSON")?;
        if let Some(name) = value["server"].as_str() {
            server = Some(name.to_owned());
            continue;
        }
        let phase = (value["phase"].as_str())
            .zip(value["depth"].as_u64())
            .zip(value["seconds"].as_f64())
            .zip(server.clone());
        let (((phase, depth), seconds), server) = phase.with_context(|| line.to_owned())?;
        let key = (server, phase.to_owned(), depth);
        times.entry(key).or_default().push(seconds);
    }
    Ok(times)
}

fn row(phase: &Phase, times: &Times) -> Result<Row> {
    let of = |server: &str| {
        let key = (server.to_owned(), phase.key.0.to_owned(), phase.key.1);
        times
            .get(&key)
            .with_context(|| format!("no times of {server} for {}", phase.name))
    };
    let pairs = of(phase.beside)?.iter().zip(of("ours")?);
    let pairs: Vec<(f64, f64)> = pairs.map(|(beside, ours)| (*beside, *ours)).collect();
    Ok(Row {
        name: phase.name.to_owned(),
        beside: phase.beside,
        times: Compared::of(&pairs),
        bounds: Some(phase.bounds),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_compare_the_same_phase_of_each_round() {
        let said = concat!(
            "{\"server\":\"ganesha\"}\n",
            "{\"depth\":1,\"files\":5,\"phase\":\"list\",\"seconds\":2.0}\n",
            "{\"server\":\"ours\"}\n",
            "{\"depth\":1,\"files\":5,\"phase\":\"list\",\"seconds\":1.0}\n",
            "{\"server\":\"ganesha\"}\n",
            "{\"depth\":1,\"files\":5,\"phase\":\"list\",\"seconds\":4.0}\n",
            "{\"server\":\"ours\"}\n",
            "{\"depth\":1,\"files\":5,\"phase\":\"list\",\"seconds\":1.0}\n",
        );
        let times = parse(said).unwrap();
        let list = PHASES.iter().find(|phase| phase.key.0 == "list").unwrap();
        let row = row(list, &times).unwrap();
        assert_eq!(row.times.ratio.lowest, 0.25);
        assert_eq!(row.times.ratio.highest, 0.5);
        let missing = PHASES.iter().find(|phase| phase.key.0 == "get").unwrap();
        assert!(super::row(missing, &times).is_err());
        assert!(parse("{\"phase\":\"list\"}").is_err(), "whose, is not said");
    }
}
