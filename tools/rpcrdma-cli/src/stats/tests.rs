//! The text of `stats` within 80 columns.

use super::*;
use rpcrdma_daemon::control::{GatewayStatus, ServerStatus};
use serde_json::{Value, json};
use unicode_width::UnicodeWidthStr;

/// The longest address: of IPv6, with an interface.
const ADDRESS: &str = "[2001:db8:1234:5678:9abc:def0:1234:5678%4294967295]:65535";

/// A server of which each counter is `count`.
fn server(count: u64, uptime: f64) -> ServerStatus {
    let rdma = [
        "read_chunks_pulled",
        "read_bytes_pulled",
        "write_chunks_filled",
        "write_bytes_posted",
        "reply_chunks_filled",
        "reply_bytes_posted",
        "inline_bytes_received",
        "inline_bytes_sent",
        "invalidations_sent",
        "oversized",
        "memory_waits",
    ];
    let rdma: Value = rdma.iter().map(|name| (*name, json!(count))).collect();
    let mut buckets = vec![0; nfs_server::LATENCY_BUCKETS];
    buckets[nfs_server::LATENCY_BUCKETS - 1] = count;
    let classes = nfs_server::ErrorClass::ALL.map(|class| (class.name(), json!(count)));
    let classes: Value = classes.into_iter().collect();
    // The sum of connections of all states is a number, too.
    let part = count / 8;
    let status = json!({
        "version": "0.1.0", "pid": u32::MAX, "listening": ADDRESS, "uptime_seconds": uptime,
        "connections": {
            "setup": part, "idle": part, "active": part, "draining": part, "version_one": part, "version_two": part,
            "accepted": count, "refused": count, "evicted": count, "unanswered": count,
        },
        "credits_granted": count, "credits_in_use": count, "jobs": count, "jobs_in_flight": count,
        "chunk_memory_bytes": count, "open_files": count,
        "duplicate_requests": {
            "hits": count, "misses": count, "refused": count, "evicted": count, "expired": count, "entries": count,
        },
        "rdma": rdma, "bytes_in": count, "bytes_out": count,
        "procedures": [
            {
                "program": "nfs", "name": "READDIRPLUS", "calls": count, "errors": classes,
                "latency_buckets": buckets, "latency_sum_seconds": count,
            },
            {
                "program": "mount", "name": "UMNTALL", "calls": 0, "errors": {},
                "latency_buckets": [], "latency_sum_seconds": 0.0,
            },
        ],
        "listeners": [
            {"provider": "verbs", "address": ADDRESS, "device": "mlx5_bond_0", "socket": "rdma-of-the-service"},
        ],
        "mount": ADDRESS, "mount_socket": "mount-of-the-service", "metrics": null,
        "exports": [{
            "name": format!("/{}", "long-name".repeat(40)), "directory": "/x", "read_only": false, "clients": [],
            "absent": "nothing is mounted there",
        }],
        "reloads": {
            "succeeded": 1, "failed": 1, "last_seconds": 9e9,
            "last_error": format!("/etc/rpcrdma/rpcrdma.toml:7: {}", "unknown ".repeat(30)),
        },
    });
    serde_json::from_value(status).unwrap()
}

/// A gateway with many pairs, of which each counter is `count`.
fn gateway(count: u64, uptime: f64) -> GatewayStatus {
    let names = [
        "connections",
        "calls",
        "callbacks",
        "callbacks_refused",
        "bytes_up",
        "bytes_down",
        "upstream_attempts_failed",
        "upstream_unreachable",
        "upstream_lost",
        "repetitions",
        "larger_retries",
        "replies_too_large",
        "system_errors",
        "clients_stalled",
        "denied",
        "refused",
        "refused_as_too_many",
        "mount_denied",
        "mount_unanswered",
        "malformed",
        "timeouts",
    ];
    let counters: Value = names.iter().map(|name| (*name, json!(count))).collect();
    let host = format!("{}.example.org", "filer".repeat(12));
    let pairs: Vec<Value> = (0..200)
        .map(|number| {
            json!({
                "listen": format!("rdma://{ADDRESS}"), "upstream": format!("tcp://{number}.{host}:2049"),
                "counters": counters, "oldest_call_seconds": count, "mount": null, "allow": [],
            })
        })
        .collect();
    let status = json!({
        "version": "0.1.0", "pid": u32::MAX, "metrics": null, "uptime_seconds": uptime, "pairs": pairs,
        "failed": [
            {
                "listen": format!("rdma://{ADDRESS}"), "upstream": format!("tcp://{host}:2049"),
                "error": "cannot listen there: address in use", "kept": null, "attempts": count,
            },
            {
                "listen": format!("rdma://{ADDRESS}"), "upstream": format!("tcp://{host}:2049"),
                "error": "cannot listen there: address in use", "kept": format!("rdma://{ADDRESS}"), "attempts": 1,
            },
        ],
        "reloads": {"succeeded": 1, "failed": 1, "last_seconds": 9e9, "last_error": "in part"},
    });
    serde_json::from_value(status).unwrap()
}

fn check_width(text: &str) {
    for line in text.lines().filter(|line| !line.starts_with("--socket ")) {
        assert!(line.width() <= 80, "{} columns: {line}", line.width());
    }
}

fn both(count: u64, uptime: f64) -> [Status; 2] {
    [
        Status::Server(Box::new(server(count, uptime))),
        Status::Gateway(gateway(count, uptime)),
    ]
}

#[test]
fn text_fits_80_columns_whatever_the_numbers_are() {
    let socket = format!("/run/rpcrdma/control-{ADDRESS}.sock");
    let socket = Some(Path::new(&socket));
    for (before, now) in both(0, 0.0).iter().zip(&both(u64::MAX, 9e9)) {
        check_width(&report(None, now, socket, false));
        check_width(&report(Some(before), now, socket, false));
        // Within a thousandth of a second.
        let soon = both(u64::MAX, 0.001);
        for soon in &soon {
            check_width(&report(Some(before), soon, None, false));
        }
    }
}

#[test]
fn what_is_zero_is_left_out_unless_all_is_asked_for() {
    let [server, gateway] = both(0, 5.0);
    let text = report(None, &server, None, false);
    for absent in [
        "reply cache",
        "jobs",
        "RDMA",
        "handles",
        "open files",
        "UMNTALL",
    ] {
        assert!(!text.contains(absent), "{absent} is in {text}");
    }
    assert!(text.ends_with("no calls\n"), "{text}");
    let text = report(None, &server, None, true);
    for present in ["reply cache   0 entries, 0 hits, 0 misses", "mount/UMNTALL"] {
        assert!(text.contains(present), "{present} is not in {text}");
    }
    let text = report(None, &gateway, None, false);
    for absent in ["server  ", "errors", "MOUNT", "oldest"] {
        assert!(!text.contains(absent), "{absent} is in {text}");
    }
    let text = report(None, &gateway, None, true);
    assert!(text.contains("MOUNT failed"), "{text}");
    let rows = text.lines().filter(|line| line.starts_with("rdma://"));
    assert_eq!(rows.count(), 200);
}

#[test]
fn reply_cache_has_entries_hits_and_misses() {
    let mut status = server(0, 5.0);
    status.statistics.duplicate_requests.entries = 3;
    status.statistics.duplicate_requests.misses = 3;
    let text = report(None, &Status::Server(Box::new(status)), None, false);
    let line = text.lines().find(|line| line.starts_with("reply cache"));
    assert_eq!(line, Some("reply cache  3 entries, 0 hits, 3 misses"));
}
