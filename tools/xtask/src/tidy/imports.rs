//! Finds circles of imports among the files of a crate.
//!
//! An edge leads from the file that names something to the file that declares it: what a module
//! re-exports is looked up where it is declared, and a re-export alone is no use of it. Two files may
//! use each other, as a module and its child do; a longer circle is a fault, because none of its
//! files can be read before the others.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

use super::exceptions::{Exceptions, HERE};
use super::fault::Fault;
use super::house::is_for_tests;
use super::sources::{Sources, crates};
use super::tokens::{Token, outside_tests};

/// Checks each crate.
pub(super) fn check(sources: &Sources, exceptions: Exceptions, faults: &mut Vec<Fault>) {
    let mut excused = BTreeSet::new();
    for krate in crates(sources) {
        let root = krate.join("src");
        let files = sources
            .iter()
            .filter(|(path, _)| path.starts_with(&root) && !is_for_tests(path, sources));
        let graph = Graph::new(&root, files);
        let circles = graph.circles();
        let files: BTreeSet<usize> = circles.iter().flatten().copied().collect();
        let exception = exceptions
            .circles
            .iter()
            .find(|(name, _)| Path::new(name) == krate);
        excused.extend(exception.map(|(name, _)| *name));
        match exception {
            Some(&(_, allowed)) if files.len() == allowed => {}
            Some(&(name, allowed)) => faults.push(Fault::new(
                krate,
                1,
                format!(
                    "{} files import each other in circles; the exception for {name} says {allowed}",
                    files.len()
                ),
            )),
            None => graph.faults(&circles, faults),
        }
    }
    for (name, _) in exceptions.circles {
        if !excused.contains(name) {
            let what = format!("an exception for circles in {name}, which has no sources");
            faults.push(Fault::new(Path::new(HERE), 1, what));
        }
    }
}

/// The modules of a crate that have a file each, and who uses whom.
struct Graph<'a> {
    files: Vec<File<'a>>,
    /// For each file those it uses, with the line that first does.
    uses: Vec<BTreeMap<usize, usize>>,
}

/// A file of a crate.
struct File<'a> {
    path: &'a Path,
    /// The names that lead to it from the root of the crate.
    module: Vec<&'a str>,
    /// Imports in its `use` items.
    imports: Vec<Import<'a>>,
    /// Names that it declares itself.
    declares: BTreeSet<&'a str>,
    /// All else.
    code: Vec<Token<'a>>,
}

/// One name that a `use` item brings in.
struct Import<'a> {
    line: usize,
    path: Vec<&'a str>,
    /// Its name here; `*` for all there is.
    name: &'a str,
    /// Whether others may use it from here.
    public: bool,
}

impl<'a> Graph<'a> {
    fn new(root: &Path, sources: impl Iterator<Item = (&'a Path, &'a str)>) -> Self {
        let files = sources.map(|(path, text)| File::new(root, path, text));
        let mut graph = Self {
            files: files.collect(),
            uses: Vec::new(),
        };
        let uses = graph.files.iter().map(|file| graph.used_by(file));
        graph.uses = uses.collect();
        graph
    }

    fn used_by(&self, file: &File<'a>) -> BTreeMap<usize, usize> {
        let named_in_code: BTreeSet<&str> = file.code.iter().map(|token| token.text).collect();
        let imports = file
            .imports
            .iter()
            .filter(|import| !import.public || named_in_code.contains(import.name))
            .map(|import| (import.line, import.path.clone()));
        let mut used = BTreeMap::new();
        for (line, path) in imports.chain(paths(&file.code)) {
            let absolute = self.absolute(file, &path);
            let found = absolute.and_then(|path| self.declaring(&path, &mut BTreeSet::new()));
            if let Some(other) = found
                && self.files[other].path != file.path
            {
                used.entry(other).or_insert(line);
            }
        }
        used
    }

