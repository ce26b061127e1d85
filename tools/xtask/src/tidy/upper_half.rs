//! Rules of the layers above the transport: one owner for what peers share, libraries that know no terminal, types and
//! programs of a bounded size, and documentation that begins with what a thing is.
//!
//! Where a rule is not kept yet, `exceptions.rs` has the count. It may only sink.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::exceptions::{Exceptions, HERE};
use super::fault::Fault;
use super::house::is_for_tests;
use super::sources::Sources;
use super::tokens::{Token, outside_tests};

/// The crate that owns what peers share.
const OWNER_OF_SHARES: &str = "crates/rpc-serving/";

/// Most fields of a struct.
const MAX_FIELDS: usize = 15;

/// Most files in which a type has methods.
const MAX_FILES_OF_A_TYPE: usize = 3;

/// Words with which documentation of an item begins that does not say what the item is.
const QUESTION_WORDS: [&str; 4] = ["What", "Where", "Whose", "Who"];

/// Lines by which a ceiling may be above what it counts.
const SLACK: usize = 60;

/// Checks all sources.
pub(super) fn check(sources: &Sources, exceptions: Exceptions, faults: &mut Vec<Fault>) {
    let mut found = Found::default();
    for (path, text) in sources.iter() {
        found.questions += questions(text);
        if is_for_tests(path, sources) {
            continue;
        }
        let tokens = outside_tests(text);
        found.maps(path, &tokens);
        found.types(path, &tokens);
        let is_example = path.iter().any(|part| part == "examples");
        if path.starts_with("crates") && !is_example {
            terminal(path, &tokens, faults);
        }
        if let Some((ceiling, _)) = exceptions.lines.iter().find(|(of, _)| path.starts_with(of)) {
            *found.lines.entry(*ceiling).or_default() += lines_of_code(text);
        }
    }
    found.compare(exceptions, faults);
}

/// The places where a rule is not kept, and counts.
#[derive(Default)]
struct Found {
    /// Files outside of the owner with a map whose key is an address.
    maps: BTreeSet<PathBuf>,
    /// Structs with too many fields, by file and name.
    large: BTreeMap<String, usize>,
    /// Files that declare a type of this name, and files that have methods of one, by crate and name.
    declared: BTreeMap<(PathBuf, String), BTreeSet<PathBuf>>,
    methods: BTreeMap<(PathBuf, String), BTreeSet<PathBuf>>,
    /// Items whose documentation begins with a question word.
    questions: usize,
    /// Lines of code by folder.
    lines: BTreeMap<&'static str, usize>,
}

