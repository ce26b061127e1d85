//! NFS URLs (RFC 2224) of servers on RDMA.

use nfs_proto::NFS_RDMA_PORT;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use std::borrow::Cow;
use std::fmt::{self, Write};
use std::net::Ipv6Addr;
use std::str::FromStr;

/// An NFS URL, `nfs://HOST[:PORT]/PATH`.
///
/// The default port is 20049, that of NFS over RDMA; in RFC 2224 it is 2049, that of NFS over TCP.
/// The path begins at the server's root. RFC 2224 §6.1 writes that with two slashes; both forms
/// mean the same here, because paths are mounted and not looked up from a public handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NfsUrl {
    /// Host name or address; an IPv6 address without brackets, and its zone behind a `%`.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Path with a leading slash: any bytes but NUL.
    pub path: Vec<u8>,
}

/// Why a text is not a valid NFS URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// The text does not begin with `nfs://`.
    #[error("it does not begin with nfs://, as in nfs://HOST/PATH")]
    Scheme,
    /// The host is missing.
    #[error("there is no host")]
    NoHost,
    /// The host is invalid.
    #[error("\"{0}\" is neither a host name nor an address (an IPv6 address needs brackets)")]
    BadHost(String),
    /// The port is invalid.
    #[error("\"{0}\" is not a port: 1 to 65535")]
    BadPort(String),
    /// A `%` is not followed by two hexadecimal digits.
    #[error("a % is not followed by two hexadecimal digits (write %25 for a % itself)")]
    BadEscape,
    /// An escape stands for a byte that no name may have.
    #[error("%{0:02X} is in no name")]
    BadByte(u8),
    /// A reserved character is not escaped.
    #[error("\"{0}\" has a meaning of its own in URLs: write %{code:02X}", code = u32::from(*.0))]
    Reserved(char),
}

impl NfsUrl {
    /// Appends a name to the path.
    #[must_use]
    pub fn join(&self, name: &[u8]) -> Self {
        Self {
            path: crate::path::join(&self.path, name),
            ..self.clone()
        }
    }

    /// Returns the URL for programs: in the characters of RFC 3986 §2 alone, with all other bytes as escapes.
    ///
    /// ```
    /// use nfs_client::NfsUrl;
    ///
    /// let url: NfsUrl = "nfs://server/übung".parse().unwrap();
    /// assert_eq!(url.to_string(), "nfs://server/übung");
    /// assert_eq!(url.escaped(), "nfs://server/%C3%BCbung");
    /// ```
    pub fn escaped(&self) -> String {
        let authority = fmt::from_fn(|f| self.fmt_authority(f));
        format!("{authority}{}", percent_encode(&self.path, ESCAPED))
    }

    fn fmt_authority(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "nfs://[{}]", self.host.replace('%', "%25"))?,
            false => write!(f, "nfs://{}", self.host)?,
        }
        match self.port {
            NFS_RDMA_PORT => Ok(()),
            port => write!(f, ":{port}"),
        }
    }
}

impl FromStr for NfsUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let scheme = text
            .get(..6)
            .filter(|scheme| scheme.eq_ignore_ascii_case("nfs://"));
        let rest = &text[scheme.ok_or(UrlError::Scheme)?.len()..];
        let (authority, path) = match rest.find('/') {
            Some(slash) => rest.split_at(slash),
            None => (rest, "/"),
        };
        let (host, port) = host_and_port(authority)?;
        Ok(Self {
            host: host.into_owned(),
            port,
            path: unescape(path)?,
        })
    }
}

/// Parses an IPv6 address with or without a zone, which stands behind `%25` (RFC 6874 §2) or, as
/// mount.nfs(8) and getaddrinfo(3) take it, `%`. The result has `%`.
///
/// ```
/// use nfs_client::ipv6_host;
///
/// assert_eq!(ipv6_host("fe80::1%25eth0").as_deref(), Some("fe80::1%eth0"));
/// assert_eq!(ipv6_host("fe80::1%eth0").as_deref(), Some("fe80::1%eth0"));
/// assert_eq!(ipv6_host("host%eth0"), None);
/// ```
pub fn ipv6_host(text: &str) -> Option<Cow<'_, str>> {
    let Some((address, given)) = text.split_once('%') else {
        return text.parse::<Ipv6Addr>().ok().map(|_| text.into());
    };
    address.parse::<Ipv6Addr>().ok()?;
    // A zone may be a number, and 25 be one.
    let zone = given.strip_prefix("25").filter(|zone| !zone.is_empty());
    let zone = zone.unwrap_or(given);
    let is_zone = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '~');
    if zone.is_empty() || !zone.chars().all(is_zone) {
        return None;
    }
    Some(match zone.len() == given.len() {
        true => text.into(),
        false => format!("{address}%{zone}").into(),
    })
}

