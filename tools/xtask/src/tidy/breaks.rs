//! Patches that break one rule of the compliance tables each, in `docs/design/compliance/breaks`.
//!
//! A patch is named for its row, `RFC8797-4-4.patch`, and `RFC8797-4-4+word.patch` where a row has more of them. It
//! begins with a sentence that says how it breaks the rule. [`check`] is part of every run of `tidy` and compiles
//! nothing; [`run`] applies the patches and runs the tests of their rows.

mod copy;
mod patch;
mod targets;
mod trial;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Result, bail};

use super::compliance::{self, Row};
use super::fault::Fault;
use patch::{Patch, apply};

/// Folder of the patches, in that of the tables.
const FOLDER: &str = "docs/design/compliance/breaks";

/// Checks that each patch belongs to a row, changes a file that the row names, and applies.
pub(super) fn check(root: &Path, rows: &[Row], faults: &mut Vec<Fault>) -> Result<()> {
    for patch in read(root, rows, faults)? {
        if let Err(error) = apply(root, &root.join(&patch.file), &["--check"]) {
            faults.push(Fault::new(&patch.file, 1, format!("{error:#}")));
        }
    }
    Ok(())
}

/// Breaks the rules whose ids begin with one of `chosen`, or all, and prints which tests noticed.
///
/// # Errors
///
/// A rule can be broken without a failure of its tests, a patch does not apply or compile, or a test fails without it.
pub(super) fn run(root: &Path, chosen: &[String], list: bool, all: bool) -> Result<()> {
    let mut faults = Vec::new();
    let mut patches = read(root, &compliance::rows(root)?, &mut faults)?;
    if let Some(fault) = faults.first() {
        bail!("{fault}");
    }
    if !chosen.is_empty() {
        let unknown = |id: &&String| !patches.iter().any(|patch| patch.is_of(id));
        if let Some(id) = chosen.iter().find(unknown) {
            bail!("no patch in {FOLDER} is for {id}");
        }
        patches.retain(|patch| chosen.iter().any(|id| patch.is_of(id)));
    }
    if list {
        for patch in &patches {
            println!("{:<28}{}", patch.name(), patch.sentence);
        }
        return Ok(());
    }
    trial::run(root, &patches, all)
}

/// Reads the patches, in the order of their names.
fn read(root: &Path, rows: &[Row], faults: &mut Vec<Fault>) -> Result<Vec<Patch>> {
    let folder = Path::new(FOLDER);
    if !root.join(folder).is_dir() {
        return Ok(Vec::new());
    }
    let rows: BTreeMap<&str, &Row> = rows.iter().map(|row| (row.id.as_str(), row)).collect();
    let mut patches = Vec::new();
    for (name, file) in compliance::list(root, folder, "patch")? {
        let text = fs::read_to_string(root.join(&file))?;
        let id = name.split('+').next().unwrap_or_default();
        let Some(&row) = rows.get(id) else {
            faults.push(Fault::new(&file, 1, format!("no table has a row {id}")));
            continue;
        };
        match Patch::parse(&file, row, &text) {
            Ok(patch) => patches.push(patch),
            Err(error) => faults.push(Fault::new(&file, 1, error.to_string())),
        }
    }
    Ok(patches)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "The answer is wrong.\n\n--- a/crates/a/src/lib.rs\n\
        +++ b/crates/a/src/lib.rs\n@@ -1,3 +1,3 @@\n fn answer() -> u8 {\n-    42\n+    43\n }\n";

    fn row() -> Row {
        Row {
            id: "RFC1-2.1-1".to_owned(),
            files: vec!["crates/a/src/lib.rs".to_owned()],
            tests: vec!["crates/a/src/lib.rs::it_is_done".to_owned()],
        }
    }

    #[track_caller]
    fn check_patch(name: &str, text: &str, expected: &[&str]) {
        let tree = tempfile::tempdir().unwrap();
        let root = tree.path();
        for (file, text) in [
            (format!("{FOLDER}/{name}"), text),
            (
                "crates/a/src/lib.rs".to_owned(),
                "fn answer() -> u8 {\n    42\n}\n",
            ),
        ] {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let mut faults = Vec::new();
        check(root, &[row()], &mut faults).unwrap();
        let faults: Vec<String> = faults.iter().map(Fault::to_string).collect();
        assert_eq!(faults.len(), expected.len(), "{faults:?}");
        for (fault, expected) in faults.iter().zip(expected) {
            assert!(fault.contains(expected), "{fault}");
        }
    }

    #[test]
    fn patch_belongs_to_a_row_and_applies() {
        check_patch("RFC1-2.1-1.patch", PATCH, &[]);
        check_patch("RFC1-2.1-1+more.patch", PATCH, &[]);
        check_patch(
            "RFC1-2.1-2.patch",
            PATCH,
            &["no table has a row RFC1-2.1-2"],
        );
        let other = PATCH.replace("42", "44");
        check_patch("RFC1-2.1-1.patch", &other, &["the patch does not apply"]);
        let elsewhere = PATCH.replace("lib.rs", "main.rs");
        check_patch("RFC1-2.1-1.patch", &elsewhere, &["names none of the files"]);
        let silent = PATCH.replace("wrong.", "wrong");
        check_patch("RFC1-2.1-1.patch", &silent, &["is no sentence"]);
    }

    #[test]
    fn spared_tests_are_of_the_row_and_have_a_reason() {
        let with = |line: &str| PATCH.replacen("\n\n", &format!("\n\n{line}\n"), 1);
        let named = "Spares crates/a/src/lib.rs::it_is_done";
        check_patch("RFC1-2.1-1.patch", &with(&format!("{named}: why")), &[]);
        check_patch("RFC1-2.1-1.patch", &with(named), &["no reason why"]);
        let other = "Spares crates/a/src/lib.rs::other: why";
        check_patch(
            "RFC1-2.1-1.patch",
            &with(other),
            &["does not name the test"],
        );
    }

    #[test]
    fn ids_select_patches_by_whole_numbers() {
        let patch = Patch::parse(Path::new("RFC1-2.1-1+more.patch"), &row(), PATCH).unwrap();
        for id in ["RFC1", "rfc1-2.1", "RFC1-2", "RFC1-2.1-1"] {
            assert!(patch.is_of(id), "{id}");
        }
        let id = "RFC1-2.1-11".to_owned();
        let patch = Patch {
            row: Row { id, ..row() },
            ..patch
        };
        assert!(!patch.is_of("RFC1-2.1-1"));
    }
}
