//! Result of the measurement of a server, for people and for programs.

use super::load::{Outcome, Recorded};
use super::rates::{bandwidth, rate};
use super::subject::Subject;
use super::target::Target;
use super::workload::{Pattern, Stability, Workload};
use crate::failure::Ended;
use crate::provider;
use anyhow::{Error, Result};
use nfs_client::printable;
use printing::table::Columns;
use printing::units;
use printing::work::{self, Work};
use rpcrdma::{Client, Design};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

/// A measurement; members are called as in fio's JSON output where there is such a thing there.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Report {
    /// `HOST:PORT`, or the URL of what was measured.
    target: String,
    /// The file that was used, if one was.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<File>,
    #[serde(flatten)]
    connection: Connection,
    options: Options,
    /// NULL calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    null: Option<Figures>,
    /// READ calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    read: Option<Figures>,
    /// WRITE calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    write: Option<Figures>,
    /// Nanoseconds of the COMMIT at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    commit_ns: Option<u64>,
    /// Percent of one CPU that this process used.
    client_cpu: f64,
    /// Work of the client per call, if the ramp time ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    work: Option<Work>,
    /// Work of the server per call of any of its clients in the same time, if its control socket was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    server_work: Option<Work>,
    /// Why the work of the server is not known, although its control socket was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    server_work_error: Option<String>,
    /// Why it ended before its time.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// Whether people are shown the work too.
    #[serde(skip)]
    pub(super) counts: bool,
    #[serde(skip)]
    failed: Option<Error>,
}

/// The file that was used.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct File {
    /// The URL of the file.
    url: String,
    /// Bytes from its beginning that were used.
    size: u64,
    /// Whether it was made for the measurement and removed.
    temporary: bool,
}

/// Agreed values, if there is a connection at the end.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Connection {
    /// Version of RPC-over-RDMA.
    #[serde(skip_serializing_if = "Option::is_none")]
    rpcrdma_version: Option<u32>,
    /// The design by which the server may invalidate handles of the client, if it may.
    #[serde(skip_serializing_if = "Option::is_none")]
    remote_invalidation: Option<&'static str>,
    /// Provider of the connection: `iwarp` (software iWARP over TCP) or `verbs` (an RDMA device).
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<&'static str>,
    /// Name of the RDMA device, if it uses one.
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<String>,
    /// Transport of the data, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    transport: Option<String>,
    /// Calls that the server takes at a time, on the connection that has the fewest.
    #[serde(skip_serializing_if = "Option::is_none")]
    credits: Option<u32>,
    /// Connections that replaced a lost one.
    reconnects: u64,
}

/// Options of the measurement.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Options {
    /// The pattern of reads and writes.
    rw: Pattern,
    /// Bytes of a READ or WRITE.
    bs: u32,
    /// Calls in flight on each connection.
    iodepth: u32,
    /// Connections.
    nconnect: u8,
    /// Seconds.
    runtime: f64,
    /// Seconds.
    ramp_time: f64,
    /// Percentage of reads in a mix.
    rwmixread: u8,
    /// When written data is on the disk.
    sync: Stability,
    /// Seed of random offsets.
    randseed: u64,
    /// Remote invalidation designs that the client wants.
    remote_invalidation: Vec<&'static str>,
}

impl Options {
    fn new(workload: &Workload, wanted: &[Design]) -> Self {
        Self {
            remote_invalidation: wanted.iter().map(|design| design.name()).collect(),
            rw: workload.pattern,
            bs: workload.bs,
            iodepth: workload.depth,
            nconnect: workload.connections,
            runtime: workload.time.as_secs_f64(),
            ramp_time: workload.ramp_time.as_secs_f64(),
            rwmixread: workload.read_percent,
            sync: workload.sync,
            randseed: workload.seed,
        }
    }
}

/// Calls of one kind.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Figures {
    /// Bytes of data that were moved.
    io_bytes: u64,
    /// Bytes per second.
    bw_bytes: f64,
    /// Calls per second.
    iops: f64,
    /// Milliseconds.
    runtime: f64,
    /// Calls that were answered.
    total_ios: u64,
    /// READs and WRITEs of fewer bytes than asked for.
    short_ios: u64,
    lat_ns: Latency,
}

