//! Sets of supported operations.

use super::code;

/// A set of supported operations. All are optional, but some require others (xcharext §4); no other
/// sets are valid.
///
/// Support for RESPXCH includes accepting and answering REQXCH. An unsupported operation is
/// answered with RDMA2_ERR_INVAL_OPTION.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Supported {
    /// No operations: version two without characteristics.
    None,
    /// INITXCH: characteristics that do not change.
    InitXch,
    /// INITXCH and RESPXCH: requests are granted or rejected at once.
    InitRespXch,
    /// INITXCH and UPDXCH: changes are announced, but cannot be requested. At most two are
    /// announced in the life of a connection
    /// ([`MAX_CONTROL_MESSAGES`](crate::limits::MAX_CONTROL_MESSAGES)), because the peer never
    /// acknowledges them; further ones are refused.
    InitUpdXch,
    /// All four operations. Only this set sends REQXCH.
    #[default]
    All,
}

impl Supported {
    /// All valid sets.
    pub const ALL: [Self; 5] = [
        Self::None,
        Self::InitXch,
        Self::InitRespXch,
        Self::InitUpdXch,
        Self::All,
    ];

    /// Whether an operation with this number is accepted.
    pub fn takes(self, operation: u32) -> bool {
        let [init, responds, updates] = match self {
            Self::None => [false, false, false],
            Self::InitXch => [true, false, false],
            Self::InitRespXch => [true, true, false],
            Self::InitUpdXch => [true, false, true],
            Self::All => [true, true, true],
        };
        match operation {
            code::INITXCH => init,
            code::REQXCH | code::RESPXCH => responds,
            code::UPDXCH => updates,
            _ => false,
        }
    }

    /// Whether REQXCH may be sent, which requires support for its answers (xcharext §4).
    pub fn requests(self) -> bool {
        self.takes(code::RESPXCH) && self.takes(code::UPDXCH)
    }
}
