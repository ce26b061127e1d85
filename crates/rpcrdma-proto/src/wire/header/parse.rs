//! Parser of the header.

use super::chunk::parse_segment;
use super::emit::plain;
use super::view::HeaderView;
use super::{Body, Header, Lists, MIN_LEN, RdmaError, ReadChunk, Segments, VERSION, WriteChunk};
use super::{error_code, procedure};
use crate::limits::{MAX_READ_CHUNKS, MAX_READ_SEGMENTS, MAX_SEGMENTS_PER_CHUNK, MAX_WRITE_CHUNKS};
use oncrpc::xdr;
use oncrpc::xdr::Reader;
use std::fmt;

/// Why a message has no valid header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The message is too short; not even its XID is trusted.
    #[error("shorter than any header (RFC 8166 §4.5)")]
    Runt,
    /// The message is an RDMA_ERROR with unknown content.
    #[error("an RDMA_ERROR that cannot be read (RFC 8166 §4.5)")]
    UnreadableError,
    /// The version is not one.
    #[error("version {version} is not supported (RFC 8166 §4.5.1)")]
    UnsupportedVersion {
        /// XID of the message.
        xid: u32,
        /// Version of the message.
        version: u32,
        /// Credits that the message requests.
        credits: u32,
    },
    /// The header is malformed.
    #[error("{cause} (RFC 8166 §4.5.2)")]
    Malformed {
        /// XID of the message.
        xid: u32,
        /// Credits that the message requests.
        credits: u32,
        /// The malformation.
        cause: Malformation,
    },
}

/// A malformation of a header or its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformation {
    /// The lists are not valid XDR.
    #[error(transparent)]
    Xdr(#[from] xdr::Error),
    /// The procedure is unknown or no longer in use.
    #[error("procedure {0}")]
    Procedure(u32),
    /// A Position is not a multiple of four (RFC 8166 §3.4.5).
    #[error("position {0} is not aligned")]
    UnalignedPosition(u32),
    /// A number exceeds a limit.
    #[error("more than {limit} {of}")]
    TooMany {
        /// The parts of the header that are too many.
        of: Counted,
        /// The limit.
        limit: usize,
    },
    /// The message is an RDMA_NOMSG without a chunk for the RPC message, or an RDMA_MSG that has it
    /// in a chunk too.
    #[error("the payload stream is in no chunk, or both inline and in a chunk")]
    NoStream,
    /// The RPC message has another XID than the header, or none.
    #[error("the XID of the RPC message differs from that of the header")]
    XidMismatch,
    /// A Read chunk overlaps the one before it, or is beyond the end of the stream.
    #[error("the read chunk at position {0} overlaps another one or is beyond the stream")]
    MisplacedChunk(u32),
    /// The Read chunks exceed the limit of one call.
    #[error("read chunks of {len} bytes exceed the limit of {limit}")]
    ChunkTooLarge {
        /// Octets of the Read chunks.
        len: u64,
        /// The limit.
        limit: usize,
    },
    /// The chunks of this call broke a connection before (RFC 8166 §4.5.3).
    #[error("the chunks of this call broke a connection before (RFC 8166 §4.5.3)")]
    FailedBefore,
    /// The message has chunks in a direction without chunks (RFC 8167 §5.3).
    #[error("chunks in the backward direction (RFC 8167 §5.3)")]
    ChunksBackward,
    /// The connection does not support RDMA Read.
    #[error("a read chunk on a connection without RDMA Read")]
    ReadImpossible,
}

/// Parts of a header whose number has a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Segments of the Read list.
    ReadSegments,
    /// Read chunks.
    ReadChunks,
    /// Write chunks.
    WriteChunks,
    /// Segments of one Write or Reply chunk.
    ChunkSegments,
    /// Handles for remote invalidation.
    Handles,
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ReadSegments => "read segments",
            Self::ReadChunks => "read chunks",
            Self::WriteChunks => "write chunks",
            Self::ChunkSegments => "segments in a chunk",
            Self::Handles => "handles to invalidate",
        })
    }
}

