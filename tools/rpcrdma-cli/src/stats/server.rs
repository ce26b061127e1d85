//! Statistics of a server as text.

use super::form::{Form, reload};
use super::procedures;
use super::rows::{Rows, counted, number, per_second, shown, some};
use crate::provider;
use printing::table::Columns;
use printing::units;
use rpcrdma_daemon::control::{ConnectionCounts, DuplicateRequests, ServerStatus};

/// Statistics since the start: what is not zero or, if they are to be `long`, all in rows of any length.
pub(super) fn since_start(now: &ServerStatus, form: &Form<'_>) -> String {
    let title = form.since_start(&now.version, now.uptime_seconds);
    if form.long {
        let calls = procedures::long(&now.procedures, None);
        return format!("{title}\n{}\n{calls}", all_rows(now));
    }
    let calls = procedures::short(&now.procedures, None);
    format!("{title}\n{}\n{calls}", rows(now))
}

/// The counters that are not zero.
fn rows(now: &ServerStatus) -> Rows {
    let mut rows = Rows::indented(0);
    about(now, |name, value| rows.add(name, value));
    rows.add("connections", connections(&now.connections));
    if now.credits_granted > 0 {
        let (granted, in_use) = (number(now.credits_granted), number(now.credits_in_use));
        rows.add("credits", format!("{granted} granted, {in_use} in use"));
    }
    if let Some(so_far) = some(now.jobs, "so far", "so far") {
        let in_flight = number(now.jobs_in_flight);
        rows.add("jobs", format!("{so_far}, {in_flight} in flight"));
    }
    let rdma = |name: &str| now.rdma.get(name).copied().unwrap_or(0);
    let chunks = |name, of| some(rdma(name), &format!("{of} chunk"), &format!("{of} chunks"));
    let pulled = chunks("read_chunks_pulled", "Read");
    let pulled = pulled.map(|chunks| {
        let bytes = units::size(rdma("read_bytes_pulled"));
        format!("{bytes} in ({chunks})")
    });
    let filled = [
        chunks("write_chunks_filled", "Write"),
        chunks("reply_chunks_filled", "Reply"),
    ];
    let filled: Vec<String> = filled.into_iter().flatten().collect();
    let filled = (!filled.is_empty()).then(|| {
        let bytes = units::size(sent_by_rdma(&rdma));
        format!("{bytes} out ({})", filled.join(", "))
    });
    let moved: Vec<String> = pulled.into_iter().chain(filled).collect();
    rows.add_list("RDMA", &moved);
    let (inline_in, inline_out) = (rdma("inline_bytes_received"), rdma("inline_bytes_sent"));
    if inline_in.max(inline_out) > 0 {
        let sizes = (units::size(inline_in), units::size(inline_out));
        rows.add("inline", format!("{} in, {} out", sizes.0, sizes.1));
    }
    let invalidated = some(
        rdma("invalidations_sent"),
        "invalidated with a reply",
        "invalidated with replies",
    );
    rows.add_list("handles", invalidated.as_slice());
    let oversized = some(
        rdma("oversized"),
        "message longer than announced",
        "messages longer than announced",
    );
    rows.add_list("oversized", oversized.as_slice());
    if let Some(cache) = reply_cache(&now.duplicate_requests) {
        rows.add("reply cache", cache);
    }
    if now.open_files > 0 {
        rows.add("open files", number(now.open_files));
    }
    let memory = (now.chunk_memory_bytes > 0).then(|| units::size(now.chunk_memory_bytes));
    let waits = some(
        rdma("memory_waits"),
        "call waited for it",
        "calls waited for it",
    );
    let memory: Vec<String> = memory.into_iter().chain(waits).collect();
    rows.add_list("chunk memory", &memory);
    rows
}

fn sent_by_rdma(rdma: &impl Fn(&str) -> u64) -> u64 {
    rdma("write_bytes_posted").saturating_add(rdma("reply_bytes_posted"))
}

/// Exports and addresses.
fn about(now: &ServerStatus, mut row: impl FnMut(&str, String)) {
    row("exports", exports(now));
    if let Some(addresses) = addresses(now) {
        row("addresses", addresses);
    }
    if let Some(devices) = devices(now) {
        row("devices", devices);
    }
    if let Some(sockets) = now.describe_sockets() {
        row("sockets", format!("of the service manager: {sockets}"));
    }
    if let Some(reload) = reload(&now.reloads) {
        row("reload", reload);
    }
}

/// Connections of now and so far.
fn connections(counts: &ConnectionCounts) -> String {
    let state = |count, name: &str| some(count, name, name);
    let now = [
        state(counts.setup, "in setup"),
        state(counts.active, "active"),
        state(counts.idle, "idle"),
        state(counts.draining, "draining"),
        state(counts.version_two, "of version 2"),
    ];
    let so_far = [
        state(counts.accepted, "accepted"),
        state(counts.refused, "refused"),
        state(counts.evicted, "evicted"),
        state(counts.unanswered, "closed for not answering"),
    ];
    let [now, so_far] = [now.as_slice(), so_far.as_slice()]
        .map(|some| some.iter().flatten().cloned().collect::<Vec<_>>());
    let mut text = number(counts.now());
    if !now.is_empty() {
        text += &format!(" ({})", now.join(", "));
    }
    if !so_far.is_empty() {
        text += &format!("; {}", so_far.join(", "));
    }
    text
}

