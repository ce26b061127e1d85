//! Rust source as tokens, with comments gone and test code left out.
//!
//! Enough to see which names a file uses. It is no parser: macros are not expanded, and of the
//! conditions of compilation only `#[cfg(test)]` is known.

/// One token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    /// From one.
    pub(super) line: usize,
    /// An identifier, `::`, one punctuation character, or `""` for any literal.
    pub(super) text: &'a str,
}

impl Token<'_> {
    /// Whether this is an identifier or a keyword.
    pub(super) fn is_word(&self) -> bool {
        self.text.starts_with(begins_word)
    }
}

/// The tokens of a source without those of its tests.
pub(super) fn outside_tests(source: &str) -> Vec<Token<'_>> {
    without_tests(&tokens(source))
}

fn begins_word(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

fn continues_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The tokens of a source.
pub(super) fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let mut rest = source;
    let mut line = 1;
    while let Some(first) = rest.chars().next() {
        let (len, text) = token(rest, first);
        if let Some(text) = text {
            found.push(Token { line, text });
        }
        line += rest[..len].matches('\n').count();
        rest = &rest[len..];
    }
    found
}

/// The length of what begins here, and its token unless it is white space or a comment.
fn token(rest: &str, first: char) -> (usize, Option<&str>) {
    if let Some(len) = literal(rest) {
        return (len, Some("\"\""));
    }
    if rest.starts_with("//") {
        return (rest.find('\n').unwrap_or(rest.len()), None);
    }
    if rest.starts_with("/*") {
        return (block_comment(rest), None);
    }
    if rest.starts_with("::") {
        return (2, Some(&rest[..2]));
    }
    if begins_word(first) {
        let len = rest.find(|c| !continues_word(c)).unwrap_or(rest.len());
        return (len, Some(&rest[..len]));
    }
    let len = first.len_utf8();
    (len, (!first.is_whitespace()).then(|| &rest[..len]))
}

/// The length of the comment that begins here. Comments nest.
fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// The length of the literal that begins here: a string, a character, or a number.
fn literal(rest: &str) -> Option<usize> {
    let prefix = ["br", "cr", "b", "c", "r"]
        .into_iter()
        .find(|prefix| {
            rest.strip_prefix(prefix)
                .is_some_and(|after| after.starts_with(['"', '\'', '#']))
        })
        .unwrap_or("");
    let body = &rest[prefix.len()..];
    let hashes = body.len() - body.trim_start_matches('#').len();
    if prefix.ends_with('r') && body[hashes..].starts_with('"') {
        let end = format!("\"{}", "#".repeat(hashes));
        let start = prefix.len() + hashes + 1;
        let len = rest[start..].find(&end).map(|at| start + at + end.len());
        return Some(len.unwrap_or(rest.len()));
    }
    if body.starts_with('"') && !prefix.ends_with('r') {
        return Some(prefix.len() + quoted(body, '"'));
    }
    if body.starts_with('\'') && matches!(prefix, "" | "b") {
        let mut after = body[1..].chars();
        let (one, two) = (after.next()?, after.next());
        // A lifetime has no quote behind its first letter.
        let is_char = one == '\\' || two == Some('\'');
        return is_char.then(|| prefix.len() + quoted(body, '\''));
    }
    let digits = rest.starts_with(|c: char| c.is_ascii_digit());
    digits.then(|| rest.find(|c| !continues_word(c)).unwrap_or(rest.len()))
}

/// The length of what is between two quotes, with both.
fn quoted(body: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in body.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + 1,
            _ => {}
        }
    }
    body.len()
}