/// Nanoseconds from the beginning of a call to its end.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Latency {
    /// The shortest.
    min: u64,
    /// The longest.
    max: u64,
    /// The mean.
    mean: u64,
    /// The standard deviation.
    stddev: u64,
    /// Calls.
    #[serde(rename = "N")]
    count: u64,
    /// Latencies by percentile.
    percentile: BTreeMap<String, u64>,
}

/// Percentiles, those of fio's among them that say most.
const PERCENTILES: [f64; 8] = [1.0, 10.0, 50.0, 90.0, 95.0, 99.0, 99.9, 99.99];

/// Those in the table.
const SHOWN: [f64; 6] = [50.0, 90.0, 95.0, 99.0, 99.9, 99.99];

impl Latency {
    fn new(recorded: &Recorded) -> Self {
        let latencies = &recorded.latencies;
        let percentile = |percent| (format!("{percent:.6}"), ns(latencies.percentile(percent)));
        Self {
            min: ns(latencies.min()),
            max: ns(latencies.max()),
            mean: ns(latencies.mean()),
            stddev: ns(latencies.deviation()),
            count: latencies.count(),
            percentile: PERCENTILES.into_iter().map(percentile).collect(),
        }
    }

    fn percentile(&self, percent: f64) -> u64 {
        let found = self.percentile.get(&format!("{percent:.6}"));
        found.copied().unwrap_or_default()
    }
}

impl Figures {
    /// None without a call.
    fn new(recorded: &Recorded, elapsed: Duration) -> Option<Self> {
        let calls = recorded.latencies.count();
        let seconds = elapsed.as_secs_f64();
        (calls > 0 && seconds > 0.0).then(|| Self {
            io_bytes: recorded.bytes,
            bw_bytes: thousandths(recorded.bytes as f64 / seconds),
            iops: thousandths(calls as f64 / seconds),
            runtime: thousandths(seconds * 1e3),
            total_ios: calls,
            short_ios: recorded.short,
            lat_ns: Latency::new(recorded),
        })
    }
}

impl Report {
    pub(super) fn new(
        target: &Target,
        workload: &Workload,
        wanted: &[Design],
        subject: Option<&Subject>,
        client: &Client,
        outcome: Outcome,
    ) -> Self {
        let info = client.connection();
        let connections = client.connections();
        let (server_work, server_work_error) = match outcome.server_work {
            Some(Ok(work)) => (Some(work), None),
            Some(Err(error)) => (None, Some(line(&error))),
            None => (None, None),
        };
        Self {
            target: target.to_string(),
            file: subject.map(|subject| File {
                url: subject.url.escaped(),
                size: subject.size,
                temporary: subject.is_temporary(),
            }),
            connection: Connection {
                rpcrdma_version: info.as_ref().map(|info| info.version.number()),
                remote_invalidation: info
                    .as_ref()
                    .and_then(|info| info.remote_invalidation.map(Design::name)),
                provider: info
                    .as_ref()
                    .map(|info| provider::name(info.device.is_some())),
                device: info.as_ref().and_then(|info| info.device.clone()),
                transport: info.map(|info| info.description),
                credits: connections.iter().map(|info| info.credits).min(),
                reconnects: client.reconnects(),
            },
            options: Options::new(workload, wanted),
            null: Figures::new(&outcome.null, outcome.elapsed),
            read: Figures::new(&outcome.read, outcome.elapsed),
            write: Figures::new(&outcome.write, outcome.elapsed),
            commit_ns: outcome.commit.map(ns),
            client_cpu: (outcome.cpu * 1000.0).round() / 10.0,
            work: outcome.work,
            server_work,
            server_work_error,
            error: outcome.error.as_ref().map(line),
            counts: false,
            failed: outcome.error,
        }
    }

