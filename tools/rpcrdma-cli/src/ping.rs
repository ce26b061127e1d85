//! `rpcrdma ping`: measures the time of NULL calls.

use crate::connect::ConnectArgs;
use crate::endpoint::Endpoint;
use crate::failure::Ended;
use crate::interrupt::Interrupt;
use crate::units;
use clap::Args;
use nfs_proto::{NFS_PROGRAM, NFS_V3};
use oncrpc::xdr;
use oncrpc::{
    Credential, MAX_REPLY_HEADER, Procedure, ReplyBound, RpcError, Transport, TransportError,
};
use rpcrdma::{ConnectionInfo, Design};
use serde::Serialize;
use std::io::Write;
use std::time::{Duration, Instant};

/// Call the server's procedure NULL again and again, and say how long each call takes
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  rpcrdma ping 127.0.0.1
  rpcrdma ping -c 5 -i 200ms files.example.org:20049
  rpcrdma ping -c 100 -i 0 --json 127.0.0.1

Ends with exit code 1 if a call was not answered.")]
pub(crate) struct PingArgs {
    /// The server; port 20049 if none is given
    #[arg(value_name = "HOST[:PORT]")]
    server: Endpoint,

    /// End after this many calls; without it, at an interrupt (Ctrl-C)
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Time between the beginnings of two calls; a plain number is in seconds, 0 does not wait
    #[arg(short, long, default_value = "1s", value_name = "DURATION", value_parser = units::parse_duration)]
    interval: Duration,

    /// Print nothing but one JSON object at the end
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    connect: ConnectArgs,
}

/// Times of the calls so far.
#[derive(Clone, Debug, Default)]
struct Statistics {
    sent: u64,
    received: u64,
    min: Duration,
    max: Duration,
    /// In seconds.
    sum: f64,
    /// In seconds squared.
    sum_of_squares: f64,
}

/// The statistics as a program reads them; times in milliseconds.
#[derive(Serialize)]
struct Report<'a> {
    server: &'a str,
    #[serde(flatten)]
    agreed: Agreed,
    sent: u64,
    received: u64,
    loss_percent: f64,
    total_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    rtt_ms: Option<RoundTrip>,
}

/// What was agreed on, if there is a connection in the end.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Agreed {
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
            rpcrdma_version: Some(info.version.number()),
            remote_invalidation: info.remote_invalidation.map(Design::name),
        }
    }
}

/// Round-trip times in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct RoundTrip {
    min: f64,
    avg: f64,
    max: f64,
    mdev: f64,
}

/// Runs the command.
pub(crate) async fn run(args: &PingArgs) -> anyhow::Result<Ended> {
    let interrupt = Interrupt::listen()?;
    let (client, _) = args.connect.connect(&args.server).await?;
    let server = args.server.to_string();
    let mut out = std::io::stdout();
    if !args.json {
        let (version, about) = match client.connection() {
            Some(info) => {
                let number = info.version.number();
                let design = info.remote_invalidation.map_or("off", Design::name);
                let version = format!(" version {number}, remote invalidation {design}");
                (version, info.description)
            }
            None => (String::new(), args.connect.transport.describe()),
        };
        writeln!(
            out,
            "PING {server}: NFS NULL over RPC-over-RDMA{version} ({about})"
        )?;
    }
    let start = Instant::now();
    let mut statistics = Statistics::default();
    while args.count != Some(statistics.sent) {
        let begin = Instant::now();
        let seq = statistics.sent + 1;
        let called = tokio::select! {
            biased;
            () = interrupt.wait() => break,
            called = answered(&client) => called,
        };
        let took = begin.elapsed();
        statistics.add(called.is_ok().then_some(took));
        match called {
            Ok(()) if args.json => {}
            Ok(()) => writeln!(
                out,
                "reply from {server}: seq={seq} time={:.3} ms",
                ms(took)
            )?,
            Err(error) => {
                let why = nfs_client::printable(format!("{error:#}").as_bytes());
                eprintln!("rpcrdma: seq={seq}: {why}");
            }
        }
        let pause = args.interval.saturating_sub(took);
        if args.count == Some(seq) || pause.is_zero() {
            continue;
        }
        tokio::select! {
            () = interrupt.wait() => break,
            () = tokio::time::sleep(pause) => {}
        }
    }
    let total = start.elapsed();
    let agreed = client.connection().as_ref().map(Agreed::from);
    client.close().await;
    if args.json {
        let report = statistics.report(&server, agreed.unwrap_or_default(), total);
        writeln!(out, "{}", serde_json::to_string(&report)?)?;
    } else {
        writeln!(out, "\n{}", statistics.text(&server, total))?;
    }
    Ok(
        if statistics.received == statistics.sent && statistics.sent > 0 {
            Ended::Well
        } else {
            Ended::Partly
        },
    )
}

