//! Headers of calls and replies (RFC 5531 §9).

use crate::auth::{AUTH_NONE, AuthStat, Credential, OpaqueAuth};
use crate::xdr::{Error, Payload, Reader, Writer};

/// The supported version of the RPC protocol (RFC 5531 §9).
pub const RPC_VERSION: u32 = 2;

/// Bytes of the header of a successful reply with an empty verifier.
pub const REPLY_HEADER: usize = 24;

/// Most bytes of the header of a reply: its verifier may have a body (RFC 5531 §8.2).
pub const MAX_REPLY_HEADER: usize = REPLY_HEADER + crate::auth::MAX_AUTH_BODY as usize;

const CALL: u32 = 0;
const REPLY: u32 = 1;
const ACCEPTED: u32 = 0;
const DENIED: u32 = 1;
const SUCCESS: u32 = 0;

/// The header of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallHeader<'a> {
    /// Transaction ID (XID), which matches the reply to the call.
    pub xid: u32,
    /// Program.
    pub prog: u32,
    /// Version of the program.
    pub vers: u32,
    /// Procedure.
    pub proc: u32,
    /// The caller's credential.
    pub cred: OpaqueAuth<'a>,
    /// The verifier of that credential.
    pub verf: OpaqueAuth<'a>,
}

/// Why a message cannot be executed as a call, and which error its sender gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The message is not a call; it gets no reply.
    #[error("the message is not a call")]
    NotACall,
    /// The call has another RPC version; the reply is RPC_MISMATCH.
    #[error("RPC version {version} is not 2")]
    RpcVersion {
        /// Transaction id of the call.
        xid: u32,
        /// RPC version of the call.
        version: u32,
    },
    /// Credential or verifier are malformed; the reply is AUTH_ERROR.
    #[error("{stat}")]
    Auth {
        /// Transaction id of the call.
        xid: u32,
        /// Reason of the authentication error.
        stat: AuthStat,
    },
    /// The header cannot be parsed; the reply is GARBAGE_ARGS, or what the transport has for a
    /// by-reference item inside of a header.
    #[error("the header of the call is unreadable: {error}")]
    Garbage {
        /// Transaction id of the call.
        xid: u32,
        /// Why the header cannot be parsed.
        error: Error,
    },
}

impl<'a> CallHeader<'a> {
    /// Reads the header of a call; the reader is then at its arguments.
    ///
    /// # Errors
    ///
    /// A [`CallError`], which tells how to answer.
    pub fn parse(r: &mut Reader<'a>) -> Result<Self, CallError> {
        let start = r.clone();
        if let Ok([xid, CALL, RPC_VERSION, prog, vers, proc]) = r.words() {
            return Self::of_procedure(r, xid, Procedure { prog, vers, proc });
        }
        // Errors of other headers are found word by word.
        *r = start;
        let xid = r.u32().map_err(|_| CallError::NotACall)?;
        let garbage = |error| CallError::Garbage { xid, error };
        match r.u32() {
            Ok(CALL) => {}
            Err(error @ Error::Ineligible) => return Err(garbage(error)),
            Ok(_) | Err(_) => return Err(CallError::NotACall),
        }
        let version = r.u32().map_err(garbage)?;
        if version != RPC_VERSION {
            return Err(CallError::RpcVersion { xid, version });
        }
        let target = Procedure {
            prog: r.u32().map_err(garbage)?,
            vers: r.u32().map_err(garbage)?,
            proc: r.u32().map_err(garbage)?,
        };
        Self::of_procedure(r, xid, target)
    }

    /// Reads the rest of the header.
    fn of_procedure(r: &mut Reader<'a>, xid: u32, target: Procedure) -> Result<Self, CallError> {
        let Procedure { prog, vers, proc } = target;
        Ok(Self {
            xid,
            prog,
            vers,
            proc,
            cred: auth(r, xid, AuthStat::BadCred)?,
            verf: auth(r, xid, AuthStat::BadVerf)?,
        })
    }
}

/// Reads a credential or verifier. A malformed one is an authentication error; a truncated one, or
/// a by-reference item in its place, makes the call GARBAGE_ARGS.
fn auth<'a>(r: &mut Reader<'a>, xid: u32, stat: AuthStat) -> Result<OpaqueAuth<'a>, CallError> {
    OpaqueAuth::parse(r).map_err(|error| match error {
        Error::TooLong { .. } | Error::Padding => CallError::Auth { xid, stat },
        Error::Short { .. }
        | Error::NotInEnum { .. }
        | Error::NotText
        | Error::Ineligible
        | Error::ItemLength { .. }
        | Error::NotReduced
        | Error::Trailing { .. } => CallError::Garbage { xid, error },
    })
}

