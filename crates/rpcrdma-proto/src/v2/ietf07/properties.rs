//! Transport properties (§5).

use super::malformation::Malformation;
use crate::limits::{MAX_HOST_AUTH, MAX_PROPERTIES};
use crate::wire::header::{emit_words, word};
use buffer::Buffer;
use oncrpc::xdr;
use oncrpc::xdr::{Reader, pad, padded};

/// Values of `rdma_which` (§5.2).
pub mod property {
    /// RDMA2_PROPID_SBSIZ: Maximum Send Size.
    pub const SBSIZ: u32 = 1;
    /// RDMA2_PROPID_RBSIZ: Receive Buffer Size.
    pub const RBSIZ: u32 = 2;
    /// RDMA2_PROPID_RSSIZ: Maximum Segment Size.
    pub const RSSIZ: u32 = 3;
    /// RDMA2_PROPID_RCSIZ: Maximum Segment Count.
    pub const RCSIZ: u32 = 4;
    /// RDMA2_PROPID_BRS: Reverse-Direction Support.
    pub const BRS: u32 = 5;
    /// RDMA2_PROPID_HOSTAUTH: Host Authentication Message.
    pub const HOSTAUTH: u32 = 6;
}

/// Level of support for calls in the reverse direction, in ascending order (§5.2.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReverseSupport {
    /// RDMA2_RVRSDIR_NONE: no calls.
    #[default]
    None,
    /// RDMA2_RVRSDIR_SIMPLE: whole messages without chunks.
    Simple,
    /// RDMA2_RVRSDIR_CONT: also messages in several parts, without chunks.
    Continued,
    /// RDMA2_RVRSDIR_GENL: the same as in the forward direction.
    General,
}

impl ReverseSupport {
    /// Decodes the level. A level that the draft does not define is [`None`](Self::None): it is
    /// valid by its type, and not known to include any other.
    pub fn from_word(word: u32) -> Self {
        match word {
            1 => Self::Simple,
            2 => Self::Continued,
            3 => Self::General,
            _ => Self::None,
        }
    }

    /// Returns the word on the wire.
    pub fn word(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Simple => 1,
            Self::Continued => 2,
            Self::General => 3,
        }
    }
}

/// `rpcrdma2_propset` of one message: the properties that it sets.
///
/// Unknown properties are skipped, and lost. A value without octets stands for the default of its
/// property (§5.1), and is parsed to that. Values are those of the peer, without bounds: zero and
/// [`u32::MAX`] are possible.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PropertySet {
    /// Largest message that the sender of the set sends, in bytes (§5.2.1).
    pub max_send: Option<u32>,
    /// Least size of its Receives, in bytes (§5.2.2).
    pub receive_buffer: Option<u32>,
    /// Largest segment that it offers or accepts, in bytes (§5.2.3).
    pub max_segment_size: Option<u32>,
    /// Largest number of segments in a header of a Requester that it accepts (§5.2.4).
    pub max_segments: Option<u32>,
    /// Calls of a server that a client accepts (§5.2.5).
    pub reverse: Option<ReverseSupport>,
    /// Material for host authentication, at most [`MAX_HOST_AUTH`] bytes, which nothing here
    /// interprets (§5.2.6). It has no default: a value without octets is `None`.
    pub host_auth: Option<Vec<u8>>,
}

/// The properties of an end of a connection, with the defaults of those that it has not set (§5.2,
/// Table 1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    /// [`PropertySet::max_send`], by default 4096.
    pub max_send: u32,
    /// [`PropertySet::receive_buffer`], by default 4096.
    pub receive_buffer: u32,
    /// [`PropertySet::max_segment_size`], by default 1 MiB.
    pub max_segment_size: u32,
    /// [`PropertySet::max_segments`], by default 16.
    pub max_segments: u32,
    /// [`PropertySet::reverse`], by default none.
    pub reverse: ReverseSupport,
    /// [`PropertySet::host_auth`], by default absent: the end is not authenticated.
    pub host_auth: Option<Vec<u8>>,
}

impl Default for Properties {
    fn default() -> Self {
        Self {
            max_send: 4096,
            receive_buffer: 4096,
            max_segment_size: 1 << 20,
            max_segments: 16,
            reverse: ReverseSupport::None,
            host_auth: None,
        }
    }
}

