//! Scan of a reply.

use super::machine::{Absent, Scan, reply};
use super::place::{ItemPlace, ItemPlaces};
use super::session::{SessionOperation, Word};
use super::shape::Note;
use super::{ScannedCall, is_compound};
use smallvec::SmallVec;

/// Facts of a reply that a gateway needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScannedReply {
    /// The DDP-eligible results: data of READ, text of READLINK. No more than
    /// [`MAX_ITEMS`](crate::limits::MAX_ITEMS); others are part of the stream. A result without
    /// data is among them, because it has a Write chunk (RFC 8166 §4.3.2.2).
    pub results: ItemPlaces,
    /// Numbers of the operations of a COMPOUND, up to the first whose result is not known.
    pub operations: SmallVec<[u8; 16]>,
    /// CREATE_SESSION or BIND_CONN_TO_SESSION, if it succeeded.
    pub session: Option<SessionOperation>,
    /// `eir_flags` of each EXCHANGE_ID that succeeded, in order.
    pub exchange_flags: SmallVec<[Word; 1]>,
}

/// Scan of the reply to a scanned call, in pieces.
#[derive(Clone, Debug)]
pub struct ReplyScan {
    pub(super) scan: Scan,
    xid: u32,
    compound: bool,
}

impl ReplyScan {
    /// Begins the scan of the reply to a call.
    pub fn new(call: &ScannedCall) -> Self {
        Self::reduced(call, Absent::default())
    }

    /// Begins the scan of a reply whose results may have arrived beside it.
    pub(super) fn reduced(call: &ScannedCall, absent: Absent) -> Self {
        let shapes = match call.clear {
            true => reply(call.program, call.version, call.procedure),
            false => &[],
        };
        Self {
            scan: Scan::reduced(shapes, absent),
            xid: call.xid,
            compound: is_compound(call.program, call.version, call.procedure),
        }
    }

    /// Reads the next bytes of the reply.
    pub fn push(&mut self, bytes: &[u8]) {
        self.scan.push(bytes);
    }

    /// Returns the eligible results whose length was read. The last one may still be on its way.
    pub fn results(&self) -> &[ItemPlace] {
        self.scan.items()
    }

    /// Ends the scan after the last byte of the reply. It has nothing of errors, of malformed
    /// replies, and of replies to other calls.
    pub fn finish(self) -> ScannedReply {
        if !self.is_known() {
            return ScannedReply::default();
        }
        let session = self.scan.kept().operations().next();
        ScannedReply {
            operations: self.scan.operations().into(),
            session,
            exchange_flags: self.scan.kept().exchange_flags().collect(),
            results: self.scan.into_items(),
        }
    }

    /// Whether the results are those of the call.
    pub(super) fn is_known(&self) -> bool {
        self.scan.note(Note::Xid) == self.xid && (self.compound || self.scan.is_complete())
    }
}
