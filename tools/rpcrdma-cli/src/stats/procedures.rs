//! Procedures that were called, as tables.

use super::rows::{Rows, number, per_second};
use nfs_server::{LATENCY_BUCKETS, LatencyHistogram};
use printing::table::Columns;
use printing::units;
use rpcrdma_daemon::control::{ProcedureStatus, shown};
use std::time::Duration;

/// Differences of each procedure between two moments.
pub(super) fn between(before: &[ProcedureStatus], now: &[ProcedureStatus]) -> Vec<ProcedureStatus> {
    let both = now.iter().zip(before);
    both.map(|(now, before)| difference(now, before)).collect()
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

/// The procedures that were called, and their failures below them: how often, or how often a second.
pub(super) fn short(procedures: &[ProcedureStatus], seconds: Option<f64>) -> String {
    let called = || procedures.iter().filter(|procedure| procedure.calls > 0);
    if called().next().is_none() {
        return "no calls\n".to_owned();
    }
    let mut table = Columns::fitting(&[0], 2, 0);
    table.add(["procedure", calls(seconds), "failed", "mean", "p50", "p99"]);
    let mut failures = Rows::indented(0);
    for procedure in called() {
        let name = shown(&procedure.program, &procedure.name);
        let calls = seconds.map_or(procedure.calls, |s| per_second(procedure.calls, s));
        let [mean, p50, p99] = latencies(procedure);
        let failed = number(failed(procedure));
        table.add([name.clone(), number(calls), failed, mean, p50, p99]);
        failures.add_list(&name, &classes(procedure, number));
    }
    match failures.to_string() {
        failures if failures.is_empty() => table.to_string(),
        failures => format!("{table}\nfailures\n{failures}"),
    }
}

/// Every procedure in a line of its own, with exact numbers; at an interval, those that were called.
pub(super) fn long(procedures: &[ProcedureStatus], seconds: Option<f64>) -> String {
    let mut table = Columns::with_long_lines(&[0, 6], 2);
    table.add([
        "procedure",
        calls(seconds),
        "failed",
        "mean",
        "p50",
        "p99",
        "failed by",
    ]);
    let is_shown = |procedure: &&ProcedureStatus| procedure.calls > 0 || seconds.is_none();
    for procedure in procedures.iter().filter(is_shown) {
        let [mean, p50, p99] = latencies(procedure);
        let calls = seconds.map_or(procedure.calls, |s| per_second(procedure.calls, s));
        table.add([
            shown(&procedure.program, &procedure.name),
            calls.to_string(),
            failed(procedure).to_string(),
            mean,
            p50,
            p99,
            classes(procedure, |count| count.to_string()).join(", "),
        ]);
    }
    table.to_string()
}

fn calls(seconds: Option<f64>) -> &'static str {
    match seconds {
        Some(_) => "calls/s",
        None => "calls",
    }
}

fn failed(procedure: &ProcedureStatus) -> u64 {
    let counts = procedure.errors.values();
    counts.fold(0, |sum: u64, count| sum.saturating_add(*count))
}

/// Classes of errors with their counts.
fn classes(procedure: &ProcedureStatus, number: impl Fn(u64) -> String) -> Vec<String> {
    let classes = procedure.errors.iter().filter(|(_, count)| **count > 0);
    classes
        .map(|(class, count)| format!("{class} {}", number(*count)))
        .collect()
}

/// Mean, median and 99th percentile.
fn latencies(procedure: &ProcedureStatus) -> [String; 3] {
    let latency = latency(procedure);
    let mean = match latency.count() {
        0 => "-".to_owned(),
        count => units::duration(latency.sum.div_f64(count as f64)),
    };
    let quantile = |part| match latency.quantile(part) {
        Some(time) => format!("<{}", units::duration(time)),
        None => "-".to_owned(),
    };
    [mean, quantile(0.5), quantile(0.99)]
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
    fn procedures_that_were_not_called_are_left_out_of_the_short_table() {
        let procedures = [
            procedure("NULL", 0, &[], 0),
            procedure("READ", 1000, &[("stale", 2), ("denied", 1)], 10),
        ];
        let lines = short(&procedures, None);
        let lines: Vec<_> = lines.lines().collect();
        let words: Vec<_> = lines[1].split_whitespace().collect();
        let expected = ["READ", "1000", "3", "1", "ms", "<1.02", "ms", "<1.02", "ms"];
        assert_eq!(words, expected);
        assert_eq!(lines[2..], ["", "failures", "READ  denied 1, stale 2"]);
        assert_eq!(short(&procedures[..1], None), "no calls\n");

        let lines = long(&procedures, None);
        let lines: Vec<_> = lines.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[2].ends_with("denied 1, stale 2"), "{}", lines[2]);
    }

    #[test]
    fn rates_are_of_what_was_done_in_between() {
        let before = procedure("READ", 1000, &[("stale", 2)], 3);
        let after = procedure("READ", 3000, &[("stale", 2), ("denied", 4)], 3);
        let between = difference(&after, &before);
        assert_eq!((between.calls, latency(&between).count()), (2000, 2000));
        assert_eq!(between.errors.len(), 1);
        let lines = short(&[between], Some(2.0));
        let words: Vec<_> = lines.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(words[..3], ["READ", "1000", "4"]);
    }
}