/// Writes the header of a call with an empty verifier; its arguments follow.
pub fn write_call(w: &mut Writer, xid: u32, target: Procedure, cred: &Credential) {
    write_target(w, xid, target);
    cred.write(w);
    OpaqueAuth::NONE.write(w);
}

fn write_target(w: &mut Writer, xid: u32, target: Procedure) {
    let Procedure { prog, vers, proc } = target;
    w.words([xid, CALL, RPC_VERSION, prog, vers, proc]);
}

/// A credential with an empty verifier, encoded once for many calls.
#[derive(Clone, Debug)]
pub struct EncodedCredential {
    bytes: Box<[u8]>,
}

impl EncodedCredential {
    /// Encodes a credential.
    pub fn new(cred: &Credential) -> Self {
        let mut w = Writer::default();
        cred.write(&mut w);
        OpaqueAuth::NONE.write(&mut w);
        Self {
            bytes: w.finish().head().into(),
        }
    }

    /// Writes the header of a call, as [`write_call`] does; its arguments follow.
    pub fn write_call(&self, w: &mut Writer, xid: u32, target: Procedure) {
        write_target(w, xid, target);
        w.fixed(&self.bytes);
    }
}

/// A procedure of a version of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Procedure {
    /// Program.
    pub prog: u32,
    /// Version of the program.
    pub vers: u32,
    /// Procedure.
    pub proc: u32,
}

/// The header of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyHeader<'a> {
    /// Transaction id of the call.
    pub xid: u32,
    /// The status of the call.
    pub status: ReplyStatus<'a>,
}

/// The status of a call (`reply_body`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyStatus<'a> {
    /// The call was accepted (MSG_ACCEPTED).
    Accepted {
        /// The server's verifier.
        verf: OpaqueAuth<'a>,
        /// Status of the execution.
        status: AcceptStatus,
    },
    /// The call was denied (MSG_DENIED).
    Denied(RejectStatus),
}

/// Whether an accepted call was executed (`accept_stat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AcceptStatus {
    /// Executed; the results follow.
    Success,
    /// The server does not have the program.
    ProgUnavail,
    /// The server does not have this version of the program.
    ProgMismatch {
        /// Lowest supported version.
        low: u32,
        /// Highest supported version.
        high: u32,
    },
    /// The program does not have the procedure.
    ProcUnavail,
    /// The procedure cannot decode its arguments.
    GarbageArgs,
    /// The server failed, for instance for lack of memory.
    SystemErr,
}

/// Why a call was denied (`reject_stat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RejectStatus {
    /// The RPC version of the call is not supported.
    RpcMismatch {
        /// Lowest supported RPC version.
        low: u32,
        /// Highest supported RPC version.
        high: u32,
    },
    /// Authentication failed.
    AuthError(AuthStat),
}

impl ReplyStatus<'_> {
    /// An accepted call with an empty verifier.
    pub const fn accepted(status: AcceptStatus) -> Self {
        Self::Accepted {
            verf: OpaqueAuth::NONE,
            status,
        }
    }
}

impl<'a> ReplyHeader<'a> {
    /// Reads the header of a reply; the reader is then at the results.
    ///
    /// # Errors
    ///
    /// If it is not a reply, or a malformed one.
    pub fn parse(r: &mut Reader<'a>) -> Result<Self, Error> {
        let xid = r.u32()?;
        match r.u32()? {
            REPLY => {}
            value => {
                return Err(Error::NotInEnum {
                    value,
                    of: "the msg_type of a reply",
                });
            }
        }
        let status = match r.u32()? {
            ACCEPTED => ReplyStatus::Accepted {
                verf: OpaqueAuth::parse(r)?,
                status: AcceptStatus::parse(r)?,
            },
            DENIED => ReplyStatus::Denied(RejectStatus::parse(r)?),
            value => {
                return Err(Error::NotInEnum {
                    value,
                    of: "reply_stat",
                });
            }
        };
        Ok(Self { xid, status })
    }

    /// Writes the header of a reply; its results follow.
    pub fn write(self, w: &mut Writer) {
        match self.status {
            ReplyStatus::Accepted { verf, status } => {
                w.words([self.xid, REPLY, ACCEPTED]);
                verf.write(w);
                status.write(w);
            }
            ReplyStatus::Denied(status) => {
                w.words([self.xid, REPLY, DENIED]);
                status.write(w);
            }
        }
    }
}

/// Writes the header of a reply with results, which follow, and an empty verifier.
pub(crate) fn write_success(w: &mut Writer, xid: u32) {
    w.words([xid, REPLY, ACCEPTED, AUTH_NONE, 0, SUCCESS]);
}

