//! The POSIX test suite pjdfstest, by the kernel's client on our server and on the kernel's, and on the
//! file system that both of them export: each case has the same result on both servers.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::guest::{Boot, Guest};
use crate::{TestRun, lab};
use programs::command::{cargo, output};
use programs::tsv;

/// The suite, as a crate of the registry. Nothing of it is part of this project.
const SUITE: &str = "pjdfstest";
const VERSION: &str = "0.2.0";

/// How many cases that version has.
const CASES: usize = 398;

/// Versions of NFS, each with the cases whose results differ, in a file from the root of the work tree: name, result on our server, result on the
/// kernel's, and why.
const DIFFERENCES: [(&str, &str); 2] = [
    ("3", "testing/interop/posix-suite.tsv"),
    ("4.2", "testing/interop/posix-suite-v4.tsv"),
];

/// Size of the disk. It is a file with holes.
const DISK: u64 = 1 << 30;

/// The guest takes a few minutes on an idle machine.
const LIMIT: Duration = Duration::from_secs(1200);

/// Places in which the suite runs.
const PLACES: [&str; 3] = ["local", "knfsd", "ours"];

/// Results of the cases, by name.
type Results = BTreeMap<String, String>;

pub(super) fn version_3(run: &TestRun<'_>) -> Result<()> {
    of_version(run, DIFFERENCES[0])
}

pub(super) fn version_4(run: &TestRun<'_>) -> Result<()> {
    of_version(run, DIFFERENCES[1])
}

fn of_version(run: &TestRun<'_>, (version, differences): (&str, &str)) -> Result<()> {
    run.report
        .say(run.name, &format!("{SUITE} {VERSION}, with cargo install"));
    let suite = install()?;
    let disk = run.work.join("disk");
    File::create(&disk)?.set_len(DISK)?;
    let boot = Boot {
        name: "guest",
        script: "posix-suite.sh",
        environment: &[("DEVICE", "/dev/vda".into()), ("VERSION", version.into())],
        program: Some(run.program),
        files: &[(SUITE, &suite)],
        disks: &[&disk],
        limit: LIMIT,
        ..Boot::default()
    };
    let mut guest = Guest::boot(run, &boot)?;
    let mut all: BTreeMap<&str, Results> = BTreeMap::new();
    for place in PLACES {
        let results = all.entry(place).or_default();
        let took = results_of(&mut guest, place, results)?;
        let said = format!("on {place}: {}, {:.1} s", counts(results), took);
        run.report.say(run.name, &said);
        ensure!(
            results.len() == CASES,
            "{} of {CASES} cases have a result on {place}",
            results.len()
        );
    }
    guest.finish()?;
    let path = programs::root().join(differences);
    let known = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    compare(&all["ours"], &all["knfsd"], &known).with_context(|| differences.to_owned())
}

/// Builds the suite, unless that was done before.
fn install() -> Result<PathBuf> {
    let folder = lab().join(format!("{SUITE}-{VERSION}"));
    let program = folder.join("bin").join(SUITE);
    if program.exists() {
        return Ok(program);
    }
    let target = folder.join("target");
    output(
        cargo()
            .args(["install", "--quiet", "--locked", SUITE])
            .args(["--version", VERSION])
            .arg("--root")
            .arg(&folder)
            .arg("--target-dir")
            .arg(&target),
    )?;
    fs::remove_dir_all(&target)?;
    Ok(program)
}

/// Takes in what the guest says of one place, and how many seconds it took.
fn results_of(guest: &mut Guest<'_>, place: &str, results: &mut Results) -> Result<f64> {
    let took = guest.expect("took")?;
    for note in guest.notes() {
        if let [on, case, result] = note.split_whitespace().collect::<Vec<_>>()[..]
            && on == place
        {
            results.insert(case.to_owned(), result.to_owned());
        }
    }
    let millis = took
        .strip_prefix(place)
        .and_then(|millis| millis.trim().parse::<u32>().ok());
    let millis = millis.with_context(|| format!("{took:?} where {place} was expected"))?;
    Ok(f64::from(millis) / 1e3)
}

/// How many cases have which result.
fn counts(results: &Results) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for result in results.values() {
        *counts.entry(result).or_default() += 1;
    }
    let counts: Vec<_> = counts
        .iter()
        .map(|(result, count)| format!("{count} {result}"))
        .collect();
    counts.join(", ")
}

/// Whether results differ only where they are known to.
///
/// # Errors
///
/// Names the others, and those that are known to differ and do not.
fn compare(ours: &Results, knfsd: &Results, known: &str) -> Result<()> {
    let mut expected = BTreeMap::new();
    for row in tsv::reader_without_comments(known).into_records() {
        let row = row?;
        let [case, ours, knfsd, _why] = row.iter().collect::<Vec<_>>()[..] else {
            bail!("line {}: not four fields", tsv::line(&row));
        };
        expected.insert(case.to_owned(), (ours.to_owned(), knfsd.to_owned()));
    }
    let mut wrong = Vec::new();
    let cases = ours.keys().chain(knfsd.keys());
    for case in cases.collect::<std::collections::BTreeSet<_>>() {
        let of = |results: &Results| results.get(case).cloned().unwrap_or("missing".into());
        let (ours, knfsd) = (of(ours), of(knfsd));
        let fine = match expected.remove(case.as_str()) {
            Some(pair) => pair == (ours.clone(), knfsd.clone()),
            None => ours == knfsd,
        };
        if !fine {
            wrong.push(format!("{case}: {ours}, on the kernel's server {knfsd}"));
        }
    }
    let unknown = expected.keys();
    wrong.extend(unknown.map(|case| format!("{case}: in the list of differences, and no case")));
    ensure!(
        wrong.is_empty(),
        "results differ, or do not as the list says:\n  {}",
        wrong.join("\n  ")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(pairs: &[(&str, &str)]) -> Results {
        let owned = |(case, result): &(&str, &str)| ((*case).into(), (*result).into());
        pairs.iter().map(owned).collect()
    }

    #[test]
    fn results_may_differ_only_as_it_is_written_down() {
        let ours = results(&[("a", "ok"), ("b", "ok"), ("c", "FAILED")]);
        let knfsd = results(&[("a", "ok"), ("b", "FAILED"), ("c", "FAILED")]);
        let known = "# case\tours\tknfsd\twhy\nb\tok\tFAILED\tbecause\n";
        let check = |known: &str| compare(&ours, &knfsd, known).map_err(|error| error.to_string());
        assert_eq!(check(known), Ok(()));
        let error = check("").unwrap_err();
        assert!(
            error.contains("\n  b: ok") && !error.contains("\n  a"),
            "{error}"
        );
        assert!(check("b\tFAILED\tok\twhy\n").is_err());
        assert!(check("b\tok\tFAILED\n").is_err());
        assert!(check(&format!("{known}d\tok\tFAILED\twhy\n")).is_err());
        assert!(check(&format!("{known}c\tok\tFAILED\twhy\n")).is_err());
        let fewer = results(&[("a", "ok"), ("b", "FAILED")]);
        assert!(compare(&ours, &fewer, known).is_err());
    }

    #[test]
    fn results_are_counted() {
        let text = counts(&results(&[("a", "ok"), ("b", "ok"), ("c", "FAILED")]));
        assert_eq!(text, "1 FAILED, 2 ok");
    }
}
