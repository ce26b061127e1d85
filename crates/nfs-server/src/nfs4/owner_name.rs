//! Names of clients and owners as text.

/// The name of a client or of an owner, as text. Bytes that are not printable are in hexadecimal digits, as a name is any bytes.
pub fn owner_name(name: &[u8]) -> String {
    name.iter().fold(String::new(), |mut text, byte| {
        match byte {
            b'\\' => text.push_str("\\\\"),
            b' '..=b'~' => text.push(char::from(*byte)),
            other => text += &format!("\\x{other:02x}"),
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_clients_are_printable_and_differ() {
        assert_eq!(owner_name(b"Linux NFSv4.2 host"), "Linux NFSv4.2 host");
        assert_eq!(owner_name(b"a\x1b\\\xff"), "a\\x1b\\\\\\xff");
        assert_ne!(owner_name(b"\\x1b"), owner_name(b"\x1b"));
    }
}
