//! The kernel's server ends and comes back under our client, with other inline sizes and once
//! without what it had not committed; and the connection to it is cut in every way there is.

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::kernel_server::KernelServer;
use super::our_client::{OurClient, Running};
use super::{MIB, sha256, tree, write_noise};
use crate::TestRun;
use crate::relay::{End, Relay, To};

/// Size of the large files, in MiB: less than our client writes before it commits.
const BIG_MIB: usize = 24;

const LIMIT: Duration = Duration::from_secs(600);

/// For each command, and for each thing that has to happen meanwhile.
const COMMAND_LIMIT: Duration = Duration::from_secs(240);
const WAIT_LIMIT: Duration = Duration::from_secs(120);

/// Names to list.
const ENTRIES: usize = 2000;

/// Calls in flight for a large file that is put, of 1 MiB each. Amid 16 of them the end of a connection
/// is more than Linux' server can take: see docs/guide/linux-server.md.
const FEW: &str = "--credits=4";

/// Part of a large file that has to pass between two events, in bytes.
const APART: u64 = 5 * MIB as u64;

/// Inline sizes of the kernel's server: the least it takes, and a larger one.
const SMALL: usize = 4096;
const LARGE: usize = 16384;

/// Event at a connection with work on it.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// The kernel's server comes back, with these inline sizes.
    Restart(usize),
    /// The same, and nobody refuses the client meanwhile: siw may take a connection in while it
    /// stops to listen, and forget it.
    RestartInSight(usize),
    /// The same after its last replies, which do not arrive. Not while it fetches data, which does not
    /// arrive either: the kernel's server does not end before it has it.
    RestartUnheard(usize),
    /// It comes back without what it had of a file of [`BIG_MIB`].
    Lose,
    Cut(End),
    /// Behind so many bytes, amid a frame.
    Within(To, u64),
    /// When nothing more is said, as no reply has arrived.
    Unheard,
}

pub(super) fn run(run: &TestRun<'_>) -> Result<()> {
    let mut server = KernelServer::start(run, BIG_MIB, LIMIT)?;
    server.make_entries(ENTRIES)?;
    let relay = Relay::start(server.port)?;
    let client = OurClient {
        run,
        port: relay.port,
        mount_port: server.mount_port,
    };
    let mut lab = Lab {
        server,
        relay,
        client,
    };
    lab.put_and_get_one_file()?;
    lab.list()?;
    lab.put_and_get_a_tree()?;
    lab.ping()?;
    lab.server.stop()
}

struct Lab<'a> {
    server: KernelServer<'a>,
    relay: Relay,
    client: OurClient<'a>,
}