impl Properties {
    /// Applies the properties of a message. A value replaces that of an earlier message.
    pub fn apply(&mut self, set: PropertySet) {
        let PropertySet {
            max_send,
            receive_buffer,
            max_segment_size,
            max_segments,
            reverse,
            host_auth,
        } = set;
        self.max_send = max_send.unwrap_or(self.max_send);
        self.receive_buffer = receive_buffer.unwrap_or(self.receive_buffer);
        self.max_segment_size = max_segment_size.unwrap_or(self.max_segment_size);
        self.max_segments = max_segments.unwrap_or(self.max_segments);
        self.reverse = reverse.unwrap_or(self.reverse);
        self.host_auth = host_auth.or(self.host_auth.take());
    }
}

impl PropertySet {
    pub(super) fn parse(r: &mut Reader<'_>) -> Result<Self, Malformation> {
        let count = r.u32()? as usize;
        if count > MAX_PROPERTIES {
            return Err(Malformation::TooManyProperties);
        }
        let mut set = Self::default();
        let mut seen = [false; property::HOSTAUTH as usize + 1];
        for _ in 0..count {
            let which = r.u32()?;
            let seen = seen.get_mut(which as usize).filter(|_| which != 0);
            // Longer than the message it cannot be.
            let data = r.opaque(u32::MAX);
            let Some(seen) = seen else {
                data?;
                continue;
            };
            // Two values of one property are no set.
            if std::mem::replace(seen, true) {
                return Err(Malformation::PropertyTwice(which));
            }
            // §5.1: the error of a value also if its length is that of the message, or more.
            data.and_then(|data| set.take(which, data))
                .map_err(|cause| Malformation::Property { which, cause })?;
        }
        Ok(set)
    }

    /// Sets a known property to its value on the wire. Octets behind the value are ignored.
    fn take(&mut self, which: u32, data: &[u8]) -> Result<(), xdr::Error> {
        let default = Properties::default();
        let mut r = Reader::new(data);
        let mut number = |default| {
            if data.is_empty() {
                Ok(default)
            } else {
                r.u32()
            }
        };
        match which {
            property::SBSIZ => self.max_send = Some(number(default.max_send)?),
            property::RBSIZ => self.receive_buffer = Some(number(default.receive_buffer)?),
            property::RSSIZ => self.max_segment_size = Some(number(default.max_segment_size)?),
            property::RCSIZ => self.max_segments = Some(number(default.max_segments)?),
            property::BRS => {
                let level = number(default.reverse.word())?;
                self.reverse = Some(ReverseSupport::from_word(level));
            }
            _ if data.is_empty() => self.host_auth = None,
            _ => self.host_auth = Some(r.opaque(MAX_HOST_AUTH)?.to_vec()),
        }
        Ok(())
    }

    /// The properties with a number for a value, in the order of their ids.
    fn numbers(&self) -> impl Iterator<Item = (u32, u32)> {
        let level = self.reverse.map(ReverseSupport::word);
        [
            (property::SBSIZ, self.max_send),
            (property::RBSIZ, self.receive_buffer),
            (property::RSSIZ, self.max_segment_size),
            (property::RCSIZ, self.max_segments),
            (property::BRS, level),
        ]
        .into_iter()
        .filter_map(|(which, value)| Some((which, value?)))
    }

    /// Returns the octets of the set on the wire.
    pub(super) fn emitted_len(&self) -> usize {
        let auth = self.host_auth.as_ref();
        4 + self.numbers().count() * 12 + auth.map_or(0, |auth| 12 + padded(auth.len()))
    }

    /// Appends the set.
    ///
    /// # Panics
    ///
    /// If the material for host authentication exceeds [`MAX_HOST_AUTH`].
    pub(super) fn emit(&self, out: &mut Buffer) {
        let count = self.numbers().count() + usize::from(self.host_auth.is_some());
        length(out, count);
        for (which, value) in self.numbers() {
            emit_words(out, [which, 4, value]);
        }
        if let Some(auth) = &self.host_auth {
            assert!(
                auth.len() <= MAX_HOST_AUTH as usize,
                "material for host authentication fits a message"
            );
            word(out, property::HOSTAUTH);
            // An opaque array within opaque data.
            length(out, 4 + padded(auth.len()));
            length(out, auth.len());
            out.extend_from_slice(auth);
            out.extend_from_slice(&[0; 3][..pad(auth.len())]);
        }
    }
}

fn length(out: &mut Buffer, len: usize) {
    word(out, u32::try_from(len).expect("messages are limited"));
}