    /// A measurement that did not begin.
    pub(super) fn failed(
        target: &Target,
        workload: &Workload,
        wanted: &[Design],
        error: Error,
    ) -> Self {
        Self {
            target: target.to_string(),
            file: None,
            connection: Connection::default(),
            options: Options::new(workload, wanted),
            null: None,
            read: None,
            write: None,
            commit_ns: None,
            client_cpu: 0.0,
            work: None,
            server_work: None,
            server_work_error: None,
            error: Some(line(&error)),
            counts: false,
            failed: Some(error),
        }
    }

    /// How the command ends with this.
    ///
    /// # Errors
    ///
    /// What ended the measurement before its time.
    pub(super) fn ended(self) -> Result<Ended> {
        self.failed.map_or(Ok(Ended::Well), Err)
    }

    /// The report for people.
    pub(super) fn print(&self, out: &mut impl Write) -> std::io::Result<()> {
        write!(out, "{}", self.about())?;
        let figures = [
            ("null", &self.null),
            ("read", &self.read),
            ("write", &self.write),
        ];
        let figures: Vec<_> = figures
            .into_iter()
            .filter_map(|(name, figures)| Some((name, figures.as_ref()?)))
            .collect();
        if figures.is_empty() {
            return writeln!(out, "\nno call was measured");
        }
        let mut table = Columns::new(&[0]);
        let names = figures.iter().map(|(name, _)| *name);
        table.add(std::iter::once("").chain(names).collect::<Vec<_>>());
        let mut row = |name: &str, show: &dyn Fn(&Figures) -> String| {
            let shown = figures.iter().map(|(_, figures)| show(figures));
            table.add(
                std::iter::once(name.to_owned())
                    .chain(shown)
                    .collect::<Vec<_>>(),
            );
        };
        row("IOPS", &|figures| rate(figures.iops));
        if self.options.rw != Pattern::Null {
            row("bandwidth", &|figures| bandwidth(figures.bw_bytes));
        }
        row("calls", &|figures| figures.total_ios.to_string());
        if figures.iter().any(|(_, figures)| figures.short_ios > 0) {
            row("short calls", &|figures| figures.short_ios.to_string());
        }
        let time = |ns: u64| units::duration(Duration::from_nanos(ns));
        row("latency min", &|figures| time(figures.lat_ns.min));
        row("        mean", &|figures| time(figures.lat_ns.mean));
        for percent in SHOWN {
            let name = format!("        p{percent}");
            row(&name, &|figures| time(figures.lat_ns.percentile(percent)));
        }
        row("        max", &|figures| time(figures.lat_ns.max));
        row("        stddev", &|figures| time(figures.lat_ns.stddev));
        write!(out, "\n{table}\n")?;
        if self.counts {
            let ends = [("client", &self.work), ("server", &self.server_work)];
            let known: Vec<_> = ends
                .into_iter()
                .filter_map(|(end, work)| Some((end, work.as_ref()?)))
                .collect();
            write!(out, "work per call\n{}\n", work::table(&known))?;
        }
        write!(out, "{}", self.remarks())
    }

    /// Parameters of the measurement.
    fn about(&self) -> Columns {
        let Options {
            rw,
            bs,
            iodepth,
            nconnect,
            runtime,
            ramp_time,
            rwmixread,
            sync,
            randseed,
            ..
        } = self.options;
        let mut about = Columns::new(&[0, 1]);
        about.add(["target", &self.target]);
        let connection = &self.connection;
        let version = connection
            .rpcrdma_version
            .map_or(String::new(), |v| format!(" version {v}"));
        let how = connection
            .transport
            .as_deref()
            .unwrap_or("no connection at the end");
        about.add(["transport", &format!("RPC-over-RDMA{version} ({how})")]);
        if connection.rpcrdma_version.is_some() {
            let design = connection.remote_invalidation.unwrap_or("none");
            about.add(["invalidation", design]);
        }
        let mut what = rw.name().to_owned();
        if matches!(rw, Pattern::Rw | Pattern::RandRw) {
            what += &format!(" ({rwmixread}% reads)");
        }
        if rw != Pattern::Null {
            what += &format!(" of {}", units::size(bs.into()));
        }
        if rw.writes() {
            what += match sync {
                Stability::Unstable => ", UNSTABLE",
                Stability::DataSync => ", DATA_SYNC",
                Stability::FileSync => ", FILE_SYNC",
            };
        }
        about.add(["calls", &what]);
        let seconds = |seconds| units::duration(Duration::from_secs_f64(seconds));
        let mut depth = format!("{iodepth}");
        if nconnect > 1 {
            depth += &format!(" on each of {nconnect} connections");
        }
        about.add(["depth", &depth]);
        let mut time = match self.measured() {
            Some(measured) if (measured / runtime - 1.0).abs() > 0.05 => {
                format!("{}, not {}", seconds(measured), seconds(runtime))
            }
            Some(_) | None => seconds(runtime),
        };
        if ramp_time > 0.0 {
            time += &format!(", after {} that do not count", seconds(ramp_time));
        }
        about.add(["time", &time]);
        if let Some(file) = &self.file {
            let temporary = if file.temporary {
                "a temporary file of "
            } else {
                ""
            };
            about.add(["file", &format!("{temporary}{}", units::size(file.size))]);
            about.add(["seed", &randseed.to_string()]);
        }
        about
    }

