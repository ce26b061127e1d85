//! Public items of published crates that nothing uses.
//!
//! An item is told by its name alone, so what is found is certain only one way: a name that stands
//! nowhere but where it is declared is used by nobody. Common names hide items that nobody uses.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use super::exceptions::{Exceptions, HERE};
use super::fault::Fault;
use super::house::is_for_tests;
use super::imports::without_imports;
use super::sources::Sources;
use super::tokens::{Token, outside_tests};

/// A public item.
pub(super) struct Item<'a> {
    path: &'a Path,
    line: usize,
    kind: &'a str,
    name: &'a str,
}

impl fmt::Display for Item<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            path,
            line,
            kind,
            name,
        } = self;
        write!(f, "{}:{line}: {kind} {name}", path.display())
    }
}

/// Names used and declared by the code of the work tree that is no test.
pub(super) struct Names<'a> {
    /// By name, the files that use it, and how often.
    used: BTreeMap<&'a str, BTreeMap<&'a Path, usize>>,
    public: Vec<Item<'a>>,
}

impl<'a> Names<'a> {
    pub(super) fn read(sources: &'a Sources) -> Self {
        let mut names = Self {
            used: BTreeMap::new(),
            public: Vec::new(),
        };
        for (path, text) in sources.iter() {
            if !is_for_tests(path, sources) {
                names.enter(path, &without_imports(&outside_tests(text)));
            }
        }
        names
    }

    fn enter(&mut self, path: &'a Path, code: &[Token<'a>]) {
        const KINDS: [&str; 7] = ["const", "enum", "fn", "static", "struct", "trait", "type"];
        let is_published = path.starts_with("crates");
        for (at, token) in code.iter().enumerate().filter(|(_, token)| token.is_word()) {
            let before = |by: usize| at.checked_sub(by).map_or("", |at| code[at].text);
            if matches!(token.text, "async" | "fn" | "mut" | "unsafe") {
                continue;
            }
            if !KINDS.contains(&before(1)) {
                let files = self.used.entry(token.text).or_default();
                *files.entry(path).or_default() += 1;
                continue;
            }
            let mut up = 2;
            while matches!(before(up), "async" | "const" | "unsafe") {
                up += 1;
            }
            if is_published && before(up) == "pub" {
                self.public.push(Item {
                    path,
                    line: token.line,
                    kind: code[at - 1].text,
                    name: token.text,
                });
            }
        }
    }

    /// Items that no code names.
    fn dead(&self) -> impl Iterator<Item = &Item<'a>> {
        let is_dead = |item: &&Item<'_>| !self.used.contains_key(item.name);
        self.public.iter().filter(is_dead)
    }

    /// Items that no code names but that of their own file.
    pub(super) fn kept_to_their_file(&self) -> impl Iterator<Item = &Item<'a>> {
        self.public.iter().filter(|item| {
            let files = self.used.get(item.name);
            files.is_some_and(|files| files.keys().eq([&item.path]))
        })
    }
}

/// Finds public items that only tests use, or nothing at all.
pub(super) fn check(names: &Names<'_>, exceptions: Exceptions, faults: &mut Vec<Fault>) {
    let mut needed = Vec::new();
    for item in names.dead() {
        let is_excused = |name: &str| name == item.name || item.path.starts_with(name);
        match exceptions.api.iter().find(|(name, _)| is_excused(name)) {
            Some((name, _)) => needed.push(*name),
            None => {
                let what = format!("no code but tests uses {} {}", item.kind, item.name);
                faults.push(Fault::new(item.path, item.line, what));
            }
        }
    }
    for (name, _) in exceptions
        .api
        .iter()
        .filter(|(name, _)| !needed.contains(name))
    {
        let what = format!("{name} is excused as unused API, and is used or gone");
        faults.push(Fault::new(Path::new(HERE), 1, what));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_with(api: &'static [(&'static str, &'static str)], library: &str, expected: &[&str]) {
        let user = "use a::unused;\nfn main() { used(); }\n#[cfg(test)]\nmod tests { fn t() { unused() } }";
        let sources = Sources::of([
            ("crates/a/src/lib.rs", library),
            ("tools/b/src/main.rs", user),
            ("crates/a/tests/t.rs", "fn t() { unused() }"),
        ]);
        let exceptions = Exceptions {
            api,
            ..Exceptions::default()
        };
        let mut faults = Vec::new();
        check(&Names::read(&sources), exceptions, &mut faults);
        let faults: Vec<String> = faults.iter().map(Fault::to_string).collect();
        assert_eq!(faults, expected, "{library}");
    }

    #[test]
    fn public_items_that_only_tests_use_are_found() {
        let fault = "crates/a/src/lib.rs:1: no code but tests uses fn unused";
        check_with(&[], "pub fn unused() {}", &[fault]);
        check_with(&[], "pub const unsafe fn unused() {}", &[fault]);
        check_with(&[], "pub fn unused() {} // unused()", &[fault]);
        let fault = "crates/a/src/lib.rs:1: no code but tests uses const unused";
        check_with(&[], "pub const unused: u8 = 1;", &[fault]);
    }

    #[test]
    fn other_items_are_not() {
        check_with(&[], "pub fn used() {}", &[]);
        check_with(&[], "pub(crate) fn unused() {}", &[]);
        check_with(&[], "pub fn unused() {}\nfn used() { unused() }", &[]);
        check_with(&[], "#[cfg(test)]\npub fn unused() {}", &[]);
    }

    #[test]
    fn api_is_excused_as_long_as_nobody_uses_it() {
        check_with(&[("unused", "why")], "pub fn unused() {}", &[]);
        check_with(&[("crates/a/src", "why")], "pub fn unused() {}", &[]);
        check_with(
            &[("unused", "why")],
            "",
            &[
                "tools/xtask/src/tidy/exceptions.rs:1: unused is excused as unused API, and is used or gone",
            ],
        );
    }

    #[test]
    fn items_that_no_other_file_uses_are_listed() {
        let sources = Sources::of([
            (
                "crates/a/src/lib.rs",
                "pub fn own() {}\npub fn used() { own() }",
            ),
            ("tools/b/src/main.rs", "fn main() { used(); }"),
        ]);
        let names = Names::read(&sources);
        let listed: Vec<String> = names.kept_to_their_file().map(Item::to_string).collect();
        assert_eq!(listed, ["crates/a/src/lib.rs:1: fn own"]);
    }
}
