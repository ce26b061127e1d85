//! JSON for programs: what `--json` prints.
//!
//! Numbers with a fraction have seven significant digits: what is behind them is noise of the
//! arithmetic. docs/schemas has a JSON Schema for each command, made from its types.

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter};
use std::io::{self, Write};

/// Digits behind the first one of a number with a fraction.
const DECIMALS: usize = 6;

/// A value in one line, without its newline.
///
/// # Errors
///
/// If a key of a map is no text.
pub fn line(value: &impl Serialize) -> serde_json::Result<String> {
    with(CompactFormatter, value)
}

/// A value in several lines, indented.
///
/// # Errors
///
/// As those of [`line()`].
pub fn document(value: &impl Serialize) -> serde_json::Result<String> {
    with(PrettyFormatter::new(), value)
}

fn with<F: Formatter>(formatter: F, value: &impl Serialize) -> serde_json::Result<String> {
    let mut text = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut text, Rounding(formatter));
    value.serialize(&mut serializer)?;
    String::from_utf8(text).map_err(serde::ser::Error::custom)
}

/// A formatter that rounds numbers with a fraction, and has another one do the rest.
struct Rounding<F>(F);

/// Methods that are left to the other one.
macro_rules! forward {
    ($($method:ident($($arg:ident: $type:ty),*)),* $(,)?) => {
        $(fn $method<W: ?Sized + Write>(&mut self, writer: &mut W $(, $arg: $type)*) -> io::Result<()> {
            self.0.$method(writer $(, $arg)*)
        })*
    };
}

impl<F: Formatter> Formatter for Rounding<F> {
    fn write_f64<W: ?Sized + Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        let rounded = format!("{value:.DECIMALS$e}").parse().unwrap_or(value);
        self.0.write_f64(writer, rounded)
    }

    /// Escapes control characters that JSON allows as they are: a terminal may obey them (ECMA-48, C1), and names
    /// are those of a server.
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut rest = fragment;
        while let Some((at, control)) = rest.char_indices().find(|(_, c)| c.is_control()) {
            self.0.write_string_fragment(writer, &rest[..at])?;
            write!(writer, "\\u{:04x}", u32::from(control))?;
            rest = &rest[at + control.len_utf8()..];
        }
        self.0.write_string_fragment(writer, rest)
    }

    forward! {
        begin_array(),
        end_array(),
        begin_array_value(first: bool),
        end_array_value(),
        begin_object(),
        end_object(),
        begin_object_key(first: bool),
        end_object_key(),
        begin_object_value(),
        end_object_value(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fractions_have_no_noise_and_other_values_stay_as_they_are() {
        let check = |value: serde_json::Value, expected: &str| {
            assert_eq!(line(&value).unwrap(), expected);
        };
        check(json!(0.1 + 0.2), "0.3");
        check(json!(0.1 * 3.0 * 1e6), "300000.0");
        check(json!(1.0 / 3.0), "0.3333333");
        check(json!(1e-9), "1e-9");
        check(json!(u64::MAX), "18446744073709551615");
        check(json!("a\u{9b}b\u{7f}ä\u{1b}"), r#""a\u009bb\u007fä\u001b""#);
        check(
            json!({"a": [1, null, "\n"], "b": {}}),
            r#"{"a":[1,null,"\n"],"b":{}}"#,
        );
    }

    #[test]
    fn document_is_indented() {
        let text = document(&json!({"a": [0.1 + 0.2]})).unwrap();
        assert_eq!(text, "{\n  \"a\": [\n    0.3\n  ]\n}");
    }
}