/// A call that is answered as it should be.
async fn answered(client: &impl Transport) -> anyhow::Result<()> {
    Ok(null(client).await??)
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

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl Statistics {
    /// Counts one call; none is a call without an answer.
    fn add(&mut self, took: Option<Duration>) {
        self.sent += 1;
        let Some(took) = took else {
            return;
        };
        self.min = if self.received == 0 {
            took
        } else {
            self.min.min(took)
        };
        self.max = self.max.max(took);
        self.received += 1;
        self.sum += took.as_secs_f64();
        self.sum_of_squares += took.as_secs_f64().powi(2);
    }

    fn loss_percent(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a share in percent")]
        let share = (self.sent - self.received) as f64 / self.sent.max(1) as f64;
        share * 100.0
    }

    /// None without an answer.
    fn round_trip(&self) -> Option<RoundTrip> {
        if self.received == 0 {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "nobody waits for 2^53 replies")]
        let count = self.received as f64;
        let avg = self.sum / count;
        let variance = self.sum_of_squares / count - avg * avg;
        Some(RoundTrip {
            min: ms(self.min),
            avg: avg * 1e3,
            max: ms(self.max),
            // Rounding may leave less than nothing.
            mdev: variance.max(0.0).sqrt() * 1e3,
        })
    }

    fn report<'a>(&self, server: &'a str, agreed: Agreed, total: Duration) -> Report<'a> {
        Report {
            server,
            agreed,
            sent: self.sent,
            received: self.received,
            loss_percent: self.loss_percent(),
            total_ms: ms(total),
            rtt_ms: self.round_trip(),
        }
    }

    fn text(&self, server: &str, total: Duration) -> String {
        let mut text = format!(
            "--- {server} ping statistics ---\n{} calls, {} replies, {:.0}% lost, time {:.0} ms",
            self.sent,
            self.received,
            self.loss_percent(),
            ms(total)
        );
        if let Some(RoundTrip {
            min,
            avg,
            max,
            mdev,
        }) = self.round_trip()
        {
            text += &format!("\nrtt min/avg/max/mdev = {min:.3}/{avg:.3}/{max:.3}/{mdev:.3} ms");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statistics(calls: &[Option<u64>]) -> Statistics {
        let mut statistics = Statistics::default();
        for took in calls {
            statistics.add(took.map(Duration::from_micros));
        }
        statistics
    }

    #[test]
    fn statistics_are_those_of_ping() {
        let text = statistics(&[Some(100), None, Some(300), Some(200)])
            .text("h:1", Duration::from_millis(3001));
        assert_eq!(
            text,
            "--- h:1 ping statistics ---\n\
             4 calls, 3 replies, 25% lost, time 3001 ms\n\
             rtt min/avg/max/mdev = 0.100/0.200/0.300/0.082 ms"
        );
    }

    #[test]
    fn without_an_answer_there_are_no_times() {
        let none = statistics(&[None, None]);
        assert_eq!(none.round_trip(), None);
        let json =
            serde_json::to_string(&none.report("h:1", Agreed::default(), Duration::ZERO)).unwrap();
        assert_eq!(
            json,
            r#"{"server":"h:1","sent":2,"received":0,"loss_percent":100.0,"total_ms":0.0}"#
        );
        assert!(
            statistics(&[])
                .text("h:1", Duration::ZERO)
                .contains("0% lost")
        );
    }
}
