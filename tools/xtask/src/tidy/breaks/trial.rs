//! Runs the tests of rows whose rule is broken.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::copy::TreeCopy;
use super::patch::Patch;
use super::targets::{Named, Package, Programs, Target, build};
use programs::command::{ended_within, output};

/// Longest time of one test; beyond it, it counts as failed. A broken rule may make it wait for ever.
const TEST_LIMIT: Duration = Duration::from_secs(60);

/// A patch, and the tests that are run with it.
struct Trial<'a> {
    patch: &'a Patch,
    /// Packages that the patch changes.
    packages: BTreeSet<Package>,
    tests: Vec<Named>,
}

/// The end of a trial.
struct Verdict<'a> {
    patch: &'a Patch,
    failed: Vec<String>,
    /// Tests that did not fail, but for those in other packages and those that the patch spares.
    passed: Vec<String>,
    took: Duration,
    /// The reason why there is no other result.
    error: Option<String>,
}

/// Breaks each rule in turn.
///
/// # Errors
///
/// Those of [`super::run`].
pub(super) fn run(root: &Path, patches: &[Patch], all: bool) -> Result<()> {
    let begun = Instant::now();
    let copy = TreeCopy::of(root)?;
    let mut trials = patches
        .iter()
        .map(|patch| Trial::of(root, patch, all))
        .collect::<Result<Vec<_>>>()?;
    // Patches of one crate one after another, so that the others are compiled once.
    trials.sort_by(|a, b| a.packages.cmp(&b.packages));
    let scratch = tempfile::tempdir()?;
    let mut runner = Runner {
        copy: &copy,
        scratch: scratch.path(),
        names: BTreeMap::new(),
    };
    let mut verdicts = Vec::new();
    let count = trials.len();
    let mut done = 0;
    for group in trials.chunk_by(|a, b| a.packages == b.packages) {
        let names: Vec<_> = group[0]
            .packages
            .iter()
            .map(|p| p.folder.display().to_string())
            .collect();
        println!("{}: tests without a patch", names.join(", "));
        let unbroken = runner.unbroken(group)?;
        for trial in group {
            let verdict = runner.verdict(trial, &unbroken);
            done += 1;
            println!("{done:>3} of {count}  {}", verdict.line());
            if let Some(error) = &verdict.error {
                println!("{error}");
            }
            verdicts.push(verdict);
        }
    }
    verdicts.sort_by_key(|verdict| verdict.patch.name());
    report(&verdicts, begun.elapsed())
}

/// Prints the table of all verdicts.
fn report(verdicts: &[Verdict<'_>], took: Duration) -> Result<()> {
    // Tests that need not fail with each patch: those that fail with another one of their row, or are spared.
    let mut excused: BTreeMap<&str, BTreeSet<&String>> = BTreeMap::new();
    for verdict in verdicts {
        let of_row = excused.entry(&verdict.patch.row.id).or_default();
        of_row.extend(&verdict.failed);
        of_row.extend(&verdict.patch.spared);
    }
    println!(
        "\n{:<28}{:>6}{:>6}{:>6}  tests",
        "patch", "s", "fail", "pass"
    );
    let mut faults = 0;
    for verdict in verdicts {
        println!("{}", verdict.line());
        for test in &verdict.failed {
            println!("{:<46}  fails   {}", "", function(test));
        }
        let of_row = &excused[verdict.patch.row.id.as_str()];
        for test in &verdict.passed {
            let is_fault = !of_row.contains(test);
            let how = if is_fault { "PASSES" } else { "passes" };
            println!("{:<46}  {how}  {}", "", function(test));
            faults += usize::from(is_fault);
        }
        if let Some(error) = &verdict.error {
            let first = error.lines().next().unwrap_or_default();
            println!("{:<46}  FAULT   {first}", "");
            faults += 1;
        } else if verdict.failed.is_empty() {
            println!("{:<46}  NOT CAUGHT", "");
            faults += 1;
        }
    }
    println!("{} patches in {} s", verdicts.len(), took.as_secs());
    if faults > 0 {
        bail!("tidy --break: {faults} to put right");
    }
    Ok(())
}

fn function(test: &str) -> &str {
    test.split_once("::").map_or(test, |(_, function)| function)
}

impl<'a> Trial<'a> {
    /// Selects the tests of a patch: those in the packages that it changes, or those elsewhere where there are none, or
    /// `all`.
    fn of(root: &Path, patch: &'a Patch, all: bool) -> Result<Self> {
        let changed = patch.changed.iter();
        let packages = changed
            .map(|file| Package::of(root, Path::new(file)))
            .collect::<Result<BTreeSet<_>>>()?;
        let mut tests = Vec::new();
        for test in &patch.row.tests {
            tests.extend(Named::of(root, test).context(test.clone())?);
        }
        let near = |named: &Named| packages.contains(&named.target.package);
        if !all && tests.iter().any(near) {
            tests.retain(near);
        }
        if tests.is_empty() {
            bail!("{} has no test that runs on this machine", patch.row.id);
        }
        Ok(Self {
            patch,
            packages,
            tests,
        })
    }

    fn targets(&self) -> BTreeSet<Target> {
        let targets = self.tests.iter().map(|named| named.target.clone());
        targets.collect()
    }

    /// Whether a test must fail: it is not spared, and in a package that the patch changes.
    fn is_demanded(&self, named: &Named) -> bool {
        let spared = self.patch.spared.contains(&named.test);
        !spared && self.packages.contains(&named.target.package)
    }
}

impl Verdict<'_> {
    fn line(&self) -> String {
        format!(
            "{:<28}{:>6}{:>6}{:>6}  {}",
            self.patch.name(),
            self.took.as_secs(),
            self.failed.len(),
            self.passed.len(),
            self.patch.sentence
        )
    }
}