    /// A path from the root of the crate; `None` if it leads out of the crate, or may.
    fn absolute(&self, file: &File<'a>, path: &[&'a str]) -> Option<Vec<&'a str>> {
        let (first, rest) = path.split_first()?;
        let mut from = file.module.clone();
        match *first {
            "crate" => from.clear(),
            "self" => {}
            "super" => {
                from.pop();
            }
            child => {
                from.push(child);
                if self.at(&from).is_none() {
                    let import = file.imports.iter().find(|import| {
                        import.name == child && import.path.first() != Some(&child)
                    })?;
                    from = self.absolute(file, &import.path)?;
                }
            }
        }
        for name in rest {
            match *name {
                "super" => {
                    from.pop();
                }
                "self" => {}
                name => from.push(name),
            }
        }
        Some(from)
    }

    /// The file of a module.
    fn at(&self, module: &[&str]) -> Option<usize> {
        self.files.iter().position(|file| file.module == module)
    }

    /// The file that declares what a path from the root leads to.
    fn declaring(&self, path: &[&'a str], seen: &mut BTreeSet<Vec<&'a str>>) -> Option<usize> {
        if !seen.insert(path.to_vec()) {
            return None;
        }
        let (module, depth) = (0..=path.len())
            .rev()
            .find_map(|depth| Some((self.at(&path[..depth])?, depth)))?;
        let file = &self.files[module];
        let Some((name, rest)) = path[depth..].split_first() else {
            return Some(module);
        };
        if file.declares.contains(name) {
            return Some(module);
        }
        let of_that_name = file.imports.iter().filter(|import| import.name == *name);
        for import in of_that_name {
            if let Some(mut target) = self.absolute(file, &import.path) {
                target.extend(rest);
                return self.declaring(&target, seen);
            }
        }
        let globs = file.imports.iter().filter(|import| import.name == "*");
        for import in globs {
            let mut target = self.absolute(file, &import.path)?;
            target.push(name);
            let found = self.declaring(&target, seen);
            if found.is_some_and(|found| self.files[found].declares.contains(name)) {
                return found;
            }
        }
        Some(module)
    }

    /// Circles of three or more files: for each use that is part of one, the shortest, and the
    /// shortest of all first.
    fn circles(&self) -> Vec<Vec<usize>> {
        let mut circles: Vec<Vec<usize>> = Vec::new();
        for (from, used) in self.uses.iter().enumerate() {
            for &to in used.keys() {
                circles.extend(self.way(to, from));
            }
        }
        circles.sort_by_key(Vec::len);
        circles
    }

    /// Circles to show: each has a file that those before it have not.
    fn faults(&self, circles: &[Vec<usize>], faults: &mut Vec<Fault>) {
        let mut shown = BTreeSet::new();
        for circle in circles {
            if circle.iter().any(|&file| shown.insert(file)) {
                shown.extend(circle);
                faults.push(self.fault(circle));
            }
        }
    }

    /// The shortest way, but for the direct one. As it is part of a circle, it begins anywhere.
    fn way(&self, from: usize, to: usize) -> Option<Vec<usize>> {
        let mut before = BTreeMap::from([(from, from)]);
        let mut next = VecDeque::from([from]);
        while let Some(at) = next.pop_front() {
            for &used in self.uses[at].keys() {
                if (at, used) == (from, to) || before.contains_key(&used) {
                    continue;
                }
                before.insert(used, at);
                next.push_back(used);
            }
        }
        let mut way = vec![to];
        let mut at = to;
        while at != from {
            at = *before.get(&at)?;
            way.push(at);
        }
        way.reverse();
        let first = way
            .iter()
            .min()
            .and_then(|min| way.iter().position(|file| file == min));
        way.rotate_left(first.unwrap_or(0));
        Some(way)
    }

    fn fault(&self, circle: &[usize]) -> Fault {
        let (from, to) = (circle[0], circle[1]);
        let around = circle.iter().chain(&circle[..1]);
        let names: Vec<String> = around.map(|&file| self.files[file].name()).collect();
        let line = self.uses[from].get(&to).copied().unwrap_or(1);
        let what = format!("imports go in a circle: {}", names.join(" → "));
        Fault::new(self.files[from].path, line, what)
    }
}