impl Found {
    /// Notes a map whose key is an address.
    fn maps(&mut self, path: &Path, tokens: &[Token<'_>]) {
        let texts: Vec<&str> = tokens.iter().map(|token| token.text).collect();
        let by_address = texts.windows(5).any(|five| {
            let [map, rest @ ..] = five else {
                return false;
            };
            let is_map = matches!(*map, "HashMap" | "BTreeMap");
            is_map
                && matches!(
                    rest,
                    ["<", "PeerGroup", ..] | ["<", "Option", "<", "PeerGroup"]
                )
        });
        if by_address && !path.starts_with(OWNER_OF_SHARES) {
            self.maps.insert(path.to_owned());
        }
    }

    /// Notes the types that a file declares, their fields, and the types that it has methods of.
    fn types(&mut self, path: &Path, tokens: &[Token<'_>]) {
        let krate: PathBuf = path.iter().take(2).collect();
        for (at, token) in tokens.iter().enumerate() {
            let rest = &tokens[at + 1..];
            match (token.text, rest.first()) {
                ("struct" | "enum", Some(name)) if name.is_word() => {
                    let of = (krate.clone(), name.text.to_owned());
                    self.declared.entry(of).or_default().insert(path.to_owned());
                    let fields = fields(&rest[1..]);
                    if token.text == "struct" && fields > MAX_FIELDS && !is_record(&tokens[..at]) {
                        let of = format!("{}::{}", path.display(), name.text);
                        self.large.insert(of, fields);
                    }
                }
                ("impl", Some(_)) => {
                    if let Some(name) = implemented(rest) {
                        let of = (krate.clone(), name.to_owned());
                        self.methods.entry(of).or_default().insert(path.to_owned());
                    }
                }
                _ => {}
            }
        }
    }

    /// Types with methods in too many files, by crate and name, with the number of files. One that is declared where its
    /// methods are counts there.
    fn spread(&self) -> BTreeMap<String, usize> {
        let of_types = self.methods.iter().filter_map(|(of, files)| {
            let declared = self.declared.get(of)?;
            let elsewhere = files.difference(declared).count();
            let name = format!("{}::{}", of.0.display(), of.1);
            (elsewhere + 1 > MAX_FILES_OF_A_TYPE).then_some((name, elsewhere + 1))
        });
        of_types.collect()
    }

    /// Compares with what is excused.
    fn compare(&self, exceptions: Exceptions, faults: &mut Vec<Fault>) {
        let excused = exceptions
            .maps_by_address
            .iter()
            .map(PathBuf::from)
            .collect();
        for path in self.maps.difference(&excused) {
            let what = format!("a map by address, which is for {OWNER_OF_SHARES} alone");
            faults.push(Fault::new(path, 1, what));
        }
        for path in excused.difference(&self.maps) {
            no_longer(&path.display().to_string(), "a map by address", faults);
        }
        counted(
            &self.large,
            exceptions.large_types,
            "fields",
            MAX_FIELDS,
            faults,
        );
        let most = MAX_FILES_OF_A_TYPE;
        counted(
            &self.spread(),
            exceptions.spread_types,
            "files with methods",
            most,
            faults,
        );
        for (of, ceiling) in exceptions.lines {
            let lines = self.lines.get(of).copied().unwrap_or(0);
            ceiling_of(
                &format!("lines of code in {of}"),
                lines,
                *ceiling,
                SLACK,
                faults,
            );
        }
        let questions = "items whose documentation begins with What, Where, Whose or Who";
        ceiling_of(questions, self.questions, exceptions.questions, 0, faults);
    }
}

fn no_longer(of: &str, what: &str, faults: &mut Vec<Fault>) {
    let what = format!("{of} is excused for {what}, and need not be");
    faults.push(Fault::new(Path::new(HERE), 1, what));
}

/// Compares numbers of things that are too many with those that are excused.
fn counted(
    found: &BTreeMap<String, usize>,
    excused: &[(&str, usize)],
    what: &str,
    most: usize,
    faults: &mut Vec<Fault>,
) {
    for (of, number) in found {
        let excuse = excused.iter().find(|(name, _)| name == of);
        let most = excuse.map_or(most, |(_, number)| *number);
        if *number > most {
            let (path, name) = of.rsplit_once("::").unwrap_or((of, ""));
            let what = format!("{name} has {number} {what}, more than {most}");
            faults.push(Fault::new(Path::new(path), 1, what));
        }
    }
    for (of, number) in excused {
        let now = found.get(*of).copied().unwrap_or(0);
        if now < *number {
            no_longer(of, &format!("{number} {what}"), faults);
        }
    }
}

/// Compares a count with its ceiling, which only sinks.
fn ceiling_of(what: &str, count: usize, ceiling: usize, slack: usize, faults: &mut Vec<Fault>) {
    if count > ceiling {
        let what = format!("{count} {what}, more than {ceiling}");
        faults.push(Fault::new(Path::new(HERE), 1, what));
    } else if count + slack < ceiling {
        let what = format!("{count} {what}: the ceiling of {ceiling} can sink");
        faults.push(Fault::new(Path::new(HERE), 1, what));
    }
}

/// Reports that a library names the command line or standard output.
fn terminal(path: &Path, tokens: &[Token<'_>], faults: &mut Vec<Fault>) {
    for (at, token) in tokens.iter().enumerate() {
        let is_macro = tokens.get(at + 1).is_some_and(|next| next.text == "!");
        let named = match token.text {
            "clap" | "stdout" => true,
            "print" | "println" => is_macro,
            _ => false,
        };
        if named {
            let what = format!("a library names {}", token.text);
            faults.push(Fault::new(path, token.line, what));
        }
    }
}

/// Whether the item behind these tokens is a record: options, a document, or a structure of a C library. Its fields are what
/// it is.
fn is_record(before: &[Token<'_>]) -> bool {
    let attributes = before
        .iter()
        .rev()
        .take_while(|token| !matches!(token.text, "}" | ";"));
    let derived = ["Args", "Parser", "Serialize", "repr"];
    attributes
        .into_iter()
        .any(|token| derived.contains(&token.text))
}

/// Number of fields that are not public of the struct whose name is before these tokens.
fn fields(tokens: &[Token<'_>]) -> usize {
    let (mut depth, mut fields) = (0_usize, 0);
    for (at, token) in tokens.iter().enumerate() {
        match token.text {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => {
                depth = depth.saturating_sub(1);
                if depth == 0 && token.text == "}" {
                    break;
                }
            }
            ";" if depth == 0 => break,
            ":" if depth == 1 && at > 1 && tokens[at - 1].is_word() => {
                let is_public = matches!(tokens[at - 2].text, "pub" | ")");
                fields += usize::from(!is_public);
            }
            _ => {}
        }
    }
    fields
}

/// The type whose methods an `impl` has, if it is no `impl` of a trait.
fn implemented<'a>(tokens: &[Token<'a>]) -> Option<&'a str> {
    let mut depth = 0_usize;
    let mut name = None;
    for token in tokens {
        match token.text {
            "<" => depth += 1,
            ">" => depth = depth.saturating_sub(1),
            "for" if depth == 0 => return None,
            "{" | "where" if depth == 0 => return name,
            _ if depth == 0 && token.is_word() => name = Some(token.text),
            _ => {}
        }
    }
    None
}

/// Number of items whose documentation begins with a question word.
fn questions(text: &str) -> usize {
    let doc = |line: &str| line.starts_with("///") || line.starts_with("//!");
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let before = std::iter::once("").chain(lines.iter().copied());
    let first = before
        .zip(&lines)
        .filter(|(before, line)| doc(line) && !doc(before));
    let begins = first.filter(|(_, line)| {
        let word = line[3..].split_whitespace().next().unwrap_or("");
        QUESTION_WORDS.contains(&word)
    });
    begins.count()
}

/// Number of lines of a source that are neither blank nor comment nor test.
fn lines_of_code(text: &str) -> usize {
    let code = text.lines().take_while(|line| *line != "#[cfg(test)]");
    let code = code
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("//"));
    code.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Exceptions = Exceptions {
        circles: &[],
        locks: &[],
        version_two: &[],
        api: &[],
        maps_by_address: &[],
        large_types: &[],
        spread_types: &[],
        lines: &[],
        questions: 0,
    };

    fn faults<const N: usize>(files: [(&str, &str); N], exceptions: Exceptions) -> Vec<String> {
        let mut faults = Vec::new();
        check(&Sources::of(files), exceptions, &mut faults);
        faults.iter().map(Fault::to_string).collect()
    }

    #[test]
    fn map_by_address_is_for_one_crate() {
        let map = "struct A { b: HashMap<PeerGroup, u8>, c: BTreeMap<Option<PeerGroup>, u8> }";
        let found = faults([("crates/a/src/lib.rs", map)], NONE);
        assert_eq!(
            found,
            ["crates/a/src/lib.rs:1: a map by address, which is for crates/rpc-serving/ alone"]
        );
        assert!(faults([("crates/rpc-serving/src/lib.rs", map)], NONE).is_empty());
        let in_tests = "#[cfg(test)]\nmod tests { type A = HashMap<PeerGroup, u8>; }";
        assert!(faults([("crates/a/src/lib.rs", in_tests)], NONE).is_empty());
        let excused = Exceptions {
            maps_by_address: &["crates/a/src/lib.rs", "crates/b/src/lib.rs"],
            ..NONE
        };
        assert_eq!(
            faults([("crates/a/src/lib.rs", map)], excused),
            [
                "tools/xtask/src/tidy/exceptions.rs:1: crates/b/src/lib.rs is excused for a map by address, and need not be"
            ]
        );
    }

    #[test]
    fn library_knows_no_terminal() {
        let source = "use clap::Args;\nfn a() { println!(\"a\"); io::stdout(); print(1); }";
        assert_eq!(
            faults([("crates/a/src/lib.rs", source)], NONE),
            [
                "crates/a/src/lib.rs:1: a library names clap",
                "crates/a/src/lib.rs:2: a library names println",
                "crates/a/src/lib.rs:2: a library names stdout",
            ]
        );
        assert!(faults([("tools/a/src/lib.rs", source)], NONE).is_empty());
    }

    #[test]
    fn records_may_be_large() {
        let public = (0..16).map(|at| format!("pub f{at}: u8, pub(crate) g{at}: u8,"));
        let public = format!("struct A {{ {} }}", public.collect::<String>());
        let private: String = (0..16).map(|at| format!("f{at}: u8,")).collect();
        let derived = format!("fn a() {{}}\n#[derive(Debug, Args)]\npub struct A {{ {private} }}");
        for source in [public, derived] {
            assert_eq!(faults([("crates/a/src/lib.rs", &source)], NONE), [""; 0]);
        }
    }

    #[test]
    fn types_are_not_large_and_not_spread() {
        let many = (0..16).map(|at| format!("f{at}: Box<dyn Fn(u8) -> [u8; 2]>,"));
        let large = format!("pub struct A<T: B> {{ {} }}", many.collect::<String>());
        assert_eq!(
            faults([("crates/a/src/lib.rs", &large)], NONE),
            ["crates/a/src/lib.rs:1: A has 16 fields, more than 15"]
        );
        let methods = "impl<T> A<T> { fn a() {} }\nimpl B for A {}";
        let files = [
            ("crates/a/src/lib.rs", "struct A;"),
            ("crates/a/src/b.rs", methods),
            ("crates/a/src/c.rs", methods),
            ("crates/a/src/d.rs", methods),
            ("crates/b/src/e.rs", methods),
        ];
        assert_eq!(
            faults(files, NONE),
            ["crates/a:1: A has 4 files with methods, more than 3"]
        );
        let excused = Exceptions {
            spread_types: &[("crates/a::A", 4)],
            large_types: &[("crates/a/src/lib.rs::A", 16)],
            ..NONE
        };
        assert_eq!(
            faults(files, excused),
            [
                "tools/xtask/src/tidy/exceptions.rs:1: crates/a/src/lib.rs::A is excused for 16 fields, and need not be"
            ]
        );
    }

    #[test]
    fn ceilings_only_sink() {
        let source =
            "//! What it is.\n\n/// Where it is.\n/// What more.\nfn a() {}\n/// A b.\nfn b() {}\n";
        let two = Exceptions {
            questions: 2,
            ..NONE
        };
        let file = [("tools/a/src/lib.rs", source)];
        assert!(faults(file, two).is_empty());
        assert_eq!(
            faults(file, NONE),
            [
                "tools/xtask/src/tidy/exceptions.rs:1: 2 items whose documentation begins with What, Where, Whose or Who, more than 0"
            ]
        );
        let three = Exceptions {
            questions: 3,
            lines: &[("tools/a/src", 1)],
            ..NONE
        };
        assert_eq!(
            faults(file, three),
            [
                "tools/xtask/src/tidy/exceptions.rs:1: 2 lines of code in tools/a/src, more than 1",
                "tools/xtask/src/tidy/exceptions.rs:1: 2 items whose documentation begins with What, Where, Whose or Who: \
                 the ceiling of 3 can sink",
            ]
        );
        let lines = Exceptions {
            questions: 2,
            lines: &[("tools/a/src", 2 + SLACK + 1)],
            ..NONE
        };
        assert_eq!(faults(file, lines).len(), 1);
    }
}
