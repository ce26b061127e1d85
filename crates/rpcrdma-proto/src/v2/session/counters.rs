//! Counters of a session.

use crate::v2::characteristics::Oddities;

/// Counters of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages sent, answers included.
    pub sent: u64,
    /// Valid operations received.
    pub taken: u64,
    /// RDMA2_ERR_BAD_HEADER queued for a message of the peer.
    pub bad_header: u64,
    /// RDMA2_ERR_INVAL_OPTION queued for a message of the peer.
    pub inval_option: u64,
    /// RDMA2_ERROR received for a message of the session.
    pub refused: u64,
    /// Replies that were malformed or not supported, which are not answered.
    pub bad_replies: u64,
    /// Replies that match no message.
    pub stray_replies: u64,
    /// RESPXCHs whose subsets overlapped, were incomplete, or named too much.
    pub odd_responses: u64,
    /// UPDXCHs that ended a request that does not exist.
    pub stray_ends: u64,
    /// Values that had no effect: those of a second INITXCH, or of characteristics announced as
    /// unchanging.
    pub ignored: u64,
    /// Remote invalidation designs that were named but not agreed on.
    pub no_design: u64,
    /// Values of unknown characteristics.
    pub unknown: u64,
    /// Values with trailing bytes.
    pub trailing: u64,
    /// Bits of subsets beyond the values.
    pub bits_for_nothing: u64,
}

impl Counters {
    pub(super) fn count(&mut self, oddities: Oddities) {
        self.unknown += oddities.unknown as u64;
        self.trailing += oddities.trailing as u64;
        self.bits_for_nothing += oddities.bits_for_nothing as u64;
    }
}
