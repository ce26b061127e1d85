//! Messages of errors without the numbers of the system.

use std::fmt::Display;

/// The message of an error without the `(os error 2)` that the standard library writes behind the words of the system.
///
/// ```
/// use oncrpc::plain;
///
/// let missing = std::io::Error::from_raw_os_error(2);
/// assert_eq!(missing.to_string(), "No such file or directory (os error 2)");
/// assert_eq!(plain(&missing), "No such file or directory");
/// ```
pub fn plain(error: &dyn Display) -> String {
    const BEFORE: &str = " (os error ";
    let text = error.to_string();
    let mut parts = text.split(BEFORE);
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let behind = part.trim_start_matches(|c: char| c.is_ascii_digit() || c == '-');
        match behind.strip_prefix(')') {
            Some(behind) if behind.len() + 1 < part.len() => kept += behind,
            _ => kept = kept + BEFORE + part,
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_errors_are_left_out() {
        let check = |text: &str, expected: &str| assert_eq!(plain(&text), expected);
        check("a: No such file (os error 2)", "a: No such file");
        check(
            "No such file (os error 2): b (os error 13)!",
            "No such file: b!",
        );
        check("Unknown (os error -1)", "Unknown");
        for other in ["a (os error x)", "a (os error )", "a (os error 2", ""] {
            check(other, other);
        }
        let missing = std::fs::File::open("/no/such").unwrap_err();
        assert_eq!(plain(&missing), "No such file or directory");
    }
}
