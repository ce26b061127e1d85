//! Linux' client on nfs-ganesha, through our gateway, beside a relay that does nothing.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};

use super::requirements;
use super::table::{Bounds, Row};
use crate::compared::Compared;
use interop::{self, GuestMachine, Way, WayTimes};

/// Seconds of each round, by work and way.
type Times = BTreeMap<(&'static str, Way), Vec<f64>>;

/// Programs that are not ours, and the Debian packages that bring them.
const NEEDS: [(&str, &str); 4] = [
    ("ganesha.nfsd", "nfs-ganesha nfs-ganesha-vfs"),
    ("rpcbind", "rpcbind"),
    ("rpcinfo", "rpcbind"),
    ("socat", "socat"),
];

/// Longest times beside those of socat: a rate of 0.9, and a latency of 1.5.
const RATE: f64 = 1.11;
const LATENCY: f64 = 1.5;

/// Two ways beside each other: what a row says of them.
struct Pair {
    name: &'static str,
    way: Way,
    beside: &'static str,
    other: Way,
    /// Whether a bound of the project is about it. The others show what siw costs the guest.
    is_bounded: bool,
}

const fn pair(
    (name, way): (&'static str, Way),
    (beside, other): (&'static str, Way),
    is_bounded: bool,
) -> Pair {
    Pair {
        name,
        way,
        beside,
        other,
        is_bounded,
    }
}

const PAIRS: [Pair; 4] = [
    pair(("gateway, siw", Way::Gateway), ("socat", Way::Socat), true),
    pair(
        ("two gateways", Way::Gateways),
        ("socats", Way::Socats),
        true,
    ),
    pair(("gateway, siw", Way::Gateway), ("serve", Way::Serve), false),
    pair(
        ("our server, siw", Way::Serve),
        ("direct", Way::Direct),
        false,
    ),
];

/// Measures in a guest, and says what that is.
///
/// # Errors
///
/// Something is missing, or cannot be measured.
pub(super) fn measure(
    program: &Path,
    rounds: usize,
    install: bool,
) -> Result<(Vec<Row>, GuestMachine)> {
    requirements::check(&NEEDS)?;
    let WayTimes { guest, times } = interop::time_ways(program, rounds, install)?;
    Ok((rows(&times)?, guest))
}

fn rows(times: &Times) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for work in interop::WAY_WORKS {
        let of = |way| {
            let found = times.get(&(work, way));
            found.with_context(|| format!("no times of {work} by {way:?}"))
        };
        for pair in PAIRS {
            let rounds = of(pair.other)?.iter().zip(of(pair.way)?);
            let rounds: Vec<(f64, f64)> = rounds.map(|(other, ours)| (*other, *ours)).collect();
            let must = match work {
                "getattr" => LATENCY,
                _ => RATE,
            };
            rows.push(Row {
                name: format!("{}: {}", what(work), pair.name),
                beside: pair.beside,
                times: Compared::of(&rounds),
                bounds: pair.is_bounded.then_some(Bounds { must, aim: must }),
            });
        }
    }
    Ok(rows)
}

fn what(work: &str) -> String {
    match work {
        "getattr" => format!("{} GETATTR", interop::WAY_STATS),
        other => format!("{other} {} MiB", interop::WAY_MIB),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_is_beside_its_own_relay_and_latency_has_its_own_bound() {
        let mut times = Times::new();
        let ways = [Way::Direct, Way::Socat, Way::Socats];
        let ours = [Way::Gateway, Way::Gateways, Way::Serve];
        for work in interop::WAY_WORKS {
            times.extend(ways.map(|way| ((work, way), vec![2.0, 4.0])));
            times.extend(ours.map(|way| ((work, way), vec![3.0, 6.0])));
        }
        times.insert(("getattr", Way::Socats), vec![1.0, 2.0]);
        let all = rows(&times).unwrap();
        let ratio = |name: &str, beside: &str| {
            let row = all
                .iter()
                .find(|row| row.name == name && row.beside == beside);
            let row = row.unwrap_or_else(|| panic!("no {name}"));
            (row.times.ratio.median, row.bounds.map(|bounds| bounds.must))
        };
        assert_eq!(all.len(), interop::WAY_WORKS.len() * PAIRS.len());
        assert_eq!(
            ratio("write 32 MiB: gateway, siw", "socat"),
            (1.5, Some(RATE))
        );
        assert_eq!(
            ratio("500 GETATTR: two gateways", "socats"),
            (3.0, Some(LATENCY))
        );
        assert_eq!(ratio("read 32 MiB: gateway, siw", "serve"), (1.0, None));
        times.remove(&("read", Way::Serve));
        assert!(rows(&times).is_err());
    }
}
