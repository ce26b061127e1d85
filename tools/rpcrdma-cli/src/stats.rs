//! `rpcrdma stats`: shows what a running server does.

use crate::control::asking::{self, ControlArgs};
use crate::control::{
    FailedPairStatus, GatewayStatus, ProcedureStatus, ReloadStatus, Request, ServerStatus, Status,
    shown,
};
use crate::failure::{Ended, Usage};
use crate::output;
use crate::provider;
use crate::table::Columns;
use crate::units;
use anyhow::bail;
use clap::Args;
use nfs_client::printable;
use nfs_server::{LATENCY_BUCKETS, LatencyHistogram};
use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

/// Show calls, failures and latencies of the servers and gateways on this machine
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  rpcrdma stats
      totals since the start, of each server and gateway
  rpcrdma stats --interval 5s
      totals, then what happens, every five seconds
  rpcrdma stats --json \\
    --socket /run/rpcrdma/control-0.0.0.0:20049.sock
      one JSON document, from that server

Only the user who runs the server, and root, can query it. Latencies of calls that are answered \
at once are sampled, about one in sixteen.")]
pub(crate) struct StatsArgs {
    /// Then show, at this interval, what happened since the last time
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration)]
    interval: Option<Duration>,

    /// Stop after this many reports [default: until Ctrl-C]
    #[arg(long, value_name = "N", requires = "interval",
        value_parser = clap::value_parser!(u32).range(1..))]
    count: Option<u32>,

    /// Print one JSON document per report and server, with counts since the server started
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    control: ControlArgs,
}

/// Runs the command.
pub(crate) async fn run(args: &StatsArgs) -> anyhow::Result<Ended> {
    if args.interval.is_some_and(|interval| interval.is_zero()) {
        bail!(Usage("--interval must be longer than 0".to_owned()));
    }
    let count = match args.interval {
        Some(_) => args.count.unwrap_or(u32::MAX),
        None => 1,
    };
    let mut ended = Ended::Well;
    let mut before = BTreeMap::new();
    for time in 1..=count {
        let sockets = args.control.sockets().await?;
        let alone = sockets.len() == 1;
        let mut asked = BTreeMap::new();
        let mut between = if time > 1 { "\n" } else { "" };
        for socket in sockets {
            let (line, now) = match asking::ask::<Status>(&socket, Request::Stats).await {
                Ok(answer) => answer,
                Err(error) if alone => return Err(error),
                Err(error) => {
                    ended.failed(&error);
                    continue;
                }
            };
            let text = match args.json {
                true => line + "\n",
                false if alone => report(before.get(&socket), &now),
                false => {
                    let text = report(before.get(&socket), &now);
                    format!(
                        "{between}{}{}",
                        asking::heading(&now, &socket),
                        text.trim_start()
                    )
                }
            };
            between = "\n";
            let mut out = output::stdout();
            out.write_all(text.as_bytes())?;
            out.flush()?;
            asked.insert(socket, now);
        }
        before = asked;
        let Some(interval) = args.interval.filter(|_| time < count) else {
            break;
        };
        tokio::time::sleep(interval).await;
    }
    Ok(ended)
}

/// What happened since the last time, or since the start.
fn report(before: Option<&Status>, now: &Status) -> String {
    match (before, now) {
        (Some(Status::Server(before)), Status::Server(now)) => since(before, now),
        (Some(Status::Gateway(before)), Status::Gateway(now)) => gateway_since(before, now),
        (_, Status::Server(now)) => since_start(now),
        (_, Status::Gateway(now)) => gateway_since_start(now),
    }
}

