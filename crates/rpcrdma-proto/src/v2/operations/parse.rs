//! Parser of operations.

use super::{InitXch, Operation, ReqXch, RespXch, Supported, UpdXch, code};
use crate::v2::characteristics::{
    Oddities, Registry, SpecError, SpecMalformed, XcharSpec, XcharSubset, XcharVal,
};
use crate::v2::header::{Direction, Disposition, Optional};
use oncrpc::xdr;
use oncrpc::xdr::Reader;

/// Why an RDMA2_OPTIONAL is not processed. Nothing of it takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperationError {
    /// The operation is unknown or not supported.
    #[error("operation {0} is not supported (cel-01 §3.1)")]
    Unsupported(u32),
    /// The operation is malformed.
    #[error("operation {operation}: {cause} (xcharext §2.1)")]
    Malformed {
        /// `rdma_opttype` of the operation.
        operation: u32,
        /// The malformation.
        cause: OperationMalformed,
    },
}

/// A malformation of an operation: xcharext calls all of it an XDR error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperationMalformed {
    /// The information is not valid XDR of the operation's type.
    #[error(transparent)]
    Xdr(#[from] xdr::Error),
    /// The characteristics are not a valid set.
    #[error(transparent)]
    Spec(#[from] SpecMalformed),
    /// The value of a known characteristic is invalid.
    #[error(transparent)]
    Value(#[from] SpecError),
    /// The direction is wrong: a request is a call, and its answer a reply (cel-01 §4.2.2).
    #[error("wrong direction")]
    Direction,
    /// An RPC message follows, which no operation has (xcharext §4).
    #[error("{len} bytes follow the header")]
    Payload {
        /// Number of bytes that follow.
        len: usize,
    },
}

impl OperationError {
    /// Returns how to answer the operation, for a message with this XID, direction and credits.
    ///
    /// A message that claims to be a reply gets no answer: an RDMA2_ERROR is a reply itself, and
    /// would end an unrelated call of the peer with that XID.
    pub fn disposition(self, xid: u32, credits: u32, direction: Direction) -> Disposition {
        match (direction, self) {
            (Direction::Reply, _) => Disposition::Discard,
            (Direction::Call, Self::Unsupported(_)) => Disposition::InvalOption { xid, credits },
            (Direction::Call, Self::Malformed { .. }) => Disposition::BadHeader { xid, credits },
        }
    }
}

impl Operation {
    /// Parses an operation, where `rest` follows the header. Also returns its oddities.
    ///
    /// # Errors
    ///
    /// If the operation is not supported, or is malformed.
    pub fn parse(
        optional: &Optional,
        rest: &[u8],
        supported: Supported,
        registry: &Registry,
    ) -> Result<(Self, Oddities), OperationError> {
        let operation = optional.operation;
        if !supported.takes(operation) {
            return Err(OperationError::Unsupported(operation));
        }
        let mut oddities = Oddities::default();
        let parsed = parse(optional, rest, registry, &mut oddities);
        let parsed = parsed.map_err(|cause| OperationError::Malformed { operation, cause })?;
        Ok((parsed, oddities))
    }
}

fn parse(
    optional: &Optional,
    rest: &[u8],
    registry: &Registry,
    oddities: &mut Oddities,
) -> Result<Operation, OperationMalformed> {
    if !goes(optional.operation, optional.direction) {
        return Err(OperationMalformed::Direction);
    }
    if !rest.is_empty() {
        return Err(OperationMalformed::Payload { len: rest.len() });
    }
    let mut r = Reader::new(&optional.info);
    let operation = match optional.operation {
        code::INITXCH => {
            let start = checked_spec(&mut r, registry, oddities)?;
            let nochg = XcharSubset::parse(&mut r)?;
            let meant = XcharSubset::first(start.len());
            oddities.bits_for_nothing += nochg.without(meant).len();
            let nochg = nochg.intersection(meant);
            Operation::InitXch(InitXch { start, nochg })
        }
        code::REQXCH => Operation::ReqXch(ReqXch {
            want: checked_spec(&mut r, registry, oddities)?,
        }),
        code::RESPXCH => Operation::RespXch(RespXch {
            done: XcharSubset::parse(&mut r)?,
            rejected: XcharSubset::parse(&mut r)?,
            pending: XcharSubset::parse(&mut r)?,
        }),
        code::UPDXCH => {
            let now = XcharVal::parse(&mut r)?;
            registry.check_value(&now, oddities)?;
            let pendclr = r.bool()?;
            Operation::UpdXch(UpdXch { now, pendclr })
        }
        other => unreachable!("operation {other} is in no set of supported ones"),
    };
    r.finish()?;
    Ok(operation)
}

fn checked_spec(
    r: &mut Reader<'_>,
    registry: &Registry,
    oddities: &mut Oddities,
) -> Result<XcharSpec, OperationMalformed> {
    let spec = XcharSpec::parse(r)?;
    *oddities = registry.check(&spec)?;
    Ok(spec)
}

/// Whether an operation may have this direction (cel-01 §4.2.2). The answer of a server to the
/// INITXCH of its client is an INITXCH too. The drafts do not define the direction of an UPDXCH, so
/// both are accepted.
fn goes(operation: u32, direction: Direction) -> bool {
    match operation {
        code::REQXCH => direction == Direction::Call,
        code::RESPXCH => direction == Direction::Reply,
        _ => true,
    }
}
