//! Costs of calls over rxe: counts of our client and of our server, system calls of the client, and trace events of the
//! kernel's client.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::TestRun;
use crate::guest::{Boot, Guest};
use crate::program::stripped;
use programs::command::build;

/// Takes about half a minute on an idle machine.
const LIMIT: Duration = Duration::from_secs(480);

/// Servers of our client, and what it asks of each.
const SERVERS: [&str; 2] = ["knfsd", "ours"];
const CALLS: [&str; 5] = ["null", "read-4k", "write-4k", "read-1m", "write-1m"];

/// Calls during which the kernel's client is traced.
const TRACED: [&str; 4] = ["read-4k", "write-4k", "read-1m", "write-1m"];

/// `write` and `ioctl` of x86-64.
const WRITE: u32 = 1;
const IOCTL: u32 = 16;

/// Registrations of Receives on a connection, of which the server posts 128 in the end, and some more.
const MAX_REGISTERED: f64 = 200.0;

/// System calls on the device's file that setup and the end of a connection may take.
const SETUP: f64 = 300.0;

pub(super) fn run(run: &TestRun<'_>) -> Result<()> {
    let lab = build(&["--release", "--package=lab"], "lab")?;
    let lab = stripped(&lab, &run.work.join("lab"))?;
    let boot = Boot {
        name: "guest",
        script: "verbs-counts.sh",
        files: &[("lab", &lab)],
        program: Some(run.program),
        limit: LIMIT,
        ..Boot::default()
    };
    let mut guest = Guest::boot(run, &boot)?;
    for server in SERVERS {
        for call in CALLS {
            let document = document(&guest.expect("counts")?, &[server, call])?;
            let counts = Counts::of(&document, "work")?;
            run.report
                .say(run.name, &format!("{call} on {server}: {}", counts.text()?));
            if server == "ours" {
                let counts = Counts::of(&document, "server_work")?;
                run.report
                    .say(run.name, &format!("{call}, the server: {}", counts.text()?));
                check_server(call, &counts).with_context(|| format!("{call}, the server"))?;
            }
            // Ours takes and sends 4 KiB inline.
            if call.ends_with("1m") || (server == "knfsd" && call != "null") {
                ensure!(
                    counts.number("remote_invalidations")? > 0.9,
                    "{call}: no window was taken by {server}'s Send with Invalidate"
                );
            }
            ensure!(
                counts.number("doorbells")? < 2.5,
                "{call} on {server} has no chains"
            );
        }
    }
    check_designs(run, &document(&guest.expect("designs")?, &[])?)?;
    check_system_calls(run, &mut guest)?;
    for call in TRACED {
        let line = guest.expect("traced")?;
        ensure!(line.starts_with(call), "{line} where {call} was expected");
        run.report.say(run.name, &format!("Linux: {line}"));
    }
    guest.finish()
}

/// A reply is one Send. Data beyond it moves by Writes and Reads of the server, which exposes nothing: Writes are in the
/// chain of the reply, and Reads in one before it.
fn check_server(call: &str, counts: &Counts) -> Result<()> {
    let by_writes = call == "read-1m";
    let by_reads = call == "write-1m";
    let is = |name: &str, expected: std::ops::Range<f64>| {
        let count = counts.number(name)?;
        ensure!(
            expected.contains(&count),
            "{name} {count:.2}, and not {expected:?}"
        );
        anyhow::Ok(())
    };
    // A call may be in flight when the counts are read, before and after; there are ten calls and more.
    let none = 0.0..0.15;
    let some = 0.8..40.0;
    is("sends", 0.8..1.2)?;
    is(
        "writes",
        if by_writes {
            some.clone()
        } else {
            none.clone()
        },
    )?;
    is("rdma_reads", if by_reads { some } else { none.clone() })?;
    is("binds", none.clone())?;
    is("local_invalidations", none.clone())?;
    is("remote_invalidations", none)?;
    // Receives are registered once, as the grant grows. Memory of what a READ returns is registered for each.
    let registered = counts.number("registrations")? * counts.number("calls")?;
    ensure!(
        by_writes || registered < MAX_REGISTERED,
        "{registered} registrations"
    );
    is("doorbells", 0.5..2.5)
}

/// Designs for remote invalidation, and none.
const DESIGNS: [&str; 7] = [
    "none",
    "per_version",
    "per_connection",
    "fixed",
    "per_call",
    "per_call_several",
    "inter_call",
];

