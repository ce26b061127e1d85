//! Two gateways (TCP to RDMA, and RDMA to TCP) in front of nfs-ganesha beside two socats, which pass bytes
//! on and do nothing else, and what idle connections cost the gateways.

mod table;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{requirements, scratch};
use crate::compared::Spread;
use programs::command;
use table::{Bound, Figure, Memory};

pub(super) use table::Relays;

/// How long all but the rounds may take.
const LIMIT: Duration = Duration::from_secs(120);

/// How long a round may take, for each millisecond of a measurement, and beside that.
const ROUND_LIMIT: u32 = 100;
const COPIES_LIMIT: Duration = Duration::from_secs(120);

/// Programs that are not ours, and the Debian packages that bring them.
const NEEDS: [(&str, &str); 7] = [
    ("ganesha.nfsd", "nfs-ganesha nfs-ganesha-vfs"),
    ("ip", "iproute2"),
    ("nfs-cp", "libnfs-utils"),
    ("rpcbind", "rpcbind"),
    ("rpcinfo", "rpcbind"),
    ("socat", "socat"),
    ("ss", "iproute2"),
];

/// Lowest rate and highest latency, beside socat's.
const RATE: Bound = Bound::AtLeast(0.9);
const LATENCY: Bound = Bound::AtMost(1.5);

/// Kind of measurement.
struct Kind {
    name: &'static str,
    /// As the script says it.
    key: &'static str,
    unit: &'static str,
    bound: Bound,
}

const fn kind(name: &'static str, key: &'static str, unit: &'static str, bound: Bound) -> Kind {
    Kind {
        name,
        key,
        unit,
        bound,
    }
}

const KINDS: [Kind; 6] = [
    kind("NULL, one by one", "null", "us", LATENCY),
    kind("GETATTR, one by one", "getattr", "us", LATENCY),
    kind("READ 1 MiB, 8 in flight", "read", "MiB/s", RATE),
    kind("WRITE 1 MiB, 8 in flight", "write", "MiB/s", RATE),
    kind("nfs-cp from the server", "get", "MiB/s", RATE),
    kind("nfs-cp to the server", "put", "MiB/s", RATE),
];

/// How much is measured.
#[derive(Clone, Copy)]
pub(super) struct Amount {
    pub(super) rounds: u8,
    /// Time of each measurement.
    pub(super) milliseconds: u32,
    pub(super) connections: u16,
}

/// Measures in namespaces of its own, which takes root.
///
/// # Errors
///
/// Something is missing, or cannot be measured.
pub(super) fn measure(program: &Path, parent: &Path, amount: Amount) -> Result<Relays> {
    requirements::check(&NEEDS)?;
    let load = command::build(&[command::SHIPPED, "--package=relay-load"], "relay-load")?;
    let scratch = scratch::make(parent)?;
    let mut command = requirements::script("relay-load/beside-socat.sh");
    command
        .env("PROGRAM", program)
        .env("LOAD", load)
        .env("WORK", scratch.path())
        .env("ROUNDS", amount.rounds.to_string())
        .env("TIME", amount.milliseconds.to_string())
        .env("CONNECTIONS", amount.connections.to_string());
    let round = Duration::from_millis(amount.milliseconds.into()) * ROUND_LIMIT + COPIES_LIMIT;
    let limit = LIMIT + round * amount.rounds.into();
    let said = command::within(&mut command, limit, scratch.path())?.stdout;
    let relays = parse(&said, amount)?;
    scratch.close().context("cannot remove what was copied")?;
    Ok(relays)
}

/// Figures by way and kind; those of each round behind each other.
type Figures = BTreeMap<(String, String), Vec<f64>>;