impl<'a> File<'a> {
    fn new(root: &Path, path: &'a Path, text: &'a str) -> Self {
        let tokens = outside_tests(text);
        let (imports, code) = split(&tokens);
        Self {
            path,
            module: module(root, path),
            imports,
            declares: declared(&code),
            code,
        }
    }

    fn name(&self) -> String {
        match self.module.as_slice() {
            [] => "crate".to_owned(),
            module => module.join("::"),
        }
    }
}

/// The names that lead from the root of a crate to a file.
fn module<'a>(root: &Path, path: &'a Path) -> Vec<&'a str> {
    let below = path.strip_prefix(root).unwrap_or(path);
    let mut names: Vec<&str> = below.iter().filter_map(|part| part.to_str()).collect();
    let last = names.pop().and_then(|file| file.strip_suffix(".rs"));
    let is_named_for_its_folder = match last {
        Some("lib" | "main") => names.is_empty(),
        Some("mod") => true,
        _ => false,
    };
    if !is_named_for_its_folder {
        names.extend(last);
    }
    names
}

/// The `use` items of a file, and its other tokens.
pub(super) fn without_imports<'a>(tokens: &[Token<'a>]) -> Vec<Token<'a>> {
    split(tokens).1
}

fn split<'a>(tokens: &[Token<'a>]) -> (Vec<Import<'a>>, Vec<Token<'a>>) {
    let (mut imports, mut code) = (Vec::new(), Vec::new());
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let captures = tokens.get(at + 1).is_some_and(|next| next.text == "<");
        if token.text != "use" || captures {
            code.push(*token);
            at += 1;
            continue;
        }
        let public = matches!(code.last().map(|token| token.text), Some("pub" | ")"));
        at += 1;
        at += tree(&tokens[at..], &[], public, &mut imports) + 1;
    }
    (imports, code)
}

/// Reads the tree of a `use` item behind `prefix`; how many tokens it takes.
fn tree<'a>(
    tokens: &[Token<'a>],
    prefix: &[&'a str],
    public: bool,
    imports: &mut Vec<Import<'a>>,
) -> usize {
    let mut path = prefix.to_vec();
    let mut name = None;
    let line = tokens.first().map_or(1, |token| token.line);
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        match token.text {
            "," | ";" | "}" => break,
            "{" => {
                at += 1;
                while tokens.get(at).is_some_and(|token| token.text != "}") {
                    at += tree(&tokens[at..], &path, public, imports);
                    at += usize::from(tokens.get(at).is_some_and(|token| token.text == ","));
                }
                return at + 1;
            }
            "as" => name = tokens.get(at + 1).map(|token| token.text),
            "*" => name = Some("*"),
            "::" => {}
            // `use a::{self}` is `use a`.
            "self" if !path.is_empty() => {}
            _ if name.is_none() => path.push(token.text),
            _ => {}
        }
        at += 1;
    }
    if let Some(name) = name.or(path.last().copied()) {
        imports.push(Import {
            line,
            path,
            name,
            public,
        });
    }
    at
}

/// Names that the code of a file declares at any depth.
fn declared<'a>(code: &[Token<'a>]) -> BTreeSet<&'a str> {
    const KINDS: [&str; 8] = [
        "const", "enum", "fn", "static", "struct", "trait", "type", "union",
    ];
    code.windows(2)
        .filter(|pair| KINDS.contains(&pair[0].text) && pair[1].is_word())
        .map(|pair| pair[1].text)
        .collect()
}

