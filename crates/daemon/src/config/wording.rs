//! Messages about a file of exports in words for its administrator: what to write instead.
//!
//! The parser says what it expected, in the words of TOML and of Rust. Where that is all there is to say it
//! stays; where people are used to other files, this says how it is written here.

use super::tables::{Table, elsewhere, table_of};

/// Fault at a byte of a file, if it is no TOML there.
pub(super) fn of_syntax(text: &str, at: usize, message: &str) -> String {
    let line = line_at(text, at);
    let (key, value) = line.split_once('=').unwrap_or((line, ""));
    let (key, value) = (key.trim(), value.split('#').next().unwrap_or("").trim());
    if message == "duplicate key" {
        return format!("{key} is there twice");
    }
    if ["yes", "no", "on", "off", "true", "false"]
        .iter()
        .any(|word| value.eq_ignore_ascii_case(word))
    {
        return format!("{message}: write true or false");
    }
    // A text that is begun is not ended; what else there is has no quotes.
    let is_list = value.starts_with('[') && !value.contains(['"', '\'']);
    let is_bare = !value.is_empty() && !value.starts_with(['"', '\'', '[', '{']);
    match (is_list, is_bare) {
        (true, _) => {
            let words = value.trim_matches(['[', ']']).split(',');
            let words: Vec<String> = words.map(|word| format!("\"{}\"", word.trim())).collect();
            format!("a text has quotes: write {key} = [{}]", words.join(", "))
        }
        (_, true) => format!("a text has quotes: write {key} = \"{value}\""),
        _ => message.to_owned(),
    }
}

/// Fault of the value of a key, such as `export[0].anonuid`, in a file of these tables.
pub(super) fn of_value(key: &str, message: &str, tables: &[Table]) -> String {
    let last = key.rsplit('.').next().unwrap_or(key);
    if let Some(field) = quoted(message, "unknown field `", '`') {
        let known = message.split_once(", expected ").map(|(_, known)| known);
        let known = known.map(|known| known.trim_start_matches("one of ").replace('`', ""));
        if field == "include" && key.starts_with("export") {
            return "there is no key include here: write it at the top of the file, before the first table".to_owned();
        }
        // Who writes hosts or options of exports(5) into an export means those of its clients.
        let in_exports = as_in_exports(field);
        if (in_exports.is_none() || !key.starts_with("export"))
            && let Some(elsewhere) = elsewhere(tables, &table_of(key), field)
        {
            return elsewhere;
        }
        return match (in_exports, known) {
            (Some(here), _) => format!("there is no key {field}: write {here}"),
            (None, Some(known)) => format!("there is no key {field}; there are {known}"),
            (None, None) => format!("there is no key {field}"),
        };
    }
    if last == "squash" {
        return "it is \"root\", \"remote-root\", \"all\" or \"none\"".to_owned();
    }
    let Some((found, expected)) = message.split_once(", expected ") else {
        return message.to_owned();
    };
    let expected = match (last, expected) {
        (_, "u16" | "u32") if text_of_digits(found).is_some() => {
            let number = text_of_digits(found).unwrap_or_default();
            format!("write the number without quotes: {last} = {number}")
        }
        (_, "u16") => format!("it is a number, 0 to {}", u16::MAX),
        (_, "a boolean") => "it is true or false".to_owned(),
        (_, "u32") => format!("it is a number, 0 to {}", u32::MAX),
        (_, "a nonzero u32") => format!("it is a number, 1 to {}", u32::MAX),
        (_, "path string") => "it is the path of a directory, in quotes".to_owned(),
        (_, "a string") => "it is a text, in quotes".to_owned(),
        ("export", "a sequence") => "write [[export]], in two brackets".to_owned(),
        ("client", "a sequence") => "write [[export.client]], in two brackets".to_owned(),
        ("pair", "a sequence") => "write [[pair]], in two brackets".to_owned(),
        ("hosts" | "allow", "a sequence") => {
            let host = quoted(found, "string \"", '"').unwrap_or("192.0.2.7");
            format!("write {last} = [\"{host}\"]")
        }
        (_, expected) => format!("it is {expected}"),
    };
    format!("{} does not fit: {expected}", in_toml(found))
}

/// Value that was found, in the words of the file: `invalid type: integer `1`` is `1`.
fn in_toml(found: &str) -> &str {
    let found = found
        .trim_start_matches("invalid type: ")
        .trim_start_matches("invalid value: ");
    let kinds = ["integer `", "boolean `", "floating point `"];
    let number = kinds.iter().find_map(|kind| found.strip_prefix(kind));
    match (number, found) {
        (Some(number), _) => number.trim_end_matches('`'),
        (None, "sequence") => "a list",
        (None, "map") => "a table",
        (None, found) => found.strip_prefix("string ").unwrap_or(found),
    }
}

/// The number in a text of digits.
fn text_of_digits(found: &str) -> Option<&str> {
    let text = quoted(found, "string \"", '"')?;
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some(text)
}

/// How what exports(5) has is written here.
fn as_in_exports(word: &str) -> Option<&'static str> {
    Some(match word {
        "ro" | "readonly" | "redonly" => "read_only = true",
        "rw" => "read_only = false",
        "root_squash" => "squash = \"root\"",
        "no_root_squash" => "squash = \"none\"",
        "all_squash" => "squash = \"all\"",
        "mp" => "mountpoint = true",
        "optional" => "nofail = true",
        "clients" => "[[export.client]]",
        "exports" => "[[export]]",
        "host" | "address" | "network" | "allow" => {
            "[[export.client]] with hosts = [\"192.0.2.7\"]"
        }
        "dir" | "directory" => "path",
        _ => return None,
    })
}

/// Text between `before` and the next `end`.
fn quoted<'a>(text: &'a str, before: &str, end: char) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    rest.split(end).next()
}

/// The line with this byte.
fn line_at(text: &str, at: usize) -> &str {
    let before = text.get(..at).unwrap_or(text);
    let begin = before.rfind('\n').map_or(0, |newline| newline + 1);
    text[begin..].lines().next().unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_in_quotes_is_shown_without_them() {
        let check = |found: &str, expected: &str| {
            let said = of_value("pair[0].mount_port", &format!("{found}, expected u16"), &[]);
            assert_eq!(said, expected);
        };
        check(
            "invalid type: string \"20048\"",
            "\"20048\" does not fit: write the number without quotes: mount_port = 20048",
        );
        check(
            "invalid type: string \"nfs\"",
            "\"nfs\" does not fit: it is a number, 0 to 65535",
        );
        check(
            "invalid value: integer `70000`",
            "70000 does not fit: it is a number, 0 to 65535",
        );
    }
}
