//! CREATE_SESSION and BIND_CONN_TO_SESSION: what they say of the connection (RFC 8881 §18.34,
//! §18.36), and how to change it in place. The flags of EXCHANGE_ID (RFC 8881 §18.35).

use super::compound::operation::{BIND_CONN_TO_SESSION, CREATE_SESSION, EXCHANGE_ID};
use smallvec::SmallVec;
use std::ops::Range;

/// `CREATE_SESSION4_FLAG_CONN_BACK_CHAN`: the connection is for callbacks, too (RFC 8881 §18.36.3).
pub const CONN_BACK_CHAN: u32 = 2;

/// `CREATE_SESSION4_FLAG_CONN_RDMA`: the connection is to go on in RDMA mode (RFC 8881 §18.36.3).
pub const CONN_RDMA: u32 = 4;

/// `EXCHGID4_FLAG_USE_NON_PNFS`: the server is used without pNFS (RFC 8881 §18.35.3).
pub const USE_NON_PNFS: u32 = 0x1_0000;

/// `EXCHGID4_FLAG_USE_PNFS_MDS`: the server is a metadata server of pNFS, whose clients reach data
/// servers by themselves (RFC 8881 §18.35.3).
pub const USE_PNFS_MDS: u32 = 0x2_0000;

/// Words of `channel_attrs4` before `ca_rdma_ird`.
const SIZES: usize = 6;

/// A word of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// Bytes of the message before it.
    pub offset: usize,
    /// Value.
    pub value: u32,
}

/// Bytes of a message to replace by others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// Bytes to replace.
    pub range: Range<usize>,
    /// Bytes in their place.
    pub bytes: SmallVec<[u8; 32]>,
}

/// Attributes of a channel of a session, `channel_attrs4` (RFC 8881 §18.36.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelAttributes {
    /// `ca_headerpadsize`, in bytes.
    pub header_pad_size: u32,
    /// `ca_maxrequestsize`: bytes of the largest call.
    pub max_request_size: u32,
    /// `ca_maxresponsesize`: bytes of the largest reply.
    pub max_response_size: u32,
    /// `ca_maxresponsesize_cached`: bytes of the largest reply that is cached.
    pub max_response_size_cached: u32,
    /// `ca_maxoperations`: operations in one COMPOUND.
    pub max_operations: u32,
    /// `ca_maxrequests`: slots.
    pub max_requests: u32,
    /// `ca_rdma_ird`.
    pub rdma_ird: Option<u32>,
}

/// A channel of a session in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channel {
    /// Bytes of the message before its attributes.
    pub offset: usize,
    /// Its attributes.
    pub attributes: ChannelAttributes,
}

/// CREATE_SESSION in a call or in its reply (RFC 8881 §18.36).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateSession {
    /// `csa_flags` or `csr_flags`.
    pub flags: Word,
    /// `csa_fore_chan_attrs` or `csr_fore_chan_attrs`: calls of the client.
    pub fore: Channel,
    /// `csa_back_chan_attrs` or `csr_back_chan_attrs`: callbacks.
    pub back: Channel,
}

/// BIND_CONN_TO_SESSION in a call or in its reply (RFC 8881 §18.34).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindConnection {
    /// `bctsa_dir` or `bctsr_dir`.
    pub direction: Word,
    /// `bctsa_use_conn_in_rdma_mode` or `bctsr_use_conn_in_rdma_mode`.
    pub rdma_mode: Word,
}

/// The operation of a COMPOUND that says how its connection is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionOperation {
    /// CREATE_SESSION.
    Create(CreateSession),
    /// BIND_CONN_TO_SESSION.
    Bind(BindConnection),
}

impl Word {
    /// Returns the edit that gives the word another value.
    pub fn replace(self, value: u32) -> Edit {
        Edit {
            range: self.offset..self.offset + 4,
            bytes: SmallVec::from_slice(&value.to_be_bytes()),
        }
    }
}

impl Channel {
    /// Returns the edit that gives the channel other attributes. The message becomes shorter or
    /// longer if `rdma_ird` is removed or added.
    pub fn replace(&self, attributes: ChannelAttributes) -> Edit {
        Edit {
            range: self.offset..self.offset + self.attributes.len(),
            bytes: attributes.to_bytes(),
        }
    }
}

