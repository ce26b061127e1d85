//! `rpcrdma ping`: measures the time of NULL calls.

use crate::connect::ConnectArgs;
use crate::endpoint::Endpoint;
use crate::failure::Ended;
use crate::interrupt::{Interrupt, Interrupted};
use crate::provider;
use anyhow::anyhow;
use clap::Args;
use nfs_client::printable;
use nfs_proto::{NFS_PROGRAM, NFS_V3};
use oncrpc::xdr;
use oncrpc::{
    Credential, MAX_REPLY_HEADER, Procedure, ReplyBound, RpcError, Transport, TransportError,
};
use printing::json;
use printing::latency::{Latencies, milliseconds};
use printing::units;
use rpcrdma::{Client, ConnectionInfo, Design, Version};
use rpcrdma_daemon::log;
use serde::Serialize;
use std::io::{self, Write};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

/// Measure the round-trip time of NULL calls
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  rpcrdma ping 127.0.0.1
  rpcrdma ping -c 5 -i 200ms files.example.org:20049
  rpcrdma ping -q -w 1m 127.0.0.1
  rpcrdma ping -c 1 -W 2s --json 127.0.0.1

The options are those of ping(8). Calls are sent at the interval even if earlier ones are \
unanswered. A failed call is reported and counted, and the next one is sent. A lost connection \
is reported and made again.

Exit codes: 0 every call was answered, 1 no call was made or one was not answered, 2 wrong \
command line. This also holds after Ctrl-C, which prints the summary.")]
pub(crate) struct PingArgs {
    /// Server [default port: 20049]
    #[arg(value_name = "HOST[:PORT]")]
    server: Endpoint,

    /// Stop after N calls, or with --deadline after N replies [default: until Ctrl-C]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Interval between calls (0 = --adaptive)
    #[arg(short, long, default_value = "1s", value_name = "DURATION",
        value_parser = units::parse_duration)]
    interval: Duration,

    /// Send the next call when the previous one has ended
    #[arg(short = 'A', long, conflicts_with = "interval")]
    adaptive: bool,

    /// Stop after this time, however many calls were sent
    #[arg(short = 'w', long, value_name = "DURATION", value_parser = units::parse_duration)]
    deadline: Option<Duration>,

    /// Time to wait for each reply [default: 10s, or --timeout if that is less]
    #[arg(short = 'W', long, value_name = "DURATION", value_parser = units::parse_duration)]
    wait: Option<Duration>,

    /// Print only the first line and the summary
    #[arg(short, long)]
    quiet: bool,

    /// Print what was negotiated, and how to see the connection in Wireshark
    #[arg(short, long, conflicts_with_all = ["quiet", "json"])]
    verbose: bool,

    /// Print only one JSON object at the end, also if the connection fails
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    connect: ConnectArgs,
}

/// How long a call waits for its reply unless the user says.
const WAIT: Duration = Duration::from_secs(10);

/// Calls that wait for their replies at a time.
const MAX_OUTSTANDING: usize = 1024;

/// How long calls that are outstanding at the deadline or at an interrupt are waited for: two round trips, as
/// ping(8) does, and never longer than this.
const LAST_REPLIES: Duration = Duration::from_secs(1);

/// How long the end of the connection may take.
const CLOSED_WITHIN: Duration = Duration::from_secs(2);

/// Statistics so far.
#[derive(Debug, Default)]
struct Statistics {
    sent: u64,
    /// Calls that have ended without a reply.
    failed: u64,
    /// Of these, those that the server answered with an error.
    refused: u64,
    /// Of the calls that were answered.
    latencies: Latencies,
    /// The lowest and the highest version of NFS, if version 3 is not served.
    other_versions: Option<(u32, u32)>,
    /// Connections that replaced a lost one.
    reconnects: u64,
}

/// The statistics as a program reads them; times in milliseconds.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Report<'a> {
    /// The server, as `HOST:PORT`.
    server: &'a str,
    #[serde(flatten)]
    agreed: Agreed,
    /// Calls that were made.
    sent: u64,
    /// Calls that were answered.
    received: u64,
    /// Share of the calls that were not answered.
    loss_percent: f64,
    /// Milliseconds from the first call to the end.
    total_ms: f64,
    /// Connections that replaced a lost one.
    reconnects: u64,
    /// Round-trip times, if there was a reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    rtt_ms: Option<RoundTrip>,
    /// The lowest and the highest version of NFS that the server has, if it has not version 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    nfs_versions: Option<[u32; 2]>,
    /// Why it ended before its time, or what the last call that failed failed with.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Agreed values, if there is a connection in the end.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Agreed {
    /// Provider of the connection: `iwarp` (software iWARP over TCP) or `verbs` (an RDMA device).
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<&'static str>,
    /// Name of the RDMA device, if it uses one.
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<String>,
    /// Of RPC-over-RDMA.
    #[serde(skip_serializing_if = "Option::is_none")]
    rpcrdma_version: Option<u32>,
    /// The design by which the server may invalidate our handles, if it may.
    #[serde(skip_serializing_if = "Option::is_none")]
    remote_invalidation: Option<&'static str>,
}

