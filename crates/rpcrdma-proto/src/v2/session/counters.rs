//! What a session has done and seen, in numbers.

use crate::v2::characteristics::Oddities;

/// What a session has done and seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages sent, answers included.
    pub sent: u64,
    /// Valid operations taken in.
    pub taken: u64,
    /// RDMA2_ERR_BAD_HEADER queued for a message of the peer.
    pub bad_header: u64,
    /// RDMA2_ERR_INVAL_OPTION queued for a message of the peer.
    pub inval_option: u64,
    /// RDMA2_ERROR received for a message of the session.
    pub refused: u64,
    /// Replies that were malformed or not supported, and so had no answer.
    pub bad_replies: u64,
    /// Replies to nothing.
    pub stray_replies: u64,
    /// RESPXCHs whose subsets overlapped, left something out, or named too much.
    pub odd_responses: u64,
    /// UPDXCHs that ended a request which there was not.
    pub stray_ends: u64,
    /// Values that had no effect: of a second INITXCH, or of what was said not to change.
    pub ignored: u64,
    /// Designs for remote invalidation that were named, but could not be agreed on.
    pub no_design: u64,
    /// Values of unknown characteristics.
    pub unknown: u64,
    /// Values with bytes behind their XDR.
    pub trailing: u64,
    /// Bits of subsets that were for no value.
    pub bits_for_nothing: u64,
}

impl Counters {
    pub(super) fn count(&mut self, oddities: Oddities) {
        self.unknown += oddities.unknown as u64;
        self.trailing += oddities.trailing as u64;
        self.bits_for_nothing += oddities.bits_for_nothing as u64;
    }
}
