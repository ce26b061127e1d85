//! Results, output and plots of `invalidation`.

use crate::running::{fails, ok, run, text};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

const BENCH: [&str; 6] = [
    "invalidation",
    "--payload",
    "8192",
    "--calls",
    "12",
    "--provider",
];

/// Two of them, so that there is a range; more would only take longer.
const RUNS: [&str; 2] = ["--runs", "2"];

fn rows(arguments: &[&str]) -> Vec<Value> {
    let said = ok(&[&BENCH[..], arguments, &RUNS, &["--json"]].concat());
    let report: Value = serde_json::from_slice(&said).unwrap();
    assert_eq!(report["model"]["interrupt_ns"], 4000);
    report["rows"].as_array().unwrap().clone()
}

/// One figure of the measurement with dynamic memory, this traffic, design and number of handles.
fn figure(rows: &[Value], traffic: &str, design: &str, stags: u64, name: &str) -> f64 {
    let row = rows.iter().find(|row| {
        row["traffic"] == traffic
            && row["design"] == design
            && row["stags"] == stags
            && row["memory"] == "dynamic"
    });
    let figure = &row.unwrap()[name];
    // Of several runs, the one in the middle.
    let figure = figure.get("median").unwrap_or(figure);
    figure.as_f64().unwrap()
}

#[test]
fn each_design_costs_what_its_text_says() {
    let rows = rows(&["sim", "--jitter", "0"]);
    let alone = |design, stags, name| figure(&rows, "alone", design, stags, name);
    for design in ["per_version", "per_connection", "fixed", "inter_call"] {
        // One handle of each call goes with its reply, for nothing on the wire.
        for stags in [1, 2, 4] {
            let of_none = alone("none", stags, "work_requests");
            assert_eq!(alone(design, stags, "work_requests"), of_none - 1.0);
            let of_none = alone("none", stags, "header_bytes");
            assert_eq!(alone(design, stags, "header_bytes"), of_none);
        }
        let share = alone(design, 4, "local_share");
        assert_eq!(share, 0.75, "{design}");
    }
    // A word each way; a count each way, and the handles of a call.
    let plain = alone("none", 4, "header_bytes");
    assert_eq!(alone("per_call", 4, "header_bytes"), plain + 8.0);
    assert_eq!(alone("per_call_several", 4, "header_bytes"), plain + 24.0);
    // All of them at once: nothing is left.
    let of_none = alone("none", 4, "work_requests");
    assert_eq!(alone("per_call_all", 4, "work_requests"), of_none - 4.0);
    assert_eq!(alone("per_call_all", 4, "header_bytes"), plain + 24.0);
    assert_eq!(alone("per_call_all", 4, "local_share"), 0.0);
    let gain = alone("per_call_all", 4, "latency_us") / alone("none", 4, "latency_us");
    assert!(gain < 0.95, "{gain}");
    // Nobody has to be woken for the only handle of a call.
    assert!(alone("per_call", 1, "latency_us") < alone("none", 1, "latency_us"));
    // Client and server once each for a call, and the client once more for a handle.
    assert_eq!(alone("none", 1, "wakeups"), 3.0);
    assert_eq!(alone("per_call", 1, "wakeups"), 2.0);
    // Between calls a second one goes, where there are replies that have none of their own.
    let mixed = |design| figure(&rows, "mixed", design, 2, "local_share");
    assert_eq!(mixed("per_connection"), 0.5);
    assert!(mixed("inter_call") < 0.5);
    // All chunks in one region: nothing is left under any design, and one invalidation without.
    let together = |design: &str, name: &str| {
        let row = rows.iter().find(|row| {
            row["memory"] == "one_region"
                && row["traffic"] == "alone"
                && row["design"] == design
                && row["stags"] == 4
        });
        let figure = &row.unwrap()[name];
        let figure = figure.get("median").unwrap_or(figure);
        figure.as_f64().unwrap()
    };
    // Three registrations less, and three invalidations.
    let apart = alone("none", 4, "work_requests");
    assert_eq!(together("none", "work_requests"), apart - 6.0);
    for design in [
        "per_version",
        "per_connection",
        "fixed",
        "per_call",
        "per_call_several",
    ] {
        assert_eq!(together(design, "work_requests"), apart - 7.0, "{design}");
        assert_eq!(together(design, "local_share"), 0.0, "{design}");
        let gain = together(design, "latency_us") / alone(design, 4, "latency_us");
        assert!(gain < 0.9, "{design}: {gain}");
    }
    // Memory that stays goes with those designs only in which the client selects, and with none.
    let stays = rows.iter().filter(|row| row["memory"] == "persistent");
    let designs: BTreeSet<_> = stays.map(|row| row["design"].as_str().unwrap()).collect();
    assert!(
        designs
            .into_iter()
            .eq(["none", "per_call", "per_call_all", "per_call_several"])
    );
}

