//! The Rust sources of the work tree, and which of their functions are tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The folders of the work tree that hold crates.
pub(super) const FOLDERS: [&str; 3] = ["crates", "tools", "testing"];

/// Every Rust source of the work tree, by its path from the root.
pub(super) struct Sources {
    files: BTreeMap<PathBuf, String>,
}

/// The folders of the crates that have sources, by their paths from the root.
pub(super) fn crates(sources: &Sources) -> BTreeSet<&Path> {
    let files = sources.iter().map(|(path, _)| path);
    files
        .filter_map(|path| path.ancestors().find(|folder| folder.ends_with("src")))
        .filter_map(Path::parent)
        .collect()
}

/// Meaning of a name in a source.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// A test that runs.
    Test,
    /// A test with `#[ignore]`.
    Ignored,
    /// A function, but nothing runs it as a test.
    Function,
    /// No function of that name.
    Nothing,
}

impl Sources {
    pub(super) fn read(root: &Path) -> Result<Self> {
        let mut sources = Self {
            files: BTreeMap::new(),
        };
        for folder in FOLDERS {
            let path = root.join(folder);
            if path.is_dir() {
                sources.enter(root, &path)?;
            }
        }
        Ok(sources)
    }

    /// These files, and no others.
    #[cfg(test)]
    pub(super) fn of<const N: usize>(files: [(&str, &str); N]) -> Self {
        let files = files.map(|(path, text)| (path.into(), text.to_owned()));
        Self {
            files: files.into(),
        }
    }

    fn enter(&mut self, root: &Path, folder: &Path) -> Result<()> {
        let list = fs::read_dir(folder).with_context(|| format!("{}", folder.display()))?;
        for entry in list {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let path = entry.path();
            if entry.file_type()?.is_dir() {
                if !name.starts_with('.') && name != "target" {
                    self.enter(root, &path)?;
                }
            } else if name.ends_with(".rs") {
                let text =
                    fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
                let path = path.strip_prefix(root).unwrap_or(&path).to_owned();
                self.files.insert(path, text);
            }
        }
        Ok(())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Path, &str)> {
        self.files
            .iter()
            .map(|(path, text)| (path.as_path(), text.as_str()))
    }

    pub(super) fn get(&self, path: &Path) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Meaning of `function` in the source at `path`.
    ///
    /// Beside functions with a test attribute, those are tests that are listed where a macro turns
    /// each of a list into one: in the same file, or in the `lib.rs` or the `tests.rs` next to it.
    pub(super) fn named(&self, path: &Path, function: &str) -> Named {
        let Some(text) = self.get(path) else {
            return Named::Nothing;
        };
        let found = in_text(text, function);
        if found != Named::Function {
            return found;
        }
        let beside = ["lib.rs", "tests.rs"].map(|name| path.with_file_name(name));
        let above = path.parent().map(|folder| folder.with_extension("rs"));
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let listed = std::iter::once(path.to_owned())
            .chain(beside)
            .chain(above)
            .filter_map(|list| self.get(&list))
            .any(|list| is_listed(list, &stem, function));
        if listed { Named::Test } else { found }
    }
}

/// Meaning of a function of this text, by its attributes.
fn in_text(text: &str, function: &str) -> Named {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let mut found = Named::Nothing;
    for (at, line) in lines.iter().enumerate() {
        if declared(line) != Some(function) {
            continue;
        }
        let above = lines[..at]
            .iter()
            .rev()
            .take_while(|line| line.starts_with("#[") || line.starts_with("//"));
        let (mut test, mut ignored) = (false, false);
        for line in above {
            test |= *line == "#[test]" || line.starts_with("#[tokio::test");
            ignored |= line.starts_with("#[ignore");
        }
        found = match (test, ignored) {
            (true, false) => return Named::Test,
            (true, true) => Named::Ignored,
            (false, _) if found == Named::Nothing => Named::Function,
            (false, _) => found,
        };
    }
    found
}

/// The name of the function that this line begins.
fn declared(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let qualified = before
        .split_whitespace()
        .all(|word| word.starts_with("pub") || matches!(word, "async" | "const"));
    let end = after.find(|c: char| !(c.is_alphanumeric() || c == '_'))?;
    let opens = after[end..].starts_with(['(', '<']);
    (qualified && end > 0 && opens).then(|| &after[..end])
}

/// Whether a list of tests has the function: a line with nothing but its name where a macro, of this file
/// or called by it at its margin, makes tests of such lines, or the interoperability tests' `run: module::function`.
fn is_listed(list: &str, module: &str, function: &str) -> bool {
    let makes_tests = list
        .lines()
        .any(|line| line.trim_start_matches(['$', '(', ' ']).starts_with("fn $"))
        || list.contains("super::$")
        || list.lines().any(calls_a_macro);
    let entry = format!("run: {module}::{function},");
    list.lines()
        .map(str::trim)
        .any(|line| (makes_tests && line.trim_end_matches([',', ';']) == function) || line == entry)
}

/// Whether this line begins a call of a macro with a list.
fn calls_a_macro(line: &str) -> bool {
    let name = line.strip_suffix("! {").unwrap_or_default();
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    !name.is_empty() && name.chars().all(is_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, function: &str, expected: Named) {
        assert_eq!(in_text(text, function), expected, "{function} in {text}");
    }

    #[test]
    fn tests_are_distinguished_from_other_functions() {
        check("#[test]\nfn one() {}", "one", Named::Test);
        check("#[test]\n#[ignore]\nfn one() {}", "one", Named::Ignored);
        check("#[test]\n// Why.\nfn one() {}", "one", Named::Test);
        check(
            "    #[tokio::test(start_paused = true)]\n    async fn one() {}",
            "one",
            Named::Test,
        );
        check("#[test]\nfn one() {}\nfn two() {}", "two", Named::Function);
        check("#[test]\nfn one_more() {}", "one", Named::Nothing);
        check("// fn one() is gone", "one", Named::Nothing);
        check("fn one() {}\n#[test]\nfn one() {}", "one", Named::Test);
    }

    #[test]
    fn what_a_macro_lists_is_a_test() {
        let list = "#[test]\nfn $name() {}\n\nover! {\n    one\n    two,\n}";
        assert!(is_listed(list, "any", "one"));
        assert!(is_listed(list, "any", "two"));
        assert!(!is_listed(list, "any", "three"));
        assert!(!is_listed("one\n", "any", "one"));
        assert!(is_listed("in_both_ways! {\n    one\n}\n", "any", "one"));
        assert!(!is_listed("    vec! {\n    one\n}\n", "any", "one"));
        assert!(is_listed("    run: guest::run,\n", "guest", "run"));
        assert!(!is_listed("    run: guest::run,\n", "other", "run"));
    }
}