impl From<&ConnectionInfo> for Agreed {
    fn from(info: &ConnectionInfo) -> Self {
        Self {
            provider: Some(provider::name(info.device.is_some())),
            device: info.device.clone(),
            rpcrdma_version: Some(info.version.number()),
            remote_invalidation: info.remote_invalidation.map(Design::name),
        }
    }
}

/// Round-trip times in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct RoundTrip {
    /// The shortest.
    min: f64,
    /// The mean.
    avg: f64,
    /// The longest.
    max: f64,
    /// The standard deviation.
    mdev: f64,
    /// The median.
    p50: f64,
    /// 90 % are not longer.
    p90: f64,
    /// 99 % are not longer.
    p99: f64,
}

/// Runs the command.
pub(crate) async fn run(args: &PingArgs) -> anyhow::Result<Ended> {
    let mut ping = Ping {
        args,
        server: args.server.to_string(),
        interrupt: Interrupt::listen()?,
        start: Instant::now(),
        statistics: Statistics::default(),
        last_error: None,
    };
    let client = match ping.connect().await {
        Ok(client) => client,
        Err(error) => {
            if args.json {
                let why = printable(format!("{error:#}").as_bytes());
                ping.print_json(Agreed::default(), Some(why))?;
            }
            return Err(error);
        }
    };
    if !args.json {
        ping.print_header(&client)?;
    }
    // What cannot be printed any more ends it, and the connection is closed all the same.
    let called = ping.call(&client).await;
    ping.statistics.reconnects = client.reconnects();
    let agreed = client.connection().as_ref().map(Agreed::from);
    // Nothing is lost with a connection on which no call waits.
    let _ = timeout(CLOSED_WITHIN, client.close()).await;
    called?;
    if args.json {
        let last_error = ping.last_error.take();
        ping.print_json(agreed.unwrap_or_default(), last_error)?;
    } else {
        let total = ping.start.elapsed();
        writeln!(
            crate::output::stdout(),
            "\n{}",
            ping.statistics.text(&ping.server, total)
        )?;
        if agreed.is_some()
            && let Some(hint) = ping.statistics.hint()
        {
            log::tell(hint);
        }
    }
    Ok(ping.statistics.ended())
}

/// One run of the command.
struct Ping<'a> {
    args: &'a PingArgs,
    server: String,
    interrupt: Interrupt,
    start: Instant,
    statistics: Statistics,
    /// Error of the last call that failed.
    last_error: Option<String>,
}

/// How a call ended.
struct Called {
    seq: u64,
    took: Duration,
    answered: anyhow::Result<Answered>,
}

/// Answer of a server to NULL of NFS version 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answered {
    /// Nothing.
    Void,
    /// It has versions from the first to the second, and not this one (PROG_MISMATCH).
    OtherVersions(u32, u32),
}

impl Answered {
    /// Returns the answer in a reply: also that another version is there is one.
    fn of(reply: Result<(), RpcError>) -> Result<Self, RpcError> {
        match reply {
            Err(RpcError::ProgMismatch { low, high }) => Ok(Self::OtherVersions(low, high)),
            reply => reply.map(|()| Self::Void),
        }
    }
}

