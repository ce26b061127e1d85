//! Escapes bytes of a server for display.

use std::fmt::Write;

/// Formats a name or path for a terminal: bytes that are not printable text become `\xNN`, so that
/// a name cannot control the terminal.
pub fn printable(bytes: &[u8]) -> String {
    let mut shown = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() {
                let mut utf8 = [0; 4];
                escape(&mut shown, c.encode_utf8(&mut utf8).as_bytes());
            } else {
                shown.push(c);
            }
        }
        escape(&mut shown, chunk.invalid());
    }
    shown
}

fn escape(shown: &mut String, bytes: &[u8]) {
    for byte in bytes {
        write!(shown, "\\x{byte:02x}").expect("a string takes what is written");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_in_names_are_escaped() {
        assert_eq!(printable("smörgås.txt".as_bytes()), "smörgås.txt");
        assert_eq!(printable(b"a\x1b[2Jb\n"), "a\\x1b[2Jb\\x0a");
        assert_eq!(printable(b"\xff\xfe-x"), "\\xff\\xfe-x");
        assert_eq!(printable("\u{9b}1m".as_bytes()), "\\xc2\\x9b1m");
    }
}
