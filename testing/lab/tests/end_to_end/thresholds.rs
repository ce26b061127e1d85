//! Output and plots of `thresholds`.

use crate::running::{fails, ok, text};
use std::fs;

const COLUMNS: &str =
    "nfs\tpart\tcalls\tcall\targument\treply\tresult\troom\tresult_room\toperations\n";

#[test]
fn operations_of_a_mix_are_counted_at_each_threshold() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name| folder.path().join(name).to_str().unwrap().to_owned();
    let (mix, svg) = (path("mix.tsv"), path("plot.svg"));
    let lines = "3\tsmall\t1\t140\t0\t116\t0\t200\t0\tGETATTR\n\
                 3\tlarge\t1\t16552\t16384\t160\t0\t200\t0\tWRITE\n";
    fs::write(&mix, format!("{COLUMNS}{lines}")).unwrap();
    let bench = ["thresholds", "--mix", &mix, "--svg", &svg, "--json"];
    let report: serde_json::Value = serde_json::from_slice(&ok(&bench)).unwrap();
    let recorded: Vec<_> = report["results"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|counts| counts["bound"] == "recorded")
        .map(|counts| {
            (
                counts["threshold"].as_u64().unwrap(),
                counts["rdma_reads"].as_f64().unwrap(),
            )
        })
        .collect();
    let expected = (10..19).map(|power| (1 << power, if power < 15 { 0.5 } else { 0.0 }));
    assert_eq!(recorded, expected.collect::<Vec<_>>());
    let drawn = fs::read_to_string(&svg).unwrap();
    assert!(
        drawn.starts_with("<svg ") && drawn.contains("RDMA Reads: 0.5 at 1 KiB"),
        "{drawn}"
    );
    let only = [&bench[..3], &["--part", "small", "--threshold", "9"]].concat();
    let only = text(&ok(&only));
    assert!(
        only.contains("NFSv3, 1 calls") && only.contains(" 9 KiB "),
        "{only}"
    );
}

#[test]
fn recorded_mix_is_the_default() {
    let said = text(&ok(&["thresholds"]));
    for part in ["NFSv3, ", "NFSv4.2, ", "256 KiB", "READ of 4 KiB (NFSv3)"] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    let few = ["thresholds", "--threshold", "4", "--markdown"];
    let markdown = text(&ok(&few));
    let tables = ["\n| 4 KiB | ", "| time of one call · wake-ups | 4 KiB |"];
    assert!(
        tables.iter().all(|part| markdown.contains(part)),
        "{markdown}"
    );
}

#[test]
fn invalid_mix_is_reported_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let mix = folder.path().join("mix.tsv").to_str().unwrap().to_owned();
    let bench = ["thresholds", "--mix", &mix];
    fails(&bench, 1, "No such file");
    fs::write(
        &mix,
        format!("{COLUMNS}3\tsmall\tmany\t0\t0\t0\t0\t0\t0\tNULL\n"),
    )
    .unwrap();
    fails(&bench, 1, "line 2: calls is \"many\", which is no number");
    fails(
        &["thresholds", "--part", "nowhere"],
        2,
        "there is no part nowhere in the mix; there are build, ",
    );
}
