//! Checks the outcome of an echo call.

use crate::echo::{Echo, How, Shape};
use crate::stage::Stage;
use oncrpc::TransportError;
use oncrpc::xdr;

/// Whether a call has its expected reply; the error describes an outcome that is not allowed.
pub(crate) fn judge(
    stage: &Stage,
    echo: &Echo,
    shape: &Shape,
    xid: u32,
    id: u64,
    reply: Result<xdr::Payload, TransportError>,
) -> Result<bool, String> {
    match reply {
        Ok(_) if shape.answer == How::Never => Err("a reply that nobody gave".into()),
        Ok(_) if echo.executed(id) == 0 => Err("a reply, but nobody executed it".into()),
        Ok(reply) => shape.check(xid, id, &reply).map(|()| true),
        Err(TransportError::Refused(_)) if shape.is_outgrown() => Ok(true),
        // A server does not try a call again whose chunks cost it a connection (RFC 8166 §4.5.3).
        Err(TransportError::Refused(_)) if stage.scenario.faults.failures > 0 => Ok(false),
        Err(
            TransportError::TimedOut(_)
            | TransportError::Disconnected(_)
            | TransportError::Unreachable(_),
        ) if !stage.scenario.must_succeed => Ok(false),
        Err(error) => Err(error.to_string()),
    }
}