/// The tokens without the items behind `#[cfg(test)]`.
fn without_tests<'a>(all: &[Token<'a>]) -> Vec<Token<'a>> {
    const CFG_TEST: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut kept = Vec::new();
    let mut at = 0;
    while at < all.len() {
        let here = &all[at..];
        let is_test = here.len() >= CFG_TEST.len()
            && here
                .iter()
                .zip(CFG_TEST)
                .all(|(token, text)| token.text == text);
        if is_test {
            at += CFG_TEST.len() + item(&here[CFG_TEST.len()..]);
        } else {
            kept.push(all[at]);
            at += 1;
        }
    }
    kept
}

/// How many tokens the item takes that begins here: up to its `;`, its body, or, for a field or a
/// match arm, its `,`.
fn item(tokens: &[Token<'_>]) -> usize {
    let is_part = !begins_with(tokens, &ITEMS);
    let is_use = begins_with(tokens, &["use"]);
    let mut depth = 0_usize;
    // Attributes between `#[cfg(test)]` and the item end in no such token.
    for (at, token) in tokens.iter().enumerate() {
        match token.text {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => {
                let Some(less) = depth.checked_sub(1) else {
                    return at;
                };
                depth = less;
                if depth == 0 && token.text == "}" && !is_use {
                    return at + 1;
                }
            }
            ";" if depth == 0 => return at + 1,
            "," if depth == 0 && is_part => return at + 1,
            _ => {}
        }
    }
    tokens.len()
}

/// Words with which an item begins, and a field or a match arm does not.
const ITEMS: [&str; 13] = [
    "async", "const", "enum", "extern", "fn", "impl", "mod", "static", "struct", "trait", "type",
    "unsafe", "use",
];

/// Whether one of `words` is the first behind attributes and `pub`.
fn begins_with(item: &[Token<'_>], words: &[&str]) -> bool {
    let mut brackets = 0_usize;
    let first = item.iter().find(|token| {
        match token.text {
            "[" | "(" => brackets += 1,
            "]" | ")" => brackets = brackets.saturating_sub(1),
            _ => {}
        }
        brackets == 0 && token.is_word() && token.text != "pub"
    });
    first.is_some_and(|first| words.contains(&first.text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(source: &str, expected: &[&str]) {
        let found = outside_tests(source);
        let texts: Vec<&str> = found.iter().map(|token| token.text).collect();
        assert_eq!(texts, expected, "{source}");
    }

    #[test]
    fn comments_are_gone_and_literals_are_all_one() {
        check("a // b\nc", &["a", "c"]);
        check("a /* b /* c */ d */ e", &["a", "e"]);
        check(
            r##"("b\"c", r#"d"e"#, b'f', '\'', '"', 12_u8) g"##,
            &[
                "(", "\"\"", ",", "\"\"", ",", "\"\"", ",", "\"\"", ",", "\"\"", ",", "\"\"", ")",
                "g",
            ],
        );
        check("&'a str", &["&", "'", "a", "str"]);
        check("brand::r", &["brand", "::", "r"]);
    }

    #[test]
    fn lines_are_counted_through_comments_and_literals() {
        let found = tokens("a\n/*\n*/\n\"\n\" b");
        let lines: Vec<(usize, &str)> = found.iter().map(|t| (t.line, t.text)).collect();
        assert_eq!(lines, [(1, "a"), (4, "\"\""), (5, "b")]);
    }

    #[test]
    fn items_for_tests_are_left_out() {
        check("#[cfg(test)]\nmod tests { fn a() {} }\nb", &["b"]);
        check("#[cfg(test)]\nmod tests;\nb", &["b"]);
        check("#[cfg(test)]\nuse a::{b, c};\nd", &["d"]);
        check("#[cfg(test)]\n#[derive(A)]\npub struct B(u8);\nc", &["c"]);
        check("S { #[cfg(test)] a: 1, b }", &["S", "{", "b", "}"]);
        check("#[cfg(test)]\npub(crate) fn a<T, U>() -> B {}\nc", &["c"]);
        check(
            "#[cfg(unix)] a",
            &["#", "[", "cfg", "(", "unix", ")", "]", "a"],
        );
    }
}
