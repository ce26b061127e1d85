//! Processes that simulate clients.

use std::io::Write;
use std::net::SocketAddrV4;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use programs::lines::Lines;

/// Connections of one process: well below the descriptors that it may have.
const PER_PROCESS: usize = 5000;

/// All processes, and their connections.
pub(super) struct Crowd {
    server: SocketAddrV4,
    processes: Vec<Process>,
}

/// Outcome of making connections.
#[derive(Debug, Default)]
pub(super) struct Opened {
    pub(super) made: usize,
    /// Those that could not be made, and those that were and did not last.
    pub(super) failed: usize,
    /// Why the first of them failed.
    pub(super) why: Option<String>,
    /// The fewest credits that any was granted.
    pub(super) least_grant: Option<u64>,
    pub(super) seconds: f64,
}

/// Work done by busy connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) calls: f64,
    pub(super) seconds: f64,
}

impl Crowd {
    pub(super) fn new(server: SocketAddrV4) -> Self {
        Self {
            server,
            processes: Vec::new(),
        }
    }

    /// Makes connections until there are so many, or no more can be made.
    pub(super) fn grow_to(&mut self, connections: usize) -> Result<Opened> {
        let mut all = Opened::default();
        loop {
            let now: usize = self
                .processes
                .iter()
                .map(|process| process.connections)
                .sum();
            let missing = connections.saturating_sub(now);
            if missing == 0 || all.failed > 0 {
                return Ok(all);
            }
            let last = self
                .processes
                .last()
                .map_or(PER_PROCESS, |last| last.connections);
            if last >= PER_PROCESS {
                let process = Process::start(self.server, self.processes.len())?;
                self.processes.push(process);
            }
            let process = self.processes.last_mut().context("there is one")?;
            all.add(process.open(missing.min(PER_PROCESS - process.connections))?);
        }
    }

    /// How many connections are still there.
    pub(super) fn count(&mut self) -> Result<usize> {
        let mut all = 0;
        for process in &mut self.processes {
            let said = process.order("count")?;
            let there = said["connections"].as_u64();
            all += usize::try_from(there.with_context(|| format!("a count: {said}"))?)?;
        }
        Ok(all)
    }

    /// Has so many connections, all of the first process, call NULL for this time.
    pub(super) fn busy(&mut self, connections: usize, time: Duration) -> Result<Load> {
        let first = self
            .processes
            .first_mut()
            .context("there are connections")?;
        let order = format!("busy {connections} {}", time.as_millis());
        let done = first.order(&order)?;
        let number = |name: &str| {
            done[name]
                .as_f64()
                .with_context(|| format!("{name}: {done}"))
        };
        Ok(Load {
            calls: number("calls")?,
            seconds: number("seconds")?,
        })
    }
}

impl Opened {
    pub(super) fn add(&mut self, other: Self) {
        self.made += other.made;
        self.failed += other.failed;
        self.why = self.why.take().or(other.why);
        self.least_grant = [self.least_grant, other.least_grant]
            .into_iter()
            .flatten()
            .min();
        self.seconds += other.seconds;
    }
}

struct Process {
    child: Child,
    /// `None` when it is to end.
    orders: Option<ChildStdin>,
    answers: Lines,
    connections: usize,
}

impl Process {
    fn start(server: SocketAddrV4, index: usize) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["scale-clients", &server.to_string(), &index.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start clients")?;
        let answers = Lines::of(child.stdout.take().context("its output is a pipe")?);
        Ok(Self {
            orders: child.stdin.take(),
            child,
            answers,
            connections: 0,
        })
    }

    fn open(&mut self, count: usize) -> Result<Opened> {
        let done = self.order(&format!("open {count}"))?;
        let number = |name: &str| {
            let number = done[name].as_u64().and_then(|n| usize::try_from(n).ok());
            number.with_context(|| format!("{name}: {done}"))
        };
        let opened = Opened {
            made: number("made")?,
            failed: number("failed")? + number("lost")?,
            why: done["why"].as_str().map(str::to_owned),
            least_grant: done["least_grant"].as_u64(),
            seconds: done["seconds"].as_f64().context("seconds")?,
        };
        self.connections += opened.made;
        Ok(opened)
    }

    fn order(&mut self, line: &str) -> Result<serde_json::Value> {
        let orders = self.orders.as_mut().context("it is to end")?;
        writeln!(orders, "{line}")?;
        self.answers
            .next()
            .with_context(|| format!("clients told to {line}"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.orders = None;
        // With its input closed it would end by itself, if it does not wait for the server.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
