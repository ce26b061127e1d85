//! Times of the kernel's client on our server and on the kernel's, both in the guest.
//!
//! Client and servers share one emulated machine and its software iWARP, so neither is nearer to the client
//! or on a faster machine than the other.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::guest::{Boot, Guest};
use super::{TestRun, timed};

/// Works of the guest, in this order, and their names.
const WORKS: [(&str, &str); 5] = [
    ("write", "write 48 MiB"),
    ("read", "read 48 MiB"),
    ("create", "create 300 files"),
    ("open", "open and close 300 files"),
    ("remove", "remove 300 files"),
];
const MIB: usize = 48;
const FILES: usize = 300;

/// How long the guest may take beside its rounds, and for each of them.
const LIMIT: Duration = Duration::from_secs(300);
const ROUND_LIMIT: Duration = Duration::from_secs(120);

/// Times measured in a guest.
pub struct ServerTimes {
    /// The guest.
    pub guest: GuestMachine,
    /// The times of each work.
    pub works: Vec<Work>,
}

/// Facts of a guest.
#[derive(Debug, PartialEq)]
pub struct GuestMachine {
    /// Its processors.
    pub cpus: usize,
    /// Its memory.
    pub memory_mib: u64,
    /// Version of its kernel.
    pub kernel: String,
}

/// One piece of work.
pub struct Work {
    pub name: &'static str,
    /// Seconds with the kernel's server and with ours, for each round.
    pub rounds: Vec<(f64, f64)>,
}

/// Boots Debian 12's kernel and times both servers in it, so many rounds, over this version of NFS as Linux' mount option
/// `vers` has it.
///
/// # Errors
///
/// The guest cannot be built or booted, or a piece of work fails.
pub fn time_servers(
    program: &Path,
    version: &str,
    rounds: usize,
    install: bool,
) -> Result<ServerTimes> {
    timed("compare", program, install, |run| {
        drive(run, version, rounds)
    })
}

fn drive(run: &TestRun<'_>, version: &str, rounds: usize) -> Result<ServerTimes> {
    let boot = Boot {
        name: "guest",
        script: "compare.sh",
        environment: &[
            ("VERSION", version.to_owned()),
            ("ROUNDS", rounds.to_string()),
            ("MIB", MIB.to_string()),
            ("FILES", FILES.to_string()),
        ],
        program: Some(run.program),
        limit: LIMIT + ROUND_LIMIT * u32::try_from(rounds)?,
        ..Boot::default()
    };
    let mut guest = Guest::boot(run, &boot)?;
    let machine = guest.expect("machine")?;
    let machine = GuestMachine::parse(&machine)
        .with_context(|| format!("the guest says of itself: {machine}"))?;
    let mut works = WORKS.map(|(_, name)| Work {
        name,
        rounds: Vec::with_capacity(rounds),
    });
    for _ in 0..rounds {
        for (work, (word, _)) in works.iter_mut().zip(WORKS) {
            let mut took = |server| seconds(&guest.expect("took")?, word, server);
            let ours = took("ours")?;
            let knfsd = took("knfsd")?;
            work.rounds.push((knfsd, ours));
        }
    }
    guest.finish()?;
    Ok(ServerTimes {
        guest: machine,
        works: works.into(),
    })
}

/// The seconds in what the guest says of a piece of work, which must be this one.
pub(super) fn seconds(line: &str, work: &str, server: &str) -> Result<f64> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let micros = match words[..] {
        [of, on, micros] if of == work && on == server => micros.parse::<u32>().ok(),
        _ => None,
    };
    let micros =
        micros.with_context(|| format!("{line:?} where {work} on {server} was expected"))?;
    ensure!(micros > 0, "{work} on {server} took no time");
    Ok(f64::from(micros) / 1e6)
}

impl GuestMachine {
    pub(super) fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        Some(Self {
            cpus: words.next()?.parse().ok()?,
            memory_mib: words.next()?.parse().ok()?,
            kernel: words.next()?.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_work_and_server_that_are_due() {
        assert_eq!(seconds("read ours 1500000", "read", "ours").unwrap(), 1.5);
        for line in [
            "write ours 1500000",
            "read knfsd 1500000",
            "read ours",
            "read ours x",
            "read ours -1",
            "read ours 0",
            "read ours 1 2",
        ] {
            assert!(seconds(line, "read", "ours").is_err(), "{line}");
        }
    }

    #[test]
    fn guest_says_what_it_is() {
        let expected = GuestMachine {
            cpus: 2,
            memory_mib: 951,
            kernel: "6.1.0-56-amd64".into(),
        };
        let parsed = GuestMachine::parse("2 951 6.1.0-56-amd64");
        assert_eq!(parsed, Some(expected));
        assert_eq!(GuestMachine::parse("2 951"), None);
    }
}
