//! The page of what works against what: it names tests that exist, and every interoperability test of the program.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::Result;

use super::fault::Fault;
use super::sources::{Named, Sources};
use interop::Listed;

const PAGE: &str = "docs/guide/what-works.md";

/// Title of the column that names tests.
const TESTS: &str = "shown by";

/// Title of the column that names kernels.
const KERNELS: &str = "Linux";

/// Marks a test that is not part of a run without options.
const NOT_USUAL: char = '†';

/// Compares the page with the tests of the work tree; `kernels` are those that `tests` can boot.
pub(super) fn check(
    root: &Path,
    sources: &Sources,
    tests: &[Listed],
    kernels: &[&str],
    faults: &mut Vec<Fault>,
) -> Result<()> {
    let text = fs::read_to_string(root.join(PAGE))?;
    let mut fault = |line, what| faults.push(Fault::new(Path::new(PAGE), line, what));
    let mut named = BTreeSet::new();
    let mut titles: Vec<&str> = Vec::new();
    for (line, row) in (1..).zip(text.lines()) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        if cells.len() == 1 || titles.is_empty() {
            titles = if cells.len() == 1 { Vec::new() } else { cells };
            continue;
        }
        for (title, cell) in titles.iter().zip(&cells) {
            if cell.starts_with("--") {
                continue;
            }
            if *title == KERNELS {
                for kernel in cell.split(", ").filter(|cell| !kernels.contains(cell)) {
                    fault(line, format!("no interoperability test boots {kernel}"));
                }
            } else if *title == TESTS {
                for test in cell.split(", ") {
                    if let Err(what) = check_test(test, sources, tests) {
                        fault(line, what);
                    }
                    named.insert(bare(test));
                }
            }
        }
    }
    for test in tests.iter().filter(|test| test.ours) {
        if !named.contains(test.name) {
            let what = format!("the interoperability test {} is missing", test.name);
            fault(1, what);
        }
    }
    Ok(())
}

/// The name of a test without its mark.
fn bare(test: &str) -> &str {
    test.trim_end_matches(NOT_USUAL).trim_matches('`')
}

/// Whether there is such a test, `file::function` or one of `tests`.
fn check_test(test: &str, sources: &Sources, tests: &[Listed]) -> Result<(), String> {
    let name = bare(test);
    if let Some((file, function)) = name.split_once("::") {
        return match sources.named(Path::new(file), function) {
            Named::Test => Ok(()),
            Named::Ignored | Named::Function | Named::Nothing => {
                Err(format!("there is no test {name}"))
            }
        };
    }
    let Some(listed) = tests.iter().find(|listed| listed.name == name) else {
        return Err(format!("there is no interoperability test {name}"));
    };
    match (listed.usual, test.ends_with(NOT_USUAL)) {
        (true, true) => Err(format!(
            "{name} is part of a run without options, so without {NOT_USUAL}"
        )),
        (false, false) => Err(format!(
            "{name} is not part of a run without options, so with {NOT_USUAL}"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: [Listed; 3] = [
        Listed {
            name: "mounts",
            usual: true,
            ours: true,
        },
        Listed {
            name: "slow",
            usual: false,
            ours: true,
        },
        Listed {
            name: "reference",
            usual: false,
            ours: false,
        },
    ];

    #[track_caller]
    fn check_page(rows: &[&str], expected: &[&str]) {
        let dir = tempfile::tempdir().unwrap();
        let page = dir.path().join(PAGE);
        fs::create_dir_all(page.parent().unwrap()).unwrap();
        let head =
            "| a | b |\n|---|---|\n| `any x` | y |\n\n| what | Linux | shown by |\n|---|---|---|\n";
        fs::write(&page, format!("{head}{}\n", rows.join("\n"))).unwrap();
        let sources = Sources::of([("a/lib.rs", "#[test]\nfn one() {}\nfn two() {}\n")]);
        let mut faults = Vec::new();
        check(dir.path(), &sources, &LISTED, &["6.1", "6.12"], &mut faults).unwrap();
        let faults: Vec<String> = faults.iter().map(Fault::to_string).collect();
        let expected = expected.iter().map(|what| format!("{PAGE}:{what}"));
        assert_eq!(faults, expected.collect::<Vec<_>>());
    }

    #[test]
    fn tests_of_the_page_exist() {
        const GOOD: &str = "| x | 6.1, 6.12 | `mounts`, `slow`†, `a/lib.rs::one` |";
        check_page(&[GOOD], &[]);
        check_page(
            &[
                GOOD,
                "| y | 6.1 | `gone` |",
                "| z | 6.1 | `a/lib.rs::two` |",
            ],
            &[
                "8: there is no interoperability test gone",
                "9: there is no test a/lib.rs::two",
            ],
        );
        check_page(
            &[GOOD, "| y | 6.1, 5.4 | `mounts` |"],
            &["8: no interoperability test boots 5.4"],
        );
    }

    #[test]
    fn tests_that_a_run_without_options_leaves_out_are_marked() {
        check_page(
            &["| x | 6.1 | `mounts`† |", "| y | 6.1 | `slow` |"],
            &[
                "7: mounts is part of a run without options, so without †",
                "8: slow is not part of a run without options, so with †",
            ],
        );
    }

    #[test]
    fn every_interoperability_test_of_the_program_is_on_the_page() {
        check_page(
            &["| x | 6.1 | `mounts` |"],
            &["1: the interoperability test slow is missing"],
        );
    }
}