/// Paths in code, with their lines.
fn paths<'a>(code: &[Token<'a>]) -> Vec<(usize, Vec<&'a str>)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < code.len() {
        let line = code[at].line;
        // `pub(in path)` uses nothing.
        let is_visibility = at >= 2 && code[at - 1].text == "in" && code[at - 2].text == "(";
        let mut path = Vec::new();
        while code.get(at).is_some_and(Token::is_word) {
            path.push(code[at].text);
            at += 1;
            let goes_on = code.get(at).is_some_and(|token| token.text == "::");
            if !goes_on {
                break;
            }
            at += 1;
        }
        match path.len() {
            0 => at += 1,
            1 => {}
            _ if is_visibility => {}
            _ => found.push((line, path)),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_with<const N: usize>(
        circles: &'static [(&'static str, usize)],
        files: [(&str, &str); N],
        expected: &[&str],
    ) {
        let exceptions = Exceptions {
            circles,
            ..Exceptions::default()
        };
        let mut faults = Vec::new();
        check(&Sources::of(files), exceptions, &mut faults);
        let faults: Vec<String> = faults.iter().map(Fault::to_string).collect();
        assert_eq!(faults, expected);
    }

    #[track_caller]
    fn clean<const N: usize>(files: [(&str, &str); N]) {
        check_with(&[], files, &[]);
    }

    const LIB: (&str, &str) = ("crates/a/src/lib.rs", "mod b; mod c; mod d; pub use d::D;");
    const B: (&str, &str) = ("crates/a/src/b.rs", "use crate::c::C;\nstruct B;");
    const C: (&str, &str) = ("crates/a/src/c.rs", "use crate::D;\nstruct C;");

    #[test]
    fn circles_of_three_files_are_found() {
        let fault = "crates/a/src/b.rs:1: imports go in a circle: b → c → d → b";
        for d in [
            "use crate::b::B;\npub struct D;",
            "use super::{b::{self}, x as y};\npub struct D;",
            "pub struct D;\nfn e() { crate::b::f() }",
            "use crate::b::*;\npub struct D;",
        ] {
            check_with(&[], [LIB, B, C, ("crates/a/src/d.rs", d)], &[fault]);
        }
    }

    #[test]
    fn other_files_are_in_no_circle() {
        for d in [
            "use crate::c::C;\npub struct D;",
            "use other::b::B;\npub struct D;",
            "pub struct D;\npub(in crate::b) struct E;",
            "pub struct D;\n#[cfg(test)]\nmod tests { use crate::b::B; }",
            "pub struct D;\n// crate::b::B",
        ] {
            clean([LIB, B, C, ("crates/a/src/d.rs", d)]);
        }
    }

    #[test]
    fn what_a_module_passes_on_is_looked_up_where_it_is() {
        let d = ("crates/a/src/d.rs", "pub struct D;");
        // `c` uses `d` through the root, so the root is no part of it.
        clean([
            (
                "crates/a/src/lib.rs",
                "mod b; mod c; mod d; pub use {b::B, c::C, d::D};",
            ),
            B,
            C,
            d,
        ]);
        // A root that uses what it passes on is.
        check_with(
            &[],
            [
                (
                    "crates/a/src/lib.rs",
                    "mod b; mod c; mod d; pub use b::B;\nstruct R(B);",
                ),
                B,
                ("crates/a/src/c.rs", "use crate::R;\nstruct C;"),
                d,
            ],
            &["crates/a/src/b.rs:1: imports go in a circle: b → c → crate → b"],
        );
    }

    #[test]
    fn an_exception_says_how_many_files_it_is_for() {
        let d = ("crates/a/src/d.rs", "use crate::b::B;\npub struct D;");
        check_with(&[("crates/a", 3)], [LIB, B, C, d], &[]);
        let what = "files import each other in circles; the exception for crates/a says 2";
        let fault = format!("crates/a:1: 3 {what}");
        check_with(&[("crates/a", 2)], [LIB, B, C, d], &[&fault]);
        check_with(
            &[("crates/a", 2)],
            [LIB, B, C],
            &[
                "crates/a:1: 0 files import each other in circles; the exception for crates/a says 2",
            ],
        );
        check_with(
            &[("crates/z", 2)],
            [LIB],
            &[
                "tools/xtask/src/tidy/exceptions.rs:1: an exception for circles in crates/z, which has no sources",
            ],
        );
    }
}
