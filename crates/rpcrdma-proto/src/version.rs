//! Which version a message is of, and what is owed for one of another version.

use crate::connection::Role;
use crate::direction::Direction;
use crate::header::{self, HeaderView, RdmaError};
use crate::v2;
use buffer::Buffer;

/// A version of RPC-over-RDMA that is spoken here. A connection has one of them: its first valid
/// message decides, and nobody changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// RFC 8166: [`crate::header`].
    One,
    /// cel-01: [`crate::v2::header`].
    Two,
}

impl Version {
    /// `rdma_vers`.
    pub fn number(self) -> u32 {
        match self {
            Self::One => header::VERSION,
            Self::Two => v2::header::VERSION,
        }
    }

    /// The version with this `rdma_vers`, if it is spoken here.
    pub fn from_number(number: u32) -> Option<Self> {
        match number {
            header::VERSION => Some(Self::One),
            v2::header::VERSION => Some(Self::Two),
            _ => None,
        }
    }
}

/// `rdma_vers` of a message, if it has the fixed words, which all versions share (RFC 8166 §4.2,
/// cel-01 §4.2).
pub fn version_of(message: &[u8]) -> Option<u32> {
    HeaderView::new(message).map(HeaderView::version)
}

/// An ERR_VERS that is owed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Of the message that is refused.
    pub xid: u32,
    /// Its version.
    pub version: u32,
    /// Credits it asks for.
    pub credits: u32,
}

impl Refusal {
    /// What is owed for a message whose version is not that of the connection: something for a call,
    /// nothing for a reply, an error, or what is too short to tell (RFC 8166 §4.5).
    ///
    /// Where the message does not tell which it is, a client has a reply and a server a call, unless
    /// it awaits a reply with that XID: `awaited` is whether it does.
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

    /// Appends the ERR_VERS, which grants `credits`, and supports the versions from `low` to `high`.
    ///
    /// It is the same in every version, but for `rdma_vers`, which is that of the message that is
    /// refused (RFC 8166 §4.5): so whoever sent that can read it.
    pub fn emit(self, out: &mut Buffer, credits: u32, low: Version, high: Version) {
        let range = RdmaError::Version {
            low: low.number(),
            high: high.number(),
        };
        header::emit_error(out, self.xid, self.version, credits, range);
    }
}

/// Which way a message says that it goes, in the way of its version.
fn told(
    view: HeaderView<'_>,
    message: &[u8],
    role: Role,
    awaited: impl Fn() -> bool,
) -> Option<Direction> {
    match Version::from_number(view.version())? {
        Version::One => {
            let (header, stream) = header::Header::parse(message).ok()?;
            let stream = &message[stream..];
            Some(Direction::of(role, &header, stream, awaited))
        }
        // The same word in the same place, whatever else the header has.
        Version::Two => {
            let body = &message[HeaderView::FIXED_LEN..];
            let layout = v2::header::WordLayout::None;
            let word = match v2::header::BodyView::new(view.procedure(), layout, body) {
                v2::header::BodyView::Chunks(chunks) => chunks.direction,
                v2::header::BodyView::Optional(optional) => optional.direction,
                v2::header::BodyView::Error(_) | v2::header::BodyView::Unknown => None,
            };
            Direction::from_word(word?)
        }
    }
}