fn parse(said: &str, amount: Amount) -> Result<Relays> {
    let mut way = None;
    let mut figures = Figures::new();
    let mut memory = BTreeMap::new();
    for line in said.lines() {
        let value: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
        if let Some(name) = value["way"].as_str() {
            way = Some(name.to_owned());
        } else if let Some(when) = value["memory"].as_str() {
            let of = |name: &str| value[name].as_f64().map(|kib| kib / 1024.0);
            let both = of("front_kib").zip(of("between_kib"));
            memory.insert(when.to_owned(), both.with_context(|| line.to_owned())?);
        } else {
            let figure = value["what"].as_str().zip(value["value"].as_f64());
            let (what, figure) = figure.with_context(|| line.to_owned())?;
            let key = (way.clone().context("whose, is not said")?, what.to_owned());
            figures.entry(key).or_default().push(figure);
        }
    }
    let at = |when: &str| {
        let both = memory.get(when).copied();
        both.with_context(|| format!("no memory of the gateways at \"{when}\""))
    };
    let (begin, idle, closed, loaded) = (at("begin")?, at("idle")?, at("closed")?, at("loaded")?);
    let memory = |name, of: fn((f64, f64)) -> f64| Memory {
        name,
        begin: of(begin),
        idle: of(idle),
        closed: of(closed),
        loaded: of(loaded),
    };
    Ok(Relays {
        rounds: amount.rounds.into(),
        connections: amount.connections.into(),
        figures: KINDS
            .iter()
            .map(|kind| figure(kind, &figures))
            .collect::<Result<_>>()?,
        memory: [
            memory("TCP to RDMA", |both| both.0),
            memory("RDMA to TCP", |both| both.1),
        ],
    })
}

fn figure(kind: &Kind, figures: &Figures) -> Result<Figure> {
    let of = |way: &str| {
        let key = (way.to_owned(), kind.key.to_owned());
        let found = figures.get(&key).cloned();
        found.with_context(|| format!("no figures of {way} for {}", kind.name))
    };
    let (direct, socat, gateways) = (of("direct")?, of("socat")?, of("gateways")?);
    // The speed of a machine drifts, so the ratio is taken within each round.
    let ratios = gateways
        .iter()
        .zip(&socat)
        .map(|(ours, theirs)| ours / theirs);
    Ok(Figure {
        name: kind.name,
        unit: kind.unit,
        bound: kind.bound,
        ratio: Spread::of(ratios),
        direct: Spread::of(direct.into_iter()),
        socat: Spread::of(socat.iter().copied()),
        gateways: Spread::of(gateways.iter().copied()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const AMOUNT: Amount = Amount {
        rounds: 2,
        milliseconds: 10,
        connections: 5,
    };

    /// Output of the script for two rounds.
    fn said() -> String {
        let mut said = String::new();
        for when in ["begin", "idle", "closed", "loaded"] {
            said +=
                &format!("{{\"memory\":\"{when}\",\"front_kib\":10240,\"between_kib\":20480}}\n");
        }
        for factor in [1.0, 3.0] {
            for kind in &KINDS {
                for (way, value) in [("direct", 1.0), ("socat", 2.0), ("gateways", 2.0 * factor)] {
                    let key = kind.key;
                    said += &format!("{{\"way\":\"{way}\"}}\n");
                    said += &format!("{{\"what\":\"{key}\",\"value\":{value:.1}}}\n");
                }
            }
        }
        said
    }

    #[test]
    fn ratio_is_that_of_the_ways_of_each_round() {
        let relays = parse(&said(), AMOUNT).unwrap();
        assert_eq!(relays.figures.len(), KINDS.len());
        let ratio = relays.figures[0].ratio;
        assert_eq!((ratio.lowest, ratio.highest), (1.0, 3.0));
        assert_eq!(relays.figures[0].socat.median, 2.0);
        assert_eq!(relays.memory[1].idle, 20.0);
    }

    #[test]
    fn missing_figure_is_an_error() {
        let without = said().replace("\"null\"", "\"other\"");
        assert!(parse(&without, AMOUNT).is_err());
        let without = said().replace("\"idle\"", "\"other\"");
        assert!(parse(&without, AMOUNT).is_err());
        assert!(parse("{\"what\":\"null\",\"value\":1}", AMOUNT).is_err());
    }
}
