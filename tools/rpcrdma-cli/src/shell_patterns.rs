//! Advice for URLs with patterns of a shell, which no shell expands.

use nfs_copy::FileError;
use nfs_proto::Status;

/// Advice for a file that is not found, if its path is a pattern of a shell.
pub(crate) fn hint_of(error: &FileError) -> Option<&'static str> {
    let not_found = error.status() == Some(Status::NoEntry);
    unexpanded(&error.url().path).filter(|_| not_found)
}

/// Advice for a path that is not found, if it is a pattern of a shell.
pub(crate) fn unexpanded(path: &[u8]) -> Option<&'static str> {
    let has = |byte| path.contains(&byte);
    let is_pattern = has(b'*') || has(b'?') || has(b'[') && has(b']');
    is_pattern.then_some(
        "the shell does not expand patterns in URLs: `rpcrdma ls` lists the directory; name each file",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_that_is_not_found_is_said_to_be_one() {
        let hint = |url: &str, status| {
            let error = FileError::new(url.parse().unwrap(), "find", status);
            hint_of(&error).is_some()
        };
        assert!(hint("nfs://h/*.txt", Status::NoEntry));
        assert!(!hint("nfs://h/*.txt", Status::Access));
        assert!(!hint("nfs://h/a.txt", Status::NoEntry));
    }
}
