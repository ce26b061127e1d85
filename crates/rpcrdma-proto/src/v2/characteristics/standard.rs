//! The characteristics that xcharext defines (xcharext §3).

use super::{Characteristic, MayChange, ValueError, XcharId};
use oncrpc::xdr;
use oncrpc::xdr::{Reader, Writer};
use std::fmt;

/// Receive Buffer Size, XCHAR_RBSIZ (xcharext §3.1): the least size of the sender's Receives, and
/// therefore the largest message that the peer may send.
#[derive(Clone, Copy, Debug)]
pub enum ReceiveBufferSize {}

/// A Receive Buffer Size in bytes.
///
/// It has no upper limit, because a sender has a maximum of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReceiveSize(u32);

impl ReceiveSize {
    /// Size on which even the first message of a connection may rely (cel-01 §5).
    pub const MIN: Self = Self(1024);

    /// Size that every end of version two supports (cel-01 §2.3).
    pub const DEFAULT: Self = Self(4096);

    /// Creates a size, if it is not below the minimum.
    pub fn new(bytes: u32) -> Option<Self> {
        (bytes >= Self::MIN.0).then_some(Self(bytes))
    }

    /// Returns the size in bytes.
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

    /// Longer messages would not fit.
    fn withdraws(from: &ReceiveSize, to: &ReceiveSize) -> bool {
        to < from
    }
}

/// Requester Remote Invalidation, XCHAR_REQREMINV (xcharext §3.2): whether the sender, as a
/// Requester, accepts replies by Send With Invalidate.
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

    /// With false, replies must be Sends (xcharext §3.2).
    fn withdraws(from: &bool, to: &bool) -> bool {
        *from && !*to
    }
}

/// Backward Request Support, XCHAR_BRS (xcharext §3.3): which calls of the server a client accepts.
#[derive(Clone, Copy, Debug)]
pub enum BackwardRequestSupport {}

/// Level of support for the backward direction, in ascending order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BackwardSupport {
    /// BKREQSUP_NONE: no calls.
    None,
    /// BKREQSUP_INLINE: calls without chunks.
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

    /// Calls of the level before are no longer accepted (xcharext §3.3).
    fn withdraws(from: &BackwardSupport, to: &BackwardSupport) -> bool {
        to < from
    }
}
