//! The kernel's server calls a client of ours over the client's own connection (RFC 8167): CB_RECALL,
//! when somebody else writes to files that the client has delegations of.
//!
//! The client is the example `callbacks` of the library, as the program does not speak NFSv4.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::our_client::Running;
use crate::TestRun;
use crate::guest::{Boot, Guest, free_ports};
use crate::relay::{End, Relay};
use programs::command::build_as_tested;

/// Delegations in each part of the test.
const FILES: usize = 8;

const GUEST_LIMIT: Duration = Duration::from_secs(480);

/// For whatever takes seconds on an idle machine.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// The kernel's server waits so long for a delegation, as long as for a lease, and takes it away.
const LEASE_SECONDS: u64 = 90;

pub(super) fn run(run: &TestRun<'_>) -> Result<()> {
    let program = build_as_tested("crates/rpcrdma", "--example", "callbacks")?;
    let [port] = free_ports()?;
    let boot = Boot {
        name: "server",
        script: "kernel-calls-back.sh",
        environment: &[],
        forwards: &[(port, 20049)],
        limit: GUEST_LIMIT,
        ..Boot::default()
    };
    let mut guest = Guest::boot(run, &boot)?;
    guest.expect("ready")?;
    let mut lab = Lab {
        run,
        program,
        relay: Relay::start(port)?,
        guest,
    };
    lab.step("delegations are recalled");
    lab.recalls("recalled", false)?;
    lab.step("the same after the connection was lost");
    lab.recalls("lost", true)?;
    lab.step("nothing answers CB_RECALL");
    lab.nobody_answers()?;
    lab.guest.tell("stop")?;
    lab.guest.finish()
}

struct Lab<'a> {
    run: &'a TestRun<'a>,
    program: PathBuf,
    relay: Relay,
    guest: Guest<'a>,
}

impl Lab<'_> {
    fn step(&self, what: &str) {
        self.run.report.say(self.run.name, what);
    }

    /// Begins the client with these arguments before and behind the server's address.
    fn begin(&self, name: &str, before: &[&str], behind: &[String]) -> Result<Running> {
        let mut command = Command::new(&self.program);
        let server = format!("127.0.0.1:{}", self.relay.port);
        command.args(before).arg(server).args(behind);
        Running::start(self.run, name, &mut command)
    }

    /// All delegations of a set of files are recalled and given back; before that, the connection may
    /// be lost. Not meanwhile: Linux 6.1 does not repeat what it called in vain.
    fn recalls(&mut self, set: &str, lost: bool) -> Result<()> {
        self.guest.ask(&format!("make {set} {FILES}"))?;
        let files: Vec<_> = (1..=FILES).map(|file| format!("{set}-{file}")).collect();
        let mut client = self.begin(set, &[], &files)?;
        client.expect(&format!("holds: {set}-{FILES}"), WAIT_LIMIT)?;
        if lost {
            let before = self.relay.taken_in();
            self.relay.cut(End::Reset);
            self.relay.wait_for_connection(before, WAIT_LIMIT)?;
            client.expect("status: the callback channel is up again", WAIT_LIMIT)?;
        }
        self.guest.tell("channel")?;
        let channel = self.guest.expect("channel")?;
        ensure!(channel == "UP", "the callback channel is {channel}");
        self.write(set, FILES)?;
        let (printed, _) = client.finish(WAIT_LIMIT)?;
        let times = |line: &str| {
            printed
                .lines()
                .filter(|seen| seen.starts_with(line))
                .count()
        };
        ensure!(
            times("called: CB_SEQUENCE") == FILES
                && times("called: CB_RECALL") == FILES
                && times("returned: ") == FILES,
            "not all was called for and returned:\n{printed}"
        );
        let well = printed.lines().last().unwrap_or_default();
        ensure!(
            well.starts_with("well: "),
            "it did not end well:\n{printed}"
        );
        self.step(well);
        Ok(())
    }

    /// A client with nothing that answers: the transport says PROG_UNAVAIL, the kernel says that the
    /// callback channel is of no use, and goes on answering.
    fn nobody_answers(&mut self) -> Result<()> {
        self.guest.ask("make deaf 1")?;
        let file = ["deaf-1".to_owned()];
        let mut client = self.begin("deaf", &["--deaf"], &file)?;
        client.expect("holds: deaf-1", WAIT_LIMIT)?;
        self.write("deaf", 1)?;
        let (printed, _) = client.finish(WAIT_LIMIT)?;
        ensure!(
            printed.contains("status: the server has noticed"),
            "the kernel did not notice:\n{printed}"
        );
        Ok(())
    }

    /// Has somebody else write to files, for which no delegation may have to be taken away.
    fn write(&mut self, set: &str, count: usize) -> Result<()> {
        self.guest.tell(&format!("write {set} {count}"))?;
        let seconds: u64 = self.guest.expect("written")?.parse()?;
        ensure!(
            seconds < LEASE_SECONDS,
            "a delegation was taken away after {seconds} s, not given back"
        );
        Ok(())
    }
}