/// How a Responder answers an invalid header (RFC 8166 §4.5). A Requester discards it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// Send nothing.
    Discard,
    /// Send an RDMA_ERROR with ERR_VERS, the range 1 to 1, and the version echoed.
    ErrVers {
        /// XID to echo.
        xid: u32,
        /// Version to echo.
        version: u32,
        /// Credits that the message requests.
        credits: u32,
    },
    /// Send an RDMA_ERROR with ERR_CHUNK.
    ErrChunk {
        /// XID to echo.
        xid: u32,
        /// Credits that the message requests.
        credits: u32,
    },
}

impl HeaderError {
    /// Returns how a Responder answers.
    pub fn disposition(self) -> Disposition {
        match self {
            Self::Runt | Self::UnreadableError => Disposition::Discard,
            Self::UnsupportedVersion {
                xid,
                version,
                credits,
            } => Disposition::ErrVers {
                xid,
                version,
                credits,
            },
            Self::Malformed { xid, credits, .. } => Disposition::ErrChunk { xid, credits },
        }
    }
}

impl Header {
    /// Parses the header of a received message. Also returns the offset of the Payload stream.
    ///
    /// # Errors
    ///
    /// If the message has no valid header of version one.
    pub fn parse(message: &[u8]) -> Result<(Self, usize), HeaderError> {
        let view = HeaderView::new(message).ok_or(HeaderError::Runt)?;
        let (xid, credits) = (view.xid(), view.credits());
        let body = &message[HeaderView::FIXED_LEN..];
        if view.procedure() == procedure::ERROR {
            // Never answered, whatever its version: an error must not draw an error.
            let error = parse_error(view.version(), body).ok_or(HeaderError::UnreadableError)?;
            let header = Self {
                xid,
                credits,
                body: Body::Error(error),
            };
            return Ok((header, message.len()));
        }
        // RFC 8166 §4.5: the XID of anything shorter is not to be trusted.
        if message.len() < MIN_LEN {
            return Err(HeaderError::Runt);
        }
        if view.version() != VERSION {
            return Err(HeaderError::UnsupportedVersion {
                xid,
                version: view.version(),
                credits,
            });
        }
        let malformed = |cause| HeaderError::Malformed {
            xid,
            credits,
            cause,
        };
        let mut r = Reader::new(body);
        let body = parse_body(view.procedure(), &mut r).map_err(malformed)?;
        let stream = message.len() - r.remaining();
        Ok((Self { xid, credits, body }, stream))
    }
}

/// Returns XID and credits of a message whose header is that of an RDMA_MSG without chunks, as nearly every small one
/// has. `None` says nothing of a message: [`Header::parse`] does.
pub(crate) fn parse_plain(message: &[u8]) -> Option<(u32, u32)> {
    let header: &[u8; MIN_LEN] = message.first_chunk()?;
    let view = HeaderView::new(header)?;
    let (xid, credits) = (view.xid(), view.credits());
    (*header == plain(xid, credits)).then_some((xid, credits))
}

fn parse_body(proc: u32, r: &mut Reader<'_>) -> Result<Body, Malformation> {
    match proc {
        procedure::MSG => Ok(Body::Msg(parse_lists(r)?)),
        procedure::NOMSG => {
            let lists = parse_lists(r)?;
            // RFC 8166 §4.5.2. Which of the lists must hold the stream depends on the direction.
            if lists.is_empty() {
                return Err(Malformation::NoStream);
            }
            Ok(Body::NoMsg(lists))
        }
        procedure::DONE => Ok(Body::Done),
        // RFC 8166 §4.6.1: RDMA_MSGP draws ERR_CHUNK like any unknown procedure.
        other => Err(Malformation::Procedure(other)),
    }
}