impl AcceptStatus {
    fn parse(r: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(match r.u32()? {
            SUCCESS => Self::Success,
            1 => Self::ProgUnavail,
            2 => Self::ProgMismatch {
                low: r.u32()?,
                high: r.u32()?,
            },
            3 => Self::ProcUnavail,
            4 => Self::GarbageArgs,
            5 => Self::SystemErr,
            value => {
                return Err(Error::NotInEnum {
                    value,
                    of: "accept_stat",
                });
            }
        })
    }

    fn write(self, w: &mut Writer) {
        match self {
            Self::Success => w.u32(SUCCESS),
            Self::ProgUnavail => w.u32(1),
            Self::ProgMismatch { low, high } => {
                w.u32(2);
                w.u32(low);
                w.u32(high);
            }
            Self::ProcUnavail => w.u32(3),
            Self::GarbageArgs => w.u32(4),
            Self::SystemErr => w.u32(5),
        }
    }
}

impl RejectStatus {
    fn parse(r: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(match r.u32()? {
            0 => Self::RpcMismatch {
                low: r.u32()?,
                high: r.u32()?,
            },
            1 => Self::AuthError(r.u32()?.into()),
            value => {
                return Err(Error::NotInEnum {
                    value,
                    of: "reject_stat",
                });
            }
        })
    }

    fn write(self, w: &mut Writer) {
        match self {
            Self::RpcMismatch { low, high } => {
                w.u32(0);
                w.u32(low);
                w.u32(high);
            }
            Self::AuthError(stat) => {
                w.u32(1);
                w.u32(stat.into());
            }
        }
    }
}

/// Why a reply has no results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RpcError {
    /// PROG_UNAVAIL.
    #[error("the server does not have this program")]
    ProgUnavail,
    /// PROG_MISMATCH.
    #[error("the server has versions {low} to {high} of this program, not the one asked for")]
    ProgMismatch {
        /// Lowest supported version.
        low: u32,
        /// Highest supported version.
        high: u32,
    },
    /// PROC_UNAVAIL.
    #[error("the server does not have this procedure")]
    ProcUnavail,
    /// GARBAGE_ARGS.
    #[error("the server could not decode the arguments")]
    GarbageArgs,
    /// SYSTEM_ERR.
    #[error("the server had an error of its own (SYSTEM_ERR)")]
    SystemErr,
    /// RPC_MISMATCH.
    #[error("the server speaks RPC versions {low} to {high}, not 2")]
    RpcMismatch {
        /// Lowest supported RPC version.
        low: u32,
        /// Highest supported RPC version.
        high: u32,
    },
    /// AUTH_ERROR.
    #[error("the server denied the call: {0}")]
    Auth(AuthStat),
    /// The reply answers another call.
    #[error("the reply has another transaction id than the call")]
    OtherXid,
    /// The reply or its results cannot be read.
    #[error("the reply is malformed")]
    Malformed(#[from] Error),
}

/// Parses the header of the reply to call `xid` and returns a reader at its results.
///
/// # Errors
///
/// If the call was not executed, or the reply answers another call.
pub fn read_reply(reply: &Payload, xid: u32) -> Result<Reader<'_>, RpcError> {
    let mut r = Reader::from(reply);
    // Fast path for nearly every reply: executed, with an empty verifier.
    if let Ok([found, REPLY, ACCEPTED, _, 0, SUCCESS]) = r.words()
        && found == xid
    {
        return Ok(r);
    }
    r = Reader::from(reply);
    let header = ReplyHeader::parse(&mut r)?;
    if header.xid != xid {
        return Err(RpcError::OtherXid);
    }
    match header.status {
        ReplyStatus::Accepted { status, .. } => match status {
            AcceptStatus::Success => Ok(r),
            AcceptStatus::ProgUnavail => Err(RpcError::ProgUnavail),
            AcceptStatus::ProgMismatch { low, high } => Err(RpcError::ProgMismatch { low, high }),
            AcceptStatus::ProcUnavail => Err(RpcError::ProcUnavail),
            AcceptStatus::GarbageArgs => Err(RpcError::GarbageArgs),
            AcceptStatus::SystemErr => Err(RpcError::SystemErr),
        },
        ReplyStatus::Denied(RejectStatus::RpcMismatch { low, high }) => {
            Err(RpcError::RpcMismatch { low, high })
        }
        ReplyStatus::Denied(RejectStatus::AuthError(stat)) => Err(RpcError::Auth(stat)),
    }
}

#[cfg(test)]
mod tests;
