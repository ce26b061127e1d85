//! Statistics of a gateway as text.

use super::form::{Form, ago, reload};
use super::rows::{Rows, number, per_second, shown, some, wrapped};
use printing::table::Columns;
use printing::units;
use rpcrdma_daemon::control::{FailedPairStatus, GatewayStatus, PairStatus};

/// Spaces in front of what is said of a pair.
const INDENT: u16 = 2;

/// Statistics since the start: a block for each pair with what is not zero or, if they are to be `long`, a row for each pair.
pub(super) fn since_start(now: &GatewayStatus, form: &Form<'_>) -> String {
    let mut text = form.since_start(&now.version, now.uptime_seconds);
    for remark in remarks(now) {
        text += &form.line(&remark);
    }
    if form.long {
        return format!("{text}\n{}", table(now));
    }
    for pair in &now.pairs {
        let pair_name = format!("{} to {}", shown(&pair.listen), shown(&pair.upstream));
        text += &format!("\n{}{}", wrapped(&pair_name), rows(pair));
    }
    text
}

/// How the last reload ended, and which pairs are not as the file says.
fn remarks(now: &GatewayStatus) -> Vec<String> {
    let mut all = Vec::new();
    let reloaded = now.reloads.last_seconds.map(ago);
    match (reloaded, reload(&now.reloads)) {
        (Some(ago), _) if !now.failed.is_empty() => all.push(format!("reload in part, {ago} ago")),
        (_, Some(reload)) => all.push(format!("reload {reload}")),
        (_, None) => {}
    }
    if let Some(sockets) = now.describe_sockets() {
        all.push(format!("sockets of the service manager: {sockets}"));
    }
    all.extend(now.failed.iter().map(not_as_in_file));
    all
}

/// A pair that is not served, or not as the file says, and why.
fn not_as_in_file(failed: &FailedPairStatus) -> String {
    let pair = format!("{} to {}", shown(&failed.listen), shown(&failed.upstream));
    let error = shown(&failed.error);
    match &failed.kept {
        Some(kept) => format!("not changed: {pair}; {} goes on: {error}", shown(kept)),
        None => format!(
            "not served: {pair}: {error} (tried again every 30 s; attempts so far: {})",
            failed.attempts
        ),
    }
}

/// A counter of a pair by its name.
fn counter(pair: &PairStatus, name: &str) -> u64 {
    pair.counters.get(name).copied().unwrap_or(0)
}

/// The counters of a pair that are not zero.
fn rows(pair: &PairStatus) -> Rows {
    let count = |name: &str| counter(pair, name);
    let all = |list: &[(&str, &str, &str)]| -> Vec<String> {
        let named = list.iter();
        named
            .filter_map(|(name, one, many)| some(count(name), one, many))
            .collect()
    };
    let mut rows = Rows::indented(INDENT);
    rows.add("clients", number(count("connections")));
    let calls = [
        Some(number(count("calls"))),
        some(
            count("callbacks"),
            "callback to a client",
            "callbacks to clients",
        ),
    ];
    let calls: Vec<String> = calls.into_iter().flatten().collect();
    rows.add_list("calls", &calls);
    let (up, down) = (count("bytes_up"), count("bytes_down"));
    if up.max(down) > 0 {
        let (up, down) = (units::size(up), units::size(down));
        rows.add("bytes", format!("{up} up, {down} down"));
    }
    let server = [
        (
            "upstream_lost",
            "client lost its connection",
            "clients lost their connections",
        ),
        (
            "upstream_attempts_failed",
            "try to connect failed",
            "tries to connect failed",
        ),
        (
            "upstream_unreachable",
            "client waited in vain",
            "clients waited in vain",
        ),
        ("timeouts", "timeout", "timeouts"),
    ];
    rows.add_list("server", &all(&server));
    let errors = [
        (
            "system_errors",
            "call could not be passed on",
            "calls could not be passed on",
        ),
        ("replies_too_large", "reply too large", "replies too large"),
        ("malformed", "malformed call", "malformed calls"),
        ("clients_stalled", "client stalled", "clients stalled"),
        (
            "denied",
            "call of a user who claimed to be another",
            "calls of users who claimed to be others",
        ),
        ("callbacks_refused", "callback refused", "callbacks refused"),
    ];
    rows.add_list("errors", &all(&errors));
    let repeated = [
        (
            "repetitions",
            "call came twice at a time",
            "calls came twice at a time",
        ),
        (
            "larger_retries",
            "call repeated for a larger reply",
            "calls repeated for larger replies",
        ),
    ];
    rows.add_list("repeated", &all(&repeated));
    let refused = [
        ("refused", "client not in allow", "clients not in allow"),
        ("refused_as_too_many", "as too many", "as too many"),
    ];
    rows.add_list("refused", &all(&refused));
    let mount = [
        ("mount_unanswered", "call unanswered", "calls unanswered"),
        ("mount_denied", "call denied", "calls denied"),
    ];
    rows.add_list("MOUNT", &all(&mount));
    if pair.oldest_call_seconds > 0.0 {
        let age = ago(pair.oldest_call_seconds);
        rows.add("oldest call", format!("waits for {age}"));
    }
    rows
}

