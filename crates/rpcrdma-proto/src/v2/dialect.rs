//! Dialects of version two.

use super::header::{VERSION, error_code, procedure};
use super::ietf07;
use super::ietf07::header_type;
use crate::wire::header::HeaderView;
use oncrpc::xdr::Reader;
use std::fmt;
use std::str::FromStr;

/// A dialect of version two: the draft that defines `rdma_vers` 2. None became an RFC, and they
/// differ on the wire, so the dialect is configuration: both ends need the same.
///
/// Each has a transport header of its own: [`header`](super::header) and [`ietf07`](super::ietf07).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// draft-cel-nfsv4-rpcrdma-version-two-01 with draft-dnoveck-nfsv4-rpcrdma-xcharext-02.
    #[default]
    Cel01,
    /// draft-ietf-nfsv4-rpcrdma-version-two-07.
    Ietf07,
}

/// The name is not that of a known dialect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown dialect {0:?} of version two; known: {known}", known = Dialect::ALL.map(Dialect::name).join(", "))]
pub struct UnknownDialect(pub String);

impl Dialect {
    /// All dialects.
    pub const ALL: [Self; 2] = [Self::Cel01, Self::Ietf07];

    /// Returns the short name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cel01 => "cel-01",
            Self::Ietf07 => "ietf-07",
        }
    }

    /// Returns the octets by which a server announces the dialect in its private data, behind those
    /// of RFC 8797. They are a format of this implementation, found like that of the RFC by their
    /// beginning (RFC 8797 §5.2, §6).
    pub fn announcement(self) -> [u8; 8] {
        match self {
            Self::Cel01 => *b"rpc2ce01",
            Self::Ietf07 => *b"rpc2ie07",
        }
    }

    /// Returns the dialect that the private data of a peer announces, at any offset.
    pub fn announced(private_data: &[u8]) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|dialect| {
            let announcement = dialect.announcement();
            let mut places = private_data.windows(announcement.len());
            places.any(|place| place == announcement)
        })
    }
}

/// Content of a message of version two that the dialect of this end does not have: the peer uses
/// another draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// An unknown header type (`rdma_proc`).
    HeaderType(u32),
    /// An RDMA2_ERROR with an unknown code (`rdma_err`).
    ErrorCode(u32),
}

impl Foreign {
    /// Finds such content in a message of version two, for an end of this dialect.
    ///
    /// In ietf-07 a header type that no draft has tells of no other draft: header types may be added to
    /// that text (§6), which has an answer for each that is not known (§6.1).
    pub fn in_message(dialect: Dialect, message: &[u8]) -> Option<Self> {
        let view = HeaderView::new(message).filter(|view| view.version() == VERSION)?;
        let has = match dialect {
            Dialect::Cel01 => in_cel01,
            Dialect::Ietf07 => in_ietf07,
        };
        let code = match view.procedure() {
            procedure::ERROR => Some(Reader::new(&message[HeaderView::FIXED_LEN..]).u32().ok()?),
            _ => None,
        };
        match code {
            Some(code) => (!has(Content::Error(code))).then_some(Self::ErrorCode(code)),
            None => {
                let header_type = view.procedure();
                let behind = message.len() - HeaderView::FIXED_LEN;
                let content = Content::Header(header_type, behind);
                let foreign = (!has(content)).then_some(Self::HeaderType(header_type))?;
                let is_added = dialect == Dialect::Ietf07 && foreign.drafts().is_none();
                (!is_added).then_some(foreign)
            }
        }
    }

    /// Returns the drafts that have it: "cel" is draft-cel-nfsv4-rpcrdma-version-two, and "ietf"
    /// draft-ietf-nfsv4-rpcrdma-version-two. `None` if none has.
    pub fn drafts(self) -> Option<&'static str> {
        Some(match self {
            Self::HeaderType(0 | 1 | 5) => "cel-01",
            Self::HeaderType(6) => "cel-03 to cel-07 or ietf-02 to ietf-07",
            Self::HeaderType(7..=9) => "cel-03 to cel-07 or ietf-03 to ietf-07",
            Self::HeaderType(10..=13) => "ietf-03 to ietf-07",
            Self::ErrorCode(4) => "cel-02 to cel-09 or ietf-00 to ietf-07",
            Self::ErrorCode(5) => "cel-02 to cel-09 or ietf-00 to ietf-07",
            Self::ErrorCode(6) => "cel-03 to cel-09 or ietf-00 to ietf-07",
            Self::ErrorCode(7..=9) => "cel-04 to cel-09 or ietf-00 to ietf-07",
            Self::ErrorCode(10) => "cel-04 to cel-07 or ietf-00 to ietf-07",
            Self::ErrorCode(11) => "ietf-05 to ietf-07",
            Self::ErrorCode(100) => "ietf-01 to ietf-07",
            Self::HeaderType(_) | Self::ErrorCode(_) => return None,
        })
    }
}