/// Parses host and port as in a URL, `HOST[:PORT]`, with an IPv6 address in brackets. The default
/// port is 20049.
///
/// # Errors
///
/// [`UrlError::NoHost`], [`UrlError::BadHost`] or [`UrlError::BadPort`].
pub fn host_and_port(authority: &str) -> Result<(Cow<'_, str>, u16), UrlError> {
    let bad = || UrlError::BadHost(authority.to_owned());
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, behind) = rest.split_once(']').ok_or_else(bad)?;
            let host = ipv6_host(host).ok_or_else(bad)?;
            match behind.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if behind.is_empty() => (host, None),
                None => return Err(bad()),
            }
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host_name(host).ok_or_else(bad)?, Some(port)),
            None => (host_name(authority).ok_or_else(bad)?, None),
        },
    };
    if host.is_empty() {
        return Err(UrlError::NoHost);
    }
    match port {
        None => Ok((host, NFS_RDMA_PORT)),
        Some(text) => match text.parse() {
            Ok(port @ 1..) => Ok((host, port)),
            Ok(0) | Err(_) => Err(UrlError::BadPort(text.to_owned())),
        },
    }
}

/// Returns a host name or an IPv4 address if it has no other characters than those have.
fn host_name(text: &str) -> Option<Cow<'_, str>> {
    let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    text.chars().all(is_host).then(|| text.into())
}

/// Bytes that a path in a URL has as escapes: all but letters, digits and these marks.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'.')
    .remove(b'-')
    .remove(b'_')
    .remove(b'~')
    .remove(b'+')
    .remove(b',')
    .remove(b'=')
    .remove(b'@')
    .remove(b':');

fn unescape(path: &str) -> Result<Vec<u8>, UrlError> {
    if let Some(reserved) = path.chars().find(|c| matches!(c, '?' | '#')) {
        return Err(UrlError::Reserved(reserved));
    }
    // The decoder takes a % that begins no escape for itself.
    let mut escapes = path.split('%').skip(1).map(str::as_bytes);
    let is_escape = |rest: &[u8]| {
        let digits = rest.first_chunk::<2>();
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    if !escapes.all(is_escape) {
        return Err(UrlError::BadEscape);
    }
    let bytes: Vec<u8> = percent_decode_str(path).collect();
    let slashes = |bytes: &[u8]| bytes.iter().filter(|&&byte| byte == b'/').count();
    match () {
        () if bytes.contains(&0) => Err(UrlError::BadByte(0)),
        // An escaped slash would be part of a name (RFC 2224 §1), which no name can have.
        () if slashes(&bytes) != slashes(path.as_bytes()) => Err(UrlError::BadByte(b'/')),
        () => Ok(bytes),
    }
}

impl fmt::Display for NfsUrl {
    /// The URL as people read it: names in their own script. It is parsed as this URL again, and what does not show, or shells
    /// and URLs have a use for, is escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_authority(f)?;
        for chunk in self.path.utf8_chunks() {
            for c in chunk.valid().chars() {
                let mut utf8 = [0; 4];
                match is_shown(c) {
                    true => f.write_char(c)?,
                    false => {
                        percent_encode(c.encode_utf8(&mut utf8).as_bytes(), ESCAPED).fmt(f)?;
                    }
                }
            }
            percent_encode(chunk.invalid(), ESCAPED).fmt(f)?;
        }
        Ok(())
    }
}