impl ChannelAttributes {
    fn sizes(&self) -> [u32; SIZES] {
        [
            self.header_pad_size,
            self.max_request_size,
            self.max_response_size,
            self.max_response_size_cached,
            self.max_operations,
            self.max_requests,
        ]
    }

    /// Returns the length in bytes.
    fn len(&self) -> usize {
        4 * (SIZES + 1 + usize::from(self.rdma_ird.is_some()))
    }

    fn to_bytes(self) -> SmallVec<[u8; 32]> {
        let count = u32::from(self.rdma_ird.is_some());
        let words = self.sizes().into_iter().chain([count]).chain(self.rdma_ird);
        words.flat_map(u32::to_be_bytes).collect()
    }
}

impl SessionOperation {
    /// Whether the connection carries callbacks: in a call, whether the client is ready for them,
    /// and in a reply, whether the server will send them here.
    pub fn has_callbacks(&self) -> bool {
        match self {
            Self::Create(create) => create.flags.value & CONN_BACK_CHAN != 0,
            // CDFC4_BACK, CDFC4_FORE_OR_BOTH and CDFC4_BACK_OR_BOTH; CDFS4_BACK and CDFS4_BOTH.
            Self::Bind(bind) => matches!(bind.direction.value, 2 | 3 | 7),
        }
    }
}

/// The operations of which a scan keeps words, in order. A COMPOUND has no more than
/// [`MAX_OPERATIONS`](crate::limits::MAX_OPERATIONS).
#[derive(Clone, Debug, Default)]
pub(super) struct Kept(SmallVec<[KeptOperation; 1]>);

/// The words that a scan keeps of one operation. They follow each other.
#[derive(Clone, Debug, Default)]
struct KeptOperation {
    operation: u8,
    /// Place of the operation in the COMPOUND.
    index: usize,
    /// Offset of the first word.
    offset: usize,
    words: SmallVec<[u32; 2 * SIZES + 5]>,
}

impl Kept {
    pub(super) fn push(&mut self, operation: u8, index: usize, offset: usize, word: u32) {
        match self.0.last_mut() {
            Some(kept) if kept.index == index => kept.words.push(word),
            _ => self.0.push(KeptOperation {
                operation,
                index,
                offset,
                words: SmallVec::from_slice(&[word]),
            }),
        }
    }

    /// Returns the operations of which all words were read.
    pub(super) fn operations(&self) -> impl Iterator<Item = SessionOperation> {
        self.0.iter().filter_map(KeptOperation::operation)
    }

    /// Returns the flags of each EXCHANGE_ID.
    pub(super) fn exchange_flags(&self) -> impl Iterator<Item = Word> {
        let exchanges = self.0.iter();
        let exchanges = exchanges.filter(|kept| u32::from(kept.operation) == EXCHANGE_ID);
        exchanges.filter_map(|kept| {
            Some(Word {
                offset: kept.offset,
                value: *kept.words.first()?,
            })
        })
    }
}

impl KeptOperation {
    fn operation(&self) -> Option<SessionOperation> {
        let mut words = Words {
            words: &self.words,
            offset: self.offset,
        };
        Some(match u32::from(self.operation) {
            CREATE_SESSION => SessionOperation::Create(CreateSession {
                flags: words.next()?,
                fore: words.channel()?,
                back: words.channel()?,
            }),
            BIND_CONN_TO_SESSION => SessionOperation::Bind(BindConnection {
                direction: words.next()?,
                rdma_mode: words.next()?,
            }),
            _ => return None,
        })
    }
}

/// The kept words that are still to be taken.
struct Words<'a> {
    words: &'a [u32],
    offset: usize,
}

impl Words<'_> {
    fn next(&mut self) -> Option<Word> {
        let (&value, rest) = self.words.split_first()?;
        let offset = self.offset;
        self.words = rest;
        self.offset += 4;
        Some(Word { offset, value })
    }

    fn channel(&mut self) -> Option<Channel> {
        let offset = self.offset;
        let mut next = || self.next().map(|word| word.value);
        let attributes = ChannelAttributes {
            header_pad_size: next()?,
            max_request_size: next()?,
            max_response_size: next()?,
            max_response_size_cached: next()?,
            max_operations: next()?,
            max_requests: next()?,
            rdma_ird: match next()? {
                0 => None,
                _ => Some(next()?),
            },
        };
        Some(Channel { offset, attributes })
    }
}