/// Of a call alone, under each design one window is taken by the Send of the server, and the client invalidates the
/// others.
fn check_designs(run: &TestRun<'_>, document: &Value) -> Result<()> {
    let rows = document["rows"].as_array().context("no rows")?;
    let figures = |design: &str, stags: u32| {
        let row = rows.iter().find(|row| {
            row["traffic"] == "alone"
                && row["memory"] == "dynamic"
                && row["stags"] == stags
                && row["design"] == design
        });
        let row = row.with_context(|| format!("no {design} with {stags} handles"))?;
        anyhow::Ok((Counts::of(row, "client_work")?, &row["of_none"]["median"]))
    };
    for stags in [1, 2, 4] {
        for design in DESIGNS {
            let (counts, time) = figures(design, stags)?;
            let taken = counts.number("remote_invalidations")?;
            let own = counts.number("local_invalidations")?;
            let said = format!(
                "{design}, {stags} windows: {taken:.2} taken by Sends, {own:.2} invalidated, {:.2} doorbells, \
                 {:.2} completions, time {time}",
                counts.number("doorbells")?,
                counts.number("completions")?,
            );
            run.report.say(run.name, &said);
            let expected = if design == "none" { 0.0 } else { 1.0 };
            let near = |count: f64, expected: f64| (count - expected).abs() < 0.1;
            ensure!(
                near(taken, expected) && near(taken + own, f64::from(stags)),
                "{said}"
            );
        }
    }
    Ok(())
}

/// Each doorbell is one `write` to the device over rxe, and each request to be notified one `ioctl`. Polling is none.
fn check_system_calls(run: &TestRun<'_>, guest: &mut Guest<'_>) -> Result<()> {
    let line = guest.expect("device")?;
    let (device, _) = line.split_once(' ').context("no descriptor")?;
    let counts = Counts::of(&document(&line, &[device])?, "work")?;
    let mut writes = 0.0;
    let mut others = 0.0;
    for call in guest.expect("calls")?.split_whitespace() {
        let words: Vec<&str> = call.split(':').collect();
        let [number, first, count] = words[..] else {
            bail!("{call} is no number of a system call, with its first argument and a count");
        };
        match number.parse()? {
            WRITE if first == device => writes = count.parse()?,
            IOCTL if first == device => others = count.parse()?,
            _ => {}
        }
    }
    let calls = counts.number("calls")?;
    let doorbells = (calls * counts.number("doorbells")?).round();
    let arms = (calls * counts.number("arms")?).round();
    let polls = calls * counts.number("polls")?;
    run.report.say(
        run.name,
        &format!(
            "{calls} calls: {writes} writes to the device for {doorbells} doorbells, {others} ioctls for {arms} requests \
             for a notification, {polls:.0} polls"
        ),
    );
    ensure!(
        writes >= doorbells && writes < doorbells + SETUP,
        "{writes} writes to the device, and not {doorbells}"
    );
    ensure!(
        others >= arms && others < arms + SETUP,
        "{others} ioctls on the device, and not {arms}"
    );
    Ok(())
}

/// The document of `bench --json` in a line that begins with these words.
fn document(line: &str, words: &[&str]) -> Result<Value> {
    let start = words.join(" ");
    let json = line.strip_prefix(&start);
    let json = json.with_context(|| format!("{line} where {start} was expected"))?;
    serde_json::from_str(json).with_context(|| format!("this is no document: {json}"))
}

/// Counts of one end, for each call.
struct Counts(Value);

impl Counts {
    /// Those of this member of a document.
    fn of(document: &Value, member: &str) -> Result<Self> {
        let counts = document.get(member);
        let counts = counts.with_context(|| format!("no {member} in {document}"))?;
        Ok(Self(counts.clone()))
    }

    fn number(&self, name: &str) -> Result<f64> {
        let number = self.0[name].as_f64();
        number.with_context(|| format!("no {name} in {}", self.0))
    }

    /// Those that are not zero.
    fn text(&self) -> Result<String> {
        let counts = self.0.as_object().context("no object")?;
        let told = counts
            .iter()
            .filter_map(|(name, count)| Some((name, count.as_f64().filter(|count| *count > 0.0)?)))
            .map(|(name, count)| format!("{name} {count:.2}"));
        Ok(told.collect::<Vec<_>>().join(", "))
    }
}
