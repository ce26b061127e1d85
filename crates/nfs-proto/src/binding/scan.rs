//! Scans of calls and replies of NFS versions 2, 3 and 4 that pass by unchanged (RFC 8267 §4, §6).
//!
//! A scan finds the DDP-eligible items of a message from its bytes, in pieces of any size, and
//! stages none of them. Each message is a list of XDR shapes, which are read word by word. Where a message does not have its shape, or an operation is not known, knowledge ends:
//! there are no items behind that place and no reply bound. It is for the server or client at the
//! end to answer.

mod bound;
mod compound;
mod legacy;
mod machine;
mod message;
mod place;
mod reply;
mod session;
mod shape;

pub use message::{
    Misplaced, apply, by_reference, place_results, scan_call, scan_received, scan_reply,
};
pub use place::{ItemPlace, ItemPlaces};
pub use reply::{ReplyScan, ScannedReply};
pub use session::{
    BindConnection, CONN_BACK_CHAN, CONN_RDMA, Channel, ChannelAttributes, CreateSession, Edit,
    SessionOperation, USE_NON_PNFS, USE_PNFS_MDS, Word,
};

use crate::NFSACL_PROGRAM;
pub use machine::BadItem;
use machine::{Scan, is_compound};
use oncrpc::ReplyBound;
use oncrpc::xdr::padded;
use shape::{CALL, Note};
use smallvec::SmallVec;

/// Facts of a call that a gateway needs to carry it over RDMA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScannedCall {
    /// XID.
    pub xid: u32,
    /// Program.
    pub program: u32,
    /// Version of the program.
    pub version: u32,
    /// Procedure.
    pub procedure: u32,
    /// Flavor of the credential.
    pub flavor: u32,
    /// Whether the arguments and results are in clear. RPCSEC_GSS with integrity or privacy makes
    /// them one opaque field without eligible items.
    pub clear: bool,
    /// Whether the message ended before its arguments: it was cut, or one of its lengths or counts is wrong.
    pub truncated: bool,
    /// The DDP-eligible arguments: data of WRITE, path of SYMLINK, text of CREATE. No more than
    /// [`MAX_ITEMS`](crate::limits::MAX_ITEMS); others are part of the stream.
    pub arguments: ItemPlaces,
    /// Bound of the reply and of its DDP-eligible results (RFC 8267 §3, §4.1, §6.2).
    ///
    /// `None` if it is not known: for results without a limit, for other programs, for calls that
    /// RPCSEC_GSS protects, for malformed calls, and for a count above
    /// [`MAX_DATA`](crate::limits::MAX_DATA) or
    /// [`MAX_DIRECTORY_REPLY`](crate::limits::MAX_DIRECTORY_REPLY).
    pub reply: Option<ReplyBound>,
    /// Whether the call may be sent again, with another XID and a larger Reply chunk, if its reply
    /// did not fit (RFC 8267 §3.1, §5.2, §6.2.1). Not with RPCSEC_GSS, whose verifier covers the XID
    /// (RFC 2203 §5.3.1).
    pub short_reply_retry: bool,
    /// The first by-reference argument that does not belong where it stands: its padding would change
    /// what the call says (RFC 8166 §3.4.5.2).
    pub bad_item: Option<BadItem>,
    /// Numbers of the operations of a COMPOUND, up to the first that is not known.
    pub operations: SmallVec<[u8; 16]>,
    /// CREATE_SESSION or BIND_CONN_TO_SESSION: the first of them.
    pub session: Option<SessionOperation>,
    /// The further ones, in order.
    pub later_sessions: SmallVec<[SessionOperation; 1]>,
}

impl ScannedCall {
    /// Returns each CREATE_SESSION and BIND_CONN_TO_SESSION, in order.
    pub fn sessions(&self) -> impl Iterator<Item = &SessionOperation> {
        self.session.iter().chain(&self.later_sessions)
    }

    /// Returns the bound of the reply if no more than so many results have a Write chunk: later ones
    /// are part of the stream (RFC 8267 §6.4.1).
    ///
    /// A client that does not know the limits of its server offers one Write chunk at most, and one
    /// Read chunk beside the one at Position zero (RFC 8267 §6.4.2).
    pub fn reply_with_chunks(&self, chunks: usize) -> Option<ReplyBound> {
        let mut bound = self.reply.clone()?;
        let kept = chunks.min(bound.results.len());
        let inline: usize = bound.results.drain(kept..).map(padded).sum();
        bound.fixed += inline;
        Some(bound)
    }
}

/// Scan of a call in pieces.
///
/// ```
/// use nfs_proto::scan::{CallScan, ItemPlace};
///
/// // SYMLINK of version 2, AUTH_NONE: "a" with the target "abcde".
/// let mut call = Vec::new();
/// for word in [7u32, 0, 2, 100_003, 2, 13, 0, 0, 0, 0] {
///     call.extend(word.to_be_bytes());
/// }
/// call.extend([0; 32]);
/// call.extend(*b"\0\0\0\x01a\0\0\0\0\0\0\x05abcde\0\0\0");
///
/// let mut scan = CallScan::default();
/// for piece in call.chunks(3) {
///     scan.push(piece);
/// }
/// let call = scan.finish().ok_or("not a call")?;
/// assert_eq!(call.arguments[..], [ItemPlace { offset: 84, length: 5 }]);
/// # Ok::<_, &str>(())
/// ```
#[derive(Clone, Debug)]
pub struct CallScan(Scan);

impl Default for CallScan {
    fn default() -> Self {
        Self(Scan::new(CALL))
    }
}

impl CallScan {
    /// Reads the next bytes of the call.
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.push(bytes);
    }

    /// Steps over an item that is not part of the received stream, because it has a Read chunk: of
    /// `length` bytes, with or without padding (RFC 8166 §3.4.5.2).
    ///
    /// If no eligible argument of this length begins here, knowledge ends.
    pub fn step_over(&mut self, length: usize) {
        self.0.step_over(length);
    }

    /// Returns the eligible arguments whose length was read. The last one may still be on its way.
    pub fn arguments(&self) -> &[ItemPlace] {
        self.0.items()
    }

    /// Ends the scan after the last byte of the message. Returns `None` if it has no header of a
    /// call.
    pub fn finish(self) -> Option<ScannedCall> {
        let scan = self.0;
        if !scan.has_header() {
            return None;
        }
        let program = scan.note(Note::Program);
        let (version, procedure) = (scan.note(Note::Version), scan.note(Note::Procedure));
        let compound = is_compound(program, version, procedure);
        let getacl = (program, procedure) == (NFSACL_PROGRAM, 1);
        let minor_version = scan.note(Note::MinorVersion);
        let operations = scan.operations();
        let mut sessions = scan.kept().operations();
        let (session, later_sessions) = (sessions.next(), sessions.collect());
        Some(ScannedCall {
            xid: scan.note(Note::Xid),
            program,
            version,
            procedure,
            flavor: scan.note(Note::Flavor),
            clear: scan.is_clear(),
            truncated: scan.is_truncated(),
            bad_item: scan.bad_item(),
            reply: bound::bound(&scan),
            short_reply_retry: scan.is_complete()
                && !scan.is_gss()
                && (getacl || compound && compound::may_retry(minor_version, operations)),
            operations: operations.into(),
            session,
            later_sessions,
            // A call of the other versions has one item at most, behind what could be malformed.
            arguments: if compound || scan.is_complete() {
                scan.into_items()
            } else {
                ItemPlaces::new()
            },
        })
    }
}