/// A row for each pair, with exact numbers.
fn table(now: &GatewayStatus) -> Columns {
    let mut table = Columns::with_long_lines(&[0, 1], 2);
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
        let count = |name: &str| counter(pair, name);
        let sum = |names: &[&str]| {
            names
                .iter()
                .map(|name| u128::from(count(name)))
                .sum::<u128>()
        };
        table.add([
            shown(&pair.listen),
            shown(&pair.upstream),
            count("connections").to_string(),
            count("calls").to_string(),
            count("callbacks").to_string(),
            units::size(count("bytes_up")),
            units::size(count("bytes_down")),
            count("upstream_lost").to_string(),
            count("upstream_attempts_failed").to_string(),
            count("upstream_unreachable").to_string(),
            count("timeouts").to_string(),
            sum(&["system_errors", "replies_too_large", "denied"]).to_string(),
            count("refused").to_string(),
            count("refused_as_too_many").to_string(),
            sum(&["mount_unanswered", "mount_denied"]).to_string(),
            match pair.oldest_call_seconds > 0.0 {
                true => ago(pair.oldest_call_seconds),
                false => "-".to_owned(),
            },
        ]);
    }
    table
}

/// Rates between two moments, of the pairs with calls or clients or, if they are to be `long`, a row for each pair.
pub(super) fn since(before: &GatewayStatus, now: &GatewayStatus, form: &Form<'_>) -> String {
    if before.pid != now.pid || now.uptime_seconds < before.uptime_seconds {
        let all = since_start(now, form);
        return format!("the gateway was started again\n\n{all}");
    }
    let seconds = (now.uptime_seconds - before.uptime_seconds).max(1e-9);
    let rates = now.pairs.iter().map(|pair| {
        let mut pairs = before.pairs.iter();
        let earlier = pairs.find(|other| other.listen == pair.listen);
        let rate = |name: &str| {
            let was = earlier.map_or(0, |pair| counter(pair, name));
            per_second(counter(pair, name).saturating_sub(was), seconds)
        };
        (pair, ["calls", "bytes_up", "bytes_down"].map(rate))
    });
    let mut text = form.at_interval();
    if form.long {
        let mut table = Columns::with_long_lines(&[0, 1], 2);
        table.add(["listen", "upstream", "clients", "calls/s", "up/s", "down/s"]);
        for (pair, [calls, up, down]) in rates {
            table.add([
                shown(&pair.listen),
                shown(&pair.upstream),
                counter(pair, "connections").to_string(),
                calls.to_string(),
                units::size(up),
                units::size(down),
            ]);
        }
        return text + &table.to_string();
    }
    let mut idle = 0_u64;
    for (pair, [calls, up, down]) in rates {
        let clients = counter(pair, "connections");
        if [clients, calls, up, down] == [0; 4] {
            idle += 1;
            continue;
        }
        let pair_name = format!("{} to {}", shown(&pair.listen), shown(&pair.upstream));
        let mut rows = Rows::indented(INDENT);
        rows.add("clients", number(clients));
        rows.add("calls", format!("{}/s", number(calls)));
        let (up, down) = (units::size(up), units::size(down));
        rows.add("bytes", format!("{up}/s up, {down}/s down"));
        text += &format!("{}{rows}", wrapped(&pair_name));
    }
    if let Some(idle) = some(idle, "pair without clients", "pairs without clients") {
        text += &format!("{idle}\n");
    }
    text
}
