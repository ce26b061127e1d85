//! Suites of others, by the kernel's client on our server and on the kernel's, and on the file system that both of them
//! export: each case has the same result on both servers.
//!
//! Nothing of the suites is part of this project. pjdfstest is a crate of the registry; work trees of the others are where who
//! runs them has put them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::guest::{Boot, Guest};
use crate::packages::tool;
use crate::{TestRun, lab};
use programs::command::{cargo, output};
use programs::tsv;

/// A suite.
struct Suite {
    name: &'static str,
    /// Part of it that is run, to be told.
    about: &'static str,
    /// Version of NFS.
    version: &'static str,
    /// How many cases it has, as they are seen without NFS.
    cases: usize,
    /// File from the root of the work tree, with the cases whose results differ: name, result on our server, result on the
    /// kernel's, and why.
    differences: &'static str,
    /// Source of its programs.
    source: Source,
}

/// Origin of a suite's programs.
enum Source {
    /// A crate of the registry, of this version.
    Crate(&'static str),
    /// A work tree in the lab.
    Tree {
        url: &'static str,
        /// The cases are those of this commit.
        commit: &'static str,
        /// Folders that are made.
        folders: &'static [&'static str],
        /// Arguments of `make`.
        make: &'static [&'static str],
        /// Changes of its sources.
        edits: &'static [Edit],
    },
}

/// A change of a source, everywhere in it.
struct Edit {
    file: &'static str,
    from: &'static str,
    to: &'static str,
}

const POSIX: Suite = Suite {
    name: "pjdfstest",
    about: "pjdfstest 0.2.0",
    version: "3",
    cases: 398,
    differences: "testing/interop/posix-suite.tsv",
    source: Source::Crate("0.2.0"),
};

const POSIX_V4: Suite = Suite {
    version: "4.2",
    differences: "testing/interop/posix-suite-v4.tsv",
    ..POSIX
};

const CONFORMANCE: Suite = Suite {
    name: "nfs-conformance",
    about: "nfs-conformance",
    version: "4.2",
    cases: 77,
    differences: "testing/interop/nfs-conformance.tsv",
    source: Source::Tree {
        url: "https://github.com/loghyr/nfs-conformance",
        commit: "6d7cba8",
        folders: &["."],
        make: &["CC=gcc-12", "CFLAGS=-O1 -s -w -D_GNU_SOURCE"],
        edits: &[],
    },
};

const CTHON: Suite = Suite {
    name: "cthon04",
    about: "cthon04, basic and lock",
    version: "4.2",
    cases: 241,
    differences: "testing/interop/cthon04.tsv",
    source: Source::Tree {
        url: "https://github.com/phdeniel/cthon04",
        commit: "3857ed3",
        folders: &["basic", "lock"],
        make: &[
            "CC=gcc-12",
            "CFLAGS=-O1 -s -w -std=gnu89 -fcommon -DLINUX -DGLIBC=22 -DMMAP -DSTDARG -DLARGE_LOCKS",
            "LIBS=-lm",
        ],
        // Both processes name the file from where they are.
        edits: &[Edit {
            file: "lock/tlock.c",
            from: "fork()",
            to: "(fork() ?: chdir(\"/other/t\") && (_exit(2), 0))",
        }],
    },
};

/// Folder of the lab with the work trees of suites.
const TREES: &str = "suites";

/// Size of the disk. It is a file with holes.
const DISK: u64 = 1 << 30;

/// The guest takes some minutes on an idle machine.
const LIMIT: Duration = Duration::from_secs(2400);

/// Places in which a suite runs.
const PLACES: [&str; 3] = ["local", "knfsd", "ours"];

/// Results of the cases, by name.
type Results = BTreeMap<String, String>;

pub(super) fn posix(run: &TestRun<'_>) -> Result<()> {
    POSIX.run(run)
}

pub(super) fn posix_v4(run: &TestRun<'_>) -> Result<()> {
    POSIX_V4.run(run)
}

pub(super) fn conformance(run: &TestRun<'_>) -> Result<()> {
    CONFORMANCE.run(run)
}

pub(super) fn cthon(run: &TestRun<'_>) -> Result<()> {
    CTHON.run(run)
}

impl Suite {
    fn run(&self, run: &TestRun<'_>) -> Result<()> {
        let built = self.build(run)?;
        let disk = run.work.join("disk");
        File::create(&disk)?.set_len(DISK)?;
        let boot = Boot {
            name: "guest",
            script: "suites.sh",
            environment: &[
                ("SUITE", self.name.into()),
                ("DEVICE", "/dev/vda".into()),
                ("VERSION", self.version.into()),
            ],
            program: Some(run.program),
            files: &[(self.name, &built)],
            disks: &[&disk],
            limit: LIMIT,
            ..Boot::default()
        };
        let mut guest = Guest::boot(run, &boot)?;
        let mut all: BTreeMap<&str, Results> = BTreeMap::new();
        for place in PLACES {
            let results = all.entry(place).or_default();
            let took = results_of(&mut guest, place, results)?;
            let said = format!("on {place}: {}, {took:.1} s", counts(results));
            run.report.say(run.name, &said);
        }
        guest.finish()?;
        // A case without a result on ours is a difference.
        for place in ["local", "knfsd"] {
            let (cases, expected) = (all[place].len(), self.cases);
            ensure!(
                cases == expected,
                "{cases} cases have a result on {place}, and not {expected}"
            );
        }
        let path = programs::root().join(self.differences);
        let known = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        compare(&all["ours"], &all["knfsd"], &known).with_context(|| self.differences.to_owned())
    }

    /// Builds it, and returns the program, or an archive of programs.
    fn build(&self, run: &TestRun<'_>) -> Result<PathBuf> {
        run.report.say(run.name, &format!("build {}", self.about));
        match self.source {
            Source::Crate(version) => install(self.name, version),
            Source::Tree {
                url,
                commit,
                folders,
                make,
                edits,
            } => {
                let tree = lab().join(TREES).join(self.name);
                let place = tree.display();
                ensure!(
                    tree.is_dir(),
                    "the suite is not there:\n  git clone {url} {place}\n  git -C {place} checkout {commit}"
                );
                let copy = run.work.join("suite");
                output(tool("cp").arg("-r").args([&tree, &copy]))?;
                for Edit { file, from, to } in edits {
                    let path = copy.join(file);
                    let source = fs::read_to_string(&path)?;
                    ensure!(source.contains(from), "{file} has no {from:?}");
                    fs::write(&path, source.replace(from, to))?;
                }
                for folder in folders {
                    output(tool("make").arg("-C").arg(copy.join(folder)).args(make))?;
                }
                let archive = run.work.join("suite.tar");
                let unwanted =
                    ["*.c", "*.h", "*.o", ".git"].map(|name| format!("--exclude={name}"));
                let mut pack = tool("tar");
                pack.arg("-C").arg(&copy).arg("-cf").arg(&archive);
                output(pack.args(unwanted).arg("."))?;
                Ok(archive)
            }
        }
    }
}

/// Installs the program of a crate in the lab, unless that was done before.
fn install(name: &str, version: &str) -> Result<PathBuf> {
    let folder = lab().join(format!("{name}-{version}"));
    let program = folder.join("bin").join(name);
    if program.exists() {
        return Ok(program);
    }
    let target = folder.join("target");
    output(
        cargo()
            .args(["install", "--quiet", "--locked", name])
            .args(["--version", version])
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
    for case in cases.collect::<BTreeSet<_>>() {
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
