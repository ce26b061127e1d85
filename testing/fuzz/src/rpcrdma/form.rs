//! Messages in whichever form a connection has them: of version one, or of version two with or
//! without a word for remote invalidation.

use super::owner::Connection;
use buffer::Buffer;
use rpcrdma_proto::header::{self, HeaderView, Lists, VERSION, procedure};
use rpcrdma_proto::limits::MAX_INVALIDATE_HANDLES;
use rpcrdma_proto::v2::header::{self as two, ChunkLists, Invalidate, Optional, WordLayout};
use rpcrdma_proto::v2::session::Session;
use rpcrdma_proto::{Direction, Version, Versions};
use verbs::Handle;

/// How a header is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    One,
    Two(WordLayout),
}

/// A valid header.
pub(super) struct Message {
    pub(super) xid: u32,
    pub(super) credits: u32,
    pub(super) body: Body,
}

pub(super) enum Body {
    /// A message of RPC. Version one may not say which way it goes.
    Rpc {
        direction: Option<Direction>,
        named: Vec<Handle>,
        lists: Lists,
    },
    Error,
    Done,
    Optional(Optional),
}

impl Form {
    /// Version and draft of a connection; `None` as long as that is not settled.
    pub(super) fn of(connection: &Connection) -> Option<Self> {
        Some(match connection.version()? {
            Version::One => Self::One,
            Version::Two => {
                let design = connection.session().and_then(Session::design);
                Self::Two(WordLayout::of(design))
            }
        })
    }

    /// That of a message which comes before it is settled what is spoken.
    pub(super) fn of_first(message: &[u8], versions: Versions) -> Self {
        let version = HeaderView::new(message).map(HeaderView::version);
        match version == Some(two::VERSION) && versions.speak(Version::Two) {
            true => Self::Two(WordLayout::None),
            false => Self::One,
        }
    }

    /// A message with RPC in it, or that says so. Where there is a word for it, it names these handles.
    pub(super) fn emit(
        self,
        out: &mut Buffer,
        proc: u32,
        (xid, credits): (u32, u32),
        direction: Direction,
        named: &[Handle],
        lists: &Lists,
    ) {
        let Self::Two(words) = self else {
            return header::emit(out, proc, xid, credits, lists);
        };
        let most = named.len().min(MAX_INVALIDATE_HANDLES);
        let invalidate = match words {
            WordLayout::None => Invalidate::Unsaid,
            WordLayout::One => Invalidate::One(named.first().copied()),
            WordLayout::Several => Invalidate::Several(named[..most].to_vec()),
        };
        let chunks = ChunkLists {
            direction,
            invalidate,
            lists: lists.clone(),
        };
        two::emit(out, proc, xid, credits, &chunks);
    }

    /// A message, if it is valid.
    pub(super) fn parse(self, message: &[u8]) -> Option<Message> {
        match self {
            Self::One => {
                let (header, stream) = header::Header::parse(message).ok()?;
                let body = match header.body {
                    header::Body::Msg(lists) => Body::Rpc {
                        direction: said_by_stream(&message[stream..]),
                        named: Vec::new(),
                        lists,
                    },
                    header::Body::NoMsg(lists) => Body::Rpc {
                        direction: Some(said_by_chunks(&lists)),
                        named: Vec::new(),
                        lists,
                    },
                    header::Body::Error(_) => Body::Error,
                    header::Body::Done => Body::Done,
                };
                Some(Message {
                    xid: header.xid,
                    credits: header.credits,
                    body,
                })
            }
            Self::Two(words) => {
                let (header, _) = two::Header::parse(message, words).ok()?;
                let body = match header.body {
                    two::Body::Msg(chunks) | two::Body::NoMsg(chunks) => Body::Rpc {
                        direction: Some(chunks.direction),
                        named: chunks.invalidate.handles().to_vec(),
                        lists: chunks.lists,
                    },
                    two::Body::Error(_) => Body::Error,
                    two::Body::Optional(optional) => Body::Optional(optional),
                };
                Some(Message {
                    xid: header.xid,
                    credits: header.credits,
                    body,
                })
            }
        }
    }

    /// A message of ours, which is valid. An error has the version of what it is about (RFC 8166
    /// §4.5.1).
    pub(super) fn parse_own(self, message: &[u8]) -> Message {
        let view = HeaderView::new(message).expect("what we send has a header");
        if view.procedure() != procedure::ERROR {
            return self.parse(message).expect("what we send is valid");
        }
        let mut message = message.to_vec();
        let version = match view.version() {
            two::VERSION => two::VERSION,
            _ => VERSION,
        };
        message[4..8].copy_from_slice(&version.to_be_bytes());
        let form = match version {
            VERSION => Self::One,
            _ => Self::Two(WordLayout::None),
        };
        form.parse(&message).expect("what we send is valid")
    }
}

/// RFC 8167 §4.1.
fn said_by_stream(stream: &[u8]) -> Option<Direction> {
    let word = stream.get(4..8)?.first_chunk()?;
    Direction::from_word(u32::from_be_bytes(*word))
}

fn said_by_chunks(lists: &Lists) -> Direction {
    match lists.reads.first() {
        Some(chunk) if chunk.position == 0 => Direction::Call,
        Some(_) | None => Direction::Reply,
    }
}