/// Content of a message, to be found in a dialect.
enum Content {
    /// An RDMA2_ERROR with this code.
    Error(u32),
    /// Any other header type, with so many octets behind the fixed part.
    Header(u32, usize),
}

fn in_cel01(content: Content) -> bool {
    match content {
        Content::Error(code) => matches!(
            code,
            error_code::VERS | error_code::BAD_HEADER | error_code::INVAL_OPTION
        ),
        Content::Header(header_type, _) => matches!(
            header_type,
            procedure::MSG | procedure::NOMSG | procedure::OPTIONAL
        ),
    }
}

fn in_ietf07(content: Content) -> bool {
    match content {
        Content::Error(code) => {
            (ietf07::error_code::VERS..=ietf07::error_code::VERS_MISMATCH).contains(&code)
                || code == ietf07::error_code::SYSTEM
        }
        // RDMA2_OPTIONAL has the number of RDMA2_GRANT, and never ends with the fixed part.
        Content::Header(header_type::GRANT, behind) => behind == 0,
        Content::Header(header_type, _) => {
            (header_type::ERROR..=header_type::REPLY_INLINE).contains(&header_type)
        }
    }
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HeaderType(header_type) => write!(f, "header type {header_type}")?,
            Self::ErrorCode(code) => write!(f, "error code {code}")?,
        }
        match self.drafts() {
            Some(drafts) => write!(f, " of {drafts}"),
            None => f.write_str(", which no draft has"),
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Dialect {
    type Err = UnknownDialect;

    fn from_str(name: &str) -> Result<Self, UnknownDialect> {
        let mut all = Self::ALL.into_iter();
        all.find(|dialect| dialect.name() == name)
            .ok_or_else(|| UnknownDialect(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dialects_are_known_by_their_names() {
        for dialect in Dialect::ALL {
            assert_eq!(dialect.to_string().parse(), Ok(dialect));
        }
        let error = "ietf-06".parse::<Dialect>().expect_err("not built");
        assert!(
            error.to_string().contains("known: cel-01, ietf-07"),
            "{error}"
        );
    }

    #[test]
    fn announcement_is_found_at_every_offset() {
        let announcement = Dialect::Cel01.announcement();
        for offset in 0..20 {
            let mut data = vec![b'r'; offset];
            data.extend_from_slice(&announcement);
            assert_eq!(Dialect::announced(&data[..data.len() - 1]), None);
            data.resize(40, 0);
            assert_eq!(Dialect::announced(&data), Some(Dialect::Cel01));
        }
        assert_eq!(Dialect::announced(b""), None);
        assert_eq!(Dialect::announced(b"rpc2ietf"), None);
    }

    #[test]
    fn what_cel_01_does_not_have_is_of_another_draft() {
        let words = crate::wire::header::tests::words;
        let of = |wire: &[u32]| {
            Foreign::in_message(Dialect::Cel01, &words(wire)).map(|foreign| foreign.to_string())
        };
        for header_type in [0, 1, 5] {
            assert_eq!(of(&[7, 2, 32, header_type]), None);
        }
        for code in [1, 2, 3] {
            assert_eq!(of(&[7, 2, 32, 4, code]), None);
        }
        // Another version, or too little to tell.
        assert_eq!(of(&[7, 1, 32, 7]), None);
        assert_eq!(of(&[7, 2, 32]), None);
        assert_eq!(of(&[7, 2, 32, 4]), None);
        let said = |wire: &[u32], expected: &str| assert_eq!(of(wire).as_deref(), Some(expected));
        said(
            &[0, 2, 128, 7],
            "header type 7 of cel-03 to cel-07 or ietf-03 to ietf-07",
        );
        said(&[7, 2, 32, 10, 0], "header type 10 of ietf-03 to ietf-07");
        said(&[7, 2, 32, 77], "header type 77, which no draft has");
        said(&[7, 2, 32, 4, 11], "error code 11 of ietf-05 to ietf-07");
    }

    #[test]
    fn what_ietf_07_does_not_have_is_of_another_draft_if_one_has_it() {
        let words = crate::wire::header::tests::words;
        let of = |wire: &[u32]| {
            Foreign::in_message(Dialect::Ietf07, &words(wire)).map(|foreign| foreign.to_string())
        };
        for header_type in 5..14 {
            assert_eq!(of(&[7, 2, 32, header_type]), None);
        }
        for header_type in [2, 3, 14, u32::MAX] {
            assert_eq!(of(&[7, 2, 32, header_type]), None, "a later header type");
        }
        for wire in [&[7, 2, 32, 0][..], &[7, 2, 32, 1], &[7, 2, 32, 5, 0]] {
            let said = of(wire).expect("it is of cel-01");
            assert!(said.ends_with("of cel-01"), "{said}");
        }
        assert_eq!(
            of(&[7, 2, 32, 4, 12]).as_deref(),
            Some("error code 12, which no draft has")
        );
    }
}