impl Ping<'_> {
    /// How long a call waits for its reply.
    fn wait(&self) -> Duration {
        let usual = WAIT.min(self.args.connect.timeout);
        self.args.wait.unwrap_or(usual)
    }

    /// Ends at the deadline, if there is one.
    async fn deadline(start: Instant, deadline: Option<Duration>) {
        match deadline {
            Some(deadline) => sleep_until(start + deadline).await,
            None => std::future::pending().await,
        }
    }

    async fn connect(&self) -> anyhow::Result<Client> {
        let (client, _) = tokio::select! {
            biased;
            signal = self.interrupt.signal() => return Err(Interrupted(signal).into()),
            connected = self.args.connect.connect(&self.args.server) => connected?,
            () = Self::deadline(self.start, self.args.deadline) => {
                let deadline = units::duration(self.args.deadline.unwrap_or_default());
                return Err(anyhow!("no connection to {} within {deadline}", self.server));
            }
        };
        Ok(client)
    }

    fn print_header(&self, client: &Client) -> io::Result<()> {
        let mut out = crate::output::stdout();
        let server = &self.server;
        let Some(info) = client.connection() else {
            let about = self.args.connect.transport.describe();
            return writeln!(out, "PING {server}: NFS NULL over RPC-over-RDMA ({about})");
        };
        let number = info.version.number();
        let design = info.remote_invalidation.map_or("off", Design::name);
        writeln!(
            out,
            "PING {server}: NFS NULL over RPC-over-RDMA version {number}, remote invalidation {design} \
             ({})",
            info.description
        )?;
        if self.args.verbose {
            writeln!(
                out,
                "inline threshold: {} bytes to the server, {} bytes from it\n{}",
                info.thresholds.send.bytes(),
                info.thresholds.receive.bytes(),
                wireshark(info.version)
            )?;
        }
        Ok(())
    }

    /// Makes calls until there were enough, or the time is over, or the user interrupts.
    async fn call(&mut self, client: &Client) -> anyhow::Result<()> {
        let mut calls = JoinSet::new();
        let mut next = Instant::now();
        let (interval, most) = match self.args.interval {
            _ if self.args.adaptive => (Duration::ZERO, 1),
            Duration::ZERO => (Duration::ZERO, 1),
            interval => (interval, MAX_OUTSTANDING),
        };
        let deadline = Self::deadline(self.start, self.args.deadline);
        let mut deadline = std::pin::pin!(deadline);
        let is_over = loop {
            let wants_calls = self.wants_calls();
            if !wants_calls && calls.is_empty() {
                break true;
            }
            tokio::select! {
                biased;
                () = self.interrupt.wait() => break false,
                () = &mut deadline => break false,
                Some(called) = calls.join_next() => self.ended(client, called?)?,
                () = sleep_until(next), if wants_calls && calls.len() < most => {
                    self.statistics.sent += 1;
                    calls.spawn(null_within(client.clone(), self.wait(), self.statistics.sent));
                    // Calls that could not be sent in time are not made up for.
                    next = (next + interval).max(Instant::now());
                }
            }
        };
        if !is_over {
            let until = Instant::now() + LAST_REPLIES.min(2 * self.statistics.latencies.max());
            while let Ok(Some(called)) = timeout_at(until, calls.join_next()).await {
                self.ended(client, called?)?;
            }
        }
        Ok(())
    }

    /// Whether another call is to be sent. With a deadline it is replies that are counted.
    fn wants_calls(&self) -> bool {
        let Statistics { sent, failed, .. } = self.statistics;
        let counted = match self.args.deadline {
            Some(_) => sent - failed,
            None => sent,
        };
        self.args.count.is_none_or(|count| counted < count)
    }

    /// Counts and prints a call that has ended.
    fn ended(&mut self, client: &Client, called: Called) -> io::Result<()> {
        let silent = self.args.json || self.args.quiet;
        let server = &self.server;
        let reconnects = client.reconnects();
        if reconnects > self.statistics.reconnects && !silent {
            // Of a terminal that has gone nobody reads it.
            let _ = writeln!(
                io::stderr(),
                "rpcrdma: the connection to {server} was lost and made again"
            );
        }
        self.statistics.reconnects = reconnects;
        let Called {
            seq,
            took,
            answered,
        } = called;
        match answered {
            Ok(answer) => {
                self.statistics.latencies.record(took);
                let versions = match answer {
                    Answered::Void => String::new(),
                    Answered::OtherVersions(low, high) => {
                        self.statistics.other_versions = Some((low, high));
                        format!(" ({})", other_versions(low, high))
                    }
                };
                if !silent {
                    let time = milliseconds(took);
                    writeln!(
                        crate::output::stdout(),
                        "reply from {server}: seq={seq} time={time:.3} ms{versions}"
                    )?;
                }
            }
            Err(error) => {
                let why = printable(format!("{error:#}").as_bytes());
                if !silent {
                    let _ = writeln!(io::stderr(), "rpcrdma: seq={seq}: {why}");
                }
                self.statistics.failed += 1;
                self.statistics.refused += u64::from(is_answer(&error));
                self.last_error = Some(why);
            }
        }
        Ok(())
    }

    fn print_json(&self, agreed: Agreed, error: Option<String>) -> anyhow::Result<()> {
        let total = self.start.elapsed();
        let report = self.statistics.report(&self.server, agreed, total, error);
        writeln!(crate::output::stdout(), "{}", json::line(&report)?)?;
        Ok(())
    }
}

