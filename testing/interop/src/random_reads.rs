//! Random READs by our server and by the kernel's, in a guest with the client.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use super::guest::{Boot, Guest};
use super::program::stripped;
use super::servers::GuestMachine;
use super::timed;

/// Size of the file, in the guest's memory.
const MIB: usize = 64;

/// How long the guest may take beside its measurements, and for each of them in times of what is measured.
const LIMIT: Duration = Duration::from_secs(300);
const FACTOR: u32 = 4;

/// Amount of what is measured.
#[derive(Clone, Copy)]
pub struct RandomReads<'a> {
    /// Ways to the file, as `random-reads.sh` names them.
    pub ways: &'a [&'a str],
    /// Numbers of connections.
    pub connections: &'a [u16],
    /// How often each is measured.
    pub rounds: u8,
    /// Time of each measurement.
    pub time: Duration,
}

/// Boots Debian 12's kernel and has `load`, which is `relay-load`, read from both servers in it. Returns the guest, and a line
/// for each measurement: the way, and what `relay-load` said.
///
/// # Errors
///
/// The guest cannot be built or booted, or a READ fails.
pub fn time_random_reads(
    program: &Path,
    load: &Path,
    amount: RandomReads<'_>,
    install: bool,
) -> Result<(GuestMachine, Vec<String>)> {
    timed("random-reads", program, install, |run| {
        let ways = amount.ways.join(" ");
        let connections: Vec<String> = amount.connections.iter().map(u16::to_string).collect();
        let measurements = amount.ways.len() * connections.len() * usize::from(amount.rounds);
        let load = stripped(load, &run.work.join("relay-load"))?;
        let boot = Boot {
            name: "guest",
            script: "random-reads.sh",
            environment: &[
                ("WAYS", ways),
                ("CONNECTIONS", connections.join(" ")),
                ("ROUNDS", amount.rounds.to_string()),
                ("TIME", amount.time.as_millis().to_string()),
                ("MIB", MIB.to_string()),
            ],
            program: Some(run.program),
            files: &[("relay-load", &load)],
            limit: LIMIT + amount.time * FACTOR * u32::try_from(measurements)?,
            ..Boot::default()
        };
        let mut guest = Guest::boot(run, &boot)?;
        let machine = guest.expect("machine")?;
        let machine = GuestMachine::parse(&machine)
            .with_context(|| format!("the guest says of itself: {machine}"))?;
        let said: Result<Vec<String>> = (0..measurements).map(|_| guest.expect("reads")).collect();
        let said = said?;
        guest.finish()?;
        Ok((machine, said))
    })
}
