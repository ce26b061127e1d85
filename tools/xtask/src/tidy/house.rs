//! Rules for sources that no lint checks.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::fault::Fault;
use super::sources::{FOLDERS, Sources};

/// Most lines of a source that are neither blank nor comment. Before that there are two ideas in it.
const MAX_LINES_OF_CODE: usize = 800;

/// File names for things without a name.
const NAMELESS: [&str; 5] = ["util", "utils", "common", "helpers", "misc"];

/// Words for what is still to come, each in two parts, so that this is not one.
const UNFINISHED: [[&str; 2]; 2] = [["TO", "DO"], ["FIX", "ME"]];

/// Crates that are tests as a whole.
const TEST_CRATES: [&str; 2] = ["testing/hostile-peer", "testing/verbs-conformance"];

/// Checks every source and every manifest of a crate.
pub(super) fn check(root: &Path, sources: &Sources, faults: &mut Vec<Fault>) -> Result<()> {
    for (path, text) in sources.iter() {
        source(path, text, faults);
        if !is_for_tests(path, sources) {
            unwraps(path, text, faults);
        }
    }
    let folders = FOLDERS.iter().filter(|folder| root.join(folder).is_dir());
    for folder in folders {
        for entry in fs::read_dir(root.join(folder)).context(*folder)? {
            let manifest = Path::new(folder)
                .join(entry?.file_name())
                .join("Cargo.toml");
            if let Ok(text) = fs::read_to_string(root.join(&manifest)) {
                lints(&manifest, &text, faults);
            }
        }
    }
    Ok(())
}

fn source(path: &Path, text: &str, faults: &mut Vec<Fault>) {
    let code = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("//"))
        .count();
    if code > MAX_LINES_OF_CODE {
        let what = format!("{code} lines of code, more than {MAX_LINES_OF_CODE}");
        faults.push(Fault::new(path, 1, what));
    }
    if !has_module_doc(text) {
        faults.push(Fault::new(path, 1, "no //! says what this file is for"));
    }
    let stem = path.file_stem().unwrap_or_default();
    if NAMELESS.iter().any(|name| stem == *name) {
        faults.push(Fault::new(path, 1, "a file is named for what is in it"));
    }
    for (line, content) in (1..).zip(text.lines()) {
        for word in UNFINISHED.map(|parts| parts.concat()) {
            if content.contains(&word) {
                faults.push(Fault::new(path, line, format!("{word} is not finished")));
            }
        }
        if let Some(cited) = odd_citation(content) {
            let what =
                format!("{cited:?} is cited as in RFC 8166 §4.5.2, so that a search finds it");
            faults.push(Fault::new(path, line, what));
        }
        if content.trim_start().starts_with("#[ignore") {
            faults.push(Fault::new(path, line, "a test that does not run"));
        }
    }
}

/// A section of an RFC that is not named in the usual way.
fn odd_citation(line: &str) -> Option<&str> {
    line.match_indices("RFC ").find_map(|(at, rfc)| {
        let cited = &line[at..];
        let after = cited[rfc.len()..].trim_start_matches(|c: char| c.is_ascii_digit());
        let section = after.trim_start_matches([',', ' ']);
        let odd = section.to_lowercase().starts_with("section")
            || section != after && section.starts_with(|c: char| c.is_ascii_digit());
        (odd && after.len() + rfc.len() < cited.len()).then_some(cited)
    })
}

/// Whether the whole source is compiled for tests only, or of use to nothing else.
pub(super) fn is_for_tests(path: &Path, sources: &Sources) -> bool {
    if path.components().any(|part| part.as_os_str() == "tests")
        || TEST_CRATES.iter().any(|krate| path.starts_with(krate))
    {
        return true;
    }
    let (Some(folder), Some(stem)) = (path.parent(), path.file_stem()) else {
        return false;
    };
    let declaration = format!("mod {};", stem.to_string_lossy());
    let parents = [
        folder.with_extension("rs"),
        folder.join("mod.rs"),
        folder.join("lib.rs"),
        folder.join("main.rs"),
    ];
    let declared_for_tests = |parent: &str| {
        let lines: Vec<&str> = parent.lines().map(str::trim).collect();
        let pairs = lines.windows(2);
        pairs.into_iter().any(|pair| {
            pair[0] == "#[cfg(test)]" && pair[1].trim_start_matches("pub ") == declaration
        })
    };
    let parents = parents.iter().filter_map(|parent| sources.get(parent));
    parents.into_iter().any(declared_for_tests)
}

/// `unwrap` is for tests: elsewhere a failure is an error, or `expect` states why there is none.
fn unwraps(path: &Path, text: &str, faults: &mut Vec<Fault>) {
    let code = text.lines().take_while(|line| *line != "#[cfg(test)]");
    for (line, content) in (1..).zip(code) {
        if content.contains(concat!(".unwrap", "()")) && !content.trim_start().starts_with("//") {
            faults.push(Fault::new(path, line, "unwrap() outside of a test"));
        }
    }
}

/// Whether the file says what it is for, before its code; attributes may stand above.
fn has_module_doc(text: &str) -> bool {
    text.lines()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with("#"))
        .is_some_and(|line| line.starts_with("//!"))
}

/// Manifests of crates in which a block may be `unsafe`, with its reason.
const UNSAFE: [&str; 2] = ["crates/syscalls/Cargo.toml", "crates/verbs-ibv/Cargo.toml"];

/// A crate takes the lints of the workspace, or `unsafe` would be allowed in it. One where it may be has
/// to say so at each block.
fn lints(path: &Path, text: &str, faults: &mut Vec<Fault>) {
    let (wanted, what) = match UNSAFE.iter().any(|other| path == Path::new(other)) {
        true => (
            [
                "unsafe_code = \"deny\"",
                "undocumented_unsafe_blocks = \"deny\"",
            ]
            .as_slice(),
            "the lints let `unsafe` in without a reason",
        ),
        false => (
            ["[lints]\nworkspace = true\n"].as_slice(),
            "the lints are not those of the workspace",
        ),
    };
    if !wanted.iter().all(|lint| text.contains(lint)) {
        faults.push(Fault::new(path, 1, what));
    }
}