/// The versions of a server that has not version 3.
fn other_versions(low: u32, high: u32) -> String {
    match low == high {
        true => format!("NFS version {low} only"),
        false => format!("NFS versions {low} to {high}, without 3"),
    }
}

/// Whether Wireshark decodes what was agreed on.
fn wireshark(version: Version) -> &'static str {
    match version.number() {
        1 => "Wireshark decodes this version of RPC-over-RDMA",
        _ => {
            "Wireshark does not decode this version of RPC-over-RDMA by itself: load its dissector,\n\
             contrib/wireshark/rpcrdma-v2.lua, or ping with --rpcrdma-version 1"
        }
    }
}

/// Whether a call failed with what the server said, and not for want of an answer.
fn is_answer(error: &anyhow::Error) -> bool {
    match error.downcast_ref::<TransportError>() {
        Some(
            TransportError::Unreachable(_)
            | TransportError::Disconnected(_)
            | TransportError::TimedOut(_),
        ) => false,
        Some(_) | None => true,
    }
}

/// One call that is to be answered within this time.
async fn null_within(client: Client, limit: Duration, seq: u64) -> Called {
    let begin = Instant::now();
    let answered = async {
        let reply = null(&client.within(limit)).await?;
        anyhow::Ok(Answered::of(reply)?)
    }
    .await;
    Called {
        seq,
        took: begin.elapsed(),
        answered,
    }
}

/// One call of NFS NULL (RFC 1813 §3.3.0): what RPC says of it, if there is a reply.
pub(crate) async fn null(
    transport: &impl Transport,
) -> Result<Result<(), RpcError>, TransportError> {
    let xid = transport.next_xid();
    let mut w = xdr::Writer::default();
    let target = Procedure {
        prog: NFS_PROGRAM,
        vers: NFS_V3,
        proc: 0,
    };
    oncrpc::write_call(&mut w, xid, target, &Credential::None);
    let bound = ReplyBound {
        fixed: MAX_REPLY_HEADER,
        ..ReplyBound::default()
    };
    let reply = transport.call(w.finish(), bound).await?;
    Ok(oncrpc::read_reply(&reply, xid).map(drop))
}

impl Statistics {
    fn received(&self) -> u64 {
        self.latencies.count()
    }

    /// All is well if there were calls, and each was answered.
    fn ended(&self) -> Ended {
        match self.sent > 0 && self.received() == self.sent {
            true => Ended::Well,
            false => Ended::Partly,
        }
    }

