//! The characteristics that xcharext defines (xcharext §3).

use super::{Characteristic, MayChange, ValueError, XcharId};
use oncrpc::xdr;
use oncrpc::xdr::{Reader, Writer};
use std::fmt;

/// Receive Buffer Size, XCHAR_RBSIZ (xcharext §3.1): each Receive of whoever says it has at least
/// so many bytes, so the peer may send messages of that size.
#[derive(Clone, Copy, Debug)]
pub enum ReceiveBufferSize {}

/// Bytes of the smallest Receive that a peer has.
///
/// No upper limit: whoever sends has a largest message of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReceiveSize(u32);

impl ReceiveSize {
    /// What even the first message of a connection may count on (cel-01 §5).
    pub const MIN: Self = Self(1024);

    /// What everybody has who speaks version two (cel-01 §2.3).
    pub const DEFAULT: Self = Self(4096);

    /// A size of so many bytes, if that is not too small.
    pub fn new(bytes: u32) -> Option<Self> {
        (bytes >= Self::MIN.0).then_some(Self(bytes))
    }

    /// In bytes.
    pub fn bytes(self) -> usize {
        self.0 as usize
    }
}

impl Default for ReceiveSize {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Display for ReceiveSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Characteristic for ReceiveBufferSize {
    type Value = ReceiveSize;

    const ID: XcharId = XcharId(1);
    const NAME: &'static str = "Receive Buffer Size";
    const XDR: &'static str = "uint32";
    const FIXED: bool = false;

    fn default() -> ReceiveSize {
        ReceiveSize::DEFAULT
    }

    fn parse(r: &mut Reader<'_>) -> Result<ReceiveSize, ValueError> {
        let value = r.u32()?;
        ReceiveSize::new(value).ok_or(ValueError::TooSmall {
            value,
            least: ReceiveSize::MIN.0,
        })
    }

    fn emit(value: &ReceiveSize, w: &mut Writer) {
        w.u32(value.0);
    }

    /// xcharext §3.1: it is made smaller only when the peer has asked for it.
    fn may_change(from: &ReceiveSize, to: &ReceiveSize) -> MayChange {
        if to < from {
            MayChange::OnRequest
        } else {
            MayChange::Unasked
        }
    }
}

/// Requester Remote Invalidation, XCHAR_REQREMINV (xcharext §3.2): whether whoever says it is
/// prepared, as a Requester, for replies by Send With Invalidate.
#[derive(Clone, Copy, Debug)]
pub enum RequesterRemoteInvalidation {}

impl Characteristic for RequesterRemoteInvalidation {
    type Value = bool;

    const ID: XcharId = XcharId(2);
    const NAME: &'static str = "Requester Remote Invalidation";
    const XDR: &'static str = "bool";
    const FIXED: bool = true;

    fn default() -> bool {
        false
    }

    fn parse(r: &mut Reader<'_>) -> Result<bool, ValueError> {
        Ok(r.bool()?)
    }

    fn emit(value: &bool, w: &mut Writer) {
        w.bool(*value);
    }
}

/// Backward Request Support, XCHAR_BRS (xcharext §3.3): what a client can take of calls of the
/// server.
#[derive(Clone, Copy, Debug)]
pub enum BackwardRequestSupport {}

/// How much of the backward direction is supported, the least first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BackwardSupport {
    /// BKREQSUP_NONE: nothing.
    None,
    /// BKREQSUP_INLINE: messages without chunks.
    #[default]
    Inline,
    /// BKREQSUP_GENL: the same as in the forward direction.
    General,
}

impl Characteristic for BackwardRequestSupport {
    type Value = BackwardSupport;

    const ID: XcharId = XcharId(3);
    const NAME: &'static str = "Backward Request Support";
    const XDR: &'static str = "enum bkreqsup";
    const FIXED: bool = true;

    fn default() -> BackwardSupport {
        BackwardSupport::Inline
    }

    fn parse(r: &mut Reader<'_>) -> Result<BackwardSupport, ValueError> {
        let of = "bkreqsup";
        match r.u32()? {
            0 => Ok(BackwardSupport::None),
            1 => Ok(BackwardSupport::Inline),
            2 => Ok(BackwardSupport::General),
            value => Err(xdr::Error::NotInEnum { value, of }.into()),
        }
    }

    fn emit(value: &BackwardSupport, w: &mut Writer) {
        w.u32(match value {
            BackwardSupport::None => 0,
            BackwardSupport::Inline => 1,
            BackwardSupport::General => 2,
        });
    }
}
