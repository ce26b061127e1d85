//! Target of a measurement: a server, or something on it.

use crate::endpoint::Endpoint;
use nfs_client::{NfsUrl, UrlError};
use std::fmt;
use std::str::FromStr;

/// A server, or a path there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// No path was given.
    Server(Endpoint),
    /// A file or a directory.
    Path(NfsUrl),
}

const SCHEME: &str = "nfs://";

impl FromStr for Target {
    type Err = UrlError;

    /// A URL, or one without `nfs://`. What has no slash behind the host has no path.
    fn from_str(text: &str) -> Result<Self, UrlError> {
        let scheme = text.get(..SCHEME.len());
        let rest = match scheme {
            Some(scheme) if scheme.eq_ignore_ascii_case(SCHEME) => &text[SCHEME.len()..],
            _ => text,
        };
        if rest.contains('/') {
            format!("{SCHEME}{rest}").parse().map(Self::Path)
        } else {
            rest.parse().map(Self::Server)
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(server) => server.fmt(f),
            Self::Path(url) => url.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, shown: &str, path: Option<&str>) {
        let target: Target = text.parse().unwrap();
        assert_eq!(target.to_string(), shown);
        match (&target, path) {
            (Target::Server(_), None) => {}
            (Target::Path(url), Some(path)) => assert_eq!(url.path, path.as_bytes()),
            (target, path) => panic!("{target:?} has not {path:?}"),
        }
    }

    #[test]
    fn path_makes_the_difference_between_a_server_and_a_file() {
        check("h", "h:20049", None);
        check("h:7", "h:7", None);
        check("nfs://h:7", "h:7", None);
        check("2001:db8::7", "[2001:db8::7]:20049", None);
        check("h/", "nfs://h/", Some("/"));
        check("h:7/a/b%20c", "nfs://h:7/a/b%20c", Some("/a/b c"));
        check("NFS://h/a", "nfs://h/a", Some("/a"));
        check("[::1]:7/a", "nfs://[::1]:7/a", Some("/a"));
    }

    #[test]
    fn what_has_no_host_is_refused() {
        assert_eq!("/a".parse::<Target>(), Err(UrlError::NoHost));
        assert_eq!("".parse::<Target>(), Err(UrlError::NoHost));
        assert_eq!("h/a?b".parse::<Target>(), Err(UrlError::Reserved('?')));
    }
}