struct Runner<'a> {
    copy: &'a TreeCopy<'a>,
    scratch: &'a Path,
    /// The names of all tests of a target.
    names: BTreeMap<Target, Vec<String>>,
}

impl Runner<'_> {
    /// Runs the tests of a group without a patch, and returns those that fail.
    fn unbroken(&mut self, group: &[Trial<'_>]) -> Result<BTreeSet<String>> {
        let targets: BTreeSet<Target> = group.iter().flat_map(Trial::targets).collect();
        // As with each patch, so that the same features are selected.
        let programs = build(self.copy, &targets, true)?;
        for (target, found) in &programs {
            let mut names = Vec::new();
            for program in found {
                let listed = output(Command::new(program).args(["--list", "--format=terse"]))?;
                let tests = listed
                    .lines()
                    .filter_map(|line| line.strip_suffix(": test"));
                names.extend(tests.map(str::to_owned));
            }
            self.names.insert(target.clone(), names);
        }
        let mut seen = BTreeSet::new();
        let mut failing = BTreeSet::new();
        for named in group.iter().flat_map(|trial| &trial.tests) {
            if seen.insert(&named.test) && self.fails(named, &programs)? {
                failing.insert(named.test.clone());
            }
        }
        Ok(failing)
    }

    fn verdict<'b>(&self, trial: &Trial<'b>, unbroken: &BTreeSet<String>) -> Verdict<'b> {
        let begun = Instant::now();
        let mut verdict = Verdict {
            patch: trial.patch,
            failed: Vec::new(),
            passed: Vec::new(),
            took: Duration::ZERO,
            error: None,
        };
        let result = self.try_out(trial, unbroken, &mut verdict);
        verdict.error = result.err().map(|error| format!("{error:#}"));
        verdict.took = begun.elapsed();
        verdict
    }

    fn try_out(
        &self,
        trial: &Trial<'_>,
        unbroken: &BTreeSet<String>,
        verdict: &mut Verdict<'_>,
    ) -> Result<()> {
        if let Some(named) = trial
            .tests
            .iter()
            .find(|named| unbroken.contains(&named.test))
        {
            bail!("{} fails without the patch", named.test);
        }
        let _broken = self.copy.broken_by(trial.patch)?;
        let programs = build(self.copy, &trial.targets(), false)?;
        for named in &trial.tests {
            if self.fails(named, &programs)? {
                verdict.failed.push(named.test.clone());
            } else if trial.is_demanded(named) {
                verdict.passed.push(named.test.clone());
            }
        }
        Ok(())
    }

    /// Whether a test fails, in one of the forms that a macro made of it.
    fn fails(&self, named: &Named, programs: &Programs) -> Result<bool> {
        let listed = self.names.get(&named.target).map_or(&[][..], |names| names);
        let names = named.select(listed);
        if names.is_empty() {
            bail!("no target has a test {}", named.test);
        }
        let found: &[PathBuf] = programs.get(&named.target).map_or(&[], |found| found);
        let folder = self.copy.tree.join(&named.target.package.folder);
        for name in names {
            for program in found {
                let mut test = Command::new(program);
                test.args([name, "--exact", "--test-threads=1"])
                    .current_dir(&folder)
                    .env("CARGO_MANIFEST_DIR", &folder)
                    .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1")
                    // The same cases in each run.
                    .env("PROPTEST_RNG_SEED", "1");
                if !ended_within(&mut test, TEST_LIMIT, self.scratch)?.is_success() {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::compliance::Row;

    fn patch(word: &str, spared: &[&str]) -> Patch {
        Patch {
            file: format!("RFC1-2.1-1{word}.patch").into(),
            row: Row {
                id: "RFC1-2.1-1".to_owned(),
                files: Vec::new(),
                tests: Vec::new(),
            },
            sentence: "It is not done.".to_owned(),
            spared: names(spared),
            changed: Vec::new(),
        }
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn verdict<'a>(patch: &'a Patch, failed: &[&str], passed: &[&str]) -> Verdict<'a> {
        Verdict {
            patch,
            failed: names(failed),
            passed: names(passed),
            took: Duration::ZERO,
            error: None,
        }
    }

    #[track_caller]
    fn check(verdicts: &[Verdict<'_>], faults: usize) {
        let done = report(verdicts, Duration::ZERO).map_err(|error| error.to_string());
        let expected = match faults {
            0 => Ok(()),
            _ => Err(format!("tidy --break: {faults} to put right")),
        };
        assert_eq!(done, expected);
    }

    #[test]
    fn each_test_of_a_row_fails_with_one_of_its_patches_or_is_spared() {
        let (one, other) = (patch("", &[]), patch("+other", &["a::spared"]));
        check(&[verdict(&one, &["a::b"], &[])], 0);
        check(&[verdict(&one, &["a::b"], &["a::c"])], 1);
        let with_other = |passed| {
            [
                verdict(&one, &["a::b"], &[passed]),
                verdict(&other, &["a::c"], &["a::b"]),
            ]
        };
        check(&with_other("a::c"), 0);
        check(&with_other("a::spared"), 0);
        check(&with_other("a::d"), 1);
    }

    #[test]
    fn each_patch_makes_a_test_fail() {
        let (one, other) = (patch("", &[]), patch("+other", &[]));
        check(&[verdict(&one, &[], &[])], 1);
        let both = [
            verdict(&one, &["a::b"], &[]),
            verdict(&other, &[], &["a::b"]),
        ];
        check(&both, 1);
        let no_result = Verdict {
            error: Some("does not compile".to_owned()),
            ..verdict(&one, &[], &[])
        };
        check(&[no_result], 1);
    }
}
