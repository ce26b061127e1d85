//! Versions of the protocol, and the answer to a message of another version.

use crate::codec::{Body, Codec};
use crate::role::Role;
use crate::v2::header as two;
use crate::wire::codec::VersionOne;
use crate::wire::direction::Direction;
use crate::wire::header::{self, HeaderView};
use oncrpc::xdr::Reader;

/// A supported version of RPC-over-RDMA. The first valid message of a connection determines its
/// version, which never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// Version one: RFC 8166, [`crate::wire::header`].
    One,
    /// Version two: cel-01, [`crate::v2::header`].
    Two,
}

impl Version {
    /// Returns the value of `rdma_vers`.
    pub fn number(self) -> u32 {
        match self {
            Self::One => header::VERSION,
            Self::Two => two::VERSION,
        }
    }

    /// Returns the version with this `rdma_vers`, if it is supported.
    pub fn from_number(number: u32) -> Option<Self> {
        match number {
            header::VERSION => Some(Self::One),
            two::VERSION => Some(Self::Two),
            _ => None,
        }
    }
}

/// Reads `rdma_vers` of a message that has the fixed words, which all versions share (RFC 8166
/// §4.2, cel-01 §4.2).
pub fn version_of(message: &[u8]) -> Option<u32> {
    HeaderView::new(message).map(HeaderView::version)
}

/// An ERR_VERS to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// XID of the refused message.
    pub xid: u32,
    /// Version of the refused message.
    pub version: u32,
    /// Credits that the refused message requests.
    pub credits: u32,
}

impl Refusal {
    /// Returns the answer to a message whose version is not that of the connection: an ERR_VERS for
    /// a call, nothing for a reply, an error, or a message that is too short to tell (RFC 8166
    /// §4.5).
    ///
    /// If the message does not tell whether it is a call or a reply, a client takes it for a reply,
    /// and a server for a call unless `awaited` reports that it waits for a reply with that XID.
    pub fn of(message: &[u8], role: Role, awaited: impl Fn() -> bool) -> Option<Self> {
        let view = HeaderView::new(message)?;
        // The length of a header of another version is not known; no version has a shorter one.
        let is_runt = message.len() < header::MIN_LEN;
        if is_runt || view.procedure() == header::procedure::ERROR {
            return None;
        }
        let usual = || {
            if role == Role::Client || awaited() {
                Direction::Reply
            } else {
                Direction::Call
            }
        };
        match told(view, message, role, &awaited).unwrap_or_else(usual) {
            Direction::Reply => None,
            Direction::Call => Some(Self {
                xid: view.xid(),
                version: view.version(),
                credits: view.credits(),
            }),
        }
    }
}