    /// Seconds that were measured, if there was a call.
    fn measured(&self) -> Option<f64> {
        let mut figures = [&self.null, &self.read, &self.write].into_iter().flatten();
        figures.next().map(|figures| figures.runtime / 1e3)
    }

    /// Remarks on the figures.
    fn remarks(&self) -> Columns {
        let mut remarks = Columns::new(&[0, 1]);
        if let Some(commit) = self.commit_ns {
            let commit = units::duration(Duration::from_nanos(commit));
            remarks.add(["COMMIT", &commit]);
        }
        remarks.add(["client CPU", &format!("{:.0}%", self.client_cpu)]);
        match self.connection.reconnects {
            0 => {}
            n => remarks.add(["reconnects", &n.to_string()]),
        }
        match self.connection.credits {
            Some(credits) if credits < self.options.iodepth => {
                let note = format!(
                    "the server takes {credits} calls at a time on a connection; those beyond waited \
                     here, which is a part of their latency"
                );
                remarks.add(["note", &note]);
            }
            _ => {}
        }
        let wanted = &self.options.remote_invalidation;
        let without = self.connection.rpcrdma_version.is_some()
            && self.connection.remote_invalidation.is_none();
        if without && !wanted.is_empty() {
            let note = format!(
                "the server agrees to no remote invalidation by {}: the client invalidates handles itself",
                wanted.join(", ")
            );
            remarks.add(["note", &note]);
        }
        match (&self.server_work, &self.work) {
            (Some(server), Some(client)) if server.calls() > client.calls() => {
                let note = format!(
                    "the work of the server is that for {} calls of all its clients; this one made {}",
                    server.calls(),
                    client.calls()
                );
                remarks.add(["note", &note]);
            }
            _ => {}
        }
        if let Some(error) = &self.server_work_error {
            let note = format!("the work of the server is not known: {error}");
            remarks.add(["note", &note]);
        }
        remarks
    }
}

/// An error with its causes. They may have words of a server in them, which must not steer the terminal.
fn line(error: &Error) -> String {
    printable(format!("{error:#}").as_bytes())
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A number for a JSON document, without digits that mean nothing.
fn thousandths(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_by_the_time_measured() {
        let mut recorded = Recorded::default();
        for micros in [10, 20, 30] {
            recorded.latencies.record(Duration::from_micros(micros));
        }
        recorded.bytes = 3 * 4096;
        let figures = Figures::new(&recorded, Duration::from_secs(2)).unwrap();
        assert_eq!(
            (figures.iops, figures.bw_bytes, figures.runtime),
            (1.5, 6144.0, 2000.0)
        );
        assert_eq!((figures.total_ios, figures.lat_ns.count), (3, 3));
        assert!((20_000..20_100).contains(&figures.lat_ns.percentile(50.0)));
        assert!(Figures::new(&Recorded::default(), Duration::from_secs(1)).is_none());
        assert!(Figures::new(&recorded, Duration::ZERO).is_none());
    }
}
