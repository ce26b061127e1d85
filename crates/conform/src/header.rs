//! Transport headers in words, of version one (RFC 8166 §4) and of version two (cel-01 §4.2,
//! xcharext §4).

/// `rdma_proc`.
pub mod procedure {
    /// The RPC message is behind the header.
    pub const MSG: u32 = 0;
    /// It is in a chunk.
    pub const NOMSG: u32 = 1;
    /// An error.
    pub const ERROR: u32 = 4;
    /// (Version two) An operation.
    pub const OPTIONAL: u32 = 5;
}

/// `rdma_err`.
pub mod error {
    /// The version is not spoken.
    pub const VERS: u32 = 1;
    /// ERR_CHUNK, in version two RDMA2_ERR_BAD_HEADER: the header cannot be processed.
    pub const HEADER: u32 = 2;
    /// (Version two) The operation is not known.
    pub const INVAL_OPTION: u32 = 3;
}

/// (Version two) The direction word.
pub mod direction {
    /// From who calls.
    pub const CALL: u32 = 0;
    /// From who is called.
    pub const REPLY: u32 = 1;
}

/// (Version two) `rdma_opttype`.
pub mod operation {
    /// ROPT_INITXCH.
    pub const INITXCH: u32 = 1;
    /// ROPT_REQXCH.
    pub const REQXCH: u32 = 2;
    /// ROPT_RESPXCH.
    pub const RESPXCH: u32 = 3;
    /// ROPT_UPDXCH.
    pub const UPDXCH: u32 = 4;
}

/// (Version two) `xcharid`.
pub mod characteristic {
    /// Receive Buffer Size.
    pub const RBSIZ: u32 = 1;
    /// Requester Remote Invalidation.
    pub const REQREMINV: u32 = 2;
    /// Backward Request Support.
    pub const BRS: u32 = 3;
    /// Designs for remote invalidation, which is an experiment (`docs/design/version-two.md`).
    pub const DESIGNS: u32 = 4_294_967_040;
}

/// A version that is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// RFC 8166.
    One,
    /// cel-01.
    Two,
}

impl Version {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::One, Self::Two];

    /// `rdma_vers`.
    pub fn number(self) -> u32 {
        match self {
            Self::One => 1,
            Self::Two => 2,
        }
    }

    /// Converts a message of version one to this version, as the caller sends it.
    pub fn call(self, message: &[u32]) -> Vec<u32> {
        self.directed(message, direction::CALL)
    }

    /// Converts a message of version one to this version, as the called end sends it.
    pub fn reply(self, message: &[u32]) -> Vec<u32> {
        self.directed(message, direction::REPLY)
    }

    fn directed(self, message: &[u32], direction: u32) -> Vec<u32> {
        let mut message = message.to_vec();
        if let Some(version) = message.get_mut(1) {
            *version = self.number();
        }
        // An error has no direction word, as in the XDR.
        let is_error = message.get(3) == Some(&procedure::ERROR);
        if self == Self::Two && message.len() >= 4 && !is_error {
            message.insert(4, direction);
        }
        message
    }
}

/// (Version two) An operation with this information; 32 credits are asked for or granted.
///
/// # Panics
///
/// If that is longer than a length can say.
pub fn optional(xid: u32, direction: u32, operation: u32, info: &[u32]) -> Vec<u32> {
    let bytes = u32::try_from(info.len() * 4).expect("test data is short");
    let fixed = [xid, 2, 32, procedure::OPTIONAL, direction, operation, bytes];
    [&fixed, info].concat()
}

/// (Version two) The information of an INITXCH that says one word about each of these.
///
/// # Panics
///
/// If they are more than a count can say.
pub fn initial(values: &[(u32, u32)], nochg: &[u32]) -> Vec<u32> {
    let mut info = specification(values);
    info.push(u32::try_from(nochg.len()).expect("test data is short"));
    info.extend(nochg);
    info
}

/// (Version two) A set of characteristics of one word each: what a REQXCH asks for.
///
/// # Panics
///
/// If they are more than a count can say.
pub fn specification(values: &[(u32, u32)]) -> Vec<u32> {
    let mut info = vec![u32::try_from(values.len()).expect("test data is short")];
    for (id, value) in values {
        info.extend([*id, 4, *value]);
    }
    info
}

/// (Version two) The information of an UPDXCH about the size of Receives.
pub fn update(bytes: u32, pendclr: bool) -> Vec<u32> {
    vec![characteristic::RBSIZ, 4, bytes, pendclr.into()]
}