#[test]
fn software_provider_is_measured_too_and_a_plot_is_drawn() {
    let rows = rows(&["iwarp", "--design", "none", "--design", "per_call"]);
    let alone = |design| figure(&rows, "alone", design, 1, "local_share");
    assert_eq!((alone("none"), alone("per_call")), (1.0, 0.0));
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("plot.svg");
    let drawn = ["sim", "--design", "none", "--design", "fixed", "--svg"];
    let arguments = [&BENCH[..], &drawn, &[svg.to_str().unwrap()], &RUNS].concat();
    let said = text(&ok(&arguments));
    assert!(
        said.contains("latency us") && said.contains("fixed"),
        "{said}"
    );
    assert!(fs::read_to_string(&svg).unwrap().starts_with("<svg "));
}

#[test]
fn runs_vary_as_their_seeds_say() {
    let one_design = ["--design", "none", "--design", "fixed", "--jitter"];
    let with =
        |jitter, seed| rows(&[&["sim"], &one_design[..], &[jitter, "--seed", seed]].concat());
    let varied = with("20", "1");
    assert_eq!(varied, with("20", "1"), "a run can be repeated");
    assert_ne!(varied, with("20", "7"));
    for (rows, is_wide) in [(varied, true), (with("0", "1"), false)] {
        let fixed = rows.iter().find(|row| row["design"] == "fixed").unwrap();
        let of_none = |end: &str| fixed["of_none"][end].as_f64().unwrap();
        assert_eq!(of_none("low") < of_none("high"), is_wide, "{fixed}");
    }
}

#[test]
fn designs_without_a_difference_are_shown_once() {
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("plot.svg");
    let three = [
        "--design",
        "none",
        "--design",
        "fixed",
        "--design",
        "per_connection",
    ];
    let more = ["sim", "--runs", "1", "--markdown", "--sensitivity", "--svg"];
    let arguments = [&BENCH[..], &more, &[svg.to_str().unwrap()], &three].concat();
    let said = text(&ok(&arguments));
    assert!(
        said.contains("| | | | `per_connection`, `fixed` | 0."),
        "{said}"
    );
    assert!(said.contains("**LOCAL_INV (8 KiB)**"), "{said}");
    assert!(
        said.contains("| traffic | STags | design | 0 µs | 1 µs | 2 µs |"),
        "{said}"
    );
    let svg = fs::read_to_string(&svg).unwrap();
    // One line in each panel by payload; two, of two kinds of traffic, in each by interrupt.
    assert_eq!(
        svg.matches("<polyline class=\"l s0\"").count(),
        2 * 9,
        "line and legend"
    );
    assert!(svg.contains(">per_connection, fixed</text>"));
}

#[test]
fn unknown_design_is_a_wrong_use_that_names_the_known_ones() {
    let bench = ["invalidation", "--design", "per_moon"];
    fails(&bench, 2, "there are none, per_version, per_connection");
}

#[test]
fn device_that_is_not_there_or_not_used_is_said() {
    let bench = ["invalidation", "--device", "no-such-device"];
    let output = run(&bench);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    let named = [
        "modprobe ib_uverbs",
        "install libibverbs1",
        "no RDMA device no-such-device",
    ]
    .iter()
    .any(|said| errors.contains(said));
    assert!(named, "{errors}");
    let software = [&bench[..], &["--provider", "iwarp"]].concat();
    fails(&software, 2, "--provider iwarp does not use");
}

#[test]
fn option_of_the_model_is_refused_where_there_is_no_model() {
    let bench = ["invalidation", "--provider"];
    for (provider, option, value) in [
        ("iwarp", "--sensitivity", None),
        ("iwarp", "--interrupt", Some("4us")),
        ("verbs", "--register-page", Some("20ns")),
    ] {
        let arguments: Vec<&str> = bench
            .into_iter()
            .chain([provider, option])
            .chain(value)
            .collect();
        let says = format!("{option} is an option of the model of an RNIC");
        fails(&arguments, 2, &says);
    }
}

#[test]
fn traffic_memory_and_chunks_are_measured_as_asked_for() {
    let few = ["sim", "--traffic", "mixed", "--memory", "one_region"];
    let rows = rows(&[&few[..], &["--chunks", "2", "--design", "none"]].concat());
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(rows[0]["traffic"], "mixed");
    assert_eq!(
        (&rows[0]["memory"], &rows[0]["stags"]),
        (&"one_region".into(), &2.into())
    );
    fails(&["invalidation", "--chunks", "3"], 2, "it is not 1, 2 or 4");
}

#[test]
fn range_of_mixed_traffic_has_another_order_of_calls_too() {
    // Without variation and with one seed, nothing else differs.
    let model = ["sim", "--jitter", "0", "--design", "none", "--runs", "1"];
    let bench = [
        &BENCH[..],
        &model,
        &["--json", "--memory", "dynamic", "--chunks", "1"],
    ]
    .concat();
    let report: Value = serde_json::from_slice(&ok(&bench)).unwrap();
    for row in report["rows"].as_array().unwrap() {
        let [low, high] = ["low", "high"].map(|end| row["latency_us"][end].as_f64().unwrap());
        assert_eq!(low < high, row["traffic"] == "mixed", "{row}");
    }
}