    /// Possible cause if there is a connection, and no call was answered.
    fn hint(&self) -> Option<&'static str> {
        if self.sent == 0 || self.received() > 0 || self.refused > 0 {
            return None;
        }
        Some(match self.reconnects {
            0 => {
                "the connection is there, and no call was answered: a gateway is silent like that while its \
                 server is away"
            }
            _ => {
                "the server closed the connection, and no call was answered: if it is a gateway, its log says why"
            }
        })
    }

    fn loss_percent(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a share in percent")]
        let share = (self.sent - self.received()) as f64 / self.sent.max(1) as f64;
        (share * 1e5).round() / 1e3
    }

    /// None without an answer.
    fn round_trip(&self) -> Option<RoundTrip> {
        let latencies = &self.latencies;
        (latencies.count() > 0).then(|| RoundTrip {
            min: milliseconds(latencies.min()),
            avg: milliseconds(latencies.mean()),
            max: milliseconds(latencies.max()),
            mdev: milliseconds(latencies.deviation()),
            p50: milliseconds(latencies.percentile(50.0)),
            p90: milliseconds(latencies.percentile(90.0)),
            p99: milliseconds(latencies.percentile(99.0)),
        })
    }

    fn report<'a>(
        &self,
        server: &'a str,
        agreed: Agreed,
        total: Duration,
        error: Option<String>,
    ) -> Report<'a> {
        Report {
            server,
            agreed,
            sent: self.sent,
            received: self.received(),
            loss_percent: self.loss_percent(),
            total_ms: milliseconds(total),
            reconnects: self.reconnects,
            rtt_ms: self.round_trip(),
            nfs_versions: self.other_versions.map(|(low, high)| [low, high]),
            error,
        }
    }

    fn text(&self, server: &str, total: Duration) -> String {
        let mut text = format!(
            "--- {server} ping statistics ---\n{} calls, {} replies, {:.0}% lost, time {:.0} ms",
            self.sent,
            self.received(),
            self.loss_percent(),
            milliseconds(total)
        );
        match self.reconnects {
            0 => {}
            1 => text += ", 1 reconnect",
            several => text += &format!(", {several} reconnects"),
        }
        if let Some((low, high)) = self.other_versions {
            text += &format!(", {}", other_versions(low, high));
        }
        if let Some(rtt) = self.round_trip() {
            let RoundTrip {
                min,
                avg,
                max,
                mdev,
                p50,
                p90,
                p99,
            } = rtt;
            text += &format!(
                "\nrtt min/avg/max/mdev = {min:.3}/{avg:.3}/{max:.3}/{mdev:.3} ms\n\
                 rtt p50/p90/p99/max = {p50:.3}/{p90:.3}/{p99:.3}/{max:.3} ms"
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statistics(calls: &[Option<u64>]) -> Statistics {
        let answered = calls.iter().flatten();
        Statistics {
            sent: calls.len() as u64,
            failed: 0,
            refused: 0,
            latencies: answered.copied().map(Duration::from_micros).collect(),
            other_versions: None,
            reconnects: 0,
        }
    }

    #[test]
    fn server_without_version_three_answers_with_its_versions() {
        let (low, high) = (4, 4);
        let answer = Answered::of(Err(RpcError::ProgMismatch { low, high }));
        assert_eq!(answer, Ok(Answered::OtherVersions(4, 4)));
        assert_eq!(Answered::of(Ok(())), Ok(Answered::Void));
        let refused = Answered::of(Err(RpcError::ProgUnavail));
        assert_eq!(refused, Err(RpcError::ProgUnavail));
        let mut some = statistics(&[Some(100)]);
        some.other_versions = Some((4, 4));
        assert_eq!(some.ended(), Ended::Well);
        let text = some.text("h:1", Duration::ZERO);
        assert!(
            text.contains("1 replies, 0% lost, time 0 ms, NFS version 4 only\n"),
            "{text}"
        );
        let report = some.report("h:1", Agreed::default(), Duration::ZERO, None);
        let json = serde_json::to_string(&report).unwrap();
        assert!(json.contains(r#""nfs_versions":[4,4]"#), "{json}");
    }

    #[test]
    fn statistics_are_those_of_ping() {
        let mut some = statistics(&[Some(100), None, Some(300), Some(200)]);
        some.reconnects = 1;
        assert_eq!(
            some.text("h:1", Duration::from_millis(3001)),
            "--- h:1 ping statistics ---\n\
             4 calls, 3 replies, 25% lost, time 3001 ms, 1 reconnect\n\
             rtt min/avg/max/mdev = 0.100/0.200/0.300/0.082 ms\n\
             rtt p50/p90/p99/max = 0.200/0.300/0.300/0.300 ms"
        );
        assert_eq!(some.ended(), Ended::Partly);
        assert_eq!(statistics(&[Some(1)]).ended(), Ended::Well);
        assert_eq!(statistics(&[]).ended(), Ended::Partly);
    }

    #[test]
    fn silence_of_a_gateway_is_only_guessed_where_nothing_was_said() {
        let check = |calls: &[Option<u64>], refused, reconnects, expected: Option<&str>| {
            let hint = Statistics {
                refused,
                reconnects,
                ..statistics(calls)
            }
            .hint();
            match (hint, expected) {
                (Some(hint), Some(expected)) => assert!(hint.contains(expected), "{hint}"),
                (hint, expected) => assert_eq!(hint, expected),
            }
        };
        check(&[None, None], 0, 0, Some("a gateway is silent like that"));
        check(&[None, None], 0, 1, Some("its log says why"));
        check(&[None, None], 1, 0, None);
        check(&[None, Some(1)], 0, 0, None);
        check(&[], 0, 0, None);
    }

    #[test]
    fn without_an_answer_there_are_no_times() {
        let none = statistics(&[None, None]);
        assert_eq!(none.round_trip(), None);
        let report = none.report(
            "h:1",
            Agreed::default(),
            Duration::ZERO,
            Some("gone".into()),
        );
        assert_eq!(
            serde_json::to_string(&report).unwrap(),
            r#"{"server":"h:1","sent":2,"received":0,"loss_percent":100.0,"total_ms":0.0,"reconnects":0,"error":"gone"}"#
        );
        let none = statistics(&[]).text("h:1", Duration::ZERO);
        assert!(none.contains("0% lost"), "{none}");
    }
}