/// The duplicate request cache; none if there was no call for it.
fn reply_cache(cache: &DuplicateRequests) -> Option<String> {
    let looked_up = [cache.hits, cache.misses, cache.refused, cache.entries];
    if looked_up == [0; 4] {
        return None;
    }
    let counts = [
        Some(counted(cache.entries, "entry", "entries")),
        Some(counted(cache.hits, "hit", "hits")),
        Some(counted(cache.misses, "miss", "misses")),
        some(cache.refused, "refused", "refused"),
        some(cache.evicted, "evicted", "evicted"),
        some(cache.expired, "expired", "expired"),
    ];
    let counts: Vec<String> = counts.into_iter().flatten().collect();
    Some(counts.join(", "))
}

/// All counters, each exact.
fn all_rows(now: &ServerStatus) -> Columns {
    let connections = &now.connections;
    let rdma = |name: &str| now.rdma.get(name).copied().unwrap_or(0);
    let mut lines = Columns::with_long_lines(&[0, 1], 2);
    let mut line = |name: &str, value: String| lines.add([name, &value]);
    about(now, &mut line);
    line(
        "connections",
        format!(
            "{} ({} in setup, {} active, {} idle, {} draining; {} of version 1, {} of version 2); {} accepted, \
             {} refused, {} evicted, {} closed for not answering",
            connections.now(),
            connections.setup,
            connections.active,
            connections.idle,
            connections.draining,
            connections.version_one,
            connections.version_two,
            connections.accepted,
            connections.refused,
            connections.evicted,
            connections.unanswered
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
        "RDMA",
        format!(
            "{} in ({} Read chunks), {} out ({} Write chunks, {} Reply chunks)",
            units::size(rdma("read_bytes_pulled")),
            rdma("read_chunks_pulled"),
            units::size(sent_by_rdma(&rdma)),
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
    line(
        "oversized",
        format!("{} messages longer than announced", rdma("oversized")),
    );
    let cache = &now.duplicate_requests;
    line(
        "reply cache",
        format!(
            "{} entries, {} hits, {} misses, {} refused, {} evicted, {} expired",
            cache.entries, cache.hits, cache.misses, cache.refused, cache.evicted, cache.expired
        ),
    );
    line("open files", now.open_files.to_string());
    line(
        "chunk memory",
        format!(
            "{}, {} calls waited for it",
            units::size(now.chunk_memory_bytes),
            rdma("memory_waits")
        ),
    );
    lines
}

/// The addresses of software iWARP, if there are several: a single one is in the title.
fn addresses(now: &ServerStatus) -> Option<String> {
    let addrs = listening_over(now, false);
    (addrs.len() > 1).then(|| format!("listening at {}", addrs.join(", ")))
}

/// Addresses of RDMA devices, if there are any.
fn devices(now: &ServerStatus) -> Option<String> {
    let addrs = listening_over(now, true);
    (!addrs.is_empty()).then(|| format!("listening at {}", addrs.join(", ")))
}

/// The addresses at which a server listens over RDMA devices, or over software iWARP.
fn listening_over(now: &ServerStatus, devices: bool) -> Vec<String> {
    let all = now.listeners.iter();
    let those = all.filter(|listener| listener.provider == provider::name(devices));
    those.map(|listener| shown(&listener.address)).collect()
}

/// How many exports there are, and which are not served.
fn exports(now: &ServerStatus) -> String {
    let absent = now.exports.iter().filter_map(|export| {
        let why = shown(export.absent.as_ref()?);
        Some(format!("{} ({why})", shown(&export.name)))
    });
    let absent: Vec<String> = absent.collect();
    let served = now.exports.len() - absent.len();
    match absent.is_empty() {
        true => format!("{served} served"),
        false => format!("{served} served, not there: {}", absent.join(", ")),
    }
}

/// Difference between two moments.
pub(super) fn since(before: &ServerStatus, now: &ServerStatus, form: &Form<'_>) -> String {
    if before.pid != now.pid || now.uptime_seconds < before.uptime_seconds {
        let all = since_start(now, form);
        return format!("the server was started again\n\n{all}");
    }
    let seconds = (now.uptime_seconds - before.uptime_seconds).max(1e-9);
    let rate = |name: &str| {
        let at = |status: &ServerStatus| status.rdma.get(name).copied().unwrap_or(0);
        per_second(at(now).saturating_sub(at(before)), seconds)
    };
    let differences = procedures::between(&before.procedures, &now.procedures);
    let calls = differences.iter().map(|p| p.calls).sum();
    let both = |received: u64, sent: u64| {
        let (received, sent) = (units::size(received), units::size(sent));
        format!("{received}/s in, {sent}/s out")
    };
    let mut rows = Rows::indented(0);
    rows.add("calls", format!("{}/s", number(per_second(calls, seconds))));
    rows.add("RDMA", both(rate("read_bytes_pulled"), sent_by_rdma(&rate)));
    let (received, sent) = (rate("inline_bytes_received"), rate("inline_bytes_sent"));
    rows.add("inline", both(received, sent));
    let (connections, in_use) = (now.connections.now(), number(now.credits_in_use));
    rows.add("connections", number(connections));
    rows.add("credits", format!("{in_use} in use"));
    let title = form.at_interval();
    let table = match form.long {
        true => procedures::long(&differences, Some(seconds)),
        false => procedures::short(&differences, Some(seconds)),
    };
    format!("{title}{rows}\n{table}")
}
