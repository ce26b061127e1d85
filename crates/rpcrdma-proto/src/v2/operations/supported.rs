//! Which operations an end takes in.

use super::code;

/// A set of operations that may be supported: all are optional, but some only with others (xcharext
/// §4). There are no other sets than these.
///
/// Whoever supports RESPXCH takes in REQXCH and answers it. What is not supported draws
/// RDMA2_ERR_INVAL_OPTION.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Supported {
    /// Version two without characteristics.
    None,
    /// Characteristics that do not change.
    InitXch,
    /// INITXCH and RESPXCH: requests are answered, and done or rejected at once.
    InitRespXch,
    /// INITXCH and UPDXCH: changes are told, but none can be asked for. Two are told in the life of a
    /// connection ([`MAX_CONTROL_MESSAGES`](crate::limits::MAX_CONTROL_MESSAGES)), as the peer never
    /// shows that it has taken them in; further ones are refused.
    InitUpdXch,
    /// All four. Only then is REQXCH sent.
    #[default]
    All,
}

impl Supported {
    /// Every set there is.
    pub const ALL: [Self; 5] = [
        Self::None,
        Self::InitXch,
        Self::InitRespXch,
        Self::InitUpdXch,
        Self::All,
    ];

    /// Whether an operation of this number is taken in.
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

    /// Whether REQXCH may be sent: what it draws has to be understood (xcharext §4).
    pub fn requests(self) -> bool {
        self.takes(code::RESPXCH) && self.takes(code::UPDXCH)
    }
}