/// The three lists, which are the same in all versions.
pub(crate) fn parse_lists(r: &mut Reader<'_>) -> Result<Lists, Malformation> {
    let mut reads = Vec::new();
    parse_read_list(r, &mut reads, |_| Ok::<_, Malformation>(()))?;
    Ok(Lists {
        reads,
        writes: parse_write_list(r)?,
        reply: parse_reply_chunk(r)?,
    })
}

/// Reads a Read list behind those that `chunks` holds already: the limits are those of all lists
/// of a call. The Position of each segment must pass `check`, in the order of the list.
pub(crate) fn parse_read_list<E: From<Malformation>>(
    r: &mut Reader<'_>,
    chunks: &mut Vec<ReadChunk>,
    mut check: impl FnMut(u32) -> Result<(), E>,
) -> Result<(), E> {
    let mut count: usize = chunks.iter().map(|chunk| chunk.segments.len()).sum();
    while let Some(position) = parse_position(r)? {
        count += 1;
        if count > MAX_READ_SEGMENTS {
            return Err(too_many(Counted::ReadSegments, MAX_READ_SEGMENTS).into());
        }
        check(position)?;
        let segment = parse_segment(r).map_err(Malformation::from)?;
        // RFC 8166 §3.4.5: all segments of one Position are one chunk, in the order of the list.
        match chunks.iter().position(|chunk| chunk.position == position) {
            Some(index) => chunks[index].segments.push(segment),
            None if chunks.len() == MAX_READ_CHUNKS => {
                return Err(too_many(Counted::ReadChunks, MAX_READ_CHUNKS).into());
            }
            None => {
                let segments = Segments::from_elem(segment, 1);
                chunks.push(ReadChunk { position, segments });
            }
        }
    }
    Ok(())
}

/// Reads the Position of the next segment of a Read list, if there is one.
fn parse_position(r: &mut Reader<'_>) -> Result<Option<u32>, Malformation> {
    if !r.bool()? {
        return Ok(None);
    }
    let position = r.u32()?;
    if !position.is_multiple_of(4) {
        return Err(Malformation::UnalignedPosition(position));
    }
    Ok(Some(position))
}

pub(crate) fn parse_write_list(r: &mut Reader<'_>) -> Result<Vec<WriteChunk>, Malformation> {
    let mut chunks = Vec::new();
    while r.bool()? {
        if chunks.len() == MAX_WRITE_CHUNKS {
            return Err(too_many(Counted::WriteChunks, MAX_WRITE_CHUNKS));
        }
        chunks.push(parse_write_chunk(r)?);
    }
    Ok(chunks)
}

pub(crate) fn parse_reply_chunk(r: &mut Reader<'_>) -> Result<Option<WriteChunk>, Malformation> {
    Ok(if r.bool()? {
        Some(parse_write_chunk(r)?)
    } else {
        None
    })
}

fn parse_write_chunk(r: &mut Reader<'_>) -> Result<WriteChunk, Malformation> {
    let count = r.u32()? as usize;
    if count > MAX_SEGMENTS_PER_CHUNK {
        return Err(too_many(Counted::ChunkSegments, MAX_SEGMENTS_PER_CHUNK));
    }
    let segments: Result<Segments, xdr::Error> = (0..count).map(|_| parse_segment(r)).collect();
    Ok(WriteChunk {
        segments: segments?,
    })
}

/// RFC 8166 §4.5: complete at 20 octets, an ERR_VERS at 28; the version is ours, echoed.
fn parse_error(version: u32, body: &[u8]) -> Option<RdmaError> {
    let mut r = Reader::new(body);
    let code = r.u32().ok()?;
    match code {
        _ if version != VERSION => None,
        error_code::VERS => Some(RdmaError::Version {
            low: r.u32().ok()?,
            high: r.u32().ok()?,
        }),
        error_code::CHUNK => Some(RdmaError::Chunk),
        _ => None,
    }
}

fn too_many(of: Counted, limit: usize) -> Malformation {
    Malformation::TooMany { of, limit }
}