/// Whether a character beyond ASCII is one that is seen, as a letter or an accent on one is. Those that only change how others
/// are shown could make a name look like another one.
fn is_shown(c: char) -> bool {
    // An accent counts as one behind another character only.
    let mut text = [b'x', 0, 0, 0, 0];
    let len = c.encode_utf8(&mut text[1..]).len();
    let text = std::str::from_utf8(&text[..=len]).unwrap_or_default();
    !c.is_ascii() && text.escape_debug().nth(1) == Some(c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(text: &str, host: &str, port: u16, path: &[u8]) {
        let url: NfsUrl = text.parse().unwrap();
        assert_eq!((&*url.host, url.port, &*url.path), (host, port, path));
    }

    #[test]
    fn hosts_ports_and_paths_are_parsed() {
        check("nfs://server", "server", 20049, b"/");
        check("nfs://server/", "server", 20049, b"/");
        check("NFS://server:2050/a/b", "server", 2050, b"/a/b");
        check("nfs://127.0.0.1//srv", "127.0.0.1", 20049, b"//srv");
        check("nfs://[::1]/x", "::1", 20049, b"/x");
        check("nfs://[fe80::1]:7/x", "fe80::1", 7, b"/x");
        check("nfs://[fe80::1%25eth0]/x", "fe80::1%eth0", 20049, b"/x");
        check("nfs://[fe80::1%eth0]:7/x", "fe80::1%eth0", 7, b"/x");
        check("nfs://[fe80::1%25]", "fe80::1%25", 20049, b"/");
        check("nfs://[fe80::1%2525]", "fe80::1%25", 20049, b"/");
        check("nfs://h/a%20b%25%ff", "h", 20049, b"/a b%\xff");
        check("nfs://h/a:b@c", "h", 20049, b"/a:b@c");
    }

    #[track_caller]
    fn refused(text: &str, error: UrlError) {
        assert_eq!(text.parse::<NfsUrl>(), Err(error), "{text}");
    }

    #[test]
    fn invalid_urls_are_refused_with_a_reason() {
        refused("/a/b", UrlError::Scheme);
        refused("http://server/", UrlError::Scheme);
        refused("nfs:///a", UrlError::NoHost);
        refused("nfs://:1/a", UrlError::NoHost);
        refused(
            "nfs://user@server/",
            UrlError::BadHost("user@server".into()),
        );
        refused("nfs://[::1/", UrlError::BadHost("[::1".into()));
        refused("nfs://[host]/", UrlError::BadHost("[host]".into()));
        for host in [
            "[fe80::1%]",
            "[fe80::1%a b]",
            "[192.0.2.1%eth0]",
            "h%eth0",
            "[::1%25a%25b]",
        ] {
            refused(&format!("nfs://{host}/"), UrlError::BadHost(host.into()));
        }
        refused("nfs://::1/", UrlError::NoHost);
        refused("nfs://h:0/", UrlError::BadPort("0".into()));
        refused("nfs://h:65536/", UrlError::BadPort("65536".into()));
        refused("nfs://h/%2", UrlError::BadEscape);
        refused("nfs://h/%zz", UrlError::BadEscape);
        refused("nfs://h/%00", UrlError::BadByte(0));
        refused("nfs://h/a%2fb", UrlError::BadByte(b'/'));
        refused("nfs://h/a?b", UrlError::Reserved('?'));
    }

    #[test]
    fn reserved_characters_come_with_their_escape() {
        assert!(UrlError::Reserved('?').to_string().contains("%3F"));
    }

    #[test]
    fn names_are_shown_in_their_script_and_nothing_that_is_not_seen() {
        let check = |path: &[u8], expected: &str| {
            let url = NfsUrl {
                host: "h".to_owned(),
                port: NFS_RDMA_PORT,
                path: path.to_vec(),
            };
            assert_eq!(url.to_string(), format!("nfs://h{expected}"));
            assert_eq!(url.to_string().parse(), Ok(url));
        };
        check("/übung/文字/u\u{308}".as_bytes(), "/übung/文字/u\u{308}");
        check("/\u{308}".as_bytes(), "/\u{308}");
        check(b"/a b*%\xffc\xc3", "/a%20b%2A%25%FFc%C3");
        check(b"/\x1b[2J\n", "/%1B%5B2J%0A");
        // A control character of Latin-1, a blank of another width, and letters from right to left.
        check("/\u{9b}\u{a0}\u{202e}".as_bytes(), "/%C2%9B%C2%A0%E2%80%AE");
    }

    proptest! {
        #[test]
        fn any_text_of_a_path_round_trips(text in "[^\0/]{0,20}") {
            let path = format!("/{text}").into_bytes();
            let url = NfsUrl { host: "h".to_owned(), port: 1, path };
            prop_assert_eq!(url.to_string().parse::<NfsUrl>(), Ok(url.clone()));
            prop_assert!(url.escaped().is_ascii());
            prop_assert_eq!(url.escaped().parse::<NfsUrl>(), Ok(url));
        }

        #[test]
        fn any_path_round_trips(
            path in proptest::collection::vec(1u8.., 0..40),
            port in 1u16..,
            zone in "|%[a-z0-9._~-]{1,15}",
        ) {
            let path = [b"/", &path[..]].concat();
            let url = NfsUrl { host: format!("::1{zone}"), port, path };
            prop_assert_eq!(url.to_string().parse::<NfsUrl>().unwrap(), url);
        }

        #[test]
        fn any_text_is_a_url_or_an_error(text: String) {
            let _ = text.parse::<NfsUrl>();
            let _ = format!("nfs://{text}").parse::<NfsUrl>();
        }
    }
}