impl Lab<'_> {
    /// Has `running` go on for so many bytes in one direction, then this happens, and so on.
    fn disturb(
        &mut self,
        running: &mut Running,
        (to, bytes): (To, u64),
        events: &[Event],
    ) -> Result<()> {
        for event in events {
            self.relay.wait_until_passed(to, bytes, WAIT_LIMIT)?;
            running.still_runs()?;
            let before = self.relay.taken_in();
            match *event {
                Event::Restart(size) => self.refusing(|server| server.restart(size))?,
                Event::RestartInSight(size) => self.server.restart(size)?,
                Event::RestartUnheard(size) => {
                    self.relay.hold(To::Client);
                    self.relay.wait_for_silence(To::Server, WAIT_LIMIT)?;
                    self.server.restart(size)?;
                    self.relay.cut(End::Reset);
                }
                Event::Lose => self.refusing(|server| server.lose(BIG_MIB * MIB))?,
                Event::Cut(end) => self.relay.cut(end),
                Event::Within(to, bytes) => self.relay.cut_after(to, bytes, End::Close),
                Event::Unheard => {
                    self.relay.hold(To::Client);
                    self.relay.wait_for_silence(To::Server, WAIT_LIMIT)?;
                    self.relay.cut(End::Reset);
                }
            }
            self.relay.wait_for_connection(before, WAIT_LIMIT)?;
            running.still_runs()?;
            self.client.step(&format!("reconnected after {event:?}"));
        }
        Ok(())
    }

    /// Does this to the server while connections are refused.
    fn refusing(&mut self, change: impl FnOnce(&mut KernelServer<'_>) -> Result<()>) -> Result<()> {
        self.relay.refuse(true);
        change(&mut self.server)?;
        self.relay.refuse(false);
        Ok(())
    }

    fn put_and_get_one_file(&mut self) -> Result<()> {
        let work = &self.client.run.work;
        let local = work.join("local");
        let got = work.join("got");
        write_noise(&local, BIG_MIB * MIB)?;
        let url = self.client.url("inbox/put");

        self.client.step("put 24 MiB");
        let arguments = ["put", "-q", &local.display().to_string(), &url, FEW];
        let mut put = self.client.begin("put", &arguments)?;
        let events = [
            Event::RestartInSight(SMALL),
            Event::Within(To::Server, 20_001),
            Event::Lose,
            Event::Unheard,
        ];
        self.disturb(&mut put, (To::Server, APART), &events)?;
        put.finish(COMMAND_LIMIT)?;
        ensure!(
            self.server.sum("inbox/put")? == sha256(&local)?,
            "what arrived differs from what was put"
        );

        self.client.step("get 24 MiB");
        let from = self.client.url("shelf/big");
        let arguments = ["get", "-q", &from, &got.display().to_string()];
        let mut get = self.client.begin("get", &arguments)?;
        let events = [
            Event::Cut(End::Reset),
            Event::RestartInSight(SMALL),
            Event::Within(To::Client, 300_003),
            Event::Cut(End::Close),
        ];
        self.disturb(&mut get, (To::Client, APART), &events)?;
        get.finish(COMMAND_LIMIT)?;
        ensure!(
            self.server.sum("shelf/big")? == sha256(&got)?,
            "what was got differs"
        );
        Ok(())
    }

    fn list(&mut self) -> Result<()> {
        self.client.step("list a directory and a file");
        let arguments = ["ls", "-l", &self.client.url("many")];
        let mut ls = self.client.begin("ls", &arguments)?;
        let events = [Event::Unheard, Event::RestartUnheard(SMALL)];
        self.disturb(&mut ls, (To::Client, 40_000), &events)?;
        let (listing, _) = ls.finish(COMMAND_LIMIT)?;
        let names = listing.matches("entry-").count();
        ensure!(names == ENTRIES, "{names} names of {ENTRIES}");
        let url = self.client.url("shelf/sub/deep/file");
        let (said, _) = self
            .client
            .begin("cat", &["cat", &url])?
            .finish(COMMAND_LIMIT)?;
        ensure!(said == "deep\n", "cat shows {said:?}");
        Ok(())
    }

    /// Many small calls, none of which may be executed twice to a bad end, while inline sizes grow
    /// and shrink: what is sent inline to one server is a chunk for the next.
    fn put_and_get_a_tree(&mut self) -> Result<()> {
        self.server.restart(LARGE)?;
        let work = self.client.run.work.clone();
        let local = work.join("tree");
        tree::make(&local)?;
        let expected = tree::sums(&local)?;
        let size = format!("--inline-size={LARGE}");
        let events = [
            Event::Restart(SMALL),
            Event::Restart(LARGE),
            Event::Unheard,
            Event::Within(To::Client, 1001),
        ];
        let all = tree::BYTES as u64;
        let apart = all / (events.len() as u64 + 4);

        self.client.step("put a tree of small files");
        let inbox = self.client.url("inbox");
        let arguments = ["put", "-qr", &local.display().to_string(), &inbox, &size];
        let mut put = self.client.begin("put-tree", &arguments)?;
        self.disturb(&mut put, (To::Server, apart), &events)?;
        let (_, log) = put.finish(COMMAND_LIMIT)?;
        sizes_changed(&log)?;
        let arrived = self.server.tree("inbox/tree")?;
        ensure!(
            arrived == expected,
            "the tree that arrived differs: {arrived}, not {expected}"
        );

        self.client.step("get it back");
        let back = work.join("back");
        fs::create_dir(&back)?;
        let from = self.client.url("inbox/tree");
        let arguments = ["get", "-qr", &from, &back.display().to_string(), &size];
        let mut get = self.client.begin("get-tree", &arguments)?;
        self.disturb(&mut get, (To::Client, apart), &events)?;
        let (_, log) = get.finish(COMMAND_LIMIT)?;
        sizes_changed(&log)?;
        let got = tree::sums(&back.join("tree"))?;
        ensure!(
            got == expected,
            "the tree that was got differs: {got}, not {expected}"
        );
        Ok(())
    }

    fn ping(&mut self) -> Result<()> {
        self.client.step("ping, one call at a time");
        let arguments = ["-c", "40", "-i", "0.1"];
        let mut ping = self.client.begin_ping("ping", &arguments)?;
        let events = [
            Event::Cut(End::Close),
            Event::RestartUnheard(SMALL),
            Event::Cut(End::Reset),
            Event::Unheard,
        ];
        self.disturb(&mut ping, (To::Client, 300), &events)?;
        ping.finish(COMMAND_LIMIT)?;
        Ok(())
    }
}

/// A client that asks for [`LARGE`] gets what the server has at the time.
fn sizes_changed(log: &str) -> Result<()> {
    let agreed = |size| {
        let agreed = format!(
            "thresholds=Thresholds {{ send: InlineThreshold({size}), receive: InlineThreshold({size}) }}"
        );
        log.matches(&agreed).count()
    };
    let (small, large) = (agreed(SMALL), agreed(LARGE));
    ensure!(
        small > 0 && large > 1,
        "{small} connections with {SMALL} bytes inline, {large} with {LARGE}, in the log:\n{log}"
    );
    Ok(())
}