/// All that a server did.
fn since_start(now: &ServerStatus) -> String {
    let connections = &now.connections;
    let rdma = |name: &str| now.rdma.get(name).copied().unwrap_or(0);
    let text = format!(
        "rpcrdma {} at {}, process {}, up {}\n",
        now.version,
        now.listening,
        now.pid,
        units::duration(Duration::try_from_secs_f64(now.uptime_seconds).unwrap_or_default())
    );
    let mut lines = Columns::new(&[0, 1]);
    let mut line = |name: &str, value: String| lines.add([name, &value]);
    line("exports", exports(now));
    if let Some(addresses) = addresses(now) {
        line("addresses", addresses);
    }
    if let Some(devices) = devices(now) {
        line("devices", devices);
    }
    if let Some(sockets) = now.describe_sockets() {
        line("sockets", format!("of the service manager: {sockets}"));
    }
    if let Some(reload) = reload(&now.reloads) {
        line("reload", reload);
    }
    line(
        "connections",
        format!(
            "{} ({} active, {} idle, {} in setup; {} of version 1, {} of version 2); {} accepted, {} \
             refused, {} evicted",
            connections.now(),
            connections.active,
            connections.idle,
            connections.setup,
            connections.version_one,
            connections.version_two,
            connections.accepted,
            connections.refused,
            connections.evicted
        ),
    );
    line(
        "credits",
        format!(
            "{} granted, {} in use",
            now.credits_granted, now.credits_in_use
        ),
    );
    line(
        "jobs",
        format!("{} so far, {} in flight", now.jobs, now.jobs_in_flight),
    );
    line(
        "by RDMA",
        format!(
            "{} in {} Read chunks in; {} in {} Write and {} Reply chunks out",
            units::size(rdma("read_bytes_pulled")),
            rdma("read_chunks_pulled"),
            units::size(rdma("write_bytes_posted") + rdma("reply_bytes_posted")),
            rdma("write_chunks_filled"),
            rdma("reply_chunks_filled")
        ),
    );
    line(
        "inline",
        format!(
            "{} in, {} out",
            units::size(rdma("inline_bytes_received")),
            units::size(rdma("inline_bytes_sent"))
        ),
    );
    line(
        "handles",
        format!("{} invalidated with replies", rdma("invalidations_sent")),
    );
    if rdma("oversized") > 0 {
        let shown = format!("{} messages longer than announced", rdma("oversized"));
        line("oversized", shown);
    }
    let duplicates = &now.duplicate_requests;
    line(
        "duplicates",
        format!(
            "{} calls came again, {} did not; {} are kept, {} gave way, {} grew old",
            duplicates.hits,
            duplicates.misses,
            duplicates.entries,
            duplicates.evicted,
            duplicates.expired
        ),
    );
    line("open files", now.open_files.to_string());
    line("chunk memory", units::size(now.chunk_memory_bytes));
    format!("{text}{lines}\n{}", table(&now.procedures, None))
}

/// The addresses of software iWARP, if there are several: a single one stands above.
fn addresses(now: &ServerStatus) -> Option<String> {
    let addrs = listening_over(now, false);
    (addrs.len() > 1).then(|| format!("listening at {}", addrs.join(", ")))
}

/// Where RDMA devices are listened at, if they are.
fn devices(now: &ServerStatus) -> Option<String> {
    let addrs = listening_over(now, true);
    (!addrs.is_empty()).then(|| format!("listening at {}", addrs.join(", ")))
}

/// The addresses at which a server listens over RDMA devices, or over software iWARP.
fn listening_over(now: &ServerStatus, devices: bool) -> Vec<String> {
    let all = now.listeners.iter();
    let those = all.filter(|listener| listener.provider == provider::name(devices));
    those
        .map(|listener| printable(listener.address.as_bytes()))
        .collect()
}

/// All that a gateway did.
fn gateway_since_start(now: &GatewayStatus) -> String {
    let up = Duration::try_from_secs_f64(now.uptime_seconds).unwrap_or_default();
    let mut text = format!(
        "rpcrdma {} gateway, process {}, up {}\n",
        now.version,
        now.pid,
        units::duration(up)
    );
    let reloaded = now.reloads.last_seconds.map(ago);
    match (reloaded, reload(&now.reloads)) {
        (Some(ago), _) if !now.failed.is_empty() => {
            text += &format!("reload in part, {ago} ago\n");
        }
        (_, Some(reload)) => text += &format!("reload {reload}\n"),
        (_, None) => {}
    }
    if let Some(sockets) = now.describe_sockets() {
        text += &format!("sockets of the service manager: {sockets}\n");
    }
    for failed in &now.failed {
        text += &not_as_in_file(failed);
    }
    let mut table = Columns::new(&[0, 1]);
    table.add([
        "listen",
        "upstream",
        "clients",
        "calls",
        "callbacks",
        "up",
        "down",
        "lost",
        "tries failed",
        "unreachable",
        "timeouts",
        "errors",
        "refused",
        "too many",
        "MOUNT failed",
        "oldest call",
    ]);
    for pair in &now.pairs {
        let counter = |name: &str| pair.counters.get(name).copied().unwrap_or(0);
        table.add([
            pair.listen.clone(),
            pair.upstream.clone(),
            counter("connections").to_string(),
            counter("calls").to_string(),
            counter("callbacks").to_string(),
            units::size(counter("bytes_up")),
            units::size(counter("bytes_down")),
            counter("upstream_lost").to_string(),
            counter("upstream_attempts_failed").to_string(),
            counter("upstream_unreachable").to_string(),
            counter("timeouts").to_string(),
            (counter("system_errors") + counter("replies_too_large") + counter("denied"))
                .to_string(),
            counter("refused").to_string(),
            counter("refused_as_too_many").to_string(),
            (counter("mount_unanswered") + counter("mount_denied")).to_string(),
            match pair.oldest_call_seconds > 0.0 {
                true => ago(pair.oldest_call_seconds),
                false => "-".to_owned(),
            },
        ]);
    }
    format!("{text}\n{table}")
}

