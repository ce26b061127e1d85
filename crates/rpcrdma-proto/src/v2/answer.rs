//! The answer to a client's offer of version two (cel-01 §5.1, §5.2).

use super::codec::codec;
use super::dialect::{Dialect, Foreign};
use super::header::WordLayout;
use super::operations::code;
use crate::codec::{Body, Codec, Control, Invalid, PeerError, Rejection};
use crate::wire::codec::VersionOne;
use crate::wire::direction::Direction;
use crate::wire::header::HeaderView;

/// Answer to the offer of version two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The message does not answer the offer.
    None,
    /// An operation that may be the server's own INITXCH, which it sends whether or not it answers
    /// that of the client (xcharext §2.3, §4.1).
    Introduction {
        xid: u32,
        credits: u32,
        control: Control,
        stream: usize,
    },
    /// A message of another draft.
    Foreign(Foreign),
    /// Any message of ietf-07 that is no error: the peer speaks it.
    Spoken,
    /// An operation: the peer speaks version two.
    Operation {
        credits: u32,
        control: Control,
        stream: usize,
    },
    /// An error of version two other than ERR_VERS: the peer speaks version two.
    Error(PeerError),
    /// A reply of version two that cannot be read.
    Unreadable,
    /// ERR_VERS: the peer speaks these versions.
    Versions { low: u32, high: u32 },
    /// An error of version one other than ERR_VERS, which tells nothing about versions.
    Nonsense,
}

impl Answer {
    /// Classifies a message for the sender of the offer with XID `offer`.
    pub(super) fn of(dialect: Dialect, offer: u32, message: &[u8]) -> Self {
        let Some(view) = HeaderView::new(message) else {
            return Self::None;
        };
        let answers = view.xid() == offer;
        match Foreign::in_message(dialect, message) {
            Some(foreign @ Foreign::HeaderType(_)) => return Self::Foreign(foreign),
            Some(foreign @ Foreign::ErrorCode(_)) if answers => return Self::Foreign(foreign),
            Some(Foreign::ErrorCode(_)) | None => {}
        }
        match codec(dialect, WordLayout::None).parse(message) {
            Ok(header) => match header.body {
                Body::Control(control)
                    if control.operation == code::INITXCH
                        && !(answers && control.direction == Direction::Reply) =>
                {
                    Self::Introduction {
                        xid: header.xid,
                        credits: header.credits,
                        control,
                        stream: header.stream,
                    }
                }
                // No answer is due, so there is no XID to know it by.
                Body::Rpc(_) | Body::Part { .. } | Body::Properties { .. } | Body::Grant
                    if dialect == Dialect::Ietf07 =>
                {
                    Self::Spoken
                }
                _ if !answers => Self::None,
                Body::Error(error) => match error.cause {
                    Rejection::Versions { low, high } => Self::Versions { low, high },
                    _ if dialect == Dialect::Ietf07 => Self::Spoken,
                    _ => Self::Error(error),
                },
                Body::Control(control) if control.direction == Direction::Reply => {
                    Self::Operation {
                        credits: header.credits,
                        control,
                        stream: header.stream,
                    }
                }
                Body::Rpc(_)
                | Body::Control(_)
                | Body::Done
                | Body::Part { .. }
                | Body::Properties { .. }
                | Body::Grant => Self::None,
            },
            // Of version two, and to be answered as such.
            Err(Invalid::Malformed { .. } | Invalid::Reply { .. })
                if dialect == Dialect::Ietf07 =>
            {
                Self::Spoken
            }
            Err(_) if !answers => Self::None,
            Err(Invalid::Reply { .. }) => Self::Unreadable,
            // RFC 8166 §4.5.1 has the version echoed, but a peer that knows one version may say that.
            Err(_) => match VersionOne.parse(message).map(|header| header.body) {
                Ok(Body::Error(error)) => match error.cause {
                    Rejection::Versions { low, high } => Self::Versions { low, high },
                    _ => Self::Nonsense,
                },
                Ok(_) | Err(_) => Self::None,
            },
        }
    }
}
