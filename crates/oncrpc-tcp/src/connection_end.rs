//! Why a connection is over.

use crate::record::RecordError;
use rpc_serving::ends::End;
use std::io;

/// Why a connection is over.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionEnd {
    /// The peer closed it.
    #[error("the peer closed it")]
    ByPeer,
    /// This end closed it.
    #[error(transparent)]
    ByThisEnd(#[from] End),
    /// It was silent for too long.
    #[error("silent for too long")]
    Idle,
    /// The peer did not send the rest of a message in time.
    #[error("a message did not come to its end in time")]
    ReceiveTimeout,
    /// The peer did not accept a message in time.
    #[error("the peer does not take what is sent")]
    WriteTimeout,
    /// Its calls had no reply, and held memory that others waited for.
    #[error("calls without a reply held memory for which others waited")]
    GaveWay,
    /// The system reported an error.
    #[error(transparent)]
    Io(io::Error),
    /// The peer broke the record marks (RFC 5531 §11).
    #[error(transparent)]
    Record(RecordError),
    /// The peer sent a record that is neither a call nor a reply (RFC 5531 §9).
    #[error("a record is neither a call nor a reply")]
    NotRpc,
}
