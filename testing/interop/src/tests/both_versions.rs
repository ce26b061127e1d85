//! Our server has the kernel's client, which speaks version one of RPC-over-RDMA, and our commands,
//! which speak version two, at the same time on one export. Each sees what the other has written.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::load::{self, WAIT_LIMIT};
use super::our_client::OurClient;
use super::{MIB, sha256, tree, write_noise};
use crate::TestRun;
use crate::guest::Guest;
use crate::serve::Serve;

const LIMIT: Duration = Duration::from_secs(480);

/// For each command.
const COMMAND_LIMIT: Duration = Duration::from_secs(60);

/// How often our commands run at least, and how many they are.
const ROUNDS: usize = 2;
const COMMANDS: usize = 5;

/// MiB that the kernel's client has to write and sync meanwhile, one after the other.
const LEAST_WRITTEN: usize = 4;

/// A large file beside the small ones, in bytes: no whole number of anything.
const BIG: usize = 4 * MIB + 1;

pub(super) fn run(run: &TestRun<'_>) -> Result<()> {
    let folder = load::export(run)?;
    let server = Serve::start(run, &folder)?;
    let client = OurClient {
        run,
        port: server.port,
        mount_port: server.mount_port,
    };
    let local = run.work.join("local");
    tree::make(&local)?;
    write_noise(&local.join("big"), BIG)?;
    let sums = tree::sums(&local)?;
    let mut guest = load::boot(run, "both-versions.sh", server.ports(), &[], LIMIT)?;
    guest.expect("loaded")?;

    let (start, before) = (Instant::now(), written(&mut guest));
    let mut round = 0;
    while round < ROUNDS || written(&mut guest) < before + LEAST_WRITTEN {
        ensure!(
            start.elapsed() < WAIT_LIMIT,
            "the kernel's client wrote {} MiB in {} s",
            written(&mut guest) - before,
            start.elapsed().as_secs()
        );
        round += 1;
        work(&client, &mut guest, (&local, &sums), round)?;
    }
    let commands = round * COMMANDS;
    client.step(&format!(
        "{commands} commands while Linux synced {} MiB",
        written(&mut guest) - before
    ));
    guest.tell("stop")?;
    guest.finish()?;
    server.stop()?;
    check_counts(run, commands)
}

/// How many times a MiB was written and synced by the kernel's client.
fn written(guest: &mut Guest<'_>) -> usize {
    let notes = guest.notes().iter();
    notes.filter(|note| note.starts_with("written ")).count()
}

/// Puts, gets, lists and removes a tree, of which the sums are known, and gets what the kernel's client has
/// written.
fn work(
    client: &OurClient<'_>,
    guest: &mut Guest<'_>,
    (local, sums): (&Path, &str),
    round: usize,
) -> Result<()> {
    let run = |arguments: &[&str]| {
        let mut all = vec![arguments[0], "--rpcrdma-version=2"];
        all.extend_from_slice(&arguments[1..]);
        Ok::<_, anyhow::Error>(client.files(&all, COMMAND_LIMIT)?.stdout)
    };
    let work = &client.run.work;
    let name = format!("ours-{round}");
    let url = client.url(&name);
    run(&["put", "-r", &local.display().to_string(), &url])?;
    guest.ask(&format!("holds {name}/big {}", sha256(&local.join("big"))?))?;

    let got = work.join(&name);
    run(&["get", "-r", &url, &got.display().to_string()])?;
    let sums_got = tree::sums(&got)?;
    ensure!(
        sums_got == sums,
        "the tree that was got differs: {sums_got}, not {sums}"
    );

    let listing = run(&["ls", "-R", &url])?;
    let names = listing.matches("file-").count();
    ensure!(
        names == tree::ALL_FILES && listing.contains("big"),
        "ls -R shows {names} files:\n{listing}"
    );
    run(&["rm", "-r", &url])?;

    // The kernel's client reads this file all the time, and has written it.
    let still = work.join("still");
    run(&[
        "get",
        &client.url("load/still"),
        &still.display().to_string(),
    ])?;
    let noise = fs::read(work.join("export/noise"))?;
    ensure!(
        fs::read(&still)? == noise[..MIB],
        "what Linux wrote and we got differs"
    );
    Ok(())
}

/// The server's own count: one connection spoke version one, from the beginning to the end, and while
/// it did each of our commands had one of version two.
fn check_counts(run: &TestRun<'_>, commands: usize) -> Result<()> {
    let path = run.logs.join("serve.log");
    let log = fs::read_to_string(&path).context("the server's log")?;
    let counts = |version: u32| -> Vec<&str> {
        let words = format!("speaks version {version}; connections now: ");
        let counts = log
            .lines()
            .filter_map(|line| Some(line.split_once(&words)?.1));
        counts.collect()
    };
    let (one, two) = (counts(1), counts(2));
    ensure!(
        one.len() == 1,
        "{} connections of version one: {one:?}",
        one.len()
    );
    ensure!(
        two.len() == commands,
        "{} connections of version two for {commands} commands",
        two.len()
    );
    for count in two {
        ensure!(
            count.starts_with("1 of version 1, "),
            "not at the same time: {count}"
        );
    }
    Ok(())
}