/// A pair that is not served, or not as the file says, and why.
fn not_as_in_file(failed: &FailedPairStatus) -> String {
    let shown = |text: &str| printable(text.as_bytes());
    let pair = format!("{} to {}", shown(&failed.listen), shown(&failed.upstream));
    let error = shown(&failed.error);
    match &failed.kept {
        Some(kept) => format!("not changed: {pair}; {} goes on: {error}\n", shown(kept)),
        None => format!(
            "not served: {pair}: {error} (tried again every 30 s; attempts so far: {})\n",
            failed.attempts
        ),
    }
}

/// What a gateway did between two moments.
fn gateway_since(before: &GatewayStatus, now: &GatewayStatus) -> String {
    if before.pid != now.pid || now.uptime_seconds < before.uptime_seconds {
        return format!(
            "the gateway was started again\n\n{}",
            gateway_since_start(now)
        );
    }
    let seconds = (now.uptime_seconds - before.uptime_seconds).max(1e-9);
    let mut table = Columns::new(&[0, 1]);
    table.add(["listen", "upstream", "clients", "calls/s", "up/s", "down/s"]);
    for pair in &now.pairs {
        let earlier = before
            .pairs
            .iter()
            .find(|other| other.listen == pair.listen);
        let at =
            |counters: &BTreeMap<String, u64>, name: &str| counters.get(name).copied().unwrap_or(0);
        let rate = |name: &str| {
            let was = earlier.map_or(0, |pair| at(&pair.counters, name));
            per_second(at(&pair.counters, name).saturating_sub(was), seconds)
        };
        table.add([
            pair.listen.clone(),
            pair.upstream.clone(),
            at(&pair.counters, "connections").to_string(),
            rate("calls").to_string(),
            units::size(rate("bytes_up")),
            units::size(rate("bytes_down")),
        ]);
    }
    format!("\n{table}")
}

/// How many exports there are, and which are not served.
fn exports(now: &ServerStatus) -> String {
    let absent = now.exports.iter().filter_map(|export| {
        let why = printable(export.absent.as_ref()?.as_bytes());
        Some(format!("{} ({why})", printable(export.name.as_bytes())))
    });
    let absent: Vec<String> = absent.collect();
    let served = now.exports.len() - absent.len();
    match absent.is_empty() {
        true => format!("{served} served"),
        false => format!("{served} served, not there: {}", absent.join(", ")),
    }
}