/// Returns the direction of a message, as its version tells it.
fn told(
    view: HeaderView<'_>,
    message: &[u8],
    role: Role,
    awaited: impl Fn() -> bool,
) -> Option<Direction> {
    match Version::from_number(view.version())? {
        Version::One => {
            let header = VersionOne.parse(message).ok()?;
            Some(match &header.body {
                Body::Rpc(rpc) => role.direction_of(rpc, awaited),
                // RFC 8166 §4.2.4: only a Responder sends errors.
                Body::Error(_)
                | Body::Done
                | Body::Control(_)
                | Body::Part { .. }
                | Body::Properties { .. }
                | Body::Grant => Direction::Reply,
            })
        }
        Version::Two => match view.procedure() {
            // The same word in the same place, whatever else is behind it.
            two::procedure::MSG | two::procedure::NOMSG | two::procedure::OPTIONAL => {
                let word = Reader::new(&message[HeaderView::FIXED_LEN..]).u32().ok()?;
                Direction::from_word(word)
            }
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::header::tests::words;

    /// Whether ERR_VERS is owed, at a server and at a client.
    fn refused(wire: &[u32]) -> [bool; 2] {
        [Role::Server, Role::Client].map(|role| {
            let refusal = Refusal::of(&words(wire), role, || false);
            if let Some(refusal) = refusal {
                assert_eq!(refusal.xid, wire[0]);
                assert_eq!((refusal.version, refusal.credits), (wire[1], wire[2]));
            }
            refusal.is_some()
        })
    }

    #[test]
    fn version_is_the_second_word_of_anything_with_four() {
        assert_eq!(version_of(&words(&[7, 2, 32, 0])), Some(2));
        assert_eq!(version_of(&words(&[7, 9, 32, 0, 1])), Some(9));
        assert_eq!(version_of(&words(&[7, 2, 32])), None);
        for version in [Version::One, Version::Two] {
            assert_eq!(Version::from_number(version.number()), Some(version));
        }
        assert_eq!(Version::from_number(0), None);
        assert_eq!(Version::from_number(3), None);
    }

    #[test]
    fn call_of_another_version_is_refused_wherever_it_says_that_it_is_one() {
        // Version two says so in the header, version one in the RPC message or by its chunks.
        assert_eq!(refused(&[7, 2, 32, 0, 0, 0, 0, 0]), [true, true]);
        assert_eq!(refused(&[7, 2, 32, 5, 0, 1, 0]), [true, true]);
        assert_eq!(refused(&[7, 1, 32, 0, 0, 0, 0, 7, 0]), [true, true]);
        let long_call = [7, 1, 32, 1, 1, 0, 0xa, 100, 0, 0, 0, 0, 0];
        assert_eq!(refused(&long_call), [true, true]);
    }

    #[test]
    fn reply_or_error_of_another_version_draws_nothing() {
        assert_eq!(refused(&[7, 2, 32, 0, 1, 0, 0, 0]), [false, false]);
        assert_eq!(refused(&[7, 2, 32, 5, 1, 1, 0]), [false, false]);
        assert_eq!(refused(&[7, 1, 32, 0, 0, 0, 0, 7, 1]), [false, false]);
        for version in [1, 2, 3] {
            assert_eq!(refused(&[7, version, 32, 4, 1, 1, 2]), [false, false]);
        }
    }

    #[test]
    fn what_does_not_tell_is_what_this_end_mostly_gets() {
        let check = |wire: &[u32]| assert_eq!(refused(wire), [true, false], "{wire:?}");
        check(&[7, 3, 32, 0, 0, 0, 0]);
        check(&[7, 2, 32, 9, 0, 0, 0]);
        check(&[7, 2, 32, 0, 2, 0, 0]);
        check(&[7, 1, 32, 9, 0, 0, 0]);
        let awaited = Refusal::of(&words(&[7, 3, 32, 0, 0, 0, 0]), Role::Server, || true);
        assert_eq!(awaited, None);
    }

    #[test]
    fn what_is_too_short_for_any_version_draws_nothing() {
        assert_eq!(refused(&[7, 2, 32, 0, 0, 0]), [false, false]);
        assert_eq!(refused(&[7, 3, 32]), [false, false]);
    }

    #[test]
    fn err_vers_is_read_by_either_version() {
        let emitted = |version| {
            let mut out = buffer::Buffer::default();
            let refused = crate::codec::Refused {
                xid: 7,
                version,
                credits: 16,
                rejection: crate::codec::Rejection::Versions { low: 1, high: 2 },
            };
            VersionOne.emit_error(&mut out, refused);
            out
        };
        assert_eq!(*emitted(1), words(&[7, 1, 16, 4, 1, 1, 2]));
        let (one, _) = header::Header::parse(&emitted(1)).expect("of version one");
        let range = header::RdmaError::Version { low: 1, high: 2 };
        assert_eq!(one.body, header::Body::Error(range));
        let layout = two::WordLayout::None;
        let (two, _) = two::Header::parse(&emitted(2), layout).expect("of version two");
        let range = two::RdmaError::Version { low: 1, high: 2 };
        assert_eq!(two.body, crate::v2::header::Body::Error(range));
    }
}