/// Seconds in words.
fn ago(seconds: f64) -> String {
    units::duration(Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

/// How the last reload ended, if there was one.
fn reload(reloads: &ReloadStatus) -> Option<String> {
    let ago = ago(reloads.last_seconds?);
    Some(match &reloads.last_error {
        Some(error) => format!(
            "failed {ago} ago, what is served is from before: {}",
            printable(error.as_bytes())
        ),
        None => format!("{ago} ago"),
    })
}

/// What a server did between two moments.
fn since(before: &ServerStatus, now: &ServerStatus) -> String {
    if before.pid != now.pid || now.uptime_seconds < before.uptime_seconds {
        return format!("the server was started again\n\n{}", since_start(now));
    }
    let seconds = (now.uptime_seconds - before.uptime_seconds).max(1e-9);
    let rate = |name: &str| {
        let at = |status: &ServerStatus| status.rdma.get(name).copied().unwrap_or(0);
        per_second(at(now).saturating_sub(at(before)), seconds)
    };
    let out = rate("write_bytes_posted").saturating_add(rate("reply_bytes_posted"));
    let procedures: Vec<ProcedureStatus> = now
        .procedures
        .iter()
        .zip(&before.procedures)
        .map(|(now, before)| difference(now, before))
        .collect();
    let calls = procedures.iter().map(|p| p.calls).sum();
    format!(
        "\n{} calls/s; by RDMA {}/s in, {}/s out; inline {}/s in, {}/s out; {} connections, {} credits \
         in use\n{}",
        per_second(calls, seconds),
        units::size(rate("read_bytes_pulled")),
        units::size(out),
        units::size(rate("inline_bytes_received")),
        units::size(rate("inline_bytes_sent")),
        now.connections.now(),
        now.credits_in_use,
        table(&procedures, Some(seconds))
    )
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates are far below the largest number, and none is negative"
)]
fn per_second(count: u64, seconds: f64) -> u64 {
    (count as f64 / seconds).round() as u64
}

fn difference(now: &ProcedureStatus, before: &ProcedureStatus) -> ProcedureStatus {
    let errors = now.errors.iter().map(|(class, count)| {
        let before = before.errors.get(class).copied().unwrap_or(0);
        (class.clone(), count.saturating_sub(before))
    });
    let buckets = now.latency_buckets.iter().zip(&before.latency_buckets);
    ProcedureStatus {
        program: now.program.clone(),
        name: now.name.clone(),
        calls: now.calls.saturating_sub(before.calls),
        errors: errors.filter(|(_, count)| *count > 0).collect(),
        latency_buckets: buckets
            .map(|(now, before)| now.saturating_sub(*before))
            .collect(),
        latency_sum_seconds: (now.latency_sum_seconds - before.latency_sum_seconds).max(0.0),
    }
}

/// The procedures that were called: how often, or how often a second.
fn table(procedures: &[ProcedureStatus], seconds: Option<f64>) -> String {
    let calls = match seconds {
        Some(_) => "calls/s",
        None => "calls",
    };
    let mut table = Columns::new(&[0, 6]);
    table.add([
        "procedure",
        calls,
        "failed",
        "mean",
        "p50",
        "p99",
        "failed by",
    ]);
    for procedure in procedures.iter().filter(|procedure| procedure.calls > 0) {
        let latency = latency(procedure);
        let mean = match latency.count() {
            0 => "-".to_owned(),
            count => units::duration(latency.sum.div_f64(count as f64)),
        };
        let quantile = |part| match latency.quantile(part) {
            Some(time) => format!("<{}", units::duration(time)),
            None => "-".to_owned(),
        };
        let classes = procedure.errors.iter();
        let classes: Vec<_> = classes
            .map(|(class, count)| format!("{class} {count}"))
            .collect();
        let calls = seconds.map_or(procedure.calls, |s| per_second(procedure.calls, s));
        table.add([
            shown(&procedure.program, &procedure.name),
            calls.to_string(),
            procedure.errors.values().sum::<u64>().to_string(),
            mean,
            quantile(0.5),
            quantile(0.99),
            classes.join(", "),
        ]);
    }
    table.to_string()
}

fn latency(procedure: &ProcedureStatus) -> LatencyHistogram {
    let mut latency = LatencyHistogram {
        buckets: [0; LATENCY_BUCKETS],
        sum: Duration::try_from_secs_f64(procedure.latency_sum_seconds).unwrap_or_default(),
    };
    for (bucket, count) in latency.buckets.iter_mut().zip(&procedure.latency_buckets) {
        *bucket = *count;
    }
    latency
}

#[cfg(test)]
mod tests {
    use super::*;

    fn procedure(name: &str, calls: u64, errors: &[(&str, u64)], bucket: usize) -> ProcedureStatus {
        let mut buckets = vec![0; LATENCY_BUCKETS];
        buckets[bucket] = calls;
        let errors = errors
            .iter()
            .map(|(class, count)| ((*class).to_owned(), *count));
        ProcedureStatus {
            program: "nfs".to_owned(),
            name: name.to_owned(),
            calls,
            errors: errors.collect(),
            latency_buckets: buckets,
            latency_sum_seconds: calls as f64 * 0.001,
        }
    }

    #[test]
    fn procedures_that_were_not_called_are_left_out() {
        let procedures = [
            procedure("NULL", 0, &[], 0),
            procedure("READ", 1000, &[("stale", 2), ("denied", 1)], 10),
        ];
        let lines = table(&procedures, None);
        let lines: Vec<_> = lines.lines().collect();
        assert_eq!(lines.len(), 2);
        let words: Vec<_> = lines[1].split_whitespace().collect();
        let expected = ["READ", "1000", "3", "1", "ms", "<1.02", "ms", "<1.02", "ms"];
        assert_eq!(words[..9], expected);
        assert!(lines[1].ends_with("denied 1, stale 2"), "{}", lines[1]);
    }

    #[test]
    fn rates_are_of_what_was_done_in_between() {
        let before = procedure("READ", 1000, &[("stale", 2)], 3);
        let after = procedure("READ", 3000, &[("stale", 2), ("denied", 4)], 3);
        let between = difference(&after, &before);
        assert_eq!((between.calls, latency(&between).count()), (2000, 2000));
        assert_eq!(between.errors.len(), 1);
        let lines = table(&[between], Some(2.0));
        let words: Vec<_> = lines.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(words[..3], ["READ", "1000", "4"]);
    }
}
